"""From rows to units: each unit gets one whole number, whatever rows it has.

Claim    removing a unit takes away its own whole number and changes no other unit's.
Because  a unit's number is made of its own rows alone, clipped one by one, and every row becomes a number:
         nothing is refused for its value.
Test     tests/learn/validators/test_rows.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lapwing.errors import BadParameter, BadValue
from lapwing.exact import Number, exact, positive
from lapwing.learn.cells import NUMBERS, column_of, numbers_of, units_of
from lapwing.learn.purse import EACH_ROW
from lapwing.noise import permutation

Floats = NDArray[np.float64]
Wholes = NDArray[np.int64]
Values = ArrayLike | Sequence[Any]
MOST_STEPS = 1 << 30  # so that sums of 2^32 rows fit 8 bytes
_LARGEST_REAL = 10**300
_UNSURE = 2.0**-48


class Rounding(Enum):
    """To which side a number may be off."""

    UP = "up"
    DOWN = "down"
    NEAREST = "either, by at most one half"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class OfClass:
    """What each model of a class loses on each row: one array per model, all over the same rows.

    `units` says whose rows they are, as in `Rows`.
    """

    losses: Sequence[Values]
    units: ArrayLike | None = field(kw_only=True)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Rows:
    """One value per row: a loss, whether a prediction was right, a number or a bin.

    What cannot be read counts as missing. `units` are whole numbers that say whose row it is; None (or
    EACH_ROW) says that every row is a unit of its own.
    """

    values: Values
    units: ArrayLike | None = field(kw_only=True)
    of_class: OfClass | None = field(kw_only=True, default=None)


def step_count(width: Number, step: Number, name: str) -> int:
    """How many steps make the width. It must be a whole number, so that nothing is rounded at the end."""
    wide, fine = positive(width, name), positive(step, "step")
    if fine.numerator * _LARGEST_REAL < fine.denominator or wide > _LARGEST_REAL:
        raise BadParameter("step", "and bounds must lie between 1e-300 and 1e300")
    count = wide / fine
    if count.denominator != 1 or count > MOST_STEPS:
        raise BadParameter("step", f"must divide {name}, into at most 2^30 parts")
    return int(count)


def value_rows(values: Values, kinds: str, wanted: str) -> NDArray[Any]:
    """One cell per row. The type of an array is checked, never what is in it; lists have none."""
    cells = column_of(values, wanted)
    if cells.size and cells.dtype.kind not in kinds + "O":
        raise BadValue(wanted)
    return cells if cells.size else np.zeros(0, object)


def real_rows(values: Values) -> Floats:
    """One number per row, NaN for what is none."""
    return numbers_of(value_rows(values, NUMBERS, "there must be one number per row"))


def unit_rows(units: Any, count: int) -> Wholes:
    """Whose row each is, as whole numbers from 0."""
    whose = units_of(None if units is EACH_ROW else units, count)
    if whose is None:
        return np.arange(count, dtype=np.int64)
    return np.unique(whose, return_inverse=True)[1].astype(np.int64)


def unit_means(wholes: Wholes, units: Wholes, rounding: Rounding) -> Wholes:
    """The mean of each unit's rows, as a whole number."""
    if not len(wholes):
        return wholes
    order = np.argsort(units, kind="stable")
    starts = np.flatnonzero(np.diff(units[order], prepend=-1))
    sums = np.add.reduceat(wholes[order], starts)
    counts = np.diff(starts, append=len(wholes))
    means: Wholes
    if rounding is Rounding.UP:
        means = -(-sums // counts)
    elif rounding is Rounding.DOWN:
        means = sums // counts
    else:
        means = (2 * sums + counts) // (2 * counts)
    return means


def one_row_each(units: Wholes) -> Wholes:
    """The index of one row of each unit, all of its rows being equally likely."""
    order = permutation(len(units))
    return order[np.unique(units[order], return_index=True)[1]]


def in_steps(losses: Floats, step: Fraction, most: int, rounding: Rounding) -> Wholes:
    """Losses as whole numbers of steps in 0 .. most, rounded to one side exactly.

    A loss that is missing counts as the worst that it could be: `most` if rounded up, else 0. Where a float
    quotient cannot decide (a loss near a multiple of the step), the exact one does.
    """
    up = rounding is Rounding.UP
    known = np.maximum(np.where(np.isnan(losses), np.inf if up else 0.0, losses), 0.0)
    with np.errstate(over="ignore", under="ignore"):
        quotients = np.minimum(known / float(step), most + 1.0)
    found = (np.ceil(quotients) if up else np.floor(quotients)).astype(np.int64)
    distance = np.abs(quotients - np.rint(quotients))
    unsure = (distance <= quotients * _UNSURE) & (known > 0) & (quotients < most + 0.5)
    if unsure.any():
        distinct, places = np.unique(known[unsure], return_inverse=True)
        exactly = [Fraction(loss) / step for loss in distinct.tolist()]
        settled = [math.ceil(q) if up else math.floor(q) for q in exactly]
        found[unsure] = np.array(settled, dtype=np.int64)[places]
    return np.clip(found, 0, most)


def checked_bounds(low: Number, high: Number, step: Number) -> tuple[Fraction, Fraction, Fraction]:
    """Bounds that are multiples of the step, so that a grid begins and ends at them."""
    bottom, top, fine = exact(low, "low"), exact(high, "high"), positive(step, "step")
    if bottom >= top:
        raise BadParameter("low", "must be below high")
    for name, end in (("low", bottom), ("high", top)):
        if (end / fine).denominator != 1:
            raise BadParameter("step", f"must divide {name}")
        if abs(end) > MOST_STEPS * fine:
            raise BadParameter("step", "is too fine: bounds must be within 2^30 steps of 0")
    return bottom, top, fine
