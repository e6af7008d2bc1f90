"""Intervals: how far a released number may be from the true value in the bounded table.

Claim    at confidence 1 - β the interval of an additive answer holds with at least that probability,
         exactly; that of a ratio with about that probability (tested at small sizes). Both use released
         parts and public scales only.
Because  *additive*: the distribution of the noise. *Ratio*: with noisy total A and noisy size N, the pivot
         A - θN at the true θ is pure noise, e_A - θ e_N. All θ at which it is no larger than that noise's
         1 - β quantile are kept, and the interval is their hull (Fieller). It needs no lower bound on N.
         For a pair of sums a and b over a range r, N is (a + b) / r: then A - θN is (1 - θ/r) a - (θ/r) b.
Test     tests/sql/test_intervals.py; docs/arguments/query-noise.md has the tails and the plug-ins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lapwing.core.conversions import SUMMED_UP_TO
from lapwing.core.gaussian import Gaussian, SummedGaussian
from lapwing.core.laplace import Laplace, SummedLaplace
from lapwing.sql.noising import PartNoise

Floats = NDArray[np.float64]
Bounds = tuple[Floats, Floats]

_APART = 1.001  # scales nearer than this are pulled apart: their tails would cancel
_NEWTON = 8
_CUTS = 9
_KNOTS, _SIDE = 1025, 129
_COARSE = 2.0  # scales up to which a pair's noise is taken as whole numbers
_TINY = 1e-300
_FINE = Fraction(1 << 20)  # a scale at which whole numbers are as good as continuous
_FINE_NOISE = 5.0  # from this standard deviation on, sums of whole noises are as sums of continuous ones


@lru_cache(maxsize=4096)
def half_width(mechanism: PartNoise, confidence: Fraction) -> int:
    """Return `mechanism.spread(confidence)`, the least w with P[|noise| > w] <= β, faster.

    Floats decide, unless a tail is so near to β that they might be wrong.
    """
    if isinstance(mechanism, SummedLaplace | SummedGaussian):
        return mechanism.spread(confidence)
    miss = float(1 - confidence)
    if isinstance(mechanism, Laplace):
        scale = float(mechanism.scale)
        if 1 / scale > 500 or miss < 1e-12:
            return mechanism.spread(confidence)
        at = scale * (math.log(2 / miss) - math.log1p(math.exp(-1 / scale))) - 1
        near = abs(at - round(at)) < 1e-9 * (1 + abs(at))
        return mechanism.spread(confidence) if near else max(math.ceil(at), 0)
    if mechanism.sigma > SUMMED_UP_TO or mechanism.sigma < 1 or miss < 1e-12:
        return mechanism.spread(confidence)
    sigma = float(mechanism.sigma)
    weights = np.exp(-((np.arange(math.ceil(12 * sigma)) / sigma) ** 2) / 2)
    beyond = np.cumsum(weights[::-1])[::-1]  # Σ from k on
    tails = 2 * beyond[1:] / (2 * beyond[0] - 1)
    width = int(np.searchsorted(-tails, -miss))
    near = bool(np.any(np.abs(tails[max(width - 1, 0) : width + 1] / miss - 1) < 1e-9))
    return mechanism.spread(confidence) if near else width


@dataclass(frozen=True, slots=True)
class NoiseFamily:
    """Independent noises of one kind, given by their scales (Laplace b, Gaussian σ), and a confidence.

    Summed noises of several members are given by their standard deviations, as Gaussian ones are. Every sum
    of such noises lies between one of them, held by `widest` deviations, and a normal distribution (a test
    tries a grid).
    """

    is_gaussian: bool
    confidence: Fraction
    widest: float = 0.0

    @classmethod
    def of(cls, mechanism: PartNoise, confidence: Fraction) -> NoiseFamily:
        """Return the family of a mechanism's noise."""
        if isinstance(mechanism, SummedLaplace):
            return cls(True, confidence, _widest(replace(mechanism, scale=_FINE), confidence))
        return cls(isinstance(mechanism, Gaussian | SummedGaussian), confidence)

    @property
    def _normal(self) -> float:
        return max(NormalDist().inv_cdf(float((1 + self.confidence) / 2)), self.widest)

    @property
    def in_deviations(self) -> float:
        """A width in standard deviations that holds any sum of such noises, of one or of many."""
        one = -math.log(float(1 - self.confidence)) / math.sqrt(2)
        return self._normal if self.is_gaussian else max(self._normal, one)

    def for_sums(self, least: float) -> float:
        """Return a width in standard deviations that holds any weighted sum of such noises.

        Claim    the sum exceeds it with probability at most 1 - confidence, where `least` is the smallest
                 standard deviation of a noise in it.
        Because  below `_FINE_NOISE` whole noise is far from a continuous one. There a sum of Gaussian
                 noises is held by its sub-Gaussian bound, any other by Chebyshev's, whatever the weights.
        Test     tests/sql/test_estimates_consistency.py::test_intervals_hold_where_the_noise_is_a_few_rows
        """
        if least >= _FINE_NOISE:
            return self.in_deviations
        miss = float(1 - self.confidence)
        is_summed_laplace = self.widest > 0
        bound = (
            math.sqrt(2 * math.log(2 / miss)) if self.is_gaussian and not is_summed_laplace else miss**-0.5
        )
        return max(self.in_deviations, bound)

    def width(self, scales: list[ArrayLike]) -> Floats:
        """Return t + ½ with P[|Σ noises| > t] = β, elementwise over arrays of scales.

        The sum is taken as continuous. At the worst t, whole noise exceeds t as often as continuous noise
        exceeds t - ½. Every pivot contains one whole total with factor 1 (or a pair of them, whose factors
        add up to 1).
        """
        columns = [np.abs(np.asarray(scale, dtype=np.float64)) for scale in scales]
        if self.is_gaussian:
            return np.asarray(self._normal * np.sqrt(sum(column**2 for column in columns))) + 0.5
        stacked = np.sort(np.stack(np.broadcast_arrays(*columns)), axis=0)
        return _laplace_width(stacked, float(1 - self.confidence)) + 0.5


def noise_scale(mechanism: PartNoise) -> float:
    """Return the scale of a noise in `NoiseFamily`: b, σ, or the continuous deviation of a sum."""
    match mechanism:
        case Laplace():
            return float(mechanism.scale)
        case Gaussian():
            return float(mechanism.sigma)
        case SummedLaplace():
            return math.sqrt(2 * mechanism.wholes) * float(mechanism.scale)
        case SummedGaussian():
            return mechanism.deviation


@lru_cache(maxsize=256)
def _widest(mechanism: SummedLaplace, confidence: Fraction) -> float:
    return mechanism.spread(confidence) / mechanism.deviation


def _laplace_width(scales: Floats, miss: float) -> Floats:
    """Solve P[|ΣX| > t] = Σ c_i exp(-t / a_i) = β with c_i = Π_{j≠i} a_i² / (a_i² - a_j²), a distinct.

    Newton's method on the logarithm, which is concave and nearly straight: it cannot overshoot twice.
    """
    top = np.maximum(scales[-1], _TINY)
    a = np.maximum(scales / top, 1e-6)
    for i in range(1, len(a)):
        a[i] = np.maximum(a[i], a[i - 1] * _APART)  # wider, so on the safe side
    if len(a) == 1:
        return np.asarray(-math.log(miss) * top)
    squares = a**2
    factors = np.ones_like(a)
    for i in range(len(a)):
        for j in range(len(a)):
            if i != j:
                factors[i] *= squares[i] / (squares[i] - squares[j])
    # The widest noise dominates: c e^(-t/a) = β is a good start, and the tail's logarithm is concave.
    t = np.maximum(a[-1] * np.log(np.maximum(factors[-1], 1.0) / miss), 0.0)
    goal = math.log(miss)
    for _ in range(_NEWTON):
        terms = factors * np.exp(-t / a)
        tail = np.clip(terms.sum(axis=0), _TINY, 1.0)
        slope = np.maximum((terms / a).sum(axis=0), _TINY) / tail
        step = (np.log(tail) - goal) / slope
        t = np.maximum(t + step, 0.0)
        if np.max(np.abs(step), initial=0.0) < 1e-6:
            break
    return np.asarray(t * top)


Which = slice | NDArray[np.int64]
Width = Callable[[Floats, Which], Floats]


def ratio_bounds(
    total: Floats, size: Floats, low: float | Floats, high: float | Floats, width: Width
) -> Bounds:
    """Return the hull of {θ in [low, high]: |total - θ size| <= width(θ)}, elementwise.

    `width(θ, which)` is the noise's quantile at θ for the groups `which`. It is convex in θ. So on each
    side of the estimate the excess |total - θ size| - width(θ) crosses 0 at most once if the end of the
    range is outside. If no θ is kept, the parts contradict one another, and the result is the whole range.
    """
    everything = slice(None)

    def excess(theta: Floats, which: Which = everything) -> Floats:
        return np.abs(total[which] - theta * size[which]) - width(theta, which)

    safe = np.where(size == 0, 1.0, size)
    middle = np.clip(np.where(size == 0, (low + high) / 2, total / safe), low, high)
    lows, highs = np.full_like(total, low), np.full_like(total, high)
    middle_in = excess(middle) <= 0
    low_in, high_in = excess(lows) <= 0, excess(highs) <= 0
    start = np.where(middle_in, middle, np.where(low_in, lows, highs))
    some = middle_in | low_in | high_in
    for end, end_in in ((lows, low_in), (highs, high_in)):
        which = np.flatnonzero(some & ~end_in)
        if len(which):
            end[which] = _crossing(start[which], end[which], partial(excess, which=which))
    return lows, highs


def _crossing(inside: Floats, outside: Floats, excess: Callable[[Floats], Floats]) -> Floats:
    """Return the outer end of a short interval in which the excess crosses 0.

    By the Illinois method: the zero of the secant, where an end that stays twice gets half the weight.
    """
    at_in, at_out = excess(inside), excess(outside)
    last = np.zeros(len(inside), dtype=np.int8)
    for _ in range(_CUTS):
        share = np.clip(at_in / np.minimum(at_in - at_out, -_TINY), 0.01, 0.99)
        cut = inside + share * (outside - inside)
        found = excess(cut)
        kept = found <= 0
        inside = np.where(kept, cut, inside)
        outside = np.where(kept, outside, cut)
        at_in = np.where(kept, found, np.where(last == -1, at_in / 2, at_in))
        at_out = np.where(kept, np.where(last == 1, at_out / 2, at_out), found)
        last = np.where(kept, np.int8(1), np.int8(-1))
    return outside


def table_width(noises: NoiseFamily, fixed: float, varying: float, reach: float) -> Width:
    """Return the width of noises at scales `fixed` and |θ|·`varying` for |θ| <= reach, from a table."""
    knots = np.linspace(0.0, max(reach, _TINY), _KNOTS)
    return _from_table(noises.width([np.full(_KNOTS, fixed), knots * varying]), reach)


def ratio_width(noises: NoiseFamily, top: float, bottom: float) -> Width:
    """Return the width of noises at scales `top` and |θ|·`bottom`, for every θ, from a table.

    It is (top + |θ| bottom) times that of scales which add up to 1, and convex in these. Both noises are
    whole: one jumps by 1, the other by |θ|, so half of both is added.
    """
    share = np.linspace(0.0, 1.0, _KNOTS)
    of_share = _from_table(noises.width([1 - share, share]) - 0.5, 1.0)

    def width(theta: Floats, which: Which) -> Floats:
        varying = np.abs(theta) * bottom
        whole = top + varying
        return np.asarray(whole * of_share(varying / whole, which) + (1 + np.abs(theta)) / 2)

    return width


def pair_width(noises: NoiseFamily, each: float, reach: float) -> Width:
    """Return the width of (1 - c) e_a - c e_b with c = θ / reach, for 0 <= θ <= reach: the pivot of a pair.

    Noise with a scale of one or two rows is far from continuous: its exact distribution is used.
    """
    if each <= _COARSE and not noises.widest:
        return _from_table(_whole_widths(noises, each), reach)
    share = np.linspace(0.0, 1.0, _KNOTS)
    return _from_table(noises.width([each * (1 - share), each * share]), reach)


def _from_table(knots: Floats, reach: float) -> Width:
    """Return the width by |θ|, interpolated between knots at equal distances from 0 to reach.

    It does not depend on the group, so 100,000 groups cost one table. Straight lines between knots lie
    above a convex function, on the safe side. The relative error is below 1e-5.
    """
    widths = np.append(knots, knots[-1])
    rises = np.diff(widths, append=widths[-1])
    per = (_KNOTS - 1) / max(reach, _TINY)

    def width(theta: Floats, _which: Which) -> Floats:
        place = np.abs(theta) * per
        at = np.minimum(place, _KNOTS - 1).astype(np.int32)
        return np.asarray(widths[at] + (place - at) * rises[at])

    return width


@lru_cache(maxsize=64)
def _whole_widths(noises: NoiseFamily, each: float) -> Floats:
    """Return the least t with P[|(1 - c) X - c Y| > t] <= β for whole noises, plus 0.02, for c in 0..1.

    The least t jumps where the order of the values changes with c. So each knot takes the maximum of its
    neighbours: lines between two knots are then above both. At simple fractions c many values coincide. The
    0.02 covers such a c between two knots, where values move by (|X| + |Y|) / 1024.
    """
    missed = float(1 - noises.confidence)
    far = math.ceil((25 - math.log(missed)) * each) + 2  # less than 1e-10 of β lies beyond
    k = np.arange(-far, far + 1)
    law = np.exp(-((k / each) ** 2) / 2 if noises.is_gaussian else -np.abs(k) / each)
    law /= law.sum()
    beyond = np.append(np.cumsum(law[::-1])[::-1], 0.0)  # P[X >= k]
    share = np.linspace(0.0, 1.0, _KNOTS)[:, None]
    share = np.minimum(share, 1 - share)
    low, high = np.zeros(_KNOTS), np.full(_KNOTS, float(far))
    for _ in range(40):
        t = (low + high) / 2
        least = np.floor((t[:, None] + share * k) / (1 - share)).astype(np.int64) + 1  # X, at Y = k
        tail = 2 * (law * beyond[np.clip(least + far, 0, 2 * far + 1)]).sum(axis=1)
        kept = tail <= missed
        low, high = np.where(kept, low, t), np.where(kept, t, high)
    padded = np.pad(high + 0.02, 1, mode="edge")
    return np.maximum(np.maximum(padded[:-2], padded[1:-1]), padded[2:])


def with_sampling(
    width: Width, noises: NoiseFamily, size: Floats, variance: Callable[[Floats], Floats]
) -> Width:
    """Add the error of a sample, `variance(θ)` per row, as a root of squares."""
    z, rows = NormalDist().inv_cdf(float((1 + noises.confidence) / 2)), np.maximum(size, 0.0)

    def both(theta: Floats, which: Which) -> Floats:
        sampling = z**2 * rows[which] * np.maximum(variance(theta), 0.0)
        return np.asarray(np.sqrt(width(theta, which) ** 2 + sampling))

    return both


def mixed_width(noises: NoiseFamily, fixed: list[Floats], centre: Floats, varying: float) -> Width:
    """Return the width of noises at scales `fixed` (arrays over groups) and |centre - θ|·`varying`."""

    def width(theta: Floats, which: Which) -> Floats:
        scales: list[ArrayLike] = [scale[which] for scale in fixed]
        return noises.width([*scales, np.abs(centre[which] - theta) * varying])

    return width


def plane_width(
    noises: NoiseFamily, scales: tuple[float, Floats, float], centre: Floats, reach: float
) -> Width:
    """Return `mixed_width` for one constant scale and one that varies by group, from a two-way table.

    It is worth its cost for many groups. `reach` is the largest |centre - θ|, which the last scale is
    multiplied with.
    """
    fixed, second, varying = scales
    most = max(float(np.max(second, initial=0.0)), fixed * 1e-6)
    per = (_SIDE - 1) / max(reach, _TINY)
    rows, columns = np.linspace(0, most, _SIDE)[:, None], np.arange(_SIDE)[None, :] / per * varying
    table = noises.width([np.full((_SIDE, _SIDE), fixed), rows + 0 * columns, columns + 0 * rows]).ravel()
    place = second * ((_SIDE - 1) / most)
    row = np.minimum(place, _SIDE - 2).astype(np.int32)
    down, starts = place - row, row * _SIDE

    def width(theta: Floats, which: Which) -> Floats:
        along = np.abs(centre[which] - theta) * per
        column = np.minimum(along, _SIDE - 2).astype(np.int32)
        along -= column
        at, lower = starts[which] + column, down[which]
        upper_row = table[at] * (1 - along) + table[at + 1] * along
        lower_row = table[at + _SIDE] * (1 - along) + table[at + _SIDE + 1] * along
        return np.asarray(upper_row + lower * (lower_row - upper_row))

    return width
