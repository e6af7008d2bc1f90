"""A data set fits estimators: charged once, before any row is read, under the policy of the rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lapwing.errors import AllHeld, BadParameter, ClassNotSeen, Held, OverBudget
from lapwing.learn import (
    AdditiveTrees,
    Binned,
    KMeans,
    LinearRegression,
    LogisticRegression,
    NaiveBayes,
    Real,
)
from lapwing.sql import row_questions
from lapwing.sql.dataset import Dataset
from lapwing.sql.question.refusal import Refused
from sql.conftest import Open
from support.raised import coded, named

ROWS = "SELECT stay, ward FROM visits"


def spent(dataset: Dataset) -> int:
    return max(block.spent[1] for block in dataset.ledger.blocks("visits"))


def logistic(**more: Any) -> LogisticRegression:
    return LogisticRegression(**{"size": 300, **more})


def test_a_fit_takes_columns_classes_and_units_from_the_policy(opened: Open) -> None:
    dataset = opened()
    model = logistic()
    assert dataset.fit(model, ROWS, epsilon=2) is model
    assert model.columns_ == {"stay": Real(0, 10)}
    assert model.classes_.tolist() == ["A", "B"]
    assert model.get_params()["columns"] is None
    assert model.get_params()["epsilon"] is None
    assert model.receipt_.record["mechanism"] == "logistic regression"
    assert model.receipt_.record["parameters"]["rows of a unit"] == 2
    assert 0.99 * 2e9 <= spent(dataset) <= 2e9
    assert set(model.predict(pd.DataFrame({"stay": [0, 10]}))) <= {"A", "B"}


def test_one_row_of_each_person_trains(opened: Open) -> None:
    """There are 300 people with three visits each, of which two count."""
    model = opened().fit(NaiveBayes(), ROWS, epsilon=9, delta="1e-7")
    assert abs(model.class_counts_.sum() - 300) < 8 * 2**0.5 * model.class_counts_sigma_


def test_the_same_fit_again_costs_nothing(opened: Open) -> None:
    dataset = opened()
    first = dataset.fit(logistic(), ROWS, epsilon=1)
    cost = spent(dataset)
    again = dataset.fit(logistic(), "select stay, ward from visits", epsilon=1)
    assert np.array_equal(again.weights_, first.weights_)
    assert again.receipt_.position == first.receipt_.position
    assert spent(dataset) == cost
    dataset.close()
    later = opened(rewrite=False)
    assert np.array_equal(later.fit(logistic(), ROWS, epsilon=1).weights_, first.weights_)
    assert spent(later) == cost


@pytest.mark.parametrize(
    ("model", "question", "price"),
    [
        (logistic(radius=1), ROWS, {"epsilon": 1}),
        (logistic(columns={"stay": Real(0, 5)}), ROWS, {"epsilon": 1}),
        (logistic(), "SELECT stay + 0 AS stay, ward FROM visits", {"epsilon": 1}),
        (logistic(), ROWS, {"epsilon": "0.5"}),
        (logistic(), ROWS, {"epsilon": 1, "delta": "1e-8"}),
        (logistic(), ROWS, {"epsilon": 1, "fresh": True}),
    ],
)
def test_another_fit_is_charged(model: Any, question: str, price: dict[str, Any], opened: Open) -> None:
    dataset = opened()
    first = dataset.fit(logistic(), ROWS, epsilon=1)
    cost = spent(dataset)
    other = dataset.fit(model, question, **price)
    assert other.receipt_.position != first.receipt_.position
    assert spent(dataset) > cost


def test_a_fresh_fit_is_the_stored_one_from_then_on(opened: Open) -> None:
    dataset = opened()
    dataset.fit(logistic(), ROWS, epsilon=1)
    fresh = dataset.fit(logistic(), ROWS, epsilon=1, fresh=True)
    assert dataset.fit(logistic(), ROWS, epsilon=1).receipt_.position == fresh.receipt_.position


def test_nothing_is_read_that_is_not_charged(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = opened()
    dataset.prepare()

    def read(*_: object) -> Any:
        raise AssertionError

    monkeypatch.setattr(row_questions, "read_rows", read)
    with pytest.raises(OverBudget):
        dataset.fit(logistic(), ROWS, epsilon=20)
    assert spent(dataset) == 0


@pytest.mark.parametrize(
    ("model", "question", "more", "wrong"),
    [
        (logistic(), "SELECT admitted, ward FROM visits", {}, "question"),
        (logistic(), "SELECT ward FROM visits", {}, "question"),
        (logistic(), "SELECT ward, stay FROM visits", {}, "label"),
        (logistic(), ROWS, {"label": "age"}, "label"),
        (logistic(classes=("a", "b")), ROWS, {}, "classes"),
        (logistic(classes=("A",)), ROWS, {}, "classes"),
        (logistic(size=None), ROWS, {}, "size"),
        (logistic(columns={"age": Real(0, 1)}), ROWS, {}, "columns"),
        (logistic(columns=[Real(0, 1), Real(0, 1)]), ROWS, {}, "columns"),
        (logistic(class_check=1), ROWS, {}, "class_check"),
        (logistic(), ROWS, {"epsilon": 0}, "epsilon"),
        (logistic(), ROWS, {"delta": 0}, "delta"),
        (LinearRegression(), ROWS, {}, "label"),
        (KMeans(n_clusters=2), ROWS, {"label": "ward"}, "label"),
        (NaiveBayes(columns={"stay": Real(0, 1)}), ROWS, {}, "columns"),
        (LogisticRegression, ROWS, {}, "estimator"),
        (None, ROWS, {}, "estimator"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_charged(
    model: Any, question: str, more: dict[str, Any], wrong: str, opened: Open
) -> None:
    dataset = opened()
    with pytest.raises(BadParameter, check=named(wrong)):
        dataset.fit(model, question, **{"epsilon": 1, **more})
    assert not dataset.curator.has_ledger


def test_a_question_without_rows_to_learn_from_is_refused(opened: Open) -> None:
    dataset = opened()
    for question in (
        "SELECT name, ward FROM visits",
        "SELECT COUNT(*) FROM visits",
        "SELECT patient_id, ward FROM visits",
    ):
        with pytest.raises(Refused):
            dataset.fit(logistic(), question, epsilon=1)


def test_a_small_price_is_refused_where_the_policy_has_a_least_one(opened: Open) -> None:
    dataset = opened()
    least = dataset.policy.least_epsilon
    for epsilon in (least / 2, least):  # Gaussian noise costs less than its ε
        with pytest.raises(BadParameter, check=named("epsilon")):
            dataset.fit(logistic(), ROWS, epsilon=epsilon)
    assert not dataset.curator.has_ledger


def test_a_model_that_is_stored_is_given_where_the_least_price_rose(opened: Open, tmp_path: Any) -> None:
    first = opened().fit(logistic(), ROWS, epsilon="0.5")
    text = (tmp_path / "visits.toml").read_text()
    (tmp_path / "visits.toml").write_text(text.replace("1e-6", "1e-6\nleast_epsilon = 1.0"))
    dataset = opened(rewrite=False)
    assert np.array_equal(dataset.fit(logistic(), ROWS, epsilon="0.5").weights_, first.weights_)
    with pytest.raises(BadParameter, check=named("epsilon")):
        dataset.fit(logistic(radius=1), ROWS, epsilon="0.5")


def test_a_fit_that_failed_is_held_until_the_curator_clears_it(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = opened()

    def fail(*_: object) -> Any:
        raise ValueError("stay 7")

    with monkeypatch.context() as patch:
        patch.setattr(LogisticRegression, "_train", fail)
        with pytest.raises(Held) as held:
            dataset.fit(logistic(), ROWS, epsilon=1)
    assert "7" not in str(held.value)
    cost = spent(dataset)
    assert cost > 0
    for fresh in (False, True):
        with pytest.raises(Held):
            dataset.fit(logistic(), ROWS, epsilon=1, fresh=fresh)
    assert spent(dataset) == cost
    dataset.clear_hold(held.value.position)
    assert dataset.fit(logistic(), ROWS, epsilon=1).weights_.shape == (1, 1)


def fail(dataset: Dataset, **more: Any) -> int:
    """The receipt of a fit that fails."""

    def failing(*_: object) -> Any:
        raise ValueError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogisticRegression, "_train", failing)
        with pytest.raises(Held) as held:
            dataset.fit(logistic(**more), ROWS, epsilon="0.1")
    assert type(held.value) is Held
    return held.value.position


def test_after_three_failures_no_fit_is_shown(opened: Open) -> None:
    """Neither a stored model nor which fit failed: both would tell of rows."""
    dataset = opened()
    dataset.fit(logistic(), ROWS, epsilon=1)
    failed = [fail(dataset, radius=n) for n in (1, 2, 3)]
    cost = spent(dataset)
    for model, price in ((logistic(), 1), (logistic(radius=1), "0.1"), (logistic(radius=4), 1)):
        with pytest.raises(AllHeld) as held:
            dataset.fit(model, ROWS, epsilon=price)
        assert held.value.positions == tuple(failed)
    assert spent(dataset) == cost
    opened(analyst="bob", rewrite=False).fit(logistic(), ROWS, epsilon=1)


@pytest.mark.parametrize("succeeds", [True, False])
def test_the_outcome_of_a_fit_that_was_under_way_is_not_told(
    opened: Open, monkeypatch: pytest.MonkeyPatch, succeeds: bool
) -> None:
    """However many fits begin at once, an analyst learns of three that failed."""
    dataset, other, read = opened(), opened(rewrite=False), row_questions.read_rows
    failed: list[int] = []
    dataset.prepare()

    def late(*given: Any) -> Any:
        monkeypatch.setattr(row_questions, "read_rows", read)
        failed.extend(fail(other, radius=n) for n in (1, 2, 3))
        if not succeeds:
            raise ValueError
        return read(*given)

    monkeypatch.setattr(row_questions, "read_rows", late)
    with pytest.raises(AllHeld) as held:
        dataset.fit(logistic(), ROWS, epsilon=1)
    assert held.value.positions == tuple(failed)
    dataset.clear_hold(*failed)
    if succeeds:
        cost = spent(dataset)
        dataset.fit(logistic(), ROWS, epsilon=1)
        assert spent(dataset) == cost
    else:
        with pytest.raises(Held, check=coded("held")):
            dataset.fit(logistic(), ROWS, epsilon=1)


class Named(LogisticRegression):
    """An estimator whose settings have names of the data set's own."""

    def plan_fit(self, columns: Any, **price: Any) -> Any:
        planned = super().plan_fit(columns, **price)
        return SimpleNamespace(
            loss=planned.loss, mechanism=planned.mechanism, train=planned.train, finish=planned.finish,
            parameters={**planned.parameters, "rows": "half"},
        )  # fmt: skip


def test_a_setting_hides_no_fact_of_the_data_set(opened: Open) -> None:
    """The fits of two questions would have one key."""
    dataset = opened()
    with pytest.raises(BadParameter, check=named("estimator")):
        dataset.fit(Named(size=300), ROWS, epsilon=1)
    assert not dataset.curator.has_ledger


def test_a_failed_fit_leaves_the_model_of_an_earlier_one(opened: Open) -> None:
    dataset, model = opened(), logistic()
    dataset.fit(model, ROWS, epsilon=1)
    before = model.weights_
    with pytest.raises(OverBudget):
        dataset.fit(model, ROWS, epsilon=20)
    assert model.weights_ is before


def test_a_model_of_one_question_learns_another(opened: Open) -> None:
    dataset, model = opened(), logistic()
    dataset.fit(model, ROWS, epsilon=1)
    dataset.fit(model, "SELECT ward, stay, stay > 4 AS long FROM visits", epsilon=1)
    assert list(model.columns_) == ["ward", "stay"]
    assert model.classes_.tolist() == [False, True]


def test_quotas_are_charged_too(opened: Open) -> None:
    dataset = opened(more="[analysts.ann]\nepsilon = 1.0\ndelta = 1e-7\n")
    with pytest.raises(OverBudget):
        dataset.fit(logistic(), ROWS, epsilon=20)


def test_numbers_are_cut_for_trainers_of_finitely_many_values(opened: Open) -> None:
    dataset = opened()
    trees = dataset.fit(AdditiveTrees(columns={"stay": Binned([2, 5])}), ROWS, epsilon=1)
    assert trees.columns_ == {"stay": Binned([2, 5])}
    model = dataset.fit(NaiveBayes(), ROWS, epsilon=1)
    assert model.columns_["stay"].width == 16


def test_values_that_the_policy_spells_otherwise_are_told(opened: Open, tmp_path: Any) -> None:
    """The rows have A and B: declared as "b", two thirds of them have no class."""
    dataset = opened()
    (tmp_path / "visits.toml").write_text((tmp_path / "visits.toml").read_text().replace('"B"', '"b"'))
    dataset.close()
    dataset = opened(rewrite=False)
    with pytest.raises(ClassNotSeen) as seen:
        dataset.fit(logistic(), ROWS, epsilon=8, delta="1e-7")
    assert seen.value.classes == ("'b'",)
    assert 0.5 < seen.value.share < 0.8
    cost = spent(dataset)
    with pytest.raises(ClassNotSeen):
        dataset.fit(logistic(), ROWS, epsilon=8, delta="1e-7")
    assert spent(dataset) == cost
