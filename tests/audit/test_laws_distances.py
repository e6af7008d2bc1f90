"""Distances in closed form agree with brute force over all events."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import chain, combinations

import pytest

from lapwing.audit.laws import (
    SLACK,
    Law,
    dec,
    delta_of_pure,
    delta_of_renyi,
    exp,
    laplace,
    log_ratio,
    permute_and_flip,
    total,
)
from support.exact_laws import epsilon_at, excess, gathered, renyi

PAIRS = [
    (laplace(1, 0, -2, 3), laplace(1, 1, -2, 3)),
    (permute_and_flip([2, 2, 1], Fraction(1, 2)), permute_and_flip([1, 1, 2], Fraction(1, 2))),
    ({0: Decimal("0.2"), 1: Decimal("0.8")}, {0: Decimal("0.3"), 1: Decimal("0.7")}),
]


def best_event(one: Law, other: Law, epsilon: Fraction) -> Decimal:
    """The most that an event needs, over all events."""
    events = chain.from_iterable(combinations(one, size) for size in range(len(one) + 1))
    return max(sum((one[o] - exp(epsilon) * other[o] for o in event), Decimal(0)) for event in events)


@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(1, 3), Fraction(2)])
def test_delta_is_the_best_of_all_events(one: Law, other: Law, epsilon: Fraction) -> None:
    assert abs(excess(one, other, epsilon) - best_event(one, other, epsilon)) < SLACK


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_epsilon_at_delta_inverts_the_curve(one: Law, other: Law) -> None:
    both = max(epsilon_at(one, other, 0), epsilon_at(other, one, 0))
    assert abs(both - log_ratio(one, other)) < SLACK
    for epsilon in (Fraction(1, 50), Fraction(1, 20)):
        delta = Fraction(excess(one, other, epsilon))
        if delta > 0:
            assert abs(epsilon_at(one, other, delta) - dec(epsilon)) < SLACK


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_promised_curves_lie_above_the_true_one(one: Law, other: Law) -> None:
    pure = Fraction(log_ratio(one, other))
    value = Fraction(renyi(one, other, 4))
    for epsilon in (Fraction(0), Fraction(1, 5), Fraction(1)):
        true = excess(one, other, epsilon)
        assert true <= delta_of_pure(pure, 0, epsilon) + SLACK
        assert true <= delta_of_renyi(4, value, epsilon) + SLACK


def test_gathering_outcomes_of_one_ratio_changes_no_distance() -> None:
    fine = laplace(1, 0, -9, 9), laplace(1, 1, -9, 9)
    coarse = gathered(*fine, (min(max(o, 0), 1) for o in fine[0]))
    assert abs(total(coarse[0]) - 1) < SLACK
    assert abs(renyi(*fine, 7) - renyi(*coarse, 7)) < SLACK
    assert abs(excess(*fine, Fraction(1, 2)) - excess(*coarse, Fraction(1, 2))) < SLACK
