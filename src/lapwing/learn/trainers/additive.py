"""Additive trees: boosting where each tree splits on one column (after DP-EBM, Nori and others 2021).

Claim    without one unit, the counts move by at most √columns in L2, each tree's errors by at most REACH.
Because  a unit has one row, which is in at most one leaf of a tree, with an error of length at most REACH.
Test     tests/learn/trainers/test_neighbours.py::test_one_unit_moves_every_sum_within_its_price
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lapwing.exact import Number, positive, whole
from lapwing.learn.purse import Purse
from lapwing.learn.trainers.classifier import ScoredClassifier
from lapwing.learn.trainers.columns import (
    UNKNOWN,
    Binned,
    Category,
    Column,
    Wholes,
    classes_of,
    coded_of,
    codes,
    labels,
)
from lapwing.learn.trainers.counts import COUNT, counted, looked_up, starts
from lapwing.learn.trainers.errors import FAR, FINE, REACH, errors, outputs_of
from lapwing.learn.trainers.pricing import Part, Run, priced
from lapwing.learn.trainers.shape import Floats
from lapwing.learn.trainers.trainer import Model

_LOOK = Fraction(1, 10)  # share of the counts
_CURVE = 0.15  # about the mean of p (1 - p): what a row adds to a leaf's second derivative


class AdditiveTrees(ScoredClassifier):
    """Which class, by a sum of curves, one for each column. Columns are Category or Binned.

    `passes` over all columns; in each, every column gets a tree whose leaves move by `stride` of the
    way that lowers the loss most, less where the noise is larger than the leaf.
    """

    mechanism: ClassVar[str] = "additive trees"
    curves_: Floats

    def __init__(
        self,
        *,
        epsilon: Number,
        delta: Number,
        columns: Column | Sequence[Column],
        classes: Sequence[Hashable],
        purse: Purse,
        passes: int = 5,
        stride: float = 0.5,
    ) -> None:
        self.epsilon, self.delta, self.columns, self.classes = epsilon, delta, columns, classes
        self.purse, self.passes, self.stride = purse, passes, stride

    def _scores(self, X: Any) -> Floats:  # noqa: N803
        table = self._table(X)
        columns = coded_of(self.columns, table.shape[1])
        return looked_up(codes(columns, table), starts(columns), self.curves_)

    def _price(self, columns: int) -> Run:
        widths = [column.width for column in coded_of(self.columns, columns)]
        passes, outputs = (
            whole(self.passes, "passes", at_least=1),
            outputs_of(len(classes_of(self.classes))),
        )
        positive(self.stride, "stride")
        look = Part(columns * COUNT**2, sum(widths), share=_LOOK)
        tree = Part(REACH**2, max(widths) * outputs, passes * columns, 1 - _LOOK)
        return priced(self.epsilon, self.delta, (look, tree))

    def _train(self, run: Run, table: NDArray[Any], target: Any) -> Model:
        columns, classes = coded_of(self.columns, table.shape[1]), classes_of(self.classes)
        boosting = Boosting(run, columns, float(self.stride))
        truth, outputs = labels(classes, target), outputs_of(len(classes))
        return {"curves": boosting.curves(codes(columns, table), truth, outputs).tolist()}


class Boosting:
    """Trees in turn, each on what the earlier ones got wrong; the mean of the later half is kept."""

    def __init__(self, run: Run, columns: Sequence[Category | Binned], stride: float) -> None:
        self._run, self._columns, self._stride = run, columns, stride
        self._starts = starts(columns)

    def curves(self, rows: Wholes, truth: Wholes, outputs: int) -> Floats:
        """What each value of each column adds to each score."""
        leaves = sum(column.width for column in self._columns)
        passes = self._run.parts[1].count // len(self._columns)
        counts = self._run.release(0, COUNT * counted(rows, self._starts, 0 * truth, (leaves, 1))) / COUNT
        scores = np.zeros((len(rows), outputs), dtype=np.int64)  # whole steps: adding them up is exact
        curves = np.zeros((leaves, outputs), dtype=np.int64)
        mean = np.zeros((leaves, outputs))
        for passed in range(passes):
            for at, column in enumerate(self._columns):
                first = self._starts[at]
                moved = self._tree(rows[:, at], scores, truth, counts[first : first + column.width])
                curves[first : first + column.width] += moved
                scores += np.where(rows[:, at, None] == UNKNOWN, 0, moved[np.maximum(rows[:, at], 0)])
            mean += curves * (passed >= passes // 2)
        return mean / (passes - passes // 2) / FINE

    def _tree(self, leaf: Wholes, scores: Wholes, truth: Wholes, counts: Floats) -> Wholes:
        """What is added in each leaf, in steps of a score."""
        part, width = self._run.parts[1], len(counts)
        sums = leaf_errors(leaf, errors(scores, truth), part.dimension // scores.shape[1])
        noisy = self._run.release(1, sums.ravel()).reshape(sums.shape)[:width] / REACH
        noise = float(self._run.sigmas[1]) / REACH
        steepness = _CURVE * np.maximum(counts, 0.0) + noise
        moved = np.rint(-self._stride * FINE * noisy / steepness[:, None])
        return np.clip(moved, -FAR * FINE, FAR * FINE).astype(np.int64)


def leaf_errors(leaf: Wholes, wrong: Wholes, leaves: int) -> Wholes:
    """The sum of the rows' errors in each leaf. Rows of unknown value are in none."""
    known = leaf != UNKNOWN
    sums = [np.bincount(leaf[known], column[known], minlength=leaves) for column in wrong.T]
    return np.rint(np.column_stack(sums)).astype(np.int64)  # sums of whole numbers below 2^53 are exact
