"""Kinds of columns: what a declared value can be, and the whole number that stands for it.

A column's *code* is the value that the engine computes with: the whole number of steps of a number, the
position of a declared value, days since 1970, months since 1970. Everything but text and truth is a code.
Codes are exact and the same on every engine, and their bounds are known before any row is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any, ClassVar

MONTHS = {"month": 1, "quarter": 3, "year": 12}
SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}


class StoredWord:
    """A dataclass whose repr never changes, because stored digests are made of that text.

    The text has `word` as the class name. Fields in `later` were added later: the text has them only where
    they differ from their defaults.
    """

    __slots__ = ()
    _word: ClassVar[str]
    _later: ClassVar[tuple[str, ...]]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, word: str = "", later: tuple[str, ...] = ()) -> None:
        if word:
            cls._word, cls._later = word, later

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in self._later:
            if values[name] == self.__dataclass_fields__[name].default:
                del values[name]
        return f"{self._word}({', '.join(f'{name}={value!r}' for name, value in values.items())})"


@dataclass(frozen=True, slots=True, repr=False)
class Numeric(StoredWord, word="Number"):
    """A multiple of `step`.

    `first` and `last` are the bounds, counted in steps; None means that there is no bound.
    """

    step: Fraction
    first: int | None
    last: int | None

    @property
    def is_bounded(self) -> bool:
        """True if both bounds are known, so that the number can be summed."""
        return self.first is not None and self.last is not None

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest code of a bounded number."""
        assert self.first is not None
        assert self.last is not None
        return self.first, self.last

    @property
    def reach(self) -> int:
        """The greatest absolute value of a code of a bounded number."""
        return max(map(abs, self.bounds))

    def value(self, code: int) -> int | float:
        """Return the number that a code stands for."""
        exact = code * self.step
        return int(exact) if exact.denominator == 1 else float(exact)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the declared values, given by its position."""

    values: tuple[str | int | bool, ...]

    def value(self, code: int) -> str | int | bool:
        """Return the declared value at a position."""
        return self.values[code]


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time: the number of intervals of `seconds` since `start`, from `first` to `last`.

    `start` is in seconds since 1970 (UTC). It is 0 for all but weeks, which begin on Mondays. A date is a
    Moment of 86400 seconds.
    """

    seconds: int
    first: int
    last: int
    start: int = 0

    def value(self, code: int) -> date | datetime:
        """Return the date or the time that a code stands for."""
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=self.start + code * self.seconds)
        return at.date() if self.seconds % SECONDS["day"] == 0 else at


@dataclass(frozen=True, slots=True)
class Period:
    """A calendar period of `months` months, counted from January 1970."""

    months: int
    first: int
    last: int

    def value(self, code: int) -> date:
        """Return the first day of the period."""
        year, month = divmod(code * self.months, 12)
        return date(1970 + year, month + 1, 1)


@dataclass(frozen=True, slots=True)
class Truth:
    """True or false. As in SQL, it can also be NULL."""


@dataclass(frozen=True, slots=True)
class Text:
    """Any text.

    It has no bounds. It can be compared, and used as a key whose groups are selected privately.
    """


@dataclass(frozen=True, slots=True)
class Person:
    """The privacy unit that a row belongs to.

    It can be counted (distinct) and grouped by, but never shown.
    """


Kind = Numeric | Choice | Moment | Period | Truth | Text | Person


def codes_of(kind: Kind) -> range | None:
    """Return all codes of a kind, or None if they are not finitely many."""
    match kind:
        case Choice(values):
            return range(len(values))
        case Numeric(_, int(first), int(last)) | Moment(_, first, last, _) | Period(_, first, last):
            return range(first, last + 1)
        case Truth():
            return range(2)
        case _:
            return None
