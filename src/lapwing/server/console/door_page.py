"""The door: sign in, sign out, and the link that sets a password; files of the console."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from lapwing.errors import LapwingError
from lapwing.server.console.desk import PageRoute, Posted, end_guide, pages_of, see_other
from lapwing.server.people.links import LinkKind
from lapwing.server.people.person import NotFound, NotSignedIn
from lapwing.server.web import begin_session, person_of
from lapwing.server.web import sign_in as begin
from lapwing.server.web import sign_out as end

router = APIRouter(route_class=PageRoute, include_in_schema=False)


def local_address(wanted: str) -> str:
    """Return an address of this server, for going on after signing in; the first page for all others."""
    is_local = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and wanted.isprintable()
    return wanted if is_local and len(wanted) < 2000 and "\\" not in wanted else "/"


def _form(
    request: Request, *, wanted: str, wrong: str = "", name: str = "", status: int = 200, wait: int = 0
) -> Response:
    settings = request.app.state.services.settings
    open_id = settings.open_id
    reply = pages_of(request).reply(
        "sign_in.html",
        status,
        wanted=wanted,
        wrong=wrong,
        name=name,
        title=settings.title,
        open_id=(open_id.name or open_id.issuer) if open_id is not None else "",
    )
    if wait:
        reply.headers["Retry-After"] = str(wait)
    return reply


@router.get("/sign-in")
def sign_in_page(request: Request, next: str = "/") -> Response:  # noqa: A002 (the word in the address)
    """Show the form to sign in. Whoever is signed in goes on."""
    wanted = local_address(next)
    with suppress(NotSignedIn):
        person_of(request)
        return see_other(wanted)
    return _form(request, wanted=wanted)


@router.post("/sign-in")
def sign_in(request: Request, posted: Posted) -> Response:
    """Sign in with a password, and go to the wanted page."""
    wanted, name = local_address(posted.get("next", "/")), posted.get("name", "").strip()
    try:
        change: Any = begin(request, name, posted.get("password", ""))
    except NotSignedIn:
        wrong = "This name and this password do not belong together."
        return _form(request, wanted=wanted, wrong=wrong, name=name, status=401)
    except LapwingError as error:
        wait = int(getattr(error, "retry_after", 30))
        wrong = f"Too many tries. Wait {wait} seconds, then try again."
        return _form(request, wanted=wanted, wrong=wrong, name=name, status=429, wait=wait)
    reply: Response = change.into(see_other(wanted))
    return reply


@router.post("/sign-out")
def sign_out(request: Request) -> Response:
    """End the session of this browser."""
    reply: Response = see_other("/sign-in")
    with suppress(NotSignedIn):
        reply = end(request).into(reply)
    end_guide(reply)
    return reply


@router.get("/password")
def password_page(request: Request, key: str = "") -> Response:
    """Show the form that sets a password, with a link from a steward."""
    name = request.app.state.services.people.links.name_of(key, LinkKind.PASSWORD)
    return pages_of(request).reply("password.html", key=key, name=name, wrong="")


@router.post("/password")
def set_password(request: Request, posted: Posted) -> Response:
    """Set a password with a link, once, and sign in."""
    people, key = request.app.state.services.people, posted.get("key", "")
    name = people.links.name_of(key, LinkKind.PASSWORD)
    wrong = "" if posted.get("password") == posted.get("again") else "The two passwords differ."
    if not wrong:
        try:
            people.accounts.set_password_by_link(key, posted.get("password", ""))
            reply: Response = begin_session(request, name).into(see_other("/"))
            return reply
        except LapwingError as error:
            wrong = (
                f"{str(getattr(error, 'name', 'password')).capitalize()}: {getattr(error, 'why', error)}."
            )
    return pages_of(request).reply("password.html", 422, key=key, name=name, wrong=wrong)


@router.get("/files/{digest}/{name}")
def static_file(request: Request, digest: str, name: str) -> Response:
    """Return the stylesheet, the script or the icon."""
    found = pages_of(request).file(f"/files/{quote(digest)}/{quote(name)}")
    if found is None:
        raise NotFound(name)
    return found
