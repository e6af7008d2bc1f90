"""The base classes of trainers: check public parameters, pay, train, and load the stored model.

Claim    `fit` returns what is stored under its charge, and nothing else: a replay gives the same model.
Because  training happens inside `Payer.pay` and gives canonical bytes. The fitted attributes are read from
         the bytes that `pay` returns.
Test     tests/learn/trainers/test_estimator.py

Scores that scikit-learn's tools show (`score`, cross-validation) are computed from rows and are not
private: show them only for public data.

Claim    the prediction for a row is a function of the model and that row, bit for bit.
Because  scores are (each trainer says why), and so is `class_probabilities`.
Test     tests/learn/trainers/test_trainers_alone.py

The Gaussian releases of a training run are all fixed before the first one, and get their noise from (ε, δ):

Claim    all releases of a `PricedReleases` together are (ε, δ)-private for one unit, even if each one is
         chosen after seeing the earlier ones.
Because  their number, distances and noise are fixed beforehand, so their loss distributions compose
         (docs/arguments/trainers.md); σ is only accepted if the price of the whole is at most ε at δ.
Test     tests/learn/trainers/test_estimator_pricing.py
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from lapwing.core.conversions import gaussian_sigma
from lapwing.core.exact import Number, exact, sqrt_up, whole
from lapwing.core.fixed_run import FixedRun
from lapwing.core.gaussian import Gaussian
from lapwing.core.losses import GaussianNoise, Loss, SampledGaussian, checked_delta, checked_epsilon
from lapwing.errors import BadParameter, MissingExtra
from lapwing.learn.payer import Payer, PickledWithoutPayer, require_add_remove
from lapwing.learn.table_input import Cells, Floats, Wholes, checked_units, one_row_each
from lapwing.learn.trainers.columns import (
    Column,
    checked_classes,
    checked_columns,
    checked_table,
    checked_target,
    feature_matrix,
)
from lapwing.learn.trainers.whole_vectors import class_probabilities

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, clone  # type: ignore[import-untyped]
    from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]
except ImportError:  # pragma: no cover (an extra)
    raise MissingExtra("learn", "Training a model") from None

_FINE = Fraction(1 << 60)  # squared distance in steps so fine that rounding to them costs nothing
_CLOSE = Fraction(1, 1000)
_NUDGE = Fraction(1, 100_000)
_MOST_TRIES = 60


@dataclass(frozen=True, slots=True)
class ReleaseGroup:
    """`count` releases of vectors within √l2_squared, at `share` of the run's squared ratio Δ² / σ²."""

    l2_squared: int
    dimension: int
    count: int = 1
    share: Fraction = Fraction(1)
    rate: Fraction = Fraction(1)

    def loss(self, sigma: Fraction) -> Loss:
        """Return the loss of one of the releases."""
        noise = GaussianNoise(sigma, Fraction(self.l2_squared), self.dimension)
        return noise if self.rate == 1 else SampledGaussian(self.rate, noise)

    def sigma(self, ratio: Fraction) -> Fraction:
        """Return the σ that gives this group its share, where σ / Δ of the whole run is `ratio`."""
        return _short(ratio * self.rate * sqrt_up(self.count * self.l2_squared / self.share))


@dataclass(frozen=True, slots=True)
class PricedReleases:
    """The releases of a run: the loss to charge, and the noise of each group."""

    loss: FixedRun
    parts: tuple[ReleaseGroup, ...]
    sigmas: tuple[Fraction, ...]

    def release(self, part: int, sums: Wholes) -> Wholes:
        """Do one release of a group.

        Charge the loss first, and never release more often than was priced.
        """
        priced = self.parts[part]
        mechanism = Gaussian(self.sigmas[part], Fraction(priced.l2_squared), priced.dimension)
        return mechanism.sample(sums)


def noise_ratio(epsilon: Number, delta: Number) -> float:
    """Return σ over Δ of one Gaussian release that spends all of (ε, δ). It is public."""
    return float(_ratio(*_checked(epsilon, delta)))


def price_releases(epsilon: Number, delta: Number, parts: tuple[ReleaseGroup, ...]) -> PricedReleases:
    """Return the run with the least noise, to about five digits (three if rows are sampled)."""
    return _priced(*_checked(epsilon, delta), parts)


def checked_rate(rate: Number) -> Fraction:
    """Return the probability with which a unit takes part in a step."""
    chosen = exact(rate, "rate")
    if not 0 < chosen <= 1:
        raise BadParameter("rate", "must lie in (0, 1]")
    return chosen


def _checked(epsilon: Number, delta: Number) -> tuple[Fraction, Fraction]:
    if not checked_delta(delta) > 0:
        raise BadParameter("delta", "must be above 0: training adds Gaussian noise")
    return checked_epsilon(epsilon), checked_delta(delta)


@lru_cache(maxsize=256)
def _ratio(epsilon: Fraction, delta: Fraction) -> Fraction:
    return gaussian_sigma(epsilon, delta, _FINE, 1) / sqrt_up(_FINE)


@lru_cache(maxsize=64)
def _priced(epsilon: Fraction, delta: Fraction, parts: tuple[ReleaseGroup, ...]) -> PricedReleases:
    ratio = _ratio(epsilon, delta)

    def at(factor: Fraction) -> PricedReleases:
        sigmas = tuple(part.sigma(ratio * factor) for part in parts)
        losses = [(part.loss(sigma), part.count) for part, sigma in zip(parts, sigmas, strict=True)]
        return PricedReleases(FixedRun.of(*losses, delta=delta), parts, sigmas)

    def fits(run: PricedReleases) -> bool:
        return run.loss.pair[0] <= epsilon

    factor, run = Fraction(1), at(Fraction(1))
    for _ in range(_MOST_TRIES):
        if fits(run):
            break
        factor *= (run.loss.pair[0] / epsilon + _NUDGE).limit_denominator(1 << 30)
        run = at(factor)
    else:
        raise BadParameter("epsilon", "cannot be reached at this δ with this number of steps")
    if all(part.rate == 1 for part in parts):
        return run
    low, high = Fraction(0), factor
    while high - low > high * _CLOSE:
        middle = max((low + high) / 2, high * Fraction(3, 4)).limit_denominator(1 << 20)
        tried = at(middle)
        if fits(tried):
            high, run = middle, tried
        else:
            low = middle
    return run


def _short(sigma: Fraction) -> Fraction:
    """Round up to seven digits."""
    digits = 7 - math.ceil(math.log10(sigma))
    scale = Fraction(10) ** digits
    return math.ceil(sigma * scale) / scale


ModelNumbers = dict[str, Any]


@dataclass(kw_only=True, eq=False, repr=False)
class Trainer(PickledWithoutPayer, BaseEstimator, ABC):  # type: ignore[misc]
    """A private trainer. The constructor only stores parameters; `fit` checks them.

    In `fit(X, y, units)`, `units` is an array of whole numbers: the unit of each row. It may be left out
    if the account protects rows or if the data is public. units=EACH_ROW is your promise that no two rows
    belong to the same unit.

    A step before it in a scikit-learn pipeline is not charged: a StandardScaler takes exact means from all
    rows, and what is trained on them is not private. Declare columns instead; they are scaled by their
    bounds.
    """

    mechanism: ClassVar[str]
    learns_from_y: ClassVar[bool] = True
    epsilon: Number
    delta: Number
    columns: Column | Sequence[Column]
    payer: Payer

    def fit(self, X: Any, y: Any = None, units: Any = None) -> Self:  # noqa: N803
        """Charge the loss, then train on one row of each unit, drawn at random.

        Without `units`, each row must be a unit. `y` is ignored by trainers that do not learn from it.
        """
        require_add_remove(self.payer)
        table = checked_table(X)
        target = checked_target(y, len(table)) if self.learns_from_y else None
        unit_of_row = checked_units(self.payer.checked_units(units), len(table))
        run = self._price(table.shape[1])
        # This may refuse the names of columns, which must not happen after the charge.
        validate_data(clone(self), X, skip_check_array=True)

        def work() -> bytes:
            chosen = one_row_each(unit_of_row, len(table))
            return _stored(self._train(run, table[chosen], None if target is None else target[chosen]))

        paid = self.payer.pay(run.loss, work, mechanism=self.mechanism, parameters=self._settings(table))
        self._load(paid.result)
        validate_data(self, X, reset=True, skip_check_array=True)
        self.receipt_ = paid.receipt
        return self

    def price(self, n_features: int) -> Loss:
        """Return the loss of `fit` for a table with this number of columns. Looking is free."""
        return self._price(whole(n_features, "n_features", at_least=1)).loss

    @abstractmethod
    def _price(self, columns: int) -> PricedReleases:
        """Return the releases of a fit, from public parameters alone.

        Raise BadParameter if they are wrong.
        """

    def _priced(self, *groups: ReleaseGroup) -> PricedReleases:
        """Return these releases with the noise that all of ε and δ allow."""
        return price_releases(self.epsilon, self.delta, groups)

    @abstractmethod
    def _train(self, run: PricedReleases, table: Cells, target: Any) -> ModelNumbers:
        """Return the model as plain numbers, computed from releases of the run.

        Each row is one unit. It must not fail.
        """

    def _load(self, stored: bytes) -> None:
        """Set the fitted attributes."""
        for name, value in json.loads(stored).items():
            setattr(self, f"{name}_", np.array(value) if isinstance(value, list) else value)

    def _settings(self, table: Cells) -> dict[str, str | int]:
        """Return the public parameters for the receipt: equal requests have equal ones."""
        chosen = {name: value for name, value in self.get_params(deep=False).items() if name != "payer"}
        text = repr(sorted((name, repr(value)) for name, value in chosen.items()))
        return {
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "columns": int(table.shape[1]),
            "settings": hashlib.sha256(text.encode()).hexdigest(),
        }

    def _table(self, X: Any) -> Cells:  # noqa: N803
        """Return the rows to predict for."""
        check_is_fitted(self)
        table = checked_table(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return table

    def _width(self, columns: int) -> int:
        """Return the number of features of a table with this number of columns."""
        return sum(column.width for column in checked_columns(self.columns, columns))

    def _features(self, table: Cells) -> Wholes:
        """Return the features of a table, as its columns are declared."""
        return feature_matrix(self.columns, table)

    def _rows(self, X: Any) -> Wholes:  # noqa: N803
        """Return the features of the rows to predict for."""
        return self._features(self._table(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.non_deterministic = True
        return tags


def _stored(model: ModelNumbers) -> bytes:
    """Return the canonical text of a model: Python writes floats so that they are read back exactly."""
    return json.dumps(model, sort_keys=True, allow_nan=False, separators=(",", ":")).encode()


@dataclass(kw_only=True, eq=False, repr=False)
class Classifier(ClassifierMixin, Trainer):  # type: ignore[misc]
    """A trainer that predicts one of the declared classes, from a few scores for each row."""

    classes: Sequence[Hashable]
    classes_: Cells = field(init=False)

    def _load(self, stored: bytes) -> None:
        super()._load(stored)
        self.classes_ = checked_classes(self.classes)

    @abstractmethod
    def _scores(self, X: Any) -> Floats:  # noqa: N803
        """Return one score for each class, or a single score for the second of two classes."""

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return estimated probabilities of the classes."""
        return class_probabilities(self._scores(X))

    def predict(self, X: Any) -> Cells:  # noqa: N803
        """Return the most probable class of each row."""
        scores = self._scores(X)
        likeliest = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        found: Cells = self.classes_[likeliest]
        return found


class ScoredClassifier(Classifier):
    """A classifier that shows its scores."""

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """Return the scores: of the second class if there are two, otherwise of each class."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores
