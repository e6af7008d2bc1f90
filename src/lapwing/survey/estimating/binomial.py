"""Binomial tails and their inverse, in floats with their rounding on the safe side.

Claim    where the count of n coins is K, `least_chance(K, n, risk)` is at most the chance θ at which
         P[Binomial(n, θ) >= K] = risk, and near it. So θ is below it with a probability of at most `risk`.
Because  in the logarithm of the odds, ln P[X >= K] rises and is concave: its slope is E[X | X >= K] - E[X],
         and that slope's own is Var[X | X >= K] - Var[X] <= 0, as cutting off a log-concave law leaves less
         variance. So Newton's steps end below the root, wherever they begin, and go up to it.
Test     tests/survey/estimating/test_binomial.py::test_the_least_chance_is_that_of_clopper_and_pearson
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
STEPS = 60
TERMS, STILL = 100_000, 1e-13  # of a continued fraction: far from the mean some tens are enough
TINY = 1e-300


def least_chance(counts: Counts, n: int, risk: float) -> Floats:
    """The lower end of Clopper and Pearson's interval: 0 where the count is 0."""
    found = np.zeros(counts.shape)
    kinds = np.unique(counts[counts > 0])
    if not len(kinds):
        return found
    ways = _log_ways(kinds, n)
    # Sums of numbers of this size are rounded; a smaller risk moves the end to the safe side.
    spare = 1e-12 + 1e-15 * (math.lgamma(n + 1.0) + n)
    target = math.log(risk) - spare
    k = kinds.astype(np.float64)
    odds = _near(k, n, risk)
    for _ in range(STEPS):
        chance = _expit(odds)
        over = _over_first(k, n, chance)
        tail = ways + k * np.log(chance) + (n - k) * np.log1p(-chance) + np.log(over)
        odds = odds + (target - tail) * over / (k * (1 - chance))
        if float(np.abs(target - tail).max()) < spare / 2:
            break
    positive = counts > 0
    found[positive] = _expit(odds)[np.searchsorted(kinds, counts[positive])]
    return found


def upper_tail(n: int, p: float, first: int) -> float:
    """P[Binomial(n, p) >= first]."""
    if first > n:
        return 0.0
    if first <= 0:
        return 1.0
    k, chance = np.array([float(first)]), np.array([p])
    log = _log_ways(np.array([first]), n) + k * math.log(p) + (n - k) * math.log1p(-p)
    return min(float(np.exp(log + np.log(_over_first(k, n, chance)))[0]), 1.0)


def least_count(n: int, p: float, risk: float) -> int:
    """The least c with P[Binomial(n, p) >= c] <= risk."""
    low, high = math.floor(n * p), n + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if upper_tail(n, p, middle) <= risk else (middle, high)
    return high


def _near(k: Floats, n: int, risk: float) -> Floats:
    """Where Newton begins: the odds at the lower end of Wilson's interval."""
    z2 = NormalDist().inv_cdf(max(risk, TINY)) ** 2
    middle, reach = k + z2 / 2, np.sqrt(z2 * (k * (1 - k / n) + z2 / 4))
    found: Floats = np.log((middle - reach) / (n - k + z2 / 2 + reach))
    return found


def _expit(odds: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-odds))
    return found


def _log_ways(counts: Counts, n: int) -> Floats:
    whole = math.lgamma(n + 1)
    return np.array([whole - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in counts.tolist()])


def _over_first(k: Floats, n: int, chance: Floats) -> Floats:
    """P[X >= k] / P[X = k], by the continued fraction of the incomplete beta function (Lentz's way)."""
    a, b = k, n - k + 1
    ahead: Floats = np.ones_like(k)
    behind = 1 / _off_zero(1 - (a + b) * chance / (a + 1))
    found = behind.copy()
    for m in range(1, TERMS):
        moved = np.zeros_like(k)
        for term in (
            m * (b - m) * chance / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * chance / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            behind = 1 / _off_zero(1 + term * behind)
            ahead = _off_zero(1 + term / ahead)
            found *= behind * ahead
            moved = np.maximum(moved, np.abs(behind * ahead - 1))
        if float(moved.max()) < STILL:
            break
    # At least the first term itself is in the tail, whatever rounding says.
    ratio: Floats = np.maximum(found * (1 - chance), 1.0)
    return ratio


def _off_zero(values: Floats) -> Floats:
    return np.where(np.abs(values) < TINY, TINY, values)
