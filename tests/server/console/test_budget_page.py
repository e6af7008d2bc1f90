"""The budget as pages tell it: before anything was spent, and after."""

from __future__ import annotations

import re
import time
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.server.console.budget_page import block_columns
from lapwing.server.data.budget_view import BlockLeft
from support.served import write_data
from support.server_people import cheapen

from .conftest import ConsoleDoor


def test_a_budget_that_nobody_used_has_no_history_and_then_has_one(console: ConsoleDoor) -> None:
    browser = console.browser("sue")
    assert "spending by person" not in browser.get("/d/visits/budget").text
    assert browser.get("/d/visits/budget/chart/light.svg").status_code == 404
    with console.ann() as client:
        console.release(client, epsilon="0.5")
    page = browser.get("/d/visits/budget").text
    assert re.search(r"ε\N{NO-BREAK SPACE}9\.5</b> of 10 left", page)
    assert "visits: spending by person" in page
    assert re.search(
        r"<th scope=\"row\">together</th><td class=\"right nowrap\">ε\N{NO-BREAK SPACE}0\.5</td>", page
    )
    picture = browser.get("/d/visits/budget/chart/dark.svg")
    assert picture.headers["content-type"] == "image/svg+xml"
    assert "budget for life, ε 10" in picture.text


def test_blocks_are_filled_with_what_is_left() -> None:
    four, nothing = Fraction(4), Fraction(0)
    blocks = [BlockLeft("1", Fraction(1), four, nothing), BlockLeft("everybody else", four, four, nothing)]
    [one, others] = block_columns(blocks)
    assert (one.height, one.top, one.amount) == ("25.00%", "75.00%", "1")
    assert others.name == "others"  # the last


def test_a_report_is_a_link_for_those_who_see_all(console: ConsoleDoor) -> None:
    with console.ann() as client:
        console.release(client, epsilon="0.05")
    link = "/v1/data/visits/report"
    assert link in console.browser("olga").get("/d/visits/budget").text
    assert link not in console.browser("ann").get("/d/visits/budget").text


def test_a_steward_makes_the_budget_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cheapen(monkeypatch)
    write_data(tmp_path)
    door, clock = ConsoleDoor(tmp_path), time.time_ns
    door.add_people()
    with door.ann() as client:
        for days in (80, 40, 2):
            then = clock() - days * 86_400 * 10**9
            monkeypatch.setattr("lapwing.ledger.entry.time_ns", lambda then=then: then)
            door.release(client, epsilon=f"0.{days}")
    steward = door.browser("sue")
    page = steward.get("/d/visits/budget").text
    assert "Make visits last" in page
    assert "[analysts.ann]\nepsilon = 8.6" in page  # all that is left: 10, less 0.8, 0.4 and 0.2
    until = date.today().replace(day=1) + timedelta(days=800)
    changed = steward.get(f"/d/visits/budget?until={until:%Y-%m}").text
    assert re.search(rf'name="until" type="month" value="{until:%Y-%m}"', changed)
    assert f"to the end of {until:%b}\N{NO-BREAK SPACE}{until.year}" in changed
    assert "Until must be a month" in steward.get("/d/visits/budget?until=soon").text
    assert "used up about" in steward.get("/d/visits/budget/chart/light.svg").text
    assert "Make visits last" not in door.browser("olga").get("/d/visits/budget").text
    door.close()
