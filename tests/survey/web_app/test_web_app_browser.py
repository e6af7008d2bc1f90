"""The respondent's page in a real browser, against a real server process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from lapwing.survey.offered import read_offered, survey_digest
from support.browser import Visit, Visitor, fill
from support.survey_site import EVERY_KIND, Site, one_question


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("every_kind"), EVERY_KIND).start()
    yield site
    site.stop()


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("single"), one_question()).start()
    yield site
    site.stop()


@pytest.mark.parametrize("width", [1100, 360])
def test_every_kind_is_answered_and_sent_again_byte_for_byte(
    visit: Visit, every_kind: Site, width: int, tmp_path: Path
) -> None:
    visitor = visit(viewport={"width": width, "height": 800})
    link, before = every_kind.link(), len(every_kind.reports())
    page = visitor.open(link)
    page.screenshot(path=tmp_path / f"form_{width}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    fill(page)
    visitor.submit()
    expect(page.get_by_text("Sent. Thank you!")).to_be_visible()
    page.screenshot(path=tmp_path / f"sent_{width}.png", full_page=True)
    assert page.locator("dt").count() == page.locator("dd").count() == 10
    visitor.open(link)
    expect(page.get_by_text("Sent. Thank you!")).to_be_visible()
    assert page.locator("form").count() == 0
    with page.expect_response("**/report"):
        page.get_by_role("button", name="Send the same report again").click()
    (first, second), rows = visitor.reports(), every_kind.reports()
    assert first == second
    assert len(rows) == before + 1
    assert bytes.fromhex(first) in {row.tobytes() for row in rows}
    every_kind.design.check(bytes.fromhex(first))
    assert visitor.complaints == []
    assert visitor.hosts == {"127.0.0.1"}


def test_what_is_sent_has_one_size_and_nothing_else_in_it(visit: Visit, every_kind: Site) -> None:
    bodies = []
    for everything in (True, False):
        visitor = visit()
        page = visitor.open(every_kind.link())
        if everything:
            fill(page)
        else:
            for none in page.get_by_label("No answer").all():
                none.check()
        visitor.submit()
        expect(page.get_by_text("Sent. Thank you!")).to_be_visible()
        bodies.append(dict(visitor.posted))
        assert visitor.context.cookies() == []
    for path, names in (
        ("/sign", {"invitation", "blinded"}),
        ("/report", {"digest", "token", "signature", "report"}),
    ):
        assert len({len(body[path]) for body in bodies}) == 1
        assert all(set(json.loads(body[path])) == names for body in bodies)


def test_odds_and_price_stand_there_before_any_coin_is_thrown(visit: Visit, every_kind: Site) -> None:
    visitor = visit()
    page = visitor.open(every_kind.link())
    assert page.locator("fieldset").count() == page.locator(".odds").count() == 10
    odds = page.locator("#q0-odds")
    assert odds.inner_text().startswith("Your own answer is sent: chance ")
    assert "It is your own answer" not in odds.inner_text(), "the rest is folded"
    odds.locator("summary").click()
    assert "It is your own answer: chance" in odds.inner_text()
    spent = read_offered(every_kind.design.public()).price
    assert f"takes {-(-spent // 10**6) / 1000:.3f}" in page.locator("form").inner_text()
    assert page.get_by_text("reading <b>aloud</b>").is_visible()  # text stays text
    assert visitor.paths() == ["/sign"]


@pytest.mark.parametrize(
    ("epsilon", "lead", "likely"), [("1", "nobody can be sure", "73.2 %"), ("8", "hide little", "99.97 %")]
)
def test_the_page_promises_what_its_coins_keep(
    visit: Visit, tmp_path: Path, epsilon: str, lead: str, likely: str
) -> None:
    site = Site(tmp_path, one_question(epsilon=epsilon, no_answer="false")).start()
    try:
        told = visit().open(site.link()).locator("form").inner_text()
    finally:
        site.stop()
    assert lead in told
    assert f"up to {likely} likely afterwards" in told
    assert ("nobody can be sure" in told) == (epsilon == "1")
    assert "The owner sees that you took part" in told


def test_eight_questions_fit_into_six_screens_of_a_phone(visit: Visit, tmp_path: Path) -> None:
    """They took 8.5 with all odds open. Fonts differ: half a screen to spare."""
    content = files("lapwing.examples").joinpath("data", "wellbeing.toml").read_text(encoding="utf-8")
    site = Site(tmp_path, content.replace('ask = "auto"', 'ask = "all"')).start()
    try:
        visitor = visit(viewport={"width": 390, "height": 844})
        page = visitor.open(site.link())
        assert page.locator("fieldset").count() == 8
        page.screenshot(path=tmp_path / "phone.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollHeight") <= 6.5 * 844
    finally:
        site.stop()


def test_without_scripts_the_page_leads_to_doing_it_by_hand(visit: Visit, single: Site) -> None:
    visitor = visit(java_script_enabled=False)
    visitor.page.goto(single.link())
    visitor.page.get_by_role("link", name="how to do it by hand").click()
    assert visitor.page.url == f"{single.address}by-hand"
    assert "ln 3" in visitor.page.locator("main").inner_text()
    assert visitor.page.locator("script").count() == 0
    assert visitor.complaints == []


def test_a_report_that_did_not_arrive_is_shown_only_once_it_did(visit: Visit, single: Site) -> None:
    visitor = visit()
    link, before = single.link(), len(single.reports())
    page = visitor.open(link)
    page.route("**/report", lambda route: route.abort())
    page.get_by_label("yes", exact=True).check()
    visitor.submit()
    waiting = page.get_by_role("heading", name="Your report is not sent yet")
    expect(waiting).to_be_focused()
    expect(page.get_by_text("The server cannot be reached. Nothing is lost.")).to_be_visible()
    page.get_by_role("button", name="Send it now").click()
    expect(waiting).to_be_focused()
    assert page.locator("dl").count() == 0
    page.unroute("**/report")
    visitor.open(link)
    expect(waiting).to_be_visible()
    page.get_by_role("button", name="Send it now").click()
    expect(page.get_by_text("Sent. Thank you!")).to_be_visible()
    assert len(visitor.reports()) == 3
    assert len(set(visitor.reports())) == 1
    assert len(single.reports()) == before + 1


def test_an_invitation_of_another_device_costs_nothing(visit: Visit, single: Site) -> None:
    link = single.link()
    visit().answer_one(link)
    other = visit()
    page = other.open(link)
    expect(page.get_by_text("This invitation was used already")).to_be_visible()
    assert page.locator("form").count() == 0
    other.answer_one(single.link())  # a good invitation afterwards; nothing was charged for the bad one
    assert "7.000 of 8.000 left" in page.locator("#view").inner_text()


@pytest.mark.parametrize(
    ("hash_", "title"), [("", "The invitation is missing"), ("#wrong", "This invitation is not known")]
)
def test_without_an_invitation_nothing_is_thrown(
    visit: Visit, single: Site, hash_: str, title: str
) -> None:
    visitor = visit()
    page = visitor.open(single.address + hash_)
    expect(page.get_by_role("heading", name=title)).to_be_visible()
    assert page.locator("form").count() == 0
    page.goto(single.link())  # pasted over the page: nothing but the # changes, so nothing is loaded
    expect(page.locator("form")).to_be_visible()


def test_the_lifetime_holds_over_surveys(visit: Visit, tmp_path: Path) -> None:
    visitor = visit()
    port = 0
    for number, (epsilon, left) in enumerate([("3", "5.000"), ("6", None)]):
        content = one_question(epsilon=epsilon)
        site = Site(tmp_path / str(number), content, port=port).start()
        port = site.port  # the same address: the browser's memory belongs to it
        try:
            if left is not None:
                visitor.answer_one(site.link())
                assert f"{left} of 8.000 left" in visitor.page.locator("#view").inner_text()
            else:
                before = len(visitor.posted)
                page = visitor.open(site.link())
                expect(page.get_by_role("heading", name="Your device's account is used up")).to_be_visible()
                assert page.locator("form").count() == 0
                assert len(visitor.posted) == before
        finally:
            site.stop()


def _rewritten(change: Callable[[dict[str, Any]], None]) -> Callable[[Route], None]:
    def handle(route: Route) -> None:
        found = route.fetch().json()
        change(found["survey"])
        found["digest"] = survey_digest(found["survey"])  # an owner who lies does so with care
        route.fulfill(json=found)

    return handle


def _dear(survey: dict[str, Any]) -> None:
    survey["questions"][0]["recipe"]["favoured"] = (1 << 48) - 1000
    survey["questions"][0]["odds"] = "It is all noise."
    survey.update(epsilon="0.001", lifetime="1000")


def _certain(survey: dict[str, Any]) -> None:
    survey["questions"][0]["recipe"]["favoured"] = 1 << 48


def _misfit(survey: dict[str, Any]) -> None:
    survey["questions"][0]["recipe"]["options"] = 9


@pytest.mark.parametrize(
    ("change", "title"),
    [
        (_dear, "Your device's account is used up"),
        (_certain, "This survey is not in order"),
        (_misfit, "This survey is not in order"),
    ],
)
def test_an_owner_who_lies_about_the_price_gets_nothing(
    visit: Visit, single: Site, change: Callable[[dict[str, Any]], None], title: str
) -> None:
    visitor = visit()
    visitor.page.route("**/survey.json", _rewritten(change))
    page = visitor.open(single.link())
    expect(page.get_by_role("heading", name=title)).to_be_visible()
    assert visitor.posted == []


FORGETFUL = {
    "no memory": "indexedDB.open = () => { throw new DOMException('refused', 'SecurityError'); };",
    "none at all": "Object.defineProperty(window, 'indexedDB', { value: undefined });",
    "it forgets": "IDBObjectStore.prototype.put = function () { return this.count(); };",
    "it is full": "IDBObjectStore.prototype.put = () => { throw new DOMException('', 'QuotaError'); };",
}


@pytest.mark.parametrize("script", FORGETFUL.values(), ids=FORGETFUL.keys())
def test_a_browser_without_memory_sends_nothing(visit: Visit, single: Site, script: str) -> None:
    visitor = visit()
    visitor.page.add_init_script(script)
    page = visitor.open(single.link())
    if page.locator("form").count():
        page.get_by_label("yes", exact=True).check()
        visitor.submit()
    expect(page.locator(".refusal")).to_be_visible()
    assert visitor.posted == []


def test_one_question_is_drawn_before_it_is_shown_and_stays(visit: Visit, tmp_path: Path) -> None:
    content = EVERY_KIND.replace('ask = "all"', 'ask = "one"')
    site = Site(tmp_path, content).start()
    try:
        visitor = visit()
        link = site.link()
        shown = {visitor.open(link).locator("fieldset").get_attribute("id") for _ in range(3)}
        assert len(shown) == 1
        (place,) = shown
        assert visitor.page.locator("fieldset").count() == 1
        assert "asked one of the 10 questions" in visitor.page.locator("form").inner_text()
        none = visitor.page.get_by_label("No answer")
        none.check()
        visitor.submit()
        expect(visitor.page.get_by_text("Sent. Thank you!")).to_be_visible()
        assert f"q{bytes.fromhex(visitor.reports()[0])[0]}" == place
    finally:
        site.stop()


def test_two_tabs_of_one_browser_send_one_report(visit: Visit, single: Site) -> None:
    before, link, visitor = len(single.reports()), single.link(), visit()
    other = Visitor(visitor.context)
    for tab, label in ((visitor, "yes"), (other, "no")):
        tab.open(link).get_by_label(label, exact=True).check()
    for tab in (visitor, other):
        tab.page.evaluate("document.querySelector('form').requestSubmit()")  # returns before it is sent
    for tab in (visitor, other):
        expect(tab.page.get_by_text("Sent. Thank you!")).to_be_visible()
    assert visitor.reports() == other.reports()
    assert len(single.reports()) == before + 1
    assert "7.000 of 8.000 left" in other.page.locator("#view").inner_text()
