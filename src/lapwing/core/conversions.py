"""Safe conversions between losses and (ε, δ). Every result is rounded so that the statement stays true.

**Rényi and zCDP losses.** Test: tests/core/test_conversions.py, beside dp-accounting and direct
integration.

**Discrete Gaussian noise**, by the tightest of three bounds that hold:

Claim    integer vectors within L2 distance Δ, plus independent discrete Gaussian noise at σ in each of
         k coordinates, are (ε, δ)-private for the δ that `gaussian_delta` returns.
Because  *scalar*: the log-ratio of shifted laws is linear in the output, so δ is a difference of two
         exact tail sums; larger shifts are easier to distinguish (the family has a monotone ratio).
         *vector*: up to a factor within (1 + κ)^k, the noise is a continuous Gaussian of variance
         σ² - s² followed by randomized rounding at s, where κ = 2 Σ exp(-2 π² s² j²). So the analytic
         formula of the continuous Gaussian holds after paying for κ, which is about 1e-13 / k here.
         *any*: Rényi divergence a Δ² / 2σ² at every order (zCDP).
Test     tests/claims/test_gaussian.py; docs/arguments/gaussian.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from flint import arb

from lapwing.core.exact import ball, least_from, lower, narrow, precision, upper
from lapwing.core.losses import Loss, checked_delta, checked_epsilon
from lapwing.errors import BadParameter

BITS = 256
# Any order above 1 gives a true statement; the search only looks for a good one.
_SMALLEST_ORDER = 1 + 1e-6
_LARGEST_ORDER = 1e15
_SEARCH_STEPS = 100
_ORDERS = [1 + 1.25**k / 20 for k in range(120)]
_RISEN, _THIRDS = 8, 16
_LARGEST_FLOAT = Fraction(10**300)  # numbers that only guide the search end here


def _require_delta(delta: Fraction) -> None:
    if not 0 < delta < 1:
        raise BadParameter("delta", "must lie in (0, 1): Rényi losses say nothing at δ = 0")


def probability_up(value: arb) -> Fraction:
    """Return a probability, rounded up, and at least 2^-1000: a smaller one can have a billion digits."""
    return upper(value.max(arb(2) ** -1000).min(arb(1)))


def _slack(order: Fraction, delta: Fraction) -> arb:
    """Return the ε that a Rényi bound at `order` pays for δ: ln((a-1)/a) - (ln δ + ln a) / (a - 1)."""
    a = ball(order)
    return ((a - 1) / a).log() - (ball(delta).log() + a.log()) / (a - 1)


def renyi_to_epsilon(order: Fraction, value: arb, delta: Fraction) -> Fraction:
    """Return the ε at δ that follows from Rényi divergence `value` at `order`."""
    _require_delta(delta)
    with precision(BITS):
        return max(upper(value + _slack(order, delta)), Fraction(0))


def renyi_cap(order: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the greatest Rényi divergence at `order` from which (ε, δ) follows; it may be negative."""
    _require_delta(delta)
    with precision(BITS):
        return lower(ball(epsilon) - _slack(Fraction(order), delta))


def _best_order(objective: Callable[[float], float]) -> Fraction:
    """Find an order where `objective` is about least, by golden-section search on ln(order - 1)."""
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


def _log(value: Fraction) -> float:
    with precision(64):
        return float(ball(value).log())


def zcdp_to_epsilon(rho: Fraction, delta: Fraction) -> Fraction:
    """Return the ε at δ of ρ-zCDP, by the best Rényi order."""
    _require_delta(delta)
    log_delta = _log(delta)
    order = _best_order(lambda a: a * float(rho) + _float_slack(a, log_delta))
    with precision(BITS):
        return renyi_to_epsilon(order, ball(order * rho), delta)


def _float_log_delta(order: float, value: float, epsilon: float) -> float:
    return (order - 1) * (value - epsilon + math.log1p(-1 / order)) - math.log(order)


def renyi_to_delta(order: Fraction, value: arb, epsilon: Fraction) -> Fraction:
    """Return the δ at ε of Rényi divergence v at order a: exp((a-1)(v - ε)) (1 - 1/a)^(a-1) / a."""
    with precision(BITS):
        a = ball(order)
        exponent = (a - 1) * (value - ball(epsilon) + ((a - 1) / a).log()) - a.log()
        return probability_up(exponent.exp()) if exponent < 0 else Fraction(1)


def zcdp_to_delta(rho: Fraction, epsilon: Fraction) -> Fraction:
    """Return the δ at ε of ρ-zCDP, by the best Rényi order."""
    order = _best_order(lambda a: _float_log_delta(a, a * float(rho), float(epsilon)))
    with precision(BITS):
        return renyi_to_delta(order, ball(order * rho), epsilon)


RHO_UNIT = 10**12  # ρ is found to this many parts of 1


def largest_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest ρ, rounded down to 1e-12, for which ρ-zCDP is (ε, δ)-private. 0 if none is."""
    _require_delta(delta)

    def is_too_much(units: int) -> bool:
        return zcdp_to_delta(Fraction(units, RHO_UNIT), epsilon) > delta

    return Fraction(least_from(is_too_much, start=RHO_UNIT) - 1, RHO_UNIT)


def loss_to_epsilon(loss: Loss, delta: Fraction) -> Fraction | None:
    """Return the least ε at δ that follows from the bounds of a loss: pure, pair, or the best Rényi order.

    None if no ε follows.
    """
    epsilons: list[Fraction] = []
    remaining = delta - loss.delta0
    if remaining < 0:
        return None
    pair = loss.pair
    if pair is not None and pair[1] <= remaining:
        epsilons.append(pair[0])
    if remaining > 0 and loss.renyi(Fraction(2)) is not None:
        epsilons.append(best_renyi_epsilon(loss, remaining))
    return min(epsilons, default=None)


def _best_order_of(loss: Loss, objective: Callable[[float, float], float]) -> Fraction:
    """Find an order where `objective(order, Rényi value)` is about least: any order would be right."""

    def at(order: float) -> float:
        value = loss.renyi(Fraction(order).limit_denominator(10**6))
        assert value is not None
        number = float(value)
        return objective(order, number) if math.isfinite(number) else math.inf

    # Up a geometric grid until the objective has risen for a while: high orders may be expensive.
    grid, values, best = [order for order in _ORDERS if order <= loss.largest_order], [], 0
    for k, point in enumerate(grid):
        values.append(at(point))
        best = k if values[k] < values[best] else best
        if k > best + _RISEN:
            break
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    for _ in range(_THIRDS):
        third = (high - low) / 3
        if at(low + third) < at(high - third):
            high -= third
        else:
            low += third
    return Fraction((low + high) / 2).limit_denominator(10**6)


def best_renyi_epsilon(loss: Loss, delta: Fraction) -> Fraction:
    """Return the ε at δ that follows from the Rényi curve of a loss, at about its best order."""
    log_delta = _log(delta)
    order = _best_order_of(loss, lambda a, value: value + _float_slack(a, log_delta))
    value = loss.renyi(order)
    assert value is not None
    return renyi_to_epsilon(order, value, delta)


def best_renyi_delta(loss: Loss, epsilon: Fraction) -> Fraction:
    """Return the δ at ε that follows from the Rényi curve of a loss, at about its best order."""
    near = float(min(epsilon, _LARGEST_FLOAT))
    order = _best_order_of(loss, lambda a, value: _float_log_delta(a, value, near))
    value = loss.renyi(order)
    assert value is not None
    return renyi_to_delta(order, value, epsilon)


# Tails are summed term by term up to this σ; beyond it, rounding costs less than 0.02 % of σ.
SCALAR_UP_TO = 64
SUMMED_UP_TO = 1024
_KAPPA_EXPONENT = 30
_SIGNIFICANT = Fraction(1, 10**6)


def gaussian_delta(epsilon: Fraction, sigma: Fraction, l2_squared: Fraction, dimension: int) -> Fraction:
    """Return the least δ that is proved for discrete Gaussian noise at ε, rounded up."""
    by_zcdp = zcdp_to_delta(l2_squared / (2 * sigma * sigma), epsilon)
    if dimension == 1 and sigma <= SCALAR_UP_TO:
        return min(by_zcdp, _scalar_delta(epsilon, sigma, math.isqrt(int(l2_squared))))
    return min(by_zcdp, _vector_delta(epsilon, sigma, l2_squared, dimension))


def normal_cdf(x: arb) -> arb:
    """Return Φ(x)."""
    return (-x / arb(2).sqrt()).erfc() / 2


def continuous_delta(epsilon: arb, ratio: arb) -> arb:
    """Return δ of the continuous Gaussian at sensitivity / σ = ratio: Φ(r/2 - ε/r) - e^ε Φ(-r/2 - ε/r)."""
    shift = epsilon / ratio
    return normal_cdf(ratio / 2 - shift) - epsilon.exp() * normal_cdf(-ratio / 2 - shift)


def _scalar_delta(epsilon: Fraction, sigma: Fraction, distance: int) -> Fraction:
    """Return P[Y > y0 - d/2] - e^ε P[Y > y0 + d/2] with y0 = ε σ² / d, for integers at distance d."""
    if distance == 0:
        return Fraction(0)
    centre = epsilon * sigma * sigma / distance
    half = Fraction(distance, 2)
    with precision(BITS):
        near, far = gaussian_tail(sigma, centre - half), gaussian_tail(sigma, centre + half)
        return probability_up(near - ball(epsilon).exp() * far)


def gaussian_tail(sigma: Fraction, above: Fraction) -> arb:
    """Return P[Y > above] for discrete Gaussian Y, at the current precision."""
    first = math.floor(above) + 1
    if first < 1:
        return 1 - gaussian_tail(sigma, Fraction(-first))  # P[Y >= f] = 1 - P[Y >= 1 - f]
    if sigma > SUMMED_UP_TO:
        return _wide_tail(sigma, first)
    return _weights_from(sigma, first) / (1 + 2 * _weights_from(sigma, 1))


def _weights_from(sigma: Fraction, first: int) -> arb:
    """Return Σ exp(-k² / 2σ²) over k >= first >= 1."""
    rate = ball(1 / (2 * sigma * sigma))
    weight, ratio, fall = (-first * first * rate).exp(), (-(2 * first + 1) * rate).exp(), (-2 * rate).exp()
    total = weight
    for _ in range(math.ceil(sigma * 20) + 2):  # about exp(-200) of the first is left out, and added below
        weight *= ratio
        ratio *= fall
        total += weight
    return total + arb(0).union(weight * ratio / (1 - ratio))


def _wide_tail(sigma: Fraction, first: int) -> arb:
    """Return P[Y >= first] by the integral from first - ½ on, and the midpoint rule's error ∫|g''| / 8."""
    s, x = ball(sigma), ball(first - Fraction(1, 2))
    slope = x / s**2 * (-((x / s) ** 2) / 2).exp() if first > sigma + 1 else 2 / s
    off = slope / (8 * s * (2 * arb.pi()).sqrt())
    normaliser = 1 + arb(0).union(arb(-1000).exp())  # divided by that of the continuous law
    return (normal_cdf(-x / s) + (-off).union(off)) / normaliser


class RoundedGaussian(NamedTuple):
    """Discrete Gaussian noise seen as rounded continuous noise.

    `ratio` is sensitivity / σ of the continuous noise (infinite if there is none). Probabilities of
    the two agree up to factors that add `paid` to ε and multiply δ by at most e^paid.
    """

    ratio: arb
    paid: arb


def rounded_gaussian(sigma: Fraction, l2_squared: Fraction, dimension: int) -> RoundedGaussian:
    """Return the continuous Gaussian whose rounding the noise is, up to κ in every coordinate."""
    with precision(BITS):
        two_pi_squared = 2 * arb.pi() ** 2
        rounding = (_KAPPA_EXPONENT + arb(dimension).log()) / two_pi_squared
        decay = (-two_pi_squared * rounding).exp()
        kappa = 2 * decay / (1 - decay)
        # P(S) <= (1+κ)^k m(S) and m(S) <= ((1+κ)/(1-κ))^k P(S), for the rounded continuous law m.
        paid = dimension * ((1 + kappa) ** 2 / (1 - kappa)).log()
        variance = ball(sigma * sigma) - rounding
        ratio = (ball(l2_squared) / variance).sqrt() if variance > 0 else arb.pos_inf()
        return RoundedGaussian(ratio, paid)


def _vector_delta(epsilon: Fraction, sigma: Fraction, l2_squared: Fraction, dimension: int) -> Fraction:
    law = rounded_gaussian(sigma, l2_squared, dimension)
    with precision(BITS):
        left = ball(epsilon) - law.paid
        if not (law.ratio.is_finite() and left > 0):
            return Fraction(1)
        return probability_up(law.paid.exp() * continuous_delta(left, law.ratio))


def gaussian_sigma(epsilon: Fraction, delta: Fraction, l2_squared: Fraction, dimension: int) -> Fraction:
    """Return the least σ (to six significant digits, rounded up) that is (ε, δ)-private."""
    checked_epsilon(epsilon)
    if not checked_delta(delta) > 0:
        raise BadParameter("delta", "must be above 0: Gaussian noise is never purely private")

    def is_private(sigma: Fraction) -> bool:
        return gaussian_delta(epsilon, sigma, l2_squared, dimension) <= delta

    low, high = Fraction(1, 1000), Fraction(1)
    while not is_private(high):
        low, high = high, high * 2
        if high > 1 << 48:
            raise BadParameter("epsilon", "is so small that the noise would not fit 64-bit integers")
    _, high = narrow(is_private, low, high, _SIGNIFICANT)
    # A short decimal at or above `high`, checked like every other candidate.
    digits = 6 - math.ceil(math.log10(high))
    sigma = Fraction(math.ceil(high * Fraction(10) ** digits)) / Fraction(10) ** digits
    return sigma if is_private(sigma) else high


def gaussian_epsilon(delta: Fraction, sigma: Fraction, l2_squared: Fraction, dimension: int) -> Fraction:
    """Return the least ε (in 1e-9) at which the noise is proved to be (ε, δ)-private."""

    def is_private(units: int) -> bool:
        if units > 10**12:
            raise BadParameter("sigma", "is so small that ε would be above 1000")
        return gaussian_delta(Fraction(units, 10**9), sigma, l2_squared, dimension) <= delta

    return Fraction(least_from(is_private, 10**9), 10**9)
