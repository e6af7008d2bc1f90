"""People and tokens through pages: the same rules as over the API, and secrets that are shown once."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from lapwing.server.people.person import Role

from .conftest import ConsoleDoor


def _link(page: str) -> str:
    found = re.search(r"/password\?key=[\w-]+", page)
    assert found
    return found[0]


def test_a_steward_adds_a_person_who_sets_the_password_once(console: ConsoleDoor) -> None:
    steward = console.browser("sue")
    made = steward.post(
        "/people",
        data={"name": "nils", "shown_name": "Nils", "data": "visits", "role": ["analyst", "officer"]},
    )
    assert "nils is made" in made.text
    account = console.services.people.accounts.known("nils")
    assert account.roles == {"visits": frozenset({Role.ANALYST, Role.OFFICER})}
    link, fresh = _link(made.text), console.browser()
    assert link not in steward.get("/people").text
    assert "You are <b>nils</b>" in fresh.get(link).text
    key = link.partition("=")[2]
    differs = fresh.post("/password", data={"key": key, "password": "one two three four", "again": "other"})
    assert differs.status_code == 422
    same = {"key": key, "password": "one two three four", "again": "one two three four"}
    assert fresh.post("/password", data=same).headers["location"] == "/"
    assert "Hello, Nils" in fresh.get("/").text
    assert console.browser().post("/password", data=same).status_code == 401


def test_roles_change_and_an_account_ends_at_once(console: ConsoleDoor) -> None:
    console.services.people.accounts.make("rolf", password="correct horse battery")
    steward = console.browser("sue")
    steward.post("/people/rolf/roles", data={"data": "visits", "role": "analyst"})
    rolf = console.browser("rolf")
    assert rolf.get("/d/visits/ask").status_code == 200
    steward.post("/people/rolf/roles", data={"data": "visits", "role": "officer"})
    assert rolf.get("/d/visits/ask").status_code == 403
    assert "It works once" in steward.post("/people/rolf/link").text
    steward.post("/people/rolf/end")
    assert rolf.get("/").status_code == 303
    assert rolf.get("/").headers["location"] == "/sign-in"


def test_only_stewards_manage_people(console: ConsoleDoor) -> None:
    for name in ("ann", "olga", "otto"):
        browser = console.browser(name)
        for path, fields in {
            "/people": {"name": "x", "data": "visits", "role": "steward"},
            "/people/bob/roles": {"data": "visits", "role": "steward"},
            "/people/bob/link": {},
            "/people/bob/end": {},
        }.items():
            assert browser.post(path, data=fields).status_code in (403, 404), (name, path)
    assert Role.STEWARD not in console.services.people.accounts.known("bob").roles.get(
        "visits", frozenset()
    )
    assert not console.services.people.accounts.known("bob").is_disabled


def test_a_token_is_shown_once_and_can_be_revoked(console: ConsoleDoor) -> None:
    browser = console.browser("ann")
    ends = (datetime.now(UTC) + timedelta(days=30)).date().isoformat()
    made = browser.post("/tokens", data={"label": "export", "most_epsilon": "0.1", "ends": ends})
    secret = re.search(r'data-copy="([^"]+)"', made.text)
    assert secret
    assert "it is shown once" in made.text
    assert secret[1] not in browser.get("/tokens").text
    [token] = [one for one in console.services.people.tokens.all_of("ann") if one.label == "export"]
    other = console.browser("bob")
    assert other.post(f"/tokens/{token.id}/revoke").status_code == 404
    browser.post(f"/tokens/{token.id}/revoke")
    assert console.services.people.tokens.known(token.id).is_revoked
    for wrong in ({"most_epsilon": "-1"}, {"ends": "soon"}, {"label": ""}):
        fields = {"label": "b", "most_epsilon": "0.1", "ends": ends, **wrong}
        assert browser.post("/tokens", data=fields).status_code == 422


def test_a_token_shows_itself_alone(console: ConsoleDoor) -> None:
    browser, program = console.browser("bob"), console.client("bob", Role.ANALYST)
    ends = (datetime.now(UTC) + timedelta(days=9)).date().isoformat()
    assert browser.post("/tokens", data={"label": "another one", "ends": ends}).status_code == 200
    assert "another one" in browser.get("/tokens").text
    page = program.get("/tokens").text
    assert "a program" in page
    assert "another one" not in page
