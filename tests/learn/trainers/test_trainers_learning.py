"""Trainers learn: on easy generated data, where a trainer that learned nothing would fail by far."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.utils.estimator_checks import check_estimator  # type: ignore[import-untyped]

from lapwing.learn.payer import PublicData
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

PAID: dict[str, Any] = {"epsilon": 1, "delta": 1e-6, "payer": PublicData()}
EDGES = Binned([-0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75])
ROWS = 4000


def rows(seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).uniform(-1, 1, (ROWS, 5))


def sloped(table: NDArray[np.float64]) -> NDArray[np.float64]:
    value: NDArray[np.float64] = 0.5 * table[:, 0] - 0.3 * table[:, 1]
    return value


@pytest.mark.parametrize(
    "trainer",
    [
        LogisticRegression(columns=Real(-1, 1), classes=(0, 1), size=ROWS, **PAID),
        NaiveBayes(columns=EDGES, classes=(0, 1), **PAID),
        AdditiveTrees(columns=EDGES, classes=(0, 1), **PAID),
    ],
    ids=lambda trainer: type(trainer).__name__,
)
def test_two_classes_are_told_apart(trainer: Any) -> None:
    table, new = rows(1), rows(2)
    trainer.fit(table, (sloped(table) > 0).astype(int))
    assert trainer.score(new, (sloped(new) > 0).astype(int)) > 0.85
    chances = trainer.predict_proba(new)
    assert np.allclose(chances.sum(axis=1), 1)
    assert ((chances[:, 1] > 0.5) == (trainer.predict(new) == 1)).all()


@pytest.mark.parametrize(
    "trainer",
    [
        LogisticRegression(columns=Real(-1, 1), classes=("a", "b", "c"), size=ROWS, **PAID),
        NaiveBayes(columns=EDGES, classes=("a", "b", "c"), **PAID),
        AdditiveTrees(columns=EDGES, classes=("a", "b", "c"), **PAID),
    ],
    ids=lambda trainer: type(trainer).__name__,
)
def test_three_classes_are_told_apart(trainer: Any) -> None:
    table, new = rows(1), rows(2)
    trainer.fit(table, np.array(["a", "b", "c"])[table[:, :3].argmax(axis=1)])
    assert trainer.score(new, np.array(["a", "b", "c"])[new[:, :3].argmax(axis=1)]) > 0.7


def test_a_line_is_found() -> None:
    table, new = rows(1), rows(2)
    model = LinearRegression(columns=Real(-1, 1), target=Real(-2, 2), **PAID).fit(table, sloped(table))
    assert model.score(new, sloped(new)) > 0.9


def test_linear_regression_keeps_within_its_bounds() -> None:
    table = rows(1)
    model = LinearRegression(columns=Real(-1, 1), target=Real(0, 1), **PAID).fit(table, 1e6 * sloped(table))
    assert ((model.predict(table) >= 0) & (model.predict(table) <= 1)).all()


def test_clusters_are_found() -> None:
    rng = np.random.default_rng(3)
    centres = np.array([[-0.6, -0.6], [0.6, -0.5], [0.0, 0.7]])
    which = rng.integers(0, 3, ROWS)
    table = centres[which] + rng.normal(scale=0.05, size=(ROWS, 2))
    # Lloyd's method may end in a worse place: the best of five is looked at.
    worst = min(
        -KMeans(columns=Real(-1, 1), n_clusters=3, **PAID).fit(table).score(table) for _ in range(5)
    )
    assert worst / ROWS < 0.02


def test_directions_are_found() -> None:
    rng = np.random.default_rng(4)
    table = np.outer(rng.uniform(-1, 1, ROWS), [0.8, 0.6, 0, 0, 0]) + rng.normal(scale=0.02, size=(ROWS, 5))
    model = PCA(columns=Real(-1, 1), n_components=1, **PAID).fit(table)
    assert abs(model.components_[0] @ [0.8, 0.6, 0, 0, 0]) > 0.95
    assert model.score(table) > 0.9


@pytest.mark.slow
def test_samples_of_the_rows_are_enough() -> None:
    table, new = rows(1), rows(2)
    model = LogisticRegression(columns=Real(-1, 1), classes=(0, 1), size=ROWS, rate=0.2, steps=40, **PAID)
    model.fit(table, (sloped(table) > 0).astype(int))
    assert model.score(new, (sloped(new) > 0).astype(int)) > 0.85


NOISY = "two fits draw different noise"
DECLARED = "classes are declared, not taken from y"
TOTAL = "an error would tell what is in the data"
EXPECTED = {
    "check_estimators_empty_data_messages": TOTAL,
    "check_supervised_y_no_nan": TOTAL,
    "check_classifiers_regression_target": TOTAL,
    "check_supervised_y_2d": "no warning: the form is clear",
    "check_fit_idempotent": NOISY,
    "check_classifier_data_not_an_array": NOISY,
    "check_regressor_data_not_an_array": NOISY,
    "check_regressors_int": NOISY,
    "check_regressors_train": "wants accuracy from 200 rows",
    "check_classifiers_train": DECLARED,
    "check_classifiers_one_label": DECLARED,
    "check_classifiers_classes": DECLARED,
    "check_decision_proba_consistency": DECLARED,
    "check_clustering": "which cluster a training row is in is not released",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "trainer",
    [
        LogisticRegression(columns=Real(-10, 10), classes=(0, 1, 2), size=100, **PAID),
        LinearRegression(columns=Real(-10, 10), target=Real(-10, 10), **PAID),
        NaiveBayes(columns=Binned([0]), classes=(0, 1, 2), **PAID),
        AdditiveTrees(columns=Binned([0]), classes=(0, 1, 2), **PAID),
        KMeans(columns=Real(-10, 10), n_clusters=3, **PAID),
        PCA(columns=Real(-10, 10), n_components=1, **PAID),
    ],
    ids=lambda trainer: type(trainer).__name__,
)
def test_scikit_learns_own_checks_pass(trainer: Any) -> None:
    done = check_estimator(trainer, expected_failed_checks=EXPECTED, on_fail=None, on_skip=None)
    assert [check["check_name"] for check in done if check["status"] == "failed"] == []
    assert sum(check["status"] == "passed" for check in done) > 30
