"""The same question again: what its plan says is what the answer has, and never less than was sold."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from lapwing.sql.answering.answers import Answer
from lapwing.sql.dataset import Dataset
from lapwing.sql.pricing.plan import Plan

Open = Callable[..., Dataset]
COUNT = "SELECT COUNT(*) AS n FROM visits"
WARDS = "SELECT ward, COUNT(*) AS n, SUM(stay) AS s FROM visits GROUP BY ward"
QUOTAS = "[analysts.ann]\nepsilon = 5\ndelta = 0\n[analysts.bob]\nepsilon = 5\ndelta = 0\n"


def halves(answer: Answer) -> dict[str, float]:
    return {
        column.name: float(np.max(column.high - column.low)) / 2
        for column in answer.columns
        if column.low is not None and column.high is not None
    }


def planned(plan: Plan) -> dict[str, float]:
    return {name: one.half for name, one in plan.spread.items() if one.half is not None}


@pytest.mark.parametrize("sql", [COUNT, WARDS])
@pytest.mark.parametrize(
    "prices", [("1", "1", "4"), ("0.4", "2", "2.2", "2.4"), ("2", "0.4"), ("2", "2.5", "3", "2")]
)
# Case C16.
def test_the_answer_is_as_wide_as_its_plan_says_and_no_wider_than_alone(
    opened: Open, sql: str, prices: tuple[str, ...]
) -> None:
    dataset = opened()
    alone = {price: planned(dataset.plan(sql, epsilon=price)) for price in prices}
    shown: dict[str, float] = {}
    for number, price in enumerate(prices, 1):
        plan = dataset.plan(sql, epsilon=price)
        answer = plan.release()
        assert halves(answer) == pytest.approx(planned(plan))
        assert answer.of == len(set(prices[:number]))
        assert answer.is_replay is (price in prices[: number - 1])
        for name, width in planned(plan).items():
            assert width <= min(alone[price][name], shown.get(name, width))
        shown = planned(plan)


# Case C16.
def test_a_second_question_for_an_accuracy_is_cheaper_or_free(opened: Open) -> None:
    dataset = opened()
    price = dataset.plan(COUNT, within=55).cost.epsilon
    dataset.ask(COUNT, epsilon="0.1")  # alone ± 60
    second = dataset.plan(COUNT, within=55)
    assert second.cost.epsilon < Fraction(8, 10) * price
    assert planned(second)["n"] <= 55
    answer = second.release()
    assert halves(answer)["n"] <= 55
    assert (answer.of, answer.is_replay) == (2, False)
    for within in (55, 58, 200):  # reached: nothing more is charged
        third = dataset.plan(COUNT, within=within)
        assert third.is_stored
        assert "costs nothing" in str(third)
        assert third.release().is_replay
        assert halves(third.release()) == halves(answer)


@pytest.mark.parametrize(("before", "within"), [("0.5", 15), ("0.5", 60), ("0.05", 500), ("2", 40)])
# Case C16.
def test_an_accuracy_is_reached_after_any_releases(opened: Open, before: str, within: int) -> None:
    dataset = opened(more="least_epsilon = 1e-3\n")
    alone = dataset.plan(WARDS, within=within).cost.epsilon
    dataset.ask(WARDS, epsilon=before)
    dataset.ask(WARDS, epsilon="0.01")
    plan = dataset.plan(WARDS, within=within)
    assert plan.cost.epsilon <= alone or plan.is_stored
    assert max(planned(plan).values()) <= within
    assert max(halves(plan.release()).values()) <= within


def test_after_new_answers_the_stored_reply_is_their_mean(opened: Open) -> None:
    dataset = opened()
    single = [dataset.ask(COUNT, epsilon="0.1").columns[0].values[0]]
    for count in range(2, 7):
        mean = dataset.ask(COUNT, epsilon="0.1", fresh=True)
        single.append(count * mean.columns[0].values[0] - sum(single))
        assert abs(single[-1] - round(single[-1])) < 1e-6  # each release is a whole number
        stored = dataset.ask(COUNT, epsilon="0.1")
        assert stored.is_replay
        assert stored.of == mean.of == count
        assert stored.receipt == mean.receipt
        assert stored.to_json()["columns"] == mean.to_json()["columns"]
    assert "all right but with probability 0.4 at most" in str(stored)


def test_a_plan_tells_nothing_of_answers_that_the_analyst_may_not_see(opened: Open) -> None:
    ann = opened(more=QUOTAS)
    bob = Dataset(ann.curator, analyst="bob")
    before = str(bob.plan(COUNT, epsilon="0.1")), bob.plan(COUNT, within=55).cost
    ann.ask(COUNT, epsilon="0.1")
    assert ann.plan(COUNT, within=55).cost != before[1]
    assert (str(bob.plan(COUNT, epsilon="0.1")), bob.plan(COUNT, within=55).cost) == before


def test_planning_makes_no_ledger_and_charges_nothing(opened: Open) -> None:
    dataset = opened()
    dataset.plan(COUNT, epsilon=1)
    assert not dataset.curator.has_ledger
    dataset.ask(COUNT, epsilon=1)
    left = dataset.left()
    assert dataset.plan(COUNT, epsilon="0.5").before
    assert dataset.left() == left
