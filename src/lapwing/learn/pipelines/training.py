"""Training runs: attempt with little data and ε, judge, and go on with twice as much (after Sage).

Claim    killed at any moment and started again, a run continues where it was: no attempt is made or charged
         twice, none is lost, and nothing leaves that was not charged.
Because  every decision follows from the file, the policy, the blocks that have arrived, and the results
         that the ledger has under the keys of the attempts. A run begins with its first charge, whose
         receipt records its facts. An attempt that was charged and crashed counts as failed.
Test     tests/learn/pipelines/test_training.py (kill -9 at each step)

Mistakes in the pipeline file are found before a run begins: nothing is charged for them. The files of a
run can be written again at any time: the ledger has everything.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from fractions import Fraction
from itertools import islice
from pathlib import Path

from lapwing.core.budget import SHARE_PAIR
from lapwing.core.exact import short
from lapwing.errors import BadParameter, OverBudget, WorkEnded
from lapwing.learn.features import Features
from lapwing.learn.pipelines.attempt import AttemptResult, AttemptRunner, attempt_key, attempt_work
from lapwing.learn.pipelines.pipeline import Pipeline, PlannedAttempt
from lapwing.learn.stream import Stream
from lapwing.learn.stream_blocks import SharingRule, blocks_text
from lapwing.learn.validators import ValidationVerdict
from lapwing.ledger.gate import Gate, ReleaseStep
from lapwing.sql import row_questions


def check_pipeline(stream: Stream, pipeline: Pipeline) -> tuple[row_questions.RowQuestion, Features]:
    """Return the query of a pipeline and its features, if all attempts can be made. No data is read.

    Raises BadParameter with the key of the pipeline file that does not fit the stream.
    """
    question = row_questions.row_question(stream.dataset, pipeline.sql)
    features = pipeline.features(question)
    most = SHARE_PAIR * stream.policy.delta / (stream.sharing.parts or 1)
    if pipeline.delta > most:
        raise BadParameter(
            "delta",
            f"must be at most {short(float(most))}: {float(SHARE_PAIR):.0%} of the stream's δ for life (or "
            "of the pipeline's share of it) are for attempts",
        )
    _check_reach(stream, pipeline, question)
    for tried in first_and_last_attempt(pipeline, len(reachable_blocks(stream, question))):
        attempt_work(pipeline, features, tried, run=1, key=b"").loss  # noqa: B018 (it raises if something is wrong)
    return question, features


def reachable_blocks(stream: Stream, question: row_questions.RowQuestion) -> tuple[str, ...]:
    """Return the blocks that have arrived and that the query can reach, oldest first."""
    return tuple(row_questions.blocks_to_charge(stream.dataset, question, stream.blocks()) or ())


def first_and_last_attempt(pipeline: Pipeline, start: int) -> list[PlannedAttempt]:
    """Return the first attempt and the last, if there is one: in between, ε and data only grow."""
    attempts = pipeline.schedule.attempts(start)
    first = list(islice(attempts, 1))
    return first if pipeline.schedule.most_blocks is None else [*first, *deque(attempts, maxlen=1)]


def _check_reach(stream: Stream, pipeline: Pipeline, question: row_questions.RowQuestion) -> None:
    blocks, first = stream.policy.blocks, pipeline.schedule.first_blocks
    if blocks is None or blocks.by != "row":
        return  # blocks of units open as people arrive
    ever = len(row_questions.blocks_to_charge(stream.dataset, question, None) or ())
    if ever < first:
        raise BadParameter(
            "blocks", f"begin with {first}, and the features can only ever reach {blocks_text(ever)}"
        )


CARD = "card.json"


@dataclass(frozen=True, slots=True)
class RunOwner:
    """The ledger, stream, pipeline and analyst of a run. Runs are counted separately for each of these."""

    ledger: str
    stream: str
    pipeline: str
    analyst: str


def run_folder(folder: Path, run: int) -> Path:
    """Return the folder of a run's files."""
    return folder / f"run-{run}"


def require_same_owner(place: Path, owner: RunOwner) -> None:
    """Raise BadParameter if the folder holds another owner's card, which would be overwritten."""
    try:
        charged = json.loads((place / CARD).read_text(encoding="utf-8"))["charged"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return  # there is no card
    if charged != asdict(owner):
        raise BadParameter(
            "folder",
            f"{place} holds a run of another stream, pipeline, ledger or analyst. Go on as before, or name"
            " another folder",
        )


class RunState(Enum):
    """The state of a run."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    WAITING = "waiting for data"
    OVER_BUDGET = "over budget"
    FAILED = "failed"
    NOT_ACCEPTED = "not accepted"

    @property
    def is_verdict(self) -> bool:
        """True if it is decided for ever."""
        return self in (RunState.ACCEPTED, RunState.REJECTED)


@dataclass(frozen=True, slots=True)
class TrainingEvent:
    """A step of a run: "try" (before a charge), or "done" with the result of the attempt."""

    kind: str
    tried: PlannedAttempt
    blocks: tuple[str, ...]
    done: AttemptResult | None = None


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """A run as it is now, with all its attempts.

    `for_life` is the total (ε, δ) of a block, for all pipelines and questions.
    """

    pipeline: Pipeline
    features: Features
    owner: RunOwner
    for_life: tuple[Fraction, Fraction]  # (ε, δ) of a block, by all pipelines and questions
    run: int
    end: RunState
    words: str
    attempts: tuple[AttemptResult, ...]

    @property
    def accepted(self) -> AttemptResult | None:
        """The attempt whose model was accepted; None if there is none."""
        return self.attempts[-1] if self.end is RunState.ACCEPTED else None


TrainingWatcher = Callable[[TrainingEvent], None]


def ignore(_: TrainingEvent | ReleaseStep) -> None:
    """Ignore an event, or a step of a release."""


def train(
    stream: Stream,
    pipeline: Pipeline,
    folder: Path,
    *,
    new_run: bool = False,
    watch: TrainingWatcher = ignore,
    at: Callable[[ReleaseStep], None] = ignore,
) -> TrainingOutcome:
    """Begin a run of a pipeline, or continue the last one.

    A run that was decided is returned again at no cost.

    Args:
        stream: The stream to learn from.
        pipeline: The pipeline, as `load_pipeline` returned it.
        folder: The folder of the pipeline's runs, in which `write_outputs` writes a folder for each.
        new_run: Whether to begin another run although the last one was decided.
        watch: A callback for events, such as a progress display.
        at: A callback for the points of a release, for tests of crashes.

    Returns:
        The run as it is now, with all its attempts.

    Raises:
        BadParameter: If the pipeline does not fit the stream, or was changed since the run began.
        InProgress: If another process works on the same attempt.

    Example:
        With the files that `lapwing train example` writes:

        ```python
        from pathlib import Path

        from lapwing.learn import Stream, load_pipeline, train, write_outputs

        pipeline, folder = load_pipeline("durations.toml"), Path("durations.runs")
        with Stream.open(pipeline.stream) as stream:
            stream.append(through="2026-01")
            outcome = train(stream, pipeline, folder)
            files = write_outputs(outcome, stream.policy, folder)
        print(outcome.end, outcome.words, files["card"])
        ```
    """
    question, features = check_pipeline(stream, pipeline)
    order = reachable_blocks(stream, question)
    if not stream.blocks():
        raise BadParameter("stream", "has no blocks yet: append data first")
    stream.dataset.curator.data()  # raises if the source has changed; attempts look more closely
    gate = Gate(stream.ledger, principal=stream.dataset.analyst, watch=at, pads=stream.dataset.curator.pads)
    owner = RunOwner(stream.ledger.id, stream.policy.name, pipeline.name, stream.dataset.analyst)
    run, start = _run(gate, owner, new_run=new_run)
    require_same_owner(run_folder(folder, run), owner)
    meaning, began = row_questions.meaning_digest(stream.dataset, question), start or len(order)
    attempts = AttemptRunner(gate, stream, pipeline, question, features, meaning, run, began, order)
    made: list[AttemptResult] = []
    end, words = _loop(attempts, made, watch)
    return TrainingOutcome(pipeline, features, owner, stream.budget_for_life, run, end, words, tuple(made))


def _run(gate: Gate, owner: RunOwner, *, new_run: bool) -> tuple[int, int]:
    """Return the number of the run, and the number of blocks with which it began; 0 if it has not begun.

    Only charged runs have a number, so that there are no gaps, whatever is on disk.
    """
    start, run = 0, 0
    while (status := gate.find(attempt_key(owner.stream, owner.pipeline, run + 1, 1))) is not None:
        start, run = int(status.receipt.record["parameters"].get("start", 0)), run + 1
    return (run + 1, 0) if new_run or not run else (run, start)


def _loop(
    attempts: AttemptRunner, made: list[AttemptResult], watch: TrainingWatcher
) -> tuple[RunState, str]:
    """Add the results of attempts to `made` until the run ends or must wait. Return why it stopped."""
    for tried in attempts.pipeline.schedule.attempts(attempts.start):
        done = attempts.earlier(tried)
        if done is None:
            blocks = attempts.blocks(tried)
            if blocks is None:
                return RunState.WAITING, _waiting(attempts, tried)
            watch(TrainingEvent("try", tried, tuple(blocks)))
            if short := _cannot_pay(attempts, tried, blocks):
                return RunState.OVER_BUDGET, short
            try:
                done = attempts.make(tried)
            except OverBudget as error:  # another request spent in the meantime
                return RunState.OVER_BUDGET, str(error)
            except WorkEnded:  # the curator should look before more is spent
                failed = attempts.earlier(tried)
                made += [] if failed is None else [failed]
                words = f"attempt {tried.attempt} was charged, and failed. Train again for the next one"
                return RunState.FAILED, words
        made.append(done)
        watch(TrainingEvent("done", tried, done.blocks, done))
        if done.judged is not None and done.verdict is not ValidationVerdict.RETRY:
            end = RunState.ACCEPTED if done.verdict is ValidationVerdict.ACCEPT else RunState.REJECTED
            return end, done.judged.words
    return RunState.NOT_ACCEPTED, "the schedule has ended, and no model was shown to be good enough"


def _waiting(attempts: AttemptRunner, tried: PlannedAttempt) -> str:
    # A later run that was not charged has not begun.
    again = "train again" if attempts.run == 1 or tried.attempt > 1 else "begin the new run then"
    needed, there = blocks_text(tried.blocks), blocks_text(len(attempts.order))
    return (
        f"attempt {tried.attempt} needs {needed}, but only {there} arrived so far. Append data, and {again}"
    )


def _cannot_pay(attempts: AttemptRunner, tried: PlannedAttempt, blocks: list[str]) -> str:
    """Return why the charge would be refused, or "". Blocks are not replaced: the schedule is fixed."""
    stream = attempts.stream

    def short(of: Stream) -> list[str]:
        able = of.choose_blocks(
            len(stream.blocks()) or 1, loss=attempts.price(tried), pipeline=attempts.pipeline.name
        )
        return [label for label in blocks if label not in set(able)]

    locked = short(stream)
    if not locked:
        return ""
    asks = f"attempt {tried.attempt} asks ε {float(tried.epsilon):.6g} of {blocks_text(len(blocks))}"
    spent = short(Stream(stream.dataset, SharingRule())) if stream.sharing.versions else locked
    if not spent:
        return (
            f"{asks}, but too little budget of {_named(locked)} is unlocked yet. "
            "Each append unlocks more: append data, and train again"
        )
    left = f"too little budget is left on {_named(spent)}"
    return f"{asks}, but {left}. Begin a new run when newer blocks have arrived"


def _named(labels: list[str]) -> str:
    return ", ".join(labels[:5]) + (f" and {len(labels) - 5} more" if len(labels) > 5 else "")
