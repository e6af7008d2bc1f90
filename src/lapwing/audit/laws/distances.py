"""Distances between two laws: the true ε, the curve δ(ε), and Rényi divergences.

Claim    `excess` is the least δ at ε, and `epsilon_at` the least ε at δ, of two laws in one direction.
Because  P(S) <= e^ε Q(S) + δ must hold for each event S, and the event {p > e^ε q} needs the most δ:
         Σ max(0, p - e^ε q). Solved for ε, the best event has all outcomes above some ratio p / q.
Test     tests/audit/laws/test_distances.py
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate
from typing import Any

from lapwing.audit.laws.decimals import Law, Rational, dec, exp, precise
from lapwing.errors import BadParameter

ZERO = Decimal(0)
INFINITY = Decimal("Infinity")


@precise
def total(law: Law) -> Decimal:
    """Return the sum of all probabilities: 1, if no outcome is left out."""
    return sum(law.values(), ZERO)


@precise
def log_ratio(one: Law, other: Law) -> Decimal:
    """Return the greatest |ln(one / other)| over the outcomes: the least ε that is purely private."""
    if one.keys() != other.keys():
        raise BadParameter("other", "must have the same outcomes as one")
    return max(max(one[o] / other[o], other[o] / one[o]) for o in one).ln()


@precise
def renyi(one: Law, other: Law, order: Rational) -> Decimal:
    """Return the Rényi divergence of `one` from `other`. It may be infinite."""
    return Direction(one, other).renyi(order)


@precise
def excess(one: Law, other: Law, epsilon: Rational) -> Decimal:
    """Return the least δ at ε: Σ max(0, one - e^ε other), the best event for an attacker."""
    e = exp(epsilon)
    return sum((max(one[o] - e * other.get(o, ZERO), ZERO) for o in one), ZERO)


@precise
def epsilon_at(one: Law, other: Law, delta: Rational) -> Decimal:
    """Return the least ε >= 0 with one(S) <= e^ε other(S) + δ for each event S. It may be infinite."""
    return Direction(one, other).epsilon_at(dec(delta))


class Direction:
    """All distances of one law from another, in this direction; quick for many ε and orders.

    Outcomes are sorted by their ratio one / other, greatest first. So each best event is a first part.
    """

    @precise
    def __init__(self, one: Law, other: Law) -> None:
        cells = [(_ratio(p, other.get(o, ZERO)), p, other.get(o, ZERO), o) for o, p in one.items() if p]
        cells.sort(key=lambda cell: cell[0], reverse=True)
        self._cells = cells
        self._falling = [-cell[0] for cell in cells]
        self._one = [ZERO, *accumulate(cell[1] for cell in cells)]
        self._other = [ZERO, *accumulate(cell[2] for cell in cells)]

    @precise
    def excess(self, epsilon: Rational) -> Decimal:
        """Return the least δ at ε."""
        factor, size = exp(epsilon), self._event_size(epsilon)
        return self._one[size] - factor * self._other[size]

    @precise
    def epsilon_at(self, delta: Decimal) -> Decimal:
        """Return the least ε >= 0 at δ. It may be infinite."""
        best = Decimal(1)
        for p, q in zip(self._one, self._other, strict=True):
            if p > delta:
                best = max(best, _ratio(p - delta, q))
        return best.ln() if best.is_finite() else INFINITY

    @precise
    def renyi(self, order: Rational) -> Decimal:
        """Return the Rényi divergence. It may be infinite."""
        if not self._cells or self._cells[0][0] == INFINITY:
            return INFINITY
        power = Decimal(order.numerator - 1) if order.denominator == 1 else dec(order - 1)
        moment = sum((p * ratio**power for ratio, p, _, _ in self._cells), ZERO)
        return moment.ln() / power

    @precise
    def event(self, epsilon: Rational) -> tuple[list[Any], Decimal, Decimal]:
        """Return the outcomes with one > e^ε other, and the probabilities of this event under both."""
        size = self._event_size(epsilon)
        return [cell[3] for cell in self._cells[:size]], self._one[size], self._other[size]

    def _event_size(self, epsilon: Rational) -> int:
        return bisect_left(self._falling, -exp(epsilon))


def _ratio(p: Decimal, q: Decimal) -> Decimal:
    return p / q if q else INFINITY


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


# δ that follows from other bounds


@precise
def delta_of_pure(pure: Rational, delta: Rational, epsilon: Rational) -> Decimal:
    """Return the δ at ε that (pure, δ)-privacy implies: that of randomized response, beside δ."""
    d = dec(delta)
    if epsilon >= pure:
        return d
    top = exp(pure)
    return d + (1 - d) * (top - exp(epsilon)) / (1 + top)


@lru_cache(maxsize=1024)
@precise
def _renyi_factor(order: Rational) -> Decimal:
    a = dec(order)
    return ((a - 1) * (1 - 1 / a).ln()).exp() / a


@precise
def delta_of_renyi(order: Rational, value: Rational, epsilon: Rational) -> Decimal:
    """Return the δ at ε that a Rényi divergence implies: exp((a-1)(value-ε)) (1 - 1/a)^(a-1) / a."""
    return min(Decimal(1), exp((order - 1) * (value - epsilon)) * _renyi_factor(order))
