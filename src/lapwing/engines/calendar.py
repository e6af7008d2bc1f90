"""The calendar in plain whole-number arithmetic: alike on every engine, and no day is out of range.

Days are shifted so that they count from a first of March long ago. Years then begin with March: the day
that leap years add is their last. Everything is positive, so that `divide` may round either way.
"""

from __future__ import annotations

from collections.abc import Callable

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
    """Parts of a number of days, or of seconds, since 1970-01-01. Each is an SQL expression of it.

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
        """Four times the day, plus 3: leap years come every 1461 of it, centuries every 146097."""
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
        """Since a January long ago."""
        month = self._divide(self._fifths(), 153)
        return f"(12 * (100 * {self._century()} + {self._year_of_century()}) + {month} + 2)"

    def months(self) -> str:
        """Months since January 1970."""
        return f"({self._months()} - {12 * (1970 + _YEARS)})"

    def year(self) -> str:
        return f"({self._divide(self._months(), 12)} - {_YEARS})"

    def quarter(self) -> str:
        return f"({self._divide(f'({self._months()} % 12)', 3)} + 1)"

    def month(self) -> str:
        return f"({self._months()} % 12 + 1)"

    def day(self) -> str:
        return f"({self._divide(f'({self._fifths()} % 153)', 5)} + 1)"

    def dayofweek(self) -> str:
        """Monday is 1."""
        return f"(({self._day} + {(3 - _SHIFT) % 7}) % 7 + 1)"

    def dayofyear(self) -> str:
        day, century, year = self._day_of_march_year(), self._century(), self._year_of_century()
        leap = f"CASE WHEN {year} % 4 = 0 AND ({year} > 0 OR {century} % 4 = 0) THEN 1 ELSE 0 END"
        return f"CASE WHEN {day} >= 306 THEN {day} - 305 ELSE {day} + 60 + {leap} END"

    def hour(self) -> str:
        return self._of_day(3600, 24)

    def minute(self) -> str:
        return self._of_day(60, 60)

    def second(self) -> str:
        return self._of_day(1, 60)

    def _of_day(self, seconds: int, modulus: int) -> str:
        if self._in_days:
            return f"(0 * {self._moment})"  # NULL stays NULL
        counted = self._second if seconds == 1 else self._divide(self._second, seconds)
        return f"({counted} % {modulus})"


def seconds_of_parts(date: tuple[str, str, str], time: tuple[str, str, str], divide: Divide) -> str:
    """Seconds since 1970 of whole numbers that are a date and a time; of 8 bytes, if the hour is."""
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
