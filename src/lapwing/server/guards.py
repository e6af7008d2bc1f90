"""Guards: what every request must pass before any other code sees it.

Claim    a page of another site cannot make a signed-in browser change anything; nobody can use up the
         server's memory with bodies, or its time with requests.
Because  only known hosts are answered. A changing request must come from a page of this server, or bring
         a token and no cookie, which no browser sends by itself. Bodies are read here, up to a limit,
         within seconds. Requests are counted by person, and by address where there is no person.
Test     tests/server/test_guards.py

Addresses are kept in memory, while they are limited, and nowhere else.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
from contextlib import suppress
from dataclasses import dataclass

from lapwing.errors import MissingExtra, TooManyRequests, Unavailable
from lapwing.server.people.limits import RateLimit
from lapwing.server.people.people import People
from lapwing.server.people.person import Requester
from lapwing.server.settings import ServerSettings
from lapwing.web.connections import address_group

try:
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import cookie_parser
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError:
    raise MissingExtra("server", "Serving data") from None
from lapwing.web.replies import CLOSE, CLOSING_STATUSES, cookie_name  # needs the extra, too

COOKIE = "lapwing"
PERSON = "lapwing.person"  # in the scope: the Requester, or None
ADDRESS = "lapwing.address"  # in the scope: the group of the client's address, "" if it is not known
SECRET_COOKIES = "lapwing.cookies"  # noqa: S105  in the scope: the cookies by name
READING = frozenset({"GET", "HEAD"})
BODY_SECONDS = 20.0  # until the whole body must be there
UNKNOWN_BODY_BYTES = 4096  # of a request without a person: a form to sign in
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::[0-9]{1,5})?")
TYPES = frozenset({"application/json", "application/x-www-form-urlencoded"})
BURST_SECONDS = 10  # how many seconds' worth of requests may come at once


class GuardRefusal(Exception):
    """A request that is refused before anything is done. `status` and `code` say why."""

    def __init__(
        self, status: int, code: str, message: str, what_now: str, *, retry_after: int = 0
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.what_now, self.retry_after = what_now, retry_after


class Guards:
    """Middleware that identifies the sender of each request, and refuses requests that must not pass."""

    def __init__(self, app: ASGIApp, *, settings: ServerSettings, people: People) -> None:
        self._app = app
        self._settings = settings
        self._people = people
        self._cookie = cookie_name(COOKIE, has_tls=settings.is_encrypted)
        self._by_person = _limit(settings.requests_per_minute)
        self._by_address = _limit(settings.unknown_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":  # nothing else is served
            await self._guard(scope, receive, send)

    async def _guard(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            given = _Given.of(scope)
            self._check_host(given)
            person = await self._identify(scope, given)
            self._limit(scope, given, person)
            if scope["method"] not in READING:
                self._check_origin(given)
            body = await self._body(given, receive, person)
        except GuardRefusal as refusal:
            await _reply(refusal, send)
            return
        except Unavailable as error:
            words = "the server cannot look up who you are now"
            await _reply(GuardRefusal(503, error.code, words, "Try again.", retry_after=5), send)
            return
        except _Gone:
            return
        await self._app(scope, receive if body is None else _replayed(body, receive), send)

    def _check_host(self, given: _Given) -> None:
        host = given.one("host").lower()
        found = _HOST.fullmatch(host)
        if found is None or found[1] not in self._settings.hosts:
            raise GuardRefusal(
                421,
                "bad-host",
                "this server does not answer for the host of this address",
                'Whoever runs it adds the name to `hosts` under [server] in "server.toml".',
            )

    async def _identify(self, scope: Scope, given: _Given) -> Requester | None:
        """Return the person whom a cookie or a token stands for, and note it in the scope."""
        cookies = cookie_parser("; ".join(given.all("cookie")))
        secret, authorization = cookies.get(self._cookie, ""), given.one("authorization")
        person = None
        if secret and authorization:
            raise GuardRefusal(
                400,
                "two-credentials",
                "a request brings a cookie or a token, not both",
                "Send one of them.",
            )
        if authorization:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() == "bearer":
                person = self._people.tokens.find(token.strip())
        elif secret:
            session = self._people.sessions.find(secret)
            if session is not None:
                person = session.person
                if session.is_to_note:
                    with suppress(Unavailable):  # the next request notes it
                        await run_in_threadpool(self._people.sessions.note, person.credential_id)
        scope[PERSON] = person
        scope[SECRET_COOKIES] = cookies
        return person

    def _limit(self, scope: Scope, given: _Given, person: Requester | None) -> None:
        address = scope[ADDRESS] = self._address(scope, given)
        try:
            if person is not None:
                self._by_person.take(person.name)
            elif address:
                self._by_address.take(address)
        except TooManyRequests as error:
            raise GuardRefusal(
                429, error.code, str(error), "Wait, then send it again.", retry_after=error.retry_after
            ) from None

    def _address(self, scope: Scope, given: _Given) -> str:
        """Return the client's address, or "" behind a proxy that does not tell it."""
        if not self._settings.behind_tls_proxy:
            return address_group((scope.get("client") or ("",))[0])
        told = given.all(self._settings.client_address_header.lower())
        last = ",".join(told).rpartition(",")[2].strip()  # what the proxy itself has added
        try:
            return address_group(str(ipaddress.ip_address(last)))
        except ValueError:
            return ""

    def _check_origin(self, given: _Given) -> None:
        """Require that a changing request comes from a page of this server, or brings a token."""
        origin, site = given.one("origin"), given.one("sec-fetch-site")
        own = f"{self._settings.scheme}://{given.one('host').lower()}"
        if given.one("authorization") and site in ("", "same-origin", "none"):
            if not origin or origin == own:
                return
        elif (origin == own and site in ("", "none")) or (site == "same-origin" and origin in ("", own)):
            return
        raise GuardRefusal(
            403,
            "cross-site",
            "a request that changes something comes from a page of this server, or brings a token",
            "Open the page here and send it again; programs send a token and no cookie.",
        )

    async def _body(self, given: _Given, receive: Receive, person: Requester | None) -> bytes | None:
        """Read the body of a request, if it has one; None if there is none."""
        length, coding = given.one("content-length"), given.one("transfer-encoding")
        if coding and length:  # a proxy in front may see the end of the body elsewhere
            raise GuardRefusal(400, "bad-request", "a body has one length", "Send one header for it.")
        if not coding and length in ("", "0"):
            return None
        most = self._settings.body_bytes if person is not None else UNKNOWN_BODY_BYTES
        too_long = GuardRefusal(
            413, "too-large", f"a body has at most {most} bytes", "Send less, or sign in first."
        )
        if not coding and not (length.isdecimal() and len(length) < 16 and int(length) <= most):
            raise too_long
        if given.one("content-type").partition(";")[0].strip().lower() not in TYPES:
            raise GuardRefusal(
                415,
                "content-type",
                f"a body is one of {', '.join(sorted(TYPES))}",
                "Send it as one of these.",
            )
        content = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    content += message.get("body", b"")
                    if len(content) > most:
                        raise too_long
                    if not message.get("more_body"):
                        return bytes(content)
        except TimeoutError:
            raise GuardRefusal(
                408, "too-slow", f"a body must arrive within {BODY_SECONDS:g} s", "Send it again."
            ) from None


class _Gone(Exception):
    """The client hung up while it sent a body."""


@dataclass(frozen=True, slots=True)
class _Given:
    """The headers of a request, by name."""

    headers: dict[str, list[str]]

    @classmethod
    def of(cls, scope: Scope) -> _Given:
        values: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        return cls(values)

    def all(self, name: str) -> list[str]:
        return self.headers.get(name, [])

    def one(self, name: str) -> str:
        """Return a header that may come once; "" if it is missing."""
        values = self.headers.get(name, [])
        if len(values) > 1:
            raise GuardRefusal(400, "bad-request", "a header came twice", "Send it once.")
        return values[0].strip() if values else ""


def _limit(per_minute: int) -> RateLimit:
    return RateLimit(per_minute=per_minute, burst=max(10, per_minute * BURST_SECONDS / 60))


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a channel that gives the body, and then what comes after it."""
    is_given = False

    async def replay() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _reply(refusal: GuardRefusal, send: Send) -> None:
    """Send a refusal. The connection ends with it: the rest of the request is not read."""
    said = {"code": refusal.code, "message": refusal.message, "what_now": refusal.what_now}
    content = json.dumps({"error": said}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    if refusal.status not in CLOSING_STATUSES:  # there, `SecureReplies` ends it
        headers.append(CLOSE)
    if refusal.retry_after:
        headers.append((b"retry-after", str(refusal.retry_after).encode()))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
