"""What a value in a private table can be. Everything but text is a whole number with a public meaning.

A column's *code* is what the engine computes with: the whole number of steps of a number, the position of
a declared value, days since 1970, months since 1970. Codes are exact and alike on every engine, and their
bounds are known before any row is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

MONTHS = {"month": 1, "quarter": 3, "year": 12}
SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}

Value = str | int | float | bool | date | datetime | Fraction | None


@dataclass(frozen=True, slots=True)
class Number:
    """Multiples of `step`; `first` and `last` are the bounds in steps. Without bounds: None."""

    step: Fraction
    first: int | None
    last: int | None

    @property
    def is_bounded(self) -> bool:
        """Whether it can be summed."""
        return self.first is not None and self.last is not None

    @property
    def reach(self) -> int:
        """The greatest size of a code."""
        assert self.first is not None
        assert self.last is not None
        return max(abs(self.first), abs(self.last))

    def value(self, code: int) -> int | float:
        """What people read."""
        exact = code * self.step
        return int(exact) if exact.denominator == 1 else float(exact)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the declared values, by its position."""

    values: tuple[str | int | bool, ...]

    def value(self, code: int) -> str | int | bool:
        """What people read."""
        return self.values[code]


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time: how often `seconds` fit between `start` and it, from `first` to `last`.

    `start` is in seconds since 1970 (UTC), and 0 but for weeks, which begin on Mondays. A date is a
    Moment of 86400 seconds.
    """

    seconds: int
    first: int
    last: int
    start: int = 0

    def value(self, code: int) -> date | datetime:
        """What people read."""
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=self.start + code * self.seconds)
        return at.date() if self.seconds % SECONDS["day"] == 0 else at


@dataclass(frozen=True, slots=True)
class Period:
    """A calendar period of so many months: the whole number of them since January 1970."""

    months: int
    first: int
    last: int

    def value(self, code: int) -> date:
        """The first day of the period."""
        year, month = divmod(code * self.months, 12)
        return date(1970 + year, month + 1, 1)


@dataclass(frozen=True, slots=True)
class Truth:
    """True or false (SQL's boolean, so that it may also be unknown)."""


@dataclass(frozen=True, slots=True)
class Text:
    """Any text. It has no bounds: it can be compared, and grouped by with private selection."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who the row is about. It can be counted (distinct) and grouped by, never shown."""


Kind = Number | Choice | Moment | Period | Truth | Text | Person


def codes_of(kind: Kind) -> range | None:
    """All codes of a kind, if they are finitely many: then every one of them can be answered."""
    match kind:
        case Choice(values):
            return range(len(values))
        case Number(_, int(first), int(last)) | Moment(_, first, last, _) | Period(_, first, last):
            return range(first, last + 1)
        case Truth():
            return range(2)
        case _:
            return None
