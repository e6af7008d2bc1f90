"""Cells follow from declarations, and every value has one."""

from __future__ import annotations

from datetime import date
from fractions import Fraction

import numpy as np
import pytest

from lapwing.errors import BadParameter
from lapwing.publish.measured.published_column import (
    PublishedColumn,
    coded_rows,
    domain_of,
    published_column,
)
from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Text, Truth
from lapwing.sql.row_questions import CodedColumn, PrivateRows


def column(kind: Kind, bins: int | None = None, *, has_unknown: bool = True) -> PublishedColumn:
    return published_column("x", kind, bins=bins, has_unknown=has_unknown)


def coded(codes: list[int], known: list[bool] | None = None) -> CodedColumn:
    return CodedColumn(np.array(codes), np.array([True] * len(codes) if known is None else known))


def test_each_declared_value_has_a_cell_and_so_has_unknown() -> None:
    ward = column(Choice(("a", "b")))
    assert ward.size == 3
    assert [ward.label(k) for k in range(3)] == ["a", "b", "unknown"]
    assert ward.cells(coded([0, 1, 0], [True, True, False])).tolist() == [0, 1, 2]
    assert ward.values(np.array([1, 2])) == ["b", None]


def test_a_long_number_is_cut_into_equal_bins_within_its_bounds() -> None:
    cost = column(Numeric(Fraction(1, 100), 0, 9999))
    assert cost.bins == 32
    assert cost.cells(coded([-5, 0, 312, 313, 9999, 20000])).tolist() == [0, 0, 0, 1, 31, 31]
    assert cost.label(0) == "0 to 3.12"
    drawn = cost.values(np.zeros(500, np.int64))
    assert all(isinstance(value, int | float) and 0 <= value <= 3.12 for value in drawn)
    assert len(set(drawn)) > 100  # not one value for all of a bin


def test_a_short_number_has_a_cell_for_each_value() -> None:
    age = column(Numeric(Fraction(1), 0, 99))
    assert age.size == 101
    assert column(Numeric(Fraction(1), 0, 99), 10).label(3) == "30 to 39"


def test_dates_and_truths() -> None:
    day = column(Moment(86400, 20089, 20818), 24)
    assert day.bins == 24
    assert day.label(0).startswith("2025-01-01 to ")
    assert all(isinstance(value, date) for value in day.values(np.arange(24)))
    assert column(Truth()).values(np.array([0, 1, 2])) == [False, True, None]


def test_rows_without_a_required_value_are_left_out() -> None:
    columns = [column(Choice(("a", "b")), has_unknown=False)]
    rows = PrivateRows(np.arange(3), np.zeros(3, np.int64), {"x": coded([0, 1, 1], [True, False, True])})
    assert coded_rows(columns, rows).tolist() == [[0], [1]]
    assert domain_of(columns).sizes == (2,)


@pytest.mark.parametrize(
    ("kind", "bins", "why"),
    [
        (Text(), None, "no declared values"),
        (Choice(("a", "b")), 2, "not cut into bins"),
        (Numeric(Fraction(1), 0, 9), 0, "between 1 and 10"),
        (Numeric(Fraction(1), 0, 9), 11, "between 1 and 10"),
        (Numeric(Fraction(1), 0, 10**6), 5000, "at most 1,024"),
        (Choice(tuple(map(str, range(2000)))), None, "at most 1,024"),
    ],
)
def test_a_column_that_cannot_be_published_is_refused(kind: Kind, bins: int | None, why: str) -> None:
    with pytest.raises(BadParameter, match=why):
        column(kind, bins)
