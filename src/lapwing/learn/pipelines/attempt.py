"""Attempts of a pipeline: one charge, for training on some units and validating on others.

Claim    an attempt costs each unit of its blocks at most the worse of two losses: training and validation.
Because  a keyed hash of the unit alone decides its half, for ever. A training unit is read by the trainer,
         and validation uses the model and other units; a testing unit is read by validation alone.
         docs/arguments/attempts.md.
Test     tests/learn/pipelines/test_attempt.py

A model that is not accepted is not kept. The verdict is stored under the charge and, if the model is
accepted, the model with the description of its features.

Claim    a charged attempt is never taken for one of another pipeline, policy, stream or block.
Because  all of these are in its receipt, and are compared whenever the attempt is read again.
Test     tests/learn/pipelines/test_training_facts.py
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lapwing.canonical_json import canonical_json
from lapwing.core.losses import Loss, ParallelComposition, Relation, SequentialComposition
from lapwing.errors import BadParameter, InProgress
from lapwing.learn.features import Features
from lapwing.learn.payer import PrepaidPayer
from lapwing.learn.pipelines.components import Learner, fit_on_rows
from lapwing.learn.pipelines.pipeline import Pipeline, PlannedAttempt, attempt_blocks
from lapwing.learn.stream import Stream
from lapwing.learn.unit_split import in_test_half
from lapwing.learn.validators import (
    ValidationRelease,
    ValidationResult,
    ValidationVerdict,
    Validator,
    eta_share,
)
from lapwing.ledger import ChargedRead, Gate, Receipt, Spending
from lapwing.ledger.request_status import RequestState, RequestStatus
from lapwing.sql.row_questions import PrivateRows, RowQuestion, checked_version, half_key, read_rows

ATTEMPT_FORM = "lapwing attempt 2"  # of the stored record, and of the receipt


class AttemptWork(ABC):
    """The work of one attempt. Its price is public, and known before."""

    validator: Validator

    @property
    @abstractmethod
    def loss(self) -> Loss:
        """The loss of each unit."""

    @property
    def parameters(self) -> dict[str, str | int]:
        """The declared parameters, for the receipt."""
        own = self.validator.parameters
        return {
            "validator": self.validator.mechanism,
            **{f"validator: {name}": value for name, value in own.items()},
        }

    @abstractmethod
    def done(self, read: PrivateRows) -> bytes:
        """Do the work on these rows, and return the record to be stored.

        It is private until it is stored.
        """


class ModelWork(AttemptWork):
    """The work of training on one half, and validating and calibrating on the other."""

    def __init__(
        self, pipeline: Pipeline, features: Features, tried: PlannedAttempt, *, eta: Fraction, key: bytes
    ) -> None:
        own, part = pipeline.validator, pipeline.calibration
        self._pipeline, self._features, self._tried, self._key = pipeline, features, tried, key
        self._calibration = None if part is None else part.of(features)
        spared = tried.epsilon if part is None else tried.epsilon - part.epsilon
        self.validator = own.create(epsilon=spared, eta=eta, net=own.net(features))
        self._training = self._trainer(PrepaidPayer(self.validator.loss)).price(len(features.declared))

    def _trainer(self, payer: PrepaidPayer) -> Learner:
        pipeline, tried = self._pipeline, self._tried
        return pipeline.trainer.create(
            self._features, epsilon=tried.epsilon, delta=pipeline.delta, size=pipeline.size(tried.blocks),
            payer=payer,
        )  # fmt: skip

    @property
    def loss(self) -> Loss:
        """The worse of two losses: that of a training and that of a testing unit."""
        own = self.validator.loss
        testing = own if self._calibration is None else SequentialComposition((own, self._calibration.loss))
        return ParallelComposition((self._training, testing))

    @property
    def parameters(self) -> dict[str, str | int]:
        """The declared parameters, those of calibration included."""
        parameters, part = super().parameters, self._pipeline.calibration
        if part is not None:
            parameters |= {"calibration: epsilon": str(part.epsilon), "calibration: bins": part.bins}
        return parameters

    def done(self, read: PrivateRows) -> bytes:
        """Train, validate and calibrate."""
        share = self._pipeline.test_share
        known = read.where(self._features.learnable(read))
        tests = known.tests(lambda ids: in_test_half(ids, key=self._key, share=share))
        payer = PrepaidPayer(self._training)
        model = fit_on_rows(self._trainer(payer), self._features, known.where(~tests))
        testing = known.where(tests)
        released = self.validator.release(self._pipeline.validator.values(model, self._features, testing))
        judged = self.validator.judge(released, attempt=self._tried.attempt)
        if judged.verdict is not ValidationVerdict.ACCEPT:
            return stored_attempt(released, judged)
        # Only now: numbers of test units about a rejected model would help to choose another one.
        counts = None if self._calibration is None else self._calibration.release(model, testing)
        return stored_attempt(released, judged, payer.result, counts, self._features)


class StatisticWork(AttemptWork):
    """The work of a statistic: all units at once, with no model and no halves."""

    def __init__(
        self, pipeline: Pipeline, features: Features, tried: PlannedAttempt, *, eta: Fraction
    ) -> None:
        self._statistic, self._attempt = pipeline.trainer.statistic(features), tried.attempt
        target = pipeline.validator.target
        self.validator = self._statistic.validator(target=target, eta=eta, epsilon=tried.epsilon)

    @property
    def loss(self) -> Loss:
        """The loss of each unit."""
        return self.validator.loss

    def done(self, read: PrivateRows) -> bytes:
        """Compute the statistic, and judge its error."""
        released = self.validator.release(self._statistic.values(read))
        judged = self.validator.judge(released, attempt=self._attempt)
        if judged.verdict is not ValidationVerdict.ACCEPT:
            return stored_attempt(released, judged)
        told = self._statistic.to_json(self.validator, released, judged)
        return stored_attempt(released, judged, canonical_json(told, spaces=True).encode())


def attempt_work(
    pipeline: Pipeline, features: Features, tried: PlannedAttempt, *, run: int, key: bytes
) -> AttemptWork:
    """Return the work of an attempt. Run r of a pipeline has η / (r (r + 1)), so that all runs have η."""
    eta = eta_share(pipeline.validator.eta, run)
    if pipeline.trainer.is_statistic:
        return StatisticWork(pipeline, features, tried, eta=eta)
    return ModelWork(pipeline, features, tried, eta=eta, key=key)


def stored_attempt(
    released: ValidationRelease,
    judged: ValidationResult,
    model: bytes | None = None,
    calibration: bytes | None = None,
    features: Features | None = None,
) -> bytes:
    """Return the record that the ledger keeps under the charge.

    A model is in it only if it was accepted.
    """
    said = {
        "form": ATTEMPT_FORM,
        "released": released.to_bytes().decode(),
        "verdict": judged.verdict.value,
        "estimate": judged.estimate,
        "bound": judged.bound,
        "words": judged.words,
        "model": None if model is None else model.decode(),
        "calibration": None if calibration is None else calibration.decode(),
        "features": None if features is None else features.to_json(),
    }
    return canonical_json(said, spaces=True).encode()


MECHANISM = "pipeline attempt"
_BACK = "Change it back, or begin a new run (--new-run)"
# Facts in a receipt, and the error message if they differ from those of today.
_ELSE = {
    "form": ("run", "{run} was made by another version of Lapwing, and cannot be read. Begin a new run"),
    "file": (
        "pipeline",
        f"was changed since run {{run}} began, or another file of the same name began it. {_BACK}",
    ),
    "rows": ("policy", f"(or a public table) was changed since run {{run}} began: rows differ. {_BACK}"),
    "features": ("policy", f"was changed since run {{run}} began: features mean other things. {_BACK}"),
}
_OTHER_BLOCKS = "blocks", "that have arrived are not those that run {run} was charged to. Begin a new run"


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of an attempt.

    `judged` is None if the attempt was charged and then crashed: it shows nothing. `model` is an accepted
    model or statistic, otherwise None. `features` describes the inputs of an accepted model.
    """

    number: int
    blocks: tuple[str, ...]
    epsilon: Fraction
    delta: Fraction
    judged: ValidationResult | None
    model: bytes | None  # or an accepted statistic
    receipt: Receipt
    is_replay: bool
    calibration: bytes | None = None
    features: Mapping[str, Any] | None = None  # of an accepted model: the description of its inputs

    @property
    def verdict(self) -> ValidationVerdict:
        """The verdict; a crash counts as RETRY."""
        return ValidationVerdict.RETRY if self.judged is None else self.judged.verdict


def attempt_key(data: str, name: str, run: int, attempt: int) -> str:
    """Return the key under which an attempt on a data set is charged once."""
    return f"pipeline {name}: run {run}, attempt {attempt}, on {_digest(data)[:32]}"


@dataclass(frozen=True, slots=True)
class AttemptRunner:
    """The attempts of one run.

    `order` are the blocks that the features reach, in the order of arrival. `start` of them had arrived
    when the run began. `meaning` is a digest of the query.
    """

    gate: Gate
    stream: Stream
    pipeline: Pipeline
    question: RowQuestion
    features: Features
    meaning: str  # of the question: a digest
    run: int
    start: int
    order: Sequence[str]

    def blocks(self, tried: PlannedAttempt) -> list[str] | None:
        """Return the blocks of an attempt; None if too few have arrived."""
        return attempt_blocks(self.order, self.start, tried.blocks)

    def earlier(self, tried: PlannedAttempt) -> AttemptResult | None:
        """Return the result of an attempt that was charged before; None if it was not. It costs nothing.

        Raises InProgress if another process is working on it.
        """
        status = self.gate.find(self._key(tried))
        if status is None:
            return None
        if status.state is RequestState.OPEN:
            raise InProgress
        return self._known(status, tried, is_replay=True)

    def _known(self, status: RequestStatus, tried: PlannedAttempt, *, is_replay: bool) -> AttemptResult:
        """Read an attempt from the ledger. Raise BadParameter if it was about something else."""
        said, now = status.receipt.record["parameters"], self.facts(tried, self.blocks(tried) or ())
        for name, value in now.items():
            if said.get(name) != value:
                wrong, why = _ELSE.get(name, _OTHER_BLOCKS)
                raise BadParameter(wrong, why.format(run=self.run))
        return attempt_from_ledger(status, self.blocks(tried) or (), is_replay=is_replay)

    def facts(self, tried: PlannedAttempt, blocks: Sequence[str]) -> dict[str, str | int]:
        """Return the facts of an attempt for its receipt: each of them influences the result."""
        return {
            "form": ATTEMPT_FORM,
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

    def make(self, tried: PlannedAttempt) -> AttemptResult:
        """Charge, train, validate and store.

        Raises OverBudget if the blocks cannot pay, and WorkEnded if the work failed after the charge.
        """
        dataset, pipeline, blocks = self.stream.dataset, self.pipeline, self.blocks(tried)
        if blocks is None:
            raise BadParameter("blocks", f"{tried.blocks} have not arrived yet")
        version, work = checked_version(dataset, self.question), self._work(tried)
        facts = self.facts(tried, blocks)
        spending = Spending(
            targets=self.stream.targets(self.question, blocks, pipeline=pipeline.name),
            loss=work.loss,
            unit=dataset.curator.unit,
            relation=Relation.ADD_REMOVE,
            mechanism=MECHANISM,
            parameters={**facts, "trainer": pipeline.trainer.kind, **work.parameters},
            request=canonical_json({**facts, "version": version}, spaces=True).encode(),
        )
        charged = ChargedRead(
            gate=self.gate, spending=spending, key=self._key(tried), version=version,
            current_version=dataset.version,
        )  # fmt: skip
        done = charged.release(lambda: read_rows(dataset, self.question, blocks), work.done)
        status = RequestStatus(RequestState.ANSWERED, done.receipt, done.answer)
        return self._known(status, tried, is_replay=done.is_replay)

    def _key(self, tried: PlannedAttempt) -> str:
        return attempt_key(self.stream.policy.name, self.pipeline.name, self.run, tried.attempt)

    def price(self, tried: PlannedAttempt) -> Loss:
        """Return the loss of an attempt for each unit. Looking is free."""
        return self._work(tried).loss

    def _work(self, tried: PlannedAttempt) -> AttemptWork:
        key = half_key(self.stream.ledger)
        return attempt_work(self.pipeline, self.features, tried, run=self.run, key=key)


def attempt_from_ledger(status: RequestStatus, blocks: Sequence[str], *, is_replay: bool) -> AttemptResult:
    """Return the result of an attempt as the ledger has stored it."""
    said = status.receipt.record["parameters"]
    judged, model, calibration, features = None, None, None, None
    if status.state is RequestState.ANSWERED:
        answer = json.loads(status.answer)
        if answer.get("form") != ATTEMPT_FORM:
            raise BadParameter("run", _ELSE["form"][1].format(run=said.get("run", "")))
        judged = ValidationResult(
            ValidationVerdict(answer["verdict"]), answer["estimate"], answer["bound"], answer["words"]
        )
        model, calibration = (
            None if answer[name] is None else answer[name].encode() for name in ("model", "calibration")
        )
        features = answer["features"]
    number, paid = int(said["attempt"]), (Fraction(said["epsilon"]), Fraction(said["delta"]))
    return AttemptResult(
        number, tuple(blocks), *paid, judged, model, status.receipt, is_replay, calibration, features
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
