"""Lifetime budgets: charges, the terms of an account, and the filter that admits or refuses a charge.

**The filter** decides whether one more charge fits a lifetime budget (ε, δ).

Claim    all admitted releases together are (ε, δ)-private, even if each charge is chosen from the
         earlier answers.
Because  seven filters run side by side. Each is valid on its own for adaptive choices with its own
         share of δ. Going on while at least one holds costs the sum of their shares.
         docs/arguments/portfolio.md has the proof.
Test     tests/claims/test_portfolio.py

**A charge** is the price of a loss in whole units, rounded up, for the Rényi orders that an account fixed.
Units: δ in 1e-18, ε and Rényi values in 1e-9. A bound that a loss does not have costs `NEVER`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from lapwing.core.conversions import renyi_cap
from lapwing.core.exact import (
    Number,
    least_near,
    least_where,
    round_down,
    round_up,
    set_fields,
    short_up,
    whole,
)
from lapwing.core.losses import ZERO, Loss, Pure, checked_delta, checked_epsilon
from lapwing.core.process_bound import FORK_COUNTER, ProcessBound
from lapwing.core.renyi_curves import response_epsilon_guess
from lapwing.errors import BadParameter, OverBudget

EPSILON_UNIT = 10**9
DELTA_UNIT = 10**18
NEVER = 1 << 62

_new, _set = object.__new__, object.__setattr__

# The places of the costs in the vector.
DELTA0, EPSILON, DELTA, FIRST_ORDER = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Charge:
    """The price of a release: costs in the order δ₀, ε_b, δ_b, then the Rényi value at each of `orders`."""

    orders: tuple[int, ...]
    costs: tuple[int, ...]

    def __post_init__(self) -> None:
        assert len(self.costs) == FIRST_ORDER + len(self.orders)
        assert min(self.costs) >= 0  # a cost below 0 would give budget back


def price(loss: Loss, orders: tuple[int, ...]) -> Charge:
    """Return the charge for `loss` in an account with these orders. Every cost is rounded up."""
    delta0 = loss.delta0
    costs = (
        0 if delta0 is ZERO else round_up(delta0, DELTA_UNIT),
        *(loss.pair_units(EPSILON_UNIT, DELTA_UNIT) or (NEVER, NEVER)),
        *(loss.renyi_units(orders, EPSILON_UNIT) or [NEVER] * len(orders)),
    )
    if max(costs) > NEVER:
        costs = tuple([min(cost, NEVER) for cost in costs])
    # Losses are not negative, so the costs need no second check; and this code runs for every release.
    charge = _new(Charge)
    _set(charge, "orders", orders)
    _set(charge, "costs", costs)
    return charge


# The shares of δ: for δ₀ (paid once for all filters), for Σ(ε_b, δ_b), and for each order.
SHARE_DELTA0 = Fraction(6, 100)
SHARE_PAIR = Fraction(4, 100)
SHARE_ORDERS = tuple(Fraction(share, 100) for share in (9, 27, 36, 9, 9))
ORDER_RATIOS = tuple(Fraction(ratio, 10) for ratio in (6, 8, 10, 16, 30))
# The binomial sums of the sampled Gaussian have as many terms as the order.
LARGEST_CENTRE = 100_000
OTHER_ORDERS = "was priced for other orders than this account's"
assert SHARE_DELTA0 + SHARE_PAIR + sum(SHARE_ORDERS) == 1


@dataclass(frozen=True, slots=True)
class DeltaShares:
    """The fixed shares into which δ is divided for life. Setting a share aside spends nothing of it."""

    failures: Fraction  # for answers that may fail to keep their ε: those with keys that are not declared
    whole_runs: Fraction  # for runs that are priced as one (ε, δ)
    filters: Fraction  # for the Rényi filters, by which many answers cost less than the sum of their prices

    @classmethod
    def of(cls, delta: Fraction) -> DeltaShares:
        """Return the shares of an account's δ."""
        return cls(delta * SHARE_DELTA0, delta * SHARE_PAIR, delta * sum(SHARE_ORDERS))


@lru_cache(maxsize=1024)  # every account with these terms asks again
def best_order(epsilon: Fraction, delta: Fraction) -> int:
    """Return the whole order at which most zCDP charges fit: where cap / order is greatest."""

    def worth(order: int) -> Fraction:  # it rises, then falls
        return renyi_cap(order, epsilon, delta) / order

    return least_where(lambda order: worth(order) >= worth(order + 1), 1, LARGEST_CENTRE)


def default_orders(epsilon: Fraction, delta: Fraction) -> tuple[int, ...]:
    """Return five distinct whole orders around the best one."""
    if delta == 0:
        return (2, 3, 4, 5, 6)
    centre = best_order(epsilon, delta * SHARE_ORDERS[2])
    orders: list[int] = []
    for ratio in ORDER_RATIOS:
        orders.append(max(round(centre * ratio), (orders[-1] if orders else 1) + 1))
    return tuple(orders)


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a lifetime budget (ε, δ), fixed when an account is opened.

    `orders` are the Rényi orders at which charges are priced. `caps` are the most that may be spent, in the
    order of a charge's costs.
    """

    epsilon: Fraction
    delta: Fraction
    orders: tuple[int, ...]
    caps: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        set_fields(self, epsilon=checked_epsilon(self.epsilon), delta=checked_delta(self.delta))
        orders = tuple([whole(order, "orders", at_least=2) for order in self.orders])
        if len(orders) != len(SHARE_ORDERS) or tuple(sorted(set(orders))) != orders:
            raise BadParameter("orders", "must be five rising whole numbers")
        caps = [
            round_down(self.delta * SHARE_DELTA0, DELTA_UNIT),
            round_down(self.epsilon, EPSILON_UNIT),
            round_down(self.delta * SHARE_PAIR, DELTA_UNIT),
        ]
        for order, share in zip(orders, SHARE_ORDERS, strict=True):
            # A filter with a cap below 0 never holds; -1 keeps even a free charge out of it.
            delta = self.delta * share
            cap = renyi_cap(order, self.epsilon, delta) if delta else Fraction(-1)
            caps.append(max(round_down(cap, EPSILON_UNIT), -1))
        set_fields(self, orders=orders, caps=tuple(caps))

    @classmethod
    def of(cls, epsilon: Number, delta: Number) -> Terms:
        """Return the terms for a lifetime (ε, δ) with the default orders."""
        e, d = checked_epsilon(epsilon), checked_delta(delta)
        return cls(e, d, default_orders(e, d))

    @property
    def nothing_spent(self) -> tuple[int, ...]:
        """The sums of an account that has been charged nothing."""
        return (0,) * len(self.caps)

    def price(self, loss: Loss) -> Charge:
        """Return the charge for a loss under these terms."""
        return price(loss, self.orders)

    def after(self, spent: tuple[int, ...], charge: Charge) -> tuple[int, ...] | None:
        """Return the sums after `charge`, or None if no filter would still hold. Change nothing.

        The sum of an exceeded filter stays at its cap + 1 for ever: sums only grow.
        """
        if charge.orders is not self.orders and charge.orders != self.orders:
            raise BadParameter("charge", OTHER_ORDERS)
        caps = self.caps
        each = zip(spent, charge.costs, caps, strict=True)
        sums = tuple([total if (total := before + cost) <= cap else cap + 1 for before, cost, cap in each])
        if sums[DELTA0] > caps[DELTA0]:
            return None
        if sums[EPSILON] <= caps[EPSILON] and sums[DELTA] <= caps[DELTA]:
            return sums
        for k in range(FIRST_ORDER, len(caps)):
            if sums[k] <= caps[k]:
                return sums
        return None

    def largest_pure(self, spent: tuple[int, ...]) -> Fraction:
        """Return the greatest single pure ε that would still be admitted (whole ledger units).

        If δ is large, this can be more than the ε of the terms.
        """

        def exceeds(units: int) -> bool:
            return self.after(spent, self.price(Pure(Fraction(units, EPSILON_UNIT)))) is None

        # Where each filter alone would stop: the largest of these is the result, or next to it.
        room = [max(cap - before, 0) for cap, before in zip(self.caps, spent, strict=True)]
        by_order = zip(self.orders, room[FIRST_ORDER:], strict=True)
        guesses = [response_epsilon_guess(order, units / EPSILON_UNIT) for order, units in by_order]
        pair = room[EPSILON] if spent[DELTA] <= self.caps[DELTA] else 0
        guess = max([pair, *(int(guessed * EPSILON_UNIT) for guessed in guesses)])
        return Fraction(least_near(exceeds, guess + 1) - 1, EPSILON_UNIT)

    def largest_delta(self, spent: tuple[int, ...]) -> Fraction:
        """Return the largest failure probability that a next charge may have, if its ε fits."""
        return Fraction(max(self.caps[DELTA0] - spent[DELTA0], 0), DELTA_UNIT)

    def how_many(self, charge: Charge, spent: tuple[int, ...] | None = None) -> int:
        """Return how many charges of this kind would be admitted one after another.

        `spent` are the sums so far; None means that nothing was spent.
        """
        if charge.orders != self.orders:
            raise BadParameter("charge", OTHER_ORDERS)
        sums = self.nothing_spent if spent is None else spent
        without_cost = 10**18  # a charge that costs nothing fits for ever

        def fit(k: int) -> int:
            if sums[k] > self.caps[k]:
                return 0
            cost = charge.costs[k]
            return (self.caps[k] - sums[k]) // cost if cost else without_cost

        best = max(min(fit(EPSILON), fit(DELTA)), *map(fit, range(FIRST_ORDER, len(self.caps))))
        return min(fit(DELTA0), best)

    def refusal(self, spent: tuple[int, ...], charge: Charge) -> OverBudget:
        """Return the error for a charge that does not fit: the request, the rest, and what would fit."""
        if charge.costs[DELTA0] + spent[DELTA0] > self.caps[DELTA0]:
            asked = f"δ {_decimal_text(charge.costs[DELTA0], DELTA_UNIT)}"
            left = _decimal_text(max(self.caps[DELTA0] - spent[DELTA0], 0), DELTA_UNIT)
            return OverBudget(asked, f"δ {left}", "Ask with a smaller δ, or with declared keys.")
        asked = _asked_text(charge)
        largest = self.largest_pure(spent)
        pure = pure_text(largest)
        by_epsilon = largest * EPSILON_UNIT < charge.costs[EPSILON] < NEVER
        if not largest:
            now = "The budget is used up."
        elif by_epsilon and spent[DELTA] + charge.costs[DELTA] <= self.caps[DELTA]:
            now = f"Ask for ε {pure} or less."
        else:  # priced by ρ, by orders or with a δ: a smaller loss may fit, at any ε
            share = self._share_that_fits(spent, charge)
            some = f"at most {share / 10:g} % of this loss (as ρ counts), or for " if share else ""
            now = f"Ask for {some}a pure ε of {pure} or less."
        return OverBudget(asked, f"ε {pure} of {float(self.epsilon):.6g}", now)

    def _share_that_fits(self, spent: tuple[int, ...], charge: Charge) -> int:
        """Return the share of the charge's costs that some filter has left, in thousandths."""

        def thousandths(k: int) -> int:
            return max(self.caps[k] - spent[k], 0) * 1000 // max(charge.costs[k], 1)

        orders = range(FIRST_ORDER, len(spent))
        return max(min(map(thousandths, (EPSILON, DELTA))), *map(thousandths, orders))


class PrivacyFilter(ProcessBound):
    """A budget in memory: terms, and the sums of all charges. The ledger keeps the same sums durably.

    Threads may share it. A copy, a saved filter, or one in a forked child would spend the same budget
    again, so these are refused.

    Example:
        >>> filter = PrivacyFilter(Terms.of(epsilon=1, delta="1e-6"))
        >>> filter.admit(filter.terms.price(Pure(Fraction(1, 2))))
    """

    def __init__(self, terms: Terms) -> None:
        super().__init__()
        self._terms = terms
        self._spent = terms.nothing_spent
        self._deciding = threading.Lock()

    @property
    def terms(self) -> Terms:
        """The terms of the budget, which never change."""
        return self._terms

    @property
    def spent(self) -> tuple[int, ...]:
        """The sums of all charges so far. Only `admit` changes them, and only upwards."""
        return self._spent

    def admit(self, charge: Charge) -> None:
        """Add the charge to the sums, or raise OverBudget and change nothing."""
        if self._forks != FORK_COUNTER.count:
            self.require_here()
        with self._deciding:  # two threads must not spend the same rest
            after = self._terms.after(self._spent, charge)
            if after is None:
                raise self._terms.refusal(self._spent, charge)
            self._spent = after


def pure_text(epsilon: Fraction) -> str:
    """Return a pure ε in all its digits, down to one ledger unit."""
    return _decimal_text(round_down(epsilon, EPSILON_UNIT), EPSILON_UNIT)


def text_up(epsilon: Fraction) -> str:
    """Return an ε in digits, rounded up to one ledger unit: whoever asks with it asks for no less."""
    return _decimal_text(round_up(epsilon, EPSILON_UNIT), EPSILON_UNIT)


def _asked_text(charge: Charge) -> str:
    """Return in words what a charge asks for: its ε, or ρ if it is priced by Rényi orders alone."""
    if charge.costs[EPSILON] < NEVER:
        return f"ε {_decimal_text(charge.costs[EPSILON], EPSILON_UNIT)}"
    at_orders = zip(charge.costs[FIRST_ORDER:], charge.orders, strict=True)
    priced = [Fraction(cost, order) for cost, order in at_orders if cost < NEVER]
    if not priced:
        return f"more than ε {NEVER // EPSILON_UNIT:,}"
    return f"a loss of about ρ {short_up(min(priced) / EPSILON_UNIT, 4)}"


def _decimal_text(units: int, unit: int) -> str:
    """Return units / unit as a decimal with all digits: a rounded one could be more than is left."""
    return f"{Decimal(units) / Decimal(unit):g}"
