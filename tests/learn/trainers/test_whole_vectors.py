"""Lengths are bounded in whole numbers, sums are exact, and one row of each unit counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.learn.table_input import one_row_each
from lapwing.learn.trainers.linear_models import gradient_sum, with_constant
from lapwing.learn.trainers.whole_vectors import (
    FAR,
    FINE,
    REACH,
    class_probabilities,
    exact_cross_sum,
    exact_products,
    score_errors,
    shorten,
    whole_squared_lengths,
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-(1 << 14), 1 << 14), min_size=1, max_size=20),
    st.integers(1, 1 << 15),
    st.integers(1, 1 << 15),
)
def test_no_row_is_longer_than_the_limit(row: list[int], radius: int, limit: int) -> None:
    placed = shorten(np.array([row], dtype=np.int64), radius, limit)
    assert sum(int(value) ** 2 for value in placed[0]) <= limit**2


def test_rows_next_to_the_limit_stay_within_it() -> None:
    """Pythagorean triples have whole lengths: here rounding could go wrong first."""
    rows = np.array([[3, 4], [5, 12], [8, 15], [20, 21], [119, 120], [696, 697]], dtype=np.int64)
    for factor in (1, 7, 30):
        for limit in (1, 5, 13, 1 << 15, (1 << 15) - 1):
            assert (whole_squared_lengths(shorten(rows * factor, 1, limit)) <= limit**2).all()
    assert shorten(np.array([[3, 4]], dtype=np.int64), 5, 50).tolist() == [[30, 40]]


def test_a_row_is_shortened_by_itself() -> None:
    rows = np.random.default_rng(2).integers(-(1 << 13), 1 << 13, (1001, 37))
    together = shorten(rows, 100, 1 << 15)
    for at in (0, 1, 7, 500, 1000):
        assert (shorten(rows[at : at + 1], 100, 1 << 15) == together[at]).all()
    assert (shorten(rows[::-3], 100, 1 << 15) == together[::-3]).all()


def test_sums_are_those_of_whole_numbers_whatever_the_order() -> None:
    rng = np.random.default_rng(3)
    left = rng.integers(-(1 << 13), (1 << 13) + 1, (5000, 3))
    right = rng.integers(-(1 << 15), (1 << 15) + 1, (5000, 7))
    exact = left.T @ right  # integers, no floats
    for order in (np.arange(5000), rng.permutation(5000)):
        found = exact_cross_sum(left[order].astype(float), right[order].astype(float), 1 << 28)
        assert (found == exact).all()


def test_large_sums_are_added_in_parts_that_stay_exact() -> None:
    ones = np.full((9, 1), float(1 << 26))
    assert exact_cross_sum(ones, ones + 1, (1 << 52) + (1 << 26)).tolist() == [
        [9 * (1 << 26) * ((1 << 26) + 1)]
    ]


@pytest.mark.parametrize("scale", [1e-300, 1e-3, 1.0, 1e300])
def test_products_are_those_of_a_row_alone_and_hardly_rounded(scale: float) -> None:
    rng = np.random.default_rng(6)
    rows, weights = rng.integers(-4096, 4097, (503, 21)), scale * rng.normal(size=(21, 2))
    together = exact_products(rows, weights, 4096)
    assert all(
        (exact_products(rows[at : at + 1], weights, 4096) == together[at]).all() for at in range(503)
    )
    assert (exact_products(rows[1:], weights, 4096) == together[1:]).all()
    greatest = 21 * 4096 * float(np.abs(weights).max()) / scale
    lost = np.abs(together / scale - rows @ (weights / scale))
    assert lost.max() <= 2.0**-49 * 4096 * 21 * greatest


def test_products_with_no_weight_are_none() -> None:
    assert exact_products(np.ones((2, 3), dtype=np.int64), np.zeros((3, 1)), 1).tolist() == [[0], [0]]


def test_without_units_every_row_counts() -> None:
    assert one_row_each(None, 4).tolist() == [0, 1, 2, 3]


def test_one_row_of_each_unit_counts() -> None:
    units = np.array([5, 5, 9, 5, 9, 1])
    for _ in range(20):
        chosen = one_row_each(units, 6)
        assert sorted(units[chosen]) == [1, 5, 9]


def test_all_rows_of_a_unit_are_equally_likely() -> None:
    """4,000 draws of three rows: each within 6 deviations (false alarms: about 6e-9)."""
    units = np.array([7, 7, 7, 8])
    seen = Counter(int(one_row_each(units, 4)[0]) for _ in range(4000))
    assert all(abs(seen[row] - 4000 / 3) < 6 * (4000 * 2 / 9) ** 0.5 for row in range(3))


@pytest.mark.parametrize("outputs", [1, 3, 10])
def test_no_error_is_longer_than_its_reach_and_each_is_of_its_own_row(outputs: int) -> None:
    rng = np.random.default_rng(4)
    scores = rng.integers(-40 * FINE, 40 * FINE, (997, outputs))
    scores[:50] = rng.choice([-(1 << 50), 0, 1 << 50], (50, outputs))
    truth = rng.integers(-1, max(outputs, 2), 997)
    together = score_errors(scores, truth)
    assert (whole_squared_lengths(together) <= REACH**2).all()
    assert not together[truth == -1].any()
    assert (score_errors(scores[::-2], truth[::-2]) == together[::-2]).all()
    for at in (0, 3, 996):
        assert (score_errors(scores[at : at + 1], truth[at : at + 1]) == together[at]).all()


def test_errors_are_probability_minus_truth() -> None:
    scores = np.array([[0.5, -1.0, 2.0]])
    found = score_errors((scores * FINE).astype(np.int64), np.array([2]))[0] / REACH
    wanted = class_probabilities(scores)[0] - [0, 0, 1]
    assert np.allclose(found, wanted, atol=1e-3)
    one = score_errors((scores[:, :1] * FINE).astype(np.int64), np.array([1]))[0] / REACH
    assert np.allclose(one, class_probabilities(scores[:, :1])[0, 1] - 1, atol=1e-3)


def test_gradients_are_made_of_whole_weights() -> None:
    """Real weights could fall on either side of a step, by the order in which a product is added up."""
    rows = with_constant(np.ones((3, 2), dtype=np.int64), np.ones(2, dtype=np.int64), 10)
    truth = np.array([0, 1, 1])
    for step in range(20):
        weights = np.array([[0.0], [0.0], [step / (1 << 10)]])
        assert (gradient_sum(rows, truth, weights - 1e-9) == gradient_sum(rows, truth, weights)).all()


def test_gradients_are_the_sum_of_those_of_each_row() -> None:
    rng = np.random.default_rng(5)
    rows = with_constant(rng.integers(-4096, 4097, (50, 4)), np.zeros(4, dtype=np.int64), 2048)
    truth, weights = rng.integers(-1, 3, 50), rng.normal(size=(5, 3))
    alone = [gradient_sum(rows[at : at + 1], truth[at : at + 1], weights) for at in range(50)]
    assert (gradient_sum(rows, truth, weights) == sum(alone)).all()


def test_scores_far_out_are_certain() -> None:
    assert score_errors(np.array([[FAR * FINE * 9]]), np.array([0])).tolist() == [[REACH]]
