"""Linear regression, principal components and logistic regression.

The first two need one noisy release of second moments.

Claim    without one unit, the upper half of Σ xxᵀ moves by at most √((b² + m b) / 2) in L2, where b bounds
         a row's squared length and m its largest squared entry.
Because  Σ_{i≤j} x_i² x_j² = (|x|⁴ + Σ x_i⁴) / 2, and Σ x_i⁴ ≤ m |x|².
Test     tests/learn/trainers/test_trainers_neighbours.py::test_one_unit_moves_every_sum_within_its_price

Claim    linear regression is (ε, δ)-private: one release of the moments of (columns, 1, target), from which
         all else is computed. It uses as much ridge as the noise needs (after AdaSSP, Wang 2018).
Because  each of the three has bounded entries, so a row's squared length is bounded.
Test     tests/learn/trainers/test_trainers_neighbours.py::test_one_unit_moves_every_sum_within_its_price

Claim    principal components are (ε, δ)-private: one release of the moments of (columns, 1), from which all
         else is computed.
Because  each has bounded entries, so a row's squared length is bounded.
Test     tests/learn/trainers/test_trainers_neighbours.py::test_one_unit_moves_every_sum_within_its_price

Logistic regression is done by noisy gradient descent, on all rows or on Poisson samples of them.

Claim    without one unit, each sum of gradients moves by at most REACH · LIMIT in L2, in whole numbers.
Because  a unit has one row; a row has length at most LIMIT and its error (probability minus truth) length
         at most REACH; its gradient is their product. Both are functions of that row and of what was
         released before, computed in whole numbers, table look-ups and single rounded operations.
Test     tests/learn/trainers/test_trainers_neighbours.py::test_one_unit_moves_every_sum_within_its_price

The first release is the sum of all rows: rows are centred by its mean and then shortened to `radius`
(where columns are scaled to -1 … 1), so that wide bounds cost little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin, TransformerMixin  # type: ignore[import-untyped]

from lapwing.core.exact import Number, positive, whole
from lapwing.core.noise import bernoulli
from lapwing.errors import BadParameter
from lapwing.learn.table_input import Cells, Floats, Truths, Wholes
from lapwing.learn.trainers import whole_vectors
from lapwing.learn.trainers.columns import (
    ONE,
    Real,
    checked_classes,
    class_codes,
    radius_in_steps,
)
from lapwing.learn.trainers.estimator import (
    ModelNumbers,
    PricedReleases,
    ReleaseGroup,
    ScoredClassifier,
    Trainer,
    checked_rate,
    noise_ratio,
)
from lapwing.learn.trainers.whole_vectors import FINE, REACH, exact_cross_sum, exact_products, score_errors


def moments_release(squared_length: int, wide: int) -> ReleaseGroup:
    """Return the release of Σ xxᵀ for rows of `wide` entries up to ONE, of this squared length."""
    reach = (squared_length * squared_length + ONE * ONE * squared_length) // 2
    return ReleaseGroup(reach, wide * (wide + 1) // 2)


def upper_half(rows: Wholes) -> Wholes:
    """Return Σ x_i x_j for i <= j, exactly."""
    held = rows.astype(np.float64)
    return exact_cross_sum(held, held, ONE * ONE)[np.triu_indices(rows.shape[1])]


def noisy_moments(run: PricedReleases, rows: Wholes) -> Floats:
    """Return Σ xxᵀ with noise, as a symmetric matrix, for columns scaled to -1 … 1."""
    half = run.release(0, upper_half(rows)) / (ONE * ONE)
    wide = rows.shape[1]
    whole_matrix = np.zeros((wide, wide))
    whole_matrix[np.triu_indices(wide)] = half
    return whole_matrix + np.triu(whole_matrix, 1).T


def largest_noise_eigenvalue(run: PricedReleases, wide: int) -> float:
    """Estimate the largest eigenvalue of the noise: 2 σ √n for a symmetric n × n matrix (Wigner)."""
    return 2 * float(run.sigmas[0]) / (ONE * ONE) * math.sqrt(wide)


@dataclass(kw_only=True, eq=False, repr=False)
class MomentsTrainer(Trainer):
    """A trainer that needs one noisy release of second moments.

    Rows longer than `radius` (where columns are scaled to -1 … 1) are shortened; with None, no row is.
    """

    radius: float | None = None

    def _features(self, table: Cells) -> Wholes:
        rows = super()._features(table)
        if self.radius is None:
            return rows
        limit = radius_in_steps(self.radius)
        return whole_vectors.shorten(rows, limit, limit)

    def _priced_moments(self, columns: int, more: int) -> PricedReleases:
        """Price the moments of rows of these columns, with `more` entries beside their features."""
        length = columns * ONE * ONE
        if self.radius is not None:
            length = min(length, radius_in_steps(self.radius) ** 2)
        return self._priced(moments_release(length + more * ONE * ONE, self._width(columns) + more))

    def _moments(self, run: PricedReleases, table: Cells, *more: Wholes) -> Floats:
        """Release the moments of (features, 1, more)."""
        constant = np.full((len(table), 1), ONE, dtype=np.int64)
        return noisy_moments(run, np.hstack([self._features(table), constant, *more]))


@dataclass(kw_only=True, eq=False, repr=False)
class LinearRegression(RegressorMixin, MomentsTrainer):  # type: ignore[misc]
    """Linear regression of a number between declared bounds (`target`)."""

    mechanism: ClassVar[str] = "linear regression"
    target: Real
    weights_: Floats = field(init=False)
    intercept_: float = field(init=False)

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """Return the expected number, within the declared bounds."""
        found = exact_products(self._rows(X), self.weights_[:, None], ONE)[:, 0] / ONE + self.intercept_
        return self.target.value(np.clip(found, -1, 1))

    def _price(self, columns: int) -> PricedReleases:
        self._width(columns)  # refuses wrong columns
        if not isinstance(self.target, Real):
            raise BadParameter("target", "must be Real(low, high): the bounds of y")
        return self._priced_moments(columns, 2)

    def _train(self, run: PricedReleases, table: Cells, target: Any) -> ModelNumbers:
        moments = self._moments(run, table, self.target.features(target))
        noise = largest_noise_eigenvalue(run, len(moments) - 1)
        weights = ridge_weights(moments[:-1, :-1], moments[:-1, -1], noise)
        return {"weights": weights[:-1].tolist(), "intercept": float(weights[-1])}


def ridge_weights(moments: Floats, products: Floats, noise: float) -> Floats:
    """Solve for weights, with the least ridge that outweighs the noise if the moments do not."""
    values, vectors = np.linalg.eigh(moments)
    known = max(float(values[0]) - noise, 0.0)  # the least eigenvalue is about this or more
    ridge = max(noise - known, 0.0)
    tame = np.maximum(values + ridge, 1e-9 + noise * 1e-3)
    return vectors @ ((vectors.T @ products) / tame)


@dataclass(kw_only=True, eq=False, repr=False)
class PCA(TransformerMixin, MomentsTrainer):  # type: ignore[misc]
    """The directions in which rows differ most, for columns scaled to -1 … 1."""

    mechanism: ClassVar[str] = "principal components"
    learns_from_y: ClassVar[bool] = False
    n_components: int
    mean_: Floats = field(init=False)
    components_: Floats = field(init=False)

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """Return coordinates along the directions, measured from the mean."""
        rows = self._rows(X)
        middle = [math.fsum(self.mean_ * component) for component in self.components_]
        found: Floats = exact_products(rows, self.components_.T, ONE) / ONE - np.array(middle)
        return found

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Return the share of the rows' variance that the directions keep. It is not private."""
        away = self._rows(X) / ONE - self.mean_
        kept = away @ self.components_.T
        return float((kept**2).sum() / max(float((away**2).sum()), 1e-300))

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def _price(self, columns: int) -> PricedReleases:
        wide = self._width(columns)
        if whole(self.n_components, "n_components", at_least=1) > wide:
            raise BadParameter("n_components", f"must be at most {wide}, the number of features")
        return self._priced_moments(columns, 1)

    def _train(self, run: PricedReleases, table: Cells, target: Any) -> ModelNumbers:
        moments = self._moments(run, table)
        count = max(float(moments[-1, -1]), 1.0)
        mean = np.clip(moments[:-1, -1] / count, -1, 1)
        values, vectors = np.linalg.eigh(moments[:-1, :-1] / count - np.outer(mean, mean))
        first = np.argsort(values)[::-1][: self.n_components]
        return {
            "mean": mean.tolist(),
            "components": vectors[:, first].T.tolist(),
            "explained_variance": np.maximum(values[first], 0).tolist(),
        }


LIMIT = 1 << 15  # length of a row with its constant, in steps
_CONSTANT = LIMIT // 4
_REST = math.isqrt(LIMIT**2 - _CONSTANT**2)
_WEIGHT = 1 << 20  # steps in a weight of 1
_LONGEST = 1 << 12  # length of the weights of one class: 2^12 · 2^20 · 2^15 stays below 2^53
_LOOK = Fraction(1, 10)  # share of the first release
_STRIDE = 8.0


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(ScoredClassifier):
    """A linear classifier.

    `size` is a public guess of the number of units. `rate` is the probability with which a unit takes part
    in a step; 1 means all units. `steps` and `pace` (learning rate over 1 - momentum) follow from size, ε
    and δ if they are None.
    """

    mechanism: ClassVar[str] = "logistic regression"
    size: int
    rate: Number = 1
    steps: int | None = None
    pace: float | None = None
    radius: float = 0.5
    centre_: Wholes = field(init=False)
    weights_: Floats = field(init=False)
    intercept_: Floats = field(init=False)

    def _scores(self, X: Any) -> Floats:  # noqa: N803
        rows = _centred(self._rows(X), self.centre_, self._radius())
        return (exact_products(rows, self.weights_, LIMIT) + _CONSTANT * self.intercept_) / LIMIT

    def _radius(self) -> int:
        return radius_in_steps(self.radius)

    def _plan(self) -> tuple[int, float]:
        """Return steps and pace: more and faster steps, the smaller the noise is beside the data."""
        signal = whole(self.size, "size", at_least=1) / noise_ratio(self.epsilon, self.delta)
        usual = max(1, round(4 * signal ** (1 / 3)))
        steps = usual if self.steps is None else whole(self.steps, "steps", at_least=1)
        return steps, max(1.0, signal**0.5) if self.pace is None else float(positive(self.pace, "pace"))

    def _price(self, columns: int) -> PricedReleases:
        wide, outputs = self._width(columns), whole_vectors.score_count(len(checked_classes(self.classes)))
        self._radius()
        steps, rate = self._plan()[0], checked_rate(self.rate)
        look = ReleaseGroup(columns * ONE * ONE, wide, share=_LOOK)
        step = ReleaseGroup((REACH * LIMIT) ** 2, (wide + 1) * outputs, steps, 1 - _LOOK, rate)
        return self._priced(look, step)

    def _train(self, run: PricedReleases, table: Cells, target: Any) -> ModelNumbers:
        rows = self._features(table)
        size, classes = whole(self.size, "size", at_least=1), checked_classes(self.classes)
        centre = shrunken_mean(run.release(0, rows.sum(axis=0)) / size, float(run.sigmas[0]) / size)
        ready, truth = with_constant(rows, centre, self._radius()), class_codes(classes, target)
        weights = descend(run, ready, truth, size=size, pace=self._plan()[1])
        numbers = {"centre": centre, "weights": weights[:-1], "intercept": weights[-1]}
        return {name: found.tolist() for name, found in numbers.items()}


def _centred(rows: Wholes, centre: Wholes, radius: int) -> Wholes:
    return whole_vectors.shorten(rows - centre, radius, _REST)


def with_constant(rows: Wholes, centre: Wholes, radius: int) -> Floats:
    """Centre and shorten the rows, and add a constant: at most LIMIT long, whole numbers in floats."""
    ready = np.full((len(rows), rows.shape[1] + 1), float(_CONSTANT))
    ready[:, :-1] = _centred(rows, centre, radius)
    return ready


def shrunken_mean(noisy: Floats, sigma: float) -> Wholes:
    """Return the mean row in whole steps, drawn towards 0 where it is mostly noise (James and Stein)."""
    signal = 1 - len(noisy) * sigma**2 / max(float(noisy @ noisy), 1e-300)
    return np.clip(np.rint(noisy * max(signal, 0.0)), -ONE, ONE).astype(np.int64)


def descend(run: PricedReleases, rows: Floats, truth: Wholes, *, size: int, pace: float) -> Floats:
    """Return one column of weights for each score, by gradient descent with momentum on noisy sums.

    The mean of the second half of the steps is kept.
    """
    rate, steps = run.parts[1].rate, run.parts[1].count
    outputs: int = run.parts[1].dimension // rows.shape[1]
    at, speed, mean = np.zeros((3, rows.shape[1], outputs))
    stride, scale, half = min(_STRIDE, pace), REACH * LIMIT * size * float(rate), steps // 2
    for step in range(steps):
        drawn: slice | Truths = slice(None) if rate == 1 else bernoulli(rate, len(rows))
        sums = gradient_sum(rows[drawn], truth[drawn], at)
        noisy = run.release(1, sums.ravel()).reshape(sums.shape)
        speed = (1 - stride / pace) * speed + noisy / scale
        at = _bounded(at - stride * speed)
        mean += at * (step >= half)
    return mean / (steps - half)


def _bounded(weights: Floats) -> Floats:
    length = np.sqrt((weights * weights).sum(axis=0))
    bounded: Floats = weights * np.minimum(1.0, (_LONGEST - 1) / np.maximum(length, 1e-300))
    return bounded


def gradient_sum(rows: Floats, truth: Wholes, weights: Floats) -> Wholes:
    """Return the sum of all rows' gradients, in steps of 1 / (REACH · LIMIT)."""
    steps = np.rint(weights * _WEIGHT)
    products = rows @ steps  # exact: no partial sum reaches 2^53
    scores = np.floor(products / (LIMIT * _WEIGHT // FINE)).astype(np.int64)
    return exact_cross_sum(rows, score_errors(scores, truth).astype(np.float64), REACH * LIMIT)
