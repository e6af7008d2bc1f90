"""Every route of pages and people, for every kind of visitor: the status of its reply, row by row.

The rows are compared with the routes of the application: a new page, or a new route for people, fails until
somebody has written down who may do what. The API's own table: tests/server/api/test_route_roles.py.

Of all visitors, only the stranger has no account. The token is of an account with all roles; that of the
disabled visitor had them. 303 leads to the page that follows, or a stranger to the form to sign in.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute, Route

from lapwing.server import web
from lapwing.server.app import OPEN_ROUTES, ROUTES, create_app
from lapwing.server.console.console import ROUTERS
from lapwing.server.people.person import Requester, Role
from support.cases import each
from support.served import BASE, COUNT, Door, write_data
from support.server_people import GOOD, cheapen, client_of

ROWS: dict[tuple[str, str], str] = {
    ("POST", "/session"): "204 204 204 204 204 204 204",
    ("DELETE", "/session"): "204 204 204 204 401 403 401",
    ("GET", "/start"): "303 303 303 303 303 303 303",
    ("GET", "/oidc/sign-in"): "404 404 404 404 404 404 404",
    ("GET", "/oidc/back"): "404 404 404 404 404 404 404",
    ("GET", "/v1/me"): "200 200 200 200 401 200 401",
    ("PUT", "/v1/me/password"): "204 204 204 204 401 403 401",
    ("POST", "/v1/password"): "204 204 204 204 204 204 204",
    ("GET", "/v1/people"): "200 403 200 403 401 200 401",
    ("POST", "/v1/people"): "201 403 403 403 401 403 401",
    ("PUT", "/v1/people/{name}/roles"): "200 403 403 403 401 403 401",
    ("POST", "/v1/people/{name}/disable"): "204 404 403 404 401 403 401",
    ("POST", "/v1/people/{name}/password-link"): "201 404 403 404 401 403 401",
    ("POST", "/v1/people/{name}/identities"): "200 404 403 404 401 403 401",
    ("DELETE", "/v1/people/{name}/identities"): "200 404 403 404 401 403 401",
    ("GET", "/v1/tokens"): "200 200 200 200 401 200 401",
    ("POST", "/v1/tokens"): "201 201 201 201 401 403 401",
    ("DELETE", "/v1/tokens/{token_id}"): "204 204 204 204 401 403 401",
    ("GET", "/v1/people/{name}/tokens"): "200 404 200 404 401 200 401",
    ("GET", "/sign-in"): "303 303 303 303 200 303 200",
    ("POST", "/sign-in"): "303 303 303 303 303 303 303",
    ("POST", "/sign-out"): "303 303 303 303 303 403 303",
    ("GET", "/password"): "200 200 200 200 200 200 200",
    ("POST", "/password"): "303 303 303 303 303 303 303",
    ("GET", "/files/{digest}/{name}"): "404 404 404 404 404 404 404",
    ("GET", "/"): "200 200 200 200 303 200 303",
    ("GET", "/welcome"): "303 303 303 303 303 303 303",
    ("POST", "/guide/skip"): "303 303 303 303 401 303 401",
    ("GET", "/jobs"): "200 200 200 200 303 200 303",
    ("GET", "/jobs/list"): "200 200 200 200 303 200 303",
    ("POST", "/d/{data}/jobs"): "422 403 422 403 401 422 401",
    ("GET", "/d/{data}/ask"): "403 200 403 403 303 200 303",
    ("POST", "/d/{data}/ask"): "403 303 403 403 401 303 401",
    ("POST", "/d/{data}/price"): "403 200 403 403 401 200 401",
    ("GET", "/d/{data}/ask/{plan_id}"): "403 200 403 403 303 404 303",
    ("GET", "/d/{data}/plans/{plan_id}/{theme}.svg"): "403 200 403 403 303 404 303",
    ("GET", "/d/{data}/plans/{plan_id}"): "403 200 403 403 303 404 303",
    ("POST", "/d/{data}/release"): "403 303 403 403 401 303 401",
    ("GET", "/answers/{answer_id}"): "200 200 200 403 303 200 303",
    ("GET", "/answers/{answer_id}/chart/{theme}.svg"): "404 200 404 404 303 404 303",
    ("GET", "/answers/{answer_id}/as/{kind}"): "404 200 404 404 303 404 303",
    ("GET", "/d/{data}/dashboard"): "403 200 403 403 303 200 303",
    ("POST", "/d/{data}/dashboard"): "403 303 403 403 401 303 401",
    ("GET", "/d/{data}/dashboard/{batch_id}"): "403 200 403 403 303 404 303",
    ("POST", "/d/{data}/dashboard/{batch_id}/release"): "403 303 403 403 401 404 401",
    ("GET", "/d/{data}/budget"): "200 200 200 403 303 200 303",
    ("GET", "/d/{data}/budget/chart/{theme}.svg"): "200 200 200 403 303 200 303",
    ("GET", "/d/{data}/history"): "200 200 403 403 303 200 303",
    ("GET", "/d/{data}/ledger"): "200 200 200 403 303 200 303",
    ("POST", "/d/{data}/ledger/verify"): "422 422 422 403 401 422 401",
    ("POST", "/d/{data}/ledger/signed"): "403 403 303 403 401 303 401",
    ("POST", "/d/{data}/ledger/check"): "200 403 200 403 401 200 401",
    ("GET", "/d/{data}/ledger/{number}/proof"): "200 200 200 403 303 200 303",
    ("GET", "/d/{data}/ledger/statement"): "200 403 200 403 303 200 303",
    ("GET", "/d/{data}"): "200 200 200 200 303 200 303",
    ("GET", "/people"): "200 403 200 403 303 200 303",
    ("POST", "/people"): "200 403 403 403 401 403 401",
    ("GET", "/people/{name}"): "200 404 200 404 303 200 303",
    ("POST", "/people/{name}/roles"): "303 403 403 403 401 403 401",
    ("POST", "/people/{name}/link"): "200 404 403 404 401 403 401",
    ("POST", "/people/{name}/end"): "303 404 403 404 401 403 401",
    ("GET", "/tokens"): "200 200 200 200 303 200 303",
    ("POST", "/tokens"): "200 200 200 200 401 403 401",
    ("POST", "/tokens/{token_id}/revoke"): "303 303 303 303 401 403 401",
    ("GET", "/surveys"): "200 200 200 200 303 200 303",
    ("GET", "/releases"): "200 200 200 403 303 200 303",
    ("GET", "/models"): "200 200 200 403 303 200 303",
    ("GET", "/audits"): "200 200 200 403 303 200 303",
}
VISITORS = ("steward", "analyst", "officer", "survey-owner", "stranger", "token", "disabled")


def _rows(routes: list[BaseRoute]) -> set[tuple[str, str]]:
    """Return method and address of all routes, also of routers within."""
    rows = set()
    for route in routes:
        if isinstance(route, Route):
            rows |= {(method, route.path) for method in (route.methods or set()) - {"HEAD"}}
        else:
            rows |= _rows(route.original_router.routes)  # type: ignore[attr-defined]
    return rows


JSON: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/session"): {"name": "guest", "password": GOOD},
    ("PUT", "/v1/me/password"): {"old": GOOD, "new": GOOD},
    ("POST", "/v1/password"): {"link": "{link}", "password": GOOD},
    ("POST", "/v1/people"): {"name": "new{n}", "data": "visits", "roles": ["analyst"]},
    ("PUT", "/v1/people/{name}/roles"): {"data": "visits", "roles": ["analyst"]},
    ("POST", "/v1/people/{name}/identities"): {"issuer": "https://id.example", "subject": "{n}"},
    ("DELETE", "/v1/people/{name}/identities"): {"issuer": "https://id.example", "subject": "own{n}"},
    ("POST", "/v1/tokens"): {"name": "x", "days": 3},
}
FORMS: dict[str, dict[str, str]] = {
    "/sign-in": {"name": "guest", "password": GOOD},
    "/password": {"key": "{link}", "password": GOOD, "again": GOOD},
    "/people": {"name": "new{n}", "data": "visits", "role": "analyst"},
    "/people/{name}/roles": {"data": "visits", "role": "analyst"},
    "/tokens": {"label": "x", "ends": (datetime.now(UTC) + timedelta(days=3)).date().isoformat()},
    "/d/{data}/ask": {"sql": COUNT, "epsilon": "0.1"},
    "/d/{data}/price": {"sql": COUNT, "epsilon": "0.1"},
    "/d/{data}/release": {"plan": "{plan_id}", "as_planned": "1", "sql": COUNT},
    "/d/{data}/dashboard": {"sql": COUNT, "epsilon": "0.1"},
    "/d/{data}/jobs": {"kind": "audit"},  # of no question, so none begins
    "/d/{data}/ledger/verify": {"text": "{}"},
    "/d/{data}/ledger/signed": {"entry": "1"},
}
QUERY = {"/start": "?key={start}", "/password": "?key={link}"}


class _Site(Door):
    """A server, with visitors who have what they made while they were analysts, and one role now."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.people = self.services.people
        self.people.accounts.make("guest", password=GOOD)
        self.numbers = itertools.count()
        self.things, self.browsers = dict[str, dict[str, str]](), dict[str, httpx.Client]()
        for name in VISITORS[:4]:
            self.things[name] = self._settle(name)
        for name in VISITORS[4:]:
            self.things[name] = self.things["analyst"]
        self.program = self.client("program", *Role)
        self.people.accounts.make("disabled", password=GOOD)
        self.people.accounts.set_roles("disabled", "visits", frozenset(Role))
        self.ended = self._browser("disabled").cookies
        self.people.accounts.disable("disabled")

    def _settle(self, name: str) -> dict[str, str]:
        """Make an account with a plan, an answer and a batch, and then with its role alone."""
        client = self.client(name, Role.ANALYST)
        answer = self.release(client)
        batch = {"data": "visits", "epsilon": "0.1", "questions": [{"sql": COUNT}]}
        found = {
            "plan_id": self.plan(client),
            "answer_id": answer["id"],
            "number": str(answer["receipt"]["position"]),
            "batch_id": client.post("/v1/batches", json=batch).json()["id"],
        }
        self.people.accounts.set_password(name, GOOD)
        self.people.accounts.set_roles(name, "visits", frozenset({Role(name)}))
        return found

    def _browser(self, name: str = "") -> httpx.Client:
        own = {"origin": BASE, "sec-fetch-site": "same-origin", "accept": "text/html"}
        browser = client_of(self.app, BASE, own)
        if name:
            reply = browser.post("/session", json={"name": name, "password": GOOD})
            assert reply.status_code == 204, reply.text
        return browser

    def visitor(self, name: str) -> httpx.Client:
        """A browser of a visitor, or a program. A browser that was signed out is a new one."""
        if name == "token":
            self.program.cookies.clear()
            return self.program
        if name == "disabled":
            browser = self._browser()
            browser.cookies.update(self.ended)
            return browser
        known = self.browsers.get(name)
        if known is None or known.get("/v1/me").json().get("name") != name:
            known = self.browsers[name] = self._browser("" if name == "stranger" else name)
        return known

    def ask(self, name: str, method: str, path: str) -> httpx.Response:
        """Send a request that is good for whoever may send it, about things that no other request has."""
        number, links = f"{next(self.numbers)}", self.people.links
        target = f"target{number}"
        made: dict[str, Callable[[], str]] = {
            "name": lambda: self._target(target, number),
            "token_id": lambda: self._token(name if name in set(Role) else "guest"),
            "link": lambda: links.make_password("guest"),
            "start": lambda: links.make_start("guest", self.services.settings),
        }
        known = {
            "n": number, "data": "visits", "theme": "light", "kind": "csv", "digest": "0",
            **self.things[name],
        }  # fmt: skip

        def filled(text: str) -> str:
            return re.sub(r"\{(\w+)\}", lambda at: known.get(at[1]) or made[at[1]](), text)

        query = QUERY.get(path, "") if method == "GET" else ""
        address, more = filled(path.replace("files/{digest}/{name}", "files/0/x") + query), dict[str, Any]()
        if (body := JSON.get((method, path))) is not None:
            more["json"] = {
                key: filled(value) if isinstance(value, str) else value for key, value in body.items()
            }
        elif method == "POST" and path in FORMS:
            more["data"] = {key: filled(value) for key, value in FORMS[path].items()}
        headers = {"sec-fetch-site": "none"} if path == "/start" else {}
        return self.visitor(name).request(method, address, headers=headers, **more)

    def _target(self, name: str, number: str) -> str:
        """Make an account that the steward manages."""
        accounts = self.people.accounts
        accounts.make(name, by="steward")
        accounts.set_roles(name, "visits", frozenset({Role.ANALYST}))
        accounts.bind(name, "https://id.example", f"own{number}")
        return name

    def _token(self, owner: str) -> str:
        """Make a token, and return its public id."""
        who = Requester(owner, {"visits": frozenset(Role)}, "session", "s")
        expires = datetime.now(UTC) + timedelta(days=1)
        token, _ = self.people.tokens.make(who, name="x", data=None, most_epsilon=None, expires=expires)
        return token.id


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Site]:
    with pytest.MonkeyPatch.context() as patch:
        cheapen(patch)
        folder = tmp_path_factory.mktemp("served")
        patch.setenv("LAPWING_STATE", str(folder / "state"))  # others have people with the same ids
        write_data(folder)
        opened = _Site(folder)
        yield opened
        opened.close()


def _without_row(app: FastAPI) -> set[tuple[str, str]]:
    """Return the routes of an application that are in no table."""
    opened = {("GET", path) for path in (*OPEN_ROUTES, "/metrics")}  # see test_metrics.py
    table = {(route.method, route.path.replace(":int", "")) for route in ROUTES}
    assert len(table) == len(ROUTES)
    assert not table & ROWS.keys()
    routes = _rows(app.router.routes)
    assert routes >= table | opened | ROWS.keys()
    return routes - table - opened - ROWS.keys()


def test_every_route_has_a_row(site: _Site) -> None:
    assert _without_row(site.app) == set()


@each("router", (*ROUTERS, web.router))
def test_a_new_page_or_route_of_people_needs_a_row(site: _Site, router: APIRouter) -> None:
    @router.post("/planted")
    def planted() -> None:
        """Do nothing."""

    try:
        assert _without_row(create_app(site.services)) == {("POST", "/planted")}
    finally:
        del router.routes[-1]


def test_each_visitor_gets_what_the_row_says(site: _Site) -> None:
    wrong = []
    for (method, path), row in ROWS.items():
        expected = dict(zip(VISITORS, map(int, row.split()), strict=True))
        seen = {name: site.ask(name, method, path).status_code for name in VISITORS}
        if seen != expected:
            wrong.append(f'    ("{method}", "{path}"): "{" ".join(map(str, seen.values()))}",')
    assert not wrong, "\n".join(wrong)
