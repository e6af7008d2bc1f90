"""The trainer and the validator of a pipeline, as its file names them, made anew for each attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Protocol

from lapwing.errors import BadParameter
from lapwing.exact import positive
from lapwing.learn.features import Features
from lapwing.learn.pipelines import layout, statistics
from lapwing.learn.pipelines.losses import OF_CLASSES, OF_NUMBERS, Net, row_losses, rows_right
from lapwing.learn.pipelines.network import Network
from lapwing.learn.pipelines.statistics import Statistic
from lapwing.learn.purse import Purse, Stored
from lapwing.learn.trainers import (
    AdditiveTrees,
    Binned,
    Column,
    LinearRegression,
    LogisticRegression,
    NaiveBayes,
    Real,
)
from lapwing.learn.validators import AccuracyValidator, BestInClass, LossValidator, Validator
from lapwing.learn.validators import Rows as Judging
from lapwing.learn.validators.validator import checked_eta
from lapwing.privacy import Loss
from lapwing.query.rows import Rows

LINEAR, LOGISTIC, BAYES, TREES = "linear regression", "logistic regression", "naive Bayes", "additive trees"
NETWORK = "network"
OPTIONS: Mapping[str, tuple[str, ...]] = {
    LINEAR: ("radius",),
    LOGISTIC: ("rate", "steps", "pace", "radius"),
    BAYES: ("bins",),
    TREES: ("passes", "stride", "bins"),
    NETWORK: layout.OPTIONS,
    statistics.MEAN: (),
    statistics.HISTOGRAM: ("bins",),
}
LEAST_BINS, MOST_BINS = 2, 1000
MOST = {
    "steps": 100_000,
    "passes": 1_000,
}  # of other trainers than networks: more would take days
BINS = 16
MOST_UNITS = 1 << 22  # the price of a network's steps reaches no further
ERROR = "error"  # of a statistic, beside the losses of models
Setting = int | float | str | tuple[int, ...]


class Learner(Protocol):
    """What a pipeline needs of a trainer. Classifiers have `predict_proba` besides."""

    def price(self, n_features: int) -> Loss:
        """What `fit` would cost."""

    def fit(self, X: Any, y: Any, units: Any = None) -> Any:  # noqa: N803
        """Pay, and train."""

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Numbers, or positions of classes."""


@dataclass(frozen=True, slots=True)
class TrainerPart:
    """A kind of trainer and its settings. `bins`: into how many equal parts numbers are cut."""

    kind: str
    settings: Mapping[str, Setting] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if self.kind not in OPTIONS:
            raise BadParameter("kind", f"must be one of {', '.join(OPTIONS)}")
        for name in self.settings:
            if name not in OPTIONS[self.kind]:
                raise BadParameter(name, f"is no setting of {self.kind}")
        if self.kind == NETWORK:
            layout.Layout.of(self.settings)
            return
        for name, most in MOST.items():
            _require_whole(self.settings, name, 1, most)
        most_bins = statistics.MOST_BINS if self.is_statistic else MOST_BINS
        _require_whole(self.settings, "bins", LEAST_BINS, most_bins)

    @property
    def needs_size(self) -> bool:
        """Whether a public number of units must be declared."""
        return self.kind in (LOGISTIC, NETWORK)

    @property
    def is_statistic(self) -> bool:
        """Whether it learns no model, but releases a number or a few."""
        return self.kind in statistics.KINDS

    @property
    def plain(self) -> dict[str, Any]:
        """The settings as plain values, for JSON."""
        return {name: list(one) if isinstance(one, tuple) else one for name, one in self.settings.items()}

    def statistic(self, features: Features) -> Statistic:
        """The statistic that it is."""
        bins = self.settings.get("bins")
        return Statistic(self.kind, features, None if bins is None else int(str(bins)))

    def made(
        self, features: Features, *, epsilon: Fraction, delta: Fraction, size: int | None, purse: Purse
    ) -> Learner:
        """A trainer of these features. `size`: about how many units train, as declared."""
        common: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "purse": purse}
        settings: dict[str, Any] = {name: one for name, one in self.settings.items() if name != "bins"}
        if self.needs_size and size is None:
            raise BadParameter("units_per_block", f"is needed by {self.kind}")
        if self.kind == NETWORK:
            if size is not None and size > MOST_UNITS:
                raise BadParameter("units_per_block", f"and blocks come to more than {MOST_UNITS:,} units")
            classes = features.classes if features.has_classes else None
            target = None if features.has_classes else Real(*features.target_bounds)
            own = layout.Layout.of(settings)
            return Network(
                own, **common, columns=features.declared, classes=classes, target=target, size=size or 1
            )
        if self.kind == LINEAR:
            low, high = features.target_bounds
            return LinearRegression(**common, columns=features.declared, target=Real(low, high), **settings)
        if self.kind == LOGISTIC:
            return LogisticRegression(
                **common, columns=features.declared, classes=features.classes, size=size or 1, **settings
            )
        bins = int(str(self.settings.get("bins", BINS)))
        columns = tuple(_cut(column, bins) for column in features.declared)
        make: Callable[..., Learner] = NaiveBayes if self.kind == BAYES else AdditiveTrees
        return make(**common, columns=columns, classes=features.classes, **settings)

    def loaded(self, features: Features, *, epsilon: Fraction, delta: Fraction, model: bytes) -> Learner:
        """A trainer that has learned what was stored."""
        trainer = self.made(features, epsilon=epsilon, delta=delta, size=1, purse=Stored(model))
        if isinstance(trainer, Network):
            return trainer.load(model)
        empty = features.coded({column.name: [] for column in features.columns})
        return _fitted(trainer, features, empty, is_labelled=False)


def _require_whole(settings: Mapping[str, Setting], name: str, least: int, most: int) -> None:
    value = settings.get(name, least)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadParameter(name, f"must be a whole number from {least} to {most:,}")


def _cut(column: Column, bins: int) -> Column:
    if not isinstance(column, Real):
        return column
    low, width = column.low, column.high - column.low
    return Binned([float(low + width * k / bins) for k in range(1, bins)])


def fitted(trainer: Learner, features: Features, rows: Rows) -> Learner:
    """The trainer, trained on rows whose label is known. Private."""
    return _fitted(trainer, features, rows, is_labelled=True)


def _fitted(trainer: Learner, features: Features, rows: Rows, *, is_labelled: bool) -> Learner:
    target: Any = features.target(rows) if is_labelled else []
    trained: Learner = trainer.fit(features.table(rows), target, units=rows.units)
    return trained


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatorPart:
    """What must be shown. `loss`: of which kind; "" where it is accuracy, `ERROR` of a statistic.

    `levels`: of the net of lines by which a hopeless target is rejected; 0 for none.
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
            checked_eta(self.eta)
            return
        if self.loss not in ("", *OF_NUMBERS, *OF_CLASSES):
            raise BadParameter("loss", f"must be one of {', '.join((*OF_NUMBERS, *OF_CLASSES))}")
        if self.loss and self.bound is None:
            raise BadParameter("bound", "is needed: losses are clipped to it")
        self.made(epsilon=Fraction(1), eta=self.eta, net=None)  # says what is wrong

    @property
    def is_accuracy(self) -> bool:
        """Whether classes are counted, rather than losses."""
        return not self.loss

    @property
    def is_error(self) -> bool:
        """Whether it is about a statistic, rather than a model."""
        return self.loss == ERROR

    @property
    def what(self) -> str:
        """What is shown to be small, or (accuracy) large."""
        return self.loss or "accuracy"

    def check(self, features: Features, trainer: TrainerPart) -> None:
        """Whether this can judge what such a trainer predicts."""
        if trainer.is_statistic:
            trainer.statistic(features).validator(target=self.target, eta=self.eta, epsilon=Fraction(1))
            return
        of_classes = self.is_accuracy or self.loss in OF_CLASSES
        if of_classes is not features.has_classes:
            raise BadParameter("label", "must have declared values" if of_classes else "must be a number")
        if trainer.kind != NETWORK and (trainer.kind == LINEAR) is features.has_classes:
            raise BadParameter("trainer", f"{trainer.kind} cannot learn this label")
        if self.levels and (trainer.kind != LINEAR or of_classes):
            raise BadParameter("reject", "is for linear regression: only lines have a net")
        if self.levels:
            self.net(features)

    def net(self, features: Features) -> Net | None:
        """The net of lines, if there is one."""
        return Net(features, self.levels) if self.levels else None

    def made(self, *, epsilon: Fraction, eta: Fraction, net: Net | None) -> Validator:
        """A validator that costs ε: where there is a net, half of it for each."""
        if self.is_accuracy:
            return AccuracyValidator(target=self.target, eta=eta, epsilon=epsilon)
        assert self.bound is not None
        best = None if net is None else BestInClass(models=net.models, epsilon=epsilon / 2)
        return LossValidator(
            target=self.target,
            bound=self.bound,
            step=self.step or self.bound / 1000,
            eta=eta,
            epsilon=epsilon if best is None else epsilon / 2,
            best=best,
        )

    def values(self, model: Learner, features: Features, rows: Rows) -> Judging:
        """What the validator looks at: of rows that did not train. Private."""
        if self.is_accuracy:
            return Judging(rows_right(model, features, rows), units=rows.units)
        net = self.net(features)
        return Judging(
            row_losses(self.loss, model, features, rows),
            units=rows.units,
            of_class=None if net is None else net.of_class(self.loss, rows),
        )
