"""Columns are declared, and each row becomes whole numbers by itself."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lapwing.errors import BadParameter, BadValue
from lapwing.learn.trainers import Binned, Category, Real
from lapwing.learn.trainers.columns import (
    ONE,
    UNKNOWN,
    checked_classes,
    checked_coded_columns,
    checked_columns,
    checked_table,
    checked_target,
    class_codes,
    feature_matrix,
)

ODD = [0, 1, -1, 7.5, 1e300, -1e300, math.inf, -math.inf, math.nan, None, "text", [1], 10**400, True]


def test_a_number_lies_between_minus_one_and_one() -> None:
    values = np.array([0, 5, 10, -3, 99, math.nan, math.inf])
    placed = Real(0, 10).features(values)[:, 0]
    assert placed.tolist() == [-ONE, 0, ONE, -ONE, ONE, 0, ONE]


def test_a_number_comes_back() -> None:
    assert Real(0, 10).value(np.array([-1.0, 0.0, 0.5])).tolist() == [0, 5, 7.5]


@pytest.mark.parametrize("column", [Real(-1, 1), Category([0, 1, "text"]), Binned([0, 1, 2])])
def test_any_cell_becomes_whole_numbers_within_bounds(column: Any) -> None:
    cells = np.empty(len(ODD), dtype=object)
    cells[:] = ODD
    placed = column.features(cells)
    assert placed.dtype == np.int64
    assert placed.shape == (len(ODD), column.width)
    assert ((placed**2).sum(axis=1) <= ONE**2).all()


def test_a_row_is_placed_by_itself() -> None:
    columns = (Real(-3, 3), Binned([-1, 0, 1]), Category([0, 1]))
    rng = np.random.default_rng(1)
    table = np.column_stack([rng.normal(size=999), rng.normal(size=999), rng.integers(0, 3, 999)])
    together = feature_matrix(columns, table)
    order = rng.permutation(999)[:500]
    assert (feature_matrix(columns, table[order]) == together[order]).all()
    for at in range(0, 999, 100):
        assert (feature_matrix(columns, table[at : at + 1]) == together[at]).all()


def test_undeclared_values_and_classes_are_unknown_and_raise_nothing() -> None:
    assert Category(["a", "b"]).codes(np.array(["b", "c", "a"])).tolist() == [1, UNKNOWN, 0]
    assert class_codes(checked_classes((1, 2)), np.array([2, 3, 1])).tolist() == [1, UNKNOWN, 0]
    assert Binned([0]).codes(np.array([-1, 0, math.nan])).tolist() == [0, 1, UNKNOWN]


def test_no_rows_have_the_same_features() -> None:
    assert feature_matrix((Real(0, 1), Category(["a", "b"])), np.zeros((0, 2))).shape == (0, 3)


@pytest.mark.parametrize(("low", "high"), [(1, 1), (2, 1), (math.nan, 1), (0, math.inf), ("a", 1)])
def test_bad_bounds_are_refused(low: Any, high: Any) -> None:
    with pytest.raises(BadParameter):
        Real(low, high)


@pytest.mark.parametrize("values", [[], "text", ["a", "a"], [1, True]])
def test_bad_categories_are_refused(values: Any) -> None:
    with pytest.raises(BadParameter):
        Category(values)


@pytest.mark.parametrize("edges", [[], [1, 1], [2, 1], [math.nan], [0, math.inf]])
def test_bad_edges_are_refused(edges: Any) -> None:
    with pytest.raises(BadParameter):
        Binned(edges)


@pytest.mark.parametrize("columns", [(), (Real(0, 1),), (Real(0, 1), "b"), 3 * (Real(0, 1),)])
def test_every_column_is_described_once(columns: Any) -> None:
    with pytest.raises(BadParameter):
        checked_columns(columns, 2)


def test_one_description_stands_for_all_columns() -> None:
    assert checked_columns(Real(0, 1), 3) == 3 * (Real(0, 1),)


def test_where_values_are_counted_a_real_column_is_refused() -> None:
    with pytest.raises(BadParameter, match="edges"):
        checked_coded_columns(Real(0, 1), 2)


@pytest.mark.parametrize("classes", ["ab", (1,), (), (1, 1)])
def test_bad_classes_are_refused(classes: Any) -> None:
    with pytest.raises(BadParameter):
        checked_classes(classes)


@pytest.mark.parametrize("y", [None, [1, 2], [[1, 2], [3, 4], [5, 6]]])
def test_a_target_of_another_form_is_refused(y: Any) -> None:
    with pytest.raises((BadParameter, BadValue)):
        checked_target(y, 3)


def test_a_table_of_another_form_is_refused() -> None:
    with pytest.raises(BadValue):
        checked_table([1, 2, 3])


def test_bounds_are_exact() -> None:
    assert Real(0.1, "0.3").low == Fraction(1, 10)
