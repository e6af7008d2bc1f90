"""The last choice of an adaptive synthesis, and the error bound that it gives for marginals not chosen.

Claim    with the given confidence, every candidate of the last round is within its bound: the L1 distance
         between its private counts and the published counts is at most that number.
Because  the exponential mechanism with ε and sensitivity Δ chooses among n candidates one whose score is
         within (2Δ/ε)(ln n + ln(1/β)) of the best, except with probability β. The chosen marginal was then
         measured: its distance to the model is at most the distance of the noisy counts plus a sum of
         noises with fixed signs, which is sub-Gaussian and at most σ √(2 m ln(1/β)) for m cells, except
         with probability β. Solving the score for the distance gives a bound for the model of that round;
         what is published differs from it by a known distance (triangle inequality). McKenna et al.
         2022, theorem 4.
Test     tests/publish/test_last_choice.py
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from lapwing.publish.models.domain import Clique
from lapwing.publish.models.fitting import NoisyMarginal
from lapwing.publish.models.graphical_model import Floats
from lapwing.publish.models.marginal_source import GRID, Candidate

Marginals = Callable[[Clique], Floats]  # the published counts of some columns


@dataclass(frozen=True, slots=True, eq=False)
class LastChoice:
    """The candidates of the last round, the marginal that was chosen and measured, and the choice's ε."""

    candidates: tuple[Candidate, ...]
    measured: NoisyMarginal
    epsilon: Fraction
    rows_per_unit: int

    def bounds(self, published: Marginals, confidence: float = 0.95) -> dict[Clique, float]:
        """Return for each candidate that was not chosen the greatest L1 error of its published counts."""
        miss = (1 - confidence) / 2  # half for the choice, half for the measurement
        heaviest = max(one.weight for one in self.candidates)
        sensitivity = GRID * self.rows_per_unit * heaviest
        slack = 2 * sensitivity / float(self.epsilon) * math.log(len(self.candidates) / miss)
        chosen = next(one for one in self.candidates if one.clique == self.measured.clique)
        seen = float(np.abs(GRID * self.measured.counts.ravel() - chosen.expected.ravel()).sum())
        noise = GRID * self.measured.sigma * math.sqrt(2 * self.measured.counts.size * math.log(1 / miss))
        best = chosen.weight * (seen + noise - chosen.penalty) + slack
        found = {}
        for one in self.candidates:
            if one.clique != chosen.clique:
                then = max(0.0, (one.penalty + best / one.weight) / GRID)
                moved = np.abs(published(one.clique).ravel() - one.expected.ravel() / GRID).sum()
                found[one.clique] = then + float(moved)
        return found
