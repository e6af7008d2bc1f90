"""What is done in an attempt once it is paid: a model and its validation, or a statistic."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from fractions import Fraction

from lapwing.learn.features import Features
from lapwing.learn.pipelines.parts import Learner, fitted
from lapwing.learn.pipelines.pipeline import Pipeline
from lapwing.learn.pipelines.purses import Inside
from lapwing.learn.pipelines.schedule import Try
from lapwing.learn.validators import Judged, Released, Validator, Verdict, eta_of, split_of
from lapwing.privacy import Loss, Sum, Worst
from lapwing.query.rows import Rows

FORM = "lapwing attempt 2"  # of what is stored, and of the receipt


class Work(ABC):
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
    def done(self, read: Rows) -> bytes:
        """Do it. Private until it is stored."""


class ModelWork(Work):
    """Train on one half, validate on the other; and calibrate on that, if it was accepted."""

    def __init__(
        self, pipeline: Pipeline, features: Features, tried: Try, *, eta: Fraction, key: bytes
    ) -> None:
        own, part = pipeline.validator, pipeline.calibration
        self._pipeline, self._features, self._tried, self._key = pipeline, features, tried, key
        self._calibration = None if part is None else part.of(features)
        spared = tried.epsilon if part is None else tried.epsilon - part.epsilon
        self.validator = own.made(epsilon=spared, eta=eta, net=own.net(features))
        self._training = self._trainer(Inside(self.validator.loss)).price(len(features.declared))

    def _trainer(self, purse: Inside) -> Learner:
        return self._pipeline.trainer.made(
            self._features,
            epsilon=self._tried.epsilon,
            delta=self._pipeline.delta,
            size=self._pipeline.size(self._tried.blocks),
            purse=purse,
        )

    @property
    def loss(self) -> Loss:
        own = self.validator.loss
        testing = own if self._calibration is None else Sum((own, self._calibration.loss))
        return Worst((self._training, testing))

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

    def done(self, read: Rows) -> bytes:
        share = self._pipeline.test_share
        known = read.where(self._features.learnable(read))
        tests = known.tests(lambda ids: split_of(ids, key=self._key, share=share))
        purse = Inside(self._training)
        model = fitted(self._trainer(purse), self._features, known.where(~tests))
        testing = known.where(tests)
        released = self.validator.release(self._pipeline.validator.values(model, self._features, testing))
        judged = self.validator.judge(released, attempt=self._tried.attempt)
        if judged.verdict is not Verdict.ACCEPT:
            return stored(released, judged)
        # Only now: what is known of test units about a model that is not kept would help to choose another.
        counts = None if self._calibration is None else self._calibration.release(model, testing)
        return stored(released, judged, purse.result, counts, self._features)


class StatisticWork(Work):
    """All units at once: there is no model, and no half."""

    def __init__(self, pipeline: Pipeline, features: Features, tried: Try, *, eta: Fraction) -> None:
        self._statistic, self._attempt = pipeline.trainer.statistic(features), tried.attempt
        target = pipeline.validator.target
        self._validator = self._statistic.validator(target=target, eta=eta, epsilon=tried.epsilon)
        self.validator = self._validator

    @property
    def loss(self) -> Loss:
        return self.validator.loss

    def done(self, read: Rows) -> bytes:
        released = self.validator.release(self._statistic.values(read))
        judged = self.validator.judge(released, attempt=self._attempt)
        told = self._statistic.told(self._validator, released, judged)
        model = json.dumps(told, sort_keys=True).encode() if judged.verdict is Verdict.ACCEPT else None
        return stored(released, judged, model)


def work_of(pipeline: Pipeline, features: Features, tried: Try, *, run: int, key: bytes) -> Work:
    """The work of an attempt. The r-th run of a pipeline has η / (r (r + 1)): all of them have η."""
    eta = eta_of(pipeline.validator.eta, run)
    if pipeline.trainer.is_statistic:
        return StatisticWork(pipeline, features, tried, eta=eta)
    return ModelWork(pipeline, features, tried, eta=eta, key=key)


def stored(
    released: Released,
    judged: Judged,
    model: bytes | None = None,
    calibration: bytes | None = None,
    features: Features | None = None,
) -> bytes:
    """What the ledger keeps under the charge. A model only if it was accepted, with what it is made of."""
    said = {
        "form": FORM,
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
