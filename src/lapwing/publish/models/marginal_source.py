"""The interface through which methods learn of private data: charged, noisy, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lapwing.publish.models.domain import Clique, Domain
from lapwing.publish.models.fitting import NoisyMarginal

GRID = 16  # steps of a count to which the model's numbers are rounded before private counts are compared


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A marginal that may be chosen.

    Its score is weight · (L1 distance of the private counts to `expected` − `penalty`). `expected` and
    `penalty` are in steps of 1/GRID of a count: whole numbers, so that scores are exact.
    """

    clique: Clique
    expected: NDArray[np.int64]
    weight: int = 1
    penalty: int = 0


class MarginalSource(Protocol):
    """A table of private rows, of which marginals are measured and chosen within a budget ρ (zCDP)."""

    @property
    def domain(self) -> Domain:
        """The columns and their sizes."""

    @property
    def rows_per_unit(self) -> int:
        """The contribution bound: how many rows of a privacy unit count."""

    @property
    def budget(self) -> Fraction:
        """The ρ for all steps."""

    @property
    def left(self) -> Fraction:
        """The ρ that is left."""

    def measure(self, clique: Clique, sigma: Fraction) -> NoisyMarginal:
        """Return counts of a marginal with Gaussian noise. An earlier result keeps its own σ."""

    def choose(self, candidates: Sequence[Candidate], epsilon: Fraction) -> Clique:
        """Return a marginal of large score, by the exponential mechanism."""


def measuring_cost(sigma: Fraction, rows_per_unit: int) -> Fraction:
    """Return the ρ of measuring one marginal: K² / 2σ², since K rows may all be in one cell."""
    return rows_per_unit**2 / (2 * sigma**2)


def choosing_cost(epsilon: Fraction) -> Fraction:
    """Return the ρ of one choice: ε² / 8 (bounded range)."""
    return epsilon**2 / 8
