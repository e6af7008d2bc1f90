"""The exponential mechanism: choose where noise on the answer would be useless."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from lapwing.exact import Number, positive
from lapwing.mechanisms.spread import score_gap
from lapwing.mechanisms.values import scores_of, settle
from lapwing.noise import Scores, exponential_choice
from lapwing.privacy import BoundedRange
from lapwing.privacy.loss import checked_epsilon


@dataclass(frozen=True, slots=True)
class Exponential:
    """Candidate o is chosen with probability proportional to exp(ε u(o) / 2Δ).

    Claim    pure loss ε, Rényi divergence order · ε² / 8, if no score moves by more than
             `sensitivity` (Δ) between neighbours.
    Because  each weight moves by a factor within e^±ε/2, and so does their sum. All log-ratios
             share that sum, so they span a range of ε; such a loss is ε²/8-concentrated.
    Test     claims/test_exponential.py::test_every_choice_is_within_the_claimed_ratio
    """

    epsilon: Fraction
    sensitivity: Fraction

    def __post_init__(self) -> None:
        sensitivity = positive(self.sensitivity, "sensitivity")
        settle(self, epsilon=checked_epsilon(self.epsilon), sensitivity=sensitivity)

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, sensitivity: Number) -> Exponential:
        """ε-private for scores that move by at most `sensitivity`."""
        return cls(checked_epsilon(epsilon), positive(sensitivity, "sensitivity"))

    @property
    def rate(self) -> Fraction:
        """The exponent per unit of score: ε / 2Δ."""
        return self.epsilon / (2 * self.sensitivity)

    @property
    def loss(self) -> BoundedRange:
        """What one use reveals."""
        return BoundedRange(self.epsilon)

    def sample(self, scores: Scores) -> int:
        """The index of the chosen candidate. Scores are whole or rational, one per candidate."""
        return int(exponential_choice(scores_of(scores), self.rate)[0])

    def spread(self, confidence: Number, *, candidates: int) -> Fraction:
        """With this confidence the chosen score is at most so far below the best (any data)."""
        return score_gap(self.rate, candidates, confidence)
