"""A private extreme on a public grid: a value that about so many rows reach."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from lapwing.errors import BadParameter
from lapwing.exact import Number, exact, log_up, settle, whole
from lapwing.mechanisms.quantile import Runs
from lapwing.mechanisms.spread import score_gap
from lapwing.mechanisms.values import LARGEST_SCORE, LARGEST_VALUE, whole_numbers
from lapwing.privacy import BoundedRange
from lapwing.privacy.loss import checked_epsilon

MISS = Fraction(1, 20)


@lru_cache(maxsize=1024)
def _rank(factor: Fraction, odds: Fraction) -> int:
    """factor · ln(odds), rounded up."""
    return math.ceil(factor * log_up(odds))


@dataclass(frozen=True, slots=True)
class Extreme:
    """A whole number from first..last that about `rank` values reach: the private MAX, or MIN.

    Claim    pure loss ε (with the exponential mechanism's tighter curve) for units of at most `rows`
             rows, whether a unit is added, removed or replaced.
    Because  y's score is minus the distance from m = `rank` to the ranks that y holds,
             [#{x > y}, #{x >= y}] (for MIN the other way round). m is public, and a row that is added,
             removed or replaced moves either end by at most 1. Then it is an exponential choice.
    Test     claims/test_extreme.py::test_every_answer_is_within_the_claimed_ratio

    With m = (2 rows / ε) ln(grid / miss), rounded up, points beyond all values together weigh at most
    `miss` times a point that holds rank m: the answer is seldom one that no row reaches.
    """

    epsilon: Fraction
    greatest: bool
    first: int
    last: int
    rows: int
    miss: Fraction = MISS

    def __post_init__(self) -> None:
        settle(self, epsilon=checked_epsilon(self.epsilon), miss=exact(self.miss, "miss"))
        settle(self, rows=whole(self.rows, "rows", at_least=1))
        for name, end in (("first", self.first), ("last", self.last)):
            settle(self, **{name: whole(end, name, at_least=-LARGEST_VALUE)})
        if not isinstance(self.greatest, bool):
            raise BadParameter("greatest", "must be true (MAX) or false (MIN)")
        if not 0 < self.miss < 1:
            raise BadParameter("miss", "must lie strictly between 0 and 1")
        if not self.first < self.last <= LARGEST_VALUE:
            raise BadParameter("first", "must be below last, and both within 2^61 of 0")
        if self.rank > LARGEST_SCORE:
            raise BadParameter("epsilon", "is so small that the rank would not fit 64-bit integers")

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, greatest: bool, first: int, last: int, rows: int, miss: Number = MISS
    ) -> Extreme:
        """ε-private for the greatest (or least) value among first..last."""
        return cls(checked_epsilon(epsilon), greatest, first, last, rows, exact(miss, "miss"))

    @property
    def sensitivity(self) -> int:
        """How far one unit moves a score, in ranks."""
        return self.rows

    @property
    def rank(self) -> int:
        """m: about so many rows reach the answer, if there are that many."""
        return _rank(2 * self.rows / self.epsilon, (self.last - self.first + 1) / self.miss)

    @property
    def loss(self) -> BoundedRange:
        """What one use reveals."""
        return BoundedRange(self.epsilon)

    def sample(self, values: ArrayLike) -> int:
        """A grid point. Values outside the grid count at its ends; no values give a uniform point."""
        array = whole_numbers(values)
        return self.sample_counts(array, np.ones_like(array))

    def sample_counts(self, points: ArrayLike, counts: ArrayLike) -> int:
        """The same for values that are already counted: each of `points` stands in so many rows."""
        runs = Runs.of(points, counts, self.first, self.last)
        beyond = runs.above if self.greatest else runs.below
        rank = self.rank
        miss = np.maximum(beyond - rank, rank - beyond - runs.equal)
        return runs.choose(-np.maximum(miss, 0), self.epsilon / (2 * self.sensitivity))

    def spread(self, confidence: Number) -> Fraction:
        """With this confidence the answer's rank is at most so far from `rank`, or from as near as
        any grid point comes (any data)."""
        candidates = self.last - self.first + 1
        return score_gap(self.epsilon / (2 * self.sensitivity), candidates, confidence)
