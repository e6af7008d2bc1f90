"""What many blocks have left, at once: the largest pure ε that a next question could spend on each.

`Terms.largest_pure` decides by trying, which takes milliseconds: too long for thirty thousand blocks.
Here floats find the place, and `exactly` has the filter itself say yes just below and no just above it.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing.ledger.entry import Costs
from lapwing.privacy import Pure, Terms
from lapwing.privacy.charge import DELTA, DELTA0, DELTA_UNIT, EPSILON, EPSILON_UNIT, FIRST_ORDER

Reals = NDArray[np.float64]
HALVINGS = 60
NEARBY = 4  # ledger units


def nearly(terms: Terms, taken: NDArray[np.int64], *, halvings: int = HALVINGS) -> Reals:
    """What is left for each row of sums, in floats. Pictures need fewer halvings than ledger units do."""
    caps = np.array(terms.caps, np.int64)
    room = (caps - taken) / EPSILON_UNIT
    by_pair = np.where(taken[:, DELTA] <= caps[DELTA], np.maximum(room[:, EPSILON], 0), 0)
    best = by_pair
    for k, order in enumerate(terms.orders, FIRST_ORDER):
        best = np.maximum(best, _pure_within(order, room[:, k], halvings))
    return np.where(taken[:, DELTA0] <= caps[DELTA0], best, 0.0)


def _pure_within(order: int, room: Reals, halvings: int) -> Reals:
    """The greatest ε whose Rényi divergence at this order is at most `room`; 0 where there is no room."""
    low = np.maximum(room, 0)  # no divergence exceeds ε
    # It is at least ε - ln 2 / (order - 1).
    high = low + np.log(2) / (order - 1)
    for _ in range(halvings):
        middle = (low + high) / 2
        fits = _divergence(order, middle) <= room
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.where(room >= 0, low, 0.0)


def _divergence(order: int, epsilon: Reals) -> Reals:
    """Of randomized response, which is the worst of all that is purely ε-private."""
    return epsilon + (np.log1p(np.exp(-(2 * order - 1) * epsilon)) - np.log1p(np.exp(-epsilon))) / (
        order - 1
    )


def exactly(terms: Terms, sums: Iterable[Costs]) -> dict[Costs, Fraction]:
    """`Terms.largest_pure` for every sum of these, each computed once."""
    different = list(dict.fromkeys(sums))
    if not different:
        return {}
    guesses = nearly(terms, np.array(different, np.int64))
    return {
        taken: _confirmed(terms, taken, int(guess * EPSILON_UNIT))
        for taken, guess in zip(different, guesses.tolist(), strict=True)
    }


def _confirmed(terms: Terms, taken: Costs, guess: int) -> Fraction:
    def fits(units: int) -> bool:
        return terms.after(taken, terms.price(Pure(Fraction(units, EPSILON_UNIT)))) is not None

    units = max(guess, 0)
    for _ in range(NEARBY):
        if fits(units + 1):
            units += 1
        elif units and not fits(units):
            units -= 1
        else:
            return Fraction(units, EPSILON_UNIT)
    return terms.largest_pure(taken)


def delta_left(terms: Terms, taken: Costs) -> Fraction:
    """The greatest probability of failure that a next question may have, if its ε fits."""
    return Fraction(max(terms.caps[DELTA0] - taken[DELTA0], 0), DELTA_UNIT)
