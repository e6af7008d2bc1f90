"""Prices and budgets are numbers; their texts are for people."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lapwing.errors import BadParameter
from lapwing.sql.pricing.cost import BudgetLeft, Cost
from sql.conftest import Open


@pytest.mark.parametrize(
    ("epsilon", "delta", "text"),
    [("0.3", "0", "ε 0.3"), ("1/3", "1e-6", "ε 0.333333, δ 1e-6"), ("2", "0", "ε 2")],
)
def test_a_cost_is_exact_and_prints_well(epsilon: str, delta: str, text: str) -> None:
    cost = Cost(Fraction(epsilon), Fraction(delta))
    assert (cost.epsilon, cost.delta) == (Fraction(epsilon), Fraction(delta))
    assert str(cost) == text
    assert repr(Cost(Fraction("0.3"), Fraction(0))) == "Cost(epsilon=0.3, delta=0)"


def test_a_budget_says_the_quota_first() -> None:
    quota = BudgetLeft(Fraction(1, 2), Fraction(2), Fraction(0))
    data = BudgetLeft(Fraction(5, 2), Fraction(3), Fraction(0))
    assert str(data) == "ε 2.5 of 3"
    both = BudgetLeft(data.epsilon, data.of, data.delta, quota)
    assert str(both) == "ε 0.5 of 2 of the analyst's quota, ε 2.5 of 3 of the data's budget"


def test_plans_answers_and_data_sets_give_them(opened: Open) -> None:
    dataset = opened()
    plan = dataset.plan("SELECT COUNT(*) FROM visits", epsilon="0.3")
    answer = plan.release()
    assert plan.cost == answer.cost == Cost(Fraction(3, 10), Fraction(0))
    assert f"{plan.cost.epsilon}" == "0.3"
    left = answer.left
    assert left == dataset.left()
    assert (left.epsilon, left.of) == (Fraction(97, 10), Fraction(10))
    assert left.quota is None
    assert 0 < left.delta < Fraction(1, 10**6)
    found = answer.to_json()
    assert (found["cost"], found["left"]) == ("ε 0.3", "ε 9.7 of 10")
    assert "Budget left: ε 9.7 of 10." in answer.footer()
    fake = plan.dry_run()
    assert fake.charge is None
    for name in ("cost", "left", "receipt"):
        with pytest.raises(BadParameter, match="made of generated rows"):
            getattr(fake, name)
    assert fake.to_json()["cost"] == ""
    assert fake.to_json()["left"] == ""
