"""Sage's loop: attempt with little, judge, and go on with twice as much until it is decided.

Claim    killed at any moment and started again, it goes on where it was: no attempt is made or charged
         twice, none is lost, and nothing leaves that was not charged.
Because  all that is decided follows from the file, the policy, the blocks that have come in, and from what
         the ledger has under the key of each attempt. A run begins with its first charge, whose receipt
         says with what. One that was charged and crashed counts as failed.
Test     tests/learn/pipelines/test_running.py (kill -9 at each step)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from itertools import count
from pathlib import Path

from lapwing.errors import BadParameter, OverBudget, WorkEnded
from lapwing.gate import Gate, Point
from lapwing.learn.features import Features
from lapwing.learn.growing import Sharing, Stream, blocks_text
from lapwing.learn.pipelines.attempt import Attempted, Attempts, key_of
from lapwing.learn.pipelines.checks import checked, order_of
from lapwing.learn.pipelines.pipeline import Pipeline
from lapwing.learn.pipelines.places import Whose, folder_of, require_own
from lapwing.learn.pipelines.schedule import Try
from lapwing.learn.validators import Verdict
from lapwing.query import rows


class End(Enum):
    """How a run stands."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    WAITING = "waiting for data"
    OVER_BUDGET = "over budget"
    FAILED = "failed"
    NOT_ACCEPTED = "not accepted"

    @property
    def is_verdict(self) -> bool:
        """Whether it is decided for ever."""
        return self in (End.ACCEPTED, End.REJECTED)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: "try" (before a charge), or "done" with what came of it."""

    kind: str
    tried: Try
    blocks: tuple[str, ...]
    done: Attempted | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run as it stands, with all its attempts."""

    pipeline: Pipeline
    features: Features
    whose: Whose
    for_life: tuple[Fraction, Fraction]  # (ε, δ) of a block, by all pipelines and questions
    run: int
    end: End
    words: str
    attempts: tuple[Attempted, ...]

    @property
    def accepted(self) -> Attempted | None:
        """The attempt whose model was accepted."""
        return self.attempts[-1] if self.end is End.ACCEPTED else None


Watch = Callable[[Event], None]


def nobody_watches(_: Event) -> None:
    """Progress tables watch."""


def nobody_waits(_: Point) -> None:
    """Crash tests wait for a point of a release."""


def train(
    stream: Stream,
    pipeline: Pipeline,
    folder: Path,
    *,
    new_run: bool = False,
    watch: Watch = nobody_watches,
    at: Callable[[Point], None] = nobody_waits,
) -> Outcome:
    """Begin a run of a pipeline, or go on with the last one. In `folder` is what came out of each.

    A run that was decided is shown again, at no cost: `new_run` begins another.
    """
    question, features = checked(stream, pipeline)
    order = order_of(stream, question)
    if not stream.blocks():
        raise BadParameter("stream", "has no blocks yet: append data first")
    rows.version_of(stream.dataset, question)  # says what is wrong with the source
    gate = Gate(stream.ledger, principal=stream.dataset.analyst, watch=at)
    whose = Whose(stream.ledger.id, stream.policy.name, pipeline.name, stream.dataset.analyst)
    run, start = _run(gate, whose, new_run=new_run)
    require_own(folder_of(folder, run), whose)
    meaning, began = rows.meaning(stream.dataset, question), start or len(order)
    attempts = Attempts(gate, stream, pipeline, question, features, meaning, run, began, order)
    made: list[Attempted] = []
    end, words = _loop(attempts, made, watch)
    return Outcome(pipeline, features, whose, stream._for_life(), run, end, words, tuple(made))


def _run(gate: Gate, whose: Whose, *, new_run: bool) -> tuple[int, int]:
    """The number of the run, and with how many blocks it began; 0 if it is to begin.

    Only what was charged has a number, so that there are no gaps: none is left out, whatever is on disk.
    """
    start, run = 0, 0
    while (found := gate.find(key_of(whose.stream, whose.pipeline, run + 1, 1))) is not None:
        start, run = int(found.receipt.record["parameters"].get("start", 0)), run + 1
    return (run + 1, 0) if new_run or not run else (run, start)


@dataclass(frozen=True, slots=True)
class _Stop:
    """Why there is no next attempt now, and the one that failed, if one did."""

    end: End
    words: str
    failed: Attempted | None = None


def _loop(attempts: Attempts, made: list[Attempted], watch: Watch) -> tuple[End, str]:
    for number in count(1):
        tried = attempts.pipeline.schedule.at(number, attempts.start)
        if tried is None:
            return End.NOT_ACCEPTED, "the schedule has ended, and no model was shown to be good enough"
        done = attempts.earlier(tried)
        if done is None:
            blocks = attempts.blocks(tried)
            if blocks is None:
                return End.WAITING, _waiting(attempts, tried)
            new = _new(attempts, tried, blocks, watch)
            if isinstance(new, _Stop):
                made += [new.failed] if new.failed is not None else []
                return new.end, new.words
            done = new
        made.append(done)
        watch(Event("done", tried, done.blocks, done))
        if done.judged is not None and done.verdict is not Verdict.RETRY:
            end = End.ACCEPTED if done.verdict is Verdict.ACCEPT else End.REJECTED
            return end, done.judged.words
    raise AssertionError("attempts are counted without end")


def _new(attempts: Attempts, tried: Try, blocks: list[str], watch: Watch) -> Attempted | _Stop:
    """Make an attempt that was not made before."""
    watch(Event("try", tried, tuple(blocks)))
    if short := _cannot_pay(attempts, tried, blocks):
        return _Stop(End.OVER_BUDGET, short)
    try:
        return attempts.make(tried)
    except OverBudget as error:  # somebody spent since we looked
        return _Stop(End.OVER_BUDGET, str(error))
    except WorkEnded:  # whoever holds the data should look before more is spent
        words = f"attempt {tried.attempt} was charged, and failed. Train again for the next one"
        return _Stop(End.FAILED, words, attempts.earlier(tried))


def _waiting(attempts: Attempts, tried: Try) -> str:
    # A later run that was not charged yet has not begun.
    again = "train again" if attempts.run == 1 or tried.attempt > 1 else "begin the new run then"
    needed, there = blocks_text(tried.blocks), blocks_text(len(attempts.order))
    return f"attempt {tried.attempt} needs {needed}, and {there} came in so far. Append data, and {again}"


def _cannot_pay(attempts: Attempts, tried: Try, blocks: list[str]) -> str:
    """Why it would be refused, or "". Blocks are not replaced: the schedule is fixed."""
    stream = attempts.stream

    def short(whose: Stream) -> list[str]:
        able = whose.choose_blocks(
            len(stream.blocks()) or 1, loss=attempts.price(tried), pipeline=attempts.pipeline.name
        )
        return [label for label in blocks if label not in set(able)]

    locked = short(stream)
    if not locked:
        return ""
    asks = f"attempt {tried.attempt} asks ε {float(tried.epsilon):.6g} of {blocks_text(len(blocks))}"
    spent = short(Stream(stream.dataset, Sharing())) if stream.sharing.versions else locked
    if not spent:
        return (
            f"{asks}, and too little of {_named(locked)} is unlocked yet. "
            "More of it is with each append: append data, and train again"
        )
    return (
        f"{asks}, and too little is left on {_named(spent)}. Begin a new run when newer blocks have come in"
    )


def _named(labels: list[str]) -> str:
    return ", ".join(labels[:5]) + (f" and {len(labels) - 5} more" if len(labels) > 5 else "")
