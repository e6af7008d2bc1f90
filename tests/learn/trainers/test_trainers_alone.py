"""The prediction for a row does not depend on the other rows, not even in the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
from lapwing.learn.trainers.whole_vectors import class_probabilities

PAID: dict[str, Any] = {"epsilon": 5, "delta": "1e-5", "payer": PublicData()}
NUMBERS: dict[str, Any] = {"columns": Real(-1, 1), **PAID}
CODED: dict[str, Any] = {"columns": Binned([-0.5, 0, 0.5]), **PAID}
TRAINERS: list[tuple[Any, tuple[str, ...]]] = [
    (LinearRegression(target=Real(-1, 1), **NUMBERS), ("predict",)),
    (LinearRegression(target=Real(-1, 1), radius=0.7, **NUMBERS), ("predict",)),
    (
        LogisticRegression(classes=(0, 1), size=500, **NUMBERS),
        ("predict_proba", "decision_function", "predict"),
    ),
    (LogisticRegression(classes=(0, 1, 2), size=500, **NUMBERS), ("predict_proba", "decision_function")),
    (NaiveBayes(classes=(0, 1, 2), **CODED), ("predict_proba", "predict")),
    (AdditiveTrees(classes=(0, 1), **CODED), ("predict_proba", "decision_function")),
    (AdditiveTrees(classes=(0, 1, 2), **CODED), ("predict_proba", "decision_function")),
    (PCA(n_components=2, **NUMBERS), ("transform",)),
    (KMeans(n_clusters=3, **NUMBERS), ("transform", "predict")),
]


@pytest.mark.parametrize(("trainer", "methods"), TRAINERS, ids=lambda one: type(one).__name__)
def test_a_row_is_predicted_as_if_it_were_alone(trainer: Any, methods: tuple[str, ...]) -> None:
    rows = np.random.default_rng(20).uniform(-1, 1, (211, 20))
    trainer.fit(rows, np.arange(len(rows)) % 2)
    for method in methods:
        told = getattr(trainer, method)
        together = told(rows)
        assert all(np.array_equal(told(rows[at : at + 1])[0], together[at]) for at in range(0, 211, 5))
        assert np.array_equal(told(rows[1:]), together[1:])
        assert np.array_equal(told(rows[::-3]), together[::-3])


def test_probabilities_are_those_of_an_exponential() -> None:
    scores = np.random.default_rng(1).normal(scale=100, size=(2000, 4))
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    assert np.allclose(
        class_probabilities(scores), odds / odds.sum(axis=1, keepdims=True), rtol=1e-14, atol=1e-300
    )
    far = np.array([[0.0, -40.0, -800.0, -1e308]])
    assert class_probabilities(far)[0].tolist() == pytest.approx([1, np.exp(-40), 0, 0], rel=1e-14)
