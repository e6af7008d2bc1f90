"""Classifiers from noisy counts: naive Bayes, and boosted trees that each split on one column.

Claim    without one unit, counts of F columns move by at most √F · COUNT in L2.
Because  a unit has one row, which is in at most one cell of each column's table.
Test     tests/learn/trainers/test_trainers_neighbours.py::test_a_bound_that_is_too_small_would_be_seen
         tests/learn/trainers/test_trainers_neighbours.py::test_one_unit_moves_every_sum_within_its_price

Claim    additive trees (after DP-EBM, Nori and others 2021): without one unit, the counts move by at most
         √columns in L2, and each tree's errors by at most REACH.
Because  a unit has one row, which is in at most one leaf of a tree, with an error of length at most REACH.
Test     tests/learn/trainers/test_trainers_neighbours.py::test_one_unit_moves_every_sum_within_its_price
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from lapwing.core.exact import positive, whole
from lapwing.learn.table_input import Cells, Floats, Wholes
from lapwing.learn.trainers.columns import (
    UNKNOWN,
    Binned,
    Category,
    Column,
    checked_classes,
    checked_coded_columns,
    class_codes,
    code_matrix,
)
from lapwing.learn.trainers.estimator import (
    COUNT,
    Classifier,
    ModelNumbers,
    ScoredClassifier,
    require_fitted,
)
from lapwing.learn.trainers.priced_releases import PricedReleases, ReleaseGroup
from lapwing.learn.trainers.question_columns import binned_column
from lapwing.learn.trainers.whole_vectors import FAR, FINE, REACH, score_count, score_errors
from lapwing.sql.policy.kinds import Kind


def column_starts(columns: Sequence[Column]) -> list[int]:
    """Return the position at which each column's values begin among all values."""
    return list(accumulate((column.width for column in columns), initial=0))[:-1]


def count_values(rows: Wholes, first: Sequence[int], truth: Wholes, shape: tuple[int, int]) -> Wholes:
    """Count the rows with each value and class."""
    cells, groups = shape
    total = np.zeros(cells, dtype=np.int64)
    for column, at in zip(rows.T, first, strict=True):
        known = (column != UNKNOWN) & (truth != UNKNOWN)
        total += np.bincount((at + column[known]) * groups + truth[known], minlength=cells)
    return total


def sum_of_values(rows: Wholes, first: Sequence[int], values: Floats) -> Floats:
    """Return, for each row, the sum over its columns of the entries of `values`. Unknown cells add 0."""
    total = np.zeros((len(rows), values.shape[1]))
    for column, at in zip(rows.T, first, strict=True):
        total += np.where(column[:, None] == UNKNOWN, 0.0, values[at + np.maximum(column, 0)])
    return total


class CodedClassifier(Classifier):
    """A classifier whose columns all have finitely many values."""

    def _column_of(self, name: str, kind: Kind) -> Column:
        """Return the declaration of a column of a question: numbers are cut into equal intervals."""
        return binned_column(super()._column_of(name, kind))

    def _coded(self, table: Cells) -> tuple[tuple[Category | Binned, ...], Wholes]:
        """Return the declared columns, and the codes of all rows."""
        columns = checked_coded_columns(self._declared, table.shape[1])
        return columns, code_matrix(columns, table)

    def _codes(self, X: Any) -> tuple[Wholes, list[int]]:  # noqa: N803
        """Return the codes of the rows to predict for, and the position at which each column begins."""
        columns, rows = self._coded(self._table(X))
        return rows, column_starts(columns)


@dataclass(kw_only=True, eq=False, repr=False)
class NaiveBayes(CodedClassifier):
    """Naive Bayes: classes as if columns were independent within each. Columns are Category or Binned.

    Args:
        epsilon: The price in ε. `Dataset.fit` gives it.
        delta: The price in δ, above 0. `Dataset.fit` gives it.
        columns: The columns of X: one declaration for all, one for each in order, or by name. None: those
            of the policy, in `Dataset.fit`.
        payer: The payer of every fit. None: `fit` or `Dataset.fit` has one.
        classes: The possible classes, as the rows have them. None: those of the policy, in `Dataset.fit`.
        class_check: The share of the run that counts rows by class, so that classes that are written
            otherwise in the rows are told (`ClassNotSeen`). 0: no such count.

    Example:
        >>> from lapwing.learn import NaiveBayes
        >>> model = dataset.fit(NaiveBayes(), "SELECT stay, cost, ward FROM visits", epsilon=1)
        >>> len(model.classes_)
        4
    """

    mechanism: ClassVar[str] = "naive bayes"
    prior_: Floats = field(init=False)
    logs_: Floats = field(init=False)

    def predict_log_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return logarithms of the estimated probabilities of the classes."""
        scores = self._scores(X)
        scores -= scores.max(axis=1, keepdims=True)
        normalised: Floats = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return normalised

    def _scores(self, X: Any) -> Floats:  # noqa: N803
        return sum_of_values(*self._codes(X), self.logs_) + self.prior_

    def _price(self, columns: int) -> PricedReleases:
        described, classes = checked_coded_columns(self.columns, columns), checked_classes(self.classes)
        cells = sum(column.width for column in described) * len(classes)
        return self._priced(ReleaseGroup(columns * COUNT**2, cells))

    def _train(self, run: PricedReleases, table: Cells, target: Any) -> ModelNumbers:
        (columns, rows), classes = self._coded(table), checked_classes(self.classes)
        shape = run.parts[0].dimension, len(classes)
        exact = count_values(rows, column_starts(columns), class_codes(classes, target), shape)
        noisy = run.release(0, exact * COUNT).reshape(-1, len(classes)) / COUNT
        return log_shares(noisy, [column.width for column in columns], float(run.sigmas[0]) / COUNT)


def log_shares(counts: Floats, widths: Sequence[int], sigma: float) -> ModelNumbers:
    """Return logarithms of shares. Counts within the noise of 0 are drawn towards equal shares."""
    logs: list[list[float]] = []
    totals = []
    for part, width in zip(np.split(counts, np.cumsum(widths)[:-1]), widths, strict=True):
        totals.append(part.sum(axis=0) / width)  # its noise has variance σ² / width
        smooth = np.maximum(part, 0.0) + max(1.0, sigma) / 2
        logs += np.log(smooth / smooth.sum(axis=0)).tolist()
    # The class totals of every column estimate the same number, with less noise in narrower columns.
    prior = np.average([total * width for total, width in zip(totals, widths, strict=True)], axis=0,
                       weights=[1 / width for width in widths])  # fmt: skip
    shares = np.maximum(prior, 1.0)
    return {"prior": np.log(shares / shares.sum()).tolist(), "logs": logs}


_LOOK = Fraction(1, 10)  # share of the counts
_CURVE = 0.15  # about the mean of p (1 - p), a row's part of a leaf's second derivative


@dataclass(kw_only=True, eq=False, repr=False)
class AdditiveTrees(CodedClassifier, ScoredClassifier):
    """A classifier by a sum of curves, one for each column. Columns are Category or Binned.

    In each pass over all columns, every column gets a tree whose leaves move by a part of the step that
    lowers the loss most, and less where the noise is larger than the leaf.

    Args:
        epsilon: The price in ε. `Dataset.fit` gives it.
        delta: The price in δ, above 0. `Dataset.fit` gives it.
        columns: The columns of X: one declaration for all, one for each in order, or by name. None: those
            of the policy, in `Dataset.fit`.
        payer: The payer of every fit. None: `fit` or `Dataset.fit` has one.
        classes: The possible classes, as the rows have them. None: those of the policy, in `Dataset.fit`.
        class_check: The share of the run that counts rows by class, so that classes that are written
            otherwise in the rows are told (`ClassNotSeen`). 0: no such count.
        passes: The number of passes over all columns.
        stride: The part of the best step.

    Example:
        >>> from lapwing.learn import AdditiveTrees
        >>> model = dataset.fit(AdditiveTrees(), "SELECT stay, ward, urgent FROM visits", epsilon=1)
        >>> model.feature_importances_.shape
        (2,)
    """

    mechanism: ClassVar[str] = "additive trees"
    passes: int = 5
    stride: float = 0.5
    curves_: Floats = field(init=False)

    @property
    def feature_importances_(self) -> Floats:
        """The importance of each column, from the released curves alone: they add up to 1.

        A column's importance is how far its curve is from its mean, over all of its declared values. Rows
        do not count, so it costs nothing, and a value that few rows have counts as much as another one.
        """
        require_fitted(self)
        columns = checked_coded_columns(self._declared, self.n_features_in_)
        parts = np.split(self.curves_, column_starts(columns)[1:])
        spread = np.array([np.abs(part - part.mean(axis=0)).mean() for part in parts])
        return spread / max(float(spread.sum()), 1e-300)

    def _scores(self, X: Any) -> Floats:  # noqa: N803
        return sum_of_values(*self._codes(X), self.curves_)

    def _price(self, columns: int) -> PricedReleases:
        widths = [column.width for column in checked_coded_columns(self.columns, columns)]
        passes = whole(self.passes, "passes", at_least=1)
        outputs = score_count(len(checked_classes(self.classes)))
        positive(self.stride, "stride")
        look = ReleaseGroup(columns * COUNT**2, sum(widths), share=_LOOK)
        tree = ReleaseGroup(REACH**2, max(widths) * outputs, passes * columns, 1 - _LOOK)
        return self._priced(look, tree)

    def _train(self, run: PricedReleases, table: Cells, target: Any) -> ModelNumbers:
        (columns, rows), classes = self._coded(table), checked_classes(self.classes)
        truth = class_codes(classes, target)
        return {"curves": boost(run, columns, rows, truth, float(self.stride)).tolist()}


def boost(
    run: PricedReleases, columns: Sequence[Column], rows: Wholes, truth: Wholes, stride: float
) -> Floats:
    """Return the number that each value of each column adds to each score.

    Trees follow in turn, each fitted to the errors of the earlier ones. The mean of the later half is kept.
    """
    starts, widths = column_starts(columns), [column.width for column in columns]
    leaves, passes = sum(widths), run.parts[1].count // len(columns)
    outputs = run.parts[1].dimension // max(widths)
    counts = run.release(0, COUNT * count_values(rows, starts, 0 * truth, (leaves, 1))) / COUNT
    scores = np.zeros((len(rows), outputs), dtype=np.int64)  # whole steps: adding them up is exact
    curves = np.zeros((leaves, outputs), dtype=np.int64)
    mean = np.zeros((leaves, outputs))
    for passed in range(passes):
        for leaf, first, width in zip(rows.T, starts, widths, strict=True):
            own = slice(first, first + width)
            moved = _tree(run, leaf, score_errors(scores, truth), counts[own], stride)
            curves[own] += moved
            scores += np.where(leaf[:, None] == UNKNOWN, 0, moved[np.maximum(leaf, 0)])
        mean += curves * (passed >= passes // 2)
    return mean / (passes - passes // 2) / FINE


def _tree(run: PricedReleases, leaf: Wholes, wrong: Wholes, counts: Floats, stride: float) -> Wholes:
    """Return the number that each leaf adds to the scores, in steps of a score."""
    sums = leaf_error_sums(leaf, wrong, run.parts[1].dimension // wrong.shape[1])
    noisy = run.release(1, sums.ravel()).reshape(sums.shape)[: len(counts)] / REACH
    steepness = _CURVE * np.maximum(counts, 0.0) + float(run.sigmas[1]) / REACH
    moved = np.rint(-stride * FINE * noisy / steepness[:, None])
    return np.clip(moved, -FAR * FINE, FAR * FINE).astype(np.int64)


def leaf_error_sums(leaf: Wholes, wrong: Wholes, leaves: int) -> Wholes:
    """Return the sum of the rows' errors in each leaf. Rows of unknown value are in no leaf."""
    known = leaf != UNKNOWN
    sums = [np.bincount(leaf[known], column[known], minlength=leaves) for column in wrong.T]
    return np.rint(np.column_stack(sums)).astype(np.int64)  # sums of whole numbers below 2^53 are exact
