"""Credential and report, as an owner who watches the server sees them; and what a browser does not lose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Request, Route, expect

from lapwing.survey.invitations import MOST_OPTIONS_SHOWN
from support.browser import Visit, Visitor, fill
from support.survey_site import EVERY_KIND, Site, one_question

SENT = "Sent. Thank you!"
WAITS = "Your report is not sent yet"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path / "site", one_question()).start()
    yield found
    found.stop()


# Case C8.
def test_the_report_comes_over_another_connection_than_the_credential(visit: Visit, site: Site) -> None:
    """Also where somebody answers within a second, while connections are still open."""
    visit().answer_one(site.link())
    asked = site.asked()
    assert [one.path for one in asked if one.path in ("/sign", "/report")] == ["/sign", "/report"]
    (report,) = [one for one in asked if one.path == "/report"]
    assert report.port not in {one.port for one in asked if one is not report}


def test_the_language_of_a_browser_is_in_neither_of_the_two(visit: Visit, site: Site) -> None:
    """A browser adds it to each request: a rare one would tell which report belongs to which credential."""
    visitor = visit()
    requests: list[Request] = []
    visitor.page.on("request", lambda one: requests.append(one))  # noqa: PLW0108  (it sets attributes)
    visitor.answer_one(site.link())
    sent = [one.all_headers() for one in requests if one.method == "POST"]
    assert [headers.get("accept-language") for headers in sent] == ["*", "*"]
    page = next(one for one in requests if one.is_navigation_request())
    assert page.all_headers()["accept-language"] != "*"  # so the browser has one, and this test sees it


# Case C8.
def test_the_report_leaves_at_a_random_moment_seconds_after_the_answer(visit: Visit, site: Site) -> None:
    waits = []
    for _ in range(2):
        visitor = visit(hurried=False)
        page = visitor.open(site.link())
        (sign,) = [one for one in site.asked() if one.path == "/sign"][-1:]
        page.get_by_label("yes", exact=True).check()
        visitor.submit()
        expect(page.get_by_role("heading", name="Your report is about to be sent")).to_be_focused()
        assert visitor.paths() == ["/sign"]
        expect(page.get_by_text(SENT)).to_be_visible(timeout=30_000)
        waits.append(site.asked()[-1].second - sign.second)
    assert all(5 <= wait <= 25 for wait in waits)
    assert abs(waits[0] - waits[1]) > 1e-3


def test_opening_uses_the_invitation_and_a_reload_keeps_it(visit: Visit, site: Site) -> None:
    visitor, link = visit(), site.link()
    page = visitor.open(link)
    assert visitor.paths() == ["/sign"]
    assert "opening this page has used your invitation" in page.locator("form").inner_text()
    page.reload()
    expect(page.locator("form")).to_be_visible()
    assert visitor.paths() == ["/sign"], "the credential is stored"
    elsewhere = visit()
    expect(elsewhere.open(link).get_by_text("This invitation was used already")).to_be_visible()
    tab = Visitor(visitor.context)  # a new tab, without the link
    tab.open(site.address).get_by_label("yes", exact=True).check()
    tab.submit()
    expect(tab.page.get_by_text(SENT)).to_be_visible()
    assert len(site.reports()) == 1


def test_a_credential_that_did_not_come_is_asked_for_again(visit: Visit, site: Site) -> None:
    visitor = visit()
    visitor.page.route("**/sign", lambda route: route.abort())
    page = visitor.open(site.link())
    expect(page.get_by_role("heading", name="The server cannot be reached")).to_be_focused()
    assert page.url == site.address
    page.reload()
    expect(page.get_by_role("heading", name="The server cannot be reached")).to_be_focused()
    page.unroute("**/sign")
    page.get_by_role("button", name="Try again").click()
    page.get_by_label("yes", exact=True).check()
    visitor.submit()
    expect(page.get_by_text(SENT)).to_be_visible()


def test_a_lost_reply_uses_up_no_second_invitation(visit: Visit, site: Site) -> None:
    visitor, link, other = visit(), site.link(), site.link()

    def lose(route: Route) -> None:
        route.fetch()
        route.abort()

    visitor.page.route("**/sign", lose)
    page = visitor.open(link)
    expect(page.get_by_role("heading", name="The server cannot be reached")).to_be_focused()
    page.unroute("**/sign")
    visitor.open(other)
    expect(page.get_by_role("heading", name="Somebody else has begun to answer")).to_be_focused()
    assert "open that link again" in page.locator("#refusal").inner_text()
    assert visitor.paths() == ["/sign"]
    visitor.answer_one(link)  # the server gives the same signature again
    first, second = (json.loads(body) for path, body in visitor.posted if path == "/sign")
    assert first == second
    visit().answer_one(other)
    assert len(site.reports()) == 2


def test_an_invitation_that_was_refused_leaves_the_browser_to_the_next(visit: Visit, site: Site) -> None:
    used = site.link()
    visit().open(used)
    visitor = visit()
    expect(visitor.open(f"{site.address}#wrong").get_by_text("invitation is not known")).to_be_visible()
    expect(visitor.open(used).get_by_text("This invitation was used already")).to_be_visible()
    visitor.answer_one(site.link())
    signs = [json.loads(body)["blinded"] for path, body in visitor.posted if path == "/sign"]
    assert len(set(signs)) == 3  # no token is shown under two invitations


def test_the_way_by_hand_and_back_keeps_the_invitation(visit: Visit, site: Site) -> None:
    visitor = visit()
    visitor.page.route("**/sign", lambda route: route.abort())  # so that it is not stored as a credential
    page = visitor.open(site.link())
    page.get_by_role("link", name="The same by hand").click()
    page.unroute("**/sign")
    page.get_by_role("link", name="Back to the survey").click()
    page.get_by_label("yes", exact=True).check()
    visitor.submit()
    expect(page.get_by_text(SENT)).to_be_visible()
    assert [entry for entry in (page.url, page.go_back().url) if "#" in entry] == []  # type: ignore[union-attr]


def test_a_link_that_is_pasted_over_the_page_is_opened(visit: Visit, site: Site) -> None:
    visitor, link = visit(), site.link()
    page = visitor.open(link)
    page.get_by_label("yes", exact=True).check()
    page.goto(link)  # the same once more: nothing is lost
    expect(page).to_have_url(site.address)
    expect(page.get_by_label("yes", exact=True)).to_be_checked()
    page.goto(site.link())
    expect(page.get_by_role("heading", name="Somebody else has begun to answer")).to_be_visible()
    assert page.url == site.address
    page.goto(link)
    page.get_by_label("yes", exact=True).check()
    visitor.submit()
    expect(page.get_by_text(SENT)).to_be_visible()
    assert visitor.paths() == ["/sign", "/report"]


@pytest.mark.parametrize(
    "count", [MOST_OPTIONS_SHOWN - 1, 100_000], ids=["as many as may be", "from before"]
)
def test_many_options_are_shown_and_answered(visit: Visit, tmp_path: Path, count: int) -> None:
    (tmp_path / "words.txt").write_text("\n".join(f"option {number}" for number in range(count)))
    question = 'name = "one"\ntext = "Which?"\nkind = "choice"\noptions_file = "words.txt"\n'
    head = one_question().partition("[[questions]]")[0]
    site = Site(tmp_path, f"{head}[[questions]]\n{question}").start()
    try:
        visitor = visit()
        visitor.open(site.link()).get_by_label("Type to search").fill(f"option {count - 1}")
        visitor.submit()
        expect(visitor.page.get_by_text(SENT)).to_be_visible(timeout=30_000)
        assert visitor.complaints == []
    finally:
        site.stop()


@pytest.mark.parametrize("how", ["button", "tab"])
def test_who_is_offline_when_sending_loses_nothing(visit: Visit, tmp_path: Path, how: str) -> None:
    site = Site(tmp_path / "every_kind", EVERY_KIND).start()
    try:
        visitor = visit()
        page = visitor.open(site.link())
        fill(page)
        visitor.context.set_offline(True)
        visitor.submit()
        expect(page.get_by_role("heading", name=WAITS)).to_be_focused()
        visitor.context.set_offline(False)
        if how == "tab":  # the browser was closed meanwhile
            page = visitor.open(site.address)
            expect(page.get_by_role("heading", name=WAITS)).to_be_visible()
        with page.expect_response("**/report"):
            page.get_by_role("button", name="Send it now").click()
        expect(page.get_by_text(SENT)).to_be_visible()
        assert len(site.reports()) == 1
    finally:
        site.stop()
