"""The filter's claim, against the best of all adaptive adversaries, computed exactly.

Two neighbouring data sets answer with laws P and Q. All an adversary has learnt is the ratio of the
transcript's two probabilities; all that limits him is what was spent. If every log-ratio is a multiple
of `STEP`, the best he can do from each state is a finite table, filled from the end backwards:

    V(spent, ratio) = max( max(p - e^ε q, 0),  max over mechanisms Σ over answers V(spent', ratio') )

V at the start is the greatest hockey-stick divergence that any way of choosing mechanisms from earlier
answers, and of stopping, can reach. The claim is V <= δ. Wrong filters exceed it: the table can tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from dp_accounting import DpEvent, GaussianDpEvent, LaplaceDpEvent
from dp_accounting.rdp import RdpAccountant
from flint import arb
from numpy.typing import NDArray

from lapwing.core.budget import (
    DELTA,
    DELTA0,
    EPSILON,
    FIRST_ORDER,
    SHARE_DELTA0,
    SHARE_ORDERS,
    SHARE_PAIR,
    PrivacyFilter,
    Terms,
)
from lapwing.core.conversions import renyi_cap
from lapwing.core.losses import Approximate, GaussianNoise, LaplaceNoise, Loss, Pure
from lapwing.errors import OverBudget
from support.cases import each
from support.slowly import first

STEP = 0.05
REACH = 300  # of the table, in steps; beyond it the ratio's own value is used, which is exact enough
FLOATS = 1e-9
BUDGETS = [("1", "0.1"), ("0.5", "0.2"), ("1", "0.3"), ("2", "0.05"), ("0.2", "0.3"), ("1", "0.01")]

Table = NDArray[np.float64]
State = tuple[int, ...]
Decides = Callable[[State, int], State | None]


@dataclass(frozen=True)
class Mechanism:
    """What it is charged as, and its law on the second data set by log-ratio in steps.

    With probability `reveals` the answer tells the data sets apart for certain.
    """

    loss: Loss
    law: tuple[tuple[int, float], ...]
    reveals: float = 0.0

    def turned(self) -> Mechanism:
        """The same with the two data sets exchanged."""
        law = tuple((-k, q * math.exp(k * STEP)) for k, q in self.law)
        return Mechanism(self.loss, law, self.reveals)


class Known(Loss):
    """A finite law of which only Rényi values are told, as of Gaussian noise."""

    def __init__(self, law: tuple[tuple[int, float], ...]) -> None:
        self.law = law

    def renyi(self, order: Fraction) -> arb:
        a = float(order)
        one = sum(q * math.exp(a * k * STEP) for k, q in self.law)
        other = sum(q * math.exp((1 - a) * k * STEP) for k, q in self.law)
        return arb(math.log(max(one, other)) / (a - 1) + 1e-12)

    def for_group(self, size: int) -> Loss:
        raise NotImplementedError


class Box(Loss):
    """Only a pair (ε_b, δ_b) is known, as of a fixed run."""

    def __init__(self, epsilon: Fraction, delta: Fraction) -> None:
        self._pair = epsilon, delta

    @property
    def pair(self) -> tuple[Fraction, Fraction]:
        return self._pair

    def renyi(self, order: Fraction) -> None:
        return None

    def for_group(self, size: int) -> Loss:
        raise NotImplementedError


def response_law(steps: int) -> tuple[tuple[int, float], ...]:
    p = 1 / (1 + math.exp(-steps * STEP))
    return (steps, 1 - p), (-steps, p)


def epsilon_of(steps: int) -> Fraction:
    return Fraction(steps, round(1 / STEP))


def response(steps: int) -> Mechanism:
    return Mechanism(Pure(epsilon_of(steps)), response_law(steps))


def selection(steps: int, delta: str) -> Mechanism:
    """The worst (ε, δ) mechanism: reveal with probability δ, else randomized response."""
    law = response_law(steps) if steps else ((0, 1.0),)
    return Mechanism(Approximate(epsilon_of(steps), Fraction(delta)), law, float(delta))


def box(steps: int, delta: str) -> Mechanism:
    law = response_law(steps) if steps else ((0, 1.0),)
    return Mechanism(Box(epsilon_of(steps), Fraction(delta)), law, float(delta))


def bell(width: float) -> Mechanism:
    """Log-ratios like those of Gaussian noise, on the lattice."""
    most = math.ceil(6 * width)
    weights = [math.exp(-k * STEP / 2 - k * k / (2 * width * width)) for k in range(-most, most + 1)]
    law = tuple((k, w / sum(weights)) for k, w in zip(range(-most, most + 1), weights, strict=True))
    return Mechanism(Known(law), law)


def rare(up: int, down: int) -> Mechanism:
    """Two answers: seldom a large step up, mostly a small one down. Rényi conversion is tight here."""
    q = -math.expm1(-down * STEP) / (math.exp(up * STEP) - math.exp(-down * STEP))
    law = ((up, q), (-down, 1 - q))
    return Mechanism(Known(law), law)


def moved(table: Table, by: int, epsilon: float) -> Table:
    """The table at ratios `by` steps higher; outside it, the value of stopping there."""
    ratios = np.arange(-REACH, REACH + 1) + by
    outside = np.maximum(np.exp(ratios * STEP) - math.exp(epsilon), 0)
    inside = np.abs(ratios) <= REACH
    return np.where(inside, table[np.clip(ratios, -REACH, REACH) + REACH], outside)


def best_adversary(epsilon: float, mechanisms: list[Mechanism], start: State, after: Decides) -> float:
    """The greatest divergence at ε over all adaptive choices that `after` lets through."""
    ratio = np.exp(np.arange(-REACH, REACH + 1) * STEP)
    stop = np.maximum(ratio - math.exp(epsilon), 0)
    tables: dict[State, Table] = {}

    def value(state: State) -> Table:
        if state not in tables:
            best = stop
            for i, mechanism in enumerate(mechanisms):
                next_state = after(state, i)
                if next_state is None or next_state == state:
                    continue
                table = value(next_state)
                found = mechanism.reveals * ratio
                for by, q in mechanism.law:
                    found = found + (1 - mechanism.reveals) * q * moved(table, by, epsilon)
                best = np.maximum(best, found)
            tables[state] = best
        return tables[state]

    return float(value(start)[REACH])


def against_the_portfolio(terms: Terms, mechanisms: list[Mechanism]) -> float:
    """The better of the two directions."""
    charges = [terms.price(mechanism.loss) for mechanism in mechanisms]

    def after(spent: State, i: int) -> State | None:
        return terms.after(spent, charges[i])

    epsilon = float(terms.epsilon)
    return max(
        best_adversary(epsilon, mechanisms, terms.nothing_spent, after),
        best_adversary(epsilon, [m.turned() for m in mechanisms], terms.nothing_spent, after),
    )


MENUS = {
    "pure": [response(1), response(4), response(10)],
    "pure and selection": [response(2), selection(0, "0.002"), selection(4, "0.001")],
    "Gaussian-like and pure": [bell(3.0), bell(8.0), response(4)],
    "rare and pure": [rare(20, 1), rare(30, 2), response(5)],
    "boxes and pure": [box(4, "0.001"), box(0, "0.0004"), response(3)],
    "everything": [selection(6, "0.003"), box(8, "0.002"), bell(9.0), response(6)],
}


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    first(3, [*BUDGETS[::2], *BUDGETS[1::2]]),
)
@pytest.mark.parametrize("menu", MENUS)
def test_no_adversary_gets_more_than_delta(menu: str, epsilon: str, delta: str) -> None:
    assert against_the_portfolio(Terms.of(epsilon, delta), MENUS[menu]) <= float(delta) + FLOATS


def last_filters(terms: Terms, mechanisms: list[Mechanism]) -> set[tuple[bool, ...]]:
    """Which filters hold (Σ(ε, δ) and the five orders) where nothing more is admitted."""
    charges = [terms.price(mechanism.loss) for mechanism in mechanisms]
    ends: set[tuple[bool, ...]] = set()
    seen, waiting = set(), [terms.nothing_spent]
    while waiting:
        spent = waiting.pop()
        following = {terms.after(spent, charge) for charge in charges} - {None, spent}
        if not following:
            holds = [total <= cap for total, cap in zip(spent, terms.caps, strict=True)]
            ends.add((holds[EPSILON] and holds[DELTA], *holds[FIRST_ORDER:]))
        waiting += [state for state in following if state is not None and state not in seen]
        seen.update(following)
    return ends


def test_the_adversaries_do_use_several_filters() -> None:
    """Otherwise the test above would test one filter only."""
    a = last_filters(Terms.of("1", "0.01"), MENUS["pure"])
    b = last_filters(Terms.of("1", "0.3"), MENUS["rare and pure"])
    assert len(a) == len(b) == 3
    only = {(end.index(True)) for end in a | b if sum(end) == 1}
    assert only == {0, 2, 3, 5}  # Σ(ε, δ) alone, and three of the orders alone


def test_what_the_filter_admits_is_worth_having() -> None:
    """The best adversary gets a good part of δ: the bound is not empty."""
    got = against_the_portfolio(Terms.of("1", "0.1"), MENUS["pure and selection"])
    assert 0.02 < got <= 0.1


def test_without_delta_nobody_gets_anything() -> None:
    terms = Terms.of("1", "0")
    assert against_the_portfolio(terms, MENUS["everything"]) <= FLOATS
    assert against_the_portfolio(terms, MENUS["pure"]) <= FLOATS


# Named adversaries, transcript by transcript, through the filter itself.

Strategy = Callable[[State], list[Mechanism]]


def doubles_after_success(answers: State) -> list[Mechanism]:
    """Large steps after a positive answer, small ones otherwise; whatever still fits."""
    sizes = [8, 4, 2, 1] if answers and answers[-1] > 0 else [2, 1]
    return [response(size) for size in sizes]


def switches(answers: State) -> list[Mechanism]:
    """Gaussian-like while behind, pure or selection when ahead."""
    ahead = sum(answers) > 0
    return [selection(6, "0.003"), response(6)] if ahead else [rare(20, 1), response(6)]


def all_in_on_the_first(answers: State) -> list[Mechanism]:
    return [response(10), response(5)] if sum(answers) >= 0 else [selection(0, "0.004"), response(3)]


def divergence_of(strategy: Strategy, terms: Terms, most: int = 9) -> tuple[float, float]:
    """Σ max(p - e^ε q, 0) over all transcripts, and the same the other way round."""
    factor = math.exp(float(terms.epsilon))

    def follow(filter_: PrivacyFilter, answers: State, p: float, q: float) -> tuple[float, float]:
        if len(answers) < most and p and q:
            for mechanism in strategy(answers):
                copy = PrivacyFilter(terms)
                copy._spent = filter_.spent
                before = copy.spent
                try:
                    copy.admit(terms.price(mechanism.loss))
                except OverBudget:
                    assert copy.spent == before
                    continue
                one, other = mechanism.reveals * p, mechanism.reveals * q
                for by, share in mechanism.law:
                    good = (1 - mechanism.reveals) * share
                    a, b = follow(copy, (*answers, by), p * good * math.exp(by * STEP), q * good)
                    one, other = one + a, other + b
                return one, other
        return max(p - factor * q, 0), max(q - factor * p, 0)

    return follow(PrivacyFilter(terms), (), 1.0, 1.0)


@pytest.mark.parametrize("strategy", [doubles_after_success, switches, all_in_on_the_first])
@pytest.mark.parametrize(("epsilon", "delta"), first(3, [*BUDGETS[::2], *BUDGETS[1::2]]))
def test_named_adversaries_stay_below_delta_and_below_the_best(
    strategy: Strategy, epsilon: str, delta: str
) -> None:
    terms = Terms.of(epsilon, delta)
    found = divergence_of(strategy, terms)
    assert max(found) <= float(delta) + FLOATS


# Filters that look right and are not. The table must tell.


def counting(fits: Callable[[State], bool]) -> Decides:
    """A filter that remembers how often each mechanism was used."""

    @cache
    def checked(counts: State) -> bool:
        return fits(counts)

    def after(counts: State, i: int) -> State | None:
        following = (*counts[:i], counts[i] + 1, *counts[i + 1 :])
        return following if checked(following) else None

    return after


def composed(mechanisms: list[Mechanism], counts: State, epsilon: float) -> float:
    """δ at ε of this many uses of each, in an order fixed beforehand: what a sum of PLDs says."""
    law = np.zeros(2 * REACH + 1)
    law[REACH] = 1
    for mechanism, count in zip(mechanisms, counts, strict=True):
        for _ in range(count):
            following = np.zeros_like(law)
            for by, q in mechanism.law:
                following += q * np.roll(law, by)
            law = following
    return float(
        np.sum(law * np.maximum(np.exp(np.arange(-REACH, REACH + 1) * STEP) - math.exp(epsilon), 0))
    )


def test_case_L14_adding_up_loss_distributions_adaptively_is_violated() -> None:
    """Stop when the distribution of what was asked so far is full: valid for fixed runs only."""
    mechanisms, epsilon, delta = [response(4), response(20)], 2.0, 0.0533
    after = counting(lambda counts: composed(mechanisms, counts, epsilon) <= delta)
    got = best_adversary(epsilon, mechanisms, (0, 0), after)
    assert got > 1.5 * delta
    assert against_the_portfolio(Terms.of("2", "0.0533"), mechanisms) <= delta


def test_paying_for_failures_and_for_the_rest_from_the_same_delta_is_violated() -> None:
    """Each filter with the whole of δ, and δ₀ beside them with the whole of δ."""
    terms = Terms.of("0.5", "0.1")
    mechanisms = [selection(0, "0.02"), rare(14, 2), rare(14, 1)]
    charges = [terms.price(m.loss) for m in mechanisms]
    whole_caps = [
        math.floor(renyi_cap(order, terms.epsilon, terms.delta) * 10**9) for order in terms.orders
    ]

    def fits(counts: State) -> bool:
        sums = [sum(n * c.costs[k] for n, c in zip(counts, charges, strict=True)) for k in range(8)]
        below = any(total <= cap for total, cap in zip(sums[FIRST_ORDER:], whole_caps, strict=True))
        return sums[DELTA0] <= terms.delta * 10**18 and below

    got = best_adversary(0.5, mechanisms, (0, 0, 0), counting(fits))
    assert got > 0.1 * 1.1
    assert against_the_portfolio(terms, mechanisms) <= 0.1


def test_asking_only_whether_something_is_left_is_violated() -> None:
    """Admit while the sum so far is below the cap: the last charge goes over it."""
    mechanisms, cap = [response(18)], 20
    after = counting(lambda counts: (counts[0] - 1) * 18 < cap)
    assert best_adversary(1.0, mechanisms, (0,), after) > 0.1
    assert against_the_portfolio(Terms.of("1", "0"), mechanisms) <= FLOATS


@each(("epsilon", "delta"), BUDGETS)
def test_the_best_order_in_hindsight_admits_more_than_it_may(epsilon: str, delta: str) -> None:
    """Every order with the whole of δ, the best one chosen afterwards: no theorem allows that."""
    terms = Terms.of(epsilon, delta)
    whole_caps = [renyi_cap(order, terms.epsilon, terms.delta) * 10**9 for order in terms.orders]
    charge = terms.price(response(1).loss)
    in_hindsight = max(
        int(cap // cost) for cap, cost in zip(whole_caps, charge.costs[FIRST_ORDER:], strict=True)
    )
    assert in_hindsight > terms.how_many(charge)


# A second accountant.


def second_opinion(terms: Terms, events: list[tuple[DpEvent, int]]) -> float:
    """The least ε over the orders, each at its own share of δ, by dp-accounting."""
    found = []
    for order, share in zip(terms.orders, SHARE_ORDERS, strict=True):
        accountant = RdpAccountant([order])
        for event, count in events:
            accountant.compose(event, count)
        found.append(float(accountant.get_epsilon(float(terms.delta * share))))
    return min(found)


@each(("epsilon", "delta"), [("1", "1e-6"), ("3", "1e-6"), ("0.3", "1e-9"), ("8", "1e-5")])
@each("sigma", [20, 100, 700])
def test_case_N8_a_second_accountant_draws_the_line_at_the_same_place(
    epsilon: str, delta: str, sigma: int
) -> None:
    terms = Terms.of(epsilon, delta)
    most = terms.how_many(terms.price(GaussianNoise(Fraction(sigma), Fraction(1), 1)))
    if most:
        assert second_opinion(terms, [(GaussianDpEvent(sigma), most)]) <= float(terms.epsilon) * (1 + 1e-9)
    # Every charge is rounded up by less than one unit.
    rounding = (most + 1) * 1e-9 + 1e-9
    assert second_opinion(terms, [(GaussianDpEvent(sigma), most + 1)]) > float(terms.epsilon) - rounding


def test_case_N8_mixed_charges_agree_too() -> None:
    terms, rng = Terms.of("2", "1e-6"), np.random.default_rng(7)
    filter_, events = PrivacyFilter(terms), []
    while True:
        scale = int(rng.integers(100, 500))
        laplace = bool(rng.integers(2))
        loss: Loss = (
            LaplaceNoise(Fraction(scale), 1) if laplace else GaussianNoise(Fraction(scale), Fraction(1), 1)
        )
        try:
            filter_.admit(terms.price(loss))
        except OverBudget:
            break
        events.append((LaplaceDpEvent(scale) if laplace else GaussianDpEvent(scale), 1))
    # Continuous Laplace noise differs from discrete noise at these scales by less than 1e-5.
    assert second_opinion(terms, events) == pytest.approx(2, rel=2e-3)
    assert second_opinion(terms, events) <= 2 * (1 + 1e-5)


def test_the_shares_add_up_to_delta() -> None:
    assert SHARE_DELTA0 + SHARE_PAIR + sum(SHARE_ORDERS) == 1
