"""Private order statistics on a public grid: quantiles, and the greatest or least value."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lapwing.core.exact import Number, exact, inside_unit, log_up, set_fields, whole
from lapwing.core.input_metric import Distance, InputMetric
from lapwing.core.losses import BoundedRange, Relation, checked_epsilon
from lapwing.core.noise import exponential_choice, uniform_int
from lapwing.core.observed import observed
from lapwing.core.spread import score_gap
from lapwing.core.values import LARGEST_SCORE, LARGEST_VALUE, whole_numbers
from lapwing.errors import BadParameter, BadValue

WholeNumbers = NDArray[np.int64]
_MOST_ROWS = 1 << 40


@dataclass(frozen=True, slots=True)
class RankRuns:
    """Runs of grid points that hold the same ranks: the start and size of each, and the rows around it.

    Every value is a run of its own; the gaps between the values are the others.
    """

    starts: WholeNumbers
    sizes: WholeNumbers
    below: WholeNumbers
    equal: WholeNumbers
    above: WholeNumbers

    @classmethod
    def of(cls, points: ArrayLike, counts: ArrayLike, first: int, last: int) -> RankRuns:
        """Return the runs of first..last, where counts[i] rows have the value points[i].

        Values outside first..last count at its ends.
        """
        values, rows = _counted(np.clip(whole_numbers(points), first, last), whole_numbers(counts))
        before = np.concatenate([[first], values + 1])
        gap_sizes = np.concatenate([values, [last + 1]]) - before
        under = np.concatenate([[0], np.cumsum(rows)])
        starts = np.concatenate([values, before])
        sizes = np.concatenate([np.ones_like(values), gap_sizes])
        below = np.concatenate([under[:-1], under])
        equal = np.concatenate([rows, np.zeros_like(under)])
        held = sizes > 0
        starts, sizes, below, equal = starts[held], sizes[held], below[held], equal[held]
        return cls(starts, sizes, below, equal, under[-1] - below - equal)

    def choose(self, scores: WholeNumbers, rate: Fraction) -> int:
        """Draw a grid point by the exponential choice: first its run, then uniformly inside it."""
        chosen = int(exponential_choice(scores, rate, counts=self.sizes)[0])
        start = int(self.starts[chosen])
        return int(uniform_int(start, start + int(self.sizes[chosen]), 1)[0])


def _counted(points: WholeNumbers, counts: WholeNumbers) -> tuple[WholeNumbers, WholeNumbers]:
    """Return the distinct points in order, with the number of rows of each."""
    if points.shape != counts.shape:
        raise BadValue("counts must be one whole number per point")
    if len(counts) and int(counts.min()) < 0:
        raise BadValue("counts must not be negative")
    # Each count is checked as well: a sum of huge counts could overflow.
    if len(counts) and (int(counts.max()) > _MOST_ROWS or float(counts.sum(dtype=float)) > _MOST_ROWS):
        raise BadValue("a rank is found among at most 2^40 rows")
    if np.any(points[1:] <= points[:-1]):
        order = np.argsort(points, kind="stable")
        points, counts = points[order], counts[order]
        begins = np.flatnonzero(np.concatenate([[True], points[1:] != points[:-1]]))
        points, counts = points[begins], np.add.reduceat(counts, begins)
    held = counts > 0
    return (points, counts) if held.all() else (points[held], counts[held])


class _RankChoice(ABC):
    """An exponential choice among the grid points first..last, scored by their distance from a rank."""

    __slots__ = ()
    epsilon: Fraction
    first: int
    last: int
    rows: int

    def _check_terms(self) -> None:
        """Set the common fields to checked numbers, or raise BadParameter."""
        set_fields(self, epsilon=checked_epsilon(self.epsilon), rows=whole(self.rows, "rows", at_least=1))
        for name, end in (("first", self.first), ("last", self.last)):
            set_fields(self, **{name: whole(end, name, at_least=-LARGEST_VALUE)})
        if not self.first < self.last <= LARGEST_VALUE:
            raise BadParameter("first", "must be below last, and both within 2^61 of 0")

    @property
    @abstractmethod
    def rate(self) -> Fraction:
        """The exponent of one rank (of the less steep side)."""

    @property
    def loss(self) -> BoundedRange:
        """The loss of one use."""
        return BoundedRange(self.epsilon)

    @property
    def metric(self) -> InputMetric:
        """The distance of data that the loss is about: changed rows."""
        return InputMetric(Distance.ROWS, Fraction(self.rows), getattr(self, "relation", None))

    def sample(self, values: ArrayLike) -> int:
        """Return a grid point. Values outside the grid count at its ends.

        If there are no values, the point is uniform: an error would reveal that there are none.
        """
        array = whole_numbers(values)
        return self.sample_counts(array, np.ones_like(array))

    @abstractmethod
    def sample_counts(self, points: ArrayLike, counts: ArrayLike) -> int:
        """Return a grid point for values that are already counted: counts[i] rows have points[i]."""

    def spread(self, confidence: Number) -> Fraction:
        """Return how far the answer's rank may be from the wanted one, with this confidence, for any data.

        If no grid point holds the wanted rank, the distance is from the nearest rank that one holds.
        """
        candidates = self.last - self.first + 1
        return score_gap(self.rate, candidates, confidence)


@dataclass(frozen=True, slots=True)
class Quantile(_RankChoice):
    """A whole number from first..last near the `fraction` quantile of whole values.

    Claim    pure loss ε (with the exponential mechanism's tighter curve) for units of at most `rows` rows.
    Because  y's score is minus the distance from the wanted rank (1 - f) n to the ranks that y holds,
             [#{x > y}, #{x >= y}]. Written with L below, E equal, G above, the distance is
             max(0, (1-f) L - f (E + G), f G - (1-f)(L + E)); a row added or removed moves each term
             by at most max(f, 1-f), a row replaced by at most 1. Then it is an exponential choice.
    Test     claims/test_quantile.py::test_every_answer_is_within_the_claimed_ratio

    Args:
        epsilon: The pure loss ε, in [1e-9, 1000].
        fraction: The quantile, in [0, 1] with at most six decimals; 0.5 is the median.
        first: The least grid point.
        last: The greatest grid point.
        rows: The contribution bound: the most rows of one unit, at least 1.
        relation: The neighbour relation.

    Raises:
        BadParameter: If a parameter is out of range.

    Example:
        >>> median = Quantile.for_epsilon(
        ...     1, fraction="0.5", first=0, last=9, relation=Relation.ADD_REMOVE, rows=1
        ... )
        >>> median.sample([7] * 1000)
        7
    """

    epsilon: Fraction
    fraction: Fraction
    first: int
    last: int
    rows: int
    relation: Relation

    def __post_init__(self) -> None:
        self._check_terms()
        set_fields(self, fraction=exact(self.fraction, "fraction"))
        if not isinstance(self.relation, Relation):
            raise BadParameter("relation", "must be a Relation")
        if not 0 <= self.fraction <= 1:
            raise BadParameter("fraction", "must lie in [0, 1]")
        if self.fraction.denominator > 10**6:
            raise BadParameter("fraction", "must have at most six decimals")

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, fraction: Number, first: int, last: int, relation: Relation, rows: int
    ) -> Quantile:
        """Return the mechanism that is ε-private for the quantile at `fraction` among first..last."""
        return cls(checked_epsilon(epsilon), exact(fraction, "fraction"), first, last, rows, relation)

    @property
    def sensitivity(self) -> Fraction:
        """The most that one unit moves a score, in ranks."""
        f = self.fraction
        return self.rows * (Fraction(1) if self.relation is Relation.REPLACE else max(f, 1 - f))

    @property
    def rate(self) -> Fraction:
        """The exponent of one rank: ε / 2Δ."""
        return self.epsilon / (2 * self.sensitivity)

    @observed
    def sample_counts(self, points: ArrayLike, counts: ArrayLike) -> int:
        """Return a grid point for values that are already counted: counts[i] rows have points[i]."""
        runs = RankRuns.of(points, counts, self.first, self.last)
        f, all_ = self.fraction.numerator, self.fraction.denominator
        g = all_ - f
        below, equal, above = runs.below, runs.equal, runs.above
        miss = np.maximum(g * below - f * (equal + above), f * above - g * (below + equal))
        return runs.choose(-np.maximum(miss, 0), self.rate / all_)


MISS = Fraction(1, 20)
STEEPNESS = 2  # a rank too far out costs as much score as this many ranks too far in


@lru_cache(maxsize=1024)
def _rank(factor: Fraction, odds: Fraction) -> int:
    """Return factor · ln(odds), rounded up."""
    return math.ceil(factor * log_up(odds))


@dataclass(frozen=True, slots=True)
class Extreme(_RankChoice):
    """A whole number from first..last that about `rank` values reach: the private MAX, or MIN.

    Claim    pure loss ε (with the exponential mechanism's tighter curve) for units of at most `rows`
             rows, whether a unit is added, removed or replaced.
    Because  y holds the ranks [G, G + E], G = #{x > y}, E = #{x = y} (for MIN the other way round). Its
             score is -max(0, s (m - G - E), G - m) with public m = `rank` and s = `steepness`. A row that
             is added or removed moves all scores by between -1 and s, or all by between -s and 1; a
             replaced row does so, too. K rows: a range of K (s + 1), which weights of e^(ε / K (s + 1))
             a score turn into ε.
    Test     claims/test_extreme.py::test_every_answer_is_within_the_claimed_ratio

    With m = (rows (s + 1) / s ε) ln(grid / miss), rounded up, points beyond all values together weigh at
    most `miss` times a point that holds rank m. So the answer is seldom one that no row reaches.

    Args:
        epsilon: The pure loss ε, in [1e-9, 1000].
        greatest: True for MAX, False for MIN.
        first: The least grid point.
        last: The greatest grid point.
        rows: The contribution bound: the most rows of one unit, at least 1.
        miss: The odds that the answer lies beyond all values, strictly between 0 and 1.
        steepness: The score of a rank too far out, beside 1 for a rank too far in; at least 1.

    Raises:
        BadParameter: If a parameter is out of range.

    Example:
        >>> found = Extreme.for_epsilon(1, greatest=True, first=0, last=9, rows=1).sample([7] * 1000)
        >>> 7 <= found <= 9  # beyond all values at most once in twenty times
        True
    """

    epsilon: Fraction
    greatest: bool
    first: int
    last: int
    rows: int
    miss: Fraction = MISS
    steepness: int = STEEPNESS

    def __post_init__(self) -> None:
        self._check_terms()
        set_fields(self, miss=inside_unit(self.miss, "miss"))
        set_fields(self, steepness=whole(self.steepness, "steepness", at_least=1))
        if not isinstance(self.greatest, bool):
            raise BadParameter("greatest", "must be true (MAX) or false (MIN)")
        if self.steepness * self.rank > LARGEST_SCORE:
            raise BadParameter("epsilon", "is so small that the rank would not fit 64-bit integers")

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, greatest: bool, first: int, last: int, rows: int, miss: Number = MISS
    ) -> Extreme:
        """Return the mechanism that is ε-private for the greatest (or least) value among first..last."""
        return cls(checked_epsilon(epsilon), greatest, first, last, rows, exact(miss, "miss"))

    def __repr__(self) -> str:
        """Return the terms, as stored digests have them. At first there was no steepness: it was 1."""
        names = ["epsilon", "greatest", "first", "last", "rows", "miss", "steepness"]
        shown = names[:-1] if self.steepness == 1 else names
        return f"Extreme({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def sensitivity(self) -> int:
        """The most that one unit moves a rank."""
        return self.rows

    @property
    def rate(self) -> Fraction:
        """The exponent of a rank too far in: ε over the range by which one unit moves scores."""
        return self.epsilon / (self.rows * (self.steepness + 1))

    @property
    def rank(self) -> int:
        """The wanted rank m: about m rows reach the answer, if there are that many."""
        return _rank(1 / (self.steepness * self.rate), (self.last - self.first + 1) / self.miss)

    @observed
    def sample_counts(self, points: ArrayLike, counts: ArrayLike) -> int:
        """Return a grid point for values that are already counted: counts[i] rows have points[i]."""
        runs = RankRuns.of(points, counts, self.first, self.last)
        beyond = runs.above if self.greatest else runs.below
        rank = self.rank
        miss = np.maximum(beyond - rank, self.steepness * (rank - beyond - runs.equal))
        return runs.choose(-np.maximum(miss, 0), self.rate)
