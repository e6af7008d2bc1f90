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
    Column,
    Real,
    checked_classes,
    checked_columns,
    class_codes,
    radius_in_steps,
)
from lapwing.learn.trainers.estimator import (
    ModelNumbers,
    ScoredClassifier,
    Trainer,
)
from lapwing.learn.trainers.priced_releases import (
    PricedReleases,
    ReleaseGroup,
    checked_rate,
    noise_ratio,
)
from lapwing.learn.trainers.question_columns import declared_column
from lapwing.learn.trainers.whole_vectors import FINE, REACH, exact_cross_sum, exact_products, score_errors
from lapwing.ledger import Receipt
from lapwing.sql.policy.kinds import Kind


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


class FeatureTrainer(Trainer):
    """A trainer whose model has a number for each feature of the declared columns."""

    @property
    def coef_names_(self) -> list[str]:
        """The names of the features in `coef_`: a column, or a column with one of its values."""
        self._require_fitted()
        count = self.n_features_in_
        names = getattr(self, "feature_names_in_", [f"x{at}" for at in range(count)])
        columns = checked_columns(self._declared, count)
        return [label for name, column in zip(names, columns, strict=True) for label in column.labels(name)]

    def _scaling(self) -> tuple[Floats, Floats]:
        """Return what is 0 in each feature, and what is 1 more, on the columns' own scales."""
        columns = checked_columns(self._declared, self.n_features_in_)
        ends = [(_middle(column), _half(column)) for column in columns for _ in range(column.width)]
        middle, half = np.array(ends).T
        return middle, half


def _middle(column: Column) -> float:
    return (float(column.low) + float(column.high)) / 2 if isinstance(column, Real) else 0.0


def _half(column: Column) -> float:
    return (float(column.high) - float(column.low)) / 2 if isinstance(column, Real) else 1.0


def _renamed(model: ModelNumbers) -> ModelNumbers:
    """Name the stored constant: `intercept_` is on the columns' own scales."""
    return {"constant" if name == "intercept" else name: value for name, value in model.items()}


@dataclass(kw_only=True, eq=False, repr=False)
class LinearRegression(RegressorMixin, FeatureTrainer, MomentsTrainer):  # type: ignore[misc]
    """Linear regression of a number between declared bounds.

    Args:
        epsilon: The price in ε. `Dataset.fit` gives it.
        delta: The price in δ, above 0. `Dataset.fit` gives it.
        columns: The columns of X: one declaration for all, one for each in order, or by name. None: those
            of the policy, in `Dataset.fit`.
        payer: The payer of every fit. None: `fit` or `Dataset.fit` has one.
        radius: Rows longer than this, where columns are scaled to -1 … 1, are shortened. None: no row is.
        target: The bounds of y. None: those of the policy, in `Dataset.fit`.

    Example:
        >>> from lapwing.learn import LinearRegression
        >>> model = dataset.fit(LinearRegression(), "SELECT ward, urgent, stay FROM visits", epsilon=1)
        >>> model.coef_names_[:2], model.intercept_
        (['ward = surgery', 'ward = cardiology'], ...)
    """

    mechanism: ClassVar[str] = "linear regression"
    target: Real | None = None
    weights_: Floats = field(init=False)
    constant_: float = field(init=False)
    target_: Real = field(init=False)

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """Return the expected number, within the declared bounds.

        Args:
            X: The rows to predict for.

        Returns:
            One number for each row.
        """
        scaled = exact_products(self._rows(X), self.weights_[:, None], ONE)[:, 0] / ONE + self.constant_
        return self.target_.value(np.clip(scaled, -1, 1))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return R², the share of the variance that is predicted. It comes from rows, and is not private.

        Show it only if the rows are public: for private rows it is a release that nobody paid for.

        Args:
            X: Rows that you hold.
            y: Their true numbers.
            sample_weight: A weight for each row.

        Returns:
            The exact R².
        """
        return float(super().score(X, y, sample_weight))

    @property
    def coef_(self) -> Floats:
        """The change of the target for one more of each feature, in the units of both.

        There is one number for each of `coef_names_`. It holds within the bounds of the target, and for
        rows that `radius` does not shorten.
        """
        self._require_fitted()
        return self.weights_ / self._scaling()[1] * _half(self.target_)

    @property
    def intercept_(self) -> float:
        """The prediction where each number is 0 and each other column has no declared value."""
        self._require_fitted()
        middle, half = self._scaling()
        return float(self.target_.value(self.constant_ - (self.weights_ * middle / half).sum()))

    def _load(self, stored: bytes, receipt: Receipt | None) -> None:
        super()._load(stored, receipt)
        assert self.target is not None
        self.target_ = self.target

    def _set_numbers(self, model: ModelNumbers) -> None:
        super()._set_numbers(_renamed(model))

    def _learn_label(self, name: str, kind: Kind) -> None:
        declared = declared_column(name, kind)
        if not isinstance(declared, Real):
            raise BadParameter("label", f"{name[:60]!r} has declared values: use a classifier")
        self.target = self.target or declared

    def _price(self, columns: int) -> PricedReleases:
        self._width(columns)  # refuses wrong columns
        if not isinstance(self.target, Real):
            raise BadParameter("target", "must be Real(low, high): the bounds of y")
        return self._priced_moments(columns, 2)

    def _train(self, run: PricedReleases, table: Cells, target: Any) -> ModelNumbers:
        assert self.target is not None
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
    """The directions in which rows differ most, for columns scaled to -1 … 1.

    Args:
        epsilon: The price in ε. `Dataset.fit` gives it.
        delta: The price in δ, above 0. `Dataset.fit` gives it.
        columns: The columns of X: one declaration for all, one for each in order, or by name. None: those
            of the policy, in `Dataset.fit`.
        payer: The payer of every fit. None: `fit` or `Dataset.fit` has one.
        radius: Rows longer than this, where columns are scaled to -1 … 1, are shortened. None: no row is.
        n_components: The number of directions.

    Example:
        >>> from lapwing.learn import PCA
        >>> dataset.fit(PCA(n_components=1), "SELECT stay, cost FROM visits", epsilon=1).components_.shape
        (1, 2)
    """

    mechanism: ClassVar[str] = "principal components"
    learns_from_y: ClassVar[bool] = False
    n_components: int
    mean_: Floats = field(init=False)
    components_: Floats = field(init=False)

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """Return coordinates along the directions, measured from the mean."""
        rows = self._rows(X)
        middle = [math.fsum(self.mean_ * component) for component in self.components_]
        moved: Floats = exact_products(rows, self.components_.T, ONE) / ONE - np.array(middle)
        return moved

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
class LogisticRegression(ScoredClassifier, FeatureTrainer):
    """A linear classifier, in the manner of scikit-learn.

    Args:
        epsilon: The price in ε. `Dataset.fit` gives it.
        delta: The price in δ, above 0. `Dataset.fit` gives it.
        columns: The columns of X: one declaration for all, one for each in order, or by name. None: those
            of the policy, in `Dataset.fit`.
        payer: The payer of every fit. None: `fit` or `Dataset.fit` has one.
        classes: The possible classes, as the rows have them. None: those of the policy, in `Dataset.fit`.
        class_check: The share of the run that counts rows by class, so that classes that are written
            otherwise in the rows are told (`ClassNotSeen`). 0: no such count.
        size: A public guess of the number of units.
        rate: The probability with which a unit takes part in a step. 1: all units.
        steps: The number of steps. None: it follows from size, ε and δ.
        pace: The learning rate over 1 - momentum. None: it follows from size, ε and δ.
        radius: How far a row may be from the released mean, where columns are scaled to -1 … 1: farther
            rows are moved closer.

    Example:
        Beside a data set, whose policy declares and pays:

        >>> from lapwing.learn import LogisticRegression
        >>> rows = "SELECT ward, stay, urgent FROM visits"
        >>> model = dataset.fit(LogisticRegression(size=2000), rows, epsilon=1)
        >>> model.coef_names_[-1]
        'stay'

        With a table of your own, and an account of a ledger:

        >>> import numpy as np
        >>> from lapwing.learn import LedgerPayer, Real
        >>> payer = LedgerPayer.for_account(ledger, "patients", request="stays, version 3")
        >>> x = np.linspace(0, 60, 1000).reshape(-1, 1)  # invented
        >>> model = LogisticRegression(
        ...     epsilon="0.5", delta="1e-8", columns=Real(0, 60), classes=("short", "long"), size=1000
        ... ).fit(x, np.where(x[:, 0] > 7, "long", "short"), units=np.arange(1000), payer=payer)
        >>> model.predict([[1.5]]).shape
        (1,)
    """

    mechanism: ClassVar[str] = "logistic regression"
    size: int | None = None
    rate: Number = 1
    steps: int | None = None
    pace: float | None = None
    radius: float = 0.5
    centre_: Wholes = field(init=False)
    weights_: Floats = field(init=False)
    constant_: Floats = field(init=False)

    @property
    def coef_(self) -> Floats:
        """The change of each score for one more of each feature, in the units of the columns.

        There is one column for each of `coef_names_`. It holds for rows within `radius` of the centre.
        Others are moved towards the centre first: the sign is the same, and the effect smaller.
        """
        self._require_fitted()
        slopes: Floats = (self.weights_ * self._steepness()).T / self._scaling()[1]
        return slopes

    @property
    def intercept_(self) -> Floats:
        """Each score where each number is 0 and each other column has no declared value."""
        self._require_fitted()
        middle, half = self._scaling()
        start = middle / half + self.centre_ / ONE  # of the feature, where the column is 0
        intercepts: Floats = (
            self.constant_ * (_CONSTANT / LIMIT) - (self.weights_ * self._steepness()).T @ start
        )
        return intercepts

    def _steepness(self) -> float:
        """Return how far a feature of 1 moves a row that is not shortened, where LIMIT counts as 1."""
        return ONE * _REST / self._radius() / LIMIT

    def _scores(self, X: Any) -> Floats:  # noqa: N803
        rows = _centred(self._rows(X), self.centre_, self._radius())
        return (exact_products(rows, self.weights_, LIMIT) + _CONSTANT * self.constant_) / LIMIT

    def _set_numbers(self, model: ModelNumbers) -> None:
        super()._set_numbers(_renamed(model))

    def _radius(self) -> int:
        return radius_in_steps(self.radius)

    def _size(self) -> int:
        if self.size is None:
            raise BadParameter("size", "must be given: a public guess of the number of units, such as 1000")
        return whole(self.size, "size", at_least=1)

    def _plan(self) -> tuple[int, float]:
        """Return steps and pace: more and faster steps, the smaller the noise is beside the data."""
        signal = self._size() / noise_ratio(self.epsilon, self.delta)
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
        size, classes = self._size(), checked_classes(self.classes)
        centre = shrunken_mean(run.release(0, rows.sum(axis=0)) / size, float(run.sigmas[0]) / size)
        ready, truth = with_constant(rows, centre, self._radius()), class_codes(classes, target)
        weights = descend(run, ready, truth, size=size, pace=self._plan()[1])
        numbers = {"centre": centre, "weights": weights[:-1], "intercept": weights[-1]}
        return {name: values.tolist() for name, values in numbers.items()}


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
