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

from lapwing.audit.laws.decimals import Law, Rational, exp, precise


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
