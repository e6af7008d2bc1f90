"""Signing in and out through pages."""

from __future__ import annotations

import pytest

from lapwing.server.console.door_page import local_address
from support.server_people import GOOD

from .conftest import ConsoleDoor


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.test/",
        "//evil.test",
        "/\\evil.test",
        "javascript:alert(1)",
        "",
        "/a\nb",
        "/" + "a" * 5000,
    ],
)
def test_nobody_is_sent_elsewhere_after_signing_in(console: ConsoleDoor, wanted: str) -> None:
    assert local_address(wanted) == "/"
    reply = console.browser().post(
        "/sign-in", data={"name": "ann", "password": GOOD, "next": wanted[:1500]}
    )
    assert reply.headers["location"].startswith("/")
    assert not reply.headers["location"].startswith(("//", "/\\"))


def test_a_wrong_name_and_a_wrong_password_look_the_same(console: ConsoleDoor) -> None:
    pages = [
        console.browser().post("/sign-in", data={"name": name, "password": password})
        for name, password in (("ann", "wrong"), ("ann", ""), ("ann" * 3, GOOD))
    ]
    assert {page.status_code for page in pages} == {401}
    assert len({page.text.replace("annannann", "ann") for page in pages}) == 1


def test_signing_in_goes_on_and_signing_out_ends(console: ConsoleDoor) -> None:
    browser = console.browser()
    reply = browser.post("/sign-in", data={"name": "ann", "password": GOOD, "next": "/d/visits/ledger"})
    assert reply.headers["location"] == "/d/visits/ledger"
    assert browser.get("/sign-in?next=/tokens").headers["location"] == "/tokens"
    assert browser.post("/sign-out").headers["location"] == "/sign-in"
    assert browser.get("/tokens").status_code == 303


def test_a_form_of_another_site_changes_nothing(console: ConsoleDoor) -> None:
    browser = console.browser("ann")
    for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.test"}, {"origin": "null"}):
        assert browser.post("/sign-out", headers=headers).status_code == 403
    assert browser.get("/tokens").status_code == 200


def test_a_start_link_works_once_and_begins_the_guide(console: ConsoleDoor) -> None:
    services = console.services
    key = services.people.links.make_start("ann", services.settings)
    browser = console.browser()
    first = browser.get(f"/start?key={key}", headers={"sec-fetch-site": "none"})
    assert first.headers["location"] == "/welcome"
    browser.get("/welcome")
    assert "Welcome. This takes two minutes." in browser.get("/").text
    for again in (console.browser(), browser):  # also where somebody is signed in: no way in a circle
        second = again.get(f"/start?key={key}", headers={"sec-fetch-site": "none"})
        assert second.status_code == 401
        assert "works once" in second.text
        assert "location" not in second.headers
        assert key not in second.text


def test_a_password_link_that_is_used_has_a_page(console: ConsoleDoor) -> None:
    key = console.services.people.links.make_password("bob")
    form = {"key": key, "password": GOOD, "again": GOOD}
    browser = console.browser()
    assert browser.post("/password", data=form).headers["location"] == "/"
    for again in (console.browser(), browser):
        for second in (again.get(f"/password?key={key}"), again.post("/password", data=form)):
            assert second.status_code == 401
            assert "works once" in second.text
            assert key not in second.text
