"""Fitting: the model whose marginals are nearest to noisy ones, by mirror descent.

Claim    each step lowers the weighted squared distance to the noisy counts, and the result of many steps is
         the nearest model that has a potential for every measured marginal.
Because  the distance is convex in the marginals; a step is kept only if it lowers the distance by half of
         what its slope promises, else it is halved.
Test     tests/publish/models/test_fitting.py: equal to the least squares of small domains

This is post-processing of released numbers (McKenna, Sheldon and Miklau 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lapwing.publish.models.domain import Clique, Domain
from lapwing.publish.models.graphical_model import BeliefPropagation, Floats, GraphicalModel

Progress = Callable[[int, int], None]  # steps done, steps in all


@dataclass(frozen=True, slots=True, eq=False)
class NoisyMarginal:
    """Noisy counts of a marginal, and the standard deviation of their noise."""

    clique: Clique
    counts: Floats
    sigma: float


def estimated_total(marginals: Sequence[NoisyMarginal]) -> float:
    """Return the number of rows, as the mean of the marginals' sums by inverse variance; at least 1."""
    variances = [marginal.sigma**2 * marginal.counts.size for marginal in marginals]
    weights = np.array([1 / max(variance, 1e-12) for variance in variances])
    sums = np.array([marginal.counts.sum() for marginal in marginals])
    return max(1.0, float(weights @ sums / weights.sum()))


def combined(marginals: Sequence[NoisyMarginal]) -> list[NoisyMarginal]:
    """Return one noisy marginal for each clique: repeated ones are averaged by inverse variance."""
    found: dict[Clique, NoisyMarginal] = {}
    for one in marginals:
        if one.clique not in found:
            found[one.clique] = one
            continue
        before = found[one.clique]
        old, new = before.sigma**-2, one.sigma**-2
        counts = (before.counts * old + one.counts * new) / (old + new)
        found[one.clique] = NoisyMarginal(one.clique, counts, (old + new) ** -0.5)
    return list(found.values())


def fit(
    domain: Domain,
    marginals: Sequence[NoisyMarginal],
    *,
    steps: int,
    total: float | None = None,
    start: Mapping[Clique, Floats] | None = None,
    impossible: Mapping[Clique, NDArray[np.bool_]] | None = None,
    progress: Progress | None = None,
) -> GraphicalModel:
    """Fit a model to noisy marginals.

    Args:
        domain: The columns and their sizes.
        marginals: The noisy counts. There must be at least one.
        steps: The number of steps of mirror descent.
        total: The number of rows. None: estimated from the marginals.
        start: Potentials of an earlier fit, by clique.
        impossible: Cells that no row may have, by clique.
        progress: Called after each step.
    """
    measured = combined(marginals)
    rows = estimated_total(marginals) if total is None else total
    sums = BeliefPropagation(domain, [one.clique for one in measured], impossible)
    known = start or {}
    potentials = [known.get(one.clique, np.zeros(one.counts.shape)) for one in measured]
    descent = _Descent(sums, measured, rows, potentials)
    for step in range(steps):
        if not descent.step():
            break
        if progress is not None:
            progress(step + 1, steps)
    by_clique = {one.clique: potential for one, potential in zip(measured, descent.potentials, strict=True)}
    return GraphicalModel(domain, sums.tree, descent.tables, rows, by_clique)


class _Descent:
    """The current point of mirror descent, and the length of its next step."""

    def __init__(
        self,
        sums: BeliefPropagation,
        measured: Sequence[NoisyMarginal],
        rows: float,
        potentials: list[Floats],
    ) -> None:
        self._sums, self._measured, self._rows = sums, measured, rows
        scale = max(one.sigma**-2 for one in measured)  # the distance is relative to the best measurement
        self._weights = [one.sigma**-2 / scale for one in measured]
        self._length = 2.0 / (rows * sum(self._weights))
        self.potentials = potentials
        self.tables, self._counts, self._distance = self._at(potentials)

    def _at(self, potentials: list[Floats]) -> tuple[list[Floats], list[Floats], float]:
        tables = self._sums.probabilities(potentials)
        counts = [table * self._rows for table in self._sums.project(tables)]
        misses = zip(self._weights, counts, self._measured, strict=True)
        return tables, counts, sum(w * float(((c - m.counts) ** 2).sum()) / 2 for w, c, m in misses)

    def step(self) -> bool:
        """Take one step. Return False if no step lowers the distance any more."""
        slopes = [
            w * (c - m.counts) for w, c, m in zip(self._weights, self._counts, self._measured, strict=True)
        ]
        for _ in range(30):
            tried = [p - self._length * s for p, s in zip(self.potentials, slopes, strict=True)]
            tables, counts, distance = self._at(tried)
            promised = sum(
                float((s * (c - n)).sum()) for s, c, n in zip(slopes, self._counts, counts, strict=True)
            )
            if self._distance - distance >= promised / 2 and promised > 0:
                self.potentials, self.tables, self._counts, self._distance = tried, tables, counts, distance
                self._length *= 1.5
                return True
            self._length /= 2
        return False
