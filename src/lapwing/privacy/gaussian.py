"""(ε, δ) of discrete Gaussian noise, by the tightest of three bounds that hold.

Claim    integer vectors within L2 distance Δ, plus independent discrete Gaussian noise at σ in each of
         k coordinates, are (ε, δ)-private for the δ given here.
Because  *scalar*: the log-ratio of shifted laws is linear in the output, so δ is a difference of two
         exact tail sums; larger shifts are easier to tell apart (the family has a monotone ratio).
         *vector*: up to a factor within (1 + κ)^k, the noise is a continuous Gaussian of variance
         σ² - s² followed by randomized rounding at s, where κ = 2 Σ exp(-2 π² s² j²). So the analytic
         formula of the continuous Gaussian holds after paying for κ, which is about 1e-13 / k here.
         *any*: Rényi divergence a Δ² / 2σ² at every order (zCDP).
Test     tests/claims/test_gaussian.py; docs/arguments/gaussian.md has the proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from flint import arb

from lapwing.errors import BadParameter
from lapwing.exact import ball, precision, upper
from lapwing.privacy.convert import BITS, probability_up, zcdp_to_delta
from lapwing.privacy.loss import checked_delta, checked_epsilon

# Summing tails term by term is worth it up to here; beyond, rounding costs under 0.02 % of σ.
SCALAR_UP_TO = 64
SUMMED_UP_TO = 1024
_KAPPA_EXPONENT = 30
_SIGNIFICANT = 10**6


def gaussian_delta(epsilon: Fraction, sigma: Fraction, l2_squared: Fraction, dimension: int) -> Fraction:
    """The least δ that is shown for discrete Gaussian noise, rounded up."""
    found = [zcdp_to_delta(l2_squared / (2 * sigma * sigma), epsilon)]
    if dimension == 1 and sigma <= SCALAR_UP_TO:
        found.append(_scalar_delta(epsilon, sigma, math.isqrt(int(l2_squared))))
    else:
        found.append(_vector_delta(epsilon, sigma, l2_squared, dimension))
    return min(found)


def normal_cdf(x: arb) -> arb:
    """Φ(x)."""
    return (-x / arb(2).sqrt()).erfc() / 2


def continuous_delta(epsilon: arb, ratio: arb) -> arb:
    """δ of the continuous Gaussian at sensitivity / σ = ratio: Φ(r/2 - ε/r) - e^ε Φ(-r/2 - ε/r)."""
    shift = epsilon / ratio
    return normal_cdf(ratio / 2 - shift) - epsilon.exp() * normal_cdf(-ratio / 2 - shift)


def _scalar_delta(epsilon: Fraction, sigma: Fraction, distance: int) -> Fraction:
    """P[Y > y0 - d/2] - e^ε P[Y > y0 + d/2] with y0 = ε σ² / d, for integers d apart."""
    if distance == 0:
        return Fraction(0)
    centre = epsilon * sigma * sigma / distance
    half = Fraction(distance, 2)
    with precision(BITS):
        near, far = tail(sigma, centre - half), tail(sigma, centre + half)
        return probability_up(near - ball(epsilon).exp() * far)


def tail(sigma: Fraction, above: Fraction) -> arb:
    """P[Y > above] for discrete Gaussian Y, at the current precision."""
    first = math.floor(above) + 1
    if first < 1:
        return 1 - tail(sigma, Fraction(-first))  # P[Y >= f] = 1 - P[Y >= 1 - f]
    if sigma > SUMMED_UP_TO:
        return _wide_tail(sigma, first)
    return _weights_from(sigma, first) / (1 + 2 * _weights_from(sigma, 1))


def _weights_from(sigma: Fraction, first: int) -> arb:
    """Σ exp(-k² / 2σ²) over k >= first >= 1."""
    rate = ball(1 / (2 * sigma * sigma))
    weight, ratio, fall = (-first * first * rate).exp(), (-(2 * first + 1) * rate).exp(), (-2 * rate).exp()
    total = weight
    for _ in range(math.ceil(sigma * 20) + 2):  # about exp(-200) of the first is left out, counted below
        weight *= ratio
        ratio *= fall
        total += weight
    return total + arb(0).union(weight * ratio / (1 - ratio))


def _wide_tail(sigma: Fraction, first: int) -> arb:
    """P[Y >= first] by the integral from first - ½ on, and the midpoint rule's error ∫|g''| / 8."""
    s, x = ball(sigma), ball(first - Fraction(1, 2))
    slope = x / s**2 * (-((x / s) ** 2) / 2).exp() if first > sigma + 1 else 2 / s
    off = slope / (8 * s * (2 * arb.pi()).sqrt())
    normaliser = 1 + arb(0).union(arb(-1000).exp())  # over that of the continuous law
    return (normal_cdf(-x / s) + (-off).union(off)) / normaliser


@dataclass(frozen=True, slots=True)
class Rounded:
    """Discrete Gaussian noise seen as rounded continuous noise.

    `ratio` is sensitivity / σ of the continuous noise (infinite if there is none); probabilities of
    the two agree up to factors that add `paid` to ε and multiply δ by at most e^paid.
    """

    ratio: arb
    paid: arb

    @property
    def paid_up(self) -> Fraction:
        """`paid`, rounded up."""
        return upper(self.paid)


def rounded_from(sigma: Fraction, l2_squared: Fraction, dimension: int) -> Rounded:
    """The continuous Gaussian whose rounding the noise is, up to κ in every coordinate."""
    with precision(BITS):
        two_pi_squared = 2 * arb.pi() ** 2
        rounding = (_KAPPA_EXPONENT + arb(dimension).log()) / two_pi_squared
        decay = (-two_pi_squared * rounding).exp()
        kappa = 2 * decay / (1 - decay)
        # P(S) <= (1+κ)^k m(S) and m(S) <= ((1+κ)/(1-κ))^k P(S), for the rounded continuous law m.
        paid = dimension * ((1 + kappa) ** 2 / (1 - kappa)).log()
        variance = ball(sigma * sigma) - rounding
        ratio = (ball(l2_squared) / variance).sqrt() if variance > 0 else arb.pos_inf()
        return Rounded(ratio, paid)


def _vector_delta(epsilon: Fraction, sigma: Fraction, l2_squared: Fraction, dimension: int) -> Fraction:
    law = rounded_from(sigma, l2_squared, dimension)
    with precision(BITS):
        left = ball(epsilon) - law.paid
        if not (law.ratio.is_finite() and left > 0):
            return Fraction(1)
        return probability_up(law.paid.exp() * continuous_delta(left, law.ratio))


def gaussian_sigma(epsilon: Fraction, delta: Fraction, l2_squared: Fraction, dimension: int) -> Fraction:
    """The least σ (to six significant digits, rounded up) that is (ε, δ)-private."""
    checked_epsilon(epsilon)
    if not checked_delta(delta) > 0:
        raise BadParameter("delta", "must be above 0: Gaussian noise is never purely private")
    low, high = Fraction(1, 1000), Fraction(1)
    while gaussian_delta(epsilon, high, l2_squared, dimension) > delta:
        low, high = high, high * 2
        if high > 1 << 48:
            raise BadParameter("epsilon", "is so small that the noise would not fit 64-bit integers")
    while high - low > high / _SIGNIFICANT:
        middle = (low + high) / 2
        if gaussian_delta(epsilon, middle, l2_squared, dimension) > delta:
            low = middle
        else:
            high = middle
    # A short decimal at or above `high`, checked like every other candidate.
    digits = 6 - math.ceil(math.log10(high))
    sigma = Fraction(math.ceil(high * Fraction(10) ** digits)) / Fraction(10) ** digits
    return sigma if gaussian_delta(epsilon, sigma, l2_squared, dimension) <= delta else high


def gaussian_epsilon(delta: Fraction, sigma: Fraction, l2_squared: Fraction, dimension: int) -> Fraction:
    """The least ε (in 1e-9) at which the noise is shown to be (ε, δ)-private."""
    low, high = 0, 10**9
    while gaussian_delta(Fraction(high, 10**9), sigma, l2_squared, dimension) > delta:
        low, high = high, high * 2
        if high > 10**12:
            raise BadParameter("sigma", "is so small that ε would be above 1000")
    while high - low > 1:
        middle = (low + high) // 2
        if gaussian_delta(Fraction(middle, 10**9), sigma, l2_squared, dimension) > delta:
            low = middle
        else:
            high = middle
    return Fraction(high, 10**9)
