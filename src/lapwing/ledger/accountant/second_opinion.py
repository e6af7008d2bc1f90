"""A second opinion on prices and caps: never lower than the textbook says, never higher than (ε, δ) allows.

Each cost stands for itself, since a filter looks at one of them alone. A price may be too high.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from lapwing.ledger.accountant.balance import Findings
from lapwing.ledger.accountant.textbook import NotPriced, Opinion, log_of, opinion_on

EPSILON_UNIT, DELTA_UNIT = 10**9, 10**18
# How far floats may be off, in parts and in ledger units.
RELATIVE, ABSOLUTE = 1e-9, 1e-3
SHARES = (Fraction(9, 100), Fraction(27, 100), Fraction(36, 100), Fraction(9, 100), Fraction(9, 100))
ONLY_ADD_REMOVE = frozenset({"Worst", "SampledGaussian"})
ADD_REMOVE = "add or remove one unit"
REMEMBERED = 50_000


class Unreadable(Exception):
    """Not the description of a loss."""


def opinion(description: Any, orders: Sequence[int]) -> Opinion | None:
    """What a described loss costs at least, at these orders; None if that is not known here."""
    try:
        return opinion_on(description, tuple(orders))
    except NotPriced:
        return None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise Unreadable from None


def cost_objection(least: Opinion, costs: Sequence[int], caps: Sequence[int]) -> int | None:
    """The place of the first cost that is too low. What exceeds its cap is never too low."""
    wanted: list[float | int | None] = [math.ceil(least.delta0 * DELTA_UNIT)]
    if least.is_partial:
        wanted += [0, 0]
    elif least.pair is None:
        wanted += [None, None]
    else:
        wanted += [math.ceil(least.pair[0] * EPSILON_UNIT), math.ceil(least.pair[1] * DELTA_UNIT)]
    if least.renyi is None:
        wanted += [None] * len(SHARES)
    else:
        wanted += [value * EPSILON_UNIT * (1 - RELATIVE) - ABSOLUTE for value in least.renyi]
    for k, (cost, low, cap) in enumerate(zip(costs, wanted, caps, strict=True)):
        if cost <= cap and (low is None or not cost >= low):
            return k
    return None


def caps_objection(
    epsilon: Fraction, delta: Fraction, orders: Sequence[int], caps: Sequence[int]
) -> int | None:
    """The place of the first cap that does not follow from (ε, δ)."""
    shares = (delta * 6 / 100 * DELTA_UNIT, epsilon * EPSILON_UNIT, delta * 4 / 100 * DELTA_UNIT)
    for k, exactly in enumerate(shares):
        if caps[k] != math.floor(exactly):
            return k
    for k, (order, share, cap) in enumerate(zip(orders, SHARES, caps[3:], strict=True), 3):
        own = -1.0
        if delta:
            # From ε = r + ln((a-1)/a) - (ln δ + ln a) / (a - 1), solved for r.
            paid = (log_of(delta * share) + math.log(order)) / (order - 1)
            own = max((float(epsilon) - math.log1p(-1 / order) + paid) * EPSILON_UNIT, -1.0)
        if not -1 - ABSOLUTE - abs(own) * RELATIVE <= cap - own <= ABSOLUTE:  # caps are rounded down
            return k
    return None


class Prices:
    """Compares prices with second opinions, each only once."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._opinions: dict[tuple[bytes, tuple[int, ...]], Opinion | None] = {}
        self.checked = 0
        self.unchecked = 0

    def count(self, *, is_checked: bool) -> None:
        """One more price, with a second opinion or without."""
        self.checked += is_checked
        self.unchecked += not is_checked

    def is_checked(
        self,
        entry: int,
        *,
        loss: bytes,
        description: Any,
        relation: str,
        orders: tuple[int, ...],
        costs: Sequence[int],
        caps: Sequence[int],
    ) -> bool:
        """Whether there is a full second opinion on this price. Whatever is wrong with it is a finding."""
        try:
            least = self.opinion(loss, description, orders)
        except Unreadable:
            self._findings.add(f"entry {entry}: what it was charged for is not the description of a loss")
            return False
        if least is None:
            return False
        if relation != ADD_REMOVE and least.kinds & ONLY_ADD_REMOVE:
            self._findings.add(f"entry {entry}: its loss holds only where neighbours {ADD_REMOVE}")
        k = cost_objection(least, costs, caps)
        if k is not None:
            self._findings.add(f"entry {entry}: its cost number {k} is less than its loss costs at least")
        return not least.is_partial

    def opinion(self, loss: bytes, description: Any, orders: tuple[int, ...]) -> Opinion | None:
        """The second opinion on a loss, remembered by its text."""
        known = self._opinions
        if (loss, orders) not in known:
            if len(known) >= REMEMBERED:
                known.clear()
            known[loss, orders] = opinion(description, orders)
        return known[loss, orders]
