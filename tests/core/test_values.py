"""Values: whole numbers of any type and size go in; real ones only over a public grid."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from lapwing.core.values import (
    LARGEST_SCORE,
    LARGEST_VALUE,
    Grid,
    whole_numbers,
    whole_scores,
    whole_values,
)
from lapwing.errors import BadParameter, BadValue
from support.cases import each

HUGE = 10**400


@each(
    "given_values",
    [
        5,
        [5],
        (5,),
        np.int8(5),
        np.array(5),
        np.array([5], dtype=np.uint64),
        np.array([5], dtype=object),
        [np.uint16(5)],
    ],
)
def test_whole_numbers_of_any_type_are_taken(given_values: ArrayLike) -> None:
    taken = whole_values(given_values)
    assert taken.dtype == np.int64
    assert taken.tolist() == [5]


@given(st.lists(st.integers(-HUGE, HUGE), min_size=1, max_size=5))
def test_every_size_is_taken_and_clamped_one_by_one(numbers: list[int]) -> None:
    """numpy would make floats of [2^63, -1], and an error about them would tell the size."""
    clamped = [min(max(n, -LARGEST_VALUE), LARGEST_VALUE) for n in numbers]
    assert whole_values(numbers).tolist() == clamped


@given(st.integers(-(1 << 70), 1 << 70), st.integers(-(1 << 70), 1 << 70))
def test_clamping_brings_no_two_values_further_apart(one: int, other: int) -> None:
    a, b = whole_values([one, other]).tolist()
    assert abs(a - b) <= abs(one - other)


@each("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_the_ends_of_every_type_are_taken(dtype: type[np.integer]) -> None:
    ends = np.iinfo(dtype)
    taken = whole_values(np.array([ends.min, ends.max], dtype=dtype)).tolist()
    assert taken == [max(int(ends.min), -LARGEST_VALUE), min(int(ends.max), LARGEST_VALUE)]


@each(
    "wrong",
    [
        1.0,
        [1.5],
        math.nan,
        [math.inf],
        True,
        [True, 2],
        np.array([True]),
        "5",
        ["5"],
        b"5",
        None,
        [None, 1],
        [Fraction(1, 2)],
        [[1, 2], [3, 4]],
        [[1], [2, 3]],
        np.array([["1"]]),
        np.array([1.0]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.array([1], dtype="timedelta64[s]"),
        1j,
        {"a": 1},
    ],
)
def test_everything_else_is_refused(wrong: ArrayLike) -> None:
    with pytest.raises(BadValue):
        whole_values(wrong)


def test_nothing_is_refused_where_something_must_be_released_and_is_fine_elsewhere() -> None:
    with pytest.raises(BadValue):
        whole_values([])
    empty: list[ArrayLike] = [[], np.array([]), np.array([], dtype=np.int64)]
    for nothing in empty:
        assert whole_numbers(nothing).dtype == np.int64
        assert not len(whole_numbers(nothing))


def test_scores_are_clamped_so_that_their_differences_fit() -> None:
    ends = whole_scores(np.array([-(1 << 63), (1 << 63) - 1]))
    assert list(ends) == [-LARGEST_SCORE, LARGEST_SCORE]
    assert list(whole_scores([-HUGE, HUGE])) == [-LARGEST_SCORE, LARGEST_SCORE]
    with pytest.raises(BadValue):  # on what denominator they lie would tell of the data
        whole_scores(np.array([Fraction(1, 2), 1], dtype=object))


class TestGrid:
    GRID = Grid.of(low="-0.5", high=2, step="0.25")

    def test_values_go_to_the_nearest_multiple_inside_the_bounds(self) -> None:
        placed = self.GRID.place([-9, -0.5, 0, 0.1, 0.13, 1.99, 2, 9], missing=None)
        assert placed.tolist() == [-2, -2, 0, 0, 1, 8, 8, 8]
        assert [self.GRID.value(k) for k in (-2, 8)] == [Fraction(-1, 2), 2]

    def test_bounds_between_multiples_are_rounded_into_the_bounds(self) -> None:
        grid = Grid.of(low="0.3", high="1.7", step="0.5")
        assert (grid.first, grid.last) == (1, 3)
        assert grid.place([0, 0.3, 1.7, 5], missing=None).tolist() == [1, 1, 3, 3]

    @given(st.lists(st.floats() | st.none() | st.integers(-HUGE, HUGE), max_size=6))
    def test_every_value_is_placed_by_itself_whatever_it_is(self, values: list[float | int | None]) -> None:
        placed = self.GRID.place(values, missing=1)
        alone = [int(self.GRID.place([value], missing=1)[0]) for value in values]
        assert placed.tolist() == alone
        assert all(self.GRID.first <= k <= self.GRID.last for k in alone)

    @given(st.floats(-1, 3), st.floats(-1, 3))
    def test_order_is_kept(self, one: float, other: float) -> None:
        low, high = self.GRID.place(sorted([one, other]), missing=None).tolist()
        assert low <= high

    def test_the_given_values_stay_as_they_are(self) -> None:
        values = np.array([math.nan, 99.0, 0.3])
        before = values.copy()
        self.GRID.place(values, missing=0)
        np.testing.assert_array_equal(values, before)

    @each("missing", [0, "1e400", "-1e400", -7, 0.1])
    def test_what_stands_for_missing_values_is_placed_like_any_other(self, missing: str | float) -> None:
        wanted = min(max(Fraction(missing) if isinstance(missing, str) else missing, -0.5), 2)
        expected = self.GRID.place([float(wanted)], missing=None)
        assert self.GRID.place([math.nan, None], missing=missing).tolist() == [expected[0]] * 2

    @each("values", [[math.nan], [None], np.array([1, math.nan])])
    def test_missing_values_are_refused_where_nothing_replaces_them(self, values: ArrayLike) -> None:
        with pytest.raises(BadValue):
            self.GRID.place(values, missing=None)

    @each("values", [["1"], [True], [[1.0]], [1j], "x", [object()], [b"1"]])
    def test_what_is_no_number_is_refused(self, values: ArrayLike) -> None:
        with pytest.raises(BadValue):
            self.GRID.place(values, missing=0)

    @each(
        ("low", "high", "step"),
        [
            (1, 0, 1),
            (0, 0, 1),
            (0, 1, 0),
            (0, 1, -1),
            (0, 1, 2),
            ("0.1", "0.9", "0.5"),
            (math.nan, 1, 1),
            (0, math.inf, 1),
            (0, 1, "nan"),
            (0, 1, "1e-30"),
            ("-1e400", "1e400", "1e390"),
            (0, "1e-399", "1e-400"),
            ("1e999999999", 1, 1),
            (True, 2, 1),
            ("low", "high", "step"),
        ],
    )
    def test_grids_that_make_no_sense_are_refused(
        self, low: str | float, high: str | float, step: str | float
    ) -> None:
        with pytest.raises(BadParameter):
            Grid.of(low=low, high=high, step=step)
        with pytest.raises(BadParameter):
            Grid(low, high, step)  # type: ignore[arg-type]

    @each("scale", ["1e299", "1e-299"])
    def test_grids_at_the_ends_of_what_is_allowed_place_their_values(self, scale: str) -> None:
        unit = Fraction(scale)
        grid = Grid.of(low=-5 * unit, high=5 * unit, step=unit)
        assert grid.place([float(2 * unit), 1e308, -math.inf], missing=None).tolist() == [2, 5, -5]


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(BadValue):
        Grid.of(low=0, high=1, step="0.5").place([[1.0], [1.0, 2.0]], missing=0)
