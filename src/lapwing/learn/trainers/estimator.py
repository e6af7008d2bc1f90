"""What all trainers share: check in public, pay, train, and load the stored model.

Claim    `fit` gives what is stored under its charge, and nothing else: a replay gives the same model.
Because  training happens inside `Purse.pay`, gives canonical bytes, and the fitted attributes are read
         from the bytes that `pay` returns.
Test     tests/learn/trainers/test_trainer.py

The scores that scikit-learn's tools show (`score`, cross-validation) are computed from rows and are not
private: show them only for public data.

What trainers of classes share: a few scores for each row, of which all else is made.

Claim    what is predicted for a row is a function of the model and that row, bit for bit.
Because  scores are (each trainer says why), and so is `class_probabilities`.
Test     tests/learn/trainers/test_alone.py
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import whole
from lapwing.core.losses import Loss, Relation
from lapwing.errors import BadParameter, MissingExtra
from lapwing.learn.payer import NoPayer, Payer, PublicData
from lapwing.learn.table_input import checked_units
from lapwing.learn.trainers.columns import Column, checked_classes, checked_table, checked_target
from lapwing.learn.trainers.estimator import ClassifierMixin
from lapwing.learn.trainers.pricing import PricedReleases
from lapwing.learn.trainers.whole_vectors import Floats, class_probabilities, one_row_of_each

try:
    from sklearn.base import (  # type: ignore[import-untyped]
        BaseEstimator,
        ClassifierMixin,
        ClusterMixin,
        RegressorMixin,
        TransformerMixin,
        clone,
    )
    from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]
except ImportError:  # pragma: no cover (an extra)
    raise MissingExtra("learn", "Training a model") from None

__all__ = [
    "ClassifierMixin",
    "ClusterMixin",
    "ModelNumbers",
    "RegressorMixin",
    "Trainer",
    "TransformerMixin",
]

ModelNumbers = dict[str, Any]


class Trainer(BaseEstimator, ABC):  # type: ignore[misc]
    """A private trainer. Parameters are only stored when it is made, and checked by `fit`.

    `fit(X, y, units)`: units are an array of whole numbers that say whose row each is. Without, each row is
    one: where the account protects rows, where data is public, or with units=EACH_ROW, your promise that no
    two rows are of the same unit.

    What comes before it in a scikit-learn pipeline is not paid: a StandardScaler takes exact means from all
    rows, and what is trained on them is not private. Declare columns instead; they are scaled by that.
    """

    mechanism: ClassVar[str]
    learns_from_y: ClassVar[bool] = True
    epsilon: Any
    delta: Any
    columns: Column | Sequence[Column]
    payer: Payer
    n_features_in_: int

    def _fit(self, X: Any, y: Any, units: Any) -> Self:  # noqa: N803
        if not isinstance(self.payer, Payer):
            raise BadParameter("purse", "must be a Purse: PublicData() where nobody has to pay")
        if self.payer.relation is not Relation.ADD_REMOVE:
            raise BadParameter("purse", "must be of accounts where neighbours add or remove a unit")
        table = checked_table(X)
        target = checked_target(y, len(table)) if self.learns_from_y else None
        whose = checked_units(self.payer.whose(units), len(table))
        run = self._price(table.shape[1])
        validate_data(
            clone(self), X, skip_check_array=True
        )  # may refuse names of columns: not after paying

        def work() -> bytes:
            chosen = one_row_of_each(whose, len(table))
            return _stored(self._train(run, table[chosen], None if target is None else target[chosen]))

        paid = self.payer.pay(run.loss, work, mechanism=self.mechanism, parameters=self._settings(table))
        self._load(paid.result)
        validate_data(self, X, reset=True, skip_check_array=True)
        self.receipt_ = paid.receipt
        return self

    def price(self, n_features: int) -> Loss:
        """What `fit` would cost for a table of so many columns. Looking is free."""
        return self._price(whole(n_features, "n_features", at_least=1)).loss

    @abstractmethod
    def _price(self, columns: int) -> PricedReleases:
        """The releases of a fit, from public parameters alone. Raises `BadParameter`."""

    @abstractmethod
    def _train(self, run: PricedReleases, table: NDArray[Any], target: Any) -> ModelNumbers:
        """The model as plain numbers, made of releases of the run. One row is one unit. Must not fail."""

    def _load(self, stored: bytes) -> None:
        """Set the fitted attributes."""
        for name, value in json.loads(stored).items():
            setattr(self, f"{name}_", np.array(value) if isinstance(value, list) else value)

    def _settings(self, table: NDArray[Any]) -> dict[str, str | int]:
        """Public parameters, for the receipt: the same request has the same ones."""
        chosen = {name: value for name, value in self.get_params(deep=False).items() if name != "purse"}
        text = repr(sorted((name, repr(value)) for name, value in chosen.items()))
        return {
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "columns": int(table.shape[1]),
            "settings": hashlib.sha256(text.encode()).hexdigest(),
        }

    def _table(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Rows to predict for."""
        check_is_fitted(self)
        table = checked_table(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return table

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        if not isinstance(state.get("purse"), PublicData):
            state["purse"] = NoPayer()
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.non_deterministic = True
        return tags


def _stored(model: ModelNumbers) -> bytes:
    """One text for one model: Python writes floats so that they come back exactly."""
    return json.dumps(model, sort_keys=True, allow_nan=False, separators=(",", ":")).encode()


class Classifier(ClassifierMixin, Trainer):  # type: ignore[misc]
    """Which class, of those that were declared."""

    classes: Sequence[Hashable]
    classes_: NDArray[Any]

    def fit(self, X: Any, y: Any, units: Any = None) -> Self:  # noqa: N803
        """Train. One row of each unit is drawn; without `units`, each row must be one (see `Trainer`)."""
        self._fit(X, y, units)
        self.classes_ = checked_classes(self.classes)
        return self

    @abstractmethod
    def _scores(self, X: Any) -> Floats:  # noqa: N803
        """One score for each class, or a single one for the second of two."""

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Estimated probabilities of the classes."""
        return class_probabilities(self._scores(X))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The likeliest class of each row."""
        scores = self._scores(X)
        likeliest = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        found: NDArray[Any] = self.classes_[likeliest]
        return found


class ScoredClassifier(Classifier):
    """One that shows its scores."""

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """Scores: of the second class if there are two, else of each."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores
