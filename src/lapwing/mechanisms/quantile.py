"""A private quantile on a public grid."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lapwing.errors import BadParameter, BadValue
from lapwing.exact import Number, exact, settle, whole
from lapwing.mechanisms.spread import score_gap
from lapwing.mechanisms.values import LARGEST_VALUE, whole_numbers
from lapwing.noise import exponential_choice, uniform_int
from lapwing.privacy import BoundedRange, Relation
from lapwing.privacy.loss import checked_epsilon

_MOST_ROWS = 1 << 40


@dataclass(frozen=True, slots=True)
class Quantile:
    """A whole number from first..last near the `fraction` quantile of whole values.

    Claim    pure loss ε (with the exponential mechanism's tighter curve) for units of at most `rows` rows.
    Because  y's score is minus the distance from the wanted rank (1 - f) n to the ranks that y holds,
             [#{x > y}, #{x >= y}]. Written with L below, E equal, G above, the distance is
             max(0, (1-f) L - f (E + G), f G - (1-f)(L + E)); a row added or removed moves each term
             by at most max(f, 1-f), a row replaced by at most 1. Then it is an exponential choice.
    Test     claims/test_quantile.py::test_every_answer_is_within_the_claimed_ratio
    """

    epsilon: Fraction
    fraction: Fraction
    first: int
    last: int
    rows: int
    relation: Relation

    def __post_init__(self) -> None:
        settle(self, epsilon=checked_epsilon(self.epsilon), fraction=exact(self.fraction, "fraction"))
        settle(self, rows=whole(self.rows, "rows", at_least=1))
        for name, end in (("first", self.first), ("last", self.last)):
            settle(self, **{name: whole(end, name, at_least=-LARGEST_VALUE)})
        if not isinstance(self.relation, Relation):
            raise BadParameter("relation", "must be a Relation")
        if not 0 <= self.fraction <= 1:
            raise BadParameter("fraction", "must lie in [0, 1]")
        if self.fraction.denominator > 10**6:
            raise BadParameter("fraction", "must have at most six decimals")
        if not self.first < self.last <= LARGEST_VALUE:
            raise BadParameter("first", "must be below last, and both within 2^61 of 0")

    @classmethod
    def for_epsilon(
        cls,
        epsilon: Number,
        *,
        fraction: Number,
        first: int,
        last: int,
        relation: Relation,
        rows: int,
    ) -> Quantile:
        """ε-private for the quantile at `fraction` (0.5 is the median) among first..last."""
        share = exact(fraction, "fraction")
        return cls(checked_epsilon(epsilon), share, first, last, rows, relation)

    @property
    def sensitivity(self) -> Fraction:
        """How far one unit moves a score, in ranks."""
        f = self.fraction
        return self.rows * (Fraction(1) if self.relation is Relation.REPLACE else max(f, 1 - f))

    @property
    def loss(self) -> BoundedRange:
        """What one use reveals."""
        return BoundedRange(self.epsilon)

    def sample(self, values: ArrayLike) -> int:
        """A grid point. Values outside the grid count at its ends.

        No values at all give a uniform point: an error would tell that there are none.
        """
        array = whole_numbers(values)
        if array.size > _MOST_ROWS:
            raise BadValue("a quantile takes at most 2^40 rows")
        starts, sizes, scores = self._segments(np.clip(array, self.first, self.last))
        rate = self.epsilon / (2 * self.sensitivity * self.fraction.denominator)
        chosen = int(exponential_choice(scores, rate, counts=sizes)[0])
        start = int(starts[chosen])
        return int(uniform_int(start, start + int(sizes[chosen]), 1)[0])

    def _segments(
        self, values: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Runs of grid points with equal score: their starts, sizes, and scores times denominator."""
        points, equal = np.unique(values, return_counts=True)
        # Every value is a run of its own; the gaps around the values are the others.
        before = np.concatenate([[self.first], points + 1])
        gap_sizes = np.concatenate([points, [self.last + 1]]) - before
        below = np.concatenate([[0], np.cumsum(equal)])
        starts = np.concatenate([points, before])
        sizes = np.concatenate([np.ones_like(points), gap_sizes])
        low = np.concatenate([below[:-1], below])
        same = np.concatenate([equal, np.zeros(len(below), dtype=np.int64)])
        high = len(values) - low - same
        f, all_ = self.fraction.numerator, self.fraction.denominator
        g = all_ - f
        miss = np.maximum(g * low - f * (same + high), f * high - g * (low + same))
        held = sizes > 0
        return starts[held], sizes[held], -np.maximum(miss, 0)[held]

    def spread(self, confidence: Number) -> Fraction:
        """With this confidence the answer's rank is at most so far from the wanted one (any data)."""
        candidates = self.last - self.first + 1
        return score_gap(self.epsilon / (2 * self.sensitivity), candidates, confidence)
