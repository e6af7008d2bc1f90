"""Regression by sums: the least squares of all members' rows, noise in intervals, honest labels."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.core.gaussian import GaussianShares
from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.statistics.regression import LOST_IN_NOISE, NOISE_ONLY, SAMPLING, RegressionStatistic
from lapwing.sql.question.regression_sums import regression_sums as sums_of
from support.joint import gaussian, laplace, member, opened, plain, totals

LEVEL = Fraction(19, 20)
PEOPLE = (range(0, 120), range(120, 300))
X = ["stay", "urgent"]


def least_squares() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coefficients and standard errors by numpy, from all rows."""
    rows = np.array(plain(PEOPLE, "SELECT stay, CAST(urgent AS INTEGER), cost FROM visits"), dtype=float)
    design = np.column_stack([np.ones(len(rows)), rows[:, :2]])
    theta, rest, *_ = np.linalg.lstsq(design, rows[:, 2], rcond=None)
    errors = np.sqrt(rest[0] / (len(rows) - 3) * np.diag(np.linalg.inv(design.T @ design)))
    return theta, errors


def test_without_noise_it_is_the_least_squares_of_all_rows(tmp_path: Path) -> None:
    with (
        member(tmp_path / "a", PEOPLE[0]) as north,
        member(tmp_path / "b", PEOPLE[1], form="duckdb") as south,
    ):
        members = [RegressionStatistic(one, "visits", "cost", X) for one in (north, south)]
        found = opened([one.exact(0, ()) for one in members])
    shares = laplace(members[0], 1000)
    answer = members[0].answer([found], [totals(shares, found)], confidence=LEVEL)
    theta, errors = least_squares()
    assert list(answer.column("term").values) == ["(intercept)", *X]
    assert answer.column("coefficient").values == pytest.approx(theta, abs=1e-6)
    assert answer.column("standard_error").values == pytest.approx(errors, rel=1e-6)
    assert answer.column("coefficient").note == NOISE_ONLY
    assert answer.column("standard_error").note == SAMPLING
    assert answer.notes == ("From about 450 rows.",)


def test_blocks_are_moments_around_the_middle(tmp_path: Path) -> None:
    with member(tmp_path, range(9)) as dataset:
        made = RegressionStatistic(dataset, "visits", "cost", ["stay"])
    assert [(block.length, block.l1) for block in made.blocks] == [
        (1, 2),  # two rows
        (1, 2 * 10),
        (1, 2 * 100),  # cost has 200 steps
        (1, 2 * 10 * 10),
        (1, 2 * 10 * 100),
        (1, 2 * 100 * 100),
    ]
    assert [block.label for block in made.blocks][:2] == ["rows", "sum of stay around its middle"]
    assert "cost on stay" in made.title


def moments(x: NDArray[np.int64], y: NDArray[np.int64]) -> NDArray[np.int64]:
    """The vector of invented rows, in codes: stay around 10, cost around 100."""
    a, b = x - 10, y - 100
    return np.array([len(x), a.sum(), b.sum(), (a * a).sum(), (a * b).sum(), (b * b).sum()])


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_intervals_hold_the_noise_as_often_as_they_say(kind: str, tmp_path: Path) -> None:
    """Both should hold in 95 % of 300 runs; below 250 comes less than once in 1e9 (binomial)."""
    with member(tmp_path, range(9)) as dataset:
        made = RegressionStatistic(dataset, "visits", "cost", ["stay"])
    shares = laplace(made, 2, of=2) if kind == "laplace" else gaussian(made, Fraction(1, 2), of=2)
    dice = np.random.default_rng(3)
    x = dice.integers(0, 21, size=6000)
    y = np.clip(40 + 5 * x + dice.integers(-30, 31, size=6000), 0, 200)
    slope, start = np.polyfit(x, y / 2, 1)
    parts = [moments(x[k::3], y[k::3]) for k in range(3)]
    held = np.zeros(2)
    # All noise at once: calls cost more than draws.
    widened = [
        replace(share, dimension=900) if isinstance(share, GaussianShares) else share for share in shares
    ]
    drawn = np.array([share.sample(np.zeros(900, dtype=np.int64)) for share in widened])
    for noise in drawn.T.reshape(300, 3, 6):
        found = opened([part + own for part, own in zip(parts, noise, strict=True)])
        column = made.answer([found], [totals(shares, found)], confidence=LEVEL).column("coefficient")
        assert column.low is not None
        assert column.high is not None
        held += (column.low <= [start, slope]) & ([start, slope] <= column.high)
    assert held.min() >= 250
    assert np.abs(column.values[1] - slope) < 0.5


def test_where_noise_is_all_there_is_nothing_is_told(tmp_path: Path) -> None:
    with member(tmp_path, range(9)) as dataset:
        made = RegressionStatistic(dataset, "visits", "cost", ["stay"])
    shares = laplace(made, Fraction(1, 10))
    found = OpenedSum(np.array([12, 3, 4, 300, 5, 900]), (0, 1))
    answer = made.answer([found], [totals(shares, found)], confidence=LEVEL)
    assert list(answer.column("coefficient").values) == [None, None]
    assert answer.notes == (LOST_IN_NOISE,)
    assert "·" in str(answer)


@pytest.mark.parametrize("high", [1, 2, 21, 40])
def test_no_code_is_further_from_the_middle_than_its_reach(high: int, tmp_path: Path) -> None:
    """Sensitivities are multiples of the reach: of an odd span, too."""
    declared = f"[tables.visits.columns.age]\nlow = 0\nhigh = {high}\n"
    with member(tmp_path, range(2), more=declared) as dataset:
        age, _ = sums_of(dataset.policy, "visits", ["age", "stay"]).variables
    assert max(abs(code - age.middle) for code in range(high + 1)) == age.reach
