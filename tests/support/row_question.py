"""A question of every kind of column, without any data."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Period, Truth
from lapwing.sql.question.relation import Scan
from lapwing.sql.row_questions import RowQuestion

KINDS: dict[str, Kind] = {
    "age": Numeric(Fraction(1), 0, 100),
    "cost": Numeric(Fraction(1, 100), -500, 1500),
    "ward": Choice(("A", "B", "C")),
    "day": Moment(86400, 20_089, 20_453),
    "month": Period(1, 660, 671),
    "urgent": Truth(),
}


@pytest.fixture
def question() -> RowQuestion:
    return RowQuestion("SELECT …", Scan("visits", tuple(KINDS.items()), 2), KINDS, 2)
