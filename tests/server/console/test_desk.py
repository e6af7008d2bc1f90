"""Every page for every role, and what people see where a page cannot be shown."""

from __future__ import annotations

import re

import pytest

from .conftest import PEOPLE, ConsoleDoor

PAGES = {
    "/": set(PEOPLE),
    "/d/visits": set(PEOPLE),
    "/d/visits/ask": {"ann", "bob"},
    "/d/visits/history": {"ann", "bob", "sue"},
    "/d/visits/ledger": {"ann", "bob", "sue", "olga"},
    "/d/visits/budget": {"ann", "bob", "sue", "olga"},
    "/surveys": set(PEOPLE),
    "/releases": {"ann", "bob", "sue", "olga"},
    "/models": {"ann", "bob", "sue", "olga"},
    "/audits": {"ann", "bob", "sue", "olga"},
    "/people": {"sue", "olga"},
    "/tokens": set(PEOPLE),
}


@pytest.mark.parametrize("name", PEOPLE)
def test_each_page_is_there_for_its_roles_and_the_menu_has_no_other(
    console: ConsoleDoor, name: str
) -> None:
    browser = console.browser(name)
    menu = set(re.findall(r'<li[^>]*><a href="([^"]+)"', browser.get("/").text))
    for path, allowed in PAGES.items():
        status = browser.get(path).status_code
        assert status == (200 if name in allowed else 403), path
    assert {link for link in menu if link in PAGES} <= {path for path, who in PAGES.items() if name in who}


def test_strangers_are_asked_to_sign_in_and_come_back(console: ConsoleDoor) -> None:
    browser = console.browser()
    for path in PAGES:
        reply = browser.get(path)
        assert reply.status_code == 303
        assert reply.headers["location"].startswith("/sign-in")
    assert browser.get("/d/visits/ledger").headers["location"] == "/sign-in?next=/d/visits/ledger"
    assert browser.post("/d/visits/release", data={"plan": "0"}).status_code == 401


def test_what_is_not_there_and_what_is_not_allowed_look_the_same(console: ConsoleDoor) -> None:
    browser = console.browser("ann")
    pages = [
        browser.get(path)
        for path in ("/d/other/ask", "/d/other", "/answers/visits.999999", "/answers/other.1")
    ]
    assert {page.status_code for page in pages} == {404}
    assert len({page.text for page in pages}) == 1


@pytest.mark.parametrize(
    "path", ["/nothing", "/d/visits/nothing", "/files/0/style.css", f"/answers/visits.{'9' * 5000}"]
)
def test_addresses_that_are_not_there_have_a_page(console: ConsoleDoor, path: str) -> None:
    page = console.browser("ann").get(path)
    assert page.status_code == 404
    assert "There is nothing here" in page.text


def test_programs_get_errors_as_json(console: ConsoleDoor) -> None:
    reply = console.ann().get("/v1/nothing")
    assert reply.status_code == 404
    assert reply.json()["error"]["code"] == "not-found"


def test_every_page_has_one_main_heading_and_the_policy_of_content(console: ConsoleDoor) -> None:
    browser = console.browser("sue")
    for path in (path for path, who in PAGES.items() if "sue" in who):
        page = browser.get(path)
        assert len(re.findall(r"<h1[\s>]", page.text)) == 1, path
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "no-store" in page.headers["cache-control"]


def test_the_guide_counts_four_steps_and_ends(console: ConsoleDoor) -> None:
    browser = console.browser("bob")
    assert browser.get("/welcome").headers["location"] == "/"
    assert "This takes two minutes" in browser.get("/").text
    browser.get("/d/visits")
    assert "done" in browser.get("/").text.partition("Look at the tables")[2][:80]
    browser.post("/guide/skip")
    assert "This takes two minutes" not in browser.get("/").text


def test_a_form_that_no_page_sends_is_refused(console: ConsoleDoor) -> None:
    browser, kind = console.browser("ann"), {"content-type": "application/x-www-form-urlencoded"}
    for body in (b"sql=%ff%fe", b"sql=\xff", b"&".join(b"a=1" for _ in range(500))):
        assert browser.post("/d/visits/ask", content=body, headers=kind).status_code == 422
