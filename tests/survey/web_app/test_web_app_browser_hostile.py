"""The page in a real browser, against a server that lies, and with a second person at the same device."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from lapwing.survey.credentials import BlindSigningKey
from lapwing.survey.offered import fingerprint, survey_digest
from lapwing.survey.survey_client import SurveyClient
from support.browser import Visit
from support.slowly import first
from support.spoiled_surveys import SPOILED
from support.survey_site import Site, one_question

OUT_OF_ORDER = "This survey is not in order"
ANSWERED = "This device has already answered this survey"
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = Site(tmp_path_factory.mktemp("site"), one_question()).start()
    yield found
    found.stop()


def _lies(change: Change) -> Callable[[Route], None]:
    """The server's reply, changed; its digest is right unless that was changed."""

    def handle(route: Route) -> None:
        found = route.fetch().json()
        before = found["digest"]
        change(found)
        if found["digest"] == before and isinstance(found["survey"], dict):
            found["digest"] = survey_digest(found["survey"])
        route.fulfill(json=found)

    return handle


def _spoil(how: str) -> Change:
    return lambda found: SPOILED[how](found["survey"])


LIES: dict[str, Change] = {
    "a digest of its own": lambda found: found.update(digest="17" * 32),
    "a survey of its own": lambda found: found.update(survey={**found["survey"], "text": "?"}, digest="?"),
    "a key that is none": lambda found: found.update(key={"n": "zz", "e": "01"}),
    "a weak key": lambda found: found["key"].update(e="01"),
    "another field": lambda found: found.update(person=17),
    "a newer version": lambda found: found.update(version=2),
    **{
        how: _spoil(how)
        for how in (
            "another kind in a list", "a tag in the size", "a step of 0", "a day's step of 0",
            "a field more",
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("lie", first(4, LIES.values()), ids=LIES.keys())
def test_a_survey_that_lies_is_not_in_order(visit: Visit, site: Site, lie: Change) -> None:
    visitor = visit()
    visitor.page.route("**/survey.json", _lies(lie))
    page = visitor.open(site.link())
    expect(page.get_by_role("heading", name=OUT_OF_ORDER)).to_be_visible()
    assert page.locator("form").count() == 0
    assert visitor.posted == []
    assert visitor.complaints == []


@pytest.mark.parametrize("size", [0, 16 << 20], ids=["whole", "too large"])
def test_a_survey_beyond_all_measure_is_not_read(visit: Visit, site: Site, size: int) -> None:
    visitor = visit()
    visitor.page.route(
        "**/survey.json", lambda route: route.fulfill(body=route.fetch().text() + " " * size)
    )
    page = visitor.open(site.link())
    assert page.get_by_role("heading", name="The survey cannot be read").count() == (size > 0)
    assert page.locator("form").count() == (size == 0)


@pytest.mark.parametrize("body", first(2, ["", '{"signature": "00"}', "[]", "7", "{", '{"signature": 5}']))
def test_a_reply_that_is_none_is_told_plainly(visit: Visit, site: Site, body: str) -> None:
    visitor = visit()
    visitor.page.route("**/sign", lambda route: route.fulfill(body=body, content_type="application/json"))
    visitor.open(site.link())
    expect(visitor.page.locator(".refusal h2")).to_contain_text("is not in order")
    assert visitor.page.locator("form").count() == 0


def test_a_report_that_was_not_accepted_is_not_said_to_be_sent(visit: Visit, site: Site) -> None:
    visitor = visit()
    visitor.page.route("**/report", lambda route: route.fulfill(json={"accepted": "perhaps"}))
    visitor.open(site.link()).get_by_label("yes", exact=True).check()
    visitor.submit()
    expect(visitor.page.locator(".refusal h2")).to_contain_text("did not say that it has the report")
    assert visitor.page.locator("dl").count() == 0


def test_the_fingerprint_stands_there_before_any_coin_is_thrown(
    visit: Visit, site: Site, tmp_path: Path
) -> None:
    public, key = SurveyClient(site.address).survey()
    page = visit().open(site.link())
    shown = page.locator("#fingerprint").inner_text()
    assert shown == fingerprint(survey_digest(public), key)
    assert (
        "Compare this with others who were invited: it must be the same"
        in page.locator("form").inner_text()
    )
    other, another = visit(), BlindSigningKey.create(tmp_path / "another")  # a key for one person alone

    def sign(route: Route) -> None:
        blinded = bytes.fromhex(json.loads(route.request.post_data or "")["blinded"])
        route.fulfill(json={"signature": another.sign(blinded).hex()})

    other.page.route("**/survey.json", _lies(lambda found: found.update(key=another.public.to_json())))
    other.page.route("**/sign", sign)
    assert other.open(site.link()).locator("#fingerprint").inner_text() != shown


def test_the_invitation_leaves_the_address_bar_at_once_and_the_browser_once_it_has_served(
    visit: Visit, site: Site
) -> None:
    visitor = visit()
    link = site.link()
    page = visitor.open(link)
    assert page.url == site.address
    assert page.evaluate("sessionStorage.length") == 1
    page.get_by_label("yes", exact=True).check()
    visitor.submit()
    expect(page.get_by_text("Sent. Thank you!")).to_be_visible()
    assert page.url == site.address
    assert page.evaluate("[sessionStorage.length, localStorage.length]") == [0, 0]
    stored = page.evaluate("""async () => {
      const base = await new Promise((done) => {
        const opening = indexedDB.open("lapwing", 1);
        opening.onsuccess = () => done(opening.result);
      });
      const all = base.transaction("surveys").objectStore("surveys").getAll();
      return new Promise((done) => { all.onsuccess = () => done(JSON.stringify(all.result)); });
    }""")
    assert json.loads(stored)
    assert link.partition("#")[2] not in stored


def test_a_second_person_at_the_device_does_not_see_the_first_one_s_report(
    visit: Visit, site: Site
) -> None:
    visitor = visit()
    mine = site.link()
    visitor.answer_one(mine)
    sent = visitor.page.locator("dd").inner_text()
    before = len(visitor.posted)
    for link in (site.link(), site.address, f"{site.address}#wrong"):
        page = visitor.open(link)
        expect(page.get_by_role("heading", name=ANSWERED)).to_be_focused()
        assert page.locator("dl, form, button").count() == 0
        assert sent not in page.locator("#view").inner_text()
    assert len(visitor.posted) == before
    visitor.open(mine)
    expect(visitor.page.locator("dd")).to_have_text(sent)


def test_a_second_person_cannot_go_on_with_what_the_first_one_began(visit: Visit, site: Site) -> None:
    visitor = visit()
    first = site.link()
    page = visitor.open(first)
    page.add_init_script("window.full = IDBObjectStore.prototype.put;")
    visitor.open(first).get_by_label("yes", exact=True).check()
    page.evaluate("""() => {
      IDBObjectStore.prototype.put = function (memo, digest) {
        if (memo.report) throw new DOMException("", "QuotaError");
        return window.full.call(this, memo, digest);
      };
    }""")
    visitor.submit()
    expect(page.locator(".refusal")).to_be_visible()
    assert [path for path, _ in visitor.posted] == ["/sign"]
    visitor.open(site.link())
    expect(page.get_by_role("heading", name="Somebody else has begun to answer")).to_be_visible()
    assert page.locator("form").count() == 0
    assert visitor.reports() == []
    visitor.answer_one(first)
