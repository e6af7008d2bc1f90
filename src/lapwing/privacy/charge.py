"""The price of a loss: whole numbers, rounded up, for the orders that an account fixed.

Units: δ in 1e-18, ε and Rényi values in 1e-9. A bound that a loss does not have costs `NEVER`.
"""

from __future__ import annotations

from dataclasses import dataclass

from lapwing.exact import round_up
from lapwing.privacy.loss import Loss

EPSILON_UNIT = 10**9
DELTA_UNIT = 10**18
NEVER = 1 << 62

# Where the costs stand in the vector.
DELTA0, EPSILON, DELTA, FIRST_ORDER = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Charge:
    """Costs in the order δ₀, ε_b, δ_b, then the Rényi value at each of `orders`."""

    orders: tuple[int, ...]
    costs: tuple[int, ...]

    def __post_init__(self) -> None:
        assert len(self.costs) == FIRST_ORDER + len(self.orders)
        assert all(type(cost) is int and 0 <= cost <= NEVER for cost in self.costs)


def price(loss: Loss, orders: tuple[int, ...]) -> Charge:
    """The charge for `loss` in an account with these orders. Every cost is rounded up."""
    pair = loss.pair
    costs = [min(round_up(loss.delta0, DELTA_UNIT), NEVER)]
    if pair is None:
        costs += [NEVER, NEVER]
    else:
        costs += [min(round_up(pair[0], EPSILON_UNIT), NEVER)]
        costs += [min(round_up(pair[1], DELTA_UNIT), NEVER)]
    units = loss.renyi_units(orders, EPSILON_UNIT)
    costs += [NEVER] * len(orders) if units is None else [min(cost, NEVER) for cost in units]
    return Charge(orders, tuple(costs))
