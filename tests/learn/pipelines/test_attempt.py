"""One attempt: one charge for two disjoint halves. A model that was not accepted is not kept."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapwing.core.losses import ParallelComposition, Pure
from lapwing.errors import BadParameter, WorkEnded
from lapwing.learn.payer import PrepaidPayer
from lapwing.learn.pipelines import attempt
from lapwing.learn.pipelines.attempt import AttemptRunner, attempt_key
from lapwing.learn.pipelines.components import Learner, TrainerSettings, fit_on_rows
from lapwing.learn.pipelines.pipeline import Pipeline, PlannedAttempt, load_pipeline
from lapwing.learn.stream import Stream
from lapwing.learn.validators import ValidationVerdict
from lapwing.ledger.gate import Gate
from lapwing.ledger.request_status import RequestState
from lapwing.sql import row_questions

ONE = PlannedAttempt(1, 1, Fraction(1))


@pytest.fixture
def pipeline(folder: Path) -> Pipeline:
    return load_pipeline(folder / "durations.toml")


def attempts(stream: Stream, pipeline: Pipeline, **other: Any) -> AttemptRunner:
    question = row_questions.row_question(stream.dataset, pipeline.sql)
    made = AttemptRunner(
        Gate(stream.ledger, principal="trainer"),
        stream,
        pipeline,
        question,
        pipeline.features(question),
        row_questions.meaning_digest(stream.dataset, question),
        run=1,
        start=1,
        order=stream.blocks(),
    )
    return replace(made, **other)


def spent(stream: Stream, block: str) -> Fraction:
    found = next(one for one in stream.ledger.blocks("rides") if one.label == block)
    return Fraction(found.spent[1], 10**9)


def test_a_block_pays_the_worse_of_training_and_validation_once(stream: Stream, pipeline: Pipeline) -> None:
    made = attempts(stream, pipeline)
    loss = made.price(ONE)
    assert isinstance(loss, ParallelComposition)
    assert all(part.pair is not None and part.pair[0] <= 1 for part in loss.parts)
    assert loss.pair is not None
    assert loss.pair[0] == 1
    assert loss.pair[1] <= pipeline.delta
    done = made.make(ONE)
    assert done.receipt.record["loss"]["loss"] == "Worst"
    left = {one.label: one.left for one in stream.status().blocks}
    assert left["2026-01"] == 7
    assert left["2026-02"] == 8


def test_who_trains_does_not_test(
    stream: Stream, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    halves: list[Any] = []

    def trained(trainer: Learner, features: Any, half: Any) -> Learner:
        halves.append(half)
        return fit_on_rows(trainer, features, half)

    def tested(self: Any, model: Any, features: Any, half: Any) -> Any:
        halves.append(half)
        return judged(self, model, features, half)

    judged = type(pipeline.validator).values
    monkeypatch.setattr(attempt, "fit_on_rows", trained)
    monkeypatch.setattr(type(pipeline.validator), "values", tested)
    attempts(stream, pipeline).make(ONE)
    trains, tests = (set(np.asarray(half.ids)[half.people].tolist()) for half in halves)
    assert not trains & tests
    assert len(trains) + len(tests) == 6000
    assert 0.07 < len(tests) / 6000 < 0.13


def test_the_same_people_test_in_every_attempt_and_month(
    full: Stream, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests: list[set[int]] = []
    judged = type(pipeline.validator).values

    def tested(self: Any, model: Any, features: Any, half: Any) -> Any:
        tests.append(set(np.asarray(half.ids)[half.people].tolist()))
        return judged(self, model, features, half)

    monkeypatch.setattr(type(pipeline.validator), "values", tested)
    made = attempts(full, pipeline)
    made.make(ONE)
    made.make(PlannedAttempt(2, 2, Fraction(1, 2)))
    assert tests[0] == tests[1]


def test_what_was_not_accepted_is_not_kept(stream: Stream, pipeline: Pipeline) -> None:
    made = attempts(stream, pipeline)
    done = made.make(PlannedAttempt(1, 1, Fraction(1, 2)))
    assert done.verdict is ValidationVerdict.RETRY
    assert done.model is None
    found = made.gate.find(attempt_key("rides", "durations", 1, 1))
    assert found is not None
    assert json.loads(found.answer)["model"] is None
    assert b"weights" not in found.answer


def test_the_same_attempt_again_is_the_stored_one(stream: Stream, pipeline: Pipeline) -> None:
    made = attempts(stream, pipeline)
    first = made.make(ONE)
    left = stream.status().blocks[0].left
    again = made.earlier(ONE)
    assert again is not None
    assert replace(again, is_replay=False) == first
    assert stream.status().blocks[0].left == left


def test_an_attempt_that_fails_stays_charged_and_counts(
    stream: Stream, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any) -> None:
        raise ValueError("something private")

    made = attempts(stream, pipeline)
    monkeypatch.setattr(attempt, "fit_on_rows", breaks)
    with pytest.raises(WorkEnded) as caught:
        made.make(ONE)
    assert "private" not in str(caught.value)
    found = made.gate.find(attempt_key("rides", "durations", 1, 1))
    assert found is not None
    assert found.state is RequestState.ENDED
    done = made.earlier(ONE)
    assert done is not None
    assert (done.verdict, done.judged, done.model) == (ValidationVerdict.RETRY, None, None)
    assert stream.status().blocks[0].left == 7


def test_later_runs_have_a_smaller_share_of_eta(stream: Stream, pipeline: Pipeline) -> None:
    shares = [attempts(stream, pipeline, run=run)._work(ONE).validator.eta for run in range(1, 100)]
    assert shares[0] == pipeline.validator.eta / 2
    assert sum(shares) < pipeline.validator.eta


def test_work_inside_an_attempt_has_its_price_and_is_done_once() -> None:
    payer = PrepaidPayer(Pure(Fraction(1)))
    with pytest.raises(BadParameter, match="charged"):
        payer.pay(Pure(Fraction(2)), lambda: b"", mechanism="", parameters={})
    assert payer.pay(Pure(Fraction(1)), lambda: b"model", mechanism="", parameters={}).result == b"model"
    with pytest.raises(BadParameter, match="used before"):
        payer.pay(Pure(Fraction(1)), lambda: b"", mechanism="", parameters={})


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"trainer": TrainerSettings("naive Bayes")}, "cannot learn"),
        ({"label": "speed"}, "must be a column"),
        ({"sql": "SELECT distance, duration, rider FROM rides"}, "tells people apart"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_read(
    stream: Stream, pipeline: Pipeline, changed: dict[str, Any], why: str
) -> None:
    other = replace(pipeline, **changed)
    with pytest.raises(BadParameter, match=why):
        attempts(stream, other)
