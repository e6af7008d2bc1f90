"""Laws of noise: discrete Laplace, discrete Gaussian, and shares of them.

By brute force, from the descriptions alone. Endless outcomes are cut where less than 1e-30 is left, or
gathered into one outcome where their probabilities on both inputs have one ratio.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import product
from operator import mul

from lapwing.audit.laws.decimals import Law, Rational, dec, exp, precise

# Shares of Laplace noise are listed up to e^-74, as sums of products down to e^-140.
_SHARE_NATS = 74
_SHARE_TERM_NATS = 70


def shifts(dimension: int, l1: int) -> Iterator[tuple[int, ...]]:
    """Yield all whole vectors within this L1 distance of 0."""
    for vector in product(range(-l1, l1 + 1), repeat=dimension):
        if sum(map(abs, vector)) <= l1:
            yield vector


# Discrete Laplace noise


@cache
@precise
def laplace_at_least(scale: Rational, k: int) -> Decimal:
    """Return P[noise >= k], from the sum of a geometric series."""
    q = exp(Fraction(-1) / scale)
    return q**k / (1 + q) if k >= 1 else 1 - q ** (1 - k) / (1 + q)


@precise
def laplace(scale: Rational, centre: int, low: int, high: int) -> Law:
    """Return the law of centre + noise on low .. high. Each end stands for all that lies beyond it."""
    q = exp(Fraction(-1) / scale)
    law: dict[Hashable, Decimal] = {
        k: q ** abs(k - centre) * (1 - q) / (1 + q) for k in range(low, high + 1)
    }
    law[low], law[high] = laplace_at_least(scale, centre - low), laplace_at_least(scale, high - centre)
    return law


@precise
def independent(*laws: Law) -> Law:
    """Return the joint law of independent outcomes."""
    joint: dict[Hashable, Decimal] = {}
    for outcomes in product(*laws):
        probability = Decimal(1)
        for law, outcome in zip(laws, outcomes, strict=True):
            probability *= law[outcome]
        joint[outcomes] = probability
    return joint


# Discrete Gaussian noise


@cache
@precise
def _gaussian_weight(sigma: Rational, k: int) -> Decimal:
    return exp(Fraction(-k * k) / (2 * sigma * sigma))


@cache
@precise
def _gaussian_total(sigma: Rational) -> Decimal:
    reach = math.ceil(sigma * 17) + 2
    return 1 + 2 * sum((_gaussian_weight(sigma, k) for k in range(1, reach)), Decimal(0))


@precise
def gaussian(sigma: Rational, centre: int, low: int, high: int) -> Law:
    """Return the law of centre + noise on low .. high. The rest, which must be small, is left out."""
    whole = _gaussian_total(sigma)
    return {k: _gaussian_weight(sigma, abs(k - centre)) / whole for k in range(low, high + 1)}


@precise
def summed(law: Law, count: int) -> Law:
    """Return the law of the sum of `count` independent whole numbers with this law."""
    total: dict[int, Decimal] = {0: Decimal(1)}
    for _ in range(count):
        longer: dict[int, Decimal] = {}
        for one, p in total.items():
            for other, q in law.items():
                longer[one + other] = longer.get(one + other, Decimal(0)) + p * q
        total = longer
    return total


def moved(law: Law, distance: int) -> Law:
    """Return the law of an outcome plus `distance`."""
    return {outcome + distance: probability for outcome, probability in law.items()}


def shifted_pair(law: Law, distance: int) -> tuple[Law, Law]:
    """Return the laws of noise, and of noise plus `distance`, on the outcomes that both list.

    The ends that only one of them lists are left out: they must be small.
    """
    other = moved(law, distance)
    both = [outcome for outcome in law if outcome in other]
    return {outcome: law[outcome] for outcome in both}, {outcome: other[outcome] for outcome in both}


# Shares of noise


@cache
@precise
def _polya(scale: Rational, part: Fraction, terms: int) -> list[Decimal]:
    """Return P[0], P[1], ... of a Polya variable: binomial(k + part - 1, k) (1 - q)^part q^k."""
    q = exp(Fraction(-1) / scale)
    law = [((1 - q).ln() * dec(part)).exp()]
    for k in range(1, terms):
        law.append(law[-1] * q * dec((k + part - 1) / k))
    return law


@cache
@precise
def laplace_shares(scale: Rational, of: int, present: int) -> Law:
    """Return the law of a sum of `present` shares, of which `of` make one discrete Laplace noise.

    A share is the difference of two Polya variables with 1/of. Less than 1e-30 is left out.
    """
    part = Fraction(present, of)
    reach = math.ceil(scale * (_SHARE_NATS + 8 * math.ceil(part))) + 2
    terms = math.ceil(scale * _SHARE_TERM_NATS) + 2
    one_side = _polya(scale, part, terms + reach)
    half = [sum(map(mul, one_side[k : k + terms], one_side), Decimal(0)) for k in range(reach + 1)]
    return {k: half[abs(k)] for k in range(-reach, reach + 1)}


@cache
@precise
def gaussian_shares(sigma: Rational, present: int, reach: int) -> Law:
    """Return the law of a sum of `present` discrete Gaussian noises, each of them within `reach` of 0."""
    return summed(gaussian(sigma, 0, -reach, reach), present)
