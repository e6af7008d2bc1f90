"""Declared columns and plain cells of a question's columns."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lapwing.errors import BadParameter
from lapwing.learn.trainers import Binned, Category, Real
from lapwing.learn.trainers.question_columns import (
    binned_column,
    declared_column,
    plain_cells,
    split_label,
)
from lapwing.sql.policy.kinds import Choice, Moment, Numeric, Period, Truth
from lapwing.sql.row_questions import CodedColumn, RowQuestion
from support.raised import named


def coded(*codes: int | None) -> CodedColumn:
    known = np.array([code is not None for code in codes], np.bool_)
    return CodedColumn(np.array([code or 0 for code in codes], np.int64), known)


def test_declarations_are_the_policys(question: RowQuestion) -> None:
    found = {name: question.columns[name] for name in ("age", "cost", "ward", "urgent")}
    assert {name: declared_column(name, kind) for name, kind in found.items()} == {
        "age": Real(0, 100),
        "cost": Real(-5, 15),
        "ward": Category(("A", "B", "C")),
        "urgent": Category((False, True)),
    }
    for name in ("day", "month"):
        with pytest.raises(BadParameter, match="EXTRACT"):
            declared_column(name, question.columns[name])


def test_a_number_with_one_value_has_bounds_that_differ() -> None:
    assert declared_column("n", Numeric(Fraction(1), 7, 7)) == Real(7, 8)


def test_cells_are_plain_values_and_missing_ones_are_nothing() -> None:
    numbers = plain_cells(Numeric(Fraction(1, 4), 0, 100), coded(3, None, 100))
    assert numbers[[0, 2]].tolist() == [0.75, 25]
    assert math.isnan(numbers[1])
    assert plain_cells(Choice(("A", 2, True)), coded(2, 0, None, 1)).tolist() == [True, "A", None, 2]
    assert plain_cells(Truth(), coded(1, 0, None)).tolist() == [True, False, None]
    assert plain_cells(Choice(("A", "B")), coded(7, -1)).tolist() == [None, None]
    assert plain_cells(Truth(), coded()).tolist() == []


def test_the_last_column_is_the_label_unless_it_is_named(question: RowQuestion) -> None:
    kinds: dict[str, Any] = {"age": Truth(), "ward": Choice(("A",)), "late": Truth()}
    assert split_label(kinds, None) == ({"age": Truth(), "ward": Choice(("A",))}, "late")
    assert split_label(kinds, "age") == ({"ward": Choice(("A",)), "late": Truth()}, "age")
    with pytest.raises(BadParameter, check=named("label")):
        split_label(kinds, "Late")
    with pytest.raises(BadParameter, check=named("question")):
        split_label({"late": Truth()}, None)


def test_numbers_are_cut_and_other_columns_are_not() -> None:
    assert binned_column(Real(0, 8), 4) == Binned([2, 4, 6])
    assert binned_column(Category([1])) == Category([1])


def test_dates_are_no_numbers() -> None:
    for kind in (Moment(86400, 0, 9), Period(1, 0, 9)):
        with pytest.raises(BadParameter):
            declared_column("day", kind)
