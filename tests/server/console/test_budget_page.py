"""The budget as pages tell it: before anything was spent, and after."""

from __future__ import annotations

import re
from fractions import Fraction

from lapwing.server.console.budget_page import block_columns
from lapwing.server.data.budget_view import BlockLeft

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
