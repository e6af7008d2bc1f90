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
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from lapwing.canonical_json import canonical_json
from lapwing.core.exact import Number, exact, whole
from lapwing.core.losses import Loss
from lapwing.errors import BadParameter, ClassNotSeen, KeyReused, MissingExtra
from lapwing.learn.payer import PaidResult, Payer, PickledWithoutPayer, require_add_remove
from lapwing.learn.table_input import (
    UNKNOWN,
    Cells,
    Floats,
    Wholes,
    beside,
    checked_ids,
    column_of,
    named_columns,
    one_row_each,
)
from lapwing.learn.trainers.columns import (
    Column,
    Columns,
    checked_classes,
    checked_columns,
    checked_table,
    checked_target,
    class_codes,
    feature_matrix,
)
from lapwing.learn.trainers.priced_releases import PricedReleases, ReleaseGroup, price_releases
from lapwing.learn.trainers.question_columns import declared_column, plain_cells, split_label
from lapwing.learn.trainers.whole_vectors import class_probabilities
from lapwing.ledger import Receipt
from lapwing.sql.policy.kinds import Choice, Kind, Truth

if TYPE_CHECKING:
    from lapwing.sql.row_questions import PrivateRows

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, clone  # type: ignore[import-untyped]
    from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]
except ImportError:  # pragma: no cover (an extra)
    raise MissingExtra("learn", "Training a model") from None

_CLASS_CHECK = "0.01"  # a share of the run
_LATER: Mapping[str, Any] = {"class_check": _CLASS_CHECK}


ModelNumbers = dict[str, Any]


@dataclass(kw_only=True, eq=False, repr=False)
class Trainer(PickledWithoutPayer, BaseEstimator, ABC):  # type: ignore[misc]
    """A private trainer. The constructor only stores parameters; `fit` checks them.

    A step before it in a scikit-learn pipeline is not charged: a StandardScaler takes exact means from all
    rows, and what is trained on them is not private. Declare columns instead; they are scaled by their
    bounds.
    """

    mechanism: ClassVar[str]
    learns_from_y: ClassVar[bool] = True
    epsilon: Number | None = None
    delta: Number | None = None
    columns: Columns | None = None
    payer: Payer | None = None
    columns_: Any = field(init=False)  # as they were declared for the fit
    receipt_: Any = field(init=False)  # of the charge; None if nothing was charged

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        units: Any = None,
        *,
        payer: Payer | None = None,
        **others: Any,
    ) -> Self:
        """Charge the loss, then train on one row of each unit, drawn at random.

        Args:
            X: The table: an array, a list of rows, or a table of pandas, Polars or Arrow. If columns are
                declared by name, these columns of the table are read, in any order.
            y: One value for each row, or the name of a column of X. Trainers without a target ignore it.
            units: The id of each row's unit: whole numbers, texts, or the name of a column of X. A row
                without an id is left out. It may be None if the account protects rows or if the data is
                public. `EACH_ROW` is your promise that no two rows belong to the same unit.
            payer: The payer. None: the one that the constructor got.
            others: Nothing. `sample_weight` is refused: a weight would change how far one unit can move
                the result.

        Returns:
            The trainer itself, fitted.

        Raises:
            BadParameter: If a setting is missing or wrong. Nothing is charged.
            BadValue: If X, y or units are of another form. Nothing is charged.
            OverBudget: If the account has too little left. Nothing is charged.
            ClassNotSeen: If rows have other classes than the declared ones. The charge stays.
        """
        _refuse_weights(others)
        own = clone(self)  # what fails midway leaves this trainer as it was
        own.payer = self.payer if payer is None else payer
        require_add_remove(own.payer)
        y, units = column_of(X, y, "y"), column_of(X, units, "units")
        X = own._named(X)  # noqa: N806
        table = checked_table(X)
        target = checked_target(y, len(table)) if self.learns_from_y else None
        unit_of_row = checked_ids(own.payer.checked_units(units), len(table))
        # This may refuse the names of columns, which must not happen after the charge.
        validate_data(clone(self), X, skip_check_array=True)

        def work(run: PricedReleases) -> bytes:
            chosen = one_row_each(unit_of_row, len(table))
            trained: bytes = own._trained(run, table[chosen], None if target is None else target[chosen])
            return trained

        paid = own._pay(table, work)
        validate_data(own, X, reset=True, skip_check_array=True)
        own._load(paid.result, paid.receipt)
        return self._take(own)

    def _pay(self, table: Cells, work: Callable[[PricedReleases], bytes]) -> PaidResult:
        """Charge the run, and do its work."""
        assert self.payer is not None
        columns = table.shape[1]
        run, described = self._price(columns), self._settings(columns)
        try:
            return self.payer.pay(
                run.loss, lambda: work(run), mechanism=self.mechanism, parameters=described
            )
        except KeyReused:
            if (earlier := self._earlier_price(columns)) is None:
                raise
            return self.payer.pay(earlier, _never, mechanism=self.mechanism, parameters=described)

    def _earlier_price(self, columns: int) -> Loss | None:
        """Return the price that earlier versions asked for the same fit; None if it is the same."""
        return None

    def plan_fit(
        self, columns: Mapping[str, Kind], *, label: str | None, epsilon: Number, delta: Number
    ) -> PlannedFit:
        """Price a fit to the columns of a question. A data set calls this: see `Dataset.fit`.

        What this trainer leaves open is taken from the kinds of the columns.
        """
        own, features = clone(self), dict(columns)
        if self.learns_from_y:
            features, label = split_label(columns, label)
            own._learn_label(label, columns[label])
        elif label is not None:
            raise BadParameter("label", f"is not learned by {type(self).__name__}: leave it out")
        for name, paid in (("epsilon", epsilon), ("delta", delta)):
            own.set_params(**{name: paid})
        own.columns = own._question_columns(features)
        learned = None if label is None else (label, columns[label])
        return PlannedFit(self, own, features, learned, own._price(len(features)))

    def _question_columns(self, kinds: Mapping[str, Kind]) -> dict[str, Column]:
        """Return the declared columns by name: those of this trainer, and else those of the policy."""
        own = self.columns
        if own is not None and not isinstance(own, Mapping):
            return dict(zip(kinds, checked_columns(own, len(kinds)), strict=True))
        for name in own or ():
            if name not in kinds:
                raise BadParameter("columns", f"the question has no column {name[:60]!r} to learn from")
        return {name: (own or {}).get(name) or self._column_of(name, kind) for name, kind in kinds.items()}

    def _column_of(self, name: str, kind: Kind) -> Column:
        return declared_column(name, kind)

    def _learn_label(self, name: str, kind: Kind) -> None:
        """Set what the label's kind decides. Raise BadParameter if this trainer cannot learn it."""

    def _take(self, own: Trainer) -> Self:
        """Take over the fitted attributes of a copy, and drop those of an earlier fit."""
        for name in [name for name in vars(self) if _is_fitted(name)]:
            delattr(self, name)
        for name, value in vars(own).items():
            if _is_fitted(name):
                setattr(self, name, value)
        return self

    @property
    def _declared(self) -> Columns | None:
        """The declared columns: those of the fit, where there was one."""
        declared: Columns | None = vars(self).get("columns_", self.columns)
        return declared

    def _named(self, X: Any) -> Any:  # noqa: N803
        """Return the declared columns of a table, in their order, if they are declared by name."""
        declared = self._declared
        return named_columns(X, list(declared)) if isinstance(declared, Mapping) else X

    def price(self, n_features: int) -> Loss:
        """Return the loss of `fit` for a table with this number of columns. Looking is free.

        Args:
            n_features: The number of columns.

        Returns:
            The loss, as it would be charged.
        """
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

    def _trained(self, run: PricedReleases, table: Cells, target: Any) -> bytes:
        """Train, and return the model as it is stored."""
        return _stored(self._train(run, table, target))

    def _load(self, stored: bytes, receipt: Receipt | None) -> None:
        """Set the fitted attributes."""
        self._set_numbers(json.loads(stored))
        self.columns_ = self.columns
        self.receipt_ = receipt

    def _set_numbers(self, model: ModelNumbers) -> None:
        """Set the fitted attributes that are stored."""
        for name, value in model.items():
            setattr(self, f"{name}_", np.array(value) if isinstance(value, list) else value)

    def _settings(self, columns: int) -> dict[str, str | int]:
        """Return the public parameters for the receipt: equal requests have equal ones.

        A parameter in `_LATER` is left out at its default: models that are older than it keep their digest.
        """
        chosen = {name: value for name, value in self.get_params(deep=False).items() if name != "payer"}
        for name, default in _LATER.items():
            if name in chosen and chosen[name] == default:
                del chosen[name]
        with np.printoptions(threshold=sys.maxsize):  # arrays of classes are written in full
            text = repr(sorted((name, repr(value)) for name, value in chosen.items()))
        return {
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "columns": columns,
            "settings": hashlib.sha256(text.encode()).hexdigest(),
        }

    def _require_fitted(self) -> None:
        """Raise scikit-learn's NotFittedError if there was no fit."""
        check_is_fitted(self)

    def _table(self, X: Any) -> Cells:  # noqa: N803
        """Return the rows to predict for."""
        self._require_fitted()
        X = self._named(X)  # noqa: N806
        table = checked_table(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return table

    def _width(self, columns: int) -> int:
        """Return the number of features of a table with this number of columns."""
        return sum(column.width for column in checked_columns(self.columns, columns))

    def _features(self, table: Cells) -> Wholes:
        """Return the features of a table, as its columns are declared."""
        return feature_matrix(self._declared, table)

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
    return canonical_json(model).encode()


def _never() -> bytes:
    """Refuse to work: an earlier price is only for finding what was stored under a used key."""
    raise KeyReused


def _is_fitted(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


def _refuse_weights(others: Mapping[str, Any]) -> None:
    """Refuse arguments that `fit` does not have, weights with their reason."""
    for name, value in others.items():
        if name != "sample_weight":
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}")
        if value is not None:
            raise BadParameter(
                "sample_weight",
                "is refused: a weight would multiply how far a unit can move the result, and the price is "
                "for one row of weight 1. Leave rows out instead, by a rule about each row alone",
            )


@dataclass(frozen=True, slots=True)
class PlannedFit:
    """A priced fit to the columns of a question, which a data set charges and gives rows."""

    trainer: Trainer
    own: Trainer  # a copy with everything that the columns decide
    features: Mapping[str, Kind]
    label: tuple[str, Kind] | None
    run: PricedReleases

    @property
    def loss(self) -> Loss:
        """The loss of each unit."""
        return self.run.loss

    @property
    def mechanism(self) -> str:
        """The name of the mechanism, for the receipt."""
        return self.own.mechanism

    @property
    def parameters(self) -> dict[str, str | int]:
        """The public settings, for the receipt."""
        return {"label": self.label[0] if self.label else "", **self.own._settings(len(self.features))}

    def train(self, rows: PrivateRows) -> bytes:
        """Train on one row of each unit, and return the model."""
        chosen = one_row_each(rows.units, len(rows))
        cells = [plain_cells(kind, rows.columns[name])[chosen] for name, kind in self.features.items()]
        target = (
            None if self.label is None else plain_cells(self.label[1], rows.columns[self.label[0]])[chosen]
        )
        return self.own._trained(self.run, beside(cells, len(chosen)), target)

    def finish(self, model: bytes, receipt: Receipt | None) -> None:
        """Give the stored model to the trainer."""
        self.own.feature_names_in_ = np.array(list(self.features), dtype=object)
        self.own.n_features_in_ = len(self.features)
        self.own._load(model, receipt)
        self.trainer._take(self.own)


COUNT = 64  # steps in a count of 1, so that noise on whole numbers is as good as on real ones
_SURE = 6  # a count this many σ above 0 is of some rows: noise alone does that once in 10^9 fits
_SEEN = 3  # a class below this many σ was not seen
_MANY = 0.05  # a share of rows without a class that is told


@dataclass(kw_only=True, eq=False, repr=False)
class Classifier(ClassifierMixin, Trainer):  # type: ignore[misc]
    """A trainer that predicts one of the declared classes, from a few scores for each row."""

    classes: Sequence[Hashable] | None = None
    class_check: Number = _CLASS_CHECK
    classes_: Cells = field(init=False)
    class_counts_: Any = field(init=False)  # noisy counts of rows by class; None if there are none
    class_counts_sigma_: Any = field(init=False)  # the σ of their noise
    undeclared_share_: Any = field(init=False)  # about the share of rows without a declared class

    def _priced(self, *groups: ReleaseGroup) -> PricedReleases:
        share = exact(self.class_check, "class_check")
        if not 0 <= share < 1:
            raise BadParameter("class_check", "must be 0 or more, and below 1: a share of the run")
        if not share:
            return super()._priced(*groups)
        rest = [replace(group, share=group.share * (1 - share)) for group in groups]
        counts = ReleaseGroup(COUNT**2, len(checked_classes(self.classes)) + 1, share=share)
        return super()._priced(*rest, counts)

    def _earlier_price(self, columns: int) -> Loss | None:
        if self.class_check != _CLASS_CHECK:
            return None
        unchecked: Self = clone(self).set_params(class_check=0)
        return unchecked._price(columns).loss

    def _trained(self, run: PricedReleases, table: Cells, target: Any) -> bytes:
        if not exact(self.class_check):
            return super()._trained(run, table, target)
        classes, last = checked_classes(self.classes), len(run.parts) - 1
        exactly = count_classes(class_codes(classes, target), len(classes))
        counts, sigma = run.release(last, exactly * COUNT) / COUNT, float(run.sigmas[last]) / COUNT
        unseen = unseen_classes(counts, sigma)
        # What was released decides that nothing else is: with unseen classes there is nothing to learn.
        model = {"unseen": unseen} if unseen else self._train(run, table, target)
        return _stored({**model, "class_counts": counts.tolist(), "class_counts_sigma": sigma})

    def _load(self, stored: bytes, receipt: Receipt | None) -> None:
        super()._load(stored, receipt)
        self.classes_ = checked_classes(self.classes)

    def _set_numbers(self, model: ModelNumbers) -> None:
        numbers = dict(model)
        unseen, counts = numbers.pop("unseen", []), numbers.pop("class_counts", None)
        super()._set_numbers({"class_counts_sigma": None, **numbers})
        self.class_counts_ = None if counts is None else np.array(counts[:-1])
        self.undeclared_share_ = None if counts is None else _share_of_last(counts)
        if counts is None or self.undeclared_share_ is None:
            return
        if unseen:
            names = [repr(label)[:60] for at, label in enumerate(self.classes or ()) if at in unseen]
            raise ClassNotSeen(names, self.undeclared_share_)
        if is_much_undeclared(counts, numbers["class_counts_sigma"]):
            warnings.warn(
                f"about {self.undeclared_share_:.0%} of the rows have none of the declared classes, and "
                "taught nothing (a noisy share, which the fit paid for)",
                stacklevel=5,
            )

    @abstractmethod
    def _scores(self, X: Any) -> Floats:  # noqa: N803
        """Return one score for each class, or a single score for the second of two classes."""

    def _learn_label(self, name: str, kind: Kind) -> None:
        if not isinstance(kind, Choice | Truth):
            raise BadParameter(
                "label", f"{name[:60]!r} must have declared values in the policy: it is what is predicted"
            )
        values = kind.values if isinstance(kind, Choice) else (False, True)
        # Plain values: the settings of a fit are its key, and an array is not written exactly.
        self.classes = tuple(checked_classes(values if self.classes is None else self.classes).tolist())
        for label in self.classes:
            if label not in values:
                raise BadParameter(
                    "classes", f"name {label!r:.60}, which is no declared value of {name[:60]!r}"
                )

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return estimated probabilities of the classes.

        Args:
            X: The rows to predict for.

        Returns:
            One row for each row of X, and one column for each class of `classes_`.
        """
        return class_probabilities(self._scores(X))

    def predict(self, X: Any) -> Cells:  # noqa: N803
        """Return the most probable class of each row.

        Args:
            X: The rows to predict for.

        Returns:
            One class for each row.
        """
        scores = self._scores(X)
        likeliest = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        classes: Cells = self.classes_[likeliest]
        return classes

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the share of rows whose class is predicted. It is computed from rows, and not private.

        Show it only if the rows are public: for private rows it is a release that nobody paid for.

        Args:
            X: Rows that you hold.
            y: Their classes.
            sample_weight: A weight for each row.

        Returns:
            The exact share.
        """
        return float(super().score(X, y, sample_weight))


def count_classes(codes: Wholes, classes: int) -> Wholes:
    """Return the number of rows of each class, and then of rows without a declared class."""
    return np.bincount(np.where(codes == UNKNOWN, classes, codes), minlength=classes + 1).astype(np.int64)


def unseen_classes(counts: Floats, sigma: float) -> list[int]:
    """Return the positions of classes that were not seen, if rows have undeclared classes instead.

    Claim    it is no look at a row: it is computed from noisy counts that are part of the run's price.
    Because  a row is in one count, so all of them move by COUNT steps in L2.
    Test     tests/learn/trainers/test_estimator_classes.py
    """
    if not is_much_undeclared(counts.tolist(), sigma):
        return []
    return [at for at, count in enumerate(counts[:-1].tolist()) if count < _SEEN * sigma]


def is_much_undeclared(counts: Sequence[float], sigma: float) -> bool:
    """Tell whether noisy counts show rows without a declared class, and that they are more than a few."""
    return counts[-1] >= _SURE * sigma and _share_of_last(counts) >= _MANY


def _share_of_last(counts: Sequence[float]) -> float:
    """Return the share of the last count, from noisy counts."""
    total = max(sum(max(count, 0.0) for count in counts), 1.0)
    return min(max(counts[-1], 0.0) / total, 1.0)


class ScoredClassifier(Classifier):
    """A classifier that shows its scores."""

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """Return the scores: of the second class if there are two, otherwise of each class."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores
