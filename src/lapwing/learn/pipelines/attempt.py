"""One attempt: one charge, for which a model is trained on some units and validated on others.

Claim    an attempt costs each unit of its blocks at most the worse of the two: training and validation.
Because  a keyed hash of the unit alone decides in which half it is, for ever. What a training unit meets is
         the trainer, and validation is made of the model and of others; a testing unit meets validation
         alone. docs/arguments/attempts.md.
Test     tests/learn/pipelines/test_attempt.py

A model that is not accepted is not kept: what is stored under the charge are the verdict and, if it is
accepted, the model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lapwing.errors import InProgress
from lapwing.gate import Earlier, Gate, State
from lapwing.learn.features import Features
from lapwing.learn.growing import Stream
from lapwing.learn.pipelines.parts import Inside, fitted
from lapwing.learn.pipelines.pipeline import Pipeline
from lapwing.learn.pipelines.schedule import Try
from lapwing.learn.purse import LedgerPurse
from lapwing.learn.validators import Judged, Released, Validator, Verdict, split_of
from lapwing.ledger import Receipt
from lapwing.privacy import Loss, Relation, Worst
from lapwing.query import custody, rows
from lapwing.query.rows import RowQuestion, Rows

MECHANISM = "pipeline attempt"
_FORM = "lapwing attempt 1"


@dataclass(frozen=True, slots=True)
class Attempted:
    """What came of an attempt. `judged` is None where it was charged and crashed: it shows nothing."""

    number: int
    blocks: tuple[str, ...]
    epsilon: Fraction
    delta: Fraction
    judged: Judged | None
    model: bytes | None
    receipt: Receipt
    is_replay: bool

    @property
    def verdict(self) -> Verdict:
        """What a crash counts as is RETRY."""
        return Verdict.RETRY if self.judged is None else self.judged.verdict


def key_of(name: str, run: int, attempt: int) -> str:
    """Under which an attempt is charged once."""
    return f"pipeline {name}: run {run}, attempt {attempt}"


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts of one run. `series` is the number of runs since the last verdict, this one included."""

    gate: Gate
    stream: Stream
    pipeline: Pipeline
    question: RowQuestion
    features: Features
    run: int
    series: int

    def earlier(self, tried: Try, blocks: Sequence[str]) -> Attempted | None:
        """What is known of an attempt that was charged before. It costs nothing."""
        found = self.gate.find(key_of(self.pipeline.name, self.run, tried.attempt))
        if found is None:
            return None
        if found.state is State.OPEN:
            raise InProgress
        return attempted(found, blocks, is_replay=True)

    def make(self, tried: Try, blocks: Sequence[str]) -> Attempted:
        """Charge, train, validate, store. Raises `OverBudget`, or `WorkEnded` if it failed."""
        dataset, pipeline = self.stream.dataset, self.pipeline
        version = rows.version_of(dataset)
        work = self._work(tried)
        request = {
            "pipeline": pipeline.digest,
            "rows": rows.meaning(dataset, self.question),
            "version": version,
            "blocks": list(blocks),
            "run": self.run,
            "series": self.series,
            "attempt": tried.attempt,
        }
        purse = LedgerPurse(
            self.gate,
            targets=self.stream.targets(self.question, blocks, pipeline=pipeline.name),
            unit=custody.unit_of(dataset.policy),
            relation=Relation.ADD_REMOVE,
            request=json.dumps(request, sort_keys=True).encode(),
            key=key_of(pipeline.name, self.run, tried.attempt),
        )
        paid = purse.pay(
            work.loss,
            lambda: work.done(rows.read_rows(dataset, self.question, blocks, version=version)),
            mechanism=MECHANISM,
            parameters={
                "pipeline": pipeline.name,
                "run": self.run,
                "attempt": tried.attempt,
                "epsilon": str(tried.epsilon),
                "delta": str(pipeline.delta),
                "blocks": len(blocks),
                "newest block": blocks[-1],
                "trainer": pipeline.trainer.kind,
                "validator": work.validator.mechanism,
                **{f"validator: {name}": value for name, value in work.validator.parameters.items()},
            },
        )
        assert paid.receipt is not None
        found = Earlier(State.ANSWERED, paid.receipt, paid.result)
        return attempted(found, blocks, is_replay=paid.is_replay)

    def price(self, tried: Try) -> Loss:
        """What an attempt would cost each unit. Looking is free."""
        return self._work(tried).loss

    def _work(self, tried: Try) -> _Work:
        own = self.pipeline.validator
        validator = own.made(
            epsilon=tried.epsilon,
            eta=own.eta / (self.series * (self.series + 1)),
            net=own.net(self.features),
        )
        key = rows.half_key(self.stream.ledger)
        return _Work(self.pipeline, self.features, tried, validator, key)


class _Work:
    """What is done once it is paid."""

    def __init__(
        self, pipeline: Pipeline, features: Features, tried: Try, validator: Validator, key: bytes
    ) -> None:
        self.validator = validator
        self._pipeline, self._features, self._tried, self._key = pipeline, features, tried, key
        bare = self._trainer(Inside(validator.loss))
        self._training = bare.price(len(features.declared))

    def _trainer(self, purse: Inside) -> Any:
        return self._pipeline.trainer.made(
            self._features,
            epsilon=self._tried.epsilon,
            delta=self._pipeline.delta,
            size=self._pipeline.size(self._tried.blocks),
            purse=purse,
        )

    @property
    def loss(self) -> Loss:
        return Worst((self._training, self.validator.loss))

    def done(self, read: Rows) -> bytes:
        """Train, validate and judge. Private until it is stored."""
        share = self._pipeline.test_share
        known = read.where(self._features.learnable(read))
        tests = known.tests(lambda ids: split_of(ids, key=self._key, share=share))
        purse = Inside(self._training)
        model = fitted(self._trainer(purse), self._features, known.where(~tests))
        values = self._pipeline.validator.values(model, self._features, known.where(tests))
        released = self.validator.release(values)
        judged = self.validator.judge(released, attempt=self._tried.attempt)
        return _stored(released, judged, purse.result if judged.verdict is Verdict.ACCEPT else None)


def _stored(released: Released, judged: Judged, model: bytes | None) -> bytes:
    said = {
        "form": _FORM,
        "released": released.to_bytes().decode(),
        "verdict": judged.verdict.value,
        "estimate": judged.estimate,
        "bound": judged.bound,
        "words": judged.words,
        "model": None if model is None else model.decode(),
    }
    return json.dumps(said, sort_keys=True, allow_nan=False).encode()


def attempted(found: Earlier, blocks: Sequence[str], *, is_replay: bool) -> Attempted:
    """An attempt as the ledger has it."""
    said = found.receipt.record["parameters"]
    judged, model = None, None
    if found.state is State.ANSWERED:
        answer = json.loads(found.answer)
        judged = Judged(Verdict(answer["verdict"]), answer["estimate"], answer["bound"], answer["words"])
        model = None if answer["model"] is None else answer["model"].encode()
    return Attempted(
        number=int(said["attempt"]),
        blocks=tuple(blocks),
        epsilon=Fraction(said["epsilon"]),
        delta=Fraction(said["delta"]),
        judged=judged,
        model=model,
        receipt=found.receipt,
        is_replay=is_replay,
    )
