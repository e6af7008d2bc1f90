"""Naive Bayes from noisy counts of each column's values by class.

Claim    without one unit, the counts move by at most √columns in L2.
Because  a unit has one row, which is in at most one cell of each column's table.
Test     tests/learn/trainers/test_neighbours.py::test_one_unit_moves_every_sum_within_its_price
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lapwing.exact import Number
from lapwing.learn.purse import Purse
from lapwing.learn.trainers.classifier import Classifier
from lapwing.learn.trainers.columns import Column, classes_of, coded_of, codes, labels
from lapwing.learn.trainers.counts import COUNT, counted, looked_up, starts
from lapwing.learn.trainers.pricing import Part, Run, priced
from lapwing.learn.trainers.shape import Floats
from lapwing.learn.trainers.trainer import Model


class NaiveBayes(Classifier):
    """Which class, as if columns were independent within each. Columns are Category or Binned."""

    mechanism: ClassVar[str] = "naive bayes"
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

    def predict_log_proba(self, X: Any) -> Floats:  # noqa: N803
        """Logarithms of the estimated probabilities of the classes."""
        scores = self._scores(X)
        scores -= scores.max(axis=1, keepdims=True)
        normalised: Floats = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return normalised

    def _scores(self, X: Any) -> Floats:  # noqa: N803
        table = self._table(X)
        columns = coded_of(self.columns, table.shape[1])
        return self.prior_ + looked_up(codes(columns, table), starts(columns), self.logs_)

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
