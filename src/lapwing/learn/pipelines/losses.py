"""What a model loses on a row, and a net of lines that says what no line can gain.

Claim    whatever a line with weights within ±1 loses on a row, some line of the net loses at most that, as
         `of_class` counts it.
Because  the nearest line of the net has every weight within half a mesh, so its prediction is within
         `reach` on every row; errors are counted as if they were shorter by that.
Test     tests/learn/pipelines/test_losses.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.exact import whole
from lapwing.learn.features import Features
from lapwing.learn.validators import OfClass
from lapwing.query.rows import Rows

Floats = NDArray[np.float64]
OF_NUMBERS = ("absolute error", "squared error")
OF_CLASSES = ("zero-one loss", "log loss")
MOST_LINES = 2000
_SMALLEST = 1e-300


def row_losses(kind: str, model: Any, features: Features, rows: Rows) -> Floats:
    """One loss for each row. Private."""
    table, truth = features.table(rows), features.target(rows)
    if not len(rows):
        return np.zeros(0)
    if kind in OF_NUMBERS:
        return _of_errors(kind, np.abs(np.asarray(model.predict(table)) - truth))
    if kind == "zero-one loss":
        return (~rows_right(model, features, rows)).astype(np.float64)
    likely = np.asarray(model.predict_proba(table))[np.arange(len(rows)), truth]
    # One by one: a vectorised logarithm may round by an element's place, and so by who else is there.
    return np.array([-math.log(share) for share in np.maximum(likely, _SMALLEST).tolist()])


def rows_right(model: Any, features: Features, rows: Rows) -> NDArray[np.bool_]:
    """Whether each prediction is the true class. Private."""
    if not len(rows):
        return np.zeros(0, np.bool_)
    predicted: Any = model.predict(features.table(rows))
    return np.asarray(predicted == features.target(rows), dtype=np.bool_)


def _of_errors(kind: str, errors: Floats) -> Floats:
    return errors if kind == "absolute error" else errors * errors


def _line(matrix: Floats, weights: Floats) -> Floats:
    """What a line says, -1 to 1. Column by column: a matrix's product may round by who else is there."""
    total = np.zeros(len(matrix))
    for column, weight in zip(matrix.T, weights, strict=True):
        total = total + column * weight
    return np.clip(total, -1, 1)


@dataclass(frozen=True, slots=True)
class Net:
    """Lines over the features of a matrix, each weight one of `levels` between -1 and 1, bias included.

    Features lie in [-1, 1]; so do predictions, where -1 and 1 are the bounds of what is predicted.
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
        """How many lines there are."""
        return int(self.levels ** (self.features.width + 1))

    @property
    def reach(self) -> Fraction:
        """How far a line's prediction can be from that of the nearest line of the net."""
        low, high = map(Fraction, self.features.target_bounds)
        mesh = Fraction(2, self.levels - 1)
        return mesh / 2 * (self.features.width + 1) * (high - low) / 2

    def of_class(self, kind: str, rows: Rows) -> OfClass:
        """What each line of the net loses on each row, less what the mesh can hide. Private."""
        low, high = self.features.target_bounds
        matrix = np.hstack([self.features.matrix(rows), np.ones((len(rows), 1))])
        truth = self.features.target(rows)
        # Half a part in a million more than the mesh hides, for the rounding of floats.
        reach = float(self.reach) + 1e-6 * (high - low)
        losses: Sequence[Floats] = [
            _of_errors(
                kind,
                np.maximum(
                    np.abs((low + high) / 2 + (high - low) / 2 * _line(matrix, weights) - truth) - reach,
                    0.0,
                ),
            )
            for weights in self._weights()
        ]
        return OfClass(losses, units=rows.units)

    def _weights(self) -> list[Floats]:
        axis = np.linspace(-1, 1, self.levels)
        return [np.array(point) for point in product(axis, repeat=self.features.width + 1)]
