"""Which mechanism chooses: the one that errs less at equal cost, in the filter that binds the account.

Where pure ε is what runs out, permute-and-flip is never worse than the exponential mechanism. Where a
Rényi order is, the exponential mechanism may have about twice the ε for the same cost, because its
log-ratios span a range of only ε. Everything here is computed from public numbers, and looking is free.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from lapwing.errors import BadParameter
from lapwing.exact import Number, positive, whole
from lapwing.mechanisms import Exponential, PermuteAndFlip
from lapwing.privacy import BoundedRange, Loss, Pure, Terms
from lapwing.privacy.charge import DELTA, DELTA0, EPSILON, EPSILON_UNIT, FIRST_ORDER
from lapwing.privacy.loss import LARGEST_EPSILON, checked_epsilon

Choice = Exponential | PermuteAndFlip


def binding_filter(terms: Terms, loss: Loss, *, spent: tuple[int, ...] | None = None) -> int:
    """The place, in a charge, of the filter that would admit most releases of this loss.

    An account goes on while one filter holds, so the one that lasts longest decides.
    """
    charge = terms.price(loss)
    sums = terms.nothing_spent if spent is None else spent

    def fits(place: int) -> Fraction:
        left = terms.caps[place] - sums[place]
        return Fraction(left, max(charge.costs[place], 1)) if left >= 0 else Fraction(-1)

    if terms.caps[DELTA0] < sums[DELTA0] + charge.costs[DELTA0]:
        raise BadParameter("spent", "leaves no δ for such a loss")
    places: list[int] = [EPSILON, *range(FIRST_ORDER, len(terms.caps))]
    if charge.costs[DELTA] > terms.caps[DELTA] - sums[DELTA]:
        places.remove(EPSILON)
    best = max(places, key=fits)
    if fits(best) < 0:
        raise BadParameter("spent", "leaves nothing in any filter")
    return best


def choice_for(
    epsilon: Number,
    *,
    sensitivity: Number,
    candidates: int,
    terms: Terms,
    spent: tuple[int, ...] | None = None,
) -> Choice:
    """The mechanism that errs less, among those that cost what pure ε costs in the binding filter."""
    e, moved = checked_epsilon(epsilon), positive(sensitivity, "sensitivity")
    count = whole(candidates, "candidates", at_least=1)
    flip = PermuteAndFlip(e, moved)
    place = binding_filter(terms, flip.loss, spent=spent)
    choice = Exponential(_equal_epsilon(terms, e, place), moved)
    return choice if worst_error(choice, count) < worst_error(flip, count) else flip


def _equal_epsilon(terms: Terms, epsilon: Fraction, place: int) -> Fraction:
    """The greatest ε (in ledger units) at which the exponential mechanism costs no more in this filter."""
    most = terms.price(Pure(epsilon)).costs[place]

    def fits(units: int) -> bool:
        return terms.price(BoundedRange(Fraction(units, EPSILON_UNIT))).costs[place] <= most

    low = math.floor(epsilon * EPSILON_UNIT)  # a range is never dearer than any pure ε
    high = min(4 * low, int(LARGEST_EPSILON) * EPSILON_UNIT) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return max(Fraction(low, EPSILON_UNIT), epsilon if place == EPSILON else Fraction(0))


def worst_error(choice: Choice, candidates: int) -> float:
    """The greatest mean distance below the best score, if all others are equally far below it.

    Floats: it decides which mechanism is used, never what it costs.
    """
    rate, others = float(choice.rate), candidates - 1
    if not others:
        return 0.0
    error: Callable[[float], float] = (
        exponential_error if isinstance(choice, Exponential) else flip_error
    )(others)
    # In units of 1/rate the worst gap lies below ln(candidates) + 3.
    points = (math.log(candidates) + 3) / 400
    return max(error(k * points) for k in range(1, 401)) / rate


def exponential_error(others: int) -> Callable[[float], float]:
    """The mean distance of the exponential mechanism's choice, at a gap in units of 1/rate."""

    def at(gap: float) -> float:
        weight = others * math.exp(-gap)
        return gap * weight / (1 + weight)

    return at


def flip_error(others: int) -> Callable[[float], float]:
    """The same of permute-and-flip: the best is taken with (1 - (1-p)^k) / kp, p = e^-gap, k in all."""

    def at(gap: float) -> float:
        p, k = math.exp(-gap), others + 1
        return gap * (1 + math.expm1(k * math.log1p(-p)) / (k * p))

    return at
