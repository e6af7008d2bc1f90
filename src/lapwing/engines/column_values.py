"""Types of columns, the edges of clamped values, and calendar arithmetic: the same for every engine.

The calendar is whole-number arithmetic, so that no day is out of range. Days are shifted so that they count
from a first of March long ago. Years then begin with March: the leap day is their last day. All numbers are
positive, so that `divide` may round either way.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from lapwing.core.exact import least_where


class TypeFamily(Enum):
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
class ColumnType:
    """The type of a column.

    `first` and `last` are the range of a whole number's type; of a decimal's, in units of 10^-scale.
    """

    family: TypeFamily
    first: int = 0
    last: int = 0
    scale: int = 0


def whole_type(bits: int, *, signed: bool = True) -> ColumnType:
    """Return the type of whole numbers of this many bits."""
    if signed:
        return ColumnType(TypeFamily.WHOLE, -(1 << bits - 1), (1 << bits - 1) - 1)
    return ColumnType(TypeFamily.WHOLE, 0, (1 << bits) - 1)


def decimal_type(width: int, scale: int) -> ColumnType:
    """Return the type of decimals of `width` digits, `scale` of them after the point."""
    return ColumnType(TypeFamily.DECIMAL, 1 - 10**width, 10**width - 1, scale)


def clamp_edges(step: Fraction, first: int, last: int) -> tuple[int, int]:
    """Return the edges of clamping whole numbers v to the step floor(v / step + 1/2).

    Values at most as large as the low edge become the first step, values from the high edge on the last.
    """
    half = Fraction(1, 2)
    return math.ceil((first + half) * step) - 1, math.ceil((last - half) * step)


def power_of_ten_in(step: Fraction) -> int:
    """Return the greatest power of ten of which half a step is a multiple."""
    power = 1
    while (step / 2 / (power * 10)).denominator == 1:
        power *= 10
    return power


def float_edges(step: float, first: int, last: int) -> tuple[float, float]:
    """Return the edges for floats. floor(v / step + 0.5) never falls as v grows, so search for them.

    Python's floats are the engines' floats: the edges that are found here are those that engines compute
    with.
    """

    def least(reached: float) -> float:
        def is_reached(place: int) -> bool:
            return _at(place) / step + 0.5 >= reached

        return _at(least_where(is_reached, _place(-math.inf) - 1, _place(math.inf)))

    # floor(x) >= n if and only if x >= n: nothing needs to be rounded down here.
    return _at(_place(least(first + 1)) - 1), least(last)


def _place(value: float) -> int:
    """Return the position of a float in the order of all floats."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else -(bits & (1 << 63) - 1) - 1


def _at(place: int) -> float:
    bits = place if place >= 0 else -(place + 1) - (1 << 63)
    value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return value


Divide = Callable[[str, int], str]

DAYS_AT_MOST = 3_650_000
SECONDS_OF_DAY = 86_400
_CYCLE = 146_097  # days of 400 years
_CYCLES = 30  # enough to make every day positive
_MARCH_YEAR_0 = 719_468  # days from 0000-03-01 to 1970-01-01
_SHIFT = _MARCH_YEAR_0 + _CYCLES * _CYCLE
_YEARS = 400 * _CYCLES

# ISO dates that exist, and times of day. The leap years are in here, so that nothing else must be checked.
_LEAP = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_DATE = (
    "([0-9]{4}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
    f"|{_LEAP}-02-29)"
)
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]"
_ZONE = "[+-]([01][0-9]|2[0-3]):?[0-5][0-9]"
ISO = f"{_DATE}([T ]{_TIME}(:[0-5][0-9]([.][0-9]{{1,9}})?(Z|{_ZONE})?)?)?"
ISO_WITH_ZONE = f".{{19,29}}{_ZONE}"


def calendar_parts(moment: str, divide: Divide, *, in_days: bool) -> dict[str, str]:
    """Return SQL of the parts of a number of days, or seconds, since 1970-01-01, by their names.

    `months` are counted from January 1970; Monday is day 1 of the week; other parts that are no times of
    the day count from 1. A number of days has hour, minute and second 0. `divide` divides positive whole
    numbers and rounds down.
    """
    second = f"({moment} + {_SHIFT * SECONDS_OF_DAY})"
    day = f"({moment} + {_SHIFT})" if in_days else divide(second, SECONDS_OF_DAY)
    quarters = f"(4 * {day} + 3)"  # leap years come every 1461 of it, centuries every 146097
    century = divide(quarters, _CYCLE)
    in_century = f"(4 * {divide(f'({quarters} % {_CYCLE})', 4)} + 3)"
    year = divide(in_century, 1461)  # of the century; it begins with March
    of_year = divide(f"({in_century} % 1461)", 4)
    fifths = f"(5 * {of_year} + 2)"
    months = f"(12 * (100 * {century} + {year}) + {divide(fifths, 153)} + 2)"  # since a January long ago
    leap = f"CASE WHEN {year} % 4 = 0 AND ({year} > 0 OR {century} % 4 = 0) THEN 1 ELSE 0 END"

    def of_day(seconds: int, modulus: int) -> str:
        if in_days:
            return f"(0 * {moment})"  # NULL stays NULL
        return f"({second if seconds == 1 else divide(second, seconds)} % {modulus})"

    return {
        "months": f"({months} - {12 * (1970 + _YEARS)})",
        "year": f"({divide(months, 12)} - {_YEARS})",
        "quarter": f"({divide(f'({months} % 12)', 3)} + 1)",
        "month": f"({months} % 12 + 1)",
        "day": f"({divide(f'({fifths} % 153)', 5)} + 1)",
        "dayofweek": f"(({day} + {(3 - _SHIFT) % 7}) % 7 + 1)",
        "dayofyear": f"CASE WHEN {of_year} >= 306 THEN {of_year} - 305 ELSE {of_year} + 60 + {leap} END",
        "hour": of_day(3600, 24),
        "minute": of_day(60, 60),
        "second": of_day(1, 60),
    }


def seconds_of_parts(date: tuple[str, str, str], time: tuple[str, str, str], divide: Divide) -> str:
    """Return seconds since 1970 of a date and a time in whole numbers; in 8 bytes, if the hour is."""
    (year, month, day), (hour, minute, second) = date, time
    march_year = divide(f"(12 * {year} + {month} + {12 * 400 - 3})", 12)
    leaps = f"{divide(march_year, 4)} - {divide(march_year, 100)} + {divide(march_year, 400)}"
    days = (
        f"(365 * {march_year} + {leaps} + {divide(f'(153 * (({month} + 9) % 12) + 2)', 5)}"
        f" + {day} - {1 + _MARCH_YEAR_0 + _CYCLE})"
    )
    return f"(({days} * 24 + {hour}) * 60 + {minute}) * 60 + {second}"
