"""Safe conversions between losses. Every result is rounded so that the statement stays true.

Tests: tests/privacy/test_convert.py, beside dp-accounting and direct integration.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from flint import arb

from lapwing.errors import BadParameter
from lapwing.exact import ball, lower, precision, upper
from lapwing.privacy.loss import Loss

BITS = 256
# Any order above 1 gives a true statement; the search only looks for a good one.
_SMALLEST_ORDER = 1 + 1e-6
_LARGEST_ORDER = 1e15
_SEARCH_STEPS = 100
_ORDERS = [1 + 1.25**k / 20 for k in range(120)]
_RISEN, _THIRDS = 8, 16


def _checked(delta: Fraction) -> None:
    if not 0 < delta < 1:
        raise BadParameter("delta", "must lie in (0, 1): Rényi losses say nothing at δ = 0")


def probability_up(value: arb) -> Fraction:
    """A probability, rounded up, and at least 2^-1000: a smaller one can have a billion digits."""
    return upper(value.max(arb(2) ** -1000).min(arb(1)))


def _slack(order: Fraction, delta: Fraction) -> arb:
    """What Rényi loss at `order` pays for δ: ln((a-1)/a) - (ln δ + ln a) / (a - 1)."""
    a = ball(order)
    return ((a - 1) / a).log() - (ball(delta).log() + a.log()) / (a - 1)


def renyi_to_epsilon(order: Fraction, value: arb, delta: Fraction) -> Fraction:
    """The ε at δ that follows from Rényi divergence `value` at `order`."""
    _checked(delta)
    with precision(BITS):
        return max(upper(value + _slack(order, delta)), Fraction(0))


def renyi_cap(order: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """The greatest Rényi divergence at `order` from which (ε, δ) still follows; may be negative."""
    _checked(delta)
    with precision(BITS):
        return lower(ball(epsilon) - _slack(Fraction(order), delta))


def _delta_of_order(order: Fraction, value: arb, epsilon: Fraction) -> Fraction:
    """δ at ε from a Rényi value: exp((a-1)(value - ε)) (1 - 1/a)^(a-1) / a."""
    with precision(BITS):
        a = ball(order)
        exponent = (a - 1) * (value - ball(epsilon) + ((a - 1) / a).log()) - a.log()
        return probability_up(exponent.exp())


def _best_order(objective: Callable[[float], float]) -> Fraction:
    """An order where `objective` is about least: golden-section search on ln(order - 1)."""
    low, high = math.log(_SMALLEST_ORDER - 1), math.log(_LARGEST_ORDER)
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = objective(1 + math.exp(left)), objective(1 + math.exp(right))
    for _ in range(_SEARCH_STEPS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = objective(1 + math.exp(left))
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = objective(1 + math.exp(right))
    return Fraction(1 + math.exp((low + high) / 2)).limit_denominator(10**9)


def _float_slack(order: float, log_delta: float) -> float:
    return math.log1p(-1 / order) - (log_delta + math.log(order)) / (order - 1)


def zcdp_to_epsilon(rho: Fraction, delta: Fraction) -> Fraction:
    """The ε at δ of ρ-zCDP, by the best Rényi order."""
    _checked(delta)
    log_delta = _log(delta)
    order = _best_order(lambda a: a * float(rho) + _float_slack(a, log_delta))
    with precision(BITS):
        return renyi_to_epsilon(order, ball(order * rho), delta)


def zcdp_to_delta(rho: Fraction, epsilon: Fraction) -> Fraction:
    """The δ at ε of ρ-zCDP, by the best Rényi order."""

    def exponent(a: float) -> float:
        return (a - 1) * (a * float(rho) - float(epsilon) + math.log1p(-1 / a)) - math.log(a)

    order = _best_order(exponent)
    with precision(BITS):
        return _delta_of_order(order, ball(order * rho), epsilon)


def pure_to_zcdp(epsilon: Fraction) -> Fraction:
    """ρ of any ε-private mechanism: ε² / 2."""
    return epsilon * epsilon / 2


def zcdp_cap(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The greatest ρ that `zcdp_to_epsilon` still maps to at most ε at δ, to a relative 2^-40."""
    low, high = Fraction(0), epsilon
    while zcdp_to_epsilon(high, delta) <= epsilon:
        low, high = high, 2 * high
    while high - low > high / (1 << 40):
        middle = (low + high) / 2
        if zcdp_to_epsilon(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def _log(value: Fraction) -> float:
    with precision(64):
        return float(ball(value).log())


def loss_to_epsilon(loss: Loss, delta: Fraction) -> Fraction | None:
    """The least ε at δ that the parts of a loss show: pure, pair, or the best Rényi order."""
    found: list[Fraction] = []
    remaining = delta - loss.delta0
    if remaining < 0:
        return None
    pair = loss.pair
    if pair is not None and pair[1] <= remaining:
        found.append(pair[0])
    if remaining > 0 and loss.renyi(Fraction(2)) is not None:
        found.append(best_renyi_epsilon(loss, remaining))
    return min(found, default=None)


def best_renyi_epsilon(loss: Loss, delta: Fraction) -> Fraction:
    """The ε at δ that follows from the Rényi curve of a loss, at about its best order."""
    log_delta = _log(delta)

    def epsilon_at(order: float) -> float:
        value = loss.renyi(Fraction(order).limit_denominator(10**6))
        assert value is not None
        number = float(value)
        return number + _float_slack(order, log_delta) if math.isfinite(number) else math.inf

    # Up a geometric grid until it has risen for a while: high orders may be dear to evaluate.
    grid, found, best = _ORDERS, [], 0
    for k, point in enumerate(grid):
        found.append(epsilon_at(point))
        best = k if found[k] < found[best] else best
        if k > best + _RISEN:
            break
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    for _ in range(_THIRDS):
        third = (high - low) / 3
        if epsilon_at(low + third) < epsilon_at(high - third):
            high -= third
        else:
            low += third
    order = Fraction((low + high) / 2).limit_denominator(10**6)
    value = loss.renyi(order)
    assert value is not None
    return renyi_to_epsilon(order, value, delta)
