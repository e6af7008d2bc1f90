"""Bounds of a mean or a share from a sample, with a probability of error that holds exactly.

A sample is given as two sums: of x, and of 1 - x, for values x in [0, 1]. A ceiling rises with the first
sum and falls with the second. So if the first sum is known to be at most a and the second at least b, the
ceiling at a and b holds. All decisions use balls; where they cannot decide, the wider bound is returned.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from flint import arb

from lapwing.core.exact import ball, least_where, precision

_BITS = 192
_GRID = 1 << 80
_NEWTON = 12
_STILL, _FAR = 1e-9, 100.0
_FIRST_TERMS, _MOST_TERMS, _SMALL = 256, 1 << 20, 1e-13


def mean_ceiling(of_x: Fraction | int, of_rest: Fraction | int, risk: Fraction) -> Fraction:
    """Return U such that the mean of x is above U with a probability of at most `risk`.

    Claim    for independent x_1, ..., x_n in [0, 1] with mean μ, P[μ > U(Σ x, Σ (1 - x))] <= risk.
    Because  P[Σ x <= n y] <= exp(-n KL(y, μ)) for y <= μ (Chernoff and Hoeffding), and U is the μ above the
             mean of the sample at which n KL = ln(1 / risk).
    Test     tests/learn/test_confidence_bounds.py::test_the_ceiling_of_a_mean_is_rarely_too_low
    """
    rest, own = Fraction(of_rest), max(Fraction(of_x), Fraction(0))
    if rest <= 0:
        return Fraction(1)
    with precision(_BITS):
        wanted = -ball(risk).log()
        seen = _times_log(own, own / (own + rest)) + _times_log(rest, rest / (own + rest))
        x, y = ball(own), ball(rest)

        def holds(point: int) -> bool:
            mu = ball(Fraction(point, _GRID))
            return bool(seen - x * mu.log() - y * (1 - mu).log() >= wanted)

        return Fraction(least_where(holds, math.floor(own / (own + rest) * _GRID), _GRID), _GRID)


def mean_floor(of_x: Fraction | int, of_rest: Fraction | int, risk: Fraction) -> Fraction:
    """Return the lower bound of a mean: 1 minus the ceiling of the mean of 1 - x."""
    return 1 - mean_ceiling(of_rest, of_x, risk)


def noisy_mean_ceiling(of_x: int, of_rest: int, *, reach: int, most: int, risk: Fraction) -> Fraction:
    """Return the ceiling of a mean from two noisy sums of steps, where each unit adds `most` in total.

    It holds if neither noise moved its sum by more than `reach` in the wrong direction.
    """
    return mean_ceiling(Fraction(of_x + reach, most), Fraction(of_rest - reach, most), risk)


def noisy_mean_floor(of_x: int, of_rest: int, *, reach: int, most: int, risk: Fraction) -> Fraction:
    """Return the lower bound of the same mean."""
    return 1 - noisy_mean_ceiling(of_rest, of_x, reach=reach, most=most, risk=risk)


def clamped_share(of_x: int, of_rest: int) -> Fraction:
    """Return of_x / (of_x + of_rest), clamped to 0 … 1. The sum must be above 0."""
    return min(max(Fraction(of_x, of_x + of_rest), Fraction(0)), Fraction(1))


def share_floor(hits: int, misses: int, risk: Fraction) -> Fraction:
    """Return the lower end of Clopper and Pearson's interval, or a little less.

    Claim    for n coins that show hits with probability p, P[p < share_floor(hits, n - hits)] <= risk.
    Because  it is at most the p at which P[Binomial(n, p) >= hits] = risk: that probability is bounded from
             above. Its logarithm rises and is concave in that of the odds (E[X | X >= hits] - E[X], its
             slope, falls), so Newton's steps from below stay below; and each is checked.
    Test     tests/learn/test_confidence_bounds.py::test_the_floor_of_a_share_is_clopper_and_pearsons
    """
    if hits <= 0:
        return Fraction(0)
    lost = max(misses, 0)
    best = tried = mean_floor(hits, lost, risk)
    for _ in range(_NEWTON if best > 0 else 0):
        with precision(_BITS):
            log_first, more = _upper_tail(hits, lost, tried)
            short = ball(risk).log() - log_first - arb(more).log()
            if not short >= 0:
                break
            # The slope is hits (1 - p) P[X = hits] / P[X >= hits].
            step = float(short * more / (hits * (1 - ball(tried))))
        best = tried
        if not _STILL < step < _FAR:
            break
        tried = Fraction(1 / (1 + math.exp(-math.log(best / (1 - best)) - step)))
        if not best < tried < 1:
            break
    return best


def _upper_tail(hits: int, misses: int, p: Fraction) -> tuple[arb, float]:
    """Return ln P[X = hits], and a bound of P[X >= hits] / P[X = hits], for X of hits + misses coins.

    Each further term is the one before times a ratio, and the ratios fall: the rest is at most a geometric
    series. A sum of float products of K ratios is off by less than 16 K in the last place.
    """
    n = hits + misses
    ways = arb(n + 1).lgamma() - arb(hits + 1).lgamma() - arb(misses + 1).lgamma()
    log_first = ways + hits * ball(p).log() + misses * (1 - ball(p)).log()
    odds = float(p / (1 - p))
    count = _FIRST_TERMS
    while True:
        i = np.arange(count, dtype=np.float64)
        ratios = np.maximum(misses - i, 0.0) / (hits + 1 + i) * odds
        terms = np.cumprod(ratios)
        last, ratio = float(terms[-1]), float(ratios[-1])
        if last < _SMALL or count >= _MOST_TERMS:
            break
        count *= 4
    beyond = last * ratio / (1 - ratio) * (1 + _SMALL) if ratio < 1 - 2 * _SMALL else math.inf
    return log_first, (1 + float(terms.sum()) + beyond) * (1 + 16 * count * 2.0**-53) + 1e-200


def share_ceiling(hits: int, misses: int, risk: Fraction) -> Fraction:
    """Return the upper end of the interval: 1 minus the floor of the share of misses."""
    return 1 - share_floor(misses, hits, risk)


def _times_log(weight: Fraction, share: Fraction) -> arb:
    """Return weight · ln(share), and 0 where there is no weight."""
    return ball(weight) * ball(share).log() if weight else arb(0)


def float_up(value: Fraction) -> float:
    """Return the nearest float that is not below the value."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def float_down(value: Fraction) -> float:
    """Return the nearest float that is not above the value."""
    return -float_up(-value)
