"""Every role at every route: the roles of the table may ask, others may not, and strangers never.

A new route fails until somebody has written down who may use it, and whether it spends. Routes of pages and
people: tests/server/test_app_roles.py.
"""

from __future__ import annotations

from pathlib import Path

import httpx

from lapwing.server.api.route import ApiRoute
from lapwing.server.app import ROUTES
from lapwing.server.people.person import Role
from support.served import COUNT, Door, write_works

# Who may: s a steward, a an analyst, o an officer, w an owner of surveys.
LETTERS = dict(zip("saow", (Role.STEWARD, Role.ANALYST, Role.OFFICER, Role.SURVEY_OWNER), strict=True))
ROWS = {
    ("GET", "/v1/data"): "saow",
    ("GET", "/v1/data/{name}/schema"): "saow",
    ("GET", "/v1/data/{name}/example.parquet"): "saow",
    ("GET", "/v1/data/{name}/left"): "saow",
    ("GET", "/v1/data/{name}/budget"): "saow",
    ("GET", "/v1/data/{name}/answers"): "a",
    ("GET", "/v1/data/{name}/history"): "sao",
    ("GET", "/v1/data/{name}/entries"): "so",
    ("GET", "/v1/data/{name}/receipts/{receipt:int}"): "sao",
    ("GET", "/v1/data/{name}/proofs/{receipt:int}"): "sao",
    ("GET", "/v1/data/{name}/statement"): "so",
    ("GET", "/v1/data/{name}/report"): "so",
    ("POST", "/v1/data/{name}/holds/{receipt:int}/clear"): "s",
    ("POST", "/v1/verify"): "saow",
    ("POST", "/v1/plans"): "a",
    ("GET", "/v1/plans/{plan}"): "a",
    ("POST", "/v1/plans/{plan}/release"): "a",
    ("POST", "/v1/plans/{plan}/dry-run"): "a",
    ("POST", "/v1/sql"): "a",
    ("GET", "/v1/answers/{answer}"): "a",
    ("POST", "/v1/batches"): "a",
    ("GET", "/v1/batches/{batch}"): "a",
    ("POST", "/v1/batches/{batch}/release"): "a",
    ("POST", "/v1/jobs"): "so",
    ("GET", "/v1/jobs"): "saow",
    ("GET", "/v1/jobs/{job}"): "saow",
    ("GET", "/v1/jobs/{job}/events"): "saow",
    ("GET", "/v1/surveys"): "saow",
    ("GET", "/v1/surveys/{survey}"): "saow",
    ("GET", "/v1/surveys/{survey}/estimates"): "saow",
    ("GET", "/v1/releases"): "sao",
    ("GET", "/v1/models"): "sao",
    ("GET", "/v1/audits"): "sao",
    ("GET", "/v1/releases/{work}/files/{file:path}"): "sao",
    ("GET", "/v1/models/{work}/files/{file:path}"): "sao",
    ("GET", "/v1/audits/{work}/files/{file:path}"): "sao",
}
SPENDS = {"/v1/plans/{plan}/release", "/v1/sql", "/v1/batches/{batch}/release"}
# Forms of requests; other routes need no body. Values in braces are the person's own.
PRICED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.1) COUNT(*) AS n FROM visits"
BODIES = {
    "/v1/plans": {"data": "visits", "sql": COUNT, "epsilon": "0.5"},
    "/v1/batches": {"data": "visits", "epsilon": "0.1", "questions": [{"sql": COUNT}]},
    "/v1/sql": {"data": "visits", "sql": PRICED},
    "/v1/verify": {"lapwing": "proof"},
    "/v1/jobs": {"data": "visits", "kind": "audit"},  # of no question, so none begins
}
# Lists are empty, or hold what is the person's own.
LISTS = ("/v1/data", "/v1/verify", "/v1/jobs", "/v1/releases", "/v1/models", "/v1/audits", "/v1/surveys")


def test_every_route_has_a_row() -> None:
    expected = {key: frozenset(LETTERS[letter] for letter in row) for key, row in ROWS.items()}
    assert {(route.method, route.path): route.roles for route in ROUTES} == expected
    assert {route.path for route in ROUTES if route.on_grid} == SPENDS


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
    assert door.charges() == 1


def test_a_disabled_account_is_a_stranger(door: Door) -> None:
    own = _Owner(door, Role.STEWARD)
    people = door.services.people
    people.accounts.set_roles("steward", "visits", frozenset(Role))
    session = people.sessions.begin("steward")
    browser = door.stranger()
    browser.headers.update({"cookie": f"lapwing={session}", "sec-fetch-site": "same-origin"})
    assert [one.get("/v1/data").status_code for one in (own.client, browser)] == [200, 200]
    people.accounts.disable("steward")
    stranger = door.stranger().get("/v1/data")
    for route in ROUTES:
        for client in (own.client, browser):
            reply = own.ask(client, route)
            assert (reply.status_code, reply.content) == (401, stranger.content), route.path
    assert door.charges() == 1
