"""Further exact laws and distances, beside those of `lapwing.audit.laws`: only tests compare with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import product

from lapwing.audit.laws import ZERO, Direction, Law, Rational, dec, exp, exponential, precise


def shifts(dimension: int, l1: int) -> Iterator[tuple[int, ...]]:
    """Yield all whole vectors within this L1 distance of 0."""
    for vector in product(range(-l1, l1 + 1), repeat=dimension):
        if sum(map(abs, vector)) <= l1:
            yield vector


@precise
def quantile(values: Sequence[int], fraction: Rational, first: int, last: int, rate: Rational) -> Law:
    """Return the law of a quantile: y has weight exp(-rate * distance).

    The distance is that from the wanted rank to the ranks that y holds.
    """
    inside = [min(max(value, first), last) for value in values]
    wanted = (1 - Fraction(fraction)) * len(inside)
    scores = []
    for y in range(first, last + 1):
        above, not_below = sum(x > y for x in inside), sum(x >= y for x in inside)
        scores.append(-max(above - wanted, wanted - not_below, Fraction(0)))
    law = exponential(scores, rate)
    return {first + i: law[i] for i in range(len(scores))}


@precise
def keep_probabilities(epsilon: Rational, delta: Rational, up_to: int) -> list[Decimal]:
    """Return the greatest p(n) that (ε, δ) allows between n - 1 and n units, from p(0) = 0 on."""
    e, d = exp(epsilon), dec(delta)
    keep = [Decimal(0)]
    for _ in range(up_to):
        before = keep[-1]
        keep.append(min(e * before + d, 1 - (1 - before - d) / e, Decimal(1)))
    return keep


@precise
def excess(one: Law, other: Law, epsilon: Rational) -> Decimal:
    """Return the least δ at ε: Σ max(0, one - e^ε other), the best event for an attacker."""
    e = exp(epsilon)
    return sum((max(one[o] - e * other.get(o, ZERO), ZERO) for o in one), ZERO)


@precise
def epsilon_at(one: Law, other: Law, delta: Rational) -> Decimal:
    """Return the least ε >= 0 with one(S) <= e^ε other(S) + δ for each event S. It may be infinite."""
    return Direction(one, other).epsilon_at(dec(delta))


@precise
def renyi(one: Law, other: Law, order: Rational) -> Decimal:
    """Return the Rényi divergence of `one` from `other`. It may be infinite."""
    return Direction(one, other).renyi(order)


@precise
def gathered(one: Law, other: Law, places: Iterable[object]) -> tuple[Law, Law]:
    """Return both laws with each outcome replaced by its place, in the order of the outcomes of `one`.

    Nothing is lost if outcomes with one place have one ratio of probabilities.
    """
    first: dict[object, Decimal] = {}
    second: dict[object, Decimal] = {}
    for outcome, place in zip(one, places, strict=True):
        first[place] = first.get(place, ZERO) + one[outcome]
        second[place] = second.get(place, ZERO) + other[outcome]
    return first, second
