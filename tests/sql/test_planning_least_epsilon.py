"""One question costs at least the policy's least ε: a budget does not buy any number of questions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from lapwing.core import Pure, Terms
from lapwing.errors import BadParameter
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.sql.question import analysis
from lapwing.sql.question.refusal import Refused
from support.hospital import Hospital, policy_for

SQL = "SELECT COUNT(*) FROM visits"
ROW = {"ward": "A", "cost": 1.0, "admitted": None, "urgent": True, "stay": 3, "name": "x"}


@pytest.fixture
def policy(tmp_path: Path) -> CheckedPolicy:
    people = Hospital({f"p{n}": [{**ROW, "who": f"p{n}"}] for n in range(20)}, {})
    return replace(policy_for(people, "duckdb", tmp_path), least_epsilon=Fraction("0.003"))


@pytest.fixture
def dataset(policy: CheckedPolicy) -> Iterator[Dataset]:
    with Dataset(policy, analyst="ann") as opened:
        yield opened


def spent(dataset: Dataset) -> bool:
    return any(any(block.spent) for block in dataset.ledger.blocks(dataset.policy.name))


def test_less_is_refused_before_the_charge_and_the_least_is_answered(dataset: Dataset) -> None:
    for refused in (
        lambda: dataset.plan(SQL, epsilon="0.002999999"),
        lambda: dataset.ask(SQL, epsilon="1e-6"),
        lambda: dataset.truncated("visits", epsilon="0.001"),
        lambda: dataset.two_stage("SELECT AVG(stay) FROM visits", within=1, first="0.001"),
        lambda: dataset.search_bounds("visits", "stay", epsilon="0.001", step=1),
    ):
        with pytest.raises(BadParameter, match=r"asked ε .*at least ε 0\.003 here. Ask with ε 0\.003 or"):
            refused()
    assert not spent(dataset)
    assert str(dataset.ask(SQL, epsilon="0.003").cost) == "ε 0.003"


def test_what_costs_less_than_its_epsilon_is_refused_until_it_costs_as_much(dataset: Dataset) -> None:
    """Gaussian noise with a tiny δ, and many aggregates in one question, bought millions of questions."""
    many = ", ".join(f"COUNT_IF(stay > {n}) AS c{n}" for n in range(9))
    terms = Terms.of(dataset.policy.epsilon, dataset.policy.delta)
    most = terms.how_many(terms.price(Pure(Fraction("0.003")))) * 1.02
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        (SQL, {"noise": "gaussian", "delta": "1e-12"}),
        (SQL, {"noise": "gaussian", "delta": "1e-100"}),
        (f"SELECT {many} FROM visits", {}),
    )
    for sql, options in cases:
        with pytest.raises(BadParameter, match=r"cost less than their ε. Ask with ε") as refused:
            dataset.plan(sql, epsilon="0.003", **options)
        [enough] = re.findall(r"Ask with ε (\S+) or more", str(refused.value))
        assert Fraction("0.003") < Fraction(enough) < Fraction("0.3")
        plan = dataset.plan(sql, epsilon=enough, **options)
        assert terms.how_many(terms.price(plan.shares.loss)) <= most
    assert not spent(dataset)


def test_an_accuracy_that_needs_less_costs_the_least(dataset: Dataset) -> None:
    plan = dataset.plan(SQL, within=10**6)
    assert plan.cost.epsilon == Fraction("0.003")
    assert "the least for one question" in str(plan)
    assert dataset.plan(SQL, within=10).cost.epsilon > Fraction("0.003")


def test_a_stored_answer_at_a_lower_price_is_still_repeated_and_not_asked_anew(
    policy: CheckedPolicy,
) -> None:
    with Dataset(replace(policy, least_epsilon=Fraction(0)), analyst="ann") as before:
        first = before.ask(SQL, epsilon="0.001")
        wide = before.ask(SQL, within=10**6)
    with Dataset(policy, analyst="ann") as dataset:
        again = dataset.ask(SQL, epsilon="0.001")
        assert again.is_replay
        assert again.rows.columns[0].values == first.rows.columns[0].values
        assert dataset.ask(SQL, within=10**6).cost == wide.cost
        with pytest.raises(BadParameter, match="at least ε"):
            dataset.ask(SQL, epsilon="0.001", fresh=True)


def test_a_known_answer_is_not_sold_and_one_that_was_sold_comes_back(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = f"{SQL} WHERE ward LIKE 'z%'"
    with monkeypatch.context() as earlier:  # when such questions were answered
        earlier.setattr(analysis, "is_possible", lambda _: True)
        dataset.ask(known, epsilon=1)
    assert dataset.ask(known, epsilon=1).is_replay
    before = [block.spent for block in dataset.ledger.blocks(dataset.policy.name)]
    for epsilon, within in ((2, None), (None, 5)):
        with pytest.raises(Refused, match="no row can meet WHERE"):
            dataset.plan(known, epsilon=epsilon, within=within)
    assert [block.spent for block in dataset.ledger.blocks(dataset.policy.name)] == before
