"""Rényi divergences of the basic mechanisms, as balls that contain or exceed the true value.

Each function gives D_order between the outputs on neighbouring data, order > 1, in nats.
Tests: tests/privacy/test_curves.py compares every one with a direct sum over the output's law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

from flint import arb

from lapwing.exact import ball, precision, round_up

BITS = 256
# Floats are trusted to this absolute and relative error, some thousand times what exp and log of
# the C library are off; tests compare them with balls. See `_units`.
NEAR = 1e-12
LARGEST_EXPONENT = 700


def randomized_response(order: Fraction, epsilon: Fraction) -> arb:
    """Binary randomized response at ε: the largest divergence of anything that is purely ε-private.

    Because the pair (e^ε, 1) / (1 + e^ε) is the extreme point of all pairs within ratio e^ε, and
    divergences are quasi-convex.
    """
    with precision(BITS):
        a, e = ball(order), ball(epsilon)
        return (((a * e).exp() + ((1 - a) * e).exp()) / (1 + e.exp())).log() / (a - 1)


def discrete_laplace(order: Fraction, scale: Fraction, distance: int) -> arb:
    """Discrete Laplace noise on integers that differ by `distance`.

    Summing P[k]^a P[k - d]^(1-a) left of 0, between and right of d gives
        A e^((a-1) d/t) + B e^(-a d/t),   A + B = 1,  A, B >= 0,
    which is log-convex in d and 0 at d = 0; so over several coordinates with total distance d the
    worst case is the whole distance in one of them.
    """
    with precision(BITS):
        a, e = ball(order), ball(distance / scale)
        q = ball(-1 / scale).exp()
        r = ball(-(2 * order - 1) / scale).exp()
        # Next to 1 - q and 1 - r all else would cancel: use expm1.
        one_less_q, one_less_r = -ball(-1 / scale).expm1(), -ball(-(2 * order - 1) / scale).expm1()
        left = (1 + one_less_q * r / one_less_r) / (1 + q)
        right = (q - r) / (one_less_r * (1 + q))
        return (left * ((a - 1) * e).exp() + right * (-a * e).exp()).log() / (a - 1)


def discrete_laplace_units(orders: tuple[int, ...], scale: Fraction, distance: int, unit: int) -> list[int]:
    """`discrete_laplace` at each order in whole 1/unit, rounded up."""
    inverse = scale.denominator / scale.numerator
    e = distance * inverse
    if (2 * orders[-1] - 1) * max(inverse, e) > LARGEST_EXPONENT:
        values = [math.nan] * len(orders)
    else:
        q, less_q, values = math.exp(-inverse), math.expm1(-inverse), []
        for order in orders:
            less_r = math.expm1(-(2 * order - 1) * inverse)
            ratio = less_q / less_r
            rise = (1 + ratio * (1 + less_r)) * math.expm1((order - 1) * e)
            fall = (1 - ratio) * math.expm1(-order * e)
            values.append(math.log1p((rise + fall) / (1 + q)) / (order - 1))
    return [
        _units(value, unit, partial(discrete_laplace, Fraction(order), scale, distance))
        for order, value in zip(orders, values, strict=True)
    ]


def randomized_response_units(orders: tuple[int, ...], epsilon: Fraction, unit: int) -> list[int]:
    """`randomized_response` at each order in whole 1/unit, rounded up.

    It has the divergence of discrete Laplace noise at scale 1/ε between neighbouring integers.
    """
    if not epsilon:
        return [0] * len(orders)
    return discrete_laplace_units(orders, 1 / epsilon, 1, unit)


def _units(value: float, unit: int, exact_value: Callable[[], arb]) -> int:
    """The exact value in whole 1/unit, rounded up: by the float unless it is too close to tell."""
    if math.isfinite(value):
        error = NEAR * (1 + value)
        units = math.ceil((value + error) * unit)
        if units == math.ceil((value - error) * unit) and units > 0:
            return units
    return max(round_up(exact_value(), unit), 0)


def bounded_range(order: Fraction, epsilon: Fraction) -> arb:
    """Exponential mechanism: log-ratios of outputs span a range of ε, so a ε² / 8 (and never more
    than any ε-private mechanism)."""
    with precision(BITS):
        return (ball(order * epsilon * epsilon) / 8).min(randomized_response(order, epsilon))


def sampled_gaussian(order: Fraction, rate: Fraction, sigma: Fraction) -> arb:
    """Gaussian noise (sigma in units of the sensitivity) on a Poisson sample of the units.

    For whole orders the moment is a finite binomial sum; others are rounded up to the next whole
    order, which only increases the divergence. Discrete Gaussian noise on integers has the same
    moments, because a shift by a whole number leaves its normaliser unchanged. Adding and removing
    a unit: the sum below is the larger direction (the two laws are mirror images).
    """
    whole = math.ceil(order)
    with precision(BITS):
        q, two_variances = ball(rate), ball(2 * sigma * sigma)
        total = arb(0)
        for k in range(whole + 1):
            weight = math.comb(whole, k) * (1 - q) ** (whole - k) * q**k
            total += weight * (arb(k * (k - 1)) / two_variances).exp()
        return total.log() / (whole - 1)
