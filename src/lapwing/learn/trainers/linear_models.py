"""Second moments of bounded rows, released once: what linear regression and principal components need.

Claim    without one unit, the upper half of Σ xxᵀ moves by at most √((b² + m b) / 2) in L2, where b bounds
         a row's squared length and m its largest squared entry.
Because  Σ_{i≤j} x_i² x_j² = (|x|⁴ + Σ x_i⁴) / 2, and Σ x_i⁴ ≤ m |x|².
Test     tests/learn/trainers/test_neighbours.py::test_one_unit_moves_every_sum_within_its_price

Linear regression from noisy moments, with as much ridge as the noise needs (after AdaSSP, Wang 2018).

Claim    (ε, δ)-private: one release of the moments of (columns, 1, target), the rest is made of it.
Because  of `moments`; each of the three has bounded entries, so a row's squared length is bounded.
Test     tests/learn/trainers/test_neighbours.py::test_one_unit_moves_every_sum_within_its_price

Principal components of noisy moments.

Claim    (ε, δ)-private: one release of the moments of (columns, 1), the rest is made of it.
Because  of `moments`.
Test     tests/learn/trainers/test_neighbours.py::test_one_unit_moves_every_sum_within_its_price

Logistic regression by noisy gradient descent, on all rows or on Poisson samples of them.

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
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import Number, positive, whole
from lapwing.core.noise import bernoulli
from lapwing.errors import BadParameter
from lapwing.learn.payer import Payer
from lapwing.learn.trainers.columns import (
    ONE,
    Column,
    Real,
    Wholes,
    checked_classes,
    checked_columns,
    class_codes,
    feature_matrix,
    radius_in_steps,
)
from lapwing.learn.trainers.estimator import (
    ModelNumbers,
    RegressorMixin,
    ScoredClassifier,
    Trainer,
    TransformerMixin,
)
from lapwing.learn.trainers.pricing import (
    PricedReleases,
    ReleaseGroup,
    checked_rate,
    checked_size,
    noise_ratio,
    price_releases,
)
from lapwing.learn.trainers.whole_vectors import (
    FINE,
    REACH,
    Floats,
    exact_cross_sum,
    exact_products,
    score_count,
    score_errors,
    shorten,
)


def moments_release(squared_length: int, wide: int) -> ReleaseGroup:
    """The release of Σ xxᵀ for rows of `wide` entries up to ONE and of this squared length at most."""
    reach = (squared_length * squared_length + ONE * ONE * squared_length) // 2
    return ReleaseGroup(reach, wide * (wide + 1) // 2)


def upper_half(rows: Wholes) -> Wholes:
    """Σ x_i x_j for i <= j, exactly."""
    held = rows.astype(np.float64)
    return exact_cross_sum(held, held, ONE * ONE)[np.triu_indices(rows.shape[1])]


def noisy_moments(run: PricedReleases, rows: Wholes) -> Floats:
    """Σ xxᵀ with noise, as a symmetric matrix, for columns scaled to -1 … 1."""
    half = run.release(0, upper_half(rows)) / (ONE * ONE)
    wide = rows.shape[1]
    whole_matrix = np.zeros((wide, wide))
    whole_matrix[np.triu_indices(wide)] = half
    return whole_matrix + np.triu(whole_matrix, 1).T


def largest_noise_eigenvalue(run: PricedReleases, wide: int) -> float:
    """About the largest eigenvalue of the noise: 2 σ √n of a symmetric matrix of n rows (Wigner)."""
    return 2 * float(run.sigmas[0]) / (ONE * ONE) * math.sqrt(wide)


class LinearRegression(RegressorMixin, Trainer):  # type: ignore[misc]
    """A number between declared bounds (`target`), by weighted columns.

    Rows longer than `radius` (where columns are scaled to -1 … 1) are shortened; None: none is.
    """

    mechanism: ClassVar[str] = "linear regression"
    weights_: Floats
    intercept_: float

    def __init__(
        self,
        *,
        epsilon: Number,
        delta: Number,
        columns: Column | Sequence[Column],
        target: Real,
        purse: Payer,
        radius: float | None = None,
    ) -> None:
        self.epsilon, self.delta, self.columns = epsilon, delta, columns
        self.target, self.payer, self.radius = target, purse, radius

    def fit(self, X: Any, y: Any, units: Any = None) -> Self:  # noqa: N803
        """Train. One row of each unit is drawn; without `units`, each row must be one (see `Trainer`)."""
        return self._fit(X, y, units)

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """The expected number, within the declared bounds."""
        table = self._table(X)
        columns = checked_columns(self.columns, table.shape[1])
        rows = limit_length(feature_matrix(columns, table), self.radius)
        found = exact_products(rows, self.weights_[:, None], ONE)[:, 0] / ONE + self.intercept_
        return self.target.value(np.clip(found, -1, 1))

    def _price(self, columns: int) -> PricedReleases:
        described = checked_columns(self.columns, columns)
        if not isinstance(self.target, Real):
            raise BadParameter("target", "must be Real(low, high): the bounds of y")
        wide = sum(column.width for column in described)
        length = largest_squared_length(columns, self.radius) + 2 * ONE * ONE
        return price_releases(self.epsilon, self.delta, (moments_release(length, wide + 2),))

    def _train(self, run: PricedReleases, table: NDArray[Any], target: Any) -> ModelNumbers:
        rows = limit_length(
            feature_matrix(checked_columns(self.columns, table.shape[1]), table), self.radius
        )
        constant = np.full((len(rows), 1), ONE, dtype=np.int64)
        moments = noisy_moments(run, np.hstack([rows, constant, self.target.features(target)]))
        weights = ridge_weights(
            moments[:-1, :-1], moments[:-1, -1], largest_noise_eigenvalue(run, len(moments) - 1)
        )
        return {"weights": weights[:-1].tolist(), "intercept": float(weights[-1])}


def largest_squared_length(columns: int, radius: float | None) -> int:
    """The largest squared length of a row, in steps."""
    most = columns * ONE * ONE
    return most if radius is None else min(most, radius_in_steps(radius) ** 2)


def limit_length(rows: Wholes, radius: float | None) -> Wholes:
    """Rows within `largest_squared_length`."""
    if radius is None:
        return rows
    limit = radius_in_steps(radius)
    return shorten(rows, limit, limit)


def ridge_weights(moments: Floats, products: Floats, noise: float) -> Floats:
    """Weights with the least ridge that outweighs the noise. Less if the moments themselves do."""
    values, vectors = np.linalg.eigh(moments)
    known = max(float(values[0]) - noise, 0.0)  # the least eigenvalue is about this or more
    ridge = max(noise - known, 0.0)
    tame = np.maximum(values + ridge, 1e-9 + noise * 1e-3)
    return vectors @ ((vectors.T @ products) / tame)


class PCA(TransformerMixin, Trainer):  # type: ignore[misc]
    """The directions in which rows differ most, in columns scaled to -1 … 1.

    Rows longer than `radius` are shortened; None: none is.
    """

    mechanism: ClassVar[str] = "principal components"
    learns_from_y: ClassVar[bool] = False
    mean_: Floats
    components_: Floats

    def __init__(
        self,
        *,
        epsilon: Number,
        delta: Number,
        columns: Column | Sequence[Column],
        n_components: int,
        purse: Payer,
        radius: float | None = None,
    ) -> None:
        self.epsilon, self.delta, self.columns = epsilon, delta, columns
        self.n_components, self.payer, self.radius = n_components, purse, radius

    def fit(self, X: Any, y: Any = None, units: Any = None) -> Self:  # noqa: N803
        """Find the directions. One row of each unit is drawn; without `units`, each row must be one."""
        return self._fit(X, None, units)

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """Coordinates along the directions, from the mean."""
        rows = self._rows(X)
        middle = [math.fsum(self.mean_ * component) for component in self.components_]
        found: Floats = exact_products(rows, self.components_.T, ONE) / ONE - np.array(middle)
        return found

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """The share of the rows' variance that the directions keep. Not private."""
        away = self._rows(X) / ONE - self.mean_
        kept = away @ self.components_.T
        return float((kept**2).sum() / max(float((away**2).sum()), 1e-300))

    def _rows(self, X: Any) -> Wholes:  # noqa: N803
        table = self._table(X)
        return limit_length(
            feature_matrix(checked_columns(self.columns, table.shape[1]), table), self.radius
        )

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def _price(self, columns: int) -> PricedReleases:
        wide = sum(column.width for column in checked_columns(self.columns, columns))
        if whole(self.n_components, "n_components", at_least=1) > wide:
            raise BadParameter("n_components", f"must be at most {wide}, the number of features")
        length = largest_squared_length(columns, self.radius) + ONE * ONE
        return price_releases(self.epsilon, self.delta, (moments_release(length, wide + 1),))

    def _train(self, run: PricedReleases, table: NDArray[Any], target: Any) -> ModelNumbers:
        rows = limit_length(
            feature_matrix(checked_columns(self.columns, table.shape[1]), table), self.radius
        )
        constant = np.full((len(rows), 1), ONE, dtype=np.int64)
        moments = noisy_moments(run, np.hstack([rows, constant]))
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
        purse: Payer,
        rate: Number = 1,
        steps: int | None = None,
        pace: float | None = None,
        radius: float = 0.5,
    ) -> None:
        self.epsilon, self.delta, self.columns, self.classes = epsilon, delta, columns, classes
        self.size, self.payer, self.rate = size, purse, rate
        self.steps, self.pace, self.radius = steps, pace, radius

    def _scores(self, X: Any) -> Floats:  # noqa: N803
        table = self._table(X)
        rows = _centred(
            feature_matrix(checked_columns(self.columns, table.shape[1]), table),
            self.centre_,
            self._radius(),
        )
        return (exact_products(rows, self.weights_, LIMIT) + _CONSTANT * self.intercept_) / LIMIT

    def _radius(self) -> int:
        return radius_in_steps(self.radius)

    def _plan(self) -> tuple[int, float]:
        """Steps and pace: longer and faster the smaller the noise is beside the data."""
        signal = checked_size(self.size) / noise_ratio(self.epsilon, self.delta)
        steps = (
            max(1, round(4 * signal ** (1 / 3)))
            if self.steps is None
            else whole(self.steps, "steps", at_least=1)
        )
        return steps, max(1.0, signal**0.5) if self.pace is None else float(positive(self.pace, "pace"))

    def _price(self, columns: int) -> PricedReleases:
        described, classes = checked_columns(self.columns, columns), checked_classes(self.classes)
        self._radius()
        wide = sum(column.width for column in described)
        dimension = (wide + 1) * score_count(len(classes))
        look = ReleaseGroup(columns * ONE * ONE, wide, share=_LOOK)
        step = ReleaseGroup(
            (REACH * LIMIT) ** 2, dimension, self._plan()[0], 1 - _LOOK, checked_rate(self.rate)
        )
        return price_releases(self.epsilon, self.delta, (look, step))

    def _train(self, run: PricedReleases, table: NDArray[Any], target: Any) -> ModelNumbers:
        rows = feature_matrix(checked_columns(self.columns, table.shape[1]), table)
        size, classes = checked_size(self.size), checked_classes(self.classes)
        centre = shrunken_mean(run.release(0, rows.sum(axis=0)) / size, float(run.sigmas[0]) / size)
        descent = Descent(run, size, self._plan()[1])
        ready = with_constant(rows, centre, self._radius())
        weights = descent.weights(ready, class_codes(classes, target), len(classes))
        return {
            "centre": centre.tolist(),
            "weights": weights[:-1].tolist(),
            "intercept": weights[-1].tolist(),
        }


def _centred(rows: Wholes, centre: Wholes, radius: int) -> Wholes:
    return shorten(rows - centre, radius, _REST)


def with_constant(rows: Wholes, centre: Wholes, radius: int) -> Floats:
    """Centred, shortened, and with a constant at the end: at most LIMIT long, whole, held in floats."""
    ready = np.full((len(rows), rows.shape[1] + 1), float(_CONSTANT))
    ready[:, :-1] = _centred(rows, centre, radius)
    return ready


def shrunken_mean(noisy: Floats, sigma: float) -> Wholes:
    """The mean row, drawn towards 0 where it is mostly noise (James and Stein), in whole steps."""
    signal = 1 - len(noisy) * sigma**2 / max(float(noisy @ noisy), 1e-300)
    return np.clip(np.rint(noisy * max(signal, 0.0)), -ONE, ONE).astype(np.int64)


class Descent:
    """Gradient descent with momentum on noisy sums; the mean of the second half of its way is kept."""

    def __init__(self, run: PricedReleases, size: int, pace: float) -> None:
        self._run, self._size, self._pace = run, size, pace
        self._rate, self._steps = run.parts[1].rate, run.parts[1].count

    def weights(self, rows: Floats, truth: Wholes, classes: int) -> Floats:
        """One column of weights for each score."""
        outputs = score_count(classes)
        at, speed, mean = np.zeros((3, rows.shape[1], outputs))
        stride = min(_STRIDE, self._pace)
        scale = REACH * LIMIT * self._size * float(self._rate)
        half = self._steps // 2
        for step in range(self._steps):
            part, labels_of = self._sample(rows, truth)
            sums = gradient_sum(part, labels_of, at)
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


def gradient_sum(rows: Floats, truth: Wholes, weights: Floats) -> Wholes:
    """The sum of all rows' gradients, in steps of 1 / (REACH · LIMIT)."""
    steps = np.rint(weights * _WEIGHT)
    products = rows @ steps  # exact: no partial sum reaches 2^53
    scores = np.floor(products / (LIMIT * _WEIGHT // FINE)).astype(np.int64)
    return exact_cross_sum(rows, score_errors(scores, truth).astype(np.float64), REACH * LIMIT)
