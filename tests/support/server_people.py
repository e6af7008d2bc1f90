"""A server with the routes of people alone, and clients that behave like browsers or programs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from lapwing.errors import BadParameter, LapwingError, TooManyRequests
from lapwing.server import web
from lapwing.server.guards import Guards
from lapwing.server.people import passwords
from lapwing.server.people.people import People
from lapwing.server.people.person import (
    EVERYWHERE,
    IdentityNotBound,
    NotAllowed,
    NotFound,
    NotSignedIn,
    Role,
)
from lapwing.server.settings import ServerSettings
from lapwing.server.state import ServerState
from lapwing.web.replies import SecureReplies, cookie_name

GOOD = "correct horse battery"


class InProcess(httpx.BaseTransport):
    """Sends requests to an application in this process."""

    def __init__(self, app: FastAPI) -> None:
        self._inner = httpx.ASGITransport(app, raise_app_exceptions=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request, and return the whole reply."""
        return asyncio.run(self._reply(request))

    async def _reply(self, request: httpx.Request) -> httpx.Response:
        found = await self._inner.handle_async_request(request)
        return httpx.Response(found.status_code, headers=found.headers, content=await found.aread())


def client_of(app: FastAPI, base: str, headers: dict[str, str]) -> httpx.Client:
    """Return a client that keeps cookies and follows no redirections."""
    return httpx.Client(transport=InProcess(app), base_url=base, headers=headers)


def cheapen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let passwords cost little: tests/server/people/test_passwords.py has the real cost."""
    cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "_HASHER", cheap)
    monkeypatch.setattr(passwords, "_NOBODY", cheap.hash("nobody", salt=bytes(16)))


@dataclass
class Site:
    """An application with its services, and what was sent to it."""

    settings: ServerSettings
    state: ServerState
    people: People
    app: FastAPI
    seen: list[bytes]

    def browser(self, **headers: str) -> httpx.Client:
        """A client that keeps cookies, and says where its requests come from, as browsers do."""
        own = {"origin": self.base, "sec-fetch-site": "same-origin", **headers}
        return client_of(self.app, self.base, own)

    def program(self, token: str = "", **headers: str) -> httpx.Client:
        """A client with a token, or with nothing."""
        own = {"authorization": f"Bearer {token}"} if token else {}
        return client_of(self.app, self.base, {**own, **headers})

    @property
    def base(self) -> str:
        return f"{self.settings.scheme}://localhost"

    @property
    def cookie(self) -> str:
        return cookie_name("lapwing", has_tls=self.settings.is_encrypted)

    def signed_in(self, name: str) -> httpx.Client:
        """A browser in which somebody has signed in."""
        browser = self.browser()
        reply = browser.post("/session", json={"name": name, "password": GOOD})
        assert reply.status_code == 204, reply.text
        return browser

    def person(self, name: str, **roles: str) -> None:
        """Make an account. Roles are names by data set; `everywhere` is for all."""
        self.people.accounts.make(name, password=GOOD)
        for data, role in roles.items():
            where = EVERYWHERE if data == "everywhere" else data
            self.people.accounts.set_roles(name, where, frozenset(map(Role, role.split())))


@contextmanager
def opened_site(settings: ServerSettings) -> Iterator[Site]:
    """Open an application with the guards, the routes of people, and two that show what arrived."""
    state = ServerState.open(settings.state_folder)
    people = People.of(state, settings.open_id)
    app, seen = FastAPI(openapi_url=None), list[bytes]()
    site = Site(settings, state, people, app, seen)
    app.state.services = site
    app.include_router(web.router)

    @app.get("/who")
    def who(request: Request) -> JSONResponse:
        return JSONResponse({"name": web.person_of(request).name})

    @app.api_route("/change", methods=["POST", "PUT", "DELETE", "PATCH"])
    async def change(request: Request) -> Response:
        seen.append(await request.body())
        return PlainTextResponse("done")

    for kind in (NotSignedIn, NotFound, NotAllowed, LapwingError):
        app.add_exception_handler(kind, _told)
    app.add_middleware(Guards, settings=settings, people=people)
    app.add_middleware(
        SecureReplies,
        has_tls=settings.is_encrypted,
        cookies=[cookie_name(name, has_tls=settings.is_encrypted) for name in web.COOKIES],
    )
    try:
        yield site
    finally:
        people.close()
        state.close()


def _told(_: Request, error: Exception) -> Response:
    status, headers = 422, {}
    found: dict[str, Any] = {"code": getattr(error, "code", type(error).__name__)}
    match error:
        case NotSignedIn():
            status = 401
        case NotFound():
            status = 404
        case NotAllowed():
            status = 403
        case TooManyRequests():
            status, headers = 429, {"retry-after": str(error.retry_after)}
        case BadParameter():
            found |= {"name": error.name, "message": str(error)}
        case IdentityNotBound():
            status = 403
            found |= {"issuer": error.issuer, "subject": error.subject}
        case _:
            pass
    return JSONResponse({"error": found}, status, headers)


def settings_in(folder: Path, **more: Any) -> ServerSettings:
    """Settings of a server for this machine."""
    return ServerSettings(folder=folder, **more)
