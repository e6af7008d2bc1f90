"""Sensitivities of the textbook statistics: how far one privacy unit can move them.

Claim    the statistics of neighbouring data sets are within `l1` in L1 and √l2_squared in L2.
Because  of the reason in each function. `rows` is the contribution bound, the most rows of one unit: a
         person may file five complaints.
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
    """The most that one unit can move a statistic: exactly, or rounded up.

    Args:
        l1: The greatest L1 distance of the statistics of neighbouring data sets.
        l2_squared: The greatest squared L2 distance.
        rounded: The number of coordinates that can lie between the steps of a grid even if all values are
            on the grid (for a mean: 1), so that they are rounded after aggregation.

    Raises:
        BadParameter: From `in_steps`, if the step is not above 0.

    Example:
        >>> from lapwing.core import Relation
        >>> from lapwing.mechanisms import sensitivity
        >>> sensitivity.total(low=0, high=100, relation=Relation.ADD_REMOVE, rows=2).in_steps(5).l1
        Fraction(40, 1)
    """

    l1: Fraction
    l2_squared: Fraction
    rounded: int = 0

    def in_steps(self, step: Number = 1) -> Sensitivity:
        """Return the same sensitivity in whole steps of a grid, rounded up.

        Each rounded coordinate may move by one step more: 0.5 and 1.5 differ by 1, but rounding halves
        to even gives 0 and 2.
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
    size, of_unit = whole(n, "n", at_least=1), whole(rows, "rows", at_least=1)
    if of_unit > size:
        raise BadParameter("rows", "must be at most n")
    return size, of_unit


def count(*, rows: int) -> Sensitivity:
    """Return the sensitivity of the number of rows that meet a condition: `rows`."""
    return _scalar(Fraction(whole(rows, "rows", at_least=1)))


def total(*, low: Number, high: Number, relation: Relation, rows: int) -> Sensitivity:
    """Return the sensitivity of a sum of values in [low, high].

    Add or remove: rows · max(|low|, |high|). Replace: also rows · (high - low), if that is more. A unit may
    be replaced by one with fewer rows, so a `low` above 0 does not help. (If n is public, see `mean`.)
    """
    bottom, top = _bounds(low, high)
    reach = max(abs(bottom), abs(top), top - bottom if _replaces(relation) else abs(top))
    return _scalar(whole(rows, "rows", at_least=1) * reach)


def proportion(*, n: int, rows: int) -> Sensitivity:
    """Return the sensitivity of the share of n rows that meet a condition, n public: rows / n."""
    return mean(low=0, high=1, n=n, rows=rows)


def mean(*, low: Number, high: Number, n: int, rows: int) -> Sensitivity:
    """Return the sensitivity of the mean of n values in [low, high], n public: rows · (high - low) / n.

    Neighbours replace a unit. If n is private (add or remove), release a noisy total and a noisy count
    instead.
    """
    bottom, top = _bounds(low, high)
    size, of_unit = _known_size(n, rows)
    return _scalar(of_unit * (top - bottom) / size, rounded=1)


def variance(*, low: Number, high: Number, n: int, rows: int) -> Sensitivity:
    """Return the sensitivity of the (population) variance of n values in [low, high], n public.

    Neighbours replace a unit. The variance is Σ (x_i - x_j)² / 2n² over ordered pairs. With r replaced rows
    2r(n-r) + r(r-1) pairs change, each by at most (high - low)². For one row: (high - low)² (n - 1) / n².
    """
    bottom, top = _bounds(low, high)
    size, of_unit = _known_size(n, rows)
    pairs = 2 * of_unit * (size - of_unit) + of_unit * (of_unit - 1)
    return _scalar((top - bottom) ** 2 * Fraction(pairs, 2 * size * size), rounded=1)


def deviation(*, low: Number, high: Number, n: int, rows: int) -> Sensitivity:
    """Return the sensitivity of the standard deviation: the root of the variance's, about 1/√n.

    Because |√a - √b| <= √|a - b|.
    """
    return _scalar(sqrt_up(variance(low=low, high=high, n=n, rows=rows).l1), rounded=1)


def histogram(*, relation: Relation, rows: int) -> Sensitivity:
    """Return the sensitivity of counts in any number of disjoint bins.

    All rows of a unit may lie in one bin. Add or remove: L1 = L2 = rows. Replace: rows leave one bin and
    enter another.
    """
    of_unit = Fraction(whole(rows, "rows", at_least=1))
    bins = 2 if _replaces(relation) else 1
    return Sensitivity(bins * of_unit, bins * of_unit * of_unit)


def vector(bounds: Sequence[tuple[Number, Number]], *, relation: Relation, rows: int) -> Sensitivity:
    """Return the sensitivity of several sums over the same rows, the i-th of values in bounds[i]."""
    if not bounds:
        raise BadParameter("bounds", "must name at least one coordinate")
    reaches = [total(low=a, high=b, relation=relation, rows=rows).l1 for a, b in bounds]
    return Sensitivity(sum(reaches, Fraction(0)), sum((r * r for r in reaches), Fraction(0)))
