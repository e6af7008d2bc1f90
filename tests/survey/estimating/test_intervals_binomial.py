"""Binomial tails and their inverse, against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, binom

from lapwing.survey.estimating.intervals import least_chance, least_count, upper_tail
from support.slowly import slow

RISKS = (0.25, 0.025, 5e-6, 1e-12)


@pytest.mark.parametrize("n", [1, 2, 30, 1_000, slow(1_000_000)])
def test_the_least_chance_is_that_of_clopper_and_pearson(n: int) -> None:
    """Never above it, not even by rounding, and no further below than rounding asks for."""
    few = np.arange(min(n, 20) + 1)
    counts = np.unique(np.concatenate([few, n - few, np.linspace(0, n, 15).astype(np.int64)]))
    for risk in RISKS:
        found = least_chance(counts, n, risk)
        assert found[0] == 0
        assert (binom.sf(counts - 1, n, found)[1:] <= risk).all()
        assert found[1:] == pytest.approx(beta.ppf(risk, counts[1:], n - counts[1:] + 1), rel=1e-7)


def test_counts_may_come_in_any_order_and_form() -> None:
    found = least_chance(np.array([[3, 0], [3, 7]]), 9, 0.01)
    assert found.shape == (2, 2)
    assert found[0, 0] == found[1, 0] == least_chance(np.array([3]), 9, 0.01)[0]
    assert least_chance(np.array([0]), 9, 0.01).tolist() == [0.0]


@pytest.mark.parametrize(("n", "p"), [(1, 0.3), (50, 0.5), (5_000, 0.03), (100_000, 0.27)])
def test_the_least_count_is_that_of_the_exact_law(n: int, p: float) -> None:
    for risk in (0.05, 1e-7):
        count = least_count(n, p, risk)
        assert binom.sf(count - 1, n, p) <= risk * (1 + 1e-6)
        assert binom.sf(count - 2, n, p) > risk * (1 - 1e-6)
    assert upper_tail(n, p, n + 1) == 0
    assert upper_tail(n, p, 0) == 1
