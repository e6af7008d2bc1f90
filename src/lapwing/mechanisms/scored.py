"""What mechanisms that choose by a score have in common."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from lapwing.exact import Number, positive, settle
from lapwing.mechanisms.spread import score_gap
from lapwing.privacy.loss import checked_epsilon


@dataclass(frozen=True, slots=True)
class Scored:
    """Terms of a choice: ε, and how far one neighbouring step moves a score (`sensitivity`, Δ)."""

    epsilon: Fraction
    sensitivity: Fraction

    def __post_init__(self) -> None:
        sensitivity = positive(self.sensitivity, "sensitivity")
        settle(self, epsilon=checked_epsilon(self.epsilon), sensitivity=sensitivity)

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, sensitivity: Number) -> Self:
        """ε-private for scores that move by at most `sensitivity`."""
        return cls(checked_epsilon(epsilon), positive(sensitivity, "sensitivity"))

    @property
    def rate(self) -> Fraction:
        """The exponent per unit of score: ε / 2Δ."""
        return self.epsilon / (2 * self.sensitivity)

    def spread(self, confidence: Number, *, candidates: int) -> Fraction:
        """With this confidence the chosen score is at most so far below the best (any data)."""
        return score_gap(self.rate, candidates, confidence)
