"""Principal components of noisy moments.

Claim    (ε, δ)-private: one release of the moments of (columns, 1), the rest is made of it.
Because  of `moments`.
Test     tests/learn/trainers/test_neighbours.py::test_one_unit_moves_every_sum_within_its_price
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.exact import Number, whole
from lapwing.learn.purse import Purse
from lapwing.learn.trainers.columns import ONE, Column, Wholes, columns_of, features
from lapwing.learn.trainers.linear import limited, squared_limit
from lapwing.learn.trainers.moments import moments_part, noisy_moments
from lapwing.learn.trainers.pricing import Run, priced
from lapwing.learn.trainers.shape import Floats, products
from lapwing.learn.trainers.trainer import Model, Trainer, TransformerMixin


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
        purse: Purse,
        radius: float | None = None,
    ) -> None:
        self.epsilon, self.delta, self.columns = epsilon, delta, columns
        self.n_components, self.purse, self.radius = n_components, purse, radius

    def fit(self, X: Any, y: Any = None, units: Any = None) -> Self:  # noqa: N803
        """Find the directions. One row of each unit is drawn; without `units`, each row must be one."""
        return self._fit(X, None, units)

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """Coordinates along the directions, from the mean."""
        rows = self._rows(X)
        middle = [math.fsum(self.mean_ * component) for component in self.components_]
        found: Floats = products(rows, self.components_.T, ONE) / ONE - np.array(middle)
        return found

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """The share of the rows' variance that the directions keep. Not private."""
        away = self._rows(X) / ONE - self.mean_
        kept = away @ self.components_.T
        return float((kept**2).sum() / max(float((away**2).sum()), 1e-300))

    def _rows(self, X: Any) -> Wholes:  # noqa: N803
        table = self._table(X)
        return limited(features(columns_of(self.columns, table.shape[1]), table), self.radius)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def _price(self, columns: int) -> Run:
        wide = sum(column.width for column in columns_of(self.columns, columns))
        if whole(self.n_components, "n_components", at_least=1) > wide:
            raise BadParameter("n_components", f"must be at most {wide}, the number of features")
        length = squared_limit(columns, self.radius) + ONE * ONE
        return priced(self.epsilon, self.delta, (moments_part(length, wide + 1),))

    def _train(self, run: Run, table: NDArray[Any], target: Any) -> Model:
        rows = limited(features(columns_of(self.columns, table.shape[1]), table), self.radius)
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
