"""The whole journey without a script, and what spends: once, and only what was shown."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from html import unescape

import httpx
import pytest

from support.served import COUNT

from .conftest import ConsoleDoor

WARDS = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"


def _shown(page: str) -> dict[str, str]:
    """The fields of the form on a page, as a browser would send them."""
    fields = dict(re.findall(r'<input[^>]* name="(\w+)"[^>]* value="([^"]*)"', page))
    sql = re.search(r'<textarea class="sql" id="sql"[^>]*>\n?(.*?)</textarea>', page, re.DOTALL)
    return {
        **{name: unescape(value) for name, value in fields.items()},
        "sql": unescape(sql[1]) if sql else "",
    }


def _priced(browser: httpx.Client, sql: str = COUNT, **more: str) -> str:
    """Price a question, and return the page of its plan."""
    reply = browser.post("/d/visits/ask", data={"sql": sql, **more})
    assert reply.status_code == 303, reply.text
    page = browser.get(reply.headers["location"])
    assert page.status_code == 200
    return page.text


def test_ask_price_release_and_answer_without_a_script(console: ConsoleDoor) -> None:
    browser = console.browser("ann")
    assert "Nothing is asked yet" in browser.get("/d/visits/ask").text
    page = _priced(browser, epsilon="0.25")
    assert "Can be answered" in page
    assert 'name="epsilon" inputmode="decimal" value="0.25"' in page
    before = console.charges()
    released = browser.post("/d/visits/release", data=_shown(page))
    assert released.status_code == 303
    assert console.charges() == before + 1
    answer = browser.get(released.headers["location"])
    assert answer.status_code == 200
    assert "in the ledger" in answer.text
    assert "Asking this again is free." in answer.text
    again = _priced(browser, epsilon="0.25")
    assert "Show answer" in again
    shown = browser.post("/d/visits/release", data=_shown(again))
    assert shown.headers["location"].startswith(released.headers["location"].split("#")[0])
    assert console.charges() == before + 1


def test_a_double_click_a_reload_and_two_tabs_spend_once(console: ConsoleDoor) -> None:
    browser = console.browser("ann")
    fields = _shown(_priced(browser, epsilon="0.31"))
    before = console.charges()
    with ThreadPoolExecutor(4) as threads:
        tabs = [console.browser("ann") for _ in range(3)]
        replies = list(
            threads.map(lambda tab: tab.post("/d/visits/release", data=fields), [*tabs, tabs[0]])
        )
    places = {reply.headers["location"].partition("?")[0].partition("#")[0] for reply in replies}
    assert [reply.status_code for reply in replies] == [303] * 4
    assert len(places) == 1
    assert console.charges() == before + 1
    browser.get(places.pop())
    browser.post("/d/visits/release", data=fields)
    assert console.charges() == before + 1


@pytest.mark.parametrize(
    ("name", "value"), [("sql", "SELECT COUNT(*) AS n FROM visits"), ("epsilon", "0.77"), ("within", "5")]
)
def test_a_question_that_was_changed_is_priced_and_not_released(
    console: ConsoleDoor, name: str, value: str
) -> None:
    browser = console.browser("ann")
    fields = _shown(_priced(browser, epsilon="0.2"))
    before = console.charges()
    reply = browser.post("/d/visits/release", data={**fields, name: value})
    assert reply.status_code == 303
    assert "/ask/" in reply.headers["location"]
    assert "This is its new price; nothing was charged." in browser.get(reply.headers["location"]).text
    assert console.charges() == before


def test_only_post_spends(console: ConsoleDoor) -> None:
    browser = console.browser("ann")
    fields = _shown(_priced(browser, epsilon="0.2"))
    before = console.charges()
    assert browser.get("/d/visits/release", params=fields).status_code == 405
    browser.get(f"/d/visits/ask/{fields['plan']}")
    browser.get("/d/visits/ask", params={"sql": COUNT, "epsilon": "0.2"})
    assert console.charges() == before


def test_a_refusal_is_shown_with_the_question_and_charges_nothing(console: ConsoleDoor) -> None:
    browser = console.browser("ann")
    before = console.charges()
    refused = browser.post("/d/visits/ask", data={"sql": "SELECT * FROM visits", "epsilon": "0.2"})
    assert refused.status_code == 422
    assert "Nothing was charged." in refused.text
    assert "SELECT * FROM visits</textarea>" in refused.text
    over = _priced(browser, epsilon="999")
    assert "Over budget. Nothing was charged." in over
    assert "disabled" in over.partition("data-release")[2][:20]
    assert console.charges() == before


def test_a_fragment_has_the_parts_that_follow_the_price(console: ConsoleDoor) -> None:
    browser = console.browser("ann")
    found = browser.post("/d/visits/price", data={"sql": COUNT, "epsilon": "0.2"})
    assert found.status_code == 200
    for part in ('id="foot"', 'id="priced"', 'id="release"'):
        assert part in found.text
    assert "<html" not in found.text
    refused = browser.post("/d/visits/price", data={"sql": "nonsense", "epsilon": "0.2"})
    assert refused.status_code == 200
    assert "no price" in refused.text


def test_plans_of_others_are_as_if_they_never_were(console: ConsoleDoor) -> None:
    fields = _shown(_priced(console.browser("ann"), epsilon="0.2"))
    other = console.browser("bob")
    here = other.get(f"/d/visits/ask/{fields['plan']}")
    nowhere = other.get(f"/d/visits/ask/{'0' * 32}")
    assert here.status_code == nowhere.status_code == 404
    assert here.text == nowhere.text
    assert other.get(f"/d/visits/plans/{fields['plan']}/light.svg").status_code == 404
    before = console.charges()
    other.post("/d/visits/release", data={**fields, "as_planned": "yes"})
    assert console.charges() == before


def test_an_answer_can_be_copied_in_every_form(console: ConsoleDoor) -> None:
    browser = console.browser("ann")
    released = browser.post("/d/visits/release", data=_shown(_priced(browser, WARDS, epsilon="0.4")))
    place = released.headers["location"].partition("#")[0].partition("?")[0]
    texts = {
        kind: browser.get(f"{place}/as/{kind}").text
        for kind in ("python", "sql", "csv", "notebook", "citation")
    }
    assert texts["csv"].splitlines()[0] == '"ward","n","n_low","n_high"'
    assert "lapwing.connect('http://localhost/visits')" in texts["python"]
    compile(texts["python"], "copied", "exec")
    assert texts["sql"].startswith("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.4) ward")
    assert '"nbformat": 4' in texts["notebook"]
    assert "Receipt" in texts["citation"]
    assert browser.get(f"{place}/as/other").status_code == 404
    for look in ("light", "dark-narrow"):
        picture = browser.get(f"{place}/chart/{look}.svg")
        assert picture.headers["content-type"] == "image/svg+xml"
        assert b"<svg" in picture.content


def test_officers_see_price_and_proof_without_values(console: ConsoleDoor) -> None:
    browser = console.browser("ann")
    released = browser.post("/d/visits/release", data=_shown(_priced(browser, WARDS, epsilon="0.45")))
    place = released.headers["location"].partition("#")[0].partition("?")[0]
    values = re.findall(r'<td class="value">([^<]+)</td>', browser.get(place).text)
    assert values
    officer = console.browser("olga")
    page = officer.get(place)
    assert page.status_code == 200
    assert "What was charged" in page.text
    assert not any(f">{value}<" in page.text for value in values)
    assert officer.get(f"{place}/as/csv").status_code == 404
    assert officer.get(f"{place}/chart/light.svg").status_code == 404
    assert console.browser("otto").get(place).status_code in (403, 404)


def test_sharpening_releases_the_plan_that_was_offered_once(console: ConsoleDoor) -> None:
    browser = console.browser("ann")
    sql = "SELECT COUNT(*) AS n FROM visits"
    released = browser.post("/d/visits/release", data=_shown(_priced(browser, sql, epsilon="0.5")))
    page = browser.get(released.headers["location"]).text
    form = page.partition("Sharpen it")[2].partition("</form>")[0]
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
    before = console.charges()
    first = browser.post("/d/visits/release", data=fields)
    second = browser.post("/d/visits/release", data=fields)
    assert (
        first.headers["location"].partition("?")[0].partition("#")[0]
        == second.headers["location"].partition("?")[0].partition("#")[0]
    )
    assert console.charges() == before + 1
    assert "The narrowest of 2 releases" in browser.get(first.headers["location"]).text


def test_a_correction_is_offered_with_its_price_and_taking_it_spends_nothing(console: ConsoleDoor) -> None:
    browser = console.browser("ann")
    before = console.charges()
    sql = "SELECT ward, stay, COUNT(*) AS n\nFROM visits\nGROUP BY ward"
    refused = browser.post("/d/visits/ask", data={"sql": sql, "epsilon": "0.2"})
    assert refused.status_code == 422
    [offered, *_] = re.findall(
        r'name="use_sql" value="([^"]*)" data-use', refused.text.partition("What now?")[2]
    )
    taken = browser.post("/d/visits/ask", data={"sql": sql, "use_sql": unescape(offered), "epsilon": "0.2"})
    assert taken.status_code == 303
    assert "Can be answered" in browser.get(taken.headers["location"]).text
    assert console.charges() == before
