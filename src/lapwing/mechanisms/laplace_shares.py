"""Laplace noise in shares: members who trust only themselves add it up, and nobody knows the whole."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lapwing.errors import BadParameter
from lapwing.exact import Number, ball, exact, precision, round_up, settle, whole
from lapwing.mechanisms.spread import BITS
from lapwing.mechanisms.summed_laplace import SummedLaplace
from lapwing.mechanisms.values import whole_values
from lapwing.noise import LARGEST_SCALE, discrete_laplace, polya_share
from lapwing.privacy import LaplaceNoise
from lapwing.privacy.charge import EPSILON_UNIT
from lapwing.privacy.loss import checked_epsilon


@dataclass(frozen=True, slots=True)
class LaplaceShares:
    """Whole numbers plus one member's part of discrete Laplace noise, to be opened only in a sum.

    Claim    if at least `of` shares that the adversary does not know are in the sum, inputs at L1
             distance at most `l1` give pure loss l1 / scale. One share alone does not.
    Because  a share is the difference of two Polya variables with 1/of; generating functions
             multiply, so `of` shares are one discrete Laplace noise, and what is added on top
             (more shares, other members' values) is post-processing. Shares that the adversary
             knows can be subtracted: they count for nothing.
    Test     claims/test_noise_shares.py::test_of_shares_are_exactly_one_discrete_laplace_noise
    """

    scale: Fraction
    l1: int
    of: int

    def __post_init__(self) -> None:
        settle(self, scale=exact(self.scale, "scale"), l1=whole(self.l1, "l1", at_least=1))
        settle(self, of=whole(self.of, "of", at_least=1))
        if not 0 < self.scale <= LARGEST_SCALE:
            raise BadParameter("scale", "must lie between 0 and 2^48")
        checked_epsilon(self.l1 / self.scale)

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, l1: int, of: int) -> LaplaceShares:
        """Exactly ε-private for inputs at L1 distance at most `l1`, once `of` honest shares are in."""
        distance = whole(l1, "l1", at_least=1)
        return cls(distance / checked_epsilon(epsilon), distance, of)

    @property
    def loss(self) -> LaplaceNoise:
        """What the opened sum reveals, if at least `of` honest shares are in it."""
        return LaplaceNoise(self.scale, self.l1)

    def loss_with(self, present: int) -> Fraction:
        """The pure ε of a sum with only `present` honest shares in it, rounded up.

        With r = present / of below 1 the law falls off log-convexly on both sides of 0, so no ratio of
        neighbours is above that of 0 and 1, and l1 steps in as many cells are worst:
        l1 · ln(P[0] / P[1]), P[0] / P[1] = F(r, r; 1; q²) / (r q F(r, r + 1; 2; q²)). With fewer
        than l1 cells it is an upper bound.
        """
        if whole(present, "present", at_least=1) >= self.of:
            return self.l1 / self.scale
        r = Fraction(present, self.of)
        with precision(BITS):
            q, part = ball(-1 / self.scale).exp(), ball(r)
            at_0 = (q * q).hypgeom_2f1(part, part, 1)
            at_1 = part * q * (q * q).hypgeom_2f1(part, part + 1, 2)
            return Fraction(round_up(self.l1 * (at_0 / at_1).log(), EPSILON_UNIT), EPSILON_UNIT)

    def sample(self, values: ArrayLike) -> NDArray[np.int64]:
        """The values with one fresh share each. Charge the loss first; a second call is a second use.

        The result is private only inside a sum: no member shows its own to anybody (unless of = 1).
        """
        checked = whole_values(values)
        if self.of == 1:
            return checked + discrete_laplace(self.scale, len(checked))
        return checked + polya_share(self.scale, len(checked), parties=self.of)

    def total(self, contributors: int) -> SummedLaplace:
        """The noise in a sum of so many shares, the adversary's among them."""
        return SummedLaplace(self.scale, self.of, contributors)

    def spread(self, confidence: Number, *, answers: int = 1) -> int:
        """`SummedLaplace.spread` of exactly `of` shares: the least noise that a sum may have."""
        return self.total(self.of).spread(confidence, answers=answers)
