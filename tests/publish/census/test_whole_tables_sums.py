"""Whole numbers between bounds have the sums that are asked for, and are the nearest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.publish.census.whole_tables import nearest_with_sums, whole_numbers_with_sums


@settings(max_examples=200)
@given(
    count=st.integers(1, 8),
    number=st.integers(1, 3),
    seed=st.integers(0, 10**6),
    noise=st.sampled_from([0.0, 1.0, 100.0, 1e9, 1e17]),
    most=st.sampled_from([1, 10, 10**6, 10**14]),
)
def test_sums_and_bounds_hold_whatever_the_values(
    count: int, number: int, seed: int, noise: float, most: int
) -> None:
    draws = np.random.default_rng(seed)
    groups = draws.integers(0, number, count)
    truth = draws.integers(0, most, count, endpoint=True)
    low = np.where(draws.random(count) < 0.5, truth, 0)
    high = np.where(draws.random(count) < 0.5, truth, 2**53 - 1)
    sums = np.zeros(number, np.int64)
    np.add.at(sums, groups, truth)
    found = whole_numbers_with_sums(truth + draws.normal(0, noise, count), groups, sums, low, high)
    totals = np.zeros(number, np.int64)
    np.add.at(totals, groups, found)
    assert totals.tolist() == sums.tolist()
    assert (low <= found).all()
    assert (found <= high).all()


@settings(max_examples=100)
@given(st.integers(1, 6), st.integers(0, 10**6))
def test_real_numbers_are_the_nearest(count: int, seed: int) -> None:
    """By the conditions of Karush, Kuhn and Tucker: one shift for all numbers that are not at a bound."""
    draws = np.random.default_rng(seed)
    low, width = draws.integers(0, 5, count), draws.integers(0, 9, count)
    high = low + width
    sums = np.array([draws.integers(low.sum(), high.sum(), endpoint=True)])
    values, groups = draws.normal(4, 6, count), np.zeros(count, np.int64)
    found = nearest_with_sums(values, groups, sums, low, high)
    assert found.sum() == pytest.approx(sums[0], abs=1e-9)
    shifts, near = values - found, 1e-9
    is_low, is_high = found <= low + near, found >= high - near
    shift = shifts[~is_low & ~is_high]
    if len(shift):
        assert np.ptp(shift) < near
        assert (shifts[is_low & ~is_high] <= shift[0] + near).all()
        assert (shifts[is_high & ~is_low] >= shift[0] - near).all()
    else:
        assert (
            shifts[is_low & ~is_high].max(initial=-np.inf)
            <= shifts[is_high & ~is_low].min(initial=np.inf) + near
        )


def test_the_largest_remainders_go_up() -> None:
    low, high = np.zeros(4, np.int64), np.array([9, 9, 9, 1])
    values = np.array([1.2, 0.9, 2.6, 1.3])
    found = whole_numbers_with_sums(values, np.zeros(4, np.int64), np.array([6]), low, high)
    assert found.tolist() == [1, 1, 3, 1]
