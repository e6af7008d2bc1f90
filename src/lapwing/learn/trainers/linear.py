"""Linear regression from noisy moments, with as much ridge as the noise needs (after AdaSSP, Wang 2018).

Claim    (ε, δ)-private: one release of the moments of (columns, 1, target), the rest is made of it.
Because  of `moments`; each of the three has bounded entries, so a row's squared length is bounded.
Test     tests/learn/trainers/test_neighbours.py::test_one_unit_moves_every_sum_within_its_price
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.exact import Number
from lapwing.learn.purse import Purse
from lapwing.learn.trainers.columns import ONE, Column, Real, Wholes, columns_of, features, radius_of
from lapwing.learn.trainers.moments import edge, moments_part, noisy_moments
from lapwing.learn.trainers.pricing import Run, priced
from lapwing.learn.trainers.shape import Floats, products, shortened
from lapwing.learn.trainers.trainer import Model, RegressorMixin, Trainer


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
        purse: Purse,
        radius: float | None = None,
    ) -> None:
        self.epsilon, self.delta, self.columns = epsilon, delta, columns
        self.target, self.purse, self.radius = target, purse, radius

    def fit(self, X: Any, y: Any, units: Any = None) -> Self:  # noqa: N803
        """Train. One row of each unit is drawn; without `units`, each row must be one (see `Trainer`)."""
        return self._fit(X, y, units)

    def predict(self, X: Any) -> Floats:  # noqa: N803
        """The expected number, within the declared bounds."""
        table = self._table(X)
        columns = columns_of(self.columns, table.shape[1])
        rows = limited(features(columns, table), self.radius)
        found = products(rows, self.weights_[:, None], ONE)[:, 0] / ONE + self.intercept_
        return self.target.value(np.clip(found, -1, 1))

    def _price(self, columns: int) -> Run:
        described = columns_of(self.columns, columns)
        if not isinstance(self.target, Real):
            raise BadParameter("target", "must be Real(low, high): the bounds of y")
        wide = sum(column.width for column in described)
        length = squared_limit(columns, self.radius) + 2 * ONE * ONE
        return priced(self.epsilon, self.delta, (moments_part(length, wide + 2),))

    def _train(self, run: Run, table: NDArray[Any], target: Any) -> Model:
        rows = limited(features(columns_of(self.columns, table.shape[1]), table), self.radius)
        constant = np.full((len(rows), 1), ONE, dtype=np.int64)
        moments = noisy_moments(run, np.hstack([rows, constant, self.target.features(target)]))
        weights = solved(moments[:-1, :-1], moments[:-1, -1], edge(run, len(moments) - 1))
        return {"weights": weights[:-1].tolist(), "intercept": float(weights[-1])}


def squared_limit(columns: int, radius: float | None) -> int:
    """The largest squared length of a row, in steps."""
    most = columns * ONE * ONE
    return most if radius is None else min(most, radius_of(radius) ** 2)


def limited(rows: Wholes, radius: float | None) -> Wholes:
    """Rows within `squared_limit`."""
    if radius is None:
        return rows
    limit = radius_of(radius)
    return shortened(rows, limit, limit)


def solved(moments: Floats, products: Floats, noise: float) -> Floats:
    """Weights with the least ridge that outweighs the noise. Less if the moments themselves do."""
    values, vectors = np.linalg.eigh(moments)
    known = max(float(values[0]) - noise, 0.0)  # the least eigenvalue is about this or more
    ridge = max(noise - known, 0.0)
    tame = np.maximum(values + ridge, 1e-9 + noise * 1e-3)
    return vectors @ ((vectors.T @ products) / tame)
