"""Intervals that hold for few reports, too.

For a share, the number of supporting reports is a sum of independent coins with known chances. So its mean
and variance are known for every true share. Up to 95 % the interval has all shares that a test does not
reject, with half a count of tolerance (Wilson's method). Above, where the normal law is wrong, it has the
shares that exact tails do not reject. For means and ratios the test statistic is the mean of scores, whose
variance is estimated, and a ratio's interval is Fieller's.

Claim    above 95 %, and for several intervals together, those for shares hold with at least the confidence.
         At 95 % they hold with at least 94.5 % on the grid of the test.
Because  docs/arguments/survey.md
Test     tests/survey/estimating/test_intervals.py::test_exact_intervals_hold_with_the_confidence_they_state

Binomial tails and their inverse are in floats, with the rounding on the safe side.

Claim    where the count of n coins is K, `least_chance(K, n, risk)` is at most the chance θ at which
         P[Binomial(n, θ) >= K] = risk, and near it. So θ is below it with a probability of at most `risk`.
Because  in the logarithm of the odds, ln P[X >= K] rises and is concave: its slope is E[X | X >= K] - E[X],
         and that slope's own is Var[X | X >= K] - Var[X] <= 0, as cutting off a log-concave law leaves less
         variance. So Newton's steps end below the root, wherever they begin, and go up to it.
Test     survey/estimating/test_intervals_binomial.py::test_the_least_chance_is_that_of_clopper_and_pearson
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lapwing.core.exact import Number, least_where
from lapwing.core.spread import checked_confidence
from lapwing.survey.randomizers import FrequencyOracle

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
NEWTON_STEPS = 60
# Terms of a continued fraction: far from the mean some tens are enough.
FRACTION_TERMS, FRACTION_STILL = 100_000, 1e-13
TINY = 1e-300


def least_chance(counts: Counts, n: int, risk: float) -> Floats:
    """Return the lower end of Clopper and Pearson's interval: 0 where the count is 0."""
    chances = np.zeros(counts.shape)
    kinds = np.unique(counts[counts > 0])
    if not len(kinds):
        return chances
    ways = _log_ways(kinds, n)
    # Sums of numbers of this size are rounded; a smaller risk moves the end to the safe side.
    spare = 1e-12 + 1e-15 * (math.lgamma(n + 1.0) + n)
    target = math.log(risk) - spare
    k = kinds.astype(np.float64)
    odds = _near(k, n, risk)
    for _ in range(NEWTON_STEPS):
        chance = _expit(odds)
        over = _over_first(k, n, chance)
        tail = ways + k * np.log(chance) + (n - k) * np.log1p(-chance) + np.log(over)
        odds = odds + (target - tail) * over / (k * (1 - chance))
        if float(np.abs(target - tail).max()) < spare / 2:
            break
    positive = counts > 0
    chances[positive] = _expit(odds)[np.searchsorted(kinds, counts[positive])]
    return chances


def upper_tail(n: int, p: float, first: int) -> float:
    """Return P[Binomial(n, p) >= first]."""
    if first > n:
        return 0.0
    if first <= 0:
        return 1.0
    k, chance = np.array([float(first)]), np.array([p])
    log = _log_ways(np.array([first]), n) + k * math.log(p) + (n - k) * math.log1p(-p)
    return min(float(np.exp(log + np.log(_over_first(k, n, chance)))[0]), 1.0)


def least_count(n: int, p: float, risk: float) -> int:
    """Return the least c with P[Binomial(n, p) >= c] <= risk."""
    return least_where(lambda count: upper_tail(n, p, count) <= risk, math.floor(n * p), n + 1)


def _near(k: Floats, n: int, risk: float) -> Floats:
    """Return the start of Newton's method: the odds at the lower end of Wilson's interval."""
    z2 = NormalDist().inv_cdf(max(risk, TINY)) ** 2
    middle, reach = k + z2 / 2, np.sqrt(z2 * (k * (1 - k / n) + z2 / 4))
    return np.log((middle - reach) / (n - k + z2 / 2 + reach))


def _expit(odds: Floats) -> Floats:
    return 1 / (1 + np.exp(-odds))


def _log_ways(counts: Counts, n: int) -> Floats:
    whole = math.lgamma(n + 1)
    return np.array([whole - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in counts.tolist()])


def _over_first(k: Floats, n: int, chance: Floats) -> Floats:
    """Return P[X >= k] / P[X = k], by the incomplete beta function's continued fraction (Lentz)."""
    a, b = k, n - k + 1
    ahead: Floats = np.ones_like(k)
    behind = 1 / _off_zero(1 - (a + b) * chance / (a + 1))
    ratio = behind.copy()
    for m in range(1, FRACTION_TERMS):
        moved = np.zeros_like(k)
        for term in (
            m * (b - m) * chance / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * chance / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            behind = 1 / _off_zero(1 + term * behind)
            ahead = _off_zero(1 + term / ahead)
            ratio *= behind * ahead
            moved = np.maximum(moved, np.abs(behind * ahead - 1))
        if float(moved.max()) < FRACTION_STILL:
            break
    # At least the first term itself is in the tail, whatever rounding says.
    return np.maximum(ratio * (1 - chance), 1.0)


def _off_zero(values: Floats) -> Floats:
    return np.where(np.abs(values) < TINY, TINY, values)


_HALF = 0.5
_ROUNDING = 1e-9
_CANCELLED = 1e-14  # a sum of terms that is smaller than this part of them is their rounding
_SCORES_UP_TO = Fraction(95, 100)
_TILTS = np.geomspace(1e-6, 50.0, 400)  # of Chernoff's bound: each is valid, and some are near the best


@dataclass(frozen=True, slots=True)
class ConfidenceLevel:
    """A confidence, and its number of standard errors. `together`: several intervals hold at once."""

    confidence: Fraction
    together: bool = False

    @classmethod
    def of(cls, confidence: Number) -> ConfidenceLevel:
        """Return the level of a confidence strictly between 0 and 1."""
        return cls(checked_confidence(confidence))

    @property
    def z(self) -> float:
        """The standard errors of the normal law, both sides."""
        return -NormalDist().inv_cdf(float((1 - self.confidence) / 2))

    @property
    def exact(self) -> bool:
        """True if shares have intervals from exact tails."""
        return self.together or self.confidence > _SCORES_UP_TO

    @property
    def risk(self) -> float:
        """The risk of missing on one side. Exact tails need at most 1/4: docs/arguments/survey.md."""
        return float(min((1 - self.confidence) / 2, Fraction(1, 4)))

    def t(self, n: int) -> float:
        """Return nearly Student's t with n - 1 degrees: the variance is estimated from n reports."""
        z, free = self.z, max(n - 1, 1)
        return z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)

    def split(self, parts: int) -> ConfidenceLevel:
        """Return the level of each of `parts` intervals that are to hold together (Bonferroni)."""
        return ConfidenceLevel(1 - (1 - self.confidence) / parts, together=True)


@dataclass(frozen=True, slots=True)
class SupportChance:
    """The chance that a report supports an option: if its sender holds it, and if not."""

    inside: float
    outside: float

    @property
    def gap(self) -> float:
        """The difference of the two chances."""
        return self.inside - self.outside

    @property
    def scores(self) -> tuple[float, float]:
        """The unbiased scores of a report that does not support the option, and of one that does."""
        return -self.outside / self.gap, (1 - self.outside) / self.gap

    def share(self, counts: ArrayLike, n: int) -> Floats:
        """Return the unbiased share. With two coins: 2·mean - 1/2."""
        return (np.asarray(counts, dtype=np.float64) / n - self.outside) / self.gap

    def noise_variance(self, share: ArrayLike, n: int, *, total: int | None = None) -> Floats:
        """Return the variance of the share among all `total` respondents; None: among these n."""
        f = np.clip(np.asarray(share, dtype=np.float64), 0.0, 1.0)
        p, q = self.inside, self.outside
        coins = (f * p * (1 - p) + (1 - f) * q * (1 - q)) / (n * self.gap**2)
        return coins + _undrawn(n, total) * f * (1 - f) / n

    def variance(self, share: ArrayLike, n: int) -> Floats:
        """Return the variance of the share in the population from which n respondents were drawn."""
        f = np.clip(np.asarray(share, dtype=np.float64), 0.0, 1.0)
        seen = self.outside + f * self.gap
        return seen * (1 - seen) / (n * self.gap**2)

    def for_respondents(
        self, counts: ArrayLike, n: int, level: ConfidenceLevel, *, total: int | None = None
    ) -> tuple[Floats, Floats]:
        """Return intervals of the share among all `total` respondents, of whom n were drawn; None: these n.

        With m of n who hold it, the count has mean n q + m (p - q) and variance m p(1-p) + (n - m) q(1-q).
        Where n were drawn from more, m is hypergeometric. Exact ones are never wider than the population's.
        """
        p, q, more = self.inside, self.outside, _undrawn(n, total)
        if level.exact:
            wide = self._clopper(counts, n, level)
            if more:
                return wide
            near = self._chernoff(counts, n, level)
            return np.maximum(wide[0], near[0]), np.minimum(wide[1], near[1])
        slope = p * (1 - p) - q * (1 - q) + more * self.gap**2
        return self._solved(counts, n, level, linear=slope, square=-more * self.gap**2)

    def for_population(self, counts: ArrayLike, n: int, level: ConfidenceLevel) -> tuple[Floats, Floats]:
        """Return intervals of the share in the population: the count has chance q + share (p - q)."""
        if level.exact:
            return self._clopper(counts, n, level)
        slope = self.gap * (1 - 2 * self.outside)
        return self._solved(counts, n, level, linear=slope, square=-(self.gap**2))

    def _clopper(self, counts: ArrayLike, n: int, level: ConfidenceLevel) -> tuple[Floats, Floats]:
        """Return all shares that neither tail of the binomial law rejects (Clopper and Pearson).

        They hold for respondents, too: coins with the same mean have no heavier tails, beyond one count
        from the mean. Nearer than that only 1 and n - 1 could be rejected, and they never are.
        """
        seen = np.asarray(counts, dtype=np.int64)
        least, most = least_chance(seen, n, level.risk), 1 - least_chance(n - seen, n, level.risk)
        low = np.where(seen <= 1, 0.0, (least - self.outside) / self.gap)
        high = np.where(seen >= n - 1, 1.0, (most - self.outside) / self.gap)
        return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)

    def _chernoff(self, counts: ArrayLike, n: int, level: ConfidenceLevel) -> tuple[Floats, Floats]:
        """Return all shares f that Chernoff's bound of either tail does not reject, for these respondents.

        With a and b the logarithms of E e^(t coin) for holders and for others, P[count >= K] is at most
        e^(n f a + n (1 - f) b - t K): a bound of f for each t. For negative t it is the other tail.
        """
        seen = np.asarray(counts, dtype=np.float64) / n
        spare = -math.log(level.risk) / n
        low, high = np.zeros(seen.shape), np.ones(seen.shape)
        for tilt in _TILTS.tolist():
            a, b = (math.log1p(chance * math.expm1(tilt)) for chance in (self.inside, self.outside))
            low = np.maximum(low, (tilt * seen - b - spare) / (a - b))
            a, b = (math.log1p(chance * math.expm1(-tilt)) for chance in (self.inside, self.outside))
            high = np.minimum(high, (tilt * seen + b + spare) / (b - a))
        return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)

    def _solved(
        self, counts: ArrayLike, n: int, level: ConfidenceLevel, *, linear: float, square: float
    ) -> tuple[Floats, Floats]:
        """Return all f in [0, 1] with |count/n - q - f g| <= z √(v(f)/n) + 1/2n.

        Here v(f) = q(1-q) + linear f + square f².
        """
        off = np.asarray(counts, dtype=np.float64) / n - self.outside
        base, z2 = self.outside * (1 - self.outside), level.z**2 / n
        ends = []
        for side, edge in ((-1.0, 0.0), (1.0, 1.0)):
            shifted = off + side * _HALF / n
            at_edge = math.sqrt(z2 * max(base + linear * edge + square * edge, 0.0))
            beyond = side * (shifted - edge * self.gap) + at_edge >= 0  # the end itself is not rejected
            a = self.gap**2 - z2 * square  # (shifted - f g)² = z² v(f) / n: the outer root
            b = -2 * shifted * self.gap - z2 * linear
            c = shifted**2 - z2 * base
            root = np.sqrt(np.maximum(b * b - 4 * a * c, 0.0))
            ends.append(np.where(beyond, edge, np.clip((-b + side * root) / (2 * a), 0.0, 1.0)))
        return ends[0], ends[1]


def _undrawn(n: int, total: int | None) -> float:
    """Return the part of the drawing's variance that is left if n of `total` are drawn."""
    return 0.0 if total is None or total <= n else (total - n) / (total - 1)


def support_chance_of(oracle: FrequencyOracle) -> SupportChance:
    """Return the chance that a report supports an option under this randomizer."""
    return SupportChance(float(oracle.inside), float(oracle.outside))


def without_rounding(difference: float, terms: float) -> float:
    """Return a difference of sums of this size; 0 where it is only their rounding.

    That depends on the processor: the same reports must give the same error everywhere.
    """
    return difference if abs(difference) > _CANCELLED * terms else 0.0


@dataclass(frozen=True, slots=True)
class RatioMoments:
    """A ratio's top and bottom: means over reports, and the variances and covariance of the means."""

    top: float
    bottom: float
    var_top: float
    var_bottom: float
    cov: float

    def within(self, whole: RatioMoments) -> bool:
        """Return whether these variances are possible, and none is above the whole's (up to rounding)."""
        top, bottom = whole.var_top * (1 + _ROUNDING), whole.var_bottom * (1 + _ROUNDING)
        spare = _ROUNDING * (whole.var_top + whole.var_bottom)
        return (
            0 < self.var_top <= top
            and -spare <= self.var_bottom <= bottom + spare
            and abs(self.cov) <= math.sqrt(self.var_top * max(self.var_bottom, 0.0)) + spare
        )

    def mixed(self, whole: RatioMoments, part: float) -> RatioMoments:
        """Return the variances, moved by this part towards the whole's."""
        pairs = ((self.var_top, whole.var_top), (self.var_bottom, whole.var_bottom), (self.cov, whole.cov))
        return RatioMoments(self.top, self.bottom, *(mine + part * (all_ - mine) for mine, all_ in pairs))

    def wider(self, top: float, bottom: float) -> RatioMoments:
        """Return the moments with these variances added."""
        return RatioMoments(self.top, self.bottom, self.var_top + top, self.var_bottom + bottom, self.cov)

    @property
    def value(self) -> float:
        """The ratio; NaN where the bottom is not above 0."""
        return self.top / self.bottom if self.bottom > 0 else math.nan

    def error(self) -> float:
        """Return the ratio's standard error, to first order; NaN where the bottom is not above 0."""
        if not self.bottom > 0:
            return math.nan
        r = self.value
        terms = self.var_top + abs(2 * r * self.cov) + r * r * self.var_bottom
        return math.sqrt(max(without_rounding(self._spread(r), terms), 0.0)) / self.bottom

    def _spread(self, r: float) -> float:
        return self.var_top - 2 * r * self.cov + r * r * self.var_bottom

    def interval(self, z: float, low: float, high: float, spare: float = 0.0) -> tuple[float, float]:
        """Return Fieller's interval: all r in [low, high] with (top - r bottom)² <= z² Var(top - r bottom).

        Both ends move outwards as far as `spare` at the top moves the ratio. Where the bottom may be 0 the
        interval may be all of [low, high]: then nothing is known.
        """
        a = self.bottom**2 - z * z * self.var_bottom
        b = -2 * (self.top * self.bottom - z * z * self.cov)
        c = self.top**2 - z * z * self.var_top
        disc = b * b - 4 * a * c
        if a <= 0 or self.bottom <= 0:  # the bottom is not told apart from 0
            return low, high
        if disc < 0:  # rounding only: the ratio itself always lies in the set
            disc = 0.0
        root = math.sqrt(disc)
        more = spare / self.bottom
        ends = ((-b - root) / (2 * a) - more, (-b + root) / (2 * a) + more)
        return min(max(ends[0], low), high), min(max(ends[1], low), high)
