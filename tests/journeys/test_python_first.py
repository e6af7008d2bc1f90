"""Lapwing as a Python library: own frame, question, model, budget and losses, in an empty folder."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lapwing
from lapwing.learn import LogisticRegression
from lapwing.mechanisms import Gaussian, Laplace

PEOPLE = 2000
QUESTION = "SELECT city, AVG(amount) AS mean FROM orders GROUP BY city"
COLUMNS: dict[str, Any] = {
    "city": ["Oslo", "Bergen"],
    "amount": lapwing.between(0, 500, step="0.01"),
    "age": lapwing.between(18, 98),
    "income": lapwing.between(0, 100_000),
    "churned": "bool",
}


@pytest.fixture
def frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Two orders of each person, in an empty working folder. People above 57 have churned.

    Oslo's orders cost 100 on average, and Bergen's 300.
    """
    monkeypatch.chdir(tmp_path)
    person = np.repeat(np.arange(PEOPLE), 2)
    in_oslo = np.arange(2 * PEOPLE) % 2 == 0
    age = 18 + person % 80
    return pd.DataFrame(
        {
            "customer_id": [f"C {number}" for number in person],
            "city": np.where(in_oslo, "Oslo", "Bergen"),
            "amount": np.where(in_oslo, 100, 300) + (person % 21 - 10),
            "age": age,
            "income": 1000 * (person % 60),
            "churned": age > 57,
        }
    )


def _policy(frame: Any) -> lapwing.Policy:
    return lapwing.Policy(
        "orders", epsilon=3, delta=1e-7,
        tables=[lapwing.Table("orders", frame, unit="customer_id", rows_per_unit=5, columns=COLUMNS)],
    )  # fmt: skip


def test_an_own_frame_question_and_model_are_charged_once(frame: pd.DataFrame) -> None:
    with lapwing.open(_policy(frame), version="2026-03") as orders:
        plan = orders.plan(QUESTION, epsilon=0.5)
        assert plan.cost.epsilon == Fraction(1, 2)
        assert str(plan.cost) == "ε 0.5"
        assert orders.left().epsilon == 3  # a plan is free
        answer = plan.release()
        assert answer.cost.epsilon == Fraction("0.5")
        assert (answer.left.epsilon, answer.left.of) == (Fraction("2.5"), Fraction(3))
        assert "Budget left: ε 2.5 of 3." in str(answer)
        means = answer.to_pandas().set_index("city")["mean"]
        assert means["Oslo"] < 200 < means["Bergen"]  # 20 scales of the noise away: wrong with e^-20
        rows = "SELECT age, income, churned FROM orders"
        model = orders.fit(LogisticRegression(size=PEOPLE), rows, epsilon=1)
        young, old = pd.DataFrame({"age": [20, 95], "income": 30_000}).pipe(model.predict)
        assert (young, old) == (False, True)
        left = orders.left()
        assert 1.5 <= left.epsilon < 2.5

    # In another session everything is there already, and costs nothing.
    with lapwing.open(_policy(frame.copy()), version="2026-03") as orders:
        again = orders.plan(QUESTION, epsilon=0.5).release()
        assert again.is_replay
        assert again.receipt == answer.receipt
        assert again.to_arrow().equals(answer.to_arrow())
        same = orders.fit(LogisticRegression(size=PEOPLE), rows, epsilon=1)
        assert np.array_equal(same.coef_, model.coef_)
        assert same.receipt_ == model.receipt_
        assert orders.left() == left


def test_the_rows_of_another_version_are_charged_from_the_same_budget(frame: pd.DataFrame) -> None:
    with lapwing.open(_policy(frame), version="2026-03") as orders:
        orders.ask(QUESTION, epsilon=0.5)
    with lapwing.open(_policy(frame.head(3000)), version="2026-04") as orders:
        orders.ask(QUESTION, epsilon=0.5)
        assert orders.left().epsilon == 2
        with pytest.raises(lapwing.OverBudget):
            orders.plan(QUESTION, epsilon="2.01").release()
        assert orders.left().epsilon == 2


def test_one_frame_is_opened_without_a_policy(frame: pd.DataFrame) -> None:
    with lapwing.open(frame, unit="customer_id", columns=COLUMNS, epsilon=3) as data:
        answer = data.ask("SELECT COUNT(*) AS n FROM data", epsilon=1)
        assert abs(answer.to_pandas()["n"][0] - PEOPLE) < 50  # one row of each person; wrong with e^-50


def test_a_budget_in_memory_charges_what_it_releases() -> None:
    budget = lapwing.Budget(epsilon=1)
    noisy = budget.release(Laplace.for_epsilon("0.1", l1=1), [42])
    assert abs(noisy[0] - 42) < 500  # wrong with e^-50
    assert budget.left == Fraction(9, 10)
    assert "in memory" in str(budget)
    with pytest.raises(lapwing.OverBudget):
        budget.release(Laplace.for_epsilon(1, l1=1), [42])
    assert budget.left == Fraction(9, 10)


def test_losses_compose() -> None:
    a, b = Laplace.for_epsilon("0.5", l1=1), Laplace.for_epsilon("0.25", l1=1)
    assert lapwing.losses.compose(a.loss, b.loss).epsilon(delta=0) == Fraction(3, 4)
    c = Gaussian.for_rho("0.01", l2_squared=1, dimension=1)
    both = lapwing.losses.compose(a.loss, c.loss)
    at = both.epsilon(delta=1e-6)
    assert Fraction(1, 2) < at < Fraction(3, 2)
    assert lapwing.losses.from_json(both.to_json()).epsilon(delta=1e-6) == at


def test_python_m_lapwing_helps(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "lapwing", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "Usage: lapwing" in done.stdout
    assert "plan" in done.stdout
    assert list(tmp_path.iterdir()) == []
