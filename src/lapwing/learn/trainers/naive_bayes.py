"""Naive Bayes from noisy counts of each column's values by class.

Claim    without one unit, the counts move by at most √columns in L2.
Because  a unit has one row, which is in at most one cell of each column's table.
Test     tests/learn/trainers/test_neighbours.py::test_one_unit_moves_every_sum_within_its_price
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lapwing.exact import Number
from lapwing.learn.purse import Purse
from lapwing.learn.trainers.columns import UNKNOWN, Column, classes_of, coded_of, codes, labels
from lapwing.learn.trainers.counts import COUNT, counted, starts
from lapwing.learn.trainers.pricing import Part, Run, priced
from lapwing.learn.trainers.shape import Floats
from lapwing.learn.trainers.trainer import ClassifierMixin, Model, Trainer


class NaiveBayes(ClassifierMixin, Trainer):  # type: ignore[misc]
    """Which class, as if columns were independent within each. Columns are Category or Binned."""

    mechanism: ClassVar[str] = "naive bayes"
    classes_: NDArray[Any]
    prior_: Floats
    logs_: Floats

    def __init__(
        self,
        *,
        epsilon: Number,
        delta: Number,
        columns: Column | Sequence[Column],
        classes: Sequence[Hashable],
        purse: Purse,
    ) -> None:
        self.epsilon, self.delta, self.columns = epsilon, delta, columns
        self.classes, self.purse = classes, purse

    def fit(self, X: Any, y: Any, units: Any = None) -> Self:  # noqa: N803
        """Train. One row of each unit is drawn; without `units`, each row is one."""
        self._fit(X, y, units)
        self.classes_ = classes_of(self.classes)
        return self

    def predict_log_proba(self, X: Any) -> Floats:  # noqa: N803
        """Logarithms of the estimated probabilities of the classes."""
        table = self._table(X)
        columns = coded_of(self.columns, table.shape[1])
        scores = np.tile(self.prior_, (len(table), 1))
        for column, at in zip(codes(columns, table).T, starts(columns), strict=True):
            scores += np.where(column[:, None] == UNKNOWN, 0.0, self.logs_[at + np.maximum(column, 0)])
        scores -= scores.max(axis=1, keepdims=True)
        normalised: Floats = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return normalised

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Estimated probabilities of the classes."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The likeliest class of each row."""
        likeliest = self.predict_log_proba(X).argmax(axis=1)
        found: NDArray[Any] = self.classes_[likeliest]
        return found

    def _price(self, columns: int) -> Run:
        described, classes = coded_of(self.columns, columns), classes_of(self.classes)
        cells = sum(column.width for column in described) * len(classes)
        return priced(self.epsilon, self.delta, (Part(columns * COUNT**2, cells),))

    def _train(self, run: Run, table: NDArray[Any], target: Any) -> Model:
        columns, classes = coded_of(self.columns, table.shape[1]), classes_of(self.classes)
        shape = run.parts[0].dimension, len(classes)
        exact = counted(codes(columns, table), starts(columns), labels(classes, target), shape)
        noisy = run.release(0, exact * COUNT).reshape(-1, len(classes)) / COUNT
        return estimated(noisy, [column.width for column in columns], float(run.sigmas[0]) / COUNT)


def estimated(counts: Floats, widths: Sequence[int], sigma: float) -> Model:
    """Logarithms of shares. What is within the noise of 0 is drawn towards equal shares."""
    logs, totals, at = np.zeros_like(counts), [], 0
    for width in widths:
        part = counts[at : at + width]
        totals.append(part.sum(axis=0) / width)  # its noise has variance σ² / width
        smooth = np.maximum(part, 0.0) + max(1.0, sigma) / 2
        logs[at : at + width] = np.log(smooth / smooth.sum(axis=0))
        at += width
    # The class totals of every column estimate the same: the narrower a column, the less noise.
    prior = np.average([total * width for total, width in zip(totals, widths, strict=True)], axis=0,
                       weights=[1 / width for width in widths])  # fmt: skip
    shares = np.maximum(prior, 1.0)
    return {"prior": np.log(shares / shares.sum()).tolist(), "logs": logs.tolist()}
