"""How far one unit can move the textbook statistics.

Claim    data sets one neighbouring step apart have statistics within `l1` in L1 and √l2_squared in L2.
Because  each function says so. `rows` is the most rows of one unit: someone may file five complaints.
Test     tests/claims/test_sensitivities.py tries all neighbours of small data sets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from lapwing.core.exact import Number, exact, positive, sqrt_up, whole
from lapwing.core.losses import Relation
from lapwing.errors import BadParameter


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The most that a statistic moves: exactly, or rounded up.

    `rounded` counts the coordinates that lie between the steps of a grid even if all values are on it
    (a mean: 1), so that they are rounded after aggregation.
    """

    l1: Fraction
    l2_squared: Fraction
    rounded: int = 0

    def in_steps(self, step: Number = 1) -> Sensitivity:
        """The same in whole steps of a grid, rounded up.

        Each rounded coordinate may move by one step more: 0.5 and 1.5 are 1 apart, but halves
        rounded to even give 0 and 2.
        """
        width, more = positive(step, "step"), whole(self.rounded, "rounded")
        l1 = Fraction(math.ceil(self.l1 / width) + more)
        l2 = sqrt_up(self.l2_squared / width**2) + sqrt_up(more)
        return Sensitivity(l1, min(Fraction(math.ceil(l2**2)), l1**2) if more else l2**2)


def _bounds(low: Number, high: Number) -> tuple[Fraction, Fraction]:
    bottom, top = exact(low, "low"), exact(high, "high")
    if bottom >= top:
        raise BadParameter("low", "must be below high")
    return bottom, top


def _replaces(relation: Relation) -> bool:
    if not isinstance(relation, Relation):
        raise BadParameter("relation", "must be a Relation")
    return relation is Relation.REPLACE


def _scalar(l1: Fraction, *, rounded: int = 0) -> Sensitivity:
    return Sensitivity(l1, l1 * l1, rounded)


def _known_size(n: int, rows: int) -> tuple[int, int]:
    size, own = whole(n, "n", at_least=1), whole(rows, "rows", at_least=1)
    if own > size:
        raise BadParameter("rows", "must be at most n")
    return size, own


def count(*, rows: int) -> Sensitivity:
    """How many rows meet a condition: a unit's rows, all of them, may start or stop meeting it."""
    return _scalar(Fraction(whole(rows, "rows", at_least=1)))


def total(*, low: Number, high: Number, relation: Relation, rows: int) -> Sensitivity:
    """A sum of values in [low, high].

    Add or remove: rows · max(|low|, |high|). Replace: also rows · (high - low), if that is more; fewer
    rows may come than go, so a low above 0 helps nothing. (With n rows, n public, see `mean`.)
    """
    bottom, top = _bounds(low, high)
    reach = max(abs(bottom), abs(top), top - bottom if _replaces(relation) else abs(top))
    return _scalar(whole(rows, "rows", at_least=1) * reach)


def proportion(*, n: int, rows: int) -> Sensitivity:
    """The share of n rows that meet a condition, n public: rows / n."""
    return mean(low=0, high=1, n=n, rows=rows)


def mean(*, low: Number, high: Number, n: int, rows: int) -> Sensitivity:
    """The mean of n values in [low, high], n public, replace: rows · (high - low) / n.

    Where n is private (add or remove), release a noisy total and a noisy count instead.
    """
    bottom, top = _bounds(low, high)
    size, own = _known_size(n, rows)
    return _scalar(own * (top - bottom) / size, rounded=1)


def variance(*, low: Number, high: Number, n: int, rows: int) -> Sensitivity:
    """The (population) variance of n values in [low, high], n public, replace.

    It is Σ (x_i - x_j)² / 2n² over ordered pairs; with r replaced rows 2r(n-r) + r(r-1) pairs change,
    each by at most (high - low)². For one row: (high - low)² (n - 1) / n².
    """
    bottom, top = _bounds(low, high)
    size, own = _known_size(n, rows)
    pairs = 2 * own * (size - own) + own * (own - 1)
    return _scalar((top - bottom) ** 2 * Fraction(pairs, 2 * size * size), rounded=1)


def deviation(*, low: Number, high: Number, n: int, rows: int) -> Sensitivity:
    """The standard deviation: |√a - √b| <= √|a - b|, so the root of the variance's: about 1/√n."""
    return _scalar(sqrt_up(variance(low=low, high=high, n=n, rows=rows).l1), rounded=1)


def histogram(*, relation: Relation, rows: int) -> Sensitivity:
    """Counts in disjoint bins, however many: all of a unit's rows may lie in one bin.

    Add or remove: L1 = L2 = rows. Replace: rows leave one bin and enter another.
    """
    own = Fraction(whole(rows, "rows", at_least=1))
    bins = 2 if _replaces(relation) else 1
    return Sensitivity(bins * own, bins * own * own)


def vector(bounds: Sequence[tuple[Number, Number]], *, relation: Relation, rows: int) -> Sensitivity:
    """Several sums at once, the i-th of values in bounds[i], all over the same rows."""
    if not bounds:
        raise BadParameter("bounds", "must name at least one coordinate")
    reaches = [total(low=a, high=b, relation=relation, rows=rows).l1 for a, b in bounds]
    return Sensitivity(sum(reaches, Fraction(0)), sum((r * r for r in reaches), Fraction(0)))
