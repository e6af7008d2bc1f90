"""What a column's type is to us, whatever the engine calls it."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction


class Family(Enum):
    """Types that are read in the same way."""

    TRUTH = "truth"
    WHOLE = "whole"
    DECIMAL = "decimal"
    FLOAT = "float"
    TEXT = "text"
    DATE = "date"
    TIMESTAMP = "timestamp"
    ZONED = "timestamp with time zone"
    BYTES = "bytes"
    UUID = "uuid"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Shape:
    """A family; for whole numbers the range of the type, for decimals that of the units of 10^-scale."""

    family: Family
    first: int = 0
    last: int = 0
    scale: int = 0


def whole_shape(bits: int, *, signed: bool = True) -> Shape:
    """Of whole numbers of so many bits."""
    if signed:
        return Shape(Family.WHOLE, -(1 << bits - 1), (1 << bits - 1) - 1)
    return Shape(Family.WHOLE, 0, (1 << bits) - 1)


def decimal_shape(width: int, scale: int) -> Shape:
    """Of decimals of so many digits, `scale` of them behind the point."""
    return Shape(Family.DECIMAL, 1 - 10**width, 10**width - 1, scale)


@dataclass(frozen=True, slots=True)
class Ends:
    """Values <= low become the first step, values >= high the last one, those between one in between."""

    low: int
    high: int

    @classmethod
    def of(cls, step: Fraction, first: int, last: int) -> Ends:
        """For whole numbers v and floor(v / step + 1/2)."""
        half = Fraction(1, 2)
        return cls(math.ceil((first + half) * step) - 1, math.ceil((last - half) * step))


def coarser(step: Fraction) -> int:
    """The greatest power of ten of which half a step is a multiple."""
    power = 1
    while (step / 2 / (power * 10)).denominator == 1:
        power *= 10
    return power


def float_ends(step: float, first: int, last: int) -> tuple[float, float]:
    """The same for floats: floor(v / step + 0.5) never falls as v grows, so its edges can be searched for.

    Python's floats are the engines' floats: what is found here is what they will compute.
    """

    def least(reached: float) -> float:
        low, high = _place(-math.inf), _place(math.inf)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if _at(middle) / step + 0.5 >= reached else (middle + 1, high)
        return _at(low)

    # floor(x) >= n if and only if x >= n: nothing needs to be rounded down here.
    return _at(_place(least(first + 1)) - 1), least(last)


def _place(value: float) -> int:
    """Where a float stands in the row of all floats."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else -(bits & (1 << 63) - 1) - 1


def _at(place: int) -> float:
    bits = place if place >= 0 else -(place + 1) - (1 << 63)
    value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return value
