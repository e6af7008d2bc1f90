"""The filter's arithmetic: caps, sums, saturation, refusals. Its claim is in tests/claims."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import random
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.core.budget import (
    DELTA,
    DELTA0,
    EPSILON,
    FIRST_ORDER,
    LARGEST_CENTRE,
    NEVER,
    SHARE_ORDERS,
    Charge,
    PrivacyFilter,
    Terms,
    best_order,
    default_orders,
)
from lapwing.core.conversions import renyi_cap
from lapwing.core.losses import (
    Approximate,
    BoundedRange,
    Concentrated,
    GaussianNoise,
    LaplaceNoise,
    Loss,
    Pure,
    SequentialComposition,
)
from lapwing.errors import BadParameter, OverBudget, SessionOver
from support.cases import each
from support.raised import named
from support.switching import in_switching_threads

TERMS = Terms.of(1, "1e-6")
TENTH = Pure(Fraction(1, 10))
budgets = st.sampled_from([("1", "1e-6"), ("3", "1e-6"), ("0.1", "0.3"), ("1", "0"), ("50", "1e-9")]).map(
    lambda budget: Terms.of(*budget)
)
losses: st.SearchStrategy[Loss] = st.one_of(
    st.fractions(0, 2, max_denominator=1000).map(Pure),
    st.fractions(0, 1, max_denominator=1000).map(BoundedRange),
    st.integers(1, 400).map(lambda t: LaplaceNoise(Fraction(t, 4), 2)),
    st.integers(1, 400).map(lambda s: GaussianNoise(Fraction(s), Fraction(3), 2)),
    st.fractions(0, Fraction(1, 10), max_denominator=1000).map(Concentrated),
    st.tuples(st.fractions(0, 1, max_denominator=100), st.integers(6, 12)).map(
        lambda pair: Approximate(pair[0], Fraction(1, 10 ** pair[1]))
    ),
)


def held(terms: Terms, spent: tuple[int, ...]) -> list[bool]:
    """Σδ₀, Σ(ε, δ), and the five orders."""
    below = [total <= cap for total, cap in zip(spent, terms.caps, strict=True)]
    return [below[DELTA0], below[EPSILON] and below[DELTA], *below[FIRST_ORDER:]]


# Caps.


@each(("epsilon", "delta"), [("1", "1e-6"), ("3", "1e-6"), ("0.05", "0.01"), ("100", "1e-12")])
def test_caps_are_the_budget_and_the_conversions_rounded_down(epsilon: str, delta: str) -> None:
    terms = Terms.of(epsilon, delta)
    e, d = Fraction(epsilon), Fraction(delta)
    assert terms.caps[DELTA0] == d * 6 / 100 * 10**18 // 1
    assert terms.caps[EPSILON] == e * 10**9
    assert terms.caps[DELTA] == d * 4 / 100 * 10**18 // 1
    for order, share, cap in zip(terms.orders, (9, 27, 36, 9, 9), terms.caps[FIRST_ORDER:], strict=True):
        with mpmath.workdps(50):
            a, part = mpmath.mpf(order), mpmath.mpf(d.numerator) / d.denominator * share / 100
            slack = mpmath.log((a - 1) / a) - (mpmath.log(part) + mpmath.log(a)) / (a - 1)
            exact = (mpmath.mpf(e.numerator) / e.denominator - slack) * 10**9
            assert cap == max(int(mpmath.floor(exact)), -1)


@each(("epsilon", "delta", "about"), [("1", "1e-6", 24), ("3", "1e-6", 10), ("0.01", "1e-6", 1418)])
def test_orders_lie_around_the_best(epsilon: str, delta: str, about: int) -> None:
    orders = Terms.of(epsilon, delta).orders
    assert orders[2] == about
    assert [round(order / about, 1) for order in orders] == pytest.approx([0.6, 0.8, 1, 1.6, 3], abs=0.06)


@each(("epsilon", "delta"), [("1", "1e-6"), ("30", "0.3"), ("0.2", "1e-12"), ("0.05", "0.9")])
def test_the_best_order_is_best_by_exhaustion(epsilon: str, delta: str) -> None:
    e, d = Fraction(epsilon), Fraction(delta)
    worth = {order: renyi_cap(order, e, d) / order for order in range(2, 1500)}
    assert best_order(e, d) == max(worth, key=lambda order: worth[order])


def test_orders_are_distinct_even_where_the_best_is_two() -> None:
    assert Terms.of(1000, "0.5").orders == (2, 3, 4, 5, 6)
    assert default_orders(Fraction(1), Fraction(0)) == (2, 3, 4, 5, 6)


def test_orders_of_tiny_budgets_are_bounded_and_quick() -> None:
    terms = Terms.of("1e-9", "1e-9")
    assert terms.orders[2] <= LARGEST_CENTRE
    assert terms.caps[EPSILON] == 1
    assert terms.how_many(terms.price(Pure(Fraction(1, 10**9)))) == 1


@each(
    "orders",
    [
        (2, 3, 4, 5),
        (2, 3, 4, 5, 6, 7),
        (3, 2, 4, 5, 6),
        (2, 2, 3, 4, 5),
        (1, 2, 3, 4, 5),
        (2, 3, 4, 5, 6.5),
    ],
)
def test_orders_must_be_five_rising_whole_numbers_from_2(orders: tuple[int, ...]) -> None:
    with pytest.raises(BadParameter, check=named("orders")):
        Terms(Fraction(1), Fraction(1, 10**6), orders)


@each("epsilon", [Fraction(0), Fraction(-1), Fraction(1001), Fraction(10**10)])
def test_terms_with_a_senseless_epsilon_cannot_be_built(epsilon: Fraction) -> None:
    """An ε above NEVER would admit what has no bound at all."""
    with pytest.raises(BadParameter, check=named("epsilon")):
        Terms(epsilon, Fraction(0), (2, 3, 4, 5, 6))


@each("delta", [Fraction(-1, 10), Fraction(1), Fraction(7)])
def test_terms_with_a_senseless_delta_cannot_be_built(delta: Fraction) -> None:
    with pytest.raises(BadParameter, check=named("delta")):
        Terms(Fraction(1), delta, (2, 3, 4, 5, 6))


# Sums.


def test_nothing_has_been_spent_at_first() -> None:
    assert TERMS.nothing_spent == (0,) * 8
    assert PrivacyFilter(TERMS).spent == TERMS.nothing_spent


def test_costs_add_up_until_a_filter_is_exceeded_and_then_stay() -> None:
    filter_ = PrivacyFilter(TERMS)
    charge = TERMS.price(Pure(Fraction(3, 10)))
    for k in range(1, 4):
        filter_.admit(charge)
        assert filter_.spent[EPSILON] == 3 * k * 10**8
    # All orders are over: they stay one above their caps.
    assert filter_.spent[FIRST_ORDER:] == tuple(cap + 1 for cap in TERMS.caps[FIRST_ORDER:])
    filter_.admit(TERMS.price(Pure(Fraction(0))))
    assert filter_.spent[FIRST_ORDER:] == tuple(cap + 1 for cap in TERMS.caps[FIRST_ORDER:])


def test_a_filter_that_was_left_is_never_entered_again() -> None:
    filter_ = PrivacyFilter(TERMS)
    filter_.admit(TERMS.price(GaussianNoise(Fraction(100), Fraction(1), 1)))  # no pure loss
    assert not held(TERMS, filter_.spent)[1]
    for _ in range(50):
        filter_.admit(TERMS.price(Pure(Fraction(1, 10**6))))
        assert not held(TERMS, filter_.spent)[1]


def test_a_cap_below_zero_keeps_even_free_charges_out() -> None:
    terms = Terms.of(1, "0.1")
    assert terms.caps[FIRST_ORDER] == -1
    after = terms.after(terms.nothing_spent, terms.price(Pure(Fraction(0))))
    assert after is not None
    assert after[FIRST_ORDER] == 0 > terms.caps[FIRST_ORDER]


@settings(max_examples=150, deadline=None)
@given(budgets, st.lists(losses, max_size=25))
def test_sums_grow_and_some_filter_always_holds(terms: Terms, asked: list[Loss]) -> None:
    """Also: the true sums of whatever was admitted are within the caps of each filter that holds."""
    filter_, admitted = PrivacyFilter(terms), []
    for loss in asked:
        before = filter_.spent
        charge = terms.price(loss)
        try:
            filter_.admit(charge)
        except OverBudget:
            assert filter_.spent == before
            continue
        admitted.append(charge)
        # A cap of -1 is never held; its sum goes from 0 to cap + 1 = 0.
        assert all(a <= b for a, b in zip(before, filter_.spent, strict=True))
        true = [sum(c.costs[k] for c in admitted) for k in range(8)]
        holds = held(terms, filter_.spent)
        assert holds[0]
        assert any(holds[1:])
        assert holds == held(terms, tuple(true))
        assert true[DELTA0] <= terms.caps[DELTA0]


@settings(max_examples=60, deadline=None)
@given(budgets, st.lists(losses, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_charges_does_not_matter_to_the_sums(
    terms: Terms, asked: list[Loss], shuffler: random.Random
) -> None:
    def run(sequence: list[Loss]) -> tuple[int, ...] | None:
        spent: tuple[int, ...] | None = terms.nothing_spent
        for loss in sequence:
            if spent is not None:
                spent = terms.after(spent, terms.price(loss))
        return spent

    other = list(asked)
    shuffler.shuffle(other)
    assert run(asked) == run(other)


def test_looking_changes_nothing() -> None:
    filter_ = PrivacyFilter(TERMS)
    filter_.admit(TERMS.price(TENTH))
    before = filter_.spent
    TERMS.after(filter_.spent, TERMS.price(TENTH))
    TERMS.how_many(TERMS.price(TENTH), filter_.spent)
    TERMS.largest_pure(filter_.spent)
    assert filter_.spent == before


# How many.


@settings(max_examples=80, deadline=None)
@given(budgets, losses, st.lists(losses, max_size=4))
def test_how_many_is_what_the_loop_admits(terms: Terms, loss: Loss, earlier: list[Loss]) -> None:
    filter_ = PrivacyFilter(terms)
    for one in earlier:
        after = terms.after(filter_.spent, terms.price(one))
        filter_._spent = filter_.spent if after is None else after
    charge = terms.price(loss)
    stated = terms.how_many(charge, filter_.spent)
    count, spent = 0, filter_.spent
    while count <= 3000 and (after := terms.after(spent, charge)) is not None:
        count, spent = count + 1, after
    assert count == min(stated, 3001)


def test_what_costs_nothing_fits_for_ever() -> None:
    assert TERMS.how_many(TERMS.price(Pure(Fraction(0)))) == 10**18


def test_what_has_no_bound_never_fits() -> None:
    charge = Charge(TERMS.orders, (0, NEVER, NEVER, *[NEVER] * 5))
    assert TERMS.how_many(charge) == 0
    assert TERMS.after(TERMS.nothing_spent, charge) is None
    widest = Terms.of(1000, "0.999")
    assert widest.after(widest.nothing_spent, Charge(widest.orders, charge.costs)) is None


# Refusals.


def test_a_refusal_says_what_was_asked_what_is_left_and_what_now() -> None:
    filter_ = PrivacyFilter(Terms.of(1, 0))
    filter_.admit(filter_.terms.price(Pure(Fraction(876543211, 10**9))))
    with pytest.raises(OverBudget) as caught:
        filter_.admit(filter_.terms.price(Pure(Fraction(3, 10))))
    assert caught.value.asked == "ε 0.3"
    assert caught.value.left == "ε 0.123456789 of 1"
    assert caught.value.what_now == "Ask for ε 0.123456789 or less."
    assert (
        str(caught.value) == "asked ε 0.3, but ε 0.123456789 of 1 is left. Ask for ε 0.123456789 or less."
    )


def test_the_advice_of_a_refusal_can_be_followed() -> None:
    for spent in ("0.1234567894", "0.9999999", "0.5"):
        filter_ = PrivacyFilter(Terms.of(1, "1e-6"))
        filter_.admit(filter_.terms.price(Pure(Fraction(spent))))
        with pytest.raises(OverBudget) as caught:
            filter_.admit(filter_.terms.price(Pure(Fraction(1))))
        left = Fraction(caught.value.left.split()[1])
        filter_.admit(filter_.terms.price(Pure(left)))


def test_a_used_up_budget_says_so() -> None:
    filter_ = PrivacyFilter(Terms.of(1, 0))
    filter_.admit(filter_.terms.price(Pure(Fraction(1))))
    with pytest.raises(OverBudget, match="used up") as caught:
        filter_.admit(filter_.terms.price(TENTH))
    assert caught.value.left == "ε 0 of 1"


def test_too_much_failure_probability_is_named_as_such() -> None:
    filter_ = PrivacyFilter(TERMS)
    filter_.admit(TERMS.price(Approximate(Fraction(1, 100), Fraction(1, 10**8))))
    with pytest.raises(OverBudget) as caught:
        filter_.admit(TERMS.price(Approximate(Fraction(1, 100), Fraction(1, 10**7))))
    assert caught.value.asked == "δ 1e-7"
    assert caught.value.left == "δ 5e-8"
    assert "smaller δ" in caught.value.what_now


def test_a_loss_without_epsilon_is_refused_in_other_words() -> None:
    filter_ = PrivacyFilter(TERMS)
    with pytest.raises(OverBudget) as caught:
        filter_.admit(TERMS.price(GaussianNoise(Fraction(1), Fraction(1), 1)))
    assert caught.value.asked == "a loss of about ρ 0.5"
    assert caught.value.left == "ε 1 of 1"


@each("epsilon", ["2", "99", "1000000.5"])
def test_a_refusal_says_what_was_asked_also_if_it_is_far_too_much(epsilon: str) -> None:
    filter_ = PrivacyFilter(TERMS)
    with pytest.raises(OverBudget) as caught:
        filter_.admit(TERMS.price(Pure(Fraction(epsilon))))
    assert str(caught.value) == f"asked ε {epsilon}, but ε 1 of 1 is left. Ask for ε 1 or less."


def test_a_loss_beyond_all_numbers_is_refused_with_a_number() -> None:
    filter_ = PrivacyFilter(TERMS)
    with pytest.raises(OverBudget) as caught:
        filter_.admit(TERMS.price(Pure(Fraction(10**12))))
    assert caught.value.asked == "more than ε 4,611,686,018"


@each("rho", ["0.5", "0.05", "0.0224"])
def test_a_loss_that_is_priced_by_rho_is_advised_in_its_own_terms(rho: str) -> None:
    """A pure ε of 1 would fit, which helps nobody who asked for ε 1 and a mechanism that is priced by ρ."""
    filter_ = PrivacyFilter(TERMS)
    with pytest.raises(OverBudget) as caught:
        filter_.admit(TERMS.price(Concentrated(Fraction(rho))))
    advised = re.fullmatch(
        r"Ask for at most ([0-9.]+) % of this loss \(as ρ counts\), or for a pure ε of 1 or less\.",
        caught.value.what_now,
    )
    assert advised
    share = Fraction(advised[1]) / 100
    with pytest.raises(OverBudget):
        filter_.admit(TERMS.price(Concentrated(Fraction(rho) * (share + Fraction(2, 1000)))))
    filter_.admit(TERMS.price(Concentrated(Fraction(rho) * share)))


def test_where_less_than_a_thousandth_fits_no_share_is_advised() -> None:
    with pytest.raises(OverBudget) as caught:
        PrivacyFilter(TERMS).admit(TERMS.price(Concentrated(Fraction(1000))))
    assert caught.value.what_now == "Ask for a pure ε of 1 or less."


@settings(max_examples=40, deadline=None)
@given(budgets, st.lists(losses, max_size=6))
def test_the_largest_pure_loss_fits_and_the_next_does_not(terms: Terms, earlier: list[Loss]) -> None:
    spent = terms.nothing_spent
    for one in earlier:
        spent = terms.after(spent, terms.price(one)) or spent
    largest = terms.largest_pure(spent)
    if largest:
        assert terms.after(spent, terms.price(Pure(largest))) is not None
    assert terms.after(spent, terms.price(Pure(largest + Fraction(1, 10**9)))) is None


def test_with_a_large_delta_more_than_epsilon_fits() -> None:
    terms = Terms.of("0.1", "0.5")
    assert terms.largest_pure(terms.nothing_spent) > Fraction(1, 10)


# δ = 0, and the ends of the range.


def test_without_delta_only_pure_losses_fit() -> None:
    terms = Terms.of(1, 0)
    assert terms.how_many(terms.price(TENTH)) == 10
    assert terms.how_many(terms.price(BoundedRange(Fraction(1, 10)))) == 10
    for loss in (
        GaussianNoise(Fraction(10**6), Fraction(1), 1),
        Approximate(Fraction(1, 10), Fraction(1, 10**18)),
    ):
        assert terms.how_many(terms.price(loss)) == 0
    assert held(terms, terms.nothing_spent) == [True, True, *[False] * 5]


def test_huge_budgets_hold_what_they_say() -> None:
    terms = Terms.of(1000, "0.5")
    assert terms.how_many(terms.price(Pure(Fraction(1000)))) >= 1
    assert terms.how_many(terms.price(Pure(Fraction(1)))) >= 1000
    assert terms.how_many(terms.price(Pure(Fraction(10**6)))) == 0


def test_the_smallest_delta_still_counts_in_whole_units() -> None:
    terms = Terms.of(1, "1e-17")
    assert terms.caps[DELTA0] == 0  # 0.6 units
    assert terms.how_many(terms.price(Approximate(Fraction(1, 10), Fraction(1, 10**18)))) == 0
    assert terms.how_many(terms.price(TENTH)) == 10


def test_a_sum_of_releases_can_be_charged_at_once() -> None:
    filter_ = PrivacyFilter(TERMS)
    filter_.admit(TERMS.price(SequentialComposition((TENTH,) * 10)))
    assert filter_.spent[EPSILON] == 10**9
    with pytest.raises(OverBudget):
        filter_.admit(TERMS.price(Pure(Fraction(1, 10**9))))


def test_five_orders_share_nine_tenths_of_delta() -> None:
    assert sum(SHARE_ORDERS) == Fraction(9, 10)


def test_threads_that_share_a_budget_never_overspend_it() -> None:
    terms = Terms.of(1, 0)
    charge, budget, admitted = terms.price(Pure(Fraction(1, 20_000))), PrivacyFilter(terms), []

    def spend() -> None:
        count = 0
        with contextlib.suppress(OverBudget):
            while True:
                budget.admit(charge)
                count += 1
        admitted.append(count)

    in_switching_threads(spend, 8)
    assert sum(admitted) == 20_000


@each("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_budget_has_no_copies(copied: Callable[[PrivacyFilter], object]) -> None:
    with pytest.raises(SessionOver):
        copied(PrivacyFilter(Terms.of(1, 0)))


def test_a_forked_child_has_no_budget() -> None:
    budget = PrivacyFilter(Terms.of(1, 0))
    child = os.fork()
    if child == 0:
        try:
            budget.admit(budget.terms.price(Pure(Fraction(1, 2))))
        except SessionOver:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_charge_that_was_priced_for_other_orders_does_not_fit_any_number_of_times() -> None:
    with pytest.raises(BadParameter):
        Terms.of(1, "1e-6").how_many(Terms.of(3, "1e-6").price(Pure(Fraction(1, 100))))


def test_numpy_integers_as_orders_do_not_wrap_round() -> None:
    orders: Any = tuple(np.array([14, 19, 24, 38, 72]))
    terms = Terms(Fraction(1), Fraction(1, 10**6), orders)
    assert all(type(order) is int for order in terms.orders)
    assert terms == Terms.of(1, "1e-6")


@each(("name", "value"), [("spent", (0,) * 8), ("terms", Terms.of(1000, 0))])
def test_a_budget_cannot_be_reset_or_raised_by_assignment(name: str, value: object) -> None:
    budget = PrivacyFilter(Terms.of(1, 0))
    with pytest.raises(AttributeError):
        setattr(budget, name, value)
