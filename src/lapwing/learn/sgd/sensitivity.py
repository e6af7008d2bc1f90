"""How far one unit can move the whole numbers that get noise: the clip, the floats' error and the grid.

Claim    two samples that differ by one unit give whole-number vectors within L2 distance `distance`.
Because  a unit's gradient is scaled by a factor that is at most clip / norm, up to the error of a norm
         (`norm_error`); the float sum of a page differs from the true sum by at most gamma times the sum
         of norms (`sum_error`), for any order of adding; and rounding moves each coordinate by at most
         half a step on either side. docs/arguments/dp_sgd.md has the proof.
Test     tests/learn/sgd/test_sensitivity.py, tests/learn/sgd/test_neighbours.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from lapwing.errors import BadParameter
from lapwing.exact import Number, positive, settle, sqrt_up, whole
from lapwing.mechanisms.gaussian import Gaussian

SINGLE, DOUBLE = Fraction(1, 2**24), Fraction(1, 2**53)  # half the spacing of floats next to 1
# Squares are added in blocks of so many, in the gradients' own type; the blocks in double precision.
BLOCK = 1024
# Sums in single precision are used where they cost at most this much of the clip.
MOST_SINGLE = Fraction(1, 64)
# Rounding to the grid costs at most this share of the clip. (Finer grids have wider, slower noise.)
GRID_SHARE = Fraction(1, 2**14)
# Up to so many sampled units, pages are added one after the other in double precision.
DOUBLE_UP_TO = 1 << 22
# More are added in pages of at most so many, and what is lost in adding pages is kept and added as well.
# The price reaches to twice as many as there are people, whose places alone would take 256 GiB of memory.
FEW, MOST_UNITS = 32, 1 << 34
MOST_PARAMETERS = 1 << 30
SMALLEST_CLIP, LARGEST_CLIP = Fraction(1, 10**6), Fraction(10**6)
# What is left: the rounding of the factor itself and of the products with it, squares that underflow, and
# the error of ghost norms in double precision.
_SMALL_CHANGE = Fraction(1, 2**19)


def gamma(count: int, roundoff: Fraction) -> Fraction:
    """The relative error of `count` float operations in a row: n u / (1 - n u)."""
    if count * roundoff >= Fraction(1, 2):
        raise BadParameter("page", "is so large that floats are no longer known to be right")
    return count * roundoff / (1 - count * roundoff)


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The public grid of a training run, and how far one unit moves a sum on it.

    `page` units are worked on at once. Up to `single_up_to` sampled units are summed in single precision
    (never, if 0): more of them, or more pages than so many fill, are summed in double precision, and very
    many with more care, so that no sample is too large.
    """

    clip: Fraction
    parameters: int
    page: int
    single_up_to: int

    def __post_init__(self) -> None:
        settle(self, clip=positive(self.clip, "clip"))
        if not SMALLEST_CLIP <= self.clip <= LARGEST_CLIP:
            raise BadParameter("clip", "must lie between 1e-6 and 1e6")
        settle(self, parameters=whole(self.parameters, "parameters", at_least=1))
        settle(self, page=whole(self.page, "page", at_least=1))
        settle(self, single_up_to=whole(self.single_up_to, "single_up_to"))
        if self.parameters > MOST_PARAMETERS:
            raise BadParameter("module", "has more than 2^30 parameters to train")

    @classmethod
    def of(cls, clip: Number, *, parameters: int, page: int, expected_batch: int) -> Sensitivity:
        """Sums in single precision up to a rather large batch, where that costs little."""
        batch = whole(expected_batch, "expected_batch", at_least=1)
        wanted = batch + 8 * math.isqrt(batch) + 16
        exact_clip = positive(clip, "clip")
        single = cls(exact_clip, parameters, page, wanted)
        return single if single.sum_error <= MOST_SINGLE else cls(exact_clip, parameters, page, 0)

    @property
    def norm_error(self) -> Fraction:
        """A clipped gradient is longer than the clip by at most this share of it."""
        return gamma(BLOCK + 6, SINGLE) + _SMALL_CHANGE

    @property
    def sum_error(self) -> Fraction:
        """Two float sums of clipped gradients are off by at most this share of the clip, together.

        Neighbours may be summed in different ways: twice the largest error holds for any two.
        """
        single, double = self._off(self.single_up_to, SINGLE), self._off(DOUBLE_UP_TO, DOUBLE)
        few = min(self.page, FEW)
        # Of pages whose losses are kept, only losses of losses are lost (Ogita, Rump and Oishi's Sum2).
        lost = gamma(few + 8, DOUBLE) + gamma(MOST_UNITS // few, DOUBLE) ** 2
        return 2 * max(single, double, MOST_UNITS * lost)

    def _off(self, units: int, roundoff: Fraction) -> Fraction:
        return units * gamma(self.page + self._pages(units) + 4, roundoff)

    def _pages(self, units: int) -> int:
        return -(-units // self.page)

    def is_single(self, units: int, pages: int) -> bool:
        """Tell whether so many units in so many pages, full or not, are summed in single precision."""
        return units <= self.single_up_to and pages <= self._pages(self.single_up_to)

    def is_many(self, units: int, pages: int) -> bool:
        """Tell whether they are summed with more care than double precision."""
        return units > DOUBLE_UP_TO or pages > self._pages(DOUBLE_UP_TO)

    @property
    def kappa(self) -> Fraction:
        """All float errors: sums of neighbours differ by at most clip · (1 + kappa) before rounding."""
        longest = 1 + self.norm_error
        return longest * (1 + self.sum_error) - 1

    @property
    def step(self) -> Fraction:
        """The grid's step: a power of two, so that dividing floats by it is exact."""
        finest = self.clip * GRID_SHARE / sqrt_up(self.parameters)
        return Fraction(2) ** math.floor(math.log2(finest))

    @property
    def distance(self) -> int:
        """How far one unit moves the vector of whole numbers, in L2, rounded up."""
        moved = self.clip * (1 + self.kappa) / self.step
        return math.ceil(moved + sqrt_up(self.parameters))

    @property
    def largest(self) -> int:
        """No coordinate of up to 2^22 units is larger. Of more units, it is cut here.

        That costs nothing: two numbers that are cut are no further apart than before.
        """
        return DOUBLE_UP_TO * self.distance

    def mechanism(self, noise: Fraction) -> Gaussian:
        """The exact noise: `noise` times as wide as one unit can move the sum.

        Sums and noise (16 deviations: 2^-180) stay below 2^53, where whole numbers are exact floats.
        """
        if 16 * noise * self.distance + self.largest >= 1 << 53:
            raise BadParameter("noise", "is so large that floats are no longer exact on the grid")
        return Gaussian(noise * self.distance, Fraction(self.distance**2), self.parameters)
