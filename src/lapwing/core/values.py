"""Inputs of mechanisms: whole numbers, and the public grid that turns real values into whole numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lapwing.core.exact import Number, exact, positive, set_fields
from lapwing.errors import BadParameter, BadValue

# Values are clamped to this range, so that adding noise cannot overflow. Clamping never increases the
# distance between two data sets, so it costs nothing. Unlike an error, it reveals nothing.
LARGEST_VALUE = 1 << 61
LARGEST_SCORE = 1 << 60
_LARGEST_REAL = 10**300


def whole_numbers(values: ArrayLike) -> NDArray[np.int64]:
    """Return whole numbers as a vector, possibly empty. Their type is checked; their size is clamped.

    A list is converted by Python's integers. numpy would choose a type by the size of the numbers and
    refuse some, so that an error would reveal the size.
    """
    array = np.atleast_1d(values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object))
    if array.ndim != 1:
        raise BadValue("values must be one number or a one-dimensional array")
    if not array.size:
        return np.zeros(0, dtype=np.int64)  # an empty list has no type that could be wrong
    if array.dtype == object and all(
        isinstance(value, int | np.integer) and not isinstance(value, bool) for value in array
    ):
        array = np.array([min(max(int(v), -LARGEST_VALUE), LARGEST_VALUE) for v in array], dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise BadValue("values must be whole numbers: put real values on a public Grid first")
    clamped: NDArray[np.int64] = np.clip(array, -LARGEST_VALUE, LARGEST_VALUE).astype(np.int64)
    return clamped


def whole_values(values: ArrayLike) -> NDArray[np.int64]:
    """Return one or more whole numbers as a vector, clamped."""
    array = whole_numbers(values)
    if not len(array):
        raise BadValue("there is nothing to release: no values were given")
    return array


def whole_scores(scores: ArrayLike) -> NDArray[np.int64]:
    """Return one or more whole scores, clamped to ±2^60, so that no difference of two overflows."""
    return np.clip(whole_values(scores), -LARGEST_SCORE, LARGEST_SCORE)


def _reals(values: ArrayLike | Sequence[float | None]) -> NDArray[np.float64]:
    """Return numbers as floats, one by one: None becomes NaN, and too large a number becomes infinite."""
    try:
        array = np.atleast_1d(np.asarray(values))
    except ValueError:  # lists of different lengths
        raise BadValue("values must be numbers in one dimension") from None
    if array.dtype == object and array.ndim == 1:
        present = [value for value in array if value is not None]
        if all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in present):
            return np.array([math.nan if v is None else _real(v) for v in array], dtype=np.float64)
    if array.dtype.kind not in "iuf" or array.ndim != 1:
        raise BadValue("values must be numbers in one dimension")
    return array.astype(np.float64)


def _real(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@dataclass(frozen=True, slots=True)
class Grid:
    """The public multiples of `step` between `low` and `high`.

    Claim    `place` maps each value by itself, also a missing one, to a whole number between the ends.
    Because  missing values are replaced before clamping; clamping precedes rounding; and no step
             looks at another value. So one unit's rows change only that unit's whole numbers.
    Test     tests/core/test_values.py

    Args:
        low: The least value; smaller values are clamped to it.
        high: The greatest value; larger values are clamped to it.
        step: The distance of neighbouring grid points, above 0.

    Raises:
        BadParameter: If there are fewer than two grid points, or they are not within 2^52 steps of 0.

    Example:
        >>> grid = Grid.of(low=0, high=100, step="0.5")
        >>> grid.place([3.2, 250.0, float("nan")], missing=0).tolist()
        [6, 200, 0]
        >>> grid.value(6)
        Fraction(3, 1)
    """

    low: Fraction
    high: Fraction
    step: Fraction

    def __post_init__(self) -> None:
        set_fields(self, low=exact(self.low, "low"), high=exact(self.high, "high"))
        set_fields(self, step=positive(self.step, "step"))
        if self.low >= self.high:
            raise BadParameter("low", "must be below high")
        if max(abs(self.low), abs(self.high)) > _LARGEST_REAL or self.step < 1 / _LARGEST_REAL:
            raise BadParameter(
                "step", "and bounds must lie between 1e-300 and 1e300, where floats are exact enough"
            )
        if max(abs(self.low), abs(self.high)) / self.step >= 1 << 52:
            raise BadParameter("step", "is too fine: bounds must be within 2^52 steps of 0")
        if self.first >= self.last:
            raise BadParameter("step", "leaves fewer than two multiples between low and high")

    @classmethod
    def of(cls, *, low: Number, high: Number, step: Number) -> Grid:
        """Return a grid from numbers as people write them, such as "0.1"."""
        return cls(exact(low, "low"), exact(high, "high"), positive(step, "step"))

    @property
    def first(self) -> int:
        """The whole number of the least grid point: low / step, rounded up."""
        return math.ceil(self.low / self.step)

    @property
    def last(self) -> int:
        """The whole number of the greatest grid point: high / step, rounded down."""
        return math.floor(self.high / self.step)

    def place(
        self, values: ArrayLike | Sequence[float | None], *, missing: Number | None
    ) -> NDArray[np.int64]:
        """Return real values as whole numbers of steps, clamped to the bounds.

        NaN and None become `missing`. With missing=None they are refused. Use that only for values that are
        public or the caller's own, since the error reveals that such a value exists.
        """
        real = _reals(values)
        absent = np.isnan(real)
        if missing is None:
            if absent.any():
                raise BadValue("a value is missing (NaN), and nothing was declared to replace it")
        else:
            replacement = min(max(exact(missing, "missing"), self.low), self.high)
            real = np.where(absent, float(replacement), real)
        bounded = np.clip(real, float(self.low), float(self.high))
        steps = np.rint(bounded / float(self.step)).astype(np.int64)
        return np.clip(steps, self.first, self.last)

    def value(self, steps: int) -> Fraction:
        """Return the real number at the given number of steps from 0."""
        return int(steps) * self.step
