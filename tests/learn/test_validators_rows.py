"""Every unit becomes one whole number, from its own rows alone, and no row is refused for its value."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lapwing.errors import BadParameter, BadValue
from lapwing.learn.payer import EACH_ROW
from lapwing.learn.table_input import Rounding, in_steps, one_row_each, real_rows, unit_means
from lapwing.learn.validators import (
    ClassLosses,
    ValidationRows,
    checked_bounds,
    step_count,
    unit_numbers,
)
from support.laws import follows
from support.streams import SeededStream

steps = st.fractions(min_value=Fraction(1, 10**6), max_value=100, max_denominator=10**6).filter(bool)
unit_lists = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=12)


@given(st.floats(allow_nan=False), steps, st.integers(1, 1 << 30))
@example(0.3, Fraction(1, 10), 10)
@example(0.1 + 0.2, Fraction(1, 10), 10)
@example(5e-324, Fraction(100), 10)
@example(math.inf, Fraction(1, 10), 10)
@settings(max_examples=150, deadline=None)
def test_losses_are_rounded_to_the_side_that_was_asked_for(loss: float, step: Fraction, most: int) -> None:
    bounded = min(max(Fraction(min(max(loss, -1e300), 1e300)), Fraction(0)), most * step)
    up, down = (int(in_steps(np.array([loss]), step, most, r)[0]) for r in (Rounding.UP, Rounding.DOWN))
    assert up == math.ceil(bounded / step)
    assert down == math.floor(bounded / step)


def test_many_losses_at_once_are_rounded_as_each_alone() -> None:
    losses = np.arange(0, 1.2, 0.001)
    each = [int(in_steps(np.array([x]), Fraction(1, 50), 50, Rounding.UP)[0]) for x in losses]
    assert in_steps(losses, Fraction(1, 50), 50, Rounding.UP).tolist() == each


def test_a_missing_loss_is_the_worst_that_it_could_be() -> None:
    missing = np.array([math.nan])
    assert in_steps(missing, Fraction(1, 10), 10, Rounding.UP).tolist() == [10]
    assert in_steps(missing, Fraction(1, 10), 10, Rounding.DOWN).tolist() == [0]


@given(unit_lists)
@settings(deadline=None)
def test_a_units_number_is_the_mean_of_its_own_rows(rows: list[tuple[int, int]]) -> None:
    names, wholes = (np.array(part) for part in zip(*rows, strict=True))
    units = unit_numbers(names, len(names))
    exactly = [
        Fraction(sum(k for u, k in rows if u == name), sum(u == name for u, _ in rows))
        for name in sorted(set(names.tolist()))
    ]
    assert unit_means(wholes, units, Rounding.UP).tolist() == [math.ceil(mean) for mean in exactly]
    assert unit_means(wholes, units, Rounding.DOWN).tolist() == [math.floor(mean) for mean in exactly]
    nearest = unit_means(wholes, units, Rounding.NEAREST).tolist()
    assert all(abs(found - mean) <= Fraction(1, 2) for found, mean in zip(nearest, exactly, strict=True))


@given(unit_lists)
@settings(deadline=None)
def test_without_a_unit_all_others_keep_their_numbers(rows: list[tuple[int, int]]) -> None:
    def numbers(kept: list[tuple[int, int]]) -> dict[int, int]:
        names, wholes = np.array([u for u, _ in kept], int), np.array([k for _, k in kept], int)
        means = unit_means(wholes, unit_numbers(names, len(names)), Rounding.UP)
        return dict(zip(np.unique(names).tolist(), means.tolist(), strict=True))

    gone = rows[0][0]
    before, after = numbers(rows), numbers([row for row in rows if row[0] != gone])
    assert after == {u: k for u, k in before.items() if u != gone}


def test_ids_that_differ_only_far_out_stay_different() -> None:
    """Clamped, they would be one person, and two people would move the sum together."""
    huge = np.array([(1 << 64) - 1, (1 << 64) - 2], dtype=np.uint64)
    assert len(set(unit_numbers(huge, 2).tolist())) == 2


def test_one_row_of_each_unit_is_drawn_and_all_are_equally_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    """False alarm: that of `follows`, once for this seed."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(7))
    copies = 20_000
    units = np.tile([3, 0, 3, 1, 3], copies) + 4 * np.repeat(np.arange(copies), 5)
    drawn = one_row_each(units, len(units))
    assert np.array_equal(units[drawn], np.unique(units))
    of_three = drawn[units[drawn] % 4 == 3] % 5
    follows(of_three // 2, [Decimal(1) / 3] * 3, first=0)


def test_nothing_is_drawn_of_nobody() -> None:
    assert one_row_each(unit_numbers(None, 0), 0).tolist() == []


@pytest.mark.parametrize(
    "values", [[[1.0]], np.array(["a"]), np.array([1j]), np.zeros((2, 2)), 3.0, "text"]
)
def test_values_of_another_form_are_refused(values: object) -> None:
    with pytest.raises(BadValue, match="one number per row"):
        real_rows(values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "units",
    [[1, 2], [1.5, 2], np.array(["a", "b"]), np.array([[1, 2]]), np.array([True, False]), np.array([1])],
)
def test_units_of_another_form_are_refused(units: object) -> None:
    with pytest.raises(BadValue, match="units"):
        unit_numbers(units, 2)


@pytest.mark.parametrize(
    ("width", "step"), [(1, "0.3"), (1, 0), (0, 1), (1, -1), (1, "1e-10"), ("1e301", "1e300"), (1, "nan")]
)
def test_steps_must_divide_the_width(width: float | str, step: float | str) -> None:
    with pytest.raises(BadParameter):
        step_count(width, step, "bound")


@pytest.mark.parametrize(
    ("low", "high", "step"), [(1, 1, 1), (2, 1, 1), ("0.5", 2, 1), (0, "1.5", 1), (10**10, 10**10 + 1, 1)]
)
def test_bounds_must_lie_on_the_grid(low: float | str, high: float | str, step: float | str) -> None:
    with pytest.raises(BadParameter):
        checked_bounds(low, high, step)


def test_printing_rows_shows_none_of_them() -> None:
    rows = ValidationRows([0.12345], units=[67890], of_class=ClassLosses([[0.54321]], units=[67890]))
    assert not any(private in repr(rows) + repr(rows.of_class) for private in ("12345", "67890", "54321"))


@pytest.mark.parametrize("odd", [None, "x", [1.0], 1j, pd.NA, 10**400])
def test_one_odd_value_in_a_list_is_a_missing_one(odd: object) -> None:
    """Neither an error, which would tell that it is there, nor a change of the others."""
    found = real_rows([0.25, True, 3, odd])
    assert found[:3].tolist() == [0.25, 1.0, 3.0]
    assert not math.isfinite(found[3])


def test_numbers_that_are_too_large_give_no_warning() -> None:
    assert real_rows(np.array(["1e4000", "1"], np.longdouble)).tolist() == [math.inf, 1.0]


def test_each_row_may_be_a_unit_by_promise() -> None:
    assert unit_numbers(EACH_ROW, 3).tolist() == unit_numbers(None, 3).tolist() == [0, 1, 2]
