"""The trainer and the validator of a pipeline, as its file names them, made anew for each attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from lapwing.errors import BadParameter
from lapwing.learn.features import Features
from lapwing.learn.pipelines.losses import OF_CLASSES, OF_NUMBERS, Net, row_losses, rows_right
from lapwing.learn.purse import Paid, PublicData, Purse
from lapwing.learn.trainers import (
    AdditiveTrees,
    Binned,
    Column,
    LinearRegression,
    LogisticRegression,
    NaiveBayes,
    Real,
)
from lapwing.learn.trainers.trainer import Trainer
from lapwing.learn.validators import AccuracyValidator, BestInClass, LossValidator, Validator
from lapwing.learn.validators import Rows as Judging
from lapwing.privacy import Loss, Relation
from lapwing.query.rows import Rows

LINEAR, LOGISTIC, BAYES, TREES = "linear regression", "logistic regression", "naive Bayes", "additive trees"
OPTIONS: Mapping[str, tuple[str, ...]] = {
    LINEAR: ("radius",),
    LOGISTIC: ("rate", "steps", "pace", "radius"),
    BAYES: ("bins",),
    TREES: ("passes", "stride", "bins"),
}
BINS = 16


@dataclass(frozen=True, slots=True)
class TrainerPart:
    """A kind of trainer and its settings. `bins`: into how many equal parts numbers are cut."""

    kind: str
    settings: Mapping[str, int | float] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if self.kind not in OPTIONS:
            raise BadParameter("kind", f"must be one of {', '.join(OPTIONS)}")
        for name in self.settings:
            if name not in OPTIONS[self.kind]:
                raise BadParameter(name, f"is no setting of {self.kind}")

    @property
    def needs_size(self) -> bool:
        """Whether a public number of units must be declared."""
        return self.kind == LOGISTIC

    def made(
        self, features: Features, *, epsilon: Fraction, delta: Fraction, size: int | None, purse: Purse
    ) -> Trainer:
        """A trainer of these features. `size`: about how many units train, as declared."""
        common: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "purse": purse}
        settings: dict[str, Any] = {name: one for name, one in self.settings.items() if name != "bins"}
        if self.kind == LINEAR:
            low, high = features.target_bounds
            return LinearRegression(**common, columns=features.declared, target=Real(low, high), **settings)
        classes = features.classes
        if self.kind == LOGISTIC:
            if size is None:
                raise BadParameter("units_per_block", f"is needed by {self.kind}")
            return LogisticRegression(
                **common, columns=features.declared, classes=classes, size=size, **settings
            )
        bins = int(self.settings.get("bins", BINS))
        columns = tuple(_cut(column, bins) for column in features.declared)
        make: Callable[..., Trainer] = NaiveBayes if self.kind == BAYES else AdditiveTrees
        return make(**common, columns=columns, classes=classes, **settings)

    def loaded(self, features: Features, *, epsilon: Fraction, delta: Fraction, model: bytes) -> Trainer:
        """A trainer that has learned what was stored."""
        trainer = self.made(features, epsilon=epsilon, delta=delta, size=1, purse=_Stored(model))
        empty = features.coded({column.name: [] for column in features.columns})
        return _fitted(trainer, features, empty, is_labelled=False)


def _cut(column: Column, bins: int) -> Column:
    if not isinstance(column, Real):
        return column
    if not 2 <= bins <= 1000:
        raise BadParameter("bins", "must be 2 to 1,000")
    low, width = column.low, column.high - column.low
    return Binned([float(low + width * k / bins) for k in range(1, bins)])


class Inside(Purse):
    """Pays for nothing by itself: its work is part of one that was charged, at the price it knows."""

    def __init__(self, price: Loss) -> None:
        self._price: Loss | None = price
        self.result = b""

    @property
    def relation(self) -> Relation:
        return Relation.ADD_REMOVE

    def pay(
        self, loss: Loss, run: Callable[[], bytes], *, mechanism: str, parameters: Mapping[str, str | int]
    ) -> Paid:
        if loss != self._price:
            raise BadParameter("loss", "is not the one that was charged, or was used before")
        self._price = None
        self.result = run()
        return Paid(self.result, None)


class _Stored(PublicData):
    """Gives what was made before, and makes nothing."""

    def __init__(self, model: bytes) -> None:
        self._model = model

    def pay(
        self, loss: Loss, run: Callable[[], bytes], *, mechanism: str, parameters: Mapping[str, str | int]
    ) -> Paid:
        return Paid(self._model, None, is_replay=True)


def fitted(trainer: Trainer, features: Features, rows: Rows) -> Trainer:
    """The trainer, trained on rows whose label is known. Private."""
    return _fitted(trainer, features, rows, is_labelled=True)


def _fitted(trainer: Trainer, features: Features, rows: Rows, *, is_labelled: bool) -> Trainer:
    target: Any = features.target(rows) if is_labelled else []
    trained: Trainer = trainer.fit(features.table(rows), target, units=rows.units)
    return trained


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatorPart:
    """What a model must be shown to reach. `loss`: of which kind; "" where it is accuracy.

    `levels`: of the net of lines by which a hopeless target is rejected; 0 for none.
    """

    target: Fraction
    eta: Fraction
    loss: str = ""
    bound: Fraction | None = None
    step: Fraction | None = None
    levels: int = 0

    def __post_init__(self) -> None:
        if self.loss not in ("", *OF_NUMBERS, *OF_CLASSES):
            raise BadParameter("loss", f"must be one of {', '.join((*OF_NUMBERS, *OF_CLASSES))}")
        if self.loss and self.bound is None:
            raise BadParameter("bound", "is needed: losses are clipped to it")
        self.made(epsilon=Fraction(1), eta=self.eta, net=None)  # says what is wrong

    @property
    def is_accuracy(self) -> bool:
        """Whether classes are counted, rather than losses."""
        return not self.loss

    def check(self, features: Features, trainer: TrainerPart) -> None:
        """Whether this can judge what such a trainer predicts."""
        of_classes = self.is_accuracy or self.loss in OF_CLASSES
        if of_classes is not features.has_classes:
            raise BadParameter("label", "must have declared values" if of_classes else "must be a number")
        if (trainer.kind == LINEAR) is features.has_classes:
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

    def values(self, model: Trainer, features: Features, rows: Rows) -> Judging:
        """What the validator looks at: of rows that did not train. Private."""
        if self.is_accuracy:
            return Judging(rows_right(model, features, rows), units=rows.units)
        net = self.net(features)
        return Judging(
            row_losses(self.loss, model, features, rows),
            units=rows.units,
            of_class=None if net is None else net.of_class(self.loss, rows),
        )
