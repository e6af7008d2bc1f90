"""Report noisy max: add noise to every score, tell only who won."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb
from numpy.typing import ArrayLike

from lapwing.errors import BadParameter
from lapwing.exact import Number, ball, precision, settle, whole
from lapwing.mechanisms.spread import BITS, checked_confidence, least_width
from lapwing.mechanisms.values import whole_values
from lapwing.noise import LARGEST_SCALE, discrete_laplace
from lapwing.privacy import Pure
from lapwing.privacy.loss import checked_epsilon


@dataclass(frozen=True, slots=True)
class NoisyMax:
    """The index of the greatest whole score after discrete Laplace noise at 2Δ/ε; ties go to the first.

    Claim    pure loss ε if no score moves by more than `sensitivity` (Δ) between neighbours.
    Because  given the other noises, i wins iff its own noise reaches a whole threshold, which moves
             by at most 2Δ; the tail of the noise falls by at most e^(-ε) over 2Δ. Only the index may
             be told: the winning value is not covered.
    Test     claims/test_noisy_max.py::test_every_winner_is_within_the_claimed_ratio
    """

    epsilon: Fraction
    sensitivity: int

    def __post_init__(self) -> None:
        sensitivity = whole(self.sensitivity, "sensitivity", at_least=1)
        settle(self, epsilon=checked_epsilon(self.epsilon), sensitivity=sensitivity)
        if self.scale > LARGEST_SCALE:
            raise BadParameter("epsilon", "is so small that the noise would not fit")

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, sensitivity: int) -> NoisyMax:
        """ε-private for whole scores that move by at most `sensitivity`."""
        return cls(checked_epsilon(epsilon), whole(sensitivity, "sensitivity", at_least=1))

    @property
    def scale(self) -> Fraction:
        """The noise on every score: 2Δ / ε."""
        return 2 * self.sensitivity / self.epsilon

    @property
    def loss(self) -> Pure:
        """What one use reveals."""
        return Pure(self.epsilon)

    def sample(self, scores: ArrayLike) -> int:
        """The index of the winner."""
        checked = whole_values(scores)
        return int(np.argmax(checked + discrete_laplace(self.scale, len(checked))))

    def spread(self, confidence: Number, *, candidates: int) -> int:
        """With this confidence the winner's score is at most so far below the best (any data).

        A candidate w + 1 or more below the best wins only if its noise exceeds the best one's by as
        much; there are at most candidates - 1 of them.
        """
        rivals = whole(candidates, "candidates", at_least=1) - 1
        miss = 1 - checked_confidence(confidence)
        return least_width(self._overtakes, miss / rivals) if rivals else 0

    def _overtakes(self, width: int) -> arb:
        """P[R - R' > width] for two noises: P[R - R' = d] = c² q^d (d + (1+q²)/(1-q²)), c = (1-q)/(1+q)."""
        with precision(BITS):
            q, less = ball(-1 / self.scale).exp(), -ball(-1 / self.scale).expm1()
            first = width + 1
            centre = (1 + q * q) / (less * (1 + q))
            return ball(-first / self.scale).exp() * ((first + centre) * less + q) / (1 + q) ** 2
