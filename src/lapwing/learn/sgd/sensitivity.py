"""The sensitivity of a noisy sum of clipped gradients, and the price of a run of such sums.

Claim    two samples that differ by one unit give whole-number vectors within L2 distance `distance`.
Because  a unit's gradient is scaled by a factor that is at most clip / norm, up to the error of a norm
         (`norm_error`); the float sum of a page differs from the true sum by at most gamma times the sum
         of norms (`sum_error`), for any order of adding; and rounding moves each coordinate by at most
         half a step on either side. docs/arguments/dp_sgd.md has the proof.
Test     tests/learn/sgd/test_sensitivity.py, tests/learn/sgd/test_sgd_neighbours.py

Claim    a run of noisy sums on fresh Poisson samples is (ε, δ)-private with the ε of its `FixedRun`.
Because  the number of steps, the rate and the noise are fixed before the first step, and
         `GradientSensitivity` bounds what a unit moves.
Test     tests/learn/sgd/test_sensitivity_price.py
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from lapwing.core.exact import Number, positive, set_fields, sqrt_up, whole
from lapwing.core.fixed_run import FixedRun
from lapwing.core.gaussian import Gaussian
from lapwing.core.losses import SampledGaussian, checked_delta, checked_epsilon
from lapwing.errors import BadParameter

SINGLE, DOUBLE = Fraction(1, 2**24), Fraction(1, 2**53)  # half the spacing of floats next to 1
# Squares are added in blocks of this size, in the gradients' own type; the blocks in double precision.
BLOCK = 1024
# Sums in single precision are used where they cost at most this much of the clip.
MOST_SINGLE = Fraction(1, 64)
# Rounding to the grid costs at most this share of the clip. (Finer grids have wider, slower noise.)
GRID_SHARE = Fraction(1, 2**14)
# Up to this many sampled units, pages are added one after the other in double precision.
DOUBLE_UP_TO = 1 << 22
# More units are added in pages of at most FEW, and the rounding errors are kept and added as well.
# MOST_UNITS is twice the number of people on earth; their indexes alone would take 256 GiB of memory.
FEW, MOST_UNITS = 32, 1 << 34
MOST_PARAMETERS = 1 << 30
SMALLEST_CLIP, LARGEST_CLIP = Fraction(1, 10**6), Fraction(10**6)
# What is left: the rounding of the factor itself and of the products with it, squares that underflow, and
# the error of ghost norms in double precision.
_SMALL_CHANGE = Fraction(1, 2**19)


def roundoff_bound(count: int, roundoff: Fraction) -> Fraction:
    """Return the relative error of `count` float operations in a row: n u / (1 - n u)."""
    if count * roundoff >= Fraction(1, 2):
        raise BadParameter("page", "is so large that floats are no longer known to be right")
    return count * roundoff / (1 - count * roundoff)


@dataclass(frozen=True, slots=True)
class GradientSensitivity:
    """The public grid of a training run, and the distance by which one unit moves a sum on it.

    `page` units are processed at once. Up to `single_up_to` sampled units are summed in single precision
    (never, if 0). More units, or more pages than these fill, are summed in double precision, and very many
    with compensation, so that no sample is too large.
    """

    clip: Fraction
    parameters: int
    page: int
    single_up_to: int

    def __post_init__(self) -> None:
        set_fields(self, clip=positive(self.clip, "clip"))
        if not SMALLEST_CLIP <= self.clip <= LARGEST_CLIP:
            raise BadParameter("clip", "must lie between 1e-6 and 1e6")
        set_fields(self, parameters=whole(self.parameters, "parameters", at_least=1))
        set_fields(self, page=whole(self.page, "page", at_least=1))
        set_fields(self, single_up_to=whole(self.single_up_to, "single_up_to"))
        if self.parameters > MOST_PARAMETERS:
            raise BadParameter("module", "has more than 2^30 parameters to train")

    @classmethod
    def of(cls, clip: Number, *, parameters: int, page: int, expected_batch: int) -> GradientSensitivity:
        """Sum in single precision up to a rather large batch, where that costs little."""
        batch = whole(expected_batch, "expected_batch", at_least=1)
        wanted = batch + 8 * math.isqrt(batch) + 16
        exact_clip = positive(clip, "clip")
        single = cls(exact_clip, parameters, page, wanted)
        return single if single.sum_error <= MOST_SINGLE else cls(exact_clip, parameters, page, 0)

    @property
    def norm_error(self) -> Fraction:
        """The share of the clip by which a clipped gradient can be longer than the clip."""
        return roundoff_bound(BLOCK + 6, SINGLE) + _SMALL_CHANGE

    @property
    def sum_error(self) -> Fraction:
        """The greatest error of two float sums of clipped gradients together, as a share of the clip.

        Neighbours may be summed in different ways: twice the largest error holds for any two.
        """
        single, double = self._off(self.single_up_to, SINGLE), self._off(DOUBLE_UP_TO, DOUBLE)
        few = min(self.page, FEW)
        # With compensation, only errors of errors are lost (Ogita, Rump and Oishi's Sum2).
        lost = roundoff_bound(few + 8, DOUBLE) + roundoff_bound(MOST_UNITS // few, DOUBLE) ** 2
        return 2 * max(single, double, MOST_UNITS * lost)

    def _off(self, units: int, roundoff: Fraction) -> Fraction:
        return units * roundoff_bound(self.page + self._pages(units) + 4, roundoff)

    def _pages(self, units: int) -> int:
        return -(-units // self.page)

    def is_single(self, units: int, pages: int) -> bool:
        """Tell whether this many units in this many pages, full or not, are summed in single precision."""
        return units <= self.single_up_to and pages <= self._pages(self.single_up_to)

    def is_many(self, units: int, pages: int) -> bool:
        """Tell whether they are summed with compensation."""
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
        """The L2 distance by which one unit moves the vector of whole numbers, rounded up."""
        moved = self.clip * (1 + self.kappa) / self.step
        return math.ceil(moved + sqrt_up(self.parameters))

    @property
    def largest(self) -> int:
        """The greatest coordinate of up to 2^22 units. With more units, coordinates are clamped to it.

        Clamping costs nothing: two clamped numbers are no further apart than before.
        """
        return DOUBLE_UP_TO * self.distance

    def mechanism(self, noise: Fraction) -> Gaussian:
        """Return the exact noise: `noise` times as wide as one unit can move the sum.

        Sums and noise (16 deviations: 2^-180) stay below 2^53, where whole numbers are exact floats.
        """
        if 16 * noise * self.distance + self.largest >= 1 << 53:
            raise BadParameter("noise", "is so large that floats are no longer exact on the grid")
        return Gaussian(noise * self.distance, Fraction(self.distance**2), self.parameters)


_DIGITS = 1000  # noise is found to three decimals
_LEAST, _MOST = Fraction(3, 10), Fraction(1 << 12)
_NEAR_ENOUGH = 0.003  # of ε
_MOST_TRIES = 40
_MOST_STEPS = 1 << 20


@dataclass(frozen=True, slots=True)
class StepSchedule:
    """Steps that are fixed before the first one: their number, their rate and their noise."""

    sensitivity: GradientSensitivity
    rate: Fraction
    noise: Fraction
    steps: int
    delta: Fraction

    def loss(self, *, done: int = 0) -> FixedRun:
        """Return the loss of the steps that are still to be done."""
        return _run(self, self.steps - done)

    def epsilon(self) -> Fraction:
        """Return the ε at δ of the whole run, rounded up."""
        return self.loss().pair[0]


@lru_cache(maxsize=64)
def _run(plan: StepSchedule, steps: int) -> FixedRun:
    step = SampledGaussian(plan.rate, plan.sensitivity.mechanism(plan.noise).loss)
    return FixedRun.of((step, steps), delta=plan.delta)


def step_schedule(
    sensitivity: GradientSensitivity,
    *,
    epsilon: Number,
    delta: Number,
    rate: Number,
    steps: int | None,
    noise: Number | None,
) -> StepSchedule:
    """Return the least noise within ε for `steps`, or the most steps (to 0.4 %) within ε for `noise`."""
    most, spare, often = checked_epsilon(epsilon), checked_delta(delta), positive(rate, "rate")
    if often > 1:
        raise BadParameter("rate", "must lie in (0, 1]")
    if (steps is None) == (noise is None):
        raise BadParameter("steps", "or noise must be given, and not both: the other follows from ε")

    def at(tried_noise: Fraction, tried_steps: int) -> StepSchedule:
        return StepSchedule(sensitivity, often, tried_noise, tried_steps, spare)

    if steps is not None:
        count = whole(steps, "steps", at_least=1)
        # What a Gaussian of the same moments would need: where the search begins.
        near = float(often) * math.sqrt(2 * count * -math.log(spare or 1e-10)) / float(most)
        return at(_least_noise(lambda z: at(z, count).epsilon(), most, near), count)
    assert noise is not None
    width = positive(noise, "noise")
    if width < _LEAST:
        raise BadParameter("noise", "must be at least 0.3 times the distance that one unit can move")
    return at(width, _most_steps(lambda k: at(width, k).epsilon() <= most))


def _least_noise(epsilon: Callable[[Fraction], Fraction], most: Fraction, near: float) -> Fraction:
    """Find the noise by secants of ln ε over ln noise.

    The result was checked to fit, whatever the search assumed.
    """
    low, high = math.log(_LEAST), math.log(_MOST)
    place, slope = min(max(math.log(near), low), high), -1.2
    before: tuple[float, float] | None = None
    fits: Fraction | None = None
    for _ in range(_MOST_TRIES):
        tried = max(Fraction(math.ceil(math.exp(place) * _DIGITS), _DIGITS), _LEAST)
        spent = epsilon(tried)
        place, off = math.log(tried), math.log(spent / most)
        if spent <= most:
            fits, high = tried, place
            if off > -_NEAR_ENOUGH or tried == _LEAST:
                break
        else:
            low = place
        if before is not None and abs(place - before[0]) > 1e-9:
            secant = (off - before[1]) / (place - before[0])
            slope = secant if secant < -0.1 else slope
        before = (place, off)
        aim = place - (off + _NEAR_ENOUGH / 2) / slope
        place = aim if low < aim < high else (low + high) / 2
        if high - low < _NEAR_ENOUGH / 4:
            break
    if fits is None:
        raise BadParameter(
            "epsilon", "is too small for this number of steps: no noise up to 4096 is enough"
        )
    return fits


def _most_steps(fits: Callable[[int], bool]) -> int:
    if not fits(1):
        raise BadParameter("noise", "is too small: not one step fits ε. Use more noise or a larger ε")
    low, high = 1, 2
    while high <= _MOST_STEPS and fits(high):
        low, high = high, 2 * high
    while high - low > max(1, low >> 8):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
