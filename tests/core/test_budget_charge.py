"""Prices: whole units, rounded up, and never for a bound that the loss lacks."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.core.budget import (
    DELTA,
    DELTA0,
    DELTA_UNIT,
    EPSILON,
    EPSILON_UNIT,
    FIRST_ORDER,
    NEVER,
    Charge,
    Terms,
    price,
)
from lapwing.core.exact import precision, round_up
from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import (
    Approximate,
    BoundedRange,
    Concentrated,
    GaussianNoise,
    LaplaceNoise,
    Loss,
    ParallelComposition,
    Pure,
    SequentialComposition,
)
from lapwing.errors import BadParameter
from support.cases import each
from support.losses import sampled

ORDERS = (14, 19, 24, 38, 72)
TERMS = Terms.of(1, "1e-6")


def test_the_units_are_those_of_the_ledger() -> None:
    assert (EPSILON_UNIT, DELTA_UNIT) == (10**9, 10**18)
    assert (DELTA0, EPSILON, DELTA, FIRST_ORDER) == (0, 1, 2, 3)


def test_exact_values_cost_exactly_that() -> None:
    charge = price(Approximate(Fraction(1, 10), Fraction(1, 10**6)), ORDERS)
    assert charge.orders == ORDERS
    assert charge.costs[:FIRST_ORDER] == (10**12, 10**8, 0)
    assert price(Concentrated(Fraction(1, 1000)), ORDERS).costs[FIRST_ORDER:] == tuple(
        10**6 * a for a in ORDERS
    )


def test_the_least_excess_costs_one_more_unit() -> None:
    tiny = Fraction(1, 10**40)
    charge = price(Approximate(Fraction(1, 10) + tiny, Fraction(1, 10**6) + tiny), ORDERS)
    assert charge.costs[:FIRST_ORDER] == (10**12 + 1, 10**8 + 1, 0)
    assert price(Concentrated(Fraction(1, 1000) + tiny), ORDERS).costs[FIRST_ORDER] == 14 * 10**6 + 1


def test_a_bound_that_is_not_there_costs_never() -> None:
    gaussian = price(GaussianNoise(Fraction(3), Fraction(1), 1), ORDERS).costs
    assert gaussian[EPSILON] == gaussian[DELTA] == NEVER
    assert gaussian[DELTA0] == 0
    assert all(0 < cost < NEVER for cost in gaussian[FIRST_ORDER:])

    class Box(Loss):
        """Only a pair is known."""

        @property
        def pair(self) -> tuple[Fraction, Fraction]:
            return Fraction(1, 2), Fraction(1, 10**9)

        def renyi(self, order: Fraction) -> None:
            return None

        def for_group(self, size: int) -> Box:
            return self

    box = price(Box(), ORDERS).costs
    assert box == (0, 5 * 10**8, 10**9, *[NEVER] * 5)


def test_huge_costs_are_cut_at_never() -> None:
    costs = price(Pure(Fraction(10**12)), ORDERS).costs
    assert costs == (0, NEVER, 0, *[NEVER] * 5)
    assert price(Concentrated(Fraction(10**300)), ORDERS).costs[FIRST_ORDER:] == (NEVER,) * 5


def test_never_is_above_every_cap() -> None:
    widest = Terms.of(1000, "0.999999")
    assert max(widest.caps) < NEVER
    assert NEVER < 2**63


def test_nothing_costs_nothing() -> None:
    assert price(Pure(Fraction(0)), ORDERS).costs == (0,) * 8
    assert price(SequentialComposition(()), ORDERS).costs == (0,) * 8


LOSSES: list[Loss] = [
    Pure(Fraction(1, 7)),
    Approximate(Fraction(1, 3), Fraction(1, 7**9)),
    BoundedRange(Fraction(1, 7)),
    LaplaceNoise(Fraction(22, 7), 3),
    GaussianNoise(Fraction(22, 7), Fraction(3), 2),
    Concentrated(Fraction(1, 7)),
    sampled(Fraction(1, 70), Fraction(7, 3), 3),
    SequentialComposition((Pure(Fraction(1, 7)), LaplaceNoise(Fraction(22, 7), 1))),
    ParallelComposition((Pure(Fraction(1, 7)), GaussianNoise(Fraction(22, 7), Fraction(1), 1))),
]


@each("loss", LOSSES)
def test_every_cost_is_the_bound_rounded_up(loss: Loss) -> None:
    costs = price(loss, ORDERS).costs
    assert costs[DELTA0] - 1 < loss.delta0 * DELTA_UNIT <= costs[DELTA0]
    if loss.pair is not None:
        assert costs[EPSILON] - 1 < loss.pair[0] * EPSILON_UNIT <= costs[EPSILON]
        assert costs[DELTA] - 1 < loss.pair[1] * DELTA_UNIT <= costs[DELTA]
    for order, cost in zip(ORDERS, costs[FIRST_ORDER:], strict=True):
        value = loss.renyi(Fraction(order))
        assert value is not None
        with precision(300):
            # The ball around a whole number of units may reach into the next one.
            assert round_up(value, EPSILON_UNIT) - 1 <= cost <= round_up(value, EPSILON_UNIT)


def test_a_fixed_run_costs_its_pair() -> None:
    pytest.importorskip("dp_accounting")
    run = FixedRun.of((GaussianNoise(Fraction(50), Fraction(1), 1), 10), delta="1e-8")
    costs = price(run, ORDERS).costs
    assert costs[EPSILON] == run.pair[0] * EPSILON_UNIT
    assert costs[DELTA] == 10**10
    assert 0 <= costs[FIRST_ORDER] - 10 * 14 * 10**9 // 5000 <= 1  # the ball may reach into the next unit


@given(st.fractions(0, 10, max_denominator=10**12), st.fractions(0, 10, max_denominator=10**12))
def test_the_price_of_a_sum_is_at_most_the_sum_of_the_prices(one: Fraction, two: Fraction) -> None:
    apart = [price(Pure(epsilon), ORDERS).costs for epsilon in (one, two)]
    together = price(SequentialComposition((Pure(one), Pure(two))), ORDERS).costs
    assert all(t <= a + b + 1 for t, a, b in zip(together, *apart, strict=True))


@each("orders", [(2, 3, 4, 5, 6), ORDERS[:4], (*ORDERS, 99), ()])
def test_a_charge_for_other_orders_is_refused(orders: tuple[int, ...]) -> None:
    charge = Charge(orders, (0,) * (FIRST_ORDER + len(orders)))
    with pytest.raises(BadParameter, match="other orders"):
        TERMS.after(TERMS.nothing_spent, charge)


def test_a_charge_has_a_cost_for_every_order_and_none_below_zero() -> None:
    with pytest.raises(AssertionError):
        Charge(ORDERS, (0,) * 7)
    with pytest.raises(AssertionError):
        Charge(ORDERS, (0, -1, 0, 0, 0, 0, 0, 0))
