"""Losses of rows; and no line loses less than the net of lines says."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lapwing.errors import BadParameter
from lapwing.learn.features import Feature, Features
from lapwing.learn.payer import PublicData
from lapwing.learn.pipelines.components import LineNet, TrainerSettings, row_losses
from lapwing.sql.policy.kinds import Choice, Numeric
from lapwing.sql.row_questions import PrivateRows

DISTANCE = Feature("distance", Numeric(Fraction(1, 10), 0, 200))
LINE = Features((DISTANCE,), "duration", Numeric(Fraction(1, 10), 0, 600))
KIND = Features((DISTANCE,), "late", Choice(("no", "yes")))


def rows_of(features: Features, count: int, seed: int) -> PrivateRows:
    draw = np.random.default_rng(seed)
    far = draw.uniform(0, 20, count)
    if features is LINE:
        found: Any = np.clip(5 + 2 * far + draw.normal(0, 4, count), 0, 60)
        return features.coded({"distance": far.tolist(), "duration": found.tolist()})
    late = np.where(far + draw.normal(0, 4, count) > 10, "yes", "no")
    return features.coded({"distance": far.tolist(), "late": late.tolist()})


def trained(kind: str, features: Features, rows: PrivateRows) -> Any:
    made = TrainerSettings(kind).create(
        features, epsilon=Fraction(5), delta=Fraction(1, 10**6), size=1000, payer=PublicData()
    )
    return made.fit(features.table(rows), features.target(rows))


@pytest.mark.parametrize("kind", ["absolute error", "squared error"])
@pytest.mark.parametrize("levels", [3, 9, 33])
def test_whatever_a_line_loses_some_line_of_the_net_loses_at_most_that(kind: str, levels: int) -> None:
    rows, draw = rows_of(LINE, 60, 1), np.random.default_rng(2)
    net = LineNet(LINE, levels)
    losses = np.array(net.of_class(kind, rows).losses)
    assert len(losses) == net.models == levels**2
    matrix, truth = np.hstack([LINE.matrix(rows), np.ones((60, 1))]), LINE.target(rows)
    for _ in range(50):
        errors = np.abs(30 + 30 * np.clip(matrix @ draw.uniform(-1, 1, 2), -1, 1) - truth)
        own = errors if kind == "absolute error" else errors**2
        assert (losses <= own + 1e-9).all(axis=1).any()


def test_a_finer_net_hides_less() -> None:
    rows = rows_of(LINE, 500, 3)
    least = [
        min(one.mean() for one in np.array(LineNet(LINE, n).of_class("absolute error", rows).losses))
        for n in (5, 17, 33)
    ]
    assert least == sorted(least)
    assert least[-1] > 1


def test_a_net_of_too_many_lines_is_refused() -> None:
    with pytest.raises(BadParameter, match="lines"):
        LineNet(LINE, 100)


def test_errors_of_numbers() -> None:
    rows = rows_of(LINE, 2000, 4)
    model = trained("linear regression", LINE, rows)
    errors = row_losses("absolute error", model, LINE, rows)
    assert np.allclose(row_losses("squared error", model, LINE, rows), errors**2)
    assert 2.5 < errors.mean() < 4.5  # of a normal law with deviation 4: 3.2


@pytest.mark.parametrize("kind", ["logistic regression", "naive Bayes", "additive trees"])
def test_losses_of_classes(kind: str) -> None:
    rows = rows_of(KIND, 2000, 5)
    model = trained(kind, KIND, rows)
    wrong = row_losses("zero-one loss", model, KIND, rows)
    logs = row_losses("log loss", model, KIND, rows)
    assert set(wrong) == {0.0, 1.0}
    assert wrong.mean() < 0.35
    assert (logs[wrong == 1] > 0.69).all()
    assert (logs[wrong == 0] < 0.70).all()


def test_no_rows_lose_nothing() -> None:
    model = trained("linear regression", LINE, rows_of(LINE, 10, 6))
    assert len(row_losses("absolute error", model, LINE, rows_of(LINE, 0, 7))) == 0
