"""The trainer, the validator and the statistic of a pipeline, as its file declares them.

Claim    for every line with weights within ±1, some line of the net loses at most as much on each row, as
         `LineNet.of_class` counts it.
Because  the nearest line of the net has every weight within half a mesh, so its prediction is within
         `reach` on every row; errors are counted as if they were shorter by that.
Test     tests/learn/pipelines/test_components_losses.py

Claim    an attempt at a statistic (a mean or a histogram) costs each unit of its blocks the attempt's ε,
         without any δ. What is released, with the error shown for it, is computed from the noisy numbers
         alone.
Because  a unit adds one vector within the validator's L1 bound, whatever rows it has. There is no test
         half, as the error is bounded from the same numbers. docs/arguments/attempts.md.
Test     tests/learn/pipelines/test_components_statistics.py
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise, product
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from lapwing.core.exact import inside_unit, positive, whole
from lapwing.core.losses import Loss
from lapwing.errors import BadParameter
from lapwing.learn import trainers, validators
from lapwing.learn.features import Features, kind_step
from lapwing.learn.payer import Payer, StoredPayer
from lapwing.learn.pipelines import network
from lapwing.learn.table_input import Floats, Truths
from lapwing.learn.trainers import Real
from lapwing.learn.trainers.question_columns import BINS, binned_column
from lapwing.learn.validators import ClassLosses, ValidationRelease, ValidationResult, ValidationRows
from lapwing.sql.policy.kinds import Numeric
from lapwing.sql.row_questions import PrivateRows

NUMBER_LOSSES = ("absolute error", "squared error")
CLASS_LOSSES = ("zero-one loss", "log loss")
MOST_LINES = 2000
_SMALLEST = 1e-300


def row_losses(kind: str, model: Any, features: Features, rows: PrivateRows) -> Floats:
    """Return one loss for each row. They are private."""
    table, truth = features.table(rows), features.target(rows)
    if not len(rows):
        return np.zeros(0)
    if kind in NUMBER_LOSSES:
        return _of_errors(kind, np.abs(np.asarray(model.predict(table)) - truth))
    if kind == "zero-one loss":
        return (~rows_correct(model, features, rows)).astype(np.float64)
    likely = np.asarray(model.predict_proba(table))[np.arange(len(rows)), truth]
    # One by one: a vectorised logarithm may round by an element's place, which depends on other rows.
    return np.array([-math.log(share) for share in np.maximum(likely, _SMALLEST).tolist()])


def rows_correct(model: Any, features: Features, rows: PrivateRows) -> Truths:
    """Tell whether each prediction is the true class. The result is private."""
    if not len(rows):
        return np.zeros(0, np.bool_)
    predicted: Any = model.predict(features.table(rows))
    return np.asarray(predicted == features.target(rows), dtype=np.bool_)


def _of_errors(kind: str, errors: Floats) -> Floats:
    return errors if kind == "absolute error" else errors * errors


def _line(matrix: Floats, weights: Sequence[float]) -> Floats:
    """Return the predictions of a line, -1 to 1.

    It goes column by column: a matrix product may round differently if other rows are present.
    """
    total = np.zeros(len(matrix))
    for column, weight in zip(matrix.T, weights, strict=True):
        total = total + column * weight
    return np.clip(total, -1, 1)


@dataclass(frozen=True, slots=True)
class LineNet:
    """Lines over the features: each weight, the bias included, is one of `levels` between -1 and 1.

    Features lie in [-1, 1], and so do predictions, where -1 and 1 are the bounds of the label.
    """

    features: Features
    levels: int

    def __post_init__(self) -> None:
        whole(self.levels, "levels", at_least=2)
        low, high = self.features.target_bounds
        if not low < high:
            raise BadParameter("label", "has only one value")
        if self.models > MOST_LINES:
            raise BadParameter(
                "levels",
                f"{self.levels}^{self.features.width + 1} lines are more than {MOST_LINES:,}. Write fewer "
                "levels, or leave [reject] out",
            )

    @property
    def models(self) -> int:
        """The number of lines."""
        return int(self.levels ** (self.features.width + 1))

    @property
    def reach(self) -> Fraction:
        """The greatest distance between a line's prediction and that of the nearest line of the net."""
        low, high = map(Fraction, self.features.target_bounds)
        mesh = Fraction(2, self.levels - 1)
        return mesh / 2 * (self.features.width + 1) * (high - low) / 2

    def of_class(self, kind: str, rows: PrivateRows) -> ClassLosses:
        """Return the loss of each line of the net on each row, less the error that the mesh can hide.

        It is private.
        """
        low, high = self.features.target_bounds
        matrix = np.hstack([self.features.matrix(rows), np.ones((len(rows), 1))])
        truth = self.features.target(rows)
        # Half a part in a million more than the mesh hides, for the rounding of floats.
        reach = float(self.reach) + 1e-6 * (high - low)
        losses = []
        for weights in product(np.linspace(-1, 1, self.levels), repeat=self.features.width + 1):
            line = (low + high) / 2 + (high - low) / 2 * _line(matrix, weights)
            losses.append(_of_errors(kind, np.maximum(np.abs(line - truth) - reach, 0.0)))
        return ClassLosses(losses, units=rows.units)


MEAN, HISTOGRAM = "mean", "histogram"
STATISTIC_KINDS = (MEAN, HISTOGRAM)
MOST_HISTOGRAM_BINS = 1 << 10


@dataclass(frozen=True, slots=True)
class PipelineStatistic:
    """A statistic of the label.

    `bins` is the number of equal intervals of a numeric label; None for others.
    """

    kind: str
    features: Features
    bins: int | None = None

    def __post_init__(self) -> None:
        if self.features.columns:
            raise BadParameter("features", "must be the label alone: a statistic is of one column")
        is_number = isinstance(self.features.label_kind, Numeric)
        if self.kind == MEAN and not is_number:
            raise BadParameter("label", "must be a number: others have no mean")
        if self.kind == HISTOGRAM and not is_number and not self.features.has_classes:
            raise BadParameter("label", "must be a number, or have declared values")
        if self.kind == HISTOGRAM and is_number is (self.bins is None):
            why = "are needed: into how many equal parts is it cut?" if is_number else "are its values"
            raise BadParameter("bins", why)
        if self.ends[0] >= self.ends[1]:
            raise BadParameter("label", "has only one value")

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest code of the label."""
        return self.features.label_feature.ends

    @property
    def _step(self) -> Fraction:
        return kind_step(self.features.label_feature.kind)

    def validator(
        self, *, target: Fraction, eta: Fraction, epsilon: Fraction
    ) -> validators.StatisticValidator:
        """Return the validator of its error."""
        if self.kind == HISTOGRAM:
            bins = self.bins or self.ends[1] + 1
            return validators.HistogramValidator(target=target, eta=eta, epsilon=epsilon, bins=bins)
        low, high = (code * self._step for code in self.ends)
        return validators.MeanValidator(
            target=target, eta=eta, epsilon=epsilon, low=low, high=high, step=self._step
        )

    def values(self, rows: PrivateRows) -> ValidationRows:
        """Return the number or bin of each row, for the validator. It is private."""
        column = rows.columns[self.features.label]
        first, last = self.ends
        if self.kind == MEAN:
            return ValidationRows(self.features.target(rows), units=rows.units)
        places = np.clip(column.codes, first, last) - first
        if self.bins is not None:
            places = np.minimum(places * self.bins // (last - first), self.bins - 1)
        return ValidationRows(np.where(column.known, places, -1), units=rows.units)

    def to_json(
        self,
        validator: validators.Validator,
        released: ValidationRelease,
        judged: ValidationResult,
    ) -> dict[str, Any]:
        """Return the released statistic as plain values. It is public."""
        if isinstance(validator, validators.HistogramValidator):
            shares = validator.shares(released) or ()
            shown = [{**part, "share": share} for part, share in zip(self._parts(), shares, strict=True)]
            return {"kind": self.kind, "of": self.features.label, "bins": shown}
        return {"kind": self.kind, "of": self.features.label, "mean": judged.estimate}

    def _parts(self) -> list[dict[str, Any]]:
        if self.bins is None:
            return [{"value": value} for value in self.features.class_values]
        first, last = (code * self._step for code in self.ends)
        edges = [float(first + (last - first) * k / self.bins) for k in range(self.bins + 1)]
        return [{"from": low, "to": high} for low, high in pairwise(edges)]


def statistic_lines(told: dict[str, Any], error: float | None) -> list[str]:
    """Return the released statistic as lines of a card. `error` bounds the error of each number."""
    off = "" if error is None else f" ± {error:.6g}"
    if told["kind"] == MEAN:
        return [f"mean of {told['of']}: {told['mean']:.6g}{off}"]
    named = [
        (str(part["value"]) if "value" in part else f"{part['from']:g} … {part['to']:g}", part["share"])
        for part in told["bins"]
    ]
    wide = max(len(name) for name, _ in named)
    return [f"{name:>{wide}}  {share:.4f}{off}" for name, share in named]


LINEAR, LOGISTIC, BAYES, TREES = "linear regression", "logistic regression", "naive Bayes", "additive trees"
NETWORK = "network"
TRAINER_OPTIONS: Mapping[str, tuple[str, ...]] = {
    LINEAR: ("radius",),
    LOGISTIC: ("rate", "steps", "pace", "radius"),
    BAYES: ("bins",),
    TREES: ("passes", "stride", "bins"),
    NETWORK: network.NETWORK_OPTIONS,
    MEAN: (),
    HISTOGRAM: ("bins",),
}
LEAST_BINS, MOST_COLUMN_BINS = 2, 1000
# Of trainers other than networks: more would take days.
MOST_ITERATIONS = {"steps": 100_000, "passes": 1_000}
MOST_UNITS = 1 << 22  # the price of a network's steps holds up to this many units
ERROR = "error"  # the error of a statistic, beside the losses of models
Setting = int | float | str | tuple[int, ...]


class Learner(Protocol):
    """The interface of a trainer in a pipeline. Classifiers also have `predict_proba`."""

    def price(self, n_features: int) -> Loss:
        """Return the loss of `fit`."""

    def fit(self, X: Any, y: Any, units: Any = None) -> Any:  # noqa: N803
        """Pay, and train."""

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return numbers, or positions of classes."""


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    """A kind of trainer and its settings.

    `bins` is the number of equal intervals into which numbers are cut.
    """

    kind: str
    settings: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if self.kind not in TRAINER_OPTIONS:
            raise BadParameter("kind", f"must be one of {', '.join(TRAINER_OPTIONS)}")
        for name in self.settings:
            if name not in TRAINER_OPTIONS[self.kind]:
                raise BadParameter(name, f"is no setting of {self.kind}")
        if self.kind == NETWORK:
            network.NetworkSettings.of(self.settings)
            return
        for name, most in MOST_ITERATIONS.items():
            _require_whole(self.settings, name, 1, most)
        most_bins = MOST_HISTOGRAM_BINS if self.is_statistic else MOST_COLUMN_BINS
        _require_whole(self.settings, "bins", LEAST_BINS, most_bins)

    @property
    def needs_size(self) -> bool:
        """True if a public number of units must be declared."""
        return self.kind in (LOGISTIC, NETWORK)

    @property
    def is_statistic(self) -> bool:
        """True if a statistic is released instead of a model."""
        return self.kind in STATISTIC_KINDS

    @property
    def plain(self) -> dict[str, Any]:
        """The settings as plain values, for JSON."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.settings.items()
        }

    def statistic(self, features: Features) -> PipelineStatistic:
        """Return the statistic of the label."""
        bins = self.settings.get("bins")
        return PipelineStatistic(self.kind, features, None if bins is None else int(str(bins)))

    def create(
        self, features: Features, *, epsilon: Fraction, delta: Fraction, size: int | None, payer: Payer
    ) -> Learner:
        """Create a trainer of these features.

        `size` is the declared approximate number of training units.
        """
        common: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "payer": payer}
        settings: dict[str, Any] = {name: value for name, value in self.settings.items() if name != "bins"}
        common["columns"] = features.declared
        if self.needs_size:
            if size is None:
                raise BadParameter("units_per_block", f"is needed by {self.kind}")
            common["size"] = size
        if self.kind == NETWORK:
            if common["size"] > MOST_UNITS:
                raise BadParameter("units_per_block", f"and blocks come to more than {MOST_UNITS:,} units")
            classes = features.classes if features.has_classes else None
            target = None if features.has_classes else Real(*features.target_bounds)
            own = network.NetworkSettings.of(settings)
            return network.Network(own, **common, classes=classes, target=target)
        if self.kind == LINEAR:
            return trainers.LinearRegression(**common, target=Real(*features.target_bounds), **settings)
        # Rows of no declared class are left out before, by the policy's values: there is nothing to check.
        labels: dict[str, Any] = {"classes": features.classes, "class_check": 0}
        if self.kind == LOGISTIC:
            return trainers.LogisticRegression(**common, **labels, **settings)
        bins = int(str(self.settings.get("bins", BINS)))
        common["columns"] = tuple(binned_column(column, bins) for column in features.declared)
        make: Callable[..., Learner] = trainers.NaiveBayes if self.kind == BAYES else trainers.AdditiveTrees
        return make(**common, **labels, **settings)

    def loaded(self, features: Features, *, epsilon: Fraction, delta: Fraction, model: bytes) -> Learner:
        """Create a trainer that holds a stored model."""
        trainer = self.create(features, epsilon=epsilon, delta=delta, size=1, payer=StoredPayer(model))
        if isinstance(trainer, network.Network):
            return trainer.load(model)
        empty = features.coded({column.name: [] for column in features.columns})
        return fit_on_rows(trainer, features, empty, is_labelled=False)


def _require_whole(settings: Mapping[str, Setting], name: str, least: int, most: int) -> None:
    value = settings.get(name, least)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadParameter(name, f"must be a whole number from {least} to {most:,}")


def fit_on_rows(
    trainer: Learner, features: Features, rows: PrivateRows, *, is_labelled: bool = True
) -> Learner:
    """Train on rows. The result is private. Without `is_labelled`, only the form of the rows is used."""
    target: Any = features.target(rows) if is_labelled else []
    trained: Learner = trainer.fit(features.table(rows), target, units=rows.units)
    return trained


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatorSettings:
    """The target that must be shown.

    `loss` is the kind of loss; "" stands for accuracy, and `ERROR` for the error of a statistic. `levels`
    is the number of levels of each weight in the net of lines that can reject a hopeless target; 0 means
    no net.
    """

    target: Fraction
    eta: Fraction
    loss: str = ""
    bound: Fraction | None = None
    step: Fraction | None = None
    levels: int = 0

    def __post_init__(self) -> None:
        if self.is_error:
            positive(self.target, "target")
            inside_unit(self.eta, "eta")
            return
        if self.loss not in ("", *NUMBER_LOSSES, *CLASS_LOSSES):
            raise BadParameter("loss", f"must be one of {', '.join((*NUMBER_LOSSES, *CLASS_LOSSES))}")
        if self.loss and self.bound is None:
            raise BadParameter("bound", "is needed: losses are clipped to it")
        self.create(epsilon=Fraction(1), eta=self.eta, net=None)  # raises if something is wrong

    @property
    def is_accuracy(self) -> bool:
        """True if correct classes are counted, rather than losses."""
        return not self.loss

    @property
    def is_error(self) -> bool:
        """True if it is about a statistic, rather than a model."""
        return self.loss == ERROR

    @property
    def measure(self) -> str:
        """The name of the number that is shown to be small, or (accuracy) large."""
        return self.loss or "accuracy"

    def check(self, features: Features, trainer: TrainerSettings) -> None:
        """Raise BadParameter if this cannot judge the predictions of such a trainer."""
        if trainer.is_statistic:
            trainer.statistic(features).validator(target=self.target, eta=self.eta, epsilon=Fraction(1))
            return
        of_classes = self.is_accuracy or self.loss in CLASS_LOSSES
        if of_classes is not features.has_classes:
            raise BadParameter("label", "must have declared values" if of_classes else "must be a number")
        if trainer.kind != NETWORK and (trainer.kind == LINEAR) is features.has_classes:
            raise BadParameter("trainer", f"{trainer.kind} cannot learn this label")
        if self.levels and (trainer.kind != LINEAR or of_classes):
            raise BadParameter("reject", "is for linear regression: only lines have a net")
        if self.levels:
            self.net(features)

    def net(self, features: Features) -> LineNet | None:
        """Return the net of lines; None if there is none."""
        return LineNet(features, self.levels) if self.levels else None

    def create(self, *, epsilon: Fraction, eta: Fraction, net: LineNet | None) -> validators.Validator:
        """Create a validator that costs ε. With a net, each of the two tests costs half of it."""
        if self.is_accuracy:
            return validators.AccuracyValidator(target=self.target, eta=eta, epsilon=epsilon)
        assert self.bound is not None
        each, step = epsilon if net is None else epsilon / 2, self.step or self.bound / 1000
        best = None if net is None else validators.BestInClass(models=net.models, epsilon=each)
        return validators.LossValidator(
            target=self.target, bound=self.bound, step=step, eta=eta, epsilon=each, best=best
        )

    def values(self, model: Learner, features: Features, rows: PrivateRows) -> ValidationRows:
        """Return the values that the validator reads, from rows that did not train. They are private."""
        if self.is_accuracy:
            return ValidationRows(rows_correct(model, features, rows), units=rows.units)
        net = self.net(features)
        return ValidationRows(
            row_losses(self.loss, model, features, rows),
            units=rows.units,
            of_class=None if net is None else net.of_class(self.loss, rows),
        )
