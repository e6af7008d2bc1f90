"""Logistic regression by noisy gradient descent, on all rows or on Poisson samples of them.

Claim    without one unit, each sum of gradients moves by at most REACH · LIMIT in L2, in whole numbers.
Because  a unit has one row; a row has length at most LIMIT and its error (probability minus truth) length
         at most REACH; its gradient is their product. Both are functions of that row and of what was
         released before, computed in whole numbers, table look-ups and single rounded operations.
Test     tests/learn/trainers/test_neighbours.py::test_one_unit_moves_every_sum_within_its_price

Before it, one release of the sum of all rows: rows are centred by its mean and then shortened to `radius`
(where columns are scaled to -1 … 1), so that wide bounds cost little.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lapwing.exact import Number, positive, whole
from lapwing.learn.purse import Purse
from lapwing.learn.trainers.classifier import ScoredClassifier
from lapwing.learn.trainers.columns import (
    ONE,
    Column,
    Wholes,
    classes_of,
    columns_of,
    features,
    labels,
    radius_of,
)
from lapwing.learn.trainers.errors import FINE, REACH, errors, outputs_of
from lapwing.learn.trainers.pricing import Part, Run, noise_ratio, priced, rate_of, size_of
from lapwing.learn.trainers.shape import Floats, products, shortened, summed
from lapwing.learn.trainers.trainer import Model
from lapwing.noise import bernoulli

LIMIT = 1 << 15  # length of a row with its constant, in steps
_CONSTANT = LIMIT // 4
_REST = math.isqrt(LIMIT**2 - _CONSTANT**2)
_WEIGHT = 1 << 20  # steps in a weight of 1
_LONGEST = 1 << 12  # length of the weights of one class: 2^12 · 2^20 · 2^15 stays below 2^53
_LOOK = Fraction(1, 10)  # share of the first release
_STRIDE = 8.0


class LogisticRegression(ScoredClassifier):
    """Which class, by weighted columns.

    `size`: about how many units there are, a public guess. `rate`: the probability with which a unit takes
    part in a step; 1 for all of them. `steps` and `pace` (learning rate over 1 - momentum) follow from
    size, ε and δ if they are None.
    """

    mechanism: ClassVar[str] = "logistic regression"
    centre_: Wholes
    weights_: Floats
    intercept_: Floats

    def __init__(
        self,
        *,
        epsilon: Number,
        delta: Number,
        columns: Column | Sequence[Column],
        classes: Sequence[Hashable],
        size: int,
        purse: Purse,
        rate: Number = 1,
        steps: int | None = None,
        pace: float | None = None,
        radius: float = 0.5,
    ) -> None:
        self.epsilon, self.delta, self.columns, self.classes = epsilon, delta, columns, classes
        self.size, self.purse, self.rate = size, purse, rate
        self.steps, self.pace, self.radius = steps, pace, radius

    def _scores(self, X: Any) -> Floats:  # noqa: N803
        table = self._table(X)
        rows = _centred(
            features(columns_of(self.columns, table.shape[1]), table), self.centre_, self._radius()
        )
        return (products(rows, self.weights_, LIMIT) + _CONSTANT * self.intercept_) / LIMIT

    def _radius(self) -> int:
        return radius_of(self.radius)

    def _plan(self) -> tuple[int, float]:
        """Steps and pace: longer and faster the smaller the noise is beside the data."""
        signal = size_of(self.size) / noise_ratio(self.epsilon, self.delta)
        steps = (
            max(1, round(4 * signal ** (1 / 3)))
            if self.steps is None
            else whole(self.steps, "steps", at_least=1)
        )
        return steps, max(1.0, signal**0.5) if self.pace is None else float(positive(self.pace, "pace"))

    def _price(self, columns: int) -> Run:
        described, classes = columns_of(self.columns, columns), classes_of(self.classes)
        self._radius()
        wide = sum(column.width for column in described)
        dimension = (wide + 1) * outputs_of(len(classes))
        look = Part(columns * ONE * ONE, wide, share=_LOOK)
        step = Part((REACH * LIMIT) ** 2, dimension, self._plan()[0], 1 - _LOOK, rate_of(self.rate))
        return priced(self.epsilon, self.delta, (look, step))

    def _train(self, run: Run, table: NDArray[Any], target: Any) -> Model:
        rows = features(columns_of(self.columns, table.shape[1]), table)
        size, classes = size_of(self.size), classes_of(self.classes)
        centre = centre_of(run.release(0, rows.sum(axis=0)) / size, float(run.sigmas[0]) / size)
        descent = Descent(run, size, self._plan()[1])
        ready = with_constant(rows, centre, self._radius())
        weights = descent.weights(ready, labels(classes, target), len(classes))
        return {
            "centre": centre.tolist(),
            "weights": weights[:-1].tolist(),
            "intercept": weights[-1].tolist(),
        }


def _centred(rows: Wholes, centre: Wholes, radius: int) -> Wholes:
    return shortened(rows - centre, radius, _REST)


def with_constant(rows: Wholes, centre: Wholes, radius: int) -> Floats:
    """Centred, shortened, and with a constant at the end: at most LIMIT long, whole, held in floats."""
    ready = np.full((len(rows), rows.shape[1] + 1), float(_CONSTANT))
    ready[:, :-1] = _centred(rows, centre, radius)
    return ready


def centre_of(noisy: Floats, sigma: float) -> Wholes:
    """The mean row, drawn towards 0 where it is mostly noise (James and Stein), in whole steps."""
    signal = 1 - len(noisy) * sigma**2 / max(float(noisy @ noisy), 1e-300)
    return np.clip(np.rint(noisy * max(signal, 0.0)), -ONE, ONE).astype(np.int64)


class Descent:
    """Gradient descent with momentum on noisy sums; the mean of the second half of its way is kept."""

    def __init__(self, run: Run, size: int, pace: float) -> None:
        self._run, self._size, self._pace = run, size, pace
        self._rate, self._steps = run.parts[1].rate, run.parts[1].count

    def weights(self, rows: Floats, truth: Wholes, classes: int) -> Floats:
        """One column of weights for each score."""
        outputs = outputs_of(classes)
        at, speed, mean = np.zeros((3, rows.shape[1], outputs))
        stride = min(_STRIDE, self._pace)
        scale = REACH * LIMIT * self._size * float(self._rate)
        half = self._steps // 2
        for step in range(self._steps):
            part, labels_of = self._sample(rows, truth)
            sums = gradient(part, labels_of, at)
            noisy = self._run.release(1, sums.ravel()).reshape(sums.shape)
            speed = (1 - stride / self._pace) * speed + noisy / scale
            at = _bounded(at - stride * speed)
            mean += at * (step >= half)
        return mean / (self._steps - half)

    def _sample(self, rows: Floats, truth: Wholes) -> tuple[Floats, Wholes]:
        if self._rate == 1:
            return rows, truth
        drawn = bernoulli(self._rate, len(rows))
        return rows[drawn], truth[drawn]


def _bounded(weights: Floats) -> Floats:
    length = np.sqrt((weights * weights).sum(axis=0))
    bounded: Floats = weights * np.minimum(1.0, (_LONGEST - 1) / np.maximum(length, 1e-300))
    return bounded


def gradient(rows: Floats, truth: Wholes, weights: Floats) -> Wholes:
    """The sum of all rows' gradients, in steps of 1 / (REACH · LIMIT)."""
    steps = np.rint(weights * _WEIGHT)
    products = rows @ steps  # exact: no partial sum reaches 2^53
    scores = np.floor(products / (LIMIT * _WEIGHT // FINE)).astype(np.int64)
    return summed(rows, errors(scores, truth).astype(np.float64), REACH * LIMIT)
