"""Linear regression of all members' rows, by sufficient statistics.

Claim    the coefficients are those of least squares on noisy sums. Intervals cover the noise: if it is
         small beside the sums, they hold the coefficients of all members' truncated rows with about the
         stated confidence (measured, not proved). `standard_error` is the error that sampling a population
         would add, estimated from released sums; it is no part of the interval.
Because  with exact sums A₀θ₀ = b₀, and released A = A₀ + E, b = b₀ + e: A(θ - θ₀) = e - Eθ₀. So θ - θ₀ is a
         known combination of noises, except for θ₀, which is replaced by θ, and for A⁻¹, which contains E.
Test     tests/parties/statistics/test_regression.py

Variables are scaled to ±1 around the middle of their bounds, which keeps A well conditioned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.parties.protocols.protocol import Ints, OpenedSum
from lapwing.parties.statistics.statistic import DatasetStatistic, JointAnswer, Noise
from lapwing.sql.answering.estimates import AnswerColumn, AnswerRows
from lapwing.sql.dataset import Dataset
from lapwing.sql.joint_questions import JointQuestion
from lapwing.sql.pricing.noise_widths import NoiseFamily, noise_scale
from lapwing.sql.question.regression_sums import regression_sums

Floats = NDArray[np.float64]
MOST_VARIABLES = 20
INTERCEPT = "(intercept)"
NOISE_ONLY = "interval: noise only"
SAMPLING = "of a sample of a population; no part of the interval"
LOST_IN_NOISE = (
    "The noise is too large beside the sums: nothing can be told. Ask with more ε, or fewer variables."
)


class RegressionStatistic(DatasetStatistic):
    """The regression y = a + b·x + c·x' + …, over the rows without missing values."""

    def __init__(self, dataset: Dataset, table: str, y: str, x: Sequence[str]) -> None:
        """Bind the regression to columns with declared bounds. Nothing is read."""
        if isinstance(x, str) or not 0 < len(x) <= MOST_VARIABLES:
            raise BadParameter("x", f"must be 1 to {MOST_VARIABLES} columns")
        self._x = tuple(x)
        self._moments = regression_sums(dataset.policy, table, [*x, y])
        name = f"regression of {y} in {table}"
        super().__init__(JointQuestion(dataset, self._moments.question, name))
        self.spec = {"kind": "regression", "table": table, "y": y, "x": list(x)}
        self.title = f"linear regression of {y} on {', '.join(x)} in {table}"

    def answer(
        self, opened: Sequence[OpenedSum], noises: Sequence[Sequence[Noise]], *, confidence: Fraction
    ) -> JointAnswer:
        """Return the coefficients with intervals. They are None if they are lost in the noise."""
        own = self._summed(noises[0])
        sums = self._sums(opened[0].values, [noise_scale(noise) for noise in own])
        names = np.array([INTERCEPT, *self._x], dtype=object)
        fitted = _fitted(sums, self._to_units(), NoiseFamily.of(own[0], confidence).in_deviations)
        if fitted is None:
            nothing = np.full(len(names), None, dtype=object)
            columns, notes = (
                [AnswerColumn("coefficient", nothing), AnswerColumn("standard_error", nothing)],
                (LOST_IN_NOISE,),
            )
        else:
            values, half, errors = fitted
            columns = [
                AnswerColumn("coefficient", values, values - half, values + half, NOISE_ONLY),
                AnswerColumn("standard_error", errors, note=SAMPLING),
            ]
            notes = (f"From about {max(sums.matrix[0, 0], 0):,.0f} rows.",)
        rows = AnswerRows([AnswerColumn("term", names), *columns], len(names))
        return self._answered(rows, opened, confidence, notes)

    def _sums(self, values: Ints, scales: Sequence[float]) -> _Sums:
        """Return n, Σ z and Σ z z' as one matrix over (1, x…, y), z within ±1, with their noises."""
        reaches = [1.0, *(float(variable.reach) for variable in self._moments.variables)]
        places = [(0, 0), *((0, 1 + i) for i in range(len(reaches) - 1))]
        places += [(1 + i, 1 + j) for i, j in self._moments.pairs]
        matrix, noise = (np.zeros((len(reaches), len(reaches))) for _ in range(2))
        for (i, j), value, scale in zip(places, values, scales, strict=True):
            unit = reaches[i] * reaches[j]
            matrix[i, j] = matrix[j, i] = float(value) / unit
            noise[i, j] = noise[j, i] = scale / unit
        return _Sums(matrix, noise)

    def _to_units(self) -> tuple[Floats, Floats]:
        """Return T and c that turn coefficients of scaled variables into those of columns: T·θ + c."""
        *x, y = self._moments.variables
        height = float(y.step) * y.reach
        turn = np.zeros((1 + len(x), 1 + len(x)))
        turn[0, 0] = height
        for k, variable in enumerate(x, start=1):
            turn[0, k] = -height * variable.middle / variable.reach
            turn[k, k] = height / (variable.reach * float(variable.step))
        shift = np.zeros(1 + len(x))
        shift[0] = float(y.step) * y.middle
        return turn, shift


@dataclass(frozen=True, slots=True)
class _Sums:
    """Σ (1, x…, y)(1, x…, y)ᵀ, and the scale of the noise in each entry."""

    matrix: Floats
    noise: Floats


def _fitted(sums: _Sums, units: tuple[Floats, Floats], factor: float) -> tuple[Floats, ...] | None:
    """Return coefficients, half widths and standard errors, or None if the matrix is lost in noise."""
    a, b = sums.matrix[:-1, :-1], sums.matrix[:-1, -1]
    size = len(a)
    if np.linalg.eigvalsh(a)[0] <= 2 * math.sqrt(float((sums.noise[:-1, :-1] ** 2).sum())):
        return None
    theta = np.linalg.solve(a, b)
    turn, shift = units
    lever = turn @ np.linalg.inv(a)
    # The movement of each coefficient by each independent noise.
    squares = (lever**2) @ (sums.noise[:-1, -1] ** 2)
    for i in range(size):
        for j in range(i, size):
            moved = lever[:, i] * theta[j] + (lever[:, j] * theta[i] if i != j else 0.0)
            squares += (moved * sums.noise[i, j]) ** 2
    rest = max(float(sums.matrix[-1, -1] - theta @ b), 0.0)
    freedom = max(float(a[0, 0]) - size, 1.0)
    spread = np.maximum(np.einsum("ij,ij->i", lever @ a, lever), 0.0)
    return turn @ theta + shift, factor * np.sqrt(squares), np.sqrt(rest / freedom * spread)
