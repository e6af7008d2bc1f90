"""The price of a loss: whole numbers, rounded up, for the orders that an account fixed.

Units: δ in 1e-18, ε and Rényi values in 1e-9. A bound that a loss does not have costs `NEVER`.
"""

from __future__ import annotations

from dataclasses import dataclass

from lapwing.exact import round_up
from lapwing.privacy.loss import NOTHING, Loss

EPSILON_UNIT = 10**9
DELTA_UNIT = 10**18
NEVER = 1 << 62

_new, _set = object.__new__, object.__setattr__

# Where the costs stand in the vector.
DELTA0, EPSILON, DELTA, FIRST_ORDER = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Charge:
    """Costs in the order δ₀, ε_b, δ_b, then the Rényi value at each of `orders`."""

    orders: tuple[int, ...]
    costs: tuple[int, ...]

    def __post_init__(self) -> None:
        costs = self.costs
        assert len(costs) == FIRST_ORDER + len(self.orders)
        assert min(costs) >= 0  # a cost below 0 would give budget back


def price(loss: Loss, orders: tuple[int, ...]) -> Charge:
    """The charge for `loss` in an account with these orders. Every cost is rounded up."""
    delta0 = loss.delta0
    costs = (
        0 if delta0 is NOTHING else round_up(delta0, DELTA_UNIT),
        *(loss.pair_units(EPSILON_UNIT, DELTA_UNIT) or (NEVER, NEVER)),
        *(loss.renyi_units(orders, EPSILON_UNIT) or [NEVER] * len(orders)),
    )
    if max(costs) > NEVER:
        costs = tuple([min(cost, NEVER) for cost in costs])
    # Rounded up from losses, which are not negative: it needs no second check, and this is the hot path.
    charge = _new(Charge)
    _set(charge, "orders", orders)
    _set(charge, "costs", costs)
    return charge
