"""Sage's loop: attempt with little, judge, and go on with twice as much until it is decided.

Claim    killed at any moment and started again, it goes on where it was: no attempt is made or charged
         twice, none is lost, and nothing leaves that was not charged.
Because  all that is decided follows from the run's note and from what the ledger has stored under the key
         of each attempt. One that was charged and crashed counts as failed.
Test     tests/learn/pipelines/test_running.py (kill -9 at each step)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import count
from pathlib import Path

from lapwing.errors import BadParameter, OverBudget, WorkEnded
from lapwing.gate import Gate, Point
from lapwing.learn.features import Features
from lapwing.learn.growing import Stream
from lapwing.learn.pipelines.attempt import Attempted, Attempts, attempted, key_of
from lapwing.learn.pipelines.notes import RunNote
from lapwing.learn.pipelines.pipeline import Pipeline
from lapwing.learn.pipelines.schedule import Try, window
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
    run: int
    series: int
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
    """Begin a run of a pipeline, or go on with the last one. `folder` holds the notes of its runs.

    A run that was decided is shown again, at no cost: `new_run` begins another.
    """
    question = rows.question_of(stream.dataset, pipeline.sql)
    features = pipeline.features(question)
    gate = Gate(stream.ledger, principal=stream.dataset.analyst, watch=at)
    note = _note(gate, stream, pipeline, folder, new_run=new_run)
    attempts = Attempts(gate, stream, pipeline, question, features, note.run, note.series)
    made: list[Attempted] = []
    end, words = _loop(attempts, note, made, watch)
    return Outcome(pipeline, features, note.run, note.series, end, words, tuple(made))


@dataclass(frozen=True, slots=True)
class _Stop:
    """Why there is no next attempt now, and the one that failed, if one did."""

    end: End
    words: str
    failed: Attempted | None = None


def _loop(attempts: Attempts, note: RunNote, made: list[Attempted], watch: Watch) -> tuple[End, str]:
    for number in count(1):
        tried = attempts.pipeline.schedule.at(number, note.start)
        if tried is None:
            return End.NOT_ACCEPTED, "the schedule has ended, and no model was shown to be good enough"
        blocks = window(note.order, note.start, tried.blocks)
        done = attempts.earlier(tried, blocks or ())
        if done is None and blocks is None:
            return End.WAITING, _waiting(tried, note)
        if done is None:
            assert blocks is not None
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
        return attempts.make(tried, blocks)
    except OverBudget as error:  # somebody spent since we looked
        return _Stop(End.OVER_BUDGET, str(error))
    except WorkEnded:  # whoever holds the data should look before more is spent
        words = f"attempt {tried.attempt} was charged, and failed. Train again for the next one"
        return _Stop(End.FAILED, words, attempts.earlier(tried, blocks))


def _waiting(tried: Try, note: RunNote) -> str:
    return (
        f"attempt {tried.attempt} needs {tried.blocks} blocks, and so far there are {len(note.order)}. "
        "Append data, and train again"
    )


def _cannot_pay(attempts: Attempts, tried: Try, blocks: list[str]) -> str:
    """Why it would be refused, or "". Blocks are not replaced: the schedule is fixed."""
    able = attempts.stream.choose_blocks(
        len(attempts.stream.blocks()) or 1, loss=attempts.price(tried), pipeline=attempts.pipeline.name
    )
    short = [label for label in blocks if label not in set(able)]
    if not short:
        return ""
    named = ", ".join(short[:5]) + (f" and {len(short) - 5} more" if len(short) > 5 else "")
    return (
        f"attempt {tried.attempt} asks ε {float(tried.epsilon):.6g} of {len(blocks)} blocks, and too little"
        f" is left (or unlocked) on {named}. Begin a new run when newer blocks have come in"
    )


# Which run


def folder_of(folder: Path, run: int) -> Path:
    """Where a run's note and what came out of it lie."""
    return folder / f"run-{run}"


def _note(gate: Gate, stream: Stream, pipeline: Pipeline, folder: Path, *, new_run: bool) -> RunNote:
    """The note of the run to go on with, on disk."""
    last = _last_run(gate, pipeline.name, folder)
    arrived = stream.blocks()
    if last and not new_run:
        note = RunNote.read(folder_of(folder, last))
        if note is None:
            raise BadParameter(
                "run", f"{last} began, but its note is not in {folder}. Put it back, or begin a new run"
            )
        if (note.ledger, note.analyst) != (stream.ledger.id, stream.dataset.analyst):
            raise BadParameter(
                "run", f"{last} was begun by {note.analyst}, or on another ledger. Go on as before"
            )
        if note.pipeline != pipeline.digest:
            raise BadParameter(
                "pipeline", f"was changed since run {last} began. Change it back, or begin a new run"
            )
        grown = note.with_new(arrived)
    else:
        if not arrived:
            raise BadParameter("stream", "has no blocks yet: append data first")
        series = 1 + _undecided(gate, pipeline.name, last)
        whose = stream.ledger.id, stream.dataset.analyst
        grown = RunNote(*whose, last + 1, series, pipeline.digest, len(arrived), tuple(arrived))
        note = None
    if grown is not note:
        grown.write(folder_of(folder, grown.run))
    return grown


def _last_run(gate: Gate, name: str, folder: Path) -> int:
    """The newest run that was charged, or noted."""
    noted = [int(one.name[4:]) for one in folder.glob("run-*") if one.name[4:].isdecimal()]
    run = max(noted, default=0)
    while gate.find(key_of(name, run + 1, 1)) is not None:
        run += 1
    return run


def _undecided(gate: Gate, name: str, last: int) -> int:
    """How many runs, back from the last one, ended without a verdict."""
    for back, run in enumerate(range(last, 0, -1)):
        if any(one.verdict is not Verdict.RETRY for one in _made(gate, name, run)):
            return back
    return last


def _made(gate: Gate, name: str, run: int) -> Iterator[Attempted]:
    for number in count(1):
        found = gate.find(key_of(name, run, number))
        if found is None:
            return
        yield attempted(found, (), is_replay=True)
