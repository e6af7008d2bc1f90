"""The loop: accept, retry, reject, wait. Spending by others changes no choice; kill -9 loses nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import BadParameter, InProgress
from lapwing.examples.rides import ARRIVING, RIDES_POLICY
from lapwing.learn.pipelines import attempt as work
from lapwing.learn.pipelines import training
from lapwing.learn.pipelines.components import TrainerSettings, ValidatorSettings
from lapwing.learn.pipelines.pipeline import AttemptSchedule, Pipeline, Strategy, load_pipeline
from lapwing.learn.pipelines.run_files import load_model, write_outputs
from lapwing.learn.pipelines.training import RunState, TrainingEvent, TrainingOutcome, train
from lapwing.learn.stream import Stream
from lapwing.learn.stream_blocks import SharingRule
from lapwing.ledger.gate import ReleaseStep
from support.slowly import slow

POINTS = ("try", "planned", "charged", "ran", "stored", "done")


@pytest.fixture
def pipeline(folder: Path) -> Pipeline:
    return load_pipeline(folder / "durations.toml")


@pytest.fixture
def hopeless(folder: Path) -> Pipeline:
    return load_pipeline(folder / "hopeless.toml")


def limited(pipeline: Pipeline, blocks: int, most: str = "1") -> Pipeline:
    schedule = replace(pipeline.schedule, most_blocks=blocks, most=Fraction(most))
    return replace(pipeline, schedule=schedule)


def verdicts(outcome: TrainingOutcome) -> list[str]:
    return [one.verdict.value for one in outcome.attempts]


def left(stream: Stream) -> dict[str, Fraction]:
    return {one.label: one.left for one in stream.status().blocks}


def test_it_retries_waits_for_data_and_accepts(stream: Stream, pipeline: Pipeline, folder: Path) -> None:
    runs = folder / "runs"
    first = train(stream, pipeline, runs)
    assert (first.end, verdicts(first)) == (RunState.WAITING, ["retry"] * 2)
    assert "needs 2 blocks" in first.words
    for file in sorted((folder / ARRIVING).iterdir()):
        stream.append(file, through=file.stem)
    then = train(stream, pipeline, runs)
    assert then.end is RunState.ACCEPTED
    assert [one.is_replay for one in then.attempts[:2]] == [True] * 2
    assert then.attempts[:2] == tuple(replace(one, is_replay=True) for one in first.attempts)
    # Windows begin where the run began, and later blocks come in after it.
    assert then.attempts[2].blocks == ("2026-01", "2026-02")
    assert then.accepted is not None
    assert then.accepted.model is not None


def test_a_run_that_is_decided_is_shown_again_at_no_cost(
    full: Stream, pipeline: Pipeline, folder: Path
) -> None:
    first = train(full, pipeline, folder / "runs")
    before = left(full)
    again = train(full, pipeline, folder / "runs")
    assert again.end is first.end is RunState.ACCEPTED
    assert again.attempts[-1].model == first.attempts[-1].model
    assert left(full) == before
    other = train(full, pipeline, folder / "runs", new_run=True)
    assert other.run == 2
    assert left(full) != before


def test_a_hopeless_target_is_rejected(full: Stream, hopeless: Pipeline, folder: Path) -> None:
    outcome = train(full, hopeless, folder / "runs")
    assert outcome.end is RunState.REJECTED
    assert all(one.model is None for one in outcome.attempts)
    bound = outcome.attempts[-1].judged
    assert bound is not None
    assert bound.bound is not None
    assert 1 < bound.bound < 4.8


def test_a_schedule_ends_and_the_next_run_counts_on(
    stream: Stream, pipeline: Pipeline, folder: Path
) -> None:
    one = limited(pipeline, 1)
    first = train(stream, one, folder / "runs")
    assert (first.end, len(first.attempts)) == (RunState.NOT_ACCEPTED, 2)
    second = train(stream, one, folder / "runs", new_run=True)
    assert second.run == 2


def test_what_others_spend_stops_a_run_and_chooses_no_other_blocks(
    full: Stream, pipeline: Pipeline, folder: Path
) -> None:
    """The newest block is spent by another pipeline: the schedule does not move to older ones."""
    seen: list[TrainingEvent] = []
    greedy = replace(
        pipeline,
        name="greedy",
        validator=replace(pipeline.validator, target=Fraction(1)),
        schedule=AttemptSchedule(
            strategy=Strategy.AGGRESSIVE, least=Fraction(7), most=Fraction(7), first_blocks=1, most_blocks=1
        ),
    )
    train(full, greedy, folder / "greedy")
    assert left(full)["2026-04"] < 1.01
    poor = replace(pipeline, schedule=replace(pipeline.schedule, least=Fraction(1), most=Fraction(2)))
    outcome = train(full, poor, folder / "runs", watch=seen.append)
    assert outcome.end is RunState.OVER_BUDGET
    assert "2026-04" in outcome.words
    assert {one.blocks[-1] for one in seen} == {"2026-04"}
    before = left(full)
    assert train(full, poor, folder / "runs").end is RunState.OVER_BUDGET
    assert left(full) == before


def test_locked_budgets_are_not_spent(folder: Path, pipeline: Pipeline) -> None:
    with Stream.open(folder / RIDES_POLICY, analyst="trainer") as opened:
        stream = Stream(opened.dataset, SharingRule("unlock", versions=20))
        stream.append(through="2026-01")
        outcome = train(stream, pipeline, folder / "runs")
        assert outcome.end is RunState.OVER_BUDGET
        assert left(stream)["2026-01"] >= 8 - Fraction(8, 20)


def test_pipelines_with_equal_shares_spend_their_own(folder: Path, pipeline: Pipeline) -> None:
    with Stream.open(folder / RIDES_POLICY, analyst="trainer") as opened:
        stream = Stream(opened.dataset, SharingRule("equal shares", ("durations", "other")))
        stream.append(through="2026-01")
        train(stream, pipeline, folder / "runs")
        mine, others = (
            next(one.left for one in stream.status(pipeline=name).blocks if one.label == "2026-01")
            for name in ("durations", "other")
        )
        assert mine < others


def test_a_changed_file_does_not_go_on_with_a_run(stream: Stream, pipeline: Pipeline, folder: Path) -> None:
    train(stream, pipeline, folder / "runs")
    changed = replace(pipeline, validator=replace(pipeline.validator, target=Fraction(7)))
    with pytest.raises(BadParameter, match="was changed since run 1"):
        train(stream, changed, folder / "runs")


def test_somebody_else_does_not_write_over_a_run(stream: Stream, pipeline: Pipeline, folder: Path) -> None:
    """Under another name its attempts are not found, and would be charged again."""
    write_outputs(train(stream, pipeline, folder / "runs"), stream.policy, folder / "runs")
    before = left(stream)
    with Stream.open(folder / RIDES_POLICY, analyst="other") as other:
        with pytest.raises(BadParameter, match="holds a run of another"):
            train(other, pipeline, folder / "runs")
        assert left(other) == before


def test_an_attempt_under_way_elsewhere_is_left_alone(
    stream: Stream, pipeline: Pipeline, folder: Path
) -> None:
    caught: list[type] = []

    def meanwhile(point: ReleaseStep) -> None:
        if point is ReleaseStep.CHARGED and not caught:
            try:
                training.train(stream, pipeline, folder / "runs")
            except InProgress:
                caught.append(InProgress)

    train(stream, pipeline, folder / "runs", at=meanwhile)
    assert caught == [InProgress]


def test_an_attempt_that_fails_ends_the_command_and_the_next_goes_on(
    stream: Stream, pipeline: Pipeline, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any) -> None:
        raise ValueError("something private")

    with monkeypatch.context() as broken:
        broken.setattr(work, "fit_on_rows", breaks)
        failed = train(stream, pipeline, folder / "runs")
    assert (failed.end, len(failed.attempts)) == (RunState.FAILED, 1)
    assert "private" not in failed.words
    then = train(stream, pipeline, folder / "runs")
    assert [one.judged is None for one in then.attempts] == [True, False]
    assert left(stream)["2026-01"] == Fraction(13, 2)


CLASSES = "SELECT distance, duration > 20 AS late FROM rides"


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        ("naive Bayes", ""),
        ("logistic regression", "log loss"),
        ("additive trees", "zero-one loss"),
        *(
            slow(kind, loss)
            for kind in ("logistic regression", "naive Bayes", "additive trees")
            for loss in ("", "log loss", "zero-one loss")
        ),
    ],
)
def test_classes_are_learned_and_judged(
    stream: Stream, pipeline: Pipeline, folder: Path, kind: str, loss: str
) -> None:
    judge = ValidatorSettings(
        target=Fraction("0.9" if loss == "log loss" else "0.35" if loss else "0.65"),
        eta=Fraction(1, 20),
        loss=loss,
        bound=Fraction(2 if loss == "log loss" else 1) if loss else None,
    )
    late = replace(
        pipeline,
        sql=CLASSES,
        label="late",
        trainer=TrainerSettings(kind),
        validator=judge,
        units_per_block=6000,
        schedule=replace(pipeline.schedule, strategy=Strategy.AGGRESSIVE, most=Fraction(2)),
    )
    outcome = train(stream, late, folder / "runs")
    assert outcome.end is RunState.ACCEPTED
    files = write_outputs(outcome, stream.policy, folder / "runs")
    assert load_model(files["model"]).predict({"distance": [1, 18]}) == [False, True]


@pytest.mark.parametrize(
    "kind",
    [
        "linear regression",
        "naive Bayes",
        slow("logistic regression"),
        slow("additive trees"),
    ],
)
def test_blocks_without_rows_are_no_reason_to_fail(
    stream: Stream, pipeline: Pipeline, folder: Path, kind: str
) -> None:
    """That a block is empty may be private: it must look like one with few units."""
    stream.append(through="2026-02")
    empty = replace(pipeline, trainer=TrainerSettings(kind), units_per_block=6000)
    if kind != "linear regression":
        judge = ValidatorSettings(target=Fraction(3, 4), eta=Fraction(1, 20))
        empty = replace(empty, sql=CLASSES, label="late", validator=judge)
    outcome = train(stream, limited(empty, 1), folder / "runs")
    assert outcome.attempts[0].blocks == ("2026-02",)
    assert (outcome.end, verdicts(outcome)) == (RunState.NOT_ACCEPTED, ["retry"] * 2)
    assert all(one.judged is not None for one in outcome.attempts)


def killed(folder: Path, name: str, *points: tuple[str, int]) -> dict[str, Any]:
    script = str(Path(__file__).with_name("killed_training.py"))
    given = [str(part) for point in points for part in point]
    done = subprocess.run(
        [sys.executable, "-W", "error", script, str(folder), name, *given],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check_killed(found: dict[str, Any]) -> None:
    for name, one in found.items():
        point, attempt = name.split()
        assert one["killed"] == -signal.SIGKILL, name
        assert (one["code"], one["models"]) == (0, 0), name
        went_on = one["went_on"]
        is_lost = point in ("charged", "ran")
        was_stored = point in ("stored", "done")
        expected = [
            ["crashed", True]
            if is_lost and n == int(attempt)
            else ["retry", n < int(attempt) or (was_stored and n == int(attempt))]
            for n in (1, 2, 3)
        ]
        assert went_on["attempts"] == expected, name
        # Each attempt was charged exactly once: .25 + .5 + 1.
        assert (went_on["spent"], went_on["receipts"], went_on["end"]) == (1.75, 3, "not accepted"), name
        assert one["again"]["spent"] == 1.75, name
        assert all(replay for _, replay in one["again"]["attempts"]), name
        assert not {"model.json", "statistic.json"} & set(went_on["files"]), name
        assert not [file for file in went_on["files"] if file.endswith(".new")], name


def test_kill_9_after_a_charge_loses_and_repeats_nothing(tmp_path: Path) -> None:
    check_killed(killed(tmp_path, "durations", ("charged", 2)))


@pytest.mark.slow
@pytest.mark.parametrize("attempt", [1, 2, 3])
@pytest.mark.parametrize("name", ["durations", "late", "mean", "histogram"])
def test_kill_9_at_each_step_loses_and_repeats_nothing(tmp_path: Path, name: str, attempt: int) -> None:
    """A line, a network with calibration, and two statistics."""
    check_killed(killed(tmp_path, name, *((point, attempt) for point in POINTS)))
