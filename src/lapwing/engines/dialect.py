"""How an engine spells what all of them can do. Methods take and give SQL text, unless said otherwise.

Whole numbers are exact, divisions round down, texts compare by code point, nothing raises on any row.
Sizes are promised by the caller: a whole number handed in is within what `whole` cast it to.

What all dialects spell alike, given a few words of each.

`case when a then b end` stands where other forms are shorter: all engines evaluate b only where a holds.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction

from lapwing.engines.column_values import (
    ISO,
    ISO_WITH_ZONE,
    PARTS,
    Calendar,
    ClampEdges,
    ColumnType,
    TypeFamily,
    float_edges,
    power_of_ten_in,
    seconds_of_parts,
)


class SqlDialect(ABC):
    """A dialect, as far as we need it."""

    text_type: str  # how the engine calls plain texts

    @abstractmethod
    def name(self, identifier: str) -> str:
        """A quoted identifier."""

    @abstractmethod
    def text(self, value: str) -> str:
        """A text literal: any text, quotes, backslashes and NUL-free Unicode included."""

    @abstractmethod
    def shape(self, type_name: str) -> ColumnType:
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


PRIME = (1 << 31) - 1
NUMBER = "[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]{1,2})?"
NUMBER_LENGTH = 200  # 200 digits and an exponent of two are far from where floats end
TEXT_BYTES = 1 << 20  # of a source's text that are read
HEX_BYTES = TEXT_BYTES // 2 + 1  # one more than can be read as hexadecimal text
_LOWER = "abcdefghijklmnopqrstuvwxyz"
_MOST_PLACES = 1 << 30
_TRUE, _FALSE = ("true", "t", "yes", "1"), ("false", "f", "no", "0")


class CommonDialect(SqlDialect):
    """A dialect by its words."""

    int_type: str
    big_type: str
    wide_type: str
    float_type: str
    text_type: str
    small_types: Sequence[tuple[int, str]]  # bits and name, narrower than int_type, to be stored
    total_type = "decimal(38, 0)"
    byte_length = "octet_length"

    @abstractmethod
    def shape(self, type_name: str) -> ColumnType:
        """What a type of this engine is to us."""

    @abstractmethod
    def divide(self, sql: str, by: int) -> str:
        """Of whole numbers, rounded towards 0."""

    @abstractmethod
    def units(self, column: str, shape: ColumnType, reach: int) -> str:
        """A decimal times 10^scale, as a whole number of at most this size."""

    @abstractmethod
    def moment(self, column: str, shape: ColumnType) -> str:
        """Seconds since 1970 of a date or timestamp; NULL for infinities and what is out of range."""

    @abstractmethod
    def formatted(self, column: str, shape: ColumnType) -> str:
        """Text of a type that is no text, truth, whole number or float."""

    def source_text(self, column: str) -> str:
        """A column of any type of text as plain text."""
        return self.cast(column, self.text_type)

    def not_tiny(self, value: str, width: float) -> str:
        """Something that is rounded alike, and whose quotient by the width is no underflow."""
        return value

    def is_nan(self, sql: str) -> str:
        return f"isnan({sql})"

    def cast(self, sql: str, type_name: str) -> str:
        """A cast that cannot fail where it stands."""
        return f"CAST({sql} AS {type_name})"

    def number(self, value: int) -> str:
        return f"({value})" if value < 0 else str(value)

    def double(self, value: float) -> str:
        return f"CAST('{repr(value).replace('inf', 'Infinity')}' AS {self.float_type})"

    def type_for(self, reach: int) -> str:
        return self.int_type if reach < 1 << 31 else self.big_type if reach < 1 << 63 else self.wide_type

    # Whole numbers

    def whole(self, sql: str, reach: int) -> str:
        return self.cast(sql, self.type_for(reach))

    def stored(self, sql: str, first: int, last: int) -> str:
        reach = max(last, -1 - first)
        names = (*self.small_types, (32, self.int_type), (64, self.big_type))
        narrowest = next((name for bits, name in names if reach < 1 << bits - 1), self.wide_type)
        return self.cast(sql, narrowest)

    def floor_divide(self, sql: str, by: int) -> str:
        return f"({self.divide(f'({sql})', by)} - CASE WHEN ({sql}) % {by} < 0 THEN 1 ELSE 0 END)"

    def modulo(self, sql: str, by: int) -> str:
        wide = self.cast(str(by), self.type_for(2 * by))  # twice of it must fit
        return f"((({sql}) % {wide} + {wide}) % {wide})"

    def least(self, args: Sequence[str]) -> str:
        return f"least({', '.join(args)})" if len(args) > 1 else f"({args[0]})"

    def greatest(self, args: Sequence[str]) -> str:
        return f"greatest({', '.join(args)})" if len(args) > 1 else f"({args[0]})"

    # Text

    def compared_text(self, sql: str) -> str:
        return sql

    def lower(self, sql: str) -> str:
        return f"translate({sql}, '{_LOWER.upper()}', '{_LOWER}')"

    def upper(self, sql: str) -> str:
        return f"translate({sql}, '{_LOWER}', '{_LOWER.upper()}')"

    def trim(self, sql: str) -> str:
        return f"trim(BOTH ' ' FROM {sql})"

    def substring(self, sql: str, start: int, length: int) -> str:
        end = min(start + length, _MOST_PLACES)
        start = min(max(start, 1), _MOST_PLACES)
        return f"substring({sql}, {start}, {max(end - start, 0)})"

    def length(self, sql: str) -> str:
        return f"length({sql})"

    def concat(self, args: Sequence[str]) -> str:
        """By halves: engines limit how deep an expression is, and copy what they have so far each time."""
        if len(args) <= 2:
            return f"({' || '.join(args)})"
        middle = len(args) // 2
        return f"({self.concat(args[:middle])} || {self.concat(args[middle:])})"

    # Time

    def month_of(self, days: str) -> str:
        return Calendar(self.cast(days, self.int_type), self.divide, in_days=True).months()

    def part_of(self, seconds_or_days: str, part: str, *, in_days: bool) -> str:
        type_name = self.int_type if in_days else self.big_type
        moment = self.cast(seconds_or_days, type_name)
        return self.cast(PARTS[part](Calendar(moment, self.divide, in_days=in_days)), self.int_type)

    def seconds(self, column: str, type_name: str) -> str:
        shape = self.shape(type_name)
        if shape.family in (TypeFamily.DATE, TypeFamily.TIMESTAMP, TypeFamily.ZONED):
            return self.moment(column, shape)
        if shape.family is not TypeFamily.TEXT:
            return self.cast("NULL", self.big_type)
        text = self.trim(self.source_text(column))
        too_long = self._is_too_long(column)

        def piece(start: int, length: int, of: str = text) -> str:
            return self.cast(self.substring(of, start, length), self.int_type)

        def behind(length_at_least: int, start: int) -> str:  # what is not written is 0
            number = piece(start, 2)
            return f"CASE WHEN {self.length(text)} >= {length_at_least} THEN {number} ELSE 0 END"

        hour = self.cast(behind(13, 12), self.big_type)
        date, time = (piece(1, 4), piece(6, 2), piece(9, 2)), (hour, behind(16, 15), behind(19, 18))
        local = seconds_of_parts(date, time, self.divide)
        zone = f"right(replace({text}, ':', ''), 5)"
        minutes = f"({piece(2, 2, zone)} * 60 + {piece(4, 2, zone)})"
        sign = f"CASE WHEN {self.substring(zone, 1, 1)} = '-' THEN -60 ELSE 60 END"
        offset = f"CASE WHEN {self.matches(text, ISO_WITH_ZONE)} THEN {minutes} * {sign} ELSE 0 END"
        return f"CASE WHEN {too_long} THEN NULL WHEN {self.matches(text, ISO)} THEN {local} - {offset} END"

    # Numbers of the source

    def clamped_steps(self, column: str, type_name: str, *, step: Fraction, first: int, last: int) -> str:
        shape, result = self.shape(type_name), self.type_for(max(abs(first), abs(last)))
        match shape.family:
            case TypeFamily.TRUTH:
                one, zero = (
                    self.number(min(max(math.floor(value / step + Fraction(1, 2)), first), last))
                    for value in (1, 0)
                )
                found = f"CASE WHEN {column} THEN {one} WHEN NOT {column} THEN {zero} END"
            case TypeFamily.WHOLE:
                found = self._whole_steps(column, shape, step, first, last)
            case TypeFamily.DECIMAL:
                found = self.decimal_steps(column, shape, step, first, last)
            case TypeFamily.FLOAT:
                found = self.float_steps(self._as_double(column, type_name), step, first, last)
            case TypeFamily.TEXT:
                text = self.trim(self.source_text(column))
                steps = self.float_steps(self.cast(text, self.float_type), step, first, last)
                too_long = f"{self._is_too_long(column)} OR {self.length(text)} > {NUMBER_LENGTH}"
                found = f"CASE WHEN {too_long} THEN NULL WHEN {self.matches(text, NUMBER)} THEN {steps} END"
            case _:
                found = "NULL"
        return self.cast(found, result)

    def _as_double(self, column: str, type_name: str) -> str:
        return column if type_name == self.float_type else self.cast(column, self.float_type)

    def _whole_steps(self, column: str, shape: ColumnType, step: Fraction, first: int, last: int) -> str:
        def to_type(reach: int) -> str:
            return self.cast(column, self.type_for(reach))

        return self._exact_steps(
            column, shape, units=to_type, literal=self.number, step=step, first=first, last=last
        )

    def decimal_steps(self, column: str, shape: ColumnType, step: Fraction, first: int, last: int) -> str:
        def literal(units: int) -> str:
            digits = f"{abs(units):0{shape.scale + 1}d}"
            point = len(digits) - shape.scale
            width = max(len(digits), 1)
            text = f"{'-' if units < 0 else ''}{digits[:point]}{'.' if shape.scale else ''}{digits[point:]}"
            return f"CAST('{text}' AS decimal({min(width, 38)}, {shape.scale}))"

        def units(reach: int) -> str:
            return self.units(column, shape, reach)

        grown = step * 10**shape.scale
        return self._exact_steps(
            column, shape, units=units, literal=literal, step=grown, first=first, last=last
        )

    def _exact_steps(
        self, column: str, shape: ColumnType, *, units: Callable[[int], str], literal: Callable[[int], str],
        step: Fraction, first: int, last: int,
    ) -> str:  # fmt: skip
        """Clamp first and compute then: what is computed is of a size known beforehand."""
        ends = ClampEdges.of(step, first, last)
        if ends.low >= shape.last or ends.high <= shape.first:  # all that the type can hold is clamped
            constant = self.number(first if ends.low >= shape.last else last)
            return f"CASE WHEN {column} IS NOT NULL THEN {constant} END"
        clamps = ""
        if ends.low >= shape.first:
            clamps += f" WHEN {column} <= {literal(ends.low)} THEN {self.number(first)}"
        if ends.high <= shape.last:
            clamps += f" WHEN {column} >= {literal(ends.high)} THEN {self.number(last)}"
        size = max(abs(max(ends.low, shape.first)), abs(min(ends.high, shape.last)))
        inside = self._inside(units, size, step, first)
        return f"CASE{clamps} ELSE {inside} END" if clamps else f"({inside})"

    def _inside(self, units: Callable[[int], str], size: int, step: Fraction, first: int) -> str:
        """The step of what is not clamped, and so of at most this size."""
        coarse = power_of_ten_in(step) if size * step.denominator >= 1 << 60 else 1
        value, step = units, step / coarse
        if coarse > 1:  # these digits are beyond where the halves of steps lie: they decide nothing
            digits = self.floor_divide(units(size), coarse)
            size = size // coarse + 1

            def value(reach: int) -> str:
                return self.cast(digits, self.type_for(reach))

        top, bottom = step.numerator, step.denominator
        if top == 1:
            steps = value(size * bottom)
            return steps if bottom == 1 else f"{steps} * {bottom}"
        shift = top - 2 * top * first  # up by `first`, so that it is positive
        reach = 2 * bottom * size + abs(shift)
        moved = f"({value(reach)} * {2 * bottom} + {self.cast(self.number(shift), self.type_for(reach))})"
        return f"{self.divide(moved, 2 * top)} + {self.number(first)}"

    def float_steps(self, value: str, step: Fraction, first: int, last: int) -> str:
        """Most values are within the bounds: they are looked at first.

        Engines know NaN as the greatest number, but some also drop comparisons that hold by statistics
        in which no NaN was counted: so it is asked for by name, and a cast of it is NULL.
        """
        width = float(step)
        low, high = float_edges(width, first, last)
        ratio = value if width == 1 else f"{self.not_tiny(value, width)} / {self.double(width)}"
        whole = self.cast(f"floor({ratio} + {self.double(0.5)})", self.type_for(max(abs(first), abs(last))))
        return (
            f"CASE WHEN {value} < {self.double(high)} AND {value} > {self.double(low)} THEN {whole} "
            f"WHEN {value} <= {self.double(low)} THEN {self.number(first)} "
            f"WHEN {value} >= {self.double(high)} AND NOT {self.is_nan(value)} THEN {self.number(last)} END"
        )

    def truth(self, column: str, type_name: str) -> str:
        match self.shape(type_name).family:
            case TypeFamily.TRUTH:
                return column
            case TypeFamily.WHOLE | TypeFamily.DECIMAL:
                return f"({column} <> 0)"
            case TypeFamily.FLOAT:
                value = self._as_double(column, type_name)
                return f"CASE WHEN NOT {self.is_nan(value)} THEN {value} <> 0 END"
            case TypeFamily.TEXT:
                text = self.compared_text(self.lower(self.trim(self.source_text(column))))
                yes, no = (", ".join(self.text(word) for word in words) for words in (_TRUE, _FALSE))
                known = f"WHEN {text} IN ({yes}) THEN TRUE WHEN {text} IN ({no}) THEN FALSE"
                return f"CASE WHEN {self._is_too_long(column)} THEN NULL {known} END"
            case _:
                return self.cast("NULL", "boolean")

    # Text of the source

    def plain_text(self, column: str, type_name: str) -> str:
        shape = self.shape(type_name)
        match shape.family:
            case TypeFamily.TEXT:
                return self._cut(self.source_text(column))
            case TypeFamily.WHOLE:
                return self.cast(column, self.text_type)
            case TypeFamily.TRUTH:
                return f"CASE WHEN {column} THEN 'true' WHEN NOT {column} THEN 'false' END"
            case TypeFamily.FLOAT:
                return self._float_text(self._as_double(column, type_name))
            case _:
                return self._cut(self.formatted(column, shape))

    def id_text(self, column: str, type_name: str) -> str:
        shape = self.shape(type_name)
        match shape.family:
            case TypeFamily.WHOLE | TypeFamily.TRUTH:
                return self.plain_text(column, type_name)
            case TypeFamily.FLOAT:
                value = self._as_double(column, type_name)
                whole = self.cast(self.cast(value, self.big_type), self.text_type)
                exact = f"{value} = floor({value}) AND abs({value}) <= {self.double(2.0**53)}"
                return f"CASE WHEN {exact} THEN {whole} END"
        text = (
            self.source_text(column) if shape.family is TypeFamily.TEXT else self.formatted(column, shape)
        )
        return f"CASE WHEN {self.byte_length}({text}) <= {TEXT_BYTES} THEN {text} END"

    def without_zeros(self, sql: str) -> str:
        """A decimal with a point, without zeros at its end, and without the point if nothing is behind."""
        return f"trim(TRAILING '.' FROM trim(TRAILING '0' FROM {sql}))"

    def _is_too_long(self, column: str) -> str:
        """SQL that tells whether a text of the source is too long to be read as a number, time or truth.

        Some functions fail on hundreds of millions of letters.
        """
        return f"{self.byte_length}({self.source_text(column)}) > {TEXT_BYTES}"

    def _cut(self, text: str) -> str:
        cut = f"substring({text}, 1, {TEXT_BYTES // 4})"
        return f"CASE WHEN {self.byte_length}({text}) <= {TEXT_BYTES} THEN {text} ELSE {cut} END"

    def _float_text(self, value: str) -> str:
        whole = self.cast(self.cast(value, self.big_type), self.text_type)
        millionths = self.cast(f"floor({value} * {self.double(1e6)} + {self.double(0.5)})", self.big_type)
        size = f"abs({millionths})"
        sign = f"CASE WHEN {millionths} < 0 THEN '-' ELSE '' END"
        front = self.cast(self.divide(size, 10**6), self.text_type)
        behind = f"lpad({self.cast(f'{size} % {10**6}', self.text_type)}, 6, '0')"
        text = self.without_zeros(f"{sign} || {front} || '.' || {behind}")
        small = self.double(1e9)
        exact = self.double(2.0**53)
        return (
            f"CASE WHEN {value} = floor({value}) AND abs({value}) <= {exact} THEN {whole} "
            f"WHEN abs({value}) < {small} THEN {text} END"
        )
