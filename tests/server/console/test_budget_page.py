"""The budget as pages tell it: before anything was spent, and after."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise

from lapwing.ledger.budget_history import BudgetHistory
from lapwing.server.console.budget_page import block_columns, has_history, spent_steps
from lapwing.server.data.budget_view import BlockLeft
from lapwing.sql.policy.policy import account_label
from support.served import STEWARD

from .conftest import ConsoleDoor


def test_a_budget_that_nobody_used_has_no_history_and_then_has_one(console: ConsoleDoor) -> None:
    served = console.services.sets.require(STEWARD, "visits")
    browser = console.browser("sue")
    assert not has_history(served)
    assert "spending" not in browser.get("/d/visits/budget").text
    assert browser.get("/d/visits/budget/chart/light.svg").status_code == 404
    with console.ann() as client:
        console.release(client, epsilon="0.5")
    assert has_history(served)
    page = browser.get("/d/visits/budget").text
    assert re.search(r"ε\N{NO-BREAK SPACE}9\.5</b> of 10 left", page)
    picture = browser.get("/d/visits/budget/chart/dark.svg")
    assert picture.headers["content-type"] == "image/svg+xml"
    assert "budget for life, ε 10" in picture.text


def test_spending_ends_now_at_what_is_spent(console: ConsoleDoor) -> None:
    curator = console.services.sets.require(STEWARD, "visits").curator
    with console.ann() as client:
        console.release(client, epsilon="0.5")
    history = BudgetHistory.of(curator.ledger, account_label(curator.policy))
    steps, cap, _ = spent_steps(history, datetime.now(UTC))
    assert cap == 10
    assert steps[-1].spent >= 0.5
    assert all(one.spent <= other.spent for one, other in pairwise(steps))


def test_blocks_are_filled_with_what_is_left() -> None:
    four, nothing = Fraction(4), Fraction(0)
    blocks = [BlockLeft("1", Fraction(1), four, nothing), BlockLeft("everybody else", four, four, nothing)]
    [one, others] = block_columns(blocks)
    assert (one.height, one.top, one.amount) == ("25.00%", "75.00%", "1")
    assert others.name == "others"
