"""How an engine spells what all of them can do. Methods take and give SQL text, unless said otherwise.

Whole numbers are exact, divisions round down, texts compare by code point, nothing raises on any row.
Sizes are promised by the caller: a whole number handed in is within what `whole` cast it to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction

from lapwing.engines.shape import Shape


class Spelling(ABC):
    """A dialect, as far as we need it."""

    text_type: str  # how the engine calls plain texts

    @abstractmethod
    def name(self, identifier: str) -> str:
        """A quoted identifier."""

    @abstractmethod
    def text(self, value: str) -> str:
        """A text literal: any text, quotes, backslashes and NUL-free Unicode included."""

    @abstractmethod
    def shape(self, type_name: str) -> Shape:
        """What a type of the engine's is to us."""

    @abstractmethod
    def whole(self, sql: str, reach: int) -> str:
        """A cast of a whole number, whose size is at most reach, to the narrowest type to compute with:
        2 or 4 bytes, else 8 bytes, else exact and wider."""

    @abstractmethod
    def stored(self, sql: str, first: int, last: int) -> str:
        """A cast to the narrowest type that holds first..last, to be stored."""

    @abstractmethod
    def total(self, sql: str, reach: int) -> str:
        """sum() of whole numbers of at most this size, never overflowing, as an 8-byte or wider whole
        number; 0 for no rows."""

    @abstractmethod
    def floor_divide(self, sql: str, by: int) -> str:
        """floor(a / by), by > 0, also for negative a."""

    @abstractmethod
    def modulo(self, sql: str, by: int) -> str:
        """a - by * floor(a / by), by > 0."""

    @abstractmethod
    def quotient(self, top: str, bottom: str) -> str:
        """floor(top / bottom); NULL where the bottom is 0."""

    @abstractmethod
    def least(self, args: Sequence[str]) -> str:
        """The least of those that are not NULL; NULL only if all are."""

    @abstractmethod
    def greatest(self, args: Sequence[str]) -> str:
        """The greatest of those that are not NULL; NULL only if all are."""

    @abstractmethod
    def compared_text(self, sql: str) -> str:
        """The text such that =, <, ORDER BY and GROUP BY go by code point."""

    @abstractmethod
    def lower(self, sql: str) -> str:
        """With ASCII letters in lower case, others as they are."""

    @abstractmethod
    def upper(self, sql: str) -> str:
        """With ASCII letters in upper case, others as they are."""

    @abstractmethod
    def trim(self, sql: str) -> str:
        """Without spaces (U+0020, and no other space) at both ends."""

    @abstractmethod
    def substring(self, sql: str, start: int, length: int) -> str:
        """From `start` (1 is the first) on, at most `length` code points; both are at least 0. As in the
        standard, places before the first count: (0, 2) is the first code point."""

    @abstractmethod
    def length(self, sql: str) -> str:
        """The number of code points."""

    @abstractmethod
    def concat(self, args: Sequence[str]) -> str:
        """All of them in a row; NULL if one is."""

    @abstractmethod
    def like(self, sql: str, pattern: str) -> str:
        """SQL's LIKE with % and _, case-sensitive, with no escape: a backslash is a backslash.

        The pattern is the pattern itself, not SQL: it is public, and its shape decides how to match it
        in time linear in the text, whatever the text."""

    @abstractmethod
    def matches(self, sql: str, pattern: str) -> str:
        """Tell whether the whole text matches a regular expression of the plainest kind."""

    @abstractmethod
    def parse_whole(self, sql: str) -> str:
        """The whole number that a text of at most 15 digits with or without a sign is; else NULL."""

    @abstractmethod
    def month_of(self, days: str) -> str:
        """Months since January 1970 of a number of days since 1970-01-01, at most 3,650,000 either way."""

    @abstractmethod
    def part_of(self, seconds_or_days: str, part: str, *, in_days: bool) -> str:
        """year, quarter, month, day, dayofweek (Monday 1), dayofyear, hour, minute, second of a number of
        days or of seconds since 1970-01-01 (UTC)."""

    @abstractmethod
    def hashed_text(self, sql: str) -> str:
        """A whole number in 0..2^31-2 from a text's UTF-8 bytes, alike on all engines (from md5)."""

    # From a source's own types to whole numbers. None of these may raise; what cannot be read is NULL.

    @abstractmethod
    def clamped_steps(self, column: str, type_name: str, *, step: Fraction, first: int, last: int) -> str:
        """floor(value / step + 1/2), clamped into first..last; NULL for NULL, NaN and what is no number.

        Whole numbers and decimals: exact. Binary floating point: computed in 8-byte floats, in which
        the step is rounded too; infinities are clamped. Text: spaces around it are dropped, and a
        decimal number of at most 200 characters, an exponent of at most two digits included, is read
        as an 8-byte float. Truths are 0 and 1."""

    @abstractmethod
    def seconds(self, column: str, type_name: str) -> str:
        """Seconds since 1970 (UTC, rounded down) of a date or timestamp, or of a text in ISO form
        (YYYY-MM-DD, maybe T or a space and HH:MM, maybe :SS, maybe a fraction, maybe Z or +HH:MM); NULL
        for infinities, what is more than 3,650,000 days from 1970, and what is no time."""

    @abstractmethod
    def plain_text(self, column: str, type_name: str) -> str:
        """Any column as text, alike on all engines for whole numbers, decimals (without zeros at the
        end), truths, dates and timestamps of the years 1 to 9999, UUIDs, bytes (hexadecimal) and texts.

        Binary floating point: whole numbers up to 2^53 as such; others below 10^9 with at most six
        decimals; else NULL. Text beyond a million bytes is cut, so that no concatenation is too long."""

    @abstractmethod
    def id_text(self, column: str, type_name: str) -> str:
        """A column as text that differs for different values: as `plain_text`, but NULL for texts of more
        than a million bytes, and for floats that are no whole numbers up to 2^53."""

    @abstractmethod
    def truth(self, column: str, type_name: str) -> str:
        """Booleans; numbers (0 is false, NaN is NULL); texts true/false/t/f/yes/no/1/0 in any case, with
        spaces around them or not; else NULL."""
