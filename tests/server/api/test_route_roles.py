"""Every role at every route: the roles of the table may ask, others may not, and strangers never.

The rows come from the routes of the application: a route without a row fails.
"""

from __future__ import annotations

from pathlib import Path

import httpx
from starlette.routing import BaseRoute, Route

from lapwing.server.api.route import ApiRoute
from lapwing.server.app import OPEN_ROUTES, ROUTES
from lapwing.server.console.console import ROUTERS
from lapwing.server.people.person import Role
from lapwing.server.web import router
from support.served import COUNT, Door, write_works

# Forms of requests; other routes need no body. Values in braces are the person's own.
PRICED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.1) COUNT(*) AS n FROM visits"
BODIES = {
    "/v1/plans": {"data": "visits", "sql": COUNT, "epsilon": "0.5"},
    "/v1/batches": {"data": "visits", "epsilon": "0.1", "questions": [{"sql": COUNT}]},
    "/v1/sql": {"data": "visits", "sql": PRICED},
    "/v1/verify": {"lapwing": "proof"},
    "/v1/jobs": {"data": "visits", "kind": "audit"},  # of no question, so none begins
}
# What people do with their own account needs no role. Roles at other routes of people: test_web_people.py.
PEOPLE = {
    (method, route.path)
    for route in router.routes
    if isinstance(route, Route)
    for method in route.methods or ()
}
# Pages ask the same services as the API does. Who sees which page: tests/server/console.
PAGES = {
    (method, route.path)
    for pages in ROUTERS
    for route in pages.routes
    if isinstance(route, Route)
    for method in route.methods or ()
}
# Lists are empty, or hold what is the person's own.
LISTS = ("/v1/data", "/v1/verify", "/v1/jobs", "/v1/releases", "/v1/models", "/v1/audits", "/v1/surveys")
UNKNOWN_MAY = {("POST", "/session"), ("GET", "/start"), ("POST", "/v1/password")}


def _rows(routes: list[BaseRoute]) -> set[tuple[str, str]]:
    """Return method and address of all routes, also of routers within."""
    rows = set()
    for route in routes:
        if isinstance(route, Route):
            rows |= {(method, route.path) for method in (route.methods or set()) - {"HEAD"}}
        else:
            rows |= _rows(route.original_router.routes)  # type: ignore[attr-defined]
    return rows


def test_every_route_has_a_row(door: Door) -> None:
    table = {(route.method, route.path) for route in ROUTES}
    opened = {("GET", path) for path in (*OPEN_ROUTES, "/metrics")}  # see test_metrics.py
    assert _rows(door.app.router.routes) - PEOPLE - PAGES == table | opened
    assert not table & (PEOPLE | PAGES)
    assert len(table) == len(ROUTES)


class _Owner:
    """Somebody who has a plan, an answer and a receipt from the time as an analyst, and one role now."""

    def __init__(self, door: Door, role: Role) -> None:
        name = role.value
        self.client = door.client(name, Role.ANALYST)
        answer = door.release(self.client)
        job = "f" * 31 + str(list(Role).index(role))
        with door.services.state.transaction() as run:  # one that has ended
            run(
                "INSERT OR IGNORE INTO jobs (id, person, data, kind, settings, state, made) "
                "VALUES (?, ?, 'visits', 'audit', '{}', 'done', 0)",
                (job, name),
            )
        self.parts = {
            "name": "visits",
            "plan": door.plan(self.client),
            "answer": answer["id"],
            "batch": self.client.post("/v1/batches", json=BODIES["/v1/batches"]).json()["id"],
            "job": job,
            "receipt": str(answer["receipt"]["position"]),
            "survey": "never",
        }
        self.works = write_works(door)
        door.services.people.accounts.set_roles(name, "visits", frozenset({role}))

    def ask(self, client: httpx.Client, route: ApiRoute, **more: str) -> httpx.Response:
        work, file = self.works.get(route.path.split("/")[2], ("", ""))
        parts = {"work": work, "file": file, **self.parts, **more}
        address = route.path.replace(":int", "").replace(":path", "").format(**parts)
        return client.request(route.method, address, json=BODIES.get(route.path))


def test_each_role_may_do_what_the_table_says(door: Door) -> None:
    wrong = []
    for role in Role:
        own = _Owner(door, role)
        for route in ROUTES:
            status = own.ask(own.client, route).status_code
            may = role in route.roles and "{survey}" not in route.path  # of its owner: test_surveys.py
            if (status in (403, 404)) == may or status in (401, 405) or status >= 500:
                wrong.append((role.value, route.method, route.path, status))
    assert wrong == []


def test_a_role_for_other_data_is_none_here(door: Door, tmp_path: Path) -> None:
    own = _Owner(door, Role.ANALYST)
    door.services.people.accounts.set_roles("analyst", "visits", frozenset())
    door.services.people.accounts.set_roles("analyst", "other", frozenset(Role))
    for route in ROUTES:
        for parts in (
            {},
            {
                "name": "never",
                "plan": "0" * 32,
                "answer": "visits.999",
                "receipt": "999",
                "job": "0",
                "batch": "0",
                "work": "never",
                "survey": "never",
                "file": "never",
            },
        ):
            reply = own.ask(own.client, route, **parts)
            if route.path in LISTS and route.method + route.path != "POST/v1/jobs":
                assert reply.status_code in (200, 422)
            else:
                assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not-found"), route.path
    assert door.charges() == 1


def test_strangers_are_told_to_sign_in_and_nothing_else(door: Door) -> None:
    own, stranger = _Owner(door, Role.ANALYST), door.stranger()
    stranger.headers["sec-fetch-site"] = "same-origin"
    for route in ROUTES:
        for client in (stranger, httpx.Client(transport=stranger._transport, base_url="http://127.0.0.1")):
            if client is not stranger:
                client.headers["authorization"] = "Bearer lapwing_forged"
            replies = [own.ask(client, route), own.ask(client, route, name="never", plan="0" * 32)]
            assert {one.status_code for one in replies} == {401}, route.path
            assert len({one.content for one in replies}) == 1
    for method, path in PEOPLE - UNKNOWN_MAY:
        reply = stranger.request(method, path.format(name="ann", token_id="x"))
        assert reply.status_code in (401, 422, 403, 404, 405), (method, path)
    assert door.charges() == 1
