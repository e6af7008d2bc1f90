"""Intervals: how far a released number may be from the true value in the bounded table.

Claim    at confidence 1 - β the interval of an additive answer holds with at least that probability,
         exactly; that of a ratio with about that probability (tested at small sizes). Both use released
         parts and public scales only.
Because  *additive*: the distribution of the noise. *Ratio*: with noisy total A and noisy size N, the pivot
         A - θN at the true θ is pure noise, e_A - θ e_N. All θ at which it is no larger than that noise's
         1 - β quantile are kept, and the interval is their hull (Fieller). It needs no lower bound on N.
         For a pair of sums a and b over a range r, N is (a + b) / r: then A - θN is (1 - θ/r) a - (θ/r) b.
Test     tests/sql/answering/test_intervals.py; docs/arguments/query-noise.md has tails and plug-ins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lapwing.core.exact import halve
from lapwing.sql.pricing.noise_widths import (
    TINY,
    Floats,
    NoiseFamily,
)

Bounds = tuple[Floats, Floats]
_CUTS = 9
_KNOTS, _SIDE = 1025, 129
_COARSE = 2.0  # scales up to which a pair's noise is taken as whole numbers
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
        share = np.clip(at_in / np.minimum(at_in - at_out, -TINY), 0.01, 0.99)
        cut = inside + share * (outside - inside)
        at_cut = excess(cut)
        kept = at_cut <= 0
        inside = np.where(kept, cut, inside)
        outside = np.where(kept, outside, cut)
        at_in = np.where(kept, at_cut, np.where(last == -1, at_in / 2, at_in))
        at_out = np.where(kept, np.where(last == 1, at_out / 2, at_out), at_cut)
        last = np.where(kept, np.int8(1), np.int8(-1))
    return outside


def table_width(noises: NoiseFamily, fixed: float, varying: float, reach: float) -> Width:
    """Return the width of noises at scales `fixed` and |θ|·`varying` for |θ| <= reach, from a table."""
    knots = np.linspace(0.0, max(reach, TINY), _KNOTS)
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
    per = (_KNOTS - 1) / max(reach, TINY)

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

    def is_wide(t: Floats) -> NDArray[np.bool_]:
        least = np.floor((t[:, None] + share * k) / (1 - share)).astype(np.int64) + 1  # X, at Y = k
        tail = 2 * (law * beyond[np.clip(least + far, 0, 2 * far + 1)]).sum(axis=1)
        return np.asarray(tail <= missed)

    _, high = halve(is_wide, np.zeros(_KNOTS), np.full(_KNOTS, float(far)), times=40)
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
    per = (_SIDE - 1) / max(reach, TINY)
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
