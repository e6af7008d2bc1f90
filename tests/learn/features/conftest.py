"""A question of every kind of column, without any data."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lapwing.query.language.kinds import Choice, Kind, Moment, Number, Period, Truth
from lapwing.query.language.relation import Scan
from lapwing.query.rows import RowQuestion

KINDS: dict[str, Kind] = {
    "age": Number(Fraction(1), 0, 100),
    "cost": Number(Fraction(1, 100), -500, 1500),
    "ward": Choice(("A", "B", "C")),
    "day": Moment(86400, 20_089, 20_453),
    "month": Period(1, 660, 671),
    "urgent": Truth(),
}


@pytest.fixture
def question() -> RowQuestion:
    return RowQuestion("SELECT …", Scan("visits", tuple(KINDS.items()), 2), KINDS, 2)
