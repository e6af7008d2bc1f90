"""Rényi divergences of the basic mechanisms, as balls that contain or exceed the true value.

Each function returns D_order between the outputs on neighbouring data, order > 1, in nats.
docs/arguments/renyi-curves.md has the proofs.
Test: tests/core/test_renyi_curves.py compares every one with a direct sum over the output's law.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, expm1, log, log1p, sinh, sqrt, tanh

from flint import arb

from lapwing.core.exact import ball, precision, round_up

BITS = 256
# Floats are trusted up to this error times 1 + ε, some hundred times the error of exp and log in the C
# library. They only save time; next to a whole unit, balls decide. Tests compare the two.
FLOAT_ERROR = 1e-13
LARGEST_EXPONENT, LARGEST_SCALE = 700, 1 << 900
_STEPS_OF_A_GUESS, _GUESSED = 30, 1e-13
# Exponentials of larger numbers do not fit into balls either.
LARGEST_BALL_EXPONENT = 10**12


def randomized_response(order: Fraction, epsilon: Fraction) -> arb:
    """Return the divergence of binary randomized response at ε: the largest of any ε-private mechanism.

    Because the pair (e^ε, 1) / (1 + e^ε) is the extreme point of all pairs within ratio e^ε, and
    divergences are quasi-convex.
    """
    if epsilon > LARGEST_BALL_EXPONENT:
        return ball(epsilon)  # no order reveals more than the pure loss
    with precision(BITS):
        a, e = ball(order), ball(epsilon)
        return (((a * e).exp() + ((1 - a) * e).exp()) / (1 + e.exp())).log() / (a - 1)


def discrete_laplace(order: Fraction, scale: Fraction, distance: int) -> arb:
    """Return the divergence of discrete Laplace noise on integers that differ by `distance`.

    Summing P[k]^a P[k - d]^(1-a) left of 0, between 0 and d, and right of d gives
        A e^((a-1) d/t) + B e^(-a d/t),   A + B = 1,  A, B >= 0,
    whose logarithm is convex in d and 0 at d = 0. So over several coordinates with total distance d the
    worst case is the whole distance in one of them.
    """
    if distance > LARGEST_BALL_EXPONENT * scale:
        return ball(distance / scale)  # no order reveals more than the pure loss
    with precision(BITS):
        a, e = ball(order), ball(distance / scale)
        q = ball(-1 / scale).exp()
        r = ball(-(2 * order - 1) / scale).exp()
        # 1 - q and 1 - r would cancel: use expm1.
        one_less_q, one_less_r = -ball(-1 / scale).expm1(), -ball(-(2 * order - 1) / scale).expm1()
        left = (1 + one_less_q * r / one_less_r) / (1 + q)
        right = (1 - one_less_q / one_less_r) / (1 + q)
        return (left * ((a - 1) * e).exp() + right * (-a * e).exp()).log() / (a - 1)


def discrete_laplace_units(orders: tuple[int, ...], scale: Fraction, distance: int, unit: int) -> list[int]:
    """Return `discrete_laplace` at each order in whole 1/unit, rounded up."""
    top, bottom = scale.denominator, scale.numerator
    if distance == 1:  # then it is randomized response
        return _response_units(orders, top, bottom, unit)
    if not distance:
        return [0] * len(orders)

    def exactly(order: int) -> arb:
        return discrete_laplace(Fraction(order), scale, distance)

    if not _floats_reach(orders, distance * top, bottom):
        return [_rounded_up(exactly(order), unit) for order in orders]
    inverse = top / bottom
    less_q, epsilon = expm1(-inverse), distance * inverse
    margin = FLOAT_ERROR * unit * (1 + epsilon)
    units = []
    for order in orders:
        less_r = expm1((1 - 2 * order) * inverse)
        ratio = less_q / less_r
        rise = (1 + ratio * (1 + less_r)) * expm1((order - 1) * epsilon)
        fall = (1 - ratio) * expm1(-order * epsilon)
        value = log1p((rise + fall) / (2 + less_q)) * (unit / (order - 1))
        above = ceil(value)
        units.append(above if margin < above - value < 1 - margin else _rounded_up(exactly(order), unit))
    return units


def randomized_response_units(orders: tuple[int, ...], epsilon: Fraction, unit: int) -> list[int]:
    """Return `randomized_response` at each order in whole 1/unit, rounded up."""
    if not epsilon:
        return [0] * len(orders)
    return _response_units(orders, epsilon.numerator, epsilon.denominator, unit)


def response_epsilon_guess(order: int, divergence: float) -> float:
    """Return about the ε at which `randomized_response` has this divergence. It is a guess: nothing more.

    Newton's method begins below the root, as the divergence is at most ε, and at most order · ε² / 2. After
    the first step it comes from above.
    """
    epsilon = max(divergence, sqrt(2 * divergence / order))
    for _ in range(_STEPS_OF_A_GUESS):
        rise = order - 0.5
        value = _ln_cosh(rise * epsilon) - _ln_cosh(epsilon / 2) - (order - 1) * divergence
        slope = rise * tanh(rise * epsilon) - tanh(epsilon / 2) / 2
        if not slope or abs(value) <= _GUESSED * slope * epsilon:
            break
        epsilon = max(epsilon - value / slope, 0)
    return epsilon


def _ln_cosh(value: float) -> float:
    return value + log1p(exp(-2 * value)) - log(2)


def _response_units(orders: tuple[int, ...], top: int, bottom: int, unit: int) -> list[int]:
    """Return (ln cosh((a - ½) ε) - ln cosh(ε/2)) / (a - 1) in whole 1/unit, rounded up.

    That is the divergence of randomized response at ε = top / bottom > 0.
    """
    if not _floats_reach(orders, top, bottom):
        return [_response_exactly(order, top, bottom, unit) for order in orders]
    epsilon = top / bottom
    margin = FLOAT_ERROR * unit * (1 + epsilon)
    within, root = 1 - margin, sinh(epsilon / 4)
    less = log1p(2 * root * root)  # ln cosh 2x = ln(1 + 2 sinh² x)
    units = []
    for order, quarter, each in _factors(orders, unit):
        root = sinh(quarter * epsilon)
        value = (log1p(2 * root * root) - less) * each
        above = ceil(value)
        if not margin < above - value < within:
            above = _response_exactly(order, top, bottom, unit)
        units.append(above)
    return units


@lru_cache(maxsize=256)
def _factors(orders: tuple[int, ...], unit: int) -> list[tuple[int, float, float]]:
    """Return each order a with (2a - 1) / 4 and unit / (a - 1)."""
    return [(order, (2 * order - 1) / 4, unit / (order - 1)) for order in orders]


def _response_exactly(order: int, top: int, bottom: int, unit: int) -> int:
    return _rounded_up(randomized_response(Fraction(order), Fraction(top, bottom)), unit)


def _floats_reach(orders: tuple[int, ...], top: int, bottom: int) -> bool:
    """Return whether floats can hold ε = top / bottom and the exponentials of all orders times ε."""
    return 2 * orders[-1] * top <= LARGEST_EXPONENT * bottom and bottom < LARGEST_SCALE


def _rounded_up(value: arb, unit: int) -> int:
    with precision(BITS):
        return max(round_up(value, unit), 0)


def bounded_range(order: Fraction, epsilon: Fraction) -> arb:
    """Return the divergence of the exponential mechanism: order · ε² / 8.

    The log-ratios of its outputs span a range of ε. The result is never more than that of
    `randomized_response`, the largest of any ε-private mechanism.
    """
    with precision(BITS):
        return (ball(order * epsilon * epsilon) / 8).min(randomized_response(order, epsilon))


def sampled_gaussian(order: Fraction, rate: Fraction, rho: Fraction) -> arb:
    """Return the divergence of Gaussian noise with zCDP loss rho (Δ² / 2σ²) on a Poisson sample.

    Each unit is in the sample with probability `rate` (q below). For whole orders the moment is a finite
    binomial sum; other orders are rounded up to the next whole one, which only increases the divergence.
    Discrete Gaussian noise on integers has the same moments, because a shift by a whole number leaves its
    normaliser unchanged. Of adding and removing a unit, the sum below is the larger direction (the two
    laws are mirror images).

        Σ binomial(a, k) (1-q)^(a-k) q^k e^(k(k-1) rho),  each term computed from the one after it
    """
    whole = ceil(order)
    with precision(BITS):
        odds, fall, step = ball((1 - rate) / rate), ball(-2 * (whole - 1) * rho).exp(), ball(2 * rho).exp()
        term = ball(rate) ** whole * ball(whole * (whole - 1) * rho).exp()
        total = term
        for k in range(whole, 0, -1):
            term *= odds * fall * k / (whole - k + 1)
            fall *= step
            total += term
        return total.log() / (whole - 1)
