"""Several releases of one question: weights, widths and levels."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from lapwing.mechanisms import Gaussian, Laplace
from lapwing.query.answering.combine import can_be_combined, half_width_of_mean, level_of_repeat
from lapwing.query.answering.shares import deviation
from lapwing.query.dataset import Dataset

Open = Callable[..., Dataset]
DRAWS = 40_000


def laplace(scale: int) -> Laplace:
    return Laplace(Fraction(scale), 1)


def gaussian(sigma: int) -> Gaussian:
    return Gaussian.for_rho(Fraction(1, 2 * sigma * sigma), l2_squared=1, dimension=DRAWS)


@pytest.mark.parametrize(
    "mechanisms",
    [
        [laplace(5), laplace(5)], [laplace(1), laplace(40)], [laplace(3), laplace(4), laplace(9)],
        [gaussian(6), gaussian(30)], [laplace(7), gaussian(7)], [laplace(50), laplace(60), gaussian(9)],
        [laplace(8)] * 12,
    ],
)  # fmt: skip
def test_the_noise_of_the_mean_lies_within_the_width(mechanisms: list[Laplace | Gaussian]) -> None:
    """False alarms: below 1e-9 each (six standard deviations of a binomial share)."""
    weights = np.array([1 / deviation(one) ** 2 for one in mechanisms])
    weights /= weights.sum()
    zeros = np.zeros(DRAWS, dtype=np.int64)
    mean = sum(w * one.sample(zeros) for w, one in zip(weights, mechanisms, strict=True))
    assert np.var(mean) == pytest.approx(1 / sum(1 / deviation(one) ** 2 for one in mechanisms), rel=0.2)
    for level in (Fraction(1, 2), Fraction(95, 100), Fraction(999, 1000)):
        width = half_width_of_mean(mechanisms, list(weights), level)
        share = np.mean(np.abs(mean) <= width)
        assert share >= float(level) - 6 * np.sqrt(float(level * (1 - level)) / DRAWS)


def test_all_combined_intervals_hold_together() -> None:
    eta = Fraction(5, 100)
    missed = [1 - level_of_repeat(1 - eta, i) for i in range(2, 2000)]
    assert sum(missed) < eta / 2
    assert missed == sorted(missed, reverse=True)


@pytest.mark.parametrize(
    ("sql", "additive"),
    [
        ("SELECT ward, COUNT(*), SUM(stay) FROM visits GROUP BY ward", True),
        ("SELECT COUNT(DISTINCT patient_id) FROM visits", True),
        ("SELECT AVG(stay) FROM visits", False),
        ("SELECT COUNT(*) + 1 FROM visits", False),
        ("SELECT MEDIAN(stay) FROM visits", False),
        ("SELECT name, COUNT(*) FROM visits GROUP BY name", False),
        ("SELECT ward, COUNT(*) FROM visits GROUP BY ROLLUP (ward)", False),
        ("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward ORDER BY n", False),
        ("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward LIMIT 1", False),
        ("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward HAVING COUNT(*) > 9", False),
    ],
)
def test_what_can_be_combined(opened: Open, sql: str, additive: bool) -> None:
    assert can_be_combined(opened().plan(sql, epsilon=1).question) is additive


def test_noises_of_both_kinds_are_combined(opened: Open) -> None:
    dataset = opened()
    sql = "SELECT ward, COUNT(*) AS n, SUM(stay) AS s FROM visits GROUP BY ward"
    dataset.ask(sql, epsilon=1, noise="laplace")
    both = dataset.ask(sql, epsilon=3, noise="gaussian", delta="1e-8")
    assert both.of == 2
    n, s = both.columns[1:]
    for column, exact in ((n, [200, 400]), (s, [1000, 2000])):
        assert column.low is not None
        assert column.high is not None
        assert (column.low <= column.values).all()
        assert (column.values <= column.high).all()
        assert np.abs(column.values - exact).max() < 100 * (1 if column is n else 10)
    alone = dataset.ask(sql, epsilon=1, noise="laplace")
    assert alone.is_replay
    assert alone.of == 1
