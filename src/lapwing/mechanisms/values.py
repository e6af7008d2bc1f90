"""What a mechanism accepts: whole numbers, and how real values become whole on a public grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lapwing.errors import BadParameter, BadValue
from lapwing.exact import Number, exact, positive

# Values are clamped here, so that adding noise cannot overflow. Clamping brings no two data sets
# further apart, so it costs nothing, and unlike an error it tells nothing.
LARGEST_VALUE = 1 << 61


def whole_values(values: ArrayLike) -> NDArray[np.int64]:
    """One or more whole numbers as a vector. Their type is checked; their size is clamped."""
    array = np.atleast_1d(np.asarray(values))
    if array.dtype == object and all(type(value) is int for value in array.flat):
        array = np.clip(array, -LARGEST_VALUE, LARGEST_VALUE).astype(np.int64)
    if array.dtype.kind not in "iu":
        raise BadValue("values must be whole numbers: put real values on a public Grid first")
    if array.ndim != 1:
        raise BadValue("values must be one number or a one-dimensional array")
    if not len(array):
        raise BadValue("there is nothing to release: no values were given")
    clamped: NDArray[np.int64] = np.clip(array, -LARGEST_VALUE, LARGEST_VALUE).astype(np.int64)
    return clamped


@dataclass(frozen=True, slots=True)
class Grid:
    """The public multiples of `step` between `low` and `high`.

    Claim    `place` maps each value by itself to a whole number between the ends, whatever it is.
    Because  missing values are replaced before clamping; clamping precedes rounding; and no step
             looks at another value. So one unit's rows change only that unit's whole numbers.
    Test     tests/mechanisms/test_values.py
    """

    low: Fraction
    high: Fraction
    step: Fraction

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise BadParameter("low", "must be below high")
        if self.step <= 0 or self.step > self.high - self.low:
            raise BadParameter("step", "must be above 0 and at most high - low")
        if max(abs(self.low), abs(self.high)) / self.step >= 1 << 52:
            raise BadParameter("step", "is too fine: bounds must be within 2^52 steps of 0")
        if self.first >= self.last:
            raise BadParameter("step", "leaves fewer than two multiples between low and high")

    @classmethod
    def of(cls, *, low: Number, high: Number, step: Number) -> Grid:
        """A grid from numbers as people write them."""
        return cls(exact(low, "low"), exact(high, "high"), positive(step, "step"))

    @property
    def first(self) -> int:
        """The least whole number: low / step, rounded into the bounds."""
        return math.ceil(self.low / self.step)

    @property
    def last(self) -> int:
        """The greatest whole number: high / step, rounded into the bounds."""
        return math.floor(self.high / self.step)

    def place(self, values: ArrayLike, *, missing: Number | None) -> NDArray[np.int64]:
        """Real values as whole numbers of steps, clamped into the bounds.

        NaN becomes `missing`. With missing=None it is refused: only where the values are public, or
        the caller's own, since an error tells that such a value is there.
        """
        array = np.atleast_1d(np.asarray(values))
        if array.dtype.kind not in "iuf" or array.ndim != 1:
            raise BadValue("values must be numbers in one dimension")
        real = array.astype(np.float64)
        gone = np.isnan(real)
        if missing is None:
            if gone.any():
                raise BadValue("a value is missing (NaN), and nothing was declared to replace it")
        else:
            real = np.where(gone, float(exact(missing, "missing")), real)
        bounded = np.clip(real, float(self.low), float(self.high))
        steps = np.rint(bounded / float(self.step)).astype(np.int64)
        return np.clip(steps, self.first, self.last)

    def value(self, steps: int) -> Fraction:
        """The real number at so many steps."""
        return int(steps) * self.step
