"""exp(-x) in floats with a proven error, and exact coins with probability exp(-x).

Claim    `exp_neg(x)` is within a relative 2^-47 of exp(-x) for float x in [0, 700], and the
         coins of `bernoulli_exp` are true with probability exactly exp(-x).
Because  x = 16 a + i / 1024 + r with |r| <= 2^-11 (all exact in floats); the two table entries are
         correctly rounded exponentials, and 1 - r + r^2/2 - r^3/6 is off by at most r^4/24 < 2^-48;
         six rounded operations add less than 2^-50. Only IEEE addition, multiplication and table
         lookup are used, so nothing rests on a mathematical library. The coins use `coins_near`.
Test     tests/noise/test_decay.py
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
from flint import arb
from numpy.typing import NDArray

from lapwing.exact import ball, exp_of, precision
from lapwing.noise.refine import coins_near
from lapwing.noise.stream import Stream

LARGEST = 700.0
RELATIVE_ERROR = 2.0**-47
_STEPS = 1024
_COARSE_BITS = 14  # 16 in steps of 1/1024
_PER_COARSE = 1 << _COARSE_BITS
# A rate beyond this makes every coin false at the first step; it keeps products inside floats.
_LARGEST_RATE = Fraction(10**280)


@cache
def _tables() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """exp(-16 a) and exp(-i / 1024), each within a unit in the last place."""
    with precision(192):
        coarse = _powers(ball(-16).exp(), 45)
        fine = _powers(ball(Fraction(-1, _STEPS)).exp(), _PER_COARSE)
    return coarse, fine


def _powers(base: arb, count: int) -> NDArray[np.float64]:
    """base^0, base^1, ...: `count` products lose about `count` units in the 192nd bit, no more."""
    powers, power = np.empty(count), arb(1)
    for i in range(count):
        assert power.rel_accuracy_bits() > 128
        powers[i] = float(power)
        power *= base
    return powers


def exp_neg(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """exp(-x) for x >= 0, relative error at most 2^-47; 0 beyond 700."""
    coarse, fine = _tables()
    capped = np.minimum(x, LARGEST)
    nearest = np.rint(capped * _STEPS)
    r = capped - nearest * (1.0 / _STEPS)
    index = nearest.astype(np.intp)
    result: NDArray[np.float64] = fine.take(index & (_PER_COARSE - 1))
    result *= coarse.take(index >> _COARSE_BITS)
    result *= 1.0 - r * (1.0 - r * (0.5 - r * (1.0 / 6.0)))
    result[x > LARGEST] = 0.0
    return result


def float_error(largest_x: float) -> float:
    """Relative error of exp_neg(x~) where x~ is x after at most four float roundings."""
    return RELATIVE_ERROR + largest_x * 2.0**-50


def float_gaps(whole: NDArray[np.int64], rate: Fraction) -> NDArray[np.float64]:
    """whole * rate in floats: three roundings."""
    return whole.astype(np.float64) * float(min(rate, _LARGEST_RATE))


def bernoulli_exp(stream: Stream, numerators: NDArray[np.int64], rate: Fraction) -> NDArray[np.bool_]:
    """Coins that are true with probability exactly exp(-numerators * rate), numerators >= 0."""
    x = float_gaps(numerators, rate)
    return coins_near(
        stream,
        exp_neg(x),
        float_error(LARGEST),
        lambda i: exp_of(-int(numerators[i]) * rate),
    )
