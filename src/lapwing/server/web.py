"""People over HTTP: who sends a request, signing in and out, and the routes for people and tokens.

Claim    a session is always new after signing in, and a token never makes itself stronger.
Because  `begin_session` makes a new secret and ends the browser's old session. Whatever manages people or
         tokens asks for a session.
Test     tests/server/test_web.py

The services are at `request.app.state.services`, with `people` and `settings`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from lapwing.core.exact import exact
from lapwing.errors import BadParameter, MissingExtra, TooManyRequests
from lapwing.server.guards import ADDRESS, COOKIE, PERSON, SECRET_COOKIES
from lapwing.server.people.accounts import typed_name
from lapwing.server.people.links import DEVICE_SECONDS, LinkKind
from lapwing.server.people.managing import (
    account_json,
    managed_account,
    manages,
    own_tokens,
    require_steward,
    roles_named,
    seen_account,
    seen_accounts,
    seen_tokens,
    token_json,
)
from lapwing.server.people.people import People
from lapwing.server.people.person import NotAllowed, NotFound, NotSignedIn, Requester, Role
from lapwing.server.settings import SIGN_IN_SECONDS, ServerSettings

try:
    from fastapi import APIRouter
    from pydantic import BaseModel, ConfigDict, Field, StringConstraints
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
except ImportError:
    raise MissingExtra("server", "Serving data") from None
from lapwing.web.replies import cookie_header, cookie_name  # needs the extra, too

if TYPE_CHECKING:
    from lapwing.server.people.open_id import OpenIdClient

DEVICE_COOKIE = "lapwing-known"
OPEN_ID_COOKIE = "lapwing-sign-in"
COOKIES = (COOKIE, DEVICE_COOKIE, OPEN_ID_COOKIE)
BACK = "/oidc/back"
# The browser came here from the provider's site, so a redirection would not bring the new cookie (Strict).
# This page goes on by itself, as a page of this server.
_SIGNED_IN = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Signed in</title>
<meta http-equiv="refresh" content="0;url={page}"></head>
<body><main><h1>Signed in</h1><p><a href="{page}">Go on</a></p></main></body></html>"""
_PAGE = re.compile(r"/(?:[\w.~-][\w./~-]*(?:\?[\w.~=&%-]*)?)?", re.ASCII)
_HEX = re.compile(r"(?:[0-7][0-9a-f]){1,400}")
router = APIRouter()


class PeopleServices(Protocol):
    """The part of a server's services that the routes of people need."""

    @property
    def settings(self) -> ServerSettings:
        """The settings of the server."""

    @property
    def people(self) -> People:
        """Accounts, and what they sign in with."""


def person_of(request: Request) -> Requester:
    """Return who sends a request, as the guards have found out from its cookie or its token.

    Raises NotSignedIn if nobody is signed in.
    """
    person = request.scope.get(PERSON)
    if not isinstance(person, Requester):
        raise NotSignedIn
    return person


def signed_in_person(request: Request) -> Requester:
    """Return who sends a request, in a browser. Raises NotAllowed for a token: it manages nothing."""
    person = person_of(request)
    if person.credential != "session":
        raise NotAllowed("token")
    return person


def services_of(request: Request) -> PeopleServices:
    """Return the services of the server that a request is for."""
    found: PeopleServices = request.app.state.services
    return found


# Signing in and out. The pages call these, too.


@dataclass(frozen=True, slots=True)
class CookieChange:
    """The cookies that a reply sets: after signing in or out."""

    name: str
    headers: tuple[str, ...]

    def into(self, response: Response) -> Response:
        """Put the cookies into a reply, and return it."""
        for header in self.headers:
            response.headers.append("set-cookie", header)
        return response


def sign_in(request: Request, name: str, password: str) -> CookieChange:
    """Sign in with a password: a new session, and the end of the one that the browser had.

    Raises:
        NotSignedIn: If name or password are wrong, the same for both.
        TooManyRequests: If there were too many failures, or too many passwords wait to be checked.
    """
    people, name = services_of(request).people, typed_name(name)
    address, device = request.scope.get(ADDRESS, ""), _device(request, name)
    own = _with_password(people, name, password, address, device)
    if own is None:
        raise NotSignedIn
    known = "" if device else people.links.make_device(own)
    return begin_session(request, own, device=known)


def _with_password(people: People, name: str, password: str, address: str, device: str) -> str | None:
    """Return the account that has this password, or None, within the limits of failures."""
    people.limits.begin(address, name, device)
    try:
        own = people.accounts.with_password(name, password)
    except TooManyRequests:  # nobody looked at the password
        people.limits.not_failed(address, name, device)
        raise
    if own is not None:
        people.limits.not_failed(address, name, device)
    return own


def begin_session(request: Request, name: str, *, device: str = "") -> CookieChange:
    """Begin a session of somebody who has just shown who they are. The browser's old session ends."""
    services = services_of(request)
    encrypted = services.settings.is_encrypted
    secret = services.people.sessions.begin(name)
    before = request.scope.get(PERSON)
    if isinstance(before, Requester) and before.credential == "session":
        services.people.sessions.end(before.credential_id)
    headers = [cookie_header(COOKIE, secret, has_tls=encrypted)]
    if device:
        headers.append(cookie_header(DEVICE_COOKIE, device, has_tls=encrypted, seconds=DEVICE_SECONDS))
    return CookieChange(name, tuple(headers))


def sign_out(request: Request, *, everywhere: bool = False) -> CookieChange:
    """End the session of the browser, or all sessions of the account."""
    services, person = services_of(request), signed_in_person(request)
    if everywhere:
        services.people.sessions.end_all(person.name)
    else:
        services.people.sessions.end(person.credential_id)
    gone = cookie_header(COOKIE, "", has_tls=services.settings.is_encrypted, seconds=0)
    return CookieChange(person.name, (gone,))


def _device(request: Request, name: str) -> str:
    """Return the secret of a browser that has signed in as this account before; "" for others."""
    services = services_of(request)
    cookies: Mapping[str, str] = request.scope.get(SECRET_COOKIES, {})
    secret = cookies.get(cookie_name(DEVICE_COOKIE, has_tls=services.settings.is_encrypted), "")
    return secret if secret and services.people.links.is_device(secret, name) else ""


# Forms of requests


Words = Annotated[str, StringConstraints(strict=True, max_length=1024)]


class PeopleForm(BaseModel):
    """The body of a request about people. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SignInForm(PeopleForm):
    """A name and its password."""

    name: Words
    password: Words


class NewPasswordForm(PeopleForm):
    """A new password, after the old one."""

    old: Words
    new: Words


class LinkPasswordForm(PeopleForm):
    """A new password, with a link that was made for it."""

    link: Words
    password: Words


class NewPersonForm(PeopleForm):
    """A new account, with its roles for one data set."""

    name: Words
    shown_name: Words = ""
    data: Words
    roles: list[Words] = Field(max_length=len(Role))


class RolesForm(PeopleForm):
    """The roles of an account for one data set: all of them."""

    data: Words
    roles: list[Words] = Field(max_length=len(Role))


class IdentityForm(PeopleForm):
    """An identity at an OpenID provider."""

    issuer: Words
    subject: Words


class NewTokenForm(PeopleForm):
    """A new token. `most_epsilon` is decimal text; `days` is how long it lasts."""

    name: Words
    data: list[Words] | None = Field(None, max_length=100)
    most_epsilon: Words | None = None
    days: int = Field(ge=1, le=366)


# Routes


_NONE: dict[int | str, dict[str, Any]] = {204: {"description": "Done."}}


@router.post("/session", status_code=204, responses=_NONE, tags=["people"])
def post_session(request: Request, form: SignInForm) -> Response:
    """Sign in with a password."""
    return sign_in(request, form.name, form.password).into(Response(status_code=204))


@router.delete("/session", status_code=204, responses=_NONE, tags=["people"])
def delete_session(request: Request, everywhere: bool = False) -> Response:
    """Sign out here, or in all browsers."""
    return sign_out(request, everywhere=everywhere).into(Response(status_code=204))


@router.get("/start", include_in_schema=False)
def get_start(request: Request, key: str) -> Response:
    """Sign in with a start link: once, and on this machine alone."""
    services, headers = services_of(request), request.headers
    # A browser may fetch an address before its owner opens it, which would use the link up.
    is_opened = headers.get("sec-fetch-site", "none") == "none" and "sec-purpose" not in headers
    if not services.settings.is_loopback or not is_opened:
        raise NotSignedIn
    name = services.people.links.use(key, LinkKind.START)
    return begin_session(request, name).into(RedirectResponse("/welcome", 303))


@router.get("/oidc/sign-in", include_in_schema=False)
def get_open_id_sign_in(request: Request, next: str = "/") -> Response:  # noqa: A002  its name in the address
    """Send the browser to the OpenID provider. `next` is the page of this server that follows."""
    client, encrypted = _open_id(request), services_of(request).settings.is_encrypted
    secret, address = client.begin(_back(request))
    value = f"{secret}.{own_page(next).encode().hex()}"
    header = cookie_header(
        OPEN_ID_COOKIE, value, has_tls=encrypted, seconds=SIGN_IN_SECONDS, same_site="Lax"
    )
    return CookieChange("", (header,)).into(RedirectResponse(address, 303))


@router.get(BACK, include_in_schema=False)
def get_open_id_back(request: Request) -> Response:
    """Sign in with what the browser brings from the OpenID provider, once."""
    client, encrypted = _open_id(request), services_of(request).settings.is_encrypted
    cookies: Mapping[str, str] = request.scope.get(SECRET_COOKIES, {})
    cookie = cookies.get(cookie_name(OPEN_ID_COOKIE, has_tls=encrypted), "")
    secret, _, page = cookie.partition(".")
    if len(request.query_params.multi_items()) != len(request.query_params):
        raise NotSignedIn
    name = client.finish(secret, _back(request), request.query_params)
    gone = cookie_header(OPEN_ID_COOKIE, "", has_tls=encrypted, seconds=0, same_site="Lax")
    following = escape(own_page(bytes.fromhex(page).decode()) if _HEX.fullmatch(page) else "/")
    reply = begin_session(request, name).into(HTMLResponse(_SIGNED_IN.format(page=following)))
    return CookieChange(name, (gone,)).into(reply)


def own_page(address: str) -> str:
    """Return an address if it is one of a page here, and "/" for all others."""
    return address if _PAGE.fullmatch(address) and len(address) <= 400 else "/"


def _open_id(request: Request) -> OpenIdClient:
    client = services_of(request).people.open_id
    if client is None:
        raise NotFound("oidc")
    return client


def _back(request: Request) -> str:
    """Return the address to which the provider sends browsers back."""
    settings = services_of(request).settings
    own = settings.address or f"{settings.scheme}://{request.headers['host'].lower()}"
    return f"{own}{BACK}"


@router.get("/v1/me", tags=["people"])
def get_me(request: Request) -> JSONResponse:
    """Return who sends the request, with which roles."""
    person = person_of(request)
    found: dict[str, Any] = {
        "name": person.name,
        "shown_name": person.shown_name,
        "roles": {data: sorted(roles) for data, roles in sorted(person.usable_roles.items())},
        "credential": person.credential,
        "data": None if person.scope is None else sorted(person.scope),
    }
    if person.credential == "token":
        found["token"] = token_json(services_of(request).people.tokens.known(person.credential_id))
    return JSONResponse(found)


@router.put("/v1/me/password", status_code=204, responses=_NONE, tags=["people"])
def put_password(request: Request, form: NewPasswordForm) -> Response:
    """Set a new password. All other sessions of the account end."""
    people, person = services_of(request).people, signed_in_person(request)
    address, device = request.scope.get(ADDRESS, ""), _device(request, person.name)
    if _with_password(people, person.name, form.old, address, device) is None:
        raise BadParameter("old", "is not the password")
    people.accounts.set_password(person.name, form.new)
    return begin_session(request, person.name).into(Response(status_code=204))


@router.post("/v1/password", status_code=204, responses=_NONE, tags=["people"])
def post_password(request: Request, form: LinkPasswordForm) -> Response:
    """Set the password with a link from a steward, and sign in."""
    people = services_of(request).people
    people.links.name_of(form.link, LinkKind.PASSWORD)  # before any work
    name = people.accounts.set_password_by_link(form.link, form.password)
    return begin_session(request, name).into(Response(status_code=204))


@router.get("/v1/people", tags=["people"])
def get_people(request: Request) -> JSONResponse:
    """Return the accounts that the person sees: stewards and officers, those of their data sets."""
    services, person = services_of(request), person_of(request)
    found = [account_json(person, account) for account in seen_accounts(person, services.people)]
    return JSONResponse({"people": found})


@router.post("/v1/people", status_code=201, tags=["people"])
def post_people(request: Request, form: NewPersonForm) -> JSONResponse:
    """Make an account with roles for one data set. The link lets its owner set the password, once."""
    people, person = services_of(request).people, signed_in_person(request)
    require_steward(person, form.data)
    roles = roles_named(form.roles)
    made = people.accounts.make(form.name, shown_name=form.shown_name, by=person.name)
    people.accounts.set_roles(made.name, form.data, roles)
    found = account_json(person, people.accounts.known(made.name))
    return JSONResponse({"person": found, "password_link": people.links.make_password(made.name)}, 201)


@router.put("/v1/people/{name}/roles", tags=["people"])
def put_roles(request: Request, name: str, form: RolesForm) -> JSONResponse:
    """Replace the roles of an account for a data set that the person is steward of."""
    people, person = services_of(request).people, signed_in_person(request)
    require_steward(person, form.data)
    people.accounts.set_roles(name, form.data, roles_named(form.roles))
    return JSONResponse({"person": account_json(person, people.accounts.known(name))})


@router.post("/v1/people/{name}/disable", status_code=204, responses=_NONE, tags=["people"])
def post_disable(request: Request, name: str) -> Response:
    """End an account: its sessions and tokens end at once."""
    people, person = services_of(request).people, signed_in_person(request)
    people.accounts.disable(managed_account(person, people, name).name)
    return Response(status_code=204)


@router.post("/v1/people/{name}/password-link", status_code=201, tags=["people"])
def post_password_link(request: Request, name: str) -> JSONResponse:
    """Make a link with which the account's owner sets a new password, once, within three days."""
    people, person = services_of(request).people, signed_in_person(request)
    account = managed_account(person, people, name)
    if account.is_disabled:
        raise NotFound(name)
    return JSONResponse({"password_link": people.links.make_password(name)}, 201)


@router.post("/v1/people/{name}/identities", tags=["people"])
def post_identity(request: Request, name: str, form: IdentityForm) -> JSONResponse:
    """Let whoever has an identity at the OpenID provider sign in as the account."""
    people, person = services_of(request).people, signed_in_person(request)
    managed_account(person, people, name)
    people.accounts.bind(name, form.issuer, form.subject)
    return JSONResponse({"person": account_json(person, people.accounts.known(name))})


@router.delete("/v1/people/{name}/identities", tags=["people"])
def delete_identity(request: Request, name: str, form: IdentityForm) -> JSONResponse:
    """Remove an identity of the account, and end its sessions."""
    people, person = services_of(request).people, signed_in_person(request)
    managed_account(person, people, name)
    people.accounts.unbind(name, form.issuer, form.subject)
    return JSONResponse({"person": account_json(person, people.accounts.known(name))})


@router.get("/v1/tokens", tags=["tokens"])
def get_tokens(request: Request) -> JSONResponse:
    """Return the person's own tokens, also those that have ended."""
    tokens = own_tokens(person_of(request), services_of(request).people)
    return JSONResponse({"tokens": [token_json(token) for token in tokens]})


@router.post("/v1/tokens", status_code=201, tags=["tokens"])
def post_tokens(request: Request, form: NewTokenForm) -> JSONResponse:
    """Make a token of the person's own. Its secret is in this reply, and nowhere else."""
    people, person = services_of(request).people, signed_in_person(request)
    most = None if form.most_epsilon is None else exact(form.most_epsilon, "most_epsilon")
    token, secret = people.tokens.make(
        person,
        name=form.name,
        data=None if form.data is None else frozenset(form.data),
        most_epsilon=most,
        expires=datetime.now(UTC) + timedelta(days=form.days),
    )
    return JSONResponse({"token": token_json(token), "secret": secret}, 201)


@router.delete("/v1/tokens/{token_id}", status_code=204, responses=_NONE, tags=["tokens"])
def delete_token(request: Request, token_id: str) -> Response:
    """End a token: one's own, or of an account that the person manages."""
    people, person = services_of(request).people, signed_in_person(request)
    token = people.tokens.known(token_id)
    if token.name != person.name and not manages(person, people.accounts.known(token.name)):
        raise NotFound(token_id)
    people.tokens.revoke(token_id)
    return Response(status_code=204)


@router.get("/v1/people/{name}/tokens", tags=["tokens"])
def get_tokens_of(request: Request, name: str) -> JSONResponse:
    """Return the tokens of an account that the person sees."""
    people, person = services_of(request).people, person_of(request)
    account = seen_account(person, people, name)
    found = seen_tokens(person, people, account)
    return JSONResponse({"tokens": [token_json(token) for token in found]})
