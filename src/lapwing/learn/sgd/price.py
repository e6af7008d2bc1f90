"""What a training run costs, and how much noise or how many steps a budget allows.

Claim    a run of noisy sums on fresh Poisson samples is (ε, δ)-private with the ε of its `FixedRun`.
Because  the number of steps, the rate and the noise are fixed before the first step; `Sensitivity` bounds
         what a unit moves.
Test     tests/learn/sgd/test_price.py
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from lapwing.errors import BadParameter
from lapwing.exact import Number, positive, whole
from lapwing.learn.sgd.sensitivity import Sensitivity
from lapwing.privacy import FixedRun, SampledGaussian
from lapwing.privacy.loss import checked_delta, checked_epsilon

_DIGITS = 1000  # noise is found to three decimals
_LEAST, _MOST = Fraction(3, 10), Fraction(1 << 12)
_NEAR_ENOUGH = 0.003  # of ε
_MOST_TRIES = 40
_MOST_STEPS = 1 << 20


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps that are fixed before the first: how many, at which rate, with how much noise."""

    sensitivity: Sensitivity
    rate: Fraction
    noise: Fraction
    steps: int
    delta: Fraction

    def loss(self, *, done: int = 0) -> FixedRun:
        """What the steps cost that are still to be done."""
        return _run(self, self.steps - done)

    def epsilon(self) -> Fraction:
        """The ε at δ of the whole run, rounded up."""
        return self.loss().pair[0]


@lru_cache(maxsize=64)
def _run(plan: Schedule, steps: int) -> FixedRun:
    step = SampledGaussian(plan.rate, plan.sensitivity.mechanism(plan.noise).loss)
    return FixedRun.of((step, steps), delta=plan.delta)


def schedule(
    sensitivity: Sensitivity,
    *,
    epsilon: Number,
    delta: Number,
    rate: Number,
    steps: int | None,
    noise: Number | None,
) -> Schedule:
    """For `steps`, about the least noise within ε; for `noise`, the most steps (to 0.4 %) within ε."""
    most, spare, often = checked_epsilon(epsilon), checked_delta(delta), positive(rate, "rate")
    if often > 1:
        raise BadParameter("rate", "must lie in (0, 1]")
    if (steps is None) == (noise is None):
        raise BadParameter("steps", "or noise must be given, and not both: the other follows from ε")

    def at(tried_noise: Fraction, tried_steps: int) -> Schedule:
        return Schedule(sensitivity, often, tried_noise, tried_steps, spare)

    if steps is not None:
        count = whole(steps, "steps", at_least=1)
        # What a Gaussian of the same moments would need: where the search begins.
        near = float(often) * math.sqrt(2 * count * -math.log(spare or 1e-10)) / float(most)
        return at(_least_noise(lambda z: at(z, count).epsilon(), most, near), count)
    assert noise is not None
    width = positive(noise, "noise")
    if width < _LEAST:
        raise BadParameter("noise", "must be at least 0.3 times what one unit can move")
    return at(width, _most_steps(lambda k: at(width, k).epsilon() <= most))


def _least_noise(epsilon: Callable[[Fraction], Fraction], most: Fraction, near: float) -> Fraction:
    """Secants of ln ε over ln noise. What is returned was found to fit, whatever the search assumed."""
    low, high = math.log(_LEAST), math.log(_MOST)
    place, slope = min(max(math.log(near), low), high), -1.2
    before: tuple[float, float] | None = None
    fits: Fraction | None = None
    for _ in range(_MOST_TRIES):
        tried = max(_rounded_up(math.exp(place)), _LEAST)
        found = epsilon(tried)
        place, off = math.log(tried), math.log(found / most)
        if found <= most:
            fits, high = tried, place
            if off > -_NEAR_ENOUGH or tried == _LEAST:
                break
        else:
            low = place
        if (
            before is not None
            and abs(place - before[0]) > 1e-9
            and (off - before[1]) / (place - before[0]) < -0.1
        ):
            slope = (off - before[1]) / (place - before[0])
        before = (place, off)
        aim = place - (off + _NEAR_ENOUGH / 2) / slope
        place = aim if low < aim < high else (low + high) / 2
        if high - low < _NEAR_ENOUGH / 4:
            break
    if fits is None:
        raise BadParameter("epsilon", "is too small for so many steps: no noise up to 4096 is enough")
    return fits


def _rounded_up(noise: float) -> Fraction:
    return Fraction(math.ceil(noise * _DIGITS), _DIGITS)


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
