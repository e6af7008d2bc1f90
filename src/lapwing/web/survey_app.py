"""A survey as a web application: the page, what it needs to know, and two requests.

`POST /sign`    an invitation and a blinded token; the signature comes back. Says that somebody takes part.
`POST /report`  a token, its signature and a report. Says what was thrown, and not who threw it.

The connection of a signature ends with it: a report comes over another one (headers.py).

Nothing is logged and nothing is stored but what the store keeps: no address, no time, no header. What is
answered depends on the form of a request, on invitations and tokens, never on what a report says.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from lapwing.errors import BadParameter, BadValue, Unavailable
from lapwing.survey.report_store import IntakeResult
from lapwing.survey.service import InvalidCredential, SurveyService
from lapwing.web.replies import SecureReplies, json_route, page_routes

VERSION = 1
_ROOM = 1024  # for names, signs and spaces around the values of a request
CONTENT_SECONDS = 20.0  # seconds, for the content of a request
_LET_GO = 1 << 20  # bytes that are too many are let pass, so that whoever sends them can read the reply
_HEX = re.compile(r"([0-9a-f]{2})*")
_JSON = "application/json"
# It would tell others the time, the address and the failures of every request. No variable of the
# environment may turn it on.
_NO_TELEMETRY: Any = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}
_ACCEPTED = b'{"accepted":true}'
_WRONG: Mapping[IntakeResult, tuple[int, str]] = {
    IntakeResult.OTHER: (409, "this was used before, for something else"),
    IntakeResult.CLOSED: (410, "the survey is closed"),
    IntakeResult.UNKNOWN: (403, "this invitation is not known"),
}
_PLAIN = {
    404: "there is nothing here",
    405: "this cannot be asked so",
    408: "this took too long",
    413: "this is too long",
}


class _Refused(Exception):
    """A reply that is not what was asked for."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__()
        self.status = status
        self.error = error


def create_app(
    desk: SurveyService,
    public: Mapping[str, Any],
    *,
    has_tls: bool = False,
    patience: float = CONTENT_SECONDS,
) -> FastAPI:
    """The application of an open survey. `public` is what its design tells respondents."""
    known = {"survey": public, "digest": desk.digest, "key": desk.key.public.to_json(), "version": VERSION}

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(desk.close)  # whoever is promised a commit gets it

    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=life,
        telemetry=_NO_TELEMETRY,
    )
    app.state.patience = patience
    app.add_route("/report", _guarded(desk, _report), methods=["POST"])  # the most frequent comes first
    app.add_route("/sign", _guarded(desk, _sign), methods=["POST"])
    app.router.routes.append(json_route("/survey.json", json.dumps(known, ensure_ascii=True).encode()))
    app.router.routes.extend(page_routes())
    app.add_exception_handler(HTTPException, _not_found)
    app.add_middleware(SecureReplies, has_tls=has_tls)
    return app


async def _not_found(_: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    return _failed(status, _PLAIN.get(status, "this cannot be answered"))


def _failed(status: int, error: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": error}, status, headers)


def _guarded(desk: SurveyService, work: Any) -> Any:
    """A request as an endpoint: what it raises becomes a reply that is the same for all alike."""

    async def endpoint(request: Request) -> Response:
        try:
            reply: Response = await work(desk, request)
            return reply
        except (_Refused, BadParameter, BadValue, Unavailable, ClientDisconnect) as error:
            return _reply_to(error)

    return endpoint


def _reply_to(error: Exception) -> Response:
    match error:
        case _Refused(status=status, error=text):
            return _failed(status, text)
        case InvalidCredential():
            return _failed(403, "this credential is not one of this survey")
        case BadParameter(why=text):
            return _failed(422, text)
        case Unavailable():
            return _failed(503, "this cannot be stored now; send it again later", {"Retry-After": "60"})
        case BadValue():
            return _failed(422, str(error))
        case _:
            return Response(status_code=400)  # whoever asked is gone


async def _sign(desk: SurveyService, request: Request) -> Response:
    size = 2 * desk.key.public.size
    body = await _fields(request, {"invitation", "blinded"}, size)
    signature = await run_in_threadpool(desk.sign, body["invitation"], _bytes(body, "blinded", size))
    if isinstance(signature, IntakeResult):
        raise _Refused(*_WRONG[signature])
    return JSONResponse({"signature": signature.hex()})


async def _report(desk: SurveyService, request: Request) -> Response:
    key_size, size = 2 * desk.key.public.size, 2 * desk.report_size
    body = await _fields(request, {"digest", "token", "signature", "report"}, key_size + size)
    future = desk.take(
        body["digest"],
        _bytes(body, "token"),
        _bytes(body, "signature", key_size),
        _bytes(body, "report", size),
    )
    verdict = await asyncio.wrap_future(future)
    if verdict in _WRONG:
        raise _Refused(*_WRONG[verdict])
    return Response(_ACCEPTED, media_type=_JSON)


async def _fields(request: Request, names: set[str], longest: int) -> dict[str, str]:
    """The texts of a JSON object with exactly these names; not more than can belong to them is read."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        raise _Refused(415, f"the content must be {_JSON}")  # so no form of another site can send it
    content = await _content(request, longest + _ROOM)
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise BadValue("this is not JSON") from None
    if not isinstance(body, dict) or set(body) != names:
        raise BadValue(f"this must have {', '.join(sorted(names))} and nothing else")
    if not all(isinstance(value, str) for value in body.values()):
        raise BadValue("every value must be text")
    return body


async def _content(request: Request, most: int) -> bytes:
    """What was sent, if it is not too much and does not take too long."""
    content, count = bytearray(), 0
    try:
        async with asyncio.timeout(request.app.state.patience):
            async for piece in request.stream():
                count += len(piece)
                if count <= most:
                    content += piece
                elif count > _LET_GO:
                    break
    except TimeoutError:
        raise _Refused(408, _PLAIN[408]) from None
    if count > most:
        raise _Refused(413, _PLAIN[413])
    return bytes(content)


def _bytes(body: Mapping[str, str], name: str, digits: int | None = None) -> bytes:
    text = body[name]
    if not _HEX.fullmatch(text) or (digits is not None and len(text) != digits):
        wanted = "" if digits is None else f"{digits} "
        raise BadValue(f"{name} must be {wanted}hexadecimal digits, in small letters")
    return bytes.fromhex(text)
