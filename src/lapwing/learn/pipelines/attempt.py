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

What is done in an attempt once it is paid: a model and its validation, or a statistic.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lapwing.core.losses import Loss, ParallelComposition, Relation, SequentialComposition
from lapwing.errors import BadParameter, InProgress
from lapwing.learn.features import Features
from lapwing.learn.payer import AttemptPayer, LedgerPayer
from lapwing.learn.pipelines.components import Learner, fit_on_rows
from lapwing.learn.pipelines.pipeline import Pipeline, PlannedAttempt, attempt_blocks
from lapwing.learn.stream import Stream
from lapwing.learn.unit_split import in_test_half
from lapwing.learn.validation import (
    ValidationRelease,
    ValidationResult,
    ValidationVerdict,
    Validator,
    eta_share,
)
from lapwing.ledger import Receipt
from lapwing.ledger.gate import Gate
from lapwing.ledger.request_status import RequestState, RequestStatus
from lapwing.sql import policy_ledger, row_questions
from lapwing.sql.row_questions import PrivateRows, RowQuestion

ATTEMPT_FORM = "lapwing attempt 2"  # of what is stored, and of the receipt


class AttemptWork(ABC):
    """One attempt's work. Its price is public, and known before."""

    validator: Validator

    @property
    @abstractmethod
    def loss(self) -> Loss:
        """What it costs each unit."""

    @property
    def parameters(self) -> dict[str, str | int]:
        """What was declared, for the receipt."""
        own = self.validator.parameters
        return {
            "validator": self.validator.mechanism,
            **{f"validator: {name}": value for name, value in own.items()},
        }

    @abstractmethod
    def done(self, read: PrivateRows) -> bytes:
        """Do it. Private until it is stored."""


class ModelWork(AttemptWork):
    """Train on one half, validate on the other; and calibrate on that, if it was accepted."""

    def __init__(
        self, pipeline: Pipeline, features: Features, tried: PlannedAttempt, *, eta: Fraction, key: bytes
    ) -> None:
        own, part = pipeline.validator, pipeline.calibration
        self._pipeline, self._features, self._tried, self._key = pipeline, features, tried, key
        self._calibration = None if part is None else part.of(features)
        spared = tried.epsilon if part is None else tried.epsilon - part.epsilon
        self.validator = own.made(epsilon=spared, eta=eta, net=own.net(features))
        self._training = self._trainer(AttemptPayer(self.validator.loss)).price(len(features.declared))

    def _trainer(self, purse: AttemptPayer) -> Learner:
        return self._pipeline.trainer.made(
            self._features,
            epsilon=self._tried.epsilon,
            delta=self._pipeline.delta,
            size=self._pipeline.size(self._tried.blocks),
            payer=purse,
        )

    @property
    def loss(self) -> Loss:
        own = self.validator.loss
        testing = own if self._calibration is None else SequentialComposition((own, self._calibration.loss))
        return ParallelComposition((self._training, testing))

    @property
    def parameters(self) -> dict[str, str | int]:
        part = self._pipeline.calibration
        if part is None:
            return super().parameters
        paid: dict[str, str | int] = {
            "calibration: epsilon": str(part.epsilon),
            "calibration: bins": part.bins,
        }
        return {**super().parameters, **paid}

    def done(self, read: PrivateRows) -> bytes:
        share = self._pipeline.test_share
        known = read.where(self._features.learnable(read))
        tests = known.tests(lambda ids: in_test_half(ids, key=self._key, share=share))
        purse = AttemptPayer(self._training)
        model = fit_on_rows(self._trainer(purse), self._features, known.where(~tests))
        testing = known.where(tests)
        released = self.validator.release(self._pipeline.validator.values(model, self._features, testing))
        judged = self.validator.judge(released, attempt=self._tried.attempt)
        if judged.verdict is not ValidationVerdict.ACCEPT:
            return stored_attempt(released, judged)
        # Only now: what is known of test units about a model that is not kept would help to choose another.
        counts = None if self._calibration is None else self._calibration.release(model, testing)
        return stored_attempt(released, judged, purse.result, counts, self._features)


class StatisticWork(AttemptWork):
    """All units at once: there is no model, and no half."""

    def __init__(
        self, pipeline: Pipeline, features: Features, tried: PlannedAttempt, *, eta: Fraction
    ) -> None:
        self._statistic, self._attempt = pipeline.trainer.statistic(features), tried.attempt
        target = pipeline.validator.target
        self._validator = self._statistic.validator(target=target, eta=eta, epsilon=tried.epsilon)
        self.validator = self._validator

    @property
    def loss(self) -> Loss:
        return self.validator.loss

    def done(self, read: PrivateRows) -> bytes:
        released = self.validator.release(self._statistic.values(read))
        judged = self.validator.judge(released, attempt=self._attempt)
        told = self._statistic.told(self._validator, released, judged)
        model = (
            json.dumps(told, sort_keys=True).encode()
            if judged.verdict is ValidationVerdict.ACCEPT
            else None
        )
        return stored_attempt(released, judged, model)


def attempt_work(
    pipeline: Pipeline, features: Features, tried: PlannedAttempt, *, run: int, key: bytes
) -> AttemptWork:
    """The work of an attempt. The r-th run of a pipeline has η / (r (r + 1)): all of them have η."""
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
    """What the ledger keeps under the charge. A model only if it was accepted, with what it is made of."""
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
    return json.dumps(said, sort_keys=True, allow_nan=False).encode()


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
class AttemptResult:
    """What came of an attempt. `judged` is None where it was charged and crashed: it shows nothing."""

    number: int
    blocks: tuple[str, ...]
    epsilon: Fraction
    delta: Fraction
    judged: ValidationResult | None
    model: bytes | None  # or an accepted statistic
    receipt: Receipt
    is_replay: bool
    calibration: bytes | None = None
    features: Mapping[str, Any] | None = None  # of an accepted model: what its numbers mean

    @property
    def verdict(self) -> ValidationVerdict:
        """What a crash counts as is RETRY."""
        return ValidationVerdict.RETRY if self.judged is None else self.judged.verdict


def attempt_key(data: str, name: str, run: int, attempt: int) -> str:
    """Under which an attempt on a data set is charged once."""
    return f"pipeline {name}: run {run}, attempt {attempt}, on {_digest(data)[:32]}"


@dataclass(frozen=True, slots=True)
class AttemptRunner:
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

    def blocks(self, tried: PlannedAttempt) -> list[str] | None:
        """The blocks of an attempt; None where too few have come in."""
        return attempt_blocks(self.order, self.start, tried.blocks)

    def earlier(self, tried: PlannedAttempt) -> AttemptResult | None:
        """What is known of an attempt that was charged before. It costs nothing."""
        found = self.gate.find(
            attempt_key(self.stream.policy.name, self.pipeline.name, self.run, tried.attempt)
        )
        if found is None:
            return None
        if found.state is RequestState.OPEN:
            raise InProgress
        return self._known(found, tried, is_replay=True)

    def _known(self, found: RequestStatus, tried: PlannedAttempt, *, is_replay: bool) -> AttemptResult:
        """An attempt as the ledger has it. Raises `BadParameter` if it was about something else."""
        said, now = found.receipt.record["parameters"], self.facts(tried, self.blocks(tried) or ())
        for name, value in now.items():
            if said.get(name) != value:
                wrong, why = _ELSE.get(name, _OTHER_BLOCKS)
                raise BadParameter(wrong, why.format(run=self.run))
        return attempt_from_ledger(found, self.blocks(tried) or (), is_replay=is_replay)

    def facts(self, tried: PlannedAttempt, blocks: Sequence[str]) -> dict[str, str | int]:
        """What an attempt is about, for its receipt: each of these decides what comes of it."""
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
        """Charge, train, validate, store. Raises `OverBudget`, or `WorkEnded` if it failed."""
        dataset, pipeline, blocks = self.stream.dataset, self.pipeline, self.blocks(tried)
        if blocks is None:
            raise BadParameter("blocks", f"{tried.blocks} have not come in yet")
        version, work, facts = (
            row_questions.checked_version(dataset, self.question),
            self._work(tried),
            self.facts(tried, blocks),
        )
        purse = LedgerPayer(
            self.gate,
            targets=self.stream.targets(self.question, blocks, pipeline=pipeline.name),
            unit=policy_ledger.unit_of(dataset.policy),
            relation=Relation.ADD_REMOVE,
            request=json.dumps({**facts, "version": version}, sort_keys=True).encode(),
            key=attempt_key(dataset.policy.name, pipeline.name, self.run, tried.attempt),
        )
        paid = purse.pay(
            work.loss,
            lambda: work.done(row_questions.read_rows(dataset, self.question, blocks, version=version)),
            mechanism=MECHANISM,
            parameters={**facts, "trainer": pipeline.trainer.kind, **work.parameters},
        )
        assert paid.receipt is not None
        found = RequestStatus(RequestState.ANSWERED, paid.receipt, paid.result)
        return self._known(found, tried, is_replay=paid.is_replay)

    def price(self, tried: PlannedAttempt) -> Loss:
        """What an attempt would cost each unit. Looking is free."""
        return self._work(tried).loss

    def _work(self, tried: PlannedAttempt) -> AttemptWork:
        key = row_questions.half_key(self.stream.ledger)
        return attempt_work(self.pipeline, self.features, tried, run=self.run, key=key)


def attempt_from_ledger(found: RequestStatus, blocks: Sequence[str], *, is_replay: bool) -> AttemptResult:
    """An attempt as the ledger has it."""
    said = found.receipt.record["parameters"]
    judged, model, calibration, features = None, None, None, None
    if found.state is RequestState.ANSWERED:
        answer = json.loads(found.answer)
        if answer.get("form") != ATTEMPT_FORM:
            raise BadParameter("run", _ELSE["form"][1].format(run=said.get("run", "")))
        judged = ValidationResult(
            ValidationVerdict(answer["verdict"]), answer["estimate"], answer["bound"], answer["words"]
        )
        model, calibration = (
            None if answer[name] is None else answer[name].encode() for name in ("model", "calibration")
        )
        features = answer["features"]
    return AttemptResult(
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
