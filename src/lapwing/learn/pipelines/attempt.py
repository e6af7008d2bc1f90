"""One attempt: one charge, for which a model is trained on some units and validated on others.

Claim    an attempt costs each unit of its blocks at most the worse of the two: training and validation.
Because  a keyed hash of the unit alone decides in which half it is, for ever. What a training unit meets is
         the trainer, and validation is made of the model and of others; a testing unit meets validation
         alone. docs/arguments/attempts.md.
Test     tests/learn/pipelines/test_attempt.py

A model that is not accepted is not kept: what is stored under the charge are the verdict and, if it is
accepted, the model with what its numbers mean.

Claim    an attempt that was charged is never taken for one of another pipeline, policy, stream or block.
Because  all of these stand in its receipt, and are compared whenever it is looked at again.
Test     tests/learn/pipelines/test_facts.py
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lapwing.errors import BadParameter, InProgress
from lapwing.gate import Earlier, Gate, State
from lapwing.learn.features import Features
from lapwing.learn.growing import Stream
from lapwing.learn.pipelines.pipeline import Pipeline
from lapwing.learn.pipelines.schedule import Try, window
from lapwing.learn.pipelines.work import FORM, Work, work_of
from lapwing.learn.purse import LedgerPurse
from lapwing.learn.validators import Judged, Verdict
from lapwing.ledger import Receipt
from lapwing.privacy import Loss, Relation
from lapwing.query import custody, rows
from lapwing.query.rows import RowQuestion

MECHANISM = "pipeline attempt"
_BACK = "Change it back, or begin a new run (--new-run)"
# Facts in a receipt, and what to say where they are not those of today.
_ELSE = {
    "form": ("run", "{run} was made by another version of Lapwing, and cannot be read. Begin a new run"),
    "file": (
        "pipeline",
        f"was changed since run {{run}} began, or another file of the same name began it. {_BACK}",
    ),
    "rows": ("policy", f"(or a public table) was changed since run {{run}} began: rows differ. {_BACK}"),
    "features": ("policy", f"was changed since run {{run}} began: features mean other things. {_BACK}"),
}
_OTHER_BLOCKS = "blocks", "that have come in are not those that run {run} was charged to. Begin a new run"


@dataclass(frozen=True, slots=True)
class Attempted:
    """What came of an attempt. `judged` is None where it was charged and crashed: it shows nothing."""

    number: int
    blocks: tuple[str, ...]
    epsilon: Fraction
    delta: Fraction
    judged: Judged | None
    model: bytes | None  # or an accepted statistic
    receipt: Receipt
    is_replay: bool
    calibration: bytes | None = None
    features: Mapping[str, Any] | None = None  # of an accepted model: what its numbers mean

    @property
    def verdict(self) -> Verdict:
        """What a crash counts as is RETRY."""
        return Verdict.RETRY if self.judged is None else self.judged.verdict


def key_of(data: str, name: str, run: int, attempt: int) -> str:
    """Under which an attempt on a data set is charged once."""
    return f"pipeline {name}: run {run}, attempt {attempt}, on {_digest(data)[:32]}"


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts of one run. `order` are the blocks that the features reach, as they came in; `start` of
    them were there when the run began."""

    gate: Gate
    stream: Stream
    pipeline: Pipeline
    question: RowQuestion
    features: Features
    meaning: str  # of the question: a digest
    run: int
    start: int
    order: Sequence[str]

    def blocks(self, tried: Try) -> list[str] | None:
        """The blocks of an attempt; None where too few have come in."""
        return window(self.order, self.start, tried.blocks)

    def earlier(self, tried: Try) -> Attempted | None:
        """What is known of an attempt that was charged before. It costs nothing."""
        found = self.gate.find(key_of(self.stream.policy.name, self.pipeline.name, self.run, tried.attempt))
        if found is None:
            return None
        if found.state is State.OPEN:
            raise InProgress
        return self._known(found, tried, is_replay=True)

    def _known(self, found: Earlier, tried: Try, *, is_replay: bool) -> Attempted:
        """An attempt as the ledger has it. Raises `BadParameter` if it was about something else."""
        said, now = found.receipt.record["parameters"], self.facts(tried, self.blocks(tried) or ())
        for name, value in now.items():
            if said.get(name) != value:
                wrong, why = _ELSE.get(name, _OTHER_BLOCKS)
                raise BadParameter(wrong, why.format(run=self.run))
        return attempted(found, self.blocks(tried) or (), is_replay=is_replay)

    def facts(self, tried: Try, blocks: Sequence[str]) -> dict[str, str | int]:
        """What an attempt is about, for its receipt: each of these decides what comes of it."""
        return {
            "form": FORM,
            "data": self.stream.policy.name,
            "file": self.pipeline.digest,
            "rows": self.meaning,
            "features": _digest(str(self.features)),
            "pipeline": self.pipeline.name,
            "run": self.run,
            "attempt": tried.attempt,
            "epsilon": str(tried.epsilon),
            "delta": str(self.pipeline.delta),
            "start": self.start,
            "blocks": len(blocks),
            "newest block": blocks[-1] if blocks else "",
            "names of blocks": _digest(json.dumps(list(blocks))),
        }

    def make(self, tried: Try) -> Attempted:
        """Charge, train, validate, store. Raises `OverBudget`, or `WorkEnded` if it failed."""
        dataset, pipeline, blocks = self.stream.dataset, self.pipeline, self.blocks(tried)
        if blocks is None:
            raise BadParameter("blocks", f"{tried.blocks} have not come in yet")
        version, work, facts = (
            rows.version_of(dataset, self.question),
            self._work(tried),
            self.facts(tried, blocks),
        )
        purse = LedgerPurse(
            self.gate,
            targets=self.stream.targets(self.question, blocks, pipeline=pipeline.name),
            unit=custody.unit_of(dataset.policy),
            relation=Relation.ADD_REMOVE,
            request=json.dumps({**facts, "version": version}, sort_keys=True).encode(),
            key=key_of(dataset.policy.name, pipeline.name, self.run, tried.attempt),
        )
        paid = purse.pay(
            work.loss,
            lambda: work.done(rows.read_rows(dataset, self.question, blocks, version=version)),
            mechanism=MECHANISM,
            parameters={**facts, "trainer": pipeline.trainer.kind, **work.parameters},
        )
        assert paid.receipt is not None
        found = Earlier(State.ANSWERED, paid.receipt, paid.result)
        return self._known(found, tried, is_replay=paid.is_replay)

    def price(self, tried: Try) -> Loss:
        """What an attempt would cost each unit. Looking is free."""
        return self._work(tried).loss

    def _work(self, tried: Try) -> Work:
        key = rows.half_key(self.stream.ledger)
        return work_of(self.pipeline, self.features, tried, run=self.run, key=key)


def attempted(found: Earlier, blocks: Sequence[str], *, is_replay: bool) -> Attempted:
    """An attempt as the ledger has it."""
    said = found.receipt.record["parameters"]
    judged, model, calibration, features = None, None, None, None
    if found.state is State.ANSWERED:
        answer = json.loads(found.answer)
        if answer.get("form") != FORM:
            raise BadParameter("run", _ELSE["form"][1].format(run=said.get("run", "")))
        judged = Judged(Verdict(answer["verdict"]), answer["estimate"], answer["bound"], answer["words"])
        model, calibration = (
            None if answer[name] is None else answer[name].encode() for name in ("model", "calibration")
        )
        features = answer["features"]
    return Attempted(
        number=int(said["attempt"]),
        blocks=tuple(blocks),
        epsilon=Fraction(said["epsilon"]),
        delta=Fraction(said["delta"]),
        judged=judged,
        model=model,
        receipt=found.receipt,
        is_replay=is_replay,
        calibration=calibration,
        features=features,
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
