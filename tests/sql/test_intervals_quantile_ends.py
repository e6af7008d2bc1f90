"""An interval of values for a quantile, from two more that are released: it holds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from lapwing.core.losses import Relation
from lapwing.core.order_statistics import Quantile
from support.slowly import slow
from support.streams import SeededStream

REPEATS = 3_000
LEVEL = Fraction(9, 10)  # so low that misses would be seen


@pytest.fixture(autouse=True)
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(29))


def quantile(fraction: Fraction, epsilon: str) -> Quantile:
    return Quantile(Fraction(epsilon), fraction, 0, 60, 2, Relation.ADD_REMOVE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "epsilon", "wanted"),
    [
        (60, "1", Fraction(1, 2)), (400, "0.2", Fraction(3, 4)), (5_000, "0.02", Fraction(1, 2)),
        slow(60, "1", Fraction(3, 4)), slow(400, "0.2", Fraction(1, 2)),
        slow(5_000, "0.02", Fraction(3, 4)),
    ],
)  # fmt: skip
def test_quantiles_a_band_of_ranks_away_hold_the_quantile_between_them(
    wanted: Fraction, size: int, epsilon: str
) -> None:
    """Each end misses with at most 0.1. Of 3,000 both together miss more than 0.2 and six standard
    deviations (0.0073 each) with probability below 1e-8."""
    values = np.sort(np.random.default_rng(5).gamma(2.0, 8.0, size).astype(np.int64).clip(0, 60))
    points, counts = np.unique(values, return_counts=True)
    wide = [_at(wanted, sign, size, epsilon) for sign in (-1, 1)]
    above = (1 - wanted) * size
    least = min(p for p in range(61) if int((values > p).sum()) <= above)
    most = max(p for p in range(61) if int((values >= p).sum()) >= above)
    misses = 0
    for _ in range(REPEATS):
        bottom, top = (one if isinstance(one, int) else one.sample_counts(points, counts) for one in wide)
        misses += not (bottom <= most and least <= top)
    assert misses / REPEATS <= 0.2 + 6 * math.sqrt(0.2 * 0.8 / REPEATS)


def _at(wanted: Fraction, sign: int, size: int, epsilon: str) -> Quantile | int:
    """The quantile whose own band of ranks ends at the wanted one; if there is none, the declared bound."""
    for step in range(1, 1001):
        fraction = wanted + sign * Fraction(step, 1000)
        if not 0 <= fraction <= 1:
            break
        found = quantile(fraction, epsilon)
        if abs(fraction - wanted) * size >= found.spread(LEVEL):
            return found
    return 0 if sign < 0 else 60
