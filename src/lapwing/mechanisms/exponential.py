"""The exponential mechanism: choose where noise on the answer would be useless."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from lapwing.mechanisms.scored import Scored
from lapwing.mechanisms.values import whole_scores
from lapwing.noise import exponential_choice
from lapwing.privacy import BoundedRange


@dataclass(frozen=True, slots=True)
class Exponential(Scored):
    """Candidate o is chosen with probability proportional to exp(ε u(o) / 2Δ).

    Claim    pure loss ε, Rényi divergence order · ε² / 8, if no score moves by more than
             `sensitivity` (Δ) between neighbours.
    Because  each weight moves by a factor within e^±ε/2, and so does their sum. All log-ratios
             share that sum, so they span a range of ε; such a loss is ε²/8-concentrated.
    Test     claims/test_exponential.py::test_every_choice_is_within_the_claimed_ratio
    """

    @property
    def loss(self) -> BoundedRange:
        """What one use reveals."""
        return BoundedRange(self.epsilon)

    def sample(self, scores: ArrayLike) -> int:
        """The index of the chosen candidate. Scores are whole numbers, one per candidate."""
        return int(exponential_choice(whole_scores(scores), self.rate)[0])
