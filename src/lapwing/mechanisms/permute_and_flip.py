"""Permute-and-flip: never worse than the exponential mechanism at equal pure ε."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lapwing.mechanisms.scored import Scored
from lapwing.mechanisms.values import whole_scores
from lapwing.noise import bernoulli_exp, uniform_int
from lapwing.privacy import Pure


@dataclass(frozen=True, slots=True)
class PermuteAndFlip(Scored):
    """In random order, each candidate is taken with probability exp(ε (u - best) / 2Δ).

    Claim    pure loss ε if no score moves by more than `sensitivity` (Δ) between neighbours. Not
             more: its log-ratios do not stay in a range of ε, so ε²/8 would be wrong.
    Because  the first head in a random order is a uniform choice among all heads, which is how it is
             drawn here; and the exact law's ratio is within e^±ε (docs/arguments).
    Test     claims/test_permute_and_flip.py::test_every_choice_is_within_the_claimed_ratio
    """

    @property
    def loss(self) -> Pure:
        """What one use reveals."""
        return Pure(self.epsilon)

    def sample(self, scores: ArrayLike) -> int:
        """The index of the chosen candidate. All coins are thrown, whichever comes up."""
        wholes = whole_scores(scores)
        heads = np.flatnonzero(bernoulli_exp(wholes.max() - wholes, rate=self.rate))
        return int(heads[uniform_int(0, len(heads), 1)[0]])
