"""Private k-means: noisy counts and sums of each cluster, in a few rounds.

Claim    without one unit, what one round releases moves by at most √(b + w²) in L2, where b bounds a
         row's squared length and w is the weight of a count.
Because  a unit has one row, in one cluster, which is found in whole numbers from that row alone.
Test     tests/learn/trainers/test_trainers_neighbours.py::test_one_unit_moves_every_sum_within_its_price
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClusterMixin, TransformerMixin  # type: ignore[import-untyped]

from lapwing.core.exact import whole
from lapwing.core.noise import uniform_int
from lapwing.learn.table_input import Cells, Floats, Wholes
from lapwing.learn.trainers.columns import ONE
from lapwing.learn.trainers.estimator import ModelNumbers, Trainer
from lapwing.learn.trainers.priced_releases import PricedReleases, ReleaseGroup
from lapwing.learn.trainers.whole_vectors import whole_squared_lengths

_TRIES = 50


@dataclass(kw_only=True, eq=False, repr=False)
class KMeans(TransformerMixin, ClusterMixin, Trainer):  # type: ignore[misc]
    """Centres of clusters, for columns scaled to -1 … 1.

    Args:
        epsilon: The price in ε. `Dataset.fit` gives it.
        delta: The price in δ, above 0. `Dataset.fit` gives it.
        columns: The columns of X: one declaration for all, one for each in order, or by name. None: those
            of the policy, in `Dataset.fit`.
        payer: The payer of every fit. None: `fit` or `Dataset.fit` has one.
        n_clusters: The number of clusters.
        rounds: The number of rounds.

    Example:
        >>> from lapwing.learn import KMeans
        >>> model = dataset.fit(KMeans(n_clusters=3), "SELECT stay, cost FROM visits", epsilon=1)
        >>> model.cluster_centers_.shape
        (3, 2)
    """

    mechanism: ClassVar[str] = "k-means"
    learns_from_y: ClassVar[bool] = False
    n_clusters: int
    rounds: int = 6
    centres_: Wholes = field(init=False)

    def fit_predict(self, X: Any, y: Any = None, **more: Any) -> Wholes:  # noqa: N803
        """Fit, and return the cluster of each row."""
        return self.fit(X, **more).predict(X)

    def predict(self, X: Any) -> Wholes:  # noqa: N803
        """Return the number of the nearest centre of each row."""
        return nearest_centre(self._rows(X), self.centres_)

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """Return the distances from all centres."""
        away = self._rows(X)[:, None, :] - self.centres_
        distances: Floats = np.sqrt((away * away).sum(axis=2)) / ONE
        return distances

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Return minus the sum of squared distances from the nearest centres. It is not private."""
        return -float((self.transform(X).min(axis=1) ** 2).sum())

    @property
    def cluster_centers_(self) -> Floats:
        """The centres, for columns scaled to -1 … 1."""
        return self.centres_ / ONE

    @property
    def _n_features_out(self) -> int:
        return int(self.centres_.shape[0])

    def _price(self, columns: int) -> PricedReleases:
        clusters = whole(self.n_clusters, "n_clusters", at_least=1)
        rounds = whole(self.rounds, "rounds", at_least=1)
        reach = columns * ONE * ONE + count_weight(columns) ** 2
        return self._priced(ReleaseGroup(reach, clusters * (self._width(columns) + 1), rounds))

    def _train(self, run: PricedReleases, table: Cells, target: Any) -> ModelNumbers:
        rows, weight = self._features(table), count_weight(table.shape[1])
        centres = initial_centres(self.n_clusters, rows.shape[1])
        for _ in range(run.parts[0].count):
            sums = cluster_sums(rows, centres, weight)
            noisy = run.release(0, sums.ravel()).reshape(sums.shape)
            counts = noisy[:, -1:] / weight
            moved = np.rint(noisy[:, :-1] / np.maximum(counts, 1.0)).astype(np.int64)
            # A cluster that is lost in the noise stays where it is.
            seen = counts > 2 * float(run.sigmas[0]) / weight
            centres = np.where(seen, np.clip(moved, -ONE, ONE), centres)
        return {"centres": centres.tolist()}


def count_weight(columns: int) -> int:
    """Return the weight of a count beside a row, in steps."""
    return ONE * max(1, math.isqrt(columns)) // 2


def initial_centres(clusters: int, wide: int) -> Wholes:
    """Draw centres in the middle half of the box, each far from the others. No row is read."""
    centres = uniform_int(-ONE // 2, ONE // 2 + 1, wide)[None, :]
    while len(centres) < clusters:
        tried = uniform_int(-ONE // 2, ONE // 2 + 1, _TRIES * wide).reshape(_TRIES, wide)
        apart = np.min([whole_squared_lengths(tried - centre) for centre in centres], axis=0)
        centres = np.vstack([centres, tried[int(apart.argmax())]])
    return centres


def nearest_centre(rows: Wholes, centres: Wholes) -> Wholes:
    """Return the nearest centre exactly; of equally near ones, the first."""
    # Whole numbers below 2^53: |c|² - 2 x·c is exact in floats.
    distance = whole_squared_lengths(centres) - 2 * (rows.astype(np.float64) @ centres.T.astype(np.float64))
    nearest: Wholes = distance.argmin(axis=1).astype(np.int64)
    return nearest


def cluster_sums(rows: Wholes, centres: Wholes, weight: int) -> Wholes:
    """Return, for each cluster, the sum of its rows, and `weight` times their number."""
    which = nearest_centre(rows, centres)
    total = np.zeros((len(centres), rows.shape[1] + 1), dtype=np.int64)
    np.add.at(total[:, :-1], which, rows)
    total[:, -1] = weight * np.bincount(which, minlength=len(centres))
    return total
