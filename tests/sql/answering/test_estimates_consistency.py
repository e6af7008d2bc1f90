"""Consistency: the least squares of textbooks without solving anything; never worse than raw numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lapwing.sql.answering.estimates import (
    MeasuredGrouping,
    adds_up,
    consistent_groupings,
    counts_rows,
    estimate,
    least_squares,
    make_consistent,
    nearest_non_negative,
)
from lapwing.sql.answering.noisy_numbers import add_noise
from lapwing.sql.pricing.noise_shares import deviation, divide_budget
from lapwing.sql.question.bound_query import Computed, NoisyAggregate, Plain
from lapwing.sql.reading.exact_numbers import ExactGrouping
from support.noisy_questions import COUNT, STAY, declared, question, undeclared
from support.streams import SeededStream

Floats = NDArray[np.float64]
SIZES = {0: 3, 1: 4, 2: 2}
SETS = [(), (0,), (1,), (0, 1), (1, 0), (2, 1), (0, 1, 2)]


def summing(keys: tuple[int, ...]) -> Floats:
    """The matrix that sums the full table over all keys but these."""
    cells = list(product(*(range(size) for size in SIZES.values())))
    groups = list(product(*(range(SIZES[key]) for key in keys)))
    matrix = np.zeros((len(groups), len(cells)))
    for j, cell in enumerate(cells):
        matrix[groups.index(tuple(cell[key] for key in keys)), j] = 1
    return matrix


def measured(sets: list[tuple[int, ...]], seed: int) -> list[MeasuredGrouping]:
    generator = np.random.Generator(np.random.Philox(seed))
    truth = generator.integers(0, 20, math.prod(SIZES.values()))
    found = []
    for keys in sets:
        variance = float(generator.uniform(0.5, 9))
        exact = summing(keys) @ truth
        noisy = exact + generator.normal(0, math.sqrt(variance), len(exact))
        found.append(MeasuredGrouping(keys, noisy.reshape([SIZES[key] for key in keys]), variance))
    return found


some_sets = st.lists(st.sampled_from(SETS), min_size=1, max_size=5)


@given(some_sets, st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_it_is_the_weighted_least_squares_solution(sets: list[tuple[int, ...]], seed: int) -> None:
    found = measured(sets, seed)
    rows = np.concatenate([summing(one.keys) / math.sqrt(one.variance) for one in found])
    goal = np.concatenate([one.values.ravel() / math.sqrt(one.variance) for one in found])
    inverse = np.linalg.pinv(rows)
    for one, (values, variance) in zip(found, least_squares(found, SIZES), strict=True):
        matrix = summing(one.keys)
        assert values.ravel() == pytest.approx(matrix @ inverse @ goal, abs=1e-6)
        # The textbook's variance of each number: all alike, and never above the raw one.
        spread = np.diag(matrix @ inverse @ inverse.T @ matrix.T)
        assert np.full(len(matrix), variance) == pytest.approx(spread, rel=1e-6)
        assert variance <= one.variance * (1 + 1e-9)


@given(some_sets, st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_without_negative_cells_totals_still_are_the_sums(sets: list[tuple[int, ...]], seed: int) -> None:
    found = measured(sets, seed)
    lowered = [MeasuredGrouping(one.keys, one.values - 15, one.variance) for one in found]
    values = nearest_non_negative(lowered, SIZES)
    totals = [float(one.sum()) for one in values]
    assert totals == pytest.approx([totals[0]] * len(totals), abs=1e-6)
    assert all(one.min() >= 0 for one in values)
    by_ward = [
        one.sum(axis=m.keys.index(1)) for one, m in zip(values, found, strict=True) if m.keys[:2] == (0, 1)
    ]
    for one in by_ward[1:]:
        assert one.reshape(3, -1).sum(axis=1) == pytest.approx(
            by_ward[0].reshape(3, -1).sum(axis=1), abs=1e-6
        )


def test_the_table_without_negative_cells_is_nearly_the_nearest() -> None:
    """Nothing is gained by many more rounds, and no small step that keeps to it comes nearer."""
    found = [MeasuredGrouping(m.keys, m.values - 8, m.variance) for m in measured([(0, 1, 2), (0,), ()], 3)]
    values = nearest_non_negative(found, SIZES)

    def distance(table: Floats) -> float:
        sums = [(summing(m.keys) @ table).reshape(m.values.shape) for m in found]
        return sum(
            float(((s - m.values) ** 2).sum()) / m.variance for s, m in zip(sums, found, strict=True)
        )

    table, best = values[0].ravel(), distance(values[0].ravel())
    for i in range(len(table)):
        for step in (-0.1, 0.1):
            moved = table.copy()
            moved[i] = max(moved[i] + step, 0)
            assert distance(moved) >= best - 1e-3


def test_errors_shrink_and_intervals_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 60 releases (the stream is seeded): errors fall in each grouping, intervals hold 95 % or so."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(91))
    keys = declared(8), declared(12, "sex")
    asked = question(*keys, sets=((0, 1), (0,), (1,), ()), parts=1)
    shares = divide_budget(asked, epsilon=1, delta=0, noise="laplace")
    truth = np.arange(96).reshape(8, 12) % 17 * 3
    sums = [truth.ravel(), truth.sum(axis=1), truth.sum(axis=0), np.array([truth.sum()])]
    raw, better, covered = np.zeros(4), np.zeros(4), []
    for _ in range(60):
        noisy = add_noise(shares, [ExactGrouping(one.reshape(-1, 1)) for one in sums])
        values = {s: one.parts[0] for s, one in enumerate(noisy)}
        found = make_consistent(shares, 0, values, Fraction(95, 100))
        for s, one in found.items():
            raw[s] += np.mean((values[s] - sums[s]) ** 2)
            better[s] += np.mean((one.values - sums[s]) ** 2)
            covered.append(np.mean(np.abs(one.centre - sums[s]) <= one.half))
            assert one.values.min() >= 0
            assert float(one.values.sum()) == pytest.approx(float(found[3].values.sum()))
    assert np.all(better < raw)
    assert 0.93 <= float(np.mean(covered)) <= 0.99
    assert deviation(shares.mechanism(0, 0)) == deviation(shares.mechanism(3, 0))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_weighted_sums_of_consistent_numbers_hold(noise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 60 releases of 105 numbers; people do not add up, so they keep their own noise."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(92))
    people, total = NoisyAggregate("count", (3,)), NoisyAggregate("sum", (1,), STAY)
    tree = Computed("-", (Computed("+", (Computed("*", (COUNT, Plain(2))), total)), people))
    keys = declared(8), declared(12, "sex")
    asked = question(*keys, sets=((0, 1), (0,), ()), parts=4, outputs=(tree, COUNT, total, people))
    shares = divide_budget(asked, epsilon=1, delta="1e-6", noise=noise)
    truth = np.arange(96).reshape(8, 12) % 17 * 30 + 500
    sums = [truth.ravel(), truth.sum(axis=1), np.array([truth.sum()])]
    covered, ratio = [], []
    for _ in range(60):
        exact = [ExactGrouping(np.stack([one, 3 * one, one, one], axis=1)) for one in sums]
        rows = estimate(shares, add_noise(shares, exact), confidence="0.95").columns
        low, high = rows[2].low, rows[2].high
        assert low is not None
        assert high is not None
        expected = 4 * np.concatenate(sums)
        covered.append(np.mean((low <= expected + 1e-6) & (high >= expected - 1e-6)))
        halves: list[Any] = [np.asarray(one.high) - np.asarray(one.low) for one in rows[3:]]
        ratio.append(np.mean((high - low) / (2 * halves[0] + halves[1] + halves[2])))
    assert 0.945 <= float(np.mean(covered)) <= 0.99
    assert float(np.mean(ratio)) < 0.99  # below the sum of widths at the same β


def test_only_groupings_of_declared_keys_that_add_up_are_made_to_agree() -> None:
    both = question(declared(2), undeclared(), sets=((0,), (1,), ()), parts=4)
    assert consistent_groupings(both) == [0, 2]
    assert consistent_groupings(question(declared(2))) == []
    wide = question(declared(2000), declared(2000, "sex"), sets=((0,), (1,)))
    assert consistent_groupings(wide) == []
    assert [adds_up(both, part) for part in range(4)] == [True, True, True, False]
    assert [counts_rows(both, part) for part in range(4)] == [True, False, False, True]


@pytest.mark.parametrize(("epsilon", "noise"), [(6, "laplace"), (12, "laplace"), (16, "gaussian")])
def test_intervals_hold_where_the_noise_is_a_few_rows(
    epsilon: int, noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over 1,500 releases, each number alone. By chance, 7.5 % miss once in 100,000 tests if 5 % do."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(93))
    asked = question(declared(3), sets=((0,), ()))
    shares = divide_budget(asked, epsilon=epsilon, delta="1e-6", noise=noise)
    sums = [np.array([40, 50, 60]), np.array([150])]
    missed = np.zeros(4)
    for _ in range(1500):
        noisy = add_noise(shares, [ExactGrouping(one.reshape(-1, 1)) for one in sums])
        found = estimate(shares, noisy, confidence="0.95").columns[1]
        assert found.low is not None
        assert found.high is not None
        truth = np.concatenate(sums)
        missed += (found.low > truth + 1e-9) | (found.high < truth - 1e-9)
    assert (missed / 1500 <= 0.075).all()
