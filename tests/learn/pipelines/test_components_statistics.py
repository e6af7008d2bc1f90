"""Statistics as pipelines: released with the error that was shown, at a pure price, without a test half."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapwing.errors import BadFile, BadParameter
from lapwing.learn.features import Features
from lapwing.learn.pipelines.components import PipelineStatistic, TrainerSettings
from lapwing.learn.pipelines.model_card import card_text, model_card
from lapwing.learn.pipelines.pipeline import Pipeline, load_pipeline
from lapwing.learn.pipelines.run_files import model_file_text, write_outputs
from lapwing.learn.pipelines.training import RunState, train
from lapwing.learn.stream import Stream
from lapwing.learn.validators import StatisticValidator, ValidationRelease, ValidationVerdict
from lapwing.sql.policy.kinds import Choice, Moment, Numeric, Truth
from lapwing.sql.row_questions import PrivateRows
from support.raised import named

DURATION = Features((), "duration", Numeric(Fraction(1, 10), 0, 600))
WARD = Features((), "ward", Choice(("A", "B", "C")))
KNOWN = {"target": Fraction(1, 10), "eta": Fraction(1, 20), "epsilon": Fraction(1)}


def counted(statistic: PipelineStatistic, rows: PrivateRows, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the validator would release, without its noise."""
    validator = statistic.validator(**KNOWN)
    kept: list[int] = []

    def made(self: StatisticValidator, *numbers: int) -> ValidationRelease:
        kept.extend(numbers)
        return ValidationRelease(numbers, self._name)

    monkeypatch.setattr(type(validator), "_made", made)
    monkeypatch.setattr("lapwing.core.laplace.discrete_laplace", lambda _, n: np.zeros(n, np.int64))
    validator.release(statistic.values(rows))
    return kept


def test_a_mean_is_of_a_units_rows_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = replace(DURATION.coded({"duration": [10, 20, 60, None]}), units=np.array([0, 0, 1, 2]))
    above, below = counted(PipelineStatistic("mean", DURATION), rows, monkeypatch)
    assert (above, below) == (150 + 600, 450 + 0)


def test_a_number_is_in_the_part_that_it_lies_in(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [0, 9.9, 10, 29.9, 59.9, 60, None, 1000]
    rows = DURATION.coded({"duration": values})
    assert counted(PipelineStatistic("histogram", DURATION, 6), rows, monkeypatch) == [2, 1, 1, 0, 0, 3]


def test_declared_values_are_the_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = WARD.coded({"ward": ["A", "C", "C", "X", None]})
    assert counted(PipelineStatistic("histogram", WARD), rows, monkeypatch) == [1, 0, 2]


@pytest.mark.parametrize(
    "statistic", [PipelineStatistic("mean", DURATION), PipelineStatistic("histogram", DURATION, 7)]
)
def test_one_unit_moves_what_is_released_by_no_more_than_is_paid_for(
    statistic: PipelineStatistic, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(4)
    # The same row for all rows of a unit: which one is drawn makes no difference.
    values, units = draw.uniform(-5, 70, 40), np.repeat(np.arange(40), draw.integers(1, 4, 40))
    rows = replace(DURATION.coded({"duration": values[units].tolist()}), units=units)
    validator: Any = statistic.validator(**KNOWN)
    whole = counted(statistic, rows, monkeypatch)
    for unit in range(40):
        without = counted(statistic, rows.where(units != unit), monkeypatch)
        assert np.abs(np.array(whole) - without).sum() == validator._noise.l1


@pytest.mark.parametrize(
    ("kind", "features", "bins", "why"),
    [
        ("mean", WARD, None, "must be a number"),
        ("mean", Features((), "day", Moment(86400, 0, 9)), None, "must be a number"),
        ("histogram", Features((), "day", Moment(86400, 0, 9)), None, "or have declared values"),
        ("histogram", DURATION, None, "into how many"),
        ("histogram", WARD, 3, "are its values"),
        ("mean", Features((), "one", Numeric(Fraction(1), 3, 3)), None, "only one value"),
        ("histogram", Features((), "ward", Choice(("A",))), None, "only one value"),
    ],
)
def test_what_has_no_such_statistic_is_refused(
    kind: str, features: Features, bins: int | None, why: str
) -> None:
    with pytest.raises(BadParameter, match=why):
        PipelineStatistic(kind, features, bins)


def test_two_values_have_a_histogram() -> None:
    told = PipelineStatistic("histogram", Features((), "late", Truth()))._parts()
    assert told == [{"value": False}, {"value": True}]


@pytest.fixture
def mean(folder: Path) -> Pipeline:
    return load_pipeline(folder / "mean.toml")


def test_a_mean_is_released_when_its_error_is_shown(stream: Stream, mean: Pipeline, folder: Path) -> None:
    outcome = train(stream, mean, folder / "runs")
    assert outcome.end is RunState.ACCEPTED
    assert outcome.attempts[0].verdict is ValidationVerdict.RETRY
    files = write_outputs(outcome, stream.policy, folder / "runs")
    assert set(files) == {"card", "card_text", "receipts", "statistic", "picture"}
    found = json.loads(files["statistic"].read_text())
    assert abs(found["mean"] - 16.3) <= found["error_at_most"] <= 2
    card = model_card(outcome, stream.policy)
    assert card["privacy"]["delta"] == 0
    assert card["validated"]["test_share"] is None
    text = files["card_text"].read_text()
    assert f"mean of duration: {found['mean']:.6g} ±" in text
    assert "mean duration of a unit" in text
    with pytest.raises(BadParameter, match="there is no model file"):
        model_file_text(outcome)


def test_a_statistic_costs_epsilon_and_no_delta(stream: Stream, mean: Pipeline, folder: Path) -> None:
    outcome = train(stream, mean, folder / "runs")
    assert all(one.receipt.record["loss"]["loss"] == "LaplaceNoise" for one in outcome.attempts)
    [left] = [one.left for one in stream.status().blocks if one.label == "2026-01"]
    assert left == 8 - sum(one.epsilon for one in outcome.attempts)


def test_shares_are_released_for_all_bins(stream: Stream, folder: Path) -> None:
    outcome = train(stream, load_pipeline(folder / "histogram.toml"), folder / "runs")
    assert outcome.end is RunState.ACCEPTED
    card = model_card(outcome, stream.policy)
    bins = card["statistic"]["bins"]
    assert [(one["from"], one["to"]) for one in bins] == [(10.0 * k, 10.0 * k + 10) for k in range(6)]
    assert abs(sum(one["share"] for one in bins) - 1) < 0.05
    assert "10 … 20  0." in card_text(card)


def test_what_was_not_accepted_is_not_told(stream: Stream, mean: Pipeline, folder: Path) -> None:
    strict = replace(mean, validator=replace(mean.validator, target=Fraction(1, 100)))
    outcome = train(stream, strict, folder / "runs")
    assert outcome.end is RunState.WAITING
    assert all(one.model is None for one in outcome.attempts)
    files = write_outputs(outcome, stream.policy, folder / "runs")
    assert "statistic" not in files
    assert "statistic" not in model_card(outcome, stream.policy)


def test_a_block_without_rows_looks_like_one_with_few_units(
    stream: Stream, mean: Pipeline, folder: Path
) -> None:
    stream.append(through="2026-02")
    schedule = replace(mean.schedule, most_blocks=1)
    outcome = train(stream, replace(mean, schedule=schedule), folder / "runs")
    assert outcome.attempts[0].blocks == ("2026-02",)
    assert outcome.end is RunState.NOT_ACCEPTED


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('kind = "mean"', 'kind = "mean"\nbins = 3', "is no setting of mean"),
        ('kind = "mean"', 'kind = "linear regression"', "delta: is missing"),
        ('"error"', '"loss"\nloss = "absolute error"\nbound = 9', 'kind "error" for statistics'),
        ('kind = "error"', 'kind = "error"\nbound = 3', "belongs to"),
        ("target = 2.0", "target = 0", "above 0"),
        ("eta = 0.05", "eta = 1", "strictly between"),
        ('label = "duration"', 'label = "duration"\ndelta = 1e-9', "is for models"),
        ('label = "duration"', 'label = "duration"\ntest_share = 0.1', "is for models"),
        ("[strategy]", "[reject]\nlevels = 3\n[strategy]", "is for models"),
        ("[strategy]", "[calibration]\nepsilon = 0.01\nbins = 3\n[strategy]", "is for models"),
        ("[strategy]", "[missing]\nduration = 3\n[strategy]", "leaves missing values out"),
    ],
)
def test_mistakes_in_the_file_of_a_statistic(folder: Path, old: str, new: str, why: str) -> None:
    path = folder / "mean.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(BadFile, match=why):
        load_pipeline(path)


@pytest.mark.parametrize("bins", ["1", "1025", "2.5"])
def test_bins_of_a_histogram_are_two_or_more(folder: Path, bins: str) -> None:
    path = folder / "histogram.toml"
    path.write_text(path.read_text().replace("bins = 6", f"bins = {bins}"))
    with pytest.raises(BadFile, match=r"trainer\.bins"):
        load_pipeline(path)


def test_a_statistic_is_of_one_column(stream: Stream, mean: Pipeline, folder: Path) -> None:
    wide = replace(mean, sql="SELECT distance, duration FROM rides")
    with pytest.raises(BadParameter, match="the label alone"):
        train(stream, wide, folder / "runs")


def test_a_model_needs_more_than_its_label(stream: Stream, folder: Path) -> None:
    bare = replace(load_pipeline(folder / "durations.toml"), sql="SELECT duration FROM rides")
    with pytest.raises(BadParameter, match="at least one column besides the label"):
        train(stream, bare, folder / "runs")


def test_a_pipeline_is_one_or_the_other(mean: Pipeline) -> None:
    with pytest.raises(BadParameter, check=named("validator")):
        replace(mean, trainer=TrainerSettings("linear regression"))
