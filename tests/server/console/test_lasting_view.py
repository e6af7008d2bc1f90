"""Make it last: the field that somebody changed leads, and quotas are lines that a policy can have."""

from __future__ import annotations

import tomllib
from datetime import date
from fractions import Fraction

from lapwing.server.console.lasting_view import field_that_leads, lasting_view, quota_lines
from lapwing.server.data.lasting import Pace, TypicalCount
from support.served import COUNT, STEWARD

from .conftest import ConsoleDoor

PACE = Pace(Fraction(11, 10), Fraction(2, 5), Fraction(2), 90)


def test_the_changed_field_leads() -> None:
    shown = {"until": "2027-02", "was_until": "2027-02", "monthly": "0.1", "was_monthly": "0.4"}
    assert field_that_leads(shown) == ("monthly", "0.1")
    assert field_that_leads({**shown, "monthly": "0.4"}) is None
    assert field_that_leads({}) is None


def test_the_card_says_what_it_would_be_and_what_is_wrong(console: ConsoleDoor) -> None:
    count = TypicalCount(console.services.sets.require(STEWARD, "visits").curator, COUNT)
    today = date(2026, 11, 17)
    now = lasting_view(PACE, count, {}, today)
    assert [one.leads for one in now.fields] == [False] * 3
    assert now.fields[0].value == "2027-01"  # the last month that is over before the end
    changed = lasting_view(PACE, count, {"until": "2027-09"}, today)
    assert [one.value for one in changed.fields[:2]] == ["2027-09", "0.1052"]
    assert changed.fields[1].now.endswith("0.4")
    assert "2 questions a month" in changed.words
    wrong = lasting_view(PACE, count, {"until": "2020-01"}, today)
    assert wrong.wrong.startswith("Until must be")
    assert wrong.fields[0].value == "2020-01"


def test_quotas_are_lines_of_a_policy() -> None:
    lines = quota_lines((("ann", Fraction(1, 3)), ('o"x y', Fraction(1, 2))), Fraction(1, 10**6))
    analysts = tomllib.loads(lines)["analysts"]
    assert analysts == {"ann": {"epsilon": 0.333, "delta": 1e-6}, 'o"x y': {"epsilon": 0.5, "delta": 1e-6}}
