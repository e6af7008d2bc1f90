"""SQL dialects: how each engine writes the operations that all engines have.

Methods take and return SQL text. Whole numbers are exact, divisions round down, texts compare by code
point, and nothing raises on any row. The caller promises sizes: a whole number that is passed in fits the
type that `whole` casts it to.

`CASE WHEN a THEN b END` is used where other forms are shorter: all engines evaluate b only where a holds.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial

from lapwing.engines.column_values import (
    DAYS_AT_MOST,
    ISO,
    ISO_WITH_ZONE,
    SECONDS_OF_DAY,
    ColumnType,
    TypeFamily,
    calendar_parts,
    clamp_edges,
    decimal_type,
    float_edges,
    power_of_ten_in,
    seconds_of_parts,
)

PRIME = (1 << 31) - 1
NUMBER = "[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]{1,2})?"
NUMBER_LENGTH = 200  # 200 digits with an exponent of two digits are far below the largest float
TEXT_BYTES = 1 << 20  # longer texts of the source are truncated or read as NULL
HEX_BYTES = TEXT_BYTES // 2 + 1  # one byte more than hexadecimal text of TEXT_BYTES can hold
SECONDS_AT_MOST = DAYS_AT_MOST * SECONDS_OF_DAY
_LOWER = "abcdefghijklmnopqrstuvwxyz"
_LARGEST_POSITION = 1 << 30
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_SIZE = re.compile(r"\([^)]*\)")  # of varchar(20), timestamp(6)
_TRUE, _FALSE = ("true", "t", "yes", "1"), ("false", "f", "no", "0")


class SqlDialect(ABC):
    """A dialect of SQL. The class attributes are the dialect's names of types and functions."""

    int_type: str
    big_type: str
    wide_type: str
    float_type: str
    text_type: str
    small_types: Sequence[tuple[int, str]]  # bits and name of types narrower than int_type, for storing
    division: str  # the operator that divides whole numbers and rounds towards 0
    total_type = "decimal(38, 0)"
    byte_length = "octet_length"
    types: Mapping[str, ColumnType]  # by the engine's names, without sizes

    def shape(self, type_name: str) -> ColumnType:
        """Return the column type that a type name of this engine stands for."""
        name = type_name.lower()
        if match := _DECIMAL.fullmatch(name):
            return decimal_type(int(match[1]), int(match[2]))
        return self.types.get(_SIZE.sub("", name), ColumnType(TypeFamily.OTHER))

    @abstractmethod
    def total(self, sql: str, reach: int) -> str:
        """Return sum() of whole numbers of at most this size, which never overflows; 0 for no rows.

        The result is a whole number of 8 bytes or wider.
        """

    @abstractmethod
    def like(self, sql: str, pattern: str) -> str:
        """Return SQL's LIKE with % and _: case-sensitive, without an escape character.

        The pattern is the pattern itself, not SQL. It is public, and its form decides how to match it in
        time linear in the text, for every text.
        """

    @abstractmethod
    def matches(self, sql: str, pattern: str) -> str:
        """Return whether the whole text matches a regular expression of the simplest kind."""

    @abstractmethod
    def hashed_text(self, sql: str) -> str:
        """Return a whole number in 0..2^31-2 from a text's UTF-8 bytes (md5), the same on all engines."""

    def units(self, column: str, shape: ColumnType, reach: int) -> str:
        """Return a whole number, or a decimal times 10^scale, as a whole number of at most this size."""
        assert shape.scale == 0
        return self.cast(column, self.type_for(reach))

    @abstractmethod
    def moment(self, column: str, shape: ColumnType) -> str:
        """Return seconds since 1970 of a date or timestamp; NULL for infinity and out-of-range values."""

    @abstractmethod
    def formatted(self, column: str, shape: ColumnType) -> str:
        """Return the text of a type that is not text, truth, whole number or float."""

    def name(self, identifier: str) -> str:
        """Quote an identifier."""
        return '"' + identifier.replace('"', '""') + '"'

    def text(self, value: str) -> str:
        """Quote a text literal: any text without NUL, quotes and backslashes included."""
        return "'" + value.replace("'", "''") + "'"

    def source_text(self, column: str) -> str:
        """Return a text column of any type as plain text."""
        return self.cast(column, self.text_type)

    def not_tiny(self, value: str, width: float) -> str:
        """Return a value of the same step whose quotient by the width is no underflow."""
        return value

    def is_nan(self, sql: str) -> str:
        """Return whether a float is NaN."""
        return f"isnan({sql})"

    def cast(self, sql: str, type_name: str) -> str:
        """Return a cast that cannot fail in the place where it is used."""
        return f"CAST({sql} AS {type_name})"

    def number(self, value: int) -> str:
        """Return the literal of a whole number."""
        return f"({value})" if value < 0 else str(value)

    def double(self, value: float) -> str:
        """Return the literal of an 8-byte float."""
        return f"CAST('{repr(value).replace('inf', 'Infinity')}' AS {self.float_type})"

    def type_for(self, reach: int) -> str:
        """Return the narrowest type to compute with that holds whole numbers of this size."""
        return self.int_type if reach < 1 << 31 else self.big_type if reach < 1 << 63 else self.wide_type

    # Whole numbers

    def whole(self, sql: str, reach: int) -> str:
        """Cast a whole number, whose size is at most `reach`, to the narrowest type to compute with.

        That type has 2 or 4 bytes, else 8 bytes, else it is exact and wider.
        """
        return self.cast(sql, self.type_for(reach))

    def stored(self, sql: str, first: int, last: int) -> str:
        """Cast to the narrowest type that holds first..last, for storing."""
        reach = max(last, -1 - first)
        names = (*self.small_types, (32, self.int_type), (64, self.big_type))
        narrowest = next((name for bits, name in names if reach < 1 << bits - 1), self.wide_type)
        return self.cast(sql, narrowest)

    def divide(self, sql: str, by: int) -> str:
        """Divide whole numbers and round towards 0."""
        return f"({sql} {self.division} {by})"

    def floor_divide(self, sql: str, by: int) -> str:
        """Return floor(a / by) for by > 0, also for negative a."""
        return f"({self.divide(f'({sql})', by)} - CASE WHEN ({sql}) % {by} < 0 THEN 1 ELSE 0 END)"

    def modulo(self, sql: str, by: int) -> str:
        """Return a - by * floor(a / by) for by > 0."""
        wide = self.cast(str(by), self.type_for(2 * by))  # the sum of two remainders must fit
        return f"((({sql}) % {wide} + {wide}) % {wide})"

    def quotient(self, top: str, bottom: str) -> str:
        """Return floor(top / bottom); NULL where the bottom is 0."""
        by = f"nullif({bottom}, 0)"
        uneven = f"({top}) % {by} <> 0 AND (({top}) < 0) <> (({bottom}) < 0)"
        return f"(({top}) {self.division} {by} - CASE WHEN {uneven} THEN 1 ELSE 0 END)"

    def least(self, args: Sequence[str]) -> str:
        """Return the least of the values that are not NULL; NULL if all are."""
        return f"least({', '.join(args)})" if len(args) > 1 else f"({args[0]})"

    def greatest(self, args: Sequence[str]) -> str:
        """Return the greatest of the values that are not NULL; NULL if all are."""
        return f"greatest({', '.join(args)})" if len(args) > 1 else f"({args[0]})"

    # Text

    def compared_text(self, sql: str) -> str:
        """Return the text such that =, <, ORDER BY and GROUP BY compare by code point."""
        return sql

    def lower(self, sql: str) -> str:
        """Return the text with ASCII letters in lower case; other letters stay."""
        return f"translate({sql}, '{_LOWER.upper()}', '{_LOWER}')"

    def upper(self, sql: str) -> str:
        """Return the text with ASCII letters in upper case; other letters stay."""
        return f"translate({sql}, '{_LOWER}', '{_LOWER.upper()}')"

    def trim(self, sql: str) -> str:
        """Return the text without spaces (U+0020, and no other space) at both ends."""
        return f"trim(BOTH ' ' FROM {sql})"

    def substring(self, sql: str, start: int, length: int) -> str:
        """Return at most `length` code points from position `start` (1 is the first); both are at least 0.

        As in the standard, positions before the first count: (0, 2) is the first code point.
        """
        end = min(start + length, _LARGEST_POSITION)
        start = min(max(start, 1), _LARGEST_POSITION)
        return f"substring({sql}, {start}, {max(end - start, 0)})"

    def length(self, sql: str) -> str:
        """Return the number of code points."""
        return f"length({sql})"

    def concat(self, args: Sequence[str]) -> str:
        """Return all texts joined; NULL if one is NULL.

        They are joined by halves: engines limit the depth of an expression, and copy the text at each
        level.
        """
        if len(args) <= 2:
            return f"({' || '.join(args)})"
        middle = len(args) // 2
        return f"({self.concat(args[:middle])} || {self.concat(args[middle:])})"

    def parse_whole(self, sql: str) -> str:
        """Return the whole number that a text of at most 15 digits, perhaps with a sign, is; else NULL."""
        return f"CASE WHEN {self.matches(sql, '[+-]?[0-9]{1,15}')} THEN {self.cast(sql, self.big_type)} END"

    # Time

    def month_of(self, days: str) -> str:
        """Return months since January 1970 from days since 1970-01-01, at most 3,650,000 either way."""
        return calendar_parts(self.cast(days, self.int_type), self.divide, in_days=True)["months"]

    def part_of(self, seconds_or_days: str, part: str, *, in_days: bool) -> str:
        """Return a part of a number of days or seconds since 1970-01-01 (UTC).

        Parts: year, quarter, month, day, dayofweek (Monday is 1), dayofyear, hour, minute, second.
        """
        moment = self.cast(seconds_or_days, self.int_type if in_days else self.big_type)
        return self.cast(calendar_parts(moment, self.divide, in_days=in_days)[part], self.int_type)

    # From a source's own types to whole numbers and texts. None may raise; unreadable values are NULL.

    def seconds(self, column: str, type_name: str) -> str:
        """Return seconds since 1970 (UTC, rounded down) of a date, a timestamp or a text in ISO form.

        ISO form is YYYY-MM-DD, optionally T or a space and HH:MM, optionally :SS, optionally a fraction,
        optionally Z or +HH:MM. NULL for infinity, more than 3,650,000 days from 1970, and any other text.
        """
        shape = self.shape(type_name)
        if shape.family in (TypeFamily.DATE, TypeFamily.TIMESTAMP, TypeFamily.ZONED):
            return self.moment(column, shape)
        if shape.family is not TypeFamily.TEXT:
            return self.cast("NULL", self.big_type)
        text = self.trim(self.source_text(column))
        too_long = self._is_too_long(column)

        def piece(start: int, length: int, of: str = text) -> str:
            return self.cast(self.substring(of, start, length), self.int_type)

        def piece_or_zero(length_at_least: int, start: int) -> str:
            number = piece(start, 2)
            return f"CASE WHEN {self.length(text)} >= {length_at_least} THEN {number} ELSE 0 END"

        hour = self.cast(piece_or_zero(13, 12), self.big_type)
        date = piece(1, 4), piece(6, 2), piece(9, 2)
        local = seconds_of_parts(date, (hour, piece_or_zero(16, 15), piece_or_zero(19, 18)), self.divide)
        zone = f"right(replace({text}, ':', ''), 5)"
        minutes = f"({piece(2, 2, zone)} * 60 + {piece(4, 2, zone)})"
        sign = f"CASE WHEN {self.substring(zone, 1, 1)} = '-' THEN -60 ELSE 60 END"
        offset = f"CASE WHEN {self.matches(text, ISO_WITH_ZONE)} THEN {minutes} * {sign} ELSE 0 END"
        return f"CASE WHEN {too_long} THEN NULL WHEN {self.matches(text, ISO)} THEN {local} - {offset} END"

    def clamped_steps(self, column: str, type_name: str, *, step: Fraction, first: int, last: int) -> str:
        """Return floor(value / step + 1/2), clamped into first..last; NULL for NULL, NaN and no number.

        Whole numbers and decimals are exact. Binary floating point is computed in 8-byte floats, in which
        the step is rounded too; infinities are clamped. Text: spaces around it are ignored, and a decimal
        number of at most 200 characters, an exponent of at most two digits included, is read as an 8-byte
        float. Truths are 0 and 1.
        """
        shape, result = self.shape(type_name), self.type_for(max(abs(first), abs(last)))
        match shape.family:
            case TypeFamily.TRUTH:
                near = [math.floor(value / step + Fraction(1, 2)) for value in (1, 0)]
                of_true, of_false = (self.number(min(max(code, first), last)) for code in near)
                steps = f"CASE WHEN {column} THEN {of_true} WHEN NOT {column} THEN {of_false} END"
            case TypeFamily.WHOLE | TypeFamily.DECIMAL:
                steps = self.exact_steps(column, shape, step, first, last)
            case TypeFamily.FLOAT:
                steps = self.float_steps(self._as_double(column, type_name), step, first, last)
            case TypeFamily.TEXT:
                text = self.trim(self.source_text(column))
                number = self.float_steps(self.cast(text, self.float_type), step, first, last)
                too_long = f"{self._is_too_long(column)} OR {self.length(text)} > {NUMBER_LENGTH}"
                is_number = self.matches(text, NUMBER)
                steps = f"CASE WHEN {too_long} THEN NULL WHEN {is_number} THEN {number} END"
            case _:
                steps = "NULL"
        return self.cast(steps, result)

    def _as_double(self, column: str, type_name: str) -> str:
        return column if type_name == self.float_type else self.cast(column, self.float_type)

    def exact_steps(self, column: str, shape: ColumnType, step: Fraction, first: int, last: int) -> str:
        """Return `clamped_steps` of a whole number or a decimal.

        It clamps first and computes then, so that the size of all computed numbers is known beforehand.
        """
        step *= 10**shape.scale

        def literal(units: int) -> str:
            if shape.family is TypeFamily.WHOLE:
                return self.number(units)
            digits = f"{abs(units):0{shape.scale + 1}d}"
            point = len(digits) - shape.scale
            text = f"{'-' if units < 0 else ''}{digits[:point]}{'.' if shape.scale else ''}{digits[point:]}"
            return f"CAST('{text}' AS decimal({min(len(digits), 38)}, {shape.scale}))"

        low, high = clamp_edges(step, first, last)
        if low >= shape.last or high <= shape.first:  # every value of the type is clamped
            constant = self.number(first if low >= shape.last else last)
            return f"CASE WHEN {column} IS NOT NULL THEN {constant} END"
        clamps = ""
        if low >= shape.first:
            clamps += f" WHEN {column} <= {literal(low)} THEN {self.number(first)}"
        if high <= shape.last:
            clamps += f" WHEN {column} >= {literal(high)} THEN {self.number(last)}"
        size = max(abs(max(low, shape.first)), abs(min(high, shape.last)))
        inside = self._steps_inside(partial(self.units, column, shape), size, step, first)
        return f"CASE{clamps} ELSE {inside} END" if clamps else f"({inside})"

    def _steps_inside(self, units: Callable[[int], str], size: int, step: Fraction, first: int) -> str:
        """Return the step of a value that is not clamped, and therefore of at most this size."""
        coarse = power_of_ten_in(step) if size * step.denominator >= 1 << 60 else 1
        value, step = units, step / coarse
        if coarse > 1:  # these digits are finer than the edges between steps: they decide nothing
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
        """Return `clamped_steps` of a float. Most values are within the bounds, so these are tested first.

        Engines treat NaN as the greatest number, but some also drop comparisons that always hold by
        statistics in which no NaN was counted. So NaN is tested by name, and a cast of it is NULL.
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
        """Return a column as a boolean; NULL for NaN and for values that are neither true nor false.

        Of numbers, 0 is false. Texts are true/false/t/f/yes/no/1/0 in any case, spaces around them ignored.
        """
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

    def plain_text(self, column: str, type_name: str, most: int = TEXT_BYTES) -> str:
        """Return any column as text.

        The text is the same on all engines for whole numbers, decimals (without zeros at the end),
        truths, dates and timestamps of the years 1 to 9999, UUIDs, bytes (hexadecimal) and texts. Binary
        floating point: whole numbers up to 2^53 as such; others below 10^9 with at most six decimals;
        else NULL. Text of more than `most` bytes is cut, so that no concatenation is too long.
        """
        shape = self.shape(type_name)
        match shape.family:
            case TypeFamily.TEXT:
                return self.cut_text(self.source_text(column), most)
            case TypeFamily.WHOLE:
                return self.cast(column, self.text_type)
            case TypeFamily.TRUTH:
                return f"CASE WHEN {column} THEN 'true' WHEN NOT {column} THEN 'false' END"
            case TypeFamily.FLOAT:
                return self._float_text(self._as_double(column, type_name))
            case _:
                return self.cut_text(self.formatted(column, shape), most)

    def id_text(self, column: str, type_name: str) -> str:
        """Return a column as text that differs for different values.

        It is `plain_text`, but NULL for texts of more than a million bytes, and for floats that are not
        whole numbers up to 2^53.
        """
        shape = self.shape(type_name)
        match shape.family:
            case TypeFamily.WHOLE | TypeFamily.TRUTH:
                return self.plain_text(column, type_name)
            case TypeFamily.FLOAT:
                value = self._as_double(column, type_name)
                return f"CASE WHEN {self._is_exact_whole(value)} THEN {self._whole_text(value)} END"
        is_text = shape.family is TypeFamily.TEXT
        text = self.source_text(column) if is_text else self.formatted(column, shape)
        return f"CASE WHEN {self.byte_length}({text}) <= {TEXT_BYTES} THEN {text} END"

    def without_zeros(self, sql: str) -> str:
        """Return a decimal's text without zeros at its end, and without a point at its end."""
        return f"trim(TRAILING '.' FROM trim(TRAILING '0' FROM {sql}))"

    def decimal_text(self, column: str, digits: str, zero_before_point: str) -> str:
        """Return a decimal's text from all of its digits, with a zero before its point and none at its end.

        `zero_before_point` is the replacement of a sign and a point in the engine's regular expressions.
        """
        text = f"regexp_replace({self.without_zeros(digits)}, '^(-?)[.]', '{zero_before_point}')"
        return f"CASE WHEN {column} = 0 THEN '0' ELSE {text} END"

    def _if_within(self, value: str, limit: int, result: str) -> str:
        return f"CASE WHEN {value} BETWEEN -{limit} AND {limit} THEN {result} END"

    def _is_too_long(self, column: str) -> str:
        """Return whether a text of the source is too long to be read as a number, time or truth.

        Some functions fail on hundreds of millions of letters.
        """
        return f"{self.byte_length}({self.source_text(column)}) > {TEXT_BYTES}"

    def cut_text(self, text: str, most: int) -> str:
        """Return a text of at most so many bytes: of a longer one a quarter as many characters."""
        start = f"substring({text}, 1, {most // 4})"
        return f"CASE WHEN {self.byte_length}({text}) <= {most} THEN {text} ELSE {start} END"

    def _whole_text(self, value: str) -> str:
        return self.cast(self.cast(value, self.big_type), self.text_type)

    def _is_exact_whole(self, value: str) -> str:
        return f"{value} = floor({value}) AND abs({value}) <= {self.double(2.0**53)}"

    def _float_text(self, value: str) -> str:
        millionths = self.cast(f"floor({value} * {self.double(1e6)} + {self.double(0.5)})", self.big_type)
        size = f"abs({millionths})"
        sign = f"CASE WHEN {millionths} < 0 THEN '-' ELSE '' END"
        front = self.cast(self.divide(size, 10**6), self.text_type)
        behind = f"lpad({self.cast(f'{size} % {10**6}', self.text_type)}, 6, '0')"
        text = self.without_zeros(f"{sign} || {front} || '.' || {behind}")
        return (
            f"CASE WHEN {self._is_exact_whole(value)} THEN {self._whole_text(value)} "
            f"WHEN abs({value}) < {self.double(1e9)} THEN {text} END"
        )
