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
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import Number, whole
from lapwing.core.losses import Loss
from lapwing.errors import MissingExtra
from lapwing.learn.payer import Payer, PickledWithoutPayer, require_add_remove
from lapwing.learn.table_input import Floats, Wholes, checked_units, one_row_each
from lapwing.learn.trainers.columns import (
    Column,
    checked_classes,
    checked_columns,
    checked_table,
    checked_target,
    feature_matrix,
)
from lapwing.learn.trainers.pricing import PricedReleases, ReleaseGroup, price_releases
from lapwing.learn.trainers.whole_vectors import class_probabilities

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, clone  # type: ignore[import-untyped]
    from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]
except ImportError:  # pragma: no cover (an extra)
    raise MissingExtra("learn", "Training a model") from None

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
    def _train(self, run: PricedReleases, table: NDArray[Any], target: Any) -> ModelNumbers:
        """Return the model as plain numbers, computed from releases of the run.

        Each row is one unit. It must not fail.
        """

    def _load(self, stored: bytes) -> None:
        """Set the fitted attributes."""
        for name, value in json.loads(stored).items():
            setattr(self, f"{name}_", np.array(value) if isinstance(value, list) else value)

    def _settings(self, table: NDArray[Any]) -> dict[str, str | int]:
        """Return the public parameters for the receipt: equal requests have equal ones."""
        chosen = {name: value for name, value in self.get_params(deep=False).items() if name != "payer"}
        text = repr(sorted((name, repr(value)) for name, value in chosen.items()))
        return {
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "columns": int(table.shape[1]),
            "settings": hashlib.sha256(text.encode()).hexdigest(),
        }

    def _table(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the rows to predict for."""
        check_is_fitted(self)
        table = checked_table(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return table

    def _width(self, columns: int) -> int:
        """Return the number of features of a table with this number of columns."""
        return sum(column.width for column in checked_columns(self.columns, columns))

    def _features(self, table: NDArray[Any]) -> Wholes:
        """Return the features of a table, as its columns are declared."""
        return feature_matrix(checked_columns(self.columns, table.shape[1]), table)

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
    classes_: NDArray[Any] = field(init=False)

    def _load(self, stored: bytes) -> None:
        super()._load(stored)
        self.classes_ = checked_classes(self.classes)

    @abstractmethod
    def _scores(self, X: Any) -> Floats:  # noqa: N803
        """Return one score for each class, or a single score for the second of two classes."""

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return estimated probabilities of the classes."""
        return class_probabilities(self._scores(X))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the most probable class of each row."""
        scores = self._scores(X)
        likeliest = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        found: NDArray[Any] = self.classes_[likeliest]
        return found


class ScoredClassifier(Classifier):
    """A classifier that shows its scores."""

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """Return the scores: of the second class if there are two, otherwise of each class."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores
