"""A dashboard is priced as one, released once, all or none."""

from __future__ import annotations

from lapwing.server.console.dashboard_page import QuestionRow, rows_of, with_room

from .conftest import ConsoleDoor

WARDS = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
ALL = "SELECT COUNT(*) AS everybody FROM visits"


def test_rows_without_a_question_are_left_out() -> None:
    posted = [("sql", " a\r\nb "), ("epsilon", "0.2"), ("sql", ""), ("epsilon", "0.1"), ("sql", "c")]
    assert rows_of(posted) == [QuestionRow("a\nb", "0.2"), QuestionRow("c", "0.1")]
    assert len(with_room([])) == 2
    assert len(with_room(rows_of(posted), 1)) == 3


def test_two_questions_are_one_charge_however_often_they_are_released(console: ConsoleDoor) -> None:
    browser = console.browser("ann")
    assert browser.get("/d/visits/dashboard").status_code == 200
    more = browser.post("/d/visits/dashboard", data={"sql": WARDS, "epsilon": "0.2", "add": "1"})
    assert more.text.count("<fieldset") == 2
    before = console.charges()
    priced = browser.post("/d/visits/dashboard", data={"sql": [WARDS, ALL], "epsilon": ["0.2", "0.1"]})
    place = priced.headers["location"]
    page = browser.get(place).text
    assert "Release both" in page
    assert "ε\N{NO-BREAK SPACE}0.3" in page
    assert console.charges() == before
    assert console.browser("bob").get(place).status_code == 404
    for _ in range(2):
        released = browser.post(f"{place}/release")
        assert released.headers["location"].startswith(place)
    assert console.charges() == before + 1
    shown = browser.get(place).text
    assert "Everybody" in shown
    assert shown.count("answer-table") == 2
    assert console.charges() == before + 1


def test_too_much_or_wrong_is_refused_with_the_questions(console: ConsoleDoor) -> None:
    browser = console.browser("ann")
    before = console.charges()
    wrong = browser.post(
        "/d/visits/dashboard", data={"sql": [WARDS, "SELECT * FROM visits"], "epsilon": ["0.2", "0.1"]}
    )
    assert wrong.status_code == 422
    assert "Nothing was charged." in wrong.text
    assert "SELECT * FROM visits" in wrong.text
    large = browser.post("/d/visits/dashboard", data={"sql": [WARDS, ALL], "epsilon": ["900", "900"]})
    assert "is too much" in browser.get(large.headers["location"]).text
    assert console.charges() == before
    assert console.browser("olga").get("/d/visits/dashboard").status_code == 403
