"""The web service of a survey: the page, the public description, and two requests.

`POST /sign`    an invitation and a blinded token; the signature comes back. Shows that somebody takes
part. `POST /report`  a token, its signature and a report. Shows a randomized answer, and not whose it is.

The connection of a signature ends with it: a report comes over another one (`CLOSING_PATHS`).

Nothing is logged, and nothing is stored beside the store's own records: no address, no time, no header.
Replies depend on the form of a request, on invitations and tokens, never on the content of a report.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lapwing.errors import BadParameter, BadValue, MissingExtra, Unavailable
from lapwing.survey.designing import Design, design
from lapwing.survey.report_store import IntakeResult, StoppingRule
from lapwing.survey.service import InvalidCredential, SurveyService, open_report_store, open_signing_key
from lapwing.survey.survey_file import load

try:
    from fastapi import FastAPI
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response
except ImportError:
    raise MissingExtra("server", "Serving a survey") from None
from lapwing.web.replies import SecureReplies, json_route, page_routes  # needs the extra, too

VERSION = 1
PAGES = Path(__file__).parent / "pages"
# A report must come over another connection than the invitation: the connection of these replies ends.
CLOSING_PATHS = frozenset({"/survey.json", "/sign"})
_EXTRA_BYTES = 1024  # for names, punctuation and spaces around the values of a request
CONTENT_SECONDS = 20.0  # seconds until the whole content of a request must be there
_READ_AT_MOST = 1 << 20  # bytes beyond the limit are still read, so that the client can read the reply
_HEX = re.compile(r"([0-9a-f]{2})*")
_JSON = "application/json"
# Telemetry would tell others the time, the address and the failures of every request. No environment
# variable may turn it on.
_NO_TELEMETRY: Any = dict.fromkeys(
    ("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False
)
_ACCEPTED = b'{"accepted":true}'
_WRONG = {IntakeResult.OTHER: 409, IntakeResult.CLOSED: 410, IntakeResult.UNKNOWN: 403}
_TEXTS = {
    403: "this invitation is not known",
    404: "there is nothing here",
    405: "this cannot be asked so",
    408: "this took too long",
    409: "this was used before, for something else",
    410: "the survey is closed",
    413: "this is too long",
    415: f"the content must be {_JSON}",
}


@dataclass(frozen=True)
class HostedSurvey:
    """A survey that accepts respondents: its design, its key and its reports."""

    design: Design
    service: SurveyService

    def app(self, *, has_tls: bool = False) -> FastAPI:
        """Return the survey as a web application."""
        return create_app(self.service, self.design.public(), has_tls=has_tls)


def open_survey(path: str | Path) -> HostedSurvey:
    """Open the survey of a file. Its signing key and its store of reports are made at the first use."""
    planned = design(load(path))
    return HostedSurvey(planned, open_service(planned))


def open_service(planned: Design) -> SurveyService:
    """Open the service of a survey: its store and its signing key."""
    survey, digest, size = planned.survey, planned.digest, planned.report_size
    key = open_signing_key(survey.ledger, survey.ledger_keys, name=survey.name, digest=digest)
    store = open_report_store(survey.reports, digest=digest, report_size=size)
    rule = StoppingRule(survey.stop_after, survey.until)
    return SurveyService(store, key, digest, size, planned.check, rule)


def create_app(
    service: SurveyService,
    public: Mapping[str, Any],
    *,
    has_tls: bool = False,
    patience: float = CONTENT_SECONDS,
) -> FastAPI:
    """Return the web application of an open survey. `public` is its description for respondents."""
    key = service.key.public.to_json()
    known = {"survey": public, "digest": service.digest, "key": key, "version": VERSION}

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(service.close)  # reports that were accepted are committed

    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        telemetry=_NO_TELEMETRY,
    )
    app.state.patience = patience
    app.add_route("/report", partial(_report, service), methods=["POST"])  # the most frequent request first
    app.add_route("/sign", partial(_sign, service), methods=["POST"])
    app.router.routes.append(json_route("/survey.json", json.dumps(known, ensure_ascii=True).encode()))
    app.router.routes.extend(page_routes(PAGES))
    for kind in (HTTPException, BadParameter, BadValue, Unavailable, ClientDisconnect):
        app.add_exception_handler(kind, _refuse)
    app.add_middleware(SecureReplies, has_tls=has_tls, closing_paths=CLOSING_PATHS)
    return app


async def _refuse(_: Request, error: Exception) -> Response:
    """Return the reply to a request that failed, the same for every request."""
    match error:
        case HTTPException(status_code=status):
            return _failed(status, _TEXTS.get(status, "this cannot be answered"))
        case InvalidCredential():
            return _failed(403, "this credential is not one of this survey")
        case BadParameter(why=text):
            return _failed(422, text)
        case Unavailable():
            return _failed(503, "this cannot be stored now; send it again later", {"Retry-After": "60"})
        case BadValue():
            return _failed(422, str(error))
        case _:
            return Response(status_code=400)  # the client is gone


def _failed(status: int, error: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": error}, status, headers)


async def _sign(service: SurveyService, request: Request) -> Response:
    size = 2 * service.key.public.size
    body = await _fields(request, {"invitation", "blinded"}, size)
    signature = await run_in_threadpool(service.sign, body["invitation"], _bytes(body, "blinded", size))
    if isinstance(signature, IntakeResult):
        raise HTTPException(_WRONG[signature])
    return JSONResponse({"signature": signature.hex()})


async def _report(service: SurveyService, request: Request) -> Response:
    key_size, size = 2 * service.key.public.size, 2 * service.report_size
    body = await _fields(request, {"digest", "token", "signature", "report"}, key_size + size)
    future = service.take(
        body["digest"],
        _bytes(body, "token"),
        _bytes(body, "signature", key_size),
        _bytes(body, "report", size),
    )
    verdict = await asyncio.wrap_future(future)
    if verdict in _WRONG:
        raise HTTPException(_WRONG[verdict])
    return Response(_ACCEPTED, media_type=_JSON)


async def _fields(request: Request, names: set[str], longest: int) -> dict[str, str]:
    """Return the texts of a JSON object with exactly these names. Read no more than can belong to them."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        raise HTTPException(415)  # so no form of another site can send it
    content = await _content(request, longest + _EXTRA_BYTES)
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise BadValue("this is not JSON") from None
    if not isinstance(body, dict) or set(body) != names:
        raise BadValue(f"this must have {', '.join(sorted(names))} and nothing else")
    if not all(isinstance(value, str) for value in body.values()):
        raise BadValue("every value must be text")
    return body


async def _content(request: Request, at_most: int) -> bytes:
    """Read the content of a request, if it is not too long and does not take too long."""
    content, count = bytearray(), 0
    try:
        async with asyncio.timeout(request.app.state.patience):
            async for piece in request.stream():
                count += len(piece)
                if count <= at_most:
                    content += piece
                elif count > _READ_AT_MOST:
                    break
    except TimeoutError:
        raise HTTPException(408) from None
    if count > at_most:
        raise HTTPException(413)
    return bytes(content)


def _bytes(body: Mapping[str, str], name: str, digits: int | None = None) -> bytes:
    text = body[name]
    if not _HEX.fullmatch(text) or (digits is not None and len(text) != digits):
        wanted = "" if digits is None else f"{digits} "
        raise BadValue(f"{name} must be {wanted}hexadecimal digits, in small letters")
    return bytes.fromhex(text)
