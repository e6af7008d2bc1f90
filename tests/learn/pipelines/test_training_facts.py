"""A run is defined by its receipts: neither files on disk nor a later policy can change it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

from lapwing.errors import BadParameter
from lapwing.learn.features import Features
from lapwing.learn.pipelines import training
from lapwing.learn.pipelines.attempt import (
    AttemptRunner,
    AttemptWork,
    attempt_from_ledger,
    attempt_key,
    attempt_work,
)
from lapwing.learn.pipelines.model_card import card_text, model_card
from lapwing.learn.pipelines.pipeline import Pipeline, PlannedAttempt, load_pipeline
from lapwing.learn.pipelines.run_files import load_model, write_outputs
from lapwing.learn.pipelines.training import RunState, check_pipeline, run_folder, train
from lapwing.learn.stream import Stream
from lapwing.learn.stream_blocks import SharingRule
from lapwing.ledger import CuratorKey
from lapwing.ledger.gate import Gate
from lapwing.ledger.request_status import RequestState, RequestStatus
from lapwing.sql import row_questions

POLICY = """
[dataset]
name = "{name}"
protects = "person-period"
[ledger]
url = "both.ledger"
[budget]
epsilon = 8.0
delta = 1e-6
[blocks]
by = "row"
column = "day"
every = "month"
[tables.rows]
source = "{name}/*.parquet"
unit = "who"
rows_per_unit = 4
[tables.rows.columns.day]
low = 2026-01-01
high = 2026-12-31
[tables.rows.columns.x]
low = 0
high = 10
step = 0.1
[tables.rows.columns.cls]
values = ["low", "high"]
"""
PIPELINE = """
[pipeline]
name = "p"
stream = "one.toml"
features = "SELECT x, cls FROM rows"
label = "cls"
delta = 1e-9
[trainer]
kind = "naive Bayes"
[validator]
kind = "accuracy"
target = 0.8
eta = 0.05
[strategy]
kind = "conserve"
epsilon = [1.0, 1.0]
blocks = [1, 1]
"""
ROWS = """
SELECT {first} + i AS who, DATE '2026-01-10' AS day, (i % 100) / 10.0 AS x,
    CASE WHEN i % 100 >= 50 THEN 'high' ELSE 'low' END AS cls FROM range(2000) AS r(i)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two data sets of one ledger, and a pipeline."""
    with duckdb.connect() as connection:
        for number, name in enumerate(("one", "two")):
            (tmp_path / name).mkdir()
            sql = ROWS.format(first=number * 10_000)
            connection.sql(sql).write_parquet(str(tmp_path / name / "a.parquet"))
            (tmp_path / f"{name}.toml").write_text(POLICY.format(name=name))
    (tmp_path / "p.toml").write_text(PIPELINE)
    return tmp_path


@pytest.fixture
def one(place: Path) -> Iterator[Stream]:
    with Stream.open(place / "one.toml", analyst="a") as stream:
        stream.append(through="2026-02")
        yield stream


@pytest.fixture
def pipeline(place: Path) -> Pipeline:
    """January comes in with February, which has no rows: none can be accepted."""
    return load_pipeline(place / "p.toml")


@pytest.fixture
def good(pipeline: Pipeline) -> Pipeline:
    """It learns from both months."""
    return replace(pipeline, schedule=replace(pipeline.schedule, first_blocks=2, most_blocks=2))


def swap(policy: Path) -> None:
    policy.write_text(policy.read_text().replace('["low", "high"]', '["high", "low"]'))


def left(stream: Stream) -> list[Fraction]:
    return [one.left for one in stream.status().blocks]


def test_an_accepted_model_is_not_made_of_a_later_policy(place: Path, one: Stream, good: Pipeline) -> None:
    outcome = train(one, good, place / "runs")
    assert outcome.end is RunState.ACCEPTED
    model = write_outputs(outcome, one.policy, place / "runs")["model"]
    before = model.read_text()
    assert load_model(model).predict({"x": [1, 9]}) == ["low", "high"]
    swap(place / "one.toml")
    changed = pytest.raises(BadParameter, match=r"policy: .* was changed since run 1 began")
    with Stream.open(place / "one.toml", analyst="a") as later, changed:
        train(later, good, place / "runs")
    # Even who asks for the files by other ways has the features of then.
    assert outcome.accepted is not None
    model.unlink()
    now = replace(outcome, features=replace(outcome.features, label="", label_kind=None))
    write_outputs(now, one.policy, place / "runs")
    assert model.read_text() == before


def test_a_run_does_not_go_on_under_another_policy(place: Path, one: Stream, pipeline: Pipeline) -> None:
    waits = replace(
        pipeline,
        validator=replace(pipeline.validator, target=Fraction("0.999")),
        schedule=replace(pipeline.schedule, most_blocks=4),
    )
    assert train(one, waits, place / "runs").end is RunState.WAITING
    before = left(one)
    swap(place / "one.toml")
    with Stream.open(place / "one.toml", analyst="a") as later:
        with pytest.raises(BadParameter, match="was changed since run 1 began"):
            train(later, waits, place / "runs")
        assert left(later) == before


def test_a_model_file_is_never_written_over(place: Path, one: Stream, good: Pipeline) -> None:
    outcome = train(one, good, place / "runs")
    model = write_outputs(outcome, one.policy, place / "runs")["model"]
    model.write_text('{"receipt": "another"}')
    with pytest.raises(BadParameter, match="is not of this run"):
        write_outputs(outcome, one.policy, place / "runs")
    assert model.read_text() == '{"receipt": "another"}'


def test_what_a_receipt_says_is_compared(place: Path, one: Stream, pipeline: Pipeline) -> None:
    done = train(one, pipeline, place / "runs").attempts[0]
    said = done.receipt.record["parameters"]
    assert (said["data"], said["start"], said["blocks"], said["newest block"]) == ("one", 2, 1, "2026-02")
    assert said["file"] == pipeline.digest
    question, features = check_pipeline(one, pipeline)
    meaning, tried = row_questions.meaning_digest(one.dataset, question), pipeline.schedule.at(1, 2)
    assert tried is not None
    gate = Gate(one.ledger, principal="a")
    made = AttemptRunner(gate, one, pipeline, question, features, meaning, 1, 2, ["2026-01", "2026-02"])
    found = made.earlier(tried)
    assert found is not None
    assert found.blocks == ("2026-02",)
    others = [
        replace(made, order=["2026-01", "2026-03"]),
        replace(made, order=["2026-01"]),
        replace(made, start=1),
        replace(made, meaning="other"),
        replace(made, pipeline=replace(pipeline, delta=pipeline.delta / 2)),
    ]
    for other in others:
        with pytest.raises(BadParameter, match="run 1"):
            other.earlier(tried)


def test_notes_on_disk_change_nothing(place: Path, one: Stream, pipeline: Pipeline) -> None:
    """Nor is anything needed there: what is lost can be written again."""
    first = train(one, pipeline, place / "runs")
    here = run_folder(place / "runs", 1)
    here.mkdir(parents=True)
    (here / "run.json").write_text('{"order": ["2026-12"], "start": 1, "series": 9}')
    run_folder(place / "runs", 99999999).mkdir()
    again = train(one, pipeline, place / "runs")
    assert again.attempts == tuple(replace(one, is_replay=True) for one in first.attempts)
    assert train(one, pipeline, place / "elsewhere").run == 1
    assert train(one, pipeline, place / "elsewhere", new_run=True).run == 2


def test_another_data_set_of_the_same_ledger_is_another_run(
    place: Path, one: Stream, pipeline: Pipeline
) -> None:
    outcome = train(one, pipeline, place / "runs")
    write_outputs(outcome, one.policy, place / "runs")
    one.close()
    with Stream.open(place / "two.toml", analyst="a") as two:
        two.append(through="2026-02")
        with pytest.raises(BadParameter, match="holds a run of another stream"):
            train(two, pipeline, place / "runs")
        other = train(two, pipeline, place / "others")
        assert [one.is_replay for one in other.attempts] == [False]
        assert model_card(other, two.policy)["charged"]["stream"] == "two"


def test_each_run_of_a_name_has_a_smaller_share_of_eta_also_after_a_verdict(
    place: Path, one: Stream, good: Pipeline
) -> None:
    shares = []
    for run in (1, 2, 3):
        outcome = train(one, good, place / "runs", new_run=True)
        assert (outcome.run, outcome.end) == (run, RunState.ACCEPTED)
        said = outcome.attempts[0].receipt.record["parameters"]
        shares.append(Fraction(said["validator: eta"]))
    assert shares == [Fraction(1, 20) / (run * (run + 1)) for run in (1, 2, 3)]
    card = model_card(outcome, one.policy)
    assert card["validated"]["eta_of_this_run"] == float(shares[-1])
    assert "all 3 runs of p by this analyst together" in card_text(card)
    assert "another name, or of another analyst" in card_text(card)


def test_before_the_first_append_nothing_is_made(place: Path, pipeline: Pipeline) -> None:
    empty = pytest.raises(BadParameter, match="has no blocks yet: append")
    with Stream.open(place / "one.toml", analyst="a") as stream, empty:
        train(stream, pipeline, place / "runs")
    assert not (place / "both.ledger").exists()
    assert not (place / "runs").exists()


def test_a_run_that_was_not_charged_has_no_number(place: Path, one: Stream, pipeline: Pipeline) -> None:
    poor = replace(pipeline, schedule=replace(pipeline.schedule, least=Fraction(9), most=Fraction(9)))
    for _ in range(2):
        assert train(one, poor, place / "runs", new_run=True).run == 1
    done = train(one, pipeline, place / "runs")  # the file may be mended
    assert (done.run, len(done.attempts)) == (1, 1)


def test_the_last_attempt_is_priced_before_the_first(
    place: Path, one: Stream, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def priced(
        pipeline: Pipeline, features: Features, tried: PlannedAttempt, *, run: int, key: bytes
    ) -> AttemptWork:
        if tried.blocks == 8:
            raise BadParameter("units_per_block", "are too many")
        return attempt_work(pipeline, features, tried, run=run, key=key)

    monkeypatch.setattr(training, "attempt_work", priced)
    before = left(one)
    with pytest.raises(BadParameter, match="are too many"):
        train(one, replace(pipeline, schedule=replace(pipeline.schedule, most_blocks=9)), place / "runs")
    assert left(one) == before
    assert train(one, pipeline, place / "runs").run == 1


def test_what_an_older_version_stored_is_said(place: Path, one: Stream, pipeline: Pipeline) -> None:
    done = train(one, pipeline, place / "runs").attempts[0]
    found = Gate(one.ledger, principal="a").find(attempt_key("one", "p", 1, 1))
    assert found is not None
    older = json.loads(found.answer) | {"form": "lapwing attempt 1"}
    with pytest.raises(BadParameter, match="run: 1 was made by another version"):
        attempt_from_ledger(
            RequestStatus(RequestState.ANSWERED, done.receipt, json.dumps(older).encode()),
            (),
            is_replay=True,
        )


def test_only_blocks_that_the_features_reach_are_counted(
    place: Path, one: Stream, pipeline: Pipeline
) -> None:
    january = replace(pipeline, sql=f"{pipeline.sql} WHERE day < DATE '2026-02-01'")
    outcome = train(one, january, place / "runs")
    assert outcome.attempts[0].blocks == ("2026-01",)
    assert left(one)[:2] == [7, 8]
    two = replace(january, schedule=replace(january.schedule, first_blocks=2, most_blocks=2))
    with pytest.raises(BadParameter, match=r"can only ever reach 1 block$"):
        train(one, two, place / "runs")


def test_a_delta_above_what_the_account_has_for_attempts_is_refused(
    place: Path, one: Stream, pipeline: Pipeline
) -> None:
    share = Fraction(4, 100) / 10**6
    check_pipeline(one, replace(pipeline, delta=share))
    with pytest.raises(BadParameter, match="delta: must be at most 4e-8"):
        check_pipeline(one, replace(pipeline, delta=2 * share))
    halves = Stream(one.dataset, SharingRule("equal shares", ("p", "q")))
    with pytest.raises(BadParameter, match="delta: must be at most 2e-8"):
        check_pipeline(halves, replace(pipeline, delta=share))


def test_what_is_locked_is_told_apart_from_what_is_spent(
    place: Path, one: Stream, pipeline: Pipeline
) -> None:
    slow = Stream(one.dataset, SharingRule("unlock", versions=20))
    locked = train(slow, pipeline, place / "runs")
    assert locked.end is RunState.OVER_BUDGET
    assert "unlocked yet. Each append unlocks more" in locked.words
    greedy = replace(pipeline, schedule=replace(pipeline.schedule, least=Fraction(9), most=Fraction(9)))
    spent = train(slow, greedy, place / "runs")
    assert "too little budget is left on 2026-02" in spent.words


def test_a_card_tells_both_numbers_for_people_in_several_periods(
    place: Path, one: Stream, good: Pipeline
) -> None:
    card = model_card(train(one, good, place / "runs"), one.policy)
    life, run = (limit for limit in card["limits"] if "promised" in limit)
    assert "(kε, δ·(e^(kε) − 1)/(e^ε − 1))" in life
    assert "Nothing is promised from k = 3 on" in life
    assert run.startswith("By this run alone")
    assert "in 2 (ε 2, δ " in run


def test_a_card_has_nothing_that_a_terminal_obeys(place: Path, one: Stream, good: Pipeline) -> None:
    card = model_card(train(one, good, place / "runs"), one.policy)
    card["learned"]["label"] = "\x1b[2J\nVerdict     ACCEPTED"
    text = card_text(card)
    assert r"\u001b[2J\u000aVerdict" in text
    assert "\x1b" not in text


def test_a_card_counts_a_budget_that_was_raised(place: Path, one: Stream, good: Pipeline) -> None:
    curator = CuratorKey.load(place / "both.ledger.curator")
    one.ledger.raise_budget("one", epsilon=2, delta=Fraction(1, 10**7), curator=curator)
    card = model_card(train(one, good, place / "runs"), one.policy)
    assert card["privacy"]["stream_epsilon_for_life"] == 10
    assert card["privacy"]["stream_delta_for_life"] == 1.1e-6
