"""The Laplace mechanism: whole numbers plus discrete Laplace noise."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb
from numpy.typing import ArrayLike, NDArray

from lapwing.errors import BadParameter
from lapwing.exact import Number, ball, exact, precision, settle, whole
from lapwing.mechanisms.spread import BITS, checked_confidence, least_width, miss_of_each
from lapwing.mechanisms.values import whole_values
from lapwing.noise import LARGEST_SCALE, discrete_laplace
from lapwing.privacy import LaplaceNoise
from lapwing.privacy.charge import EPSILON_UNIT
from lapwing.privacy.loss import LARGEST_EPSILON, checked_epsilon


def noise_width(scale: Fraction, confidence: Number, *, answers: int) -> int:
    """The least w such that `answers` noises at this scale all lie within ±w with this confidence."""

    def tail(width: int) -> arb:
        """P[|noise| > width] = 2 q^(width + 1) / (1 + q), q = exp(-1 / scale)."""
        with precision(BITS):
            return 2 * ball(-(width + 1) / scale).exp() / (1 + ball(-1 / scale).exp())

    return least_width(tail, miss_of_each(checked_confidence(confidence), answers))


@dataclass(frozen=True, slots=True)
class Laplace:
    """Whole numbers plus independent two-sided geometric noise.

    Claim    inputs at L1 distance at most `l1` give pure loss l1 / scale.
    Because  P[k] is proportional to exp(-|k| / scale), and | |k + d| - |k| | <= |d|.
    Test     claims/test_laplace.py::test_loss_is_distance_over_scale
    """

    scale: Fraction
    l1: int

    def __post_init__(self) -> None:
        settle(self, scale=exact(self.scale, "scale"), l1=whole(self.l1, "l1", at_least=1))
        if not 0 < self.scale <= LARGEST_SCALE:
            raise BadParameter("scale", "must lie between 0 and 2^48")
        checked_epsilon(self.l1 / self.scale)

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, l1: int | Fraction) -> Laplace:
        """Exactly ε-private for inputs at L1 distance at most `l1`."""
        distance = whole(l1, "l1", at_least=1)
        return cls(distance / checked_epsilon(epsilon), distance)

    @classmethod
    def for_width(cls, width: int, *, confidence: Number, l1: int) -> Laplace:
        """The least ε (in ledger units) whose noise stays within ±width at this confidence."""
        within = whole(width, "width")
        level = checked_confidence(confidence)
        low, high = 0, int(LARGEST_EPSILON * EPSILON_UNIT)
        if cls.for_epsilon(LARGEST_EPSILON, l1=l1).spread(level) > within:
            raise BadParameter("width", "cannot be reached with any ε up to 1000")
        while high - low > 1:
            middle = (low + high) // 2
            candidate = cls._fitting(Fraction(middle, EPSILON_UNIT), l1)
            if candidate is None or candidate.spread(level) > within:
                low = middle
            else:
                high = middle
        return cls.for_epsilon(Fraction(high, EPSILON_UNIT), l1=l1)

    @classmethod
    def _fitting(cls, epsilon: Fraction, l1: int) -> Laplace | None:
        return cls(l1 / epsilon, l1) if l1 / epsilon <= LARGEST_SCALE else None

    @property
    def loss(self) -> LaplaceNoise:
        """What one use reveals."""
        return LaplaceNoise(self.scale, self.l1)

    def sample(self, values: ArrayLike) -> NDArray[np.int64]:
        """The values with fresh noise. Charge the loss first; a second call is a second use."""
        checked = whole_values(values)
        return checked + discrete_laplace(self.scale, len(checked))

    def spread(self, confidence: Number, *, answers: int = 1) -> int:
        """The least w such that all of `answers` noises lie within ±w with this confidence."""
        return noise_width(self.scale, confidence, answers=answers)
