"""Calibration: noisy counts of test units, at a declared price, and only of accepted models."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapwing.core.laplace import Laplace
from lapwing.core.losses import LaplaceNoise
from lapwing.errors import BadParameter
from lapwing.learn.features import Feature, Features
from lapwing.learn.pipelines.calibration import CONFIDENCE, Calibration, CalibrationSettings
from lapwing.learn.pipelines.components import TrainerSettings, ValidatorSettings
from lapwing.learn.pipelines.model_card import card_text, model_card
from lapwing.learn.pipelines.pipeline import Pipeline, load_pipeline
from lapwing.learn.pipelines.run_files import write_outputs
from lapwing.learn.pipelines.training import RunState, train
from lapwing.learn.stream import Stream
from lapwing.sql.policy.kinds import Choice, Numeric, Truth
from lapwing.sql.row_questions import PrivateRows
from support.slowly import slow

SCORE = Feature("score", Numeric(Fraction(1, 100), 0, 100))
NUMBER = Features((SCORE,), "duration", Numeric(Fraction(1, 10), 0, 600))
TWO = Features((SCORE,), "late", Truth())
THREE = Features((SCORE,), "ward", Choice(("A", "B", "C")))
PART = CalibrationSettings(epsilon=Fraction(1, 10), bins=4)


class Told:
    """Says what its rows say: the score is the prediction."""

    def __init__(self, features: Features) -> None:
        self._features = features

    def predict(self, table: Any) -> Any:
        score = np.asarray(table)[:, 0]
        return score * 60 if not self._features.has_classes else np.zeros(len(score), np.int64)

    def predict_proba(self, table: Any) -> Any:
        score = np.asarray(table)[:, 0]
        if len(self._features.classes) == 2:
            return np.column_stack([1 - score, score])
        return np.column_stack([score, (1 - score) / 2, (1 - score) / 2])


LABELS: dict[str, list[Any]] = {
    "duration": np.linspace(0, 60, 40).tolist(),
    "late": [True, False] * 20,
    "ward": ["A", "B", "C", "A"] * 10,
}


def rows_of(features: Features) -> PrivateRows:
    """40 units with one to three equal rows each: which one is drawn makes no difference."""
    draw = np.random.default_rng(5)
    units = np.repeat(np.arange(40), draw.integers(1, 4, 40))
    score = draw.uniform(0, 1, 40)[units].tolist()
    label = np.array(LABELS[features.label], dtype=object)[units].tolist()
    return replace(features.coded({"score": score, features.label: label}), units=units)


@pytest.mark.parametrize("features", [NUMBER, TWO, THREE])
def test_one_unit_moves_the_counts_by_no_more_than_is_paid_for(features: Features) -> None:
    own, model, rows = PART.of(features), Told(features), rows_of(features)
    whole = own.sums(model, rows)
    assert whole.sum() == 40 * own.steps
    for unit in range(40):
        moved = whole - own.sums(model, rows.where(rows.units != unit))
        assert (moved >= 0).all()
        assert moved.sum() == own.steps == own.noise.l1
        assert np.count_nonzero(moved.reshape(-1, 2).sum(axis=1)) == 1
    assert own.loss == LaplaceNoise(Fraction(own.steps * 10), own.steps)
    assert own.loss.pure == PART.epsilon


def test_a_unit_of_many_different_rows_counts_once() -> None:
    rows = replace(
        TWO.coded({"score": np.linspace(0, 1, 50).tolist(), "late": [True, False] * 25}),
        units=np.zeros(50, np.int64),
    )
    assert {int(PART.of(TWO).sums(Told(TWO), rows).sum()) for _ in range(20)} == {1}


def test_no_units_and_lost_models_count_as_something() -> None:
    class Lost(Told):
        def predict(self, table: Any) -> Any:
            return np.full(len(table), np.nan)

    own = PART.of(NUMBER)
    rows = rows_of(NUMBER)
    assert own.sums(Told(NUMBER), rows.where(rows.units < 0)).sum() == 0
    assert own.sums(Lost(NUMBER), rows).sum() == 40 * own.steps


def test_bins_are_on_the_labels_scale() -> None:
    bins = PART.of(NUMBER).bins(json.dumps([100_000, 100_000] * 4).encode())
    assert [(one.low, one.high) for one in bins] == [(0, 15), (15, 30), (30, 45), (45, 60)]
    assert bins[0].mean == 30
    assert bins[0].units == 200
    assert bins[0].at_least < 30 < bins[0].at_most
    nothing = PART.of(TWO).bins(json.dumps([-3, 2] * 4).encode())[0]
    assert (nothing.mean, nothing.units, nothing.at_least, nothing.at_most) == (None, 0, 0, 1)


@pytest.mark.parametrize(("features", "share"), [(TWO, 0.3), (NUMBER, 0.3)])
@pytest.mark.slow
def test_intervals_hold_as_often_as_they_say(features: Features, share: float) -> None:
    """400 draws of 300 units in a bin. An interval that held in 95 % would miss more than 45 with 1e-6."""
    own, draw = (
        Calibration(CalibrationSettings(epsilon=Fraction(1, 2), bins=2), features),
        np.random.default_rng(6),
    )
    misses = 0
    for _ in range(400):
        truth = draw.random(300) < share
        of_x = int(truth.sum()) * own.steps
        noisy = own.noise.sample([of_x, 300 * own.steps - of_x, 0, 0])
        first = own.bins(json.dumps(noisy.tolist()).encode())[0]
        top = 60 if features is NUMBER else 1
        misses += not first.at_least <= share * top <= first.at_most
    assert float(1 - CONFIDENCE) == 0.05
    assert misses <= 45


def test_the_axes_say_what_is_compared() -> None:
    assert PART.of(NUMBER).axes == ("predicted duration", "mean of the true duration")
    assert PART.of(TWO).axes[1] == "how often late is True"
    assert PART.of(THREE).axes[1] == "how often that is right"


@pytest.mark.parametrize(
    ("epsilon", "bins", "why"),
    [("0", 5, "epsilon"), ("-1", 5, "epsilon"), ("1", 1, "bins"), ("1", 101, "bins")],
)
def test_a_bad_part_is_refused(epsilon: str, bins: int, why: str) -> None:
    with pytest.raises(BadParameter, match=why):
        CalibrationSettings(epsilon=Fraction(epsilon), bins=bins)


@pytest.fixture
def pipeline(folder: Path) -> Pipeline:
    """Rides of four months, in one attempt that can be accepted."""
    found = load_pipeline(folder / "durations.toml")
    schedule = replace(found.schedule, first_blocks=4, least=Fraction(1), most=Fraction(1))
    return replace(found, schedule=schedule, calibration=PART)


def test_the_testing_half_pays_for_both_within_the_attempts_epsilon(
    full: Stream, pipeline: Pipeline, folder: Path
) -> None:
    outcome = train(full, pipeline, folder / "runs")
    assert outcome.end is RunState.ACCEPTED
    paid = outcome.attempts[0].receipt.record["parameters"]
    assert paid["calibration: epsilon"] == "1/10"
    assert paid["validator: epsilon"] == "9/10"
    assert {one.left for one in full.status().blocks if one.label <= "2026-04"} == {Fraction(7)}
    files = write_outputs(outcome, full.policy, folder / "runs")
    assert files["calibration"].stat().st_size > 1000
    card = model_card(outcome, full.policy)
    bins = card["calibration"]["bins"]
    assert all(one["at_least"] <= one["mean"] <= one["at_most"] for one in bins if one["mean"] is not None)
    assert 5 < bins[0]["mean"] < 15  # hundreds of units: noise and sampling are below a minute
    assert "mean of the true duration, by predicted duration" in card_text(card)
    again = train(full, pipeline, folder / "runs")
    assert model_card(again, full.policy)["calibration"] == card["calibration"]


def test_it_is_off_where_it_is_not_declared(full: Stream, pipeline: Pipeline, folder: Path) -> None:
    outcome = train(full, replace(pipeline, calibration=None), folder / "runs")
    assert outcome.accepted is not None
    assert outcome.accepted.calibration is None
    assert "calibration" not in model_card(outcome, full.policy)
    assert "calibration" not in write_outputs(outcome, full.policy, folder / "runs")


def test_nothing_is_counted_of_a_model_that_is_not_kept(
    stream: Stream, pipeline: Pipeline, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[Any] = []
    monkeypatch.setattr(Calibration, "release", lambda *given: called.append(given))
    one = replace(pipeline.schedule, first_blocks=1, most_blocks=1)
    strict = replace(pipeline.validator, target=Fraction(1))
    outcome = train(stream, replace(pipeline, schedule=one, validator=strict), folder / "runs")
    assert outcome.end is RunState.NOT_ACCEPTED
    assert not called
    assert outcome.attempts[0].calibration is None


@pytest.mark.parametrize("kind", ["naive Bayes", slow("additive trees")])
def test_classes_of_all_trainers_can_be_calibrated(
    stream: Stream, pipeline: Pipeline, folder: Path, kind: str
) -> None:
    late = replace(
        pipeline,
        sql="SELECT distance, duration > 20 AS late FROM rides",
        label="late",
        trainer=TrainerSettings(kind),
        validator=ValidatorSettings(target=Fraction("0.65"), eta=Fraction(1, 20)),
        schedule=replace(pipeline.schedule, first_blocks=1, least=Fraction(2), most=Fraction(2)),
    )
    outcome = train(stream, late, folder / "runs")
    told = model_card(outcome, stream.policy)["calibration"]
    assert told["predicted"] == "predicted probability of late = True"
    assert len(told["bins"]) == 4


def test_calibration_must_leave_some_epsilon_to_validate(pipeline: Pipeline) -> None:
    with pytest.raises(BadParameter, match="some of the least"):
        replace(pipeline, calibration=CalibrationSettings(epsilon=Fraction(1), bins=4))
    assert isinstance(PART.of(TWO).noise, Laplace)


def test_the_digest_is_of_calibration_too(pipeline: Pipeline) -> None:
    assert replace(pipeline, calibration=None).digest != pipeline.digest
