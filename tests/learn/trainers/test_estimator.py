"""Trainers follow scikit-learn's conventions, and pay for every fit."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone  # type: ignore[import-untyped]
from sklearn.exceptions import NotFittedError  # type: ignore[import-untyped]
from sklearn.model_selection import GridSearchCV  # type: ignore[import-untyped]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]

from lapwing.core.conversions import loss_to_epsilon
from lapwing.core.exact import round_up
from lapwing.core.losses import Relation
from lapwing.errors import BadParameter, BadValue, KeyReused, OverBudget, WorkEnded
from lapwing.learn.payer import EACH_ROW, LedgerPayer, PublicData
from lapwing.learn.trainers import (
    PCA,
    AdditiveTrees,
    Binned,
    KMeans,
    LinearRegression,
    LogisticRegression,
    NaiveBayes,
    Real,
)
from lapwing.ledger import Ledger, Unit
from lapwing.ledger.gate import Gate, ReleaseStep
from lapwing.ledger.spending import Target
from support.faults import KILLED
from support.ledgers import Home, open_account

PAID: dict[str, Any] = {"epsilon": "0.5", "delta": "1e-7", "payer": PublicData()}
FEW: dict[str, Any] = {"columns": Real(-1, 1), **PAID}
CODED: dict[str, Any] = {"columns": Binned([-0.5, 0, 0.5]), "classes": ("no", "yes"), **PAID}
ALL: list[Any] = [
    LogisticRegression(classes=("no", "yes"), size=300, **FEW),
    LinearRegression(target=Real(-1, 1), **FEW),
    NaiveBayes(**CODED),
    AdditiveTrees(**CODED),
    KMeans(n_clusters=2, **FEW),
    PCA(n_components=2, **FEW),
]
each = pytest.mark.parametrize("trainer", ALL, ids=lambda trainer: type(trainer).__name__)


def data(rows: int = 300) -> tuple[NDArray[np.float64], NDArray[Any]]:
    table = np.random.default_rng(7).uniform(-1, 1, (rows, 3))
    return table, np.where(table[:, 0] > 0, "yes", "no")


def fitted(trainer: Any, table: Any, y: Any) -> Any:
    goal = np.where(y == "yes", 1, -1) if isinstance(trainer, LinearRegression) else y
    return clone(trainer).fit(table, goal, units=EACH_ROW)


def outcome(model: Any, table: Any) -> Any:
    return model.predict(table) if hasattr(model, "predict") else model.transform(table)


def payer_of(
    ledger: Ledger, key: str | None = None, watch: Callable[[ReleaseStep], None] | None = None
) -> LedgerPayer:
    gate = (
        Gate(ledger, principal="builder")
        if watch is None
        else Gate(ledger, principal="builder", watch=watch)
    )
    return LedgerPayer(
        gate,
        targets=(Target("visits"),),
        unit=Unit.PERSON,
        relation=Relation.ADD_REMOVE,
        request=b"a model of visits, version 1",
        key=key,
    )


@pytest.fixture
def ledger(file_home: Home) -> Ledger:
    made = file_home.create()
    open_account(made, epsilon=5, delta="1e-5")
    return made


@each
class TestEachTrainer:
    def test_is_cloned_with_the_same_payer_and_parameters(self, trainer: Any) -> None:
        copy = clone(trainer)
        assert copy.payer is trainer.payer
        assert copy.get_params().keys() == trainer.get_params().keys()

    def test_says_what_a_fit_costs_for_free(self, trainer: Any) -> None:
        loss = trainer.price(3)
        assert loss.pair[0] <= Fraction(1, 2)
        shown = loss_to_epsilon(loss, Fraction(1, 10**7))
        assert shown is not None
        assert shown <= Fraction(1, 2)

    def test_is_charged_for_each_fit_what_it_said(self, trainer: Any, ledger: Ledger) -> None:
        table, y = data()
        paying = clone(trainer).set_params(payer=payer_of(ledger))
        first = fitted(paying, table, y)
        before = ledger.blocks("visits")[0].spent
        second = fitted(paying, table, y)
        after = ledger.blocks("visits")[0].spent
        assert all(two == 2 * one for one, two in zip(before, after, strict=True) if one)
        assert first.receipt_.position != second.receipt_.position
        assert first.receipt_.record["mechanism"] == trainer.mechanism

    def test_gives_the_stored_model_for_the_same_key(self, trainer: Any, ledger: Ledger) -> None:
        table, y = data()
        paying = clone(trainer).set_params(payer=payer_of(ledger, "attempt 1"))
        first, again = fitted(paying, table, y), fitted(paying, table, y)
        assert np.array_equal(outcome(first, table), outcome(again, table))
        assert again.receipt_.position == first.receipt_.position

    def test_does_not_take_one_key_for_two_settings(self, trainer: Any, ledger: Ledger) -> None:
        table, y = data()
        paying = clone(trainer).set_params(payer=payer_of(ledger, "attempt 1"))
        fitted(paying, table, y)
        other = clone(paying).set_params(epsilon="0.25")
        with pytest.raises(KeyReused):
            fitted(other, table, y)

    def test_trains_nothing_that_is_over_budget(self, trainer: Any, file_home: Home) -> None:
        ledger = file_home.create()
        open_account(ledger, epsilon="0.01", delta="1e-9")
        with pytest.raises(OverBudget):
            fitted(clone(trainer).set_params(payer=payer_of(ledger)), *data())
        assert ledger.blocks("visits")[0].spent[1] == 0

    def test_comes_back_from_a_pickle_without_its_payer(self, trainer: Any, ledger: Ledger) -> None:
        table, y = data()
        model = fitted(clone(trainer).set_params(payer=payer_of(ledger)), table, y)
        back = pickle.loads(pickle.dumps(model))
        assert np.array_equal(outcome(back, table), outcome(model, table))
        with pytest.raises(BadParameter, match="left out of pickles"):
            fitted(back, table, y)

    def test_tells_no_cell_in_its_text(self, trainer: Any) -> None:
        table, y = data()
        model = fitted(trainer, table, y)
        assert str(float(table[0, 0])) not in repr(model)

    def test_predicts_nothing_before_it_is_fitted(self, trainer: Any) -> None:
        with pytest.raises(NotFittedError):
            outcome(clone(trainer), np.zeros((1, 3)))

    @pytest.mark.parametrize(
        "wrong",
        [{"epsilon": 0}, {"epsilon": "much"}, {"delta": 0}, {"delta": 1}, {"payer": None}, {"columns": ()}],
    )
    def test_refuses_bad_parameters_before_paying(self, trainer: Any, wrong: dict[str, Any]) -> None:
        table, y = data(10)
        with pytest.raises(BadParameter):
            fitted(clone(trainer).set_params(**wrong), table, y)

    @pytest.mark.parametrize(
        "table", [np.zeros(3), np.zeros((3, 3, 3)), np.array([[1j, 2, 3]]), [1, 2, 3], [[1, 2], [3]]]
    )
    def test_refuses_tables_of_another_form(self, trainer: Any, table: Any) -> None:
        with pytest.raises(BadValue):
            trainer.fit(table, np.zeros(3))

    def test_refuses_units_of_another_form(self, trainer: Any) -> None:
        with pytest.raises(BadValue):
            trainer.fit(np.zeros((3, 3)), np.zeros(3), units=np.array([0.5, 1, 2]))

    def test_refuses_accounts_where_a_unit_is_replaced(self, trainer: Any, file_home: Home) -> None:
        ledger = file_home.create()
        payer = LedgerPayer(
            Gate(ledger, principal="builder"),
            targets=(Target("visits"),),
            unit=Unit.PERSON,
            relation=Relation.REPLACE,
            request=b"",
        )
        with pytest.raises(BadParameter, match="add or remove"):
            clone(trainer).set_params(payer=payer).fit(np.zeros((3, 3)), np.zeros(3))


@pytest.mark.parametrize(
    ("trainer", "wrong"),
    [
        (ALL[0], {"size": 0}), (ALL[0], {"rate": 0}), (ALL[0], {"steps": 0}), (ALL[0], {"pace": -1}),
        (ALL[0], {"radius": 0}), (ALL[0], {"classes": ("no",)}), (ALL[1], {"target": (0, 1)}),
        (ALL[1], {"radius": 0}), (ALL[2], {"columns": Real(0, 1)}), (ALL[3], {"passes": 0}),
        (ALL[3], {"stride": 0}),
        (ALL[4], {"n_clusters": 0}), (ALL[4], {"rounds": 0}), (ALL[5], {"n_components": 4}),
    ],
)  # fmt: skip
def test_each_parameter_is_checked(trainer: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        fitted(clone(trainer).set_params(**wrong), *data(10))


@pytest.mark.parametrize("trainer", ALL[:4], ids=lambda trainer: type(trainer).__name__)
def test_what_is_learned_from_needs_one_value_for_each_row(trainer: Any) -> None:
    with pytest.raises(BadValue):
        trainer.fit(np.zeros((3, 3)), np.zeros(2))
    with pytest.raises(BadParameter):
        trainer.fit(np.zeros((3, 3)), None)


def test_a_grid_search_charges_every_fit(ledger: Ledger) -> None:
    table, y = data(60)
    trainer = NaiveBayes(**{**CODED, "payer": payer_of(ledger), "epsilon": "0.1"})
    search = GridSearchCV(trainer, {"epsilon": ["0.1", "0.2"]}, cv=3)
    search.fit(table, y, units=EACH_ROW)
    prices: dict[str, Any] = {at: clone(trainer).set_params(epsilon=at).price(3) for at in ("0.1", "0.2")}
    fits = 3 * ["0.1", "0.2"] + [search.best_params_["epsilon"]]
    assert ledger.blocks("visits")[0].spent[1] == sum(
        round_up(prices[epsilon].pair[0], 10**9) for epsilon in fits
    )


def test_units_go_through_a_grid_search(ledger: Ledger) -> None:
    table, y = data(60)
    GridSearchCV(NaiveBayes(**CODED), {"epsilon": [1]}, cv=2).fit(table, y, units=np.arange(60) // 2)


def test_a_pipeline_of_two_pays_for_both(ledger: Ledger) -> None:
    table, y = data(60)
    first = PCA(n_components=2, **{**FEW, "payer": payer_of(ledger)})
    second = LogisticRegression(
        classes=("no", "yes"), size=60, **{**FEW, "columns": Real(-2, 2), "payer": payer_of(ledger)}
    )
    make_pipeline(first, second).fit(table, y, pca__units=EACH_ROW, logisticregression__units=EACH_ROW)
    fits: tuple[tuple[Any, int], ...] = ((first, 3), (second, 2))
    wanted = sum(round_up(trainer.price(wide).pair[0], 10**9) for trainer, wide in fits)
    assert ledger.blocks("visits")[0].spent[1] == wanted


@pytest.mark.parametrize("point", list(ReleaseStep))
def test_after_a_crash_nothing_is_trained_twice(point: ReleaseStep, file_home: Home) -> None:
    ledger = file_home.create()
    open_account(ledger, epsilon=5, delta="1e-5")
    ledger.close()
    table, y = data(60)

    def die(reached: ReleaseStep) -> None:
        if reached is point:
            os._exit(KILLED)

    child = os.fork()
    if child == 0:
        try:
            NaiveBayes(**{**CODED, "payer": payer_of(file_home.open(), "once", die)}).fit(
                table, y, units=EACH_ROW
            )
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED
    again = NaiveBayes(**{**CODED, "payer": payer_of(file_home.open(), "once")})
    if point in {ReleaseStep.CHARGED, ReleaseStep.RAN}:
        with pytest.raises(WorkEnded):
            again.fit(table, y, units=EACH_ROW)
        assert not hasattr(again, "logs_")
    else:
        assert again.fit(table, y, units=EACH_ROW).predict(table).shape == (60,)


def test_an_error_while_training_tells_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("age 42")

    monkeypatch.setattr(NaiveBayes, "_train", fail)
    with pytest.raises(WorkEnded) as caught:
        NaiveBayes(**{**CODED, "payer": payer_of(ledger)}).fit(*data(60), units=EACH_ROW)
    assert "42" not in str(caught.value)


def test_tables_of_texts_are_read(tmp_path: Path) -> None:
    table = np.array([["0.1", "0.9", "x"]] * 30, dtype=object)
    assert len(NaiveBayes(**CODED).fit(table, ["yes"] * 30).predict(table)) == 30
