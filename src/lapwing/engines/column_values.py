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


@dataclass(frozen=True, slots=True)
class ClampEdges:
    """Edges of clamping: values <= low become the first step, values >= high the last one."""

    low: int
    high: int

    @classmethod
    def of(cls, step: Fraction, first: int, last: int) -> ClampEdges:
        """Return the edges for whole numbers v and the step floor(v / step + 1/2)."""
        half = Fraction(1, 2)
        return cls(math.ceil((first + half) * step) - 1, math.ceil((last - half) * step))


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
        low, high = _place(-math.inf), _place(math.inf)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if _at(middle) / step + 0.5 >= reached else (middle + 1, high)
        return _at(low)

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


class Calendar:
    """SQL expressions for the parts of a number of days, or seconds, since 1970-01-01.

    `divide` divides positive whole numbers and rounds down.
    """

    def __init__(self, moment: str, divide: Divide, *, in_days: bool) -> None:
        self._divide = divide
        self._in_days = in_days
        self._moment = moment
        if in_days:
            self._day = f"({moment} + {_SHIFT})"
        else:
            self._second = f"({moment} + {_SHIFT * SECONDS_OF_DAY})"
            self._day = divide(self._second, SECONDS_OF_DAY)

    def _quarters(self) -> str:
        """Return four times the day, plus 3: leap years come every 1461 of it, centuries every 146097."""
        return f"(4 * {self._day} + 3)"

    def _century(self) -> str:
        return self._divide(self._quarters(), _CYCLE)

    def _in_century(self) -> str:
        return f"(4 * {self._divide(f'({self._quarters()} % {_CYCLE})', 4)} + 3)"

    def _year_of_century(self) -> str:
        return self._divide(self._in_century(), 1461)

    def _day_of_march_year(self) -> str:
        return self._divide(f"({self._in_century()} % 1461)", 4)

    def _fifths(self) -> str:
        return f"(5 * {self._day_of_march_year()} + 2)"

    def _months(self) -> str:
        """Return months since a January long ago."""
        month = self._divide(self._fifths(), 153)
        return f"(12 * (100 * {self._century()} + {self._year_of_century()}) + {month} + 2)"

    def months(self) -> str:
        """Return months since January 1970."""
        return f"({self._months()} - {12 * (1970 + _YEARS)})"

    def year(self) -> str:
        """Return the year."""
        return f"({self._divide(self._months(), 12)} - {_YEARS})"

    def quarter(self) -> str:
        """Return the quarter of the year, from 1."""
        return f"({self._divide(f'({self._months()} % 12)', 3)} + 1)"

    def month(self) -> str:
        """Return the month, from 1."""
        return f"({self._months()} % 12 + 1)"

    def day(self) -> str:
        """Return the day of the month, from 1."""
        return f"({self._divide(f'({self._fifths()} % 153)', 5)} + 1)"

    def dayofweek(self) -> str:
        """Return the day of the week; Monday is 1."""
        return f"(({self._day} + {(3 - _SHIFT) % 7}) % 7 + 1)"

    def dayofyear(self) -> str:
        """Return the day of the year, from 1."""
        day, century, year = self._day_of_march_year(), self._century(), self._year_of_century()
        leap = f"CASE WHEN {year} % 4 = 0 AND ({year} > 0 OR {century} % 4 = 0) THEN 1 ELSE 0 END"
        return f"CASE WHEN {day} >= 306 THEN {day} - 305 ELSE {day} + 60 + {leap} END"

    def hour(self) -> str:
        """Return the hour; 0 of a number of days."""
        return self._of_day(3600, 24)

    def minute(self) -> str:
        """Return the minute; 0 of a number of days."""
        return self._of_day(60, 60)

    def second(self) -> str:
        """Return the second; 0 of a number of days."""
        return self._of_day(1, 60)

    def _of_day(self, seconds: int, modulus: int) -> str:
        if self._in_days:
            return f"(0 * {self._moment})"  # NULL stays NULL
        counted = self._second if seconds == 1 else self._divide(self._second, seconds)
        return f"({counted} % {modulus})"


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


PARTS: dict[str, Callable[[Calendar], str]] = {
    "year": Calendar.year, "quarter": Calendar.quarter, "month": Calendar.month, "day": Calendar.day,
    "dayofweek": Calendar.dayofweek, "dayofyear": Calendar.dayofyear, "hour": Calendar.hour,
    "minute": Calendar.minute, "second": Calendar.second,
}  # fmt: skip
