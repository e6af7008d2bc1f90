"""The claim of a computation beside its charge: does (ε, δ) follow from the loss that is charged?

Claim    `least_epsilon` returns an ε at which the loss is (ε, δ)-private; None if none is found. It is the
         least of all that the bounds of the loss give, up to the search for a Rényi order.
Because  it is the ε of the pair of the loss, or follows from one Rényi value, or is proved for one vector
         with discrete Gaussian noise. Each of these is true by itself, so the least one is, too.
Test     tests/audit/stages/test_claimed_loss.py

The search for an order is its own: a wrong conversion of a price shows.
"""

from __future__ import annotations

import math
from fractions import Fraction

from lapwing.core.conversions import gaussian_delta, renyi_to_epsilon
from lapwing.core.losses import GaussianNoise, Loss

_ORDERS = tuple(1 + 1.3**k / 50 for k in range(110))  # up to 7e10
_RISEN = 8
_THIRDS = 80


def follows(loss: Loss, epsilon: Fraction, delta: Fraction) -> bool:
    """Return whether the claimed (ε, δ) follows from the loss."""
    pair = loss.pair
    if pair is not None and pair[0] <= epsilon and loss.delta0 + pair[1] <= delta:
        return True
    # One vector with Gaussian noise: its δ is less than what Rényi values give.
    if isinstance(loss, GaussianNoise) and delta:
        known = gaussian_delta(epsilon, loss.sigma, loss.l2_squared, loss.dimension)
        return known <= delta
    least = least_epsilon(loss, delta)
    return least is not None and least <= epsilon


def least_epsilon(loss: Loss, delta: Fraction) -> Fraction | None:
    """Return the least ε at δ that follows from the pair or from the Rényi values of a loss."""
    epsilons: list[Fraction] = []
    left = delta - loss.delta0
    if left < 0:
        return None
    pair = loss.pair
    if pair is not None and pair[1] <= left:
        epsilons.append(pair[0])
    if left > 0 and loss.renyi(Fraction(2)) is not None:
        order = _best_order(loss, left)
        value = loss.renyi(order)
        if value is not None and value.is_finite():
            epsilons.append(renyi_to_epsilon(order, value, left))
    return min(epsilons, default=None)


def _best_order(loss: Loss, delta: Fraction) -> Fraction:
    """Return the Rényi order at which ε is about least: along a grid, then by thirds."""

    def epsilon_at(order: Fraction) -> float:
        value = loss.renyi(order)
        if value is None or not value.is_finite():
            return math.inf
        return float(renyi_to_epsilon(order, value, delta))

    def fraction(order: float) -> Fraction:
        return Fraction(order).limit_denominator(10**12)

    best, least = 0, math.inf
    for place, order in enumerate(_ORDERS):
        now = epsilon_at(fraction(order))
        if now < least:
            best, least = place, now
        if place > best + _RISEN:  # high orders may take long
            break
    low, high = _ORDERS[max(best - 1, 0)], _ORDERS[min(best + 1, len(_ORDERS) - 1)]
    for _ in range(_THIRDS):
        third = (high - low) / 3
        if epsilon_at(fraction(low + third)) < epsilon_at(fraction(high - third)):
            high -= third
        else:
            low += third
    return fraction((low + high) / 2)
