"""Permute-and-flip: never worse than the exponential mechanism at equal pure ε."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from lapwing.exact import Number, positive
from lapwing.mechanisms.spread import score_gap
from lapwing.mechanisms.values import scores_of, settle
from lapwing.noise import Scores, bernoulli_exp, rational_scores, uniform_int
from lapwing.privacy import Pure
from lapwing.privacy.loss import checked_epsilon


@dataclass(frozen=True, slots=True)
class PermuteAndFlip:
    """In random order, each candidate is taken with probability exp(ε (u - best) / 2Δ).

    Claim    pure loss ε if no score moves by more than `sensitivity` (Δ) between neighbours. Not
             more: its log-ratios do not stay in a range of ε, so ε²/8 would be wrong.
    Because  the first head in a random order is a uniform choice among all heads, which is how it is
             drawn here; and the exact law's ratio is within e^±ε (docs/arguments).
    Test     claims/test_permute_and_flip.py::test_every_choice_is_within_the_claimed_ratio
    """

    epsilon: Fraction
    sensitivity: Fraction

    def __post_init__(self) -> None:
        sensitivity = positive(self.sensitivity, "sensitivity")
        settle(self, epsilon=checked_epsilon(self.epsilon), sensitivity=sensitivity)

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, sensitivity: Number) -> PermuteAndFlip:
        """ε-private for scores that move by at most `sensitivity`."""
        return cls(checked_epsilon(epsilon), positive(sensitivity, "sensitivity"))

    @property
    def rate(self) -> Fraction:
        """The exponent per unit of score: ε / 2Δ."""
        return self.epsilon / (2 * self.sensitivity)

    @property
    def loss(self) -> Pure:
        """What one use reveals."""
        return Pure(self.epsilon)

    def sample(self, scores: Scores) -> int:
        """The index of the chosen candidate. All coins are thrown, whichever comes up."""
        wholes, denominator = rational_scores(scores_of(scores))
        heads = np.flatnonzero(bernoulli_exp(wholes.max() - wholes, rate=self.rate / denominator))
        return int(heads[uniform_int(0, len(heads), 1)[0]])

    def spread(self, confidence: Number, *, candidates: int) -> Fraction:
        """With this confidence the chosen score is at most so far below the best (any data)."""
        return score_gap(self.rate, candidates, confidence)
