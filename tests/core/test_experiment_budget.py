"""A budget in memory: it charges before it draws, refuses what does not fit, and says that it forgets."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import lapwing
from lapwing.core.budget import PrivacyFilter, Terms
from lapwing.errors import BadParameter, BadValue, OverBudget, SessionOver
from lapwing.losses import (
    BoundedRange,
    GaussianNoise,
    LaplaceNoise,
    Pure,
    Relation,
    compose,
    parallel,
    poisson_sampled,
)
from lapwing.mechanisms import AboveThreshold, Gaussian, Laplace, PartitionSelection, RandomizedResponse
from support.cases import each
from support.switching import in_switching_threads

TENTH = Laplace.for_epsilon("0.1", l1=1)


@dataclass(frozen=True)
class Mine:
    """A mechanism of somebody else's."""

    loss: Any
    seen: list[Any]

    def sample(self, value: int) -> int:
        self.seen.append(value)
        return -value


def test_the_example_of_the_issue_runs_as_it_stands() -> None:
    budget = lapwing.Budget(epsilon=1)
    noisy = budget.release(Laplace.for_epsilon("0.1", l1=1), [42])
    assert noisy.shape == (1,)
    assert budget.left == Fraction(9, 10)


def test_it_says_that_it_forgets() -> None:
    assert "in memory only" in repr(lapwing.Budget(epsilon=1))
    assert "left=1;" in repr(lapwing.Budget(epsilon=1))
    assert "protects nobody whose data are used again" in (lapwing.Budget.__doc__ or "")


def test_a_function_in_c_without_a_signature_is_charged_and_drawn() -> None:
    class Largest:
        loss = Pure(Fraction(1, 10))
        sample = max

    budget = lapwing.Budget(epsilon=1)
    assert budget.release(Largest, 3, 5) == 5
    assert budget.left == Fraction(9, 10)


def test_ten_tenths_fit_and_the_next_is_not_drawn() -> None:
    budget = lapwing.Budget(epsilon=1)
    seen: list[int] = []
    mine = Mine(Pure(Fraction(1, 10)), seen)
    for k in range(10):
        assert budget.release(mine, k) == -k
    with pytest.raises(OverBudget):
        budget.release(mine, 10)
    assert seen == list(range(10))
    assert budget.left == 0


def test_the_filters_are_those_of_a_ledger() -> None:
    kinds = [LaplaceNoise(100, 1), GaussianNoise(50, 1, 1), BoundedRange(Fraction(1, 20))]
    terms = Terms.of(1, "1e-6")
    budget, filter_ = lapwing.Budget(epsilon=1, delta="1e-6"), PrivacyFilter(terms)
    for k in range(400):
        outcomes = []
        for spend in (lambda loss: filter_.admit(terms.price(loss)), budget.charge):
            try:
                spend(kinds[k % 3])
                outcomes.append(True)
            except OverBudget:
                outcomes.append(False)
        assert outcomes[0] == outcomes[1]
    assert not outcomes[0]
    assert budget.left == terms.largest_pure(filter_.spent)


def test_it_charges_before_it_draws_and_gives_nothing_back() -> None:
    budget = lapwing.Budget(epsilon=1)
    with pytest.raises(BadValue):
        budget.release(TENTH, ["a text"])
    assert budget.left == Fraction(9, 10)


@each(
    "call",
    [
        lambda budget: budget.release(TENTH),
        lambda budget: budget.release(TENTH, [1], [2]),
        lambda budget: budget.release(TENTH, other=3),
        lambda budget: budget.release(Pure(1), [42]),
        lambda budget: budget.release(3, [42]),
        lambda budget: budget.release(Mine(None, []), 1),
        lambda budget: budget.release(Mine("0.1", []), 1),
        lambda budget: budget.release(RandomizedResponse.two_coins().sample, [1]),
        lambda budget: budget.charge(0.1),
        lambda budget: budget.charge(None),
    ],
)
def test_a_call_that_cannot_work_is_not_charged(call: Callable[[lapwing.Budget], Any]) -> None:
    budget = lapwing.Budget(epsilon=1)
    with pytest.raises(BadParameter):
        call(budget)
    assert budget.left == 1


class Refund(Pure):
    """It says that it costs less than nothing."""

    @property
    def pure(self) -> Fraction:
        return Fraction(-1)

    def pair_units(self, epsilon_unit: int, delta_unit: int) -> tuple[int, int]:
        return -epsilon_unit, -delta_unit


@each("loss", [Refund(1), compose])
def test_a_loss_that_would_give_budget_back_is_refused(loss: Any) -> None:
    budget = lapwing.Budget(epsilon=1)
    budget.charge(Pure(Fraction(1, 2)))
    with pytest.raises(BadParameter):
        budget.charge(loss)
    assert budget.left == Fraction(1, 2)


def test_without_delta_only_pure_losses_fit() -> None:
    budget = lapwing.Budget(epsilon=1)
    for mechanism, data in (
        (Gaussian.for_rho("1e-9", l2_squared=1, dimension=1), [3]),
        (PartitionSelection.for_budget("0.1", "1e-9", keys=1), {"a": 9}),
    ):
        with pytest.raises(OverBudget):
            budget.release(mechanism, data)
    assert budget.left == 1
    lapwing.Budget(epsilon=1, delta="1e-6").release(
        Gaussian.for_rho("1e-3", l2_squared=1, dimension=1), [3]
    )


def test_a_session_is_paid_once() -> None:
    budget = lapwing.Budget(epsilon=1)
    session = budget.release(AboveThreshold.for_epsilon(1, sensitivity=1, positives=1), 500)
    assert not session.ask(0)
    assert session.ask(1000)
    with pytest.raises(OverBudget):
        budget.release(TENTH, [1])


# Relations.


def test_a_budget_is_about_one_relation() -> None:
    budget = lapwing.Budget(epsilon=9, delta="1e-6")
    known = [budget.relation]
    budget.release(RandomizedResponse.two_coins(), [1])
    known.append(budget.relation)
    assert known == [None, Relation.REPLACE]
    sampled = poisson_sampled(Pure(1), rate="0.1", relation=Relation.ADD_REMOVE)
    left = budget.left
    for other in (TENTH, sampled, sampled.loss, parallel(Pure(1), relation=Relation.ADD_REMOVE)):
        with pytest.raises(BadParameter) as caught:
            budget.charge(other)
        assert caught.value.name == "relation"
    budget.charge(compose(TENTH, relation=Relation.REPLACE))
    assert budget.left < left


def test_losses_that_name_no_relation_are_about_one_that_nobody_named() -> None:
    budget = lapwing.Budget(epsilon=9)
    budget.charge(TENTH)
    budget.charge(Pure(1))
    assert budget.relation is None
    with pytest.raises(BadParameter):
        budget.release(RandomizedResponse.two_coins(), [1])


def test_a_relation_that_is_stated_first_is_that_of_all() -> None:
    budget = lapwing.Budget(epsilon=9, relation=Relation.REPLACE)
    budget.charge(TENTH)
    budget.release(RandomizedResponse.two_coins(), [1])
    sampled = poisson_sampled(Pure(1), rate="0.1", relation=Relation.ADD_REMOVE)
    for other in (sampled, sampled.loss):
        with pytest.raises(BadParameter):
            budget.charge(other)


def test_a_charge_that_was_refused_names_no_relation() -> None:
    budget = lapwing.Budget(epsilon="0.5")
    with pytest.raises(OverBudget):
        budget.release(RandomizedResponse.two_coins(), [1])
    budget.charge(TENTH)
    assert budget.relation is None


# What cannot be built, copied or raised.


@each(
    "given",
    [
        {"epsilon": 0},
        {"epsilon": -1},
        {"epsilon": float("nan")},
        {"epsilon": None},
        {"epsilon": 1001},
        {"epsilon": 1, "delta": 1},
        {"epsilon": 1, "delta": -1},
        {"epsilon": 1, "relation": "replace"},
    ],
)
def test_a_senseless_budget_cannot_be_made(given: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        lapwing.Budget(**given)


@each("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_budget_has_no_copies(copied: Callable[[Any], object]) -> None:
    with pytest.raises(SessionOver):
        copied(lapwing.Budget(epsilon=1))


@each("name", ["left", "relation"])
def test_it_cannot_be_raised_by_assignment(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(lapwing.Budget(epsilon=1), name, 5)


def test_a_forked_child_has_no_budget() -> None:
    budget = lapwing.Budget(epsilon=1)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(SessionOver):
            budget.release(TENTH, [1])
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_threads_never_overspend_it() -> None:
    budget, loss = lapwing.Budget(epsilon=1), Pure(Fraction(1, 2000))
    drawn: list[int] = []
    mine = Mine(loss, drawn)

    def spend() -> None:
        with contextlib.suppress(OverBudget):
            while True:
                budget.release(mine, 1)

    in_switching_threads(spend, 6)
    assert len(drawn) == 2000


def test_a_numpy_epsilon_is_a_number() -> None:
    assert lapwing.Budget(epsilon=np.float64(0.5)).left == Fraction(1, 2)
