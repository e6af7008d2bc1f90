"""DuckDB's words. Its whole numbers overflow with an error: nothing is computed that was not clamped."""

from __future__ import annotations

import re

from lapwing.engines.calendar import DAYS_AT_MOST, SECONDS_OF_DAY
from lapwing.engines.common import PRIME, TEXT_BYTES, CommonSpelling
from lapwing.engines.shape import Family, Shape, decimal_shape, whole_shape

_WHOLE = {"tinyint": 8, "smallint": 16, "integer": 32, "bigint": 64, "hugeint": 128}
_FAMILIES = {
    **{name: whole_shape(bits) for name, bits in _WHOLE.items()},
    **{f"u{name}": whole_shape(bits, signed=False) for name, bits in _WHOLE.items()},
    "boolean": Shape(Family.TRUTH),
    "float": Shape(Family.FLOAT),
    "double": Shape(Family.FLOAT),
    "varchar": Shape(Family.TEXT),
    "date": Shape(Family.DATE),
    **dict.fromkeys(("timestamp", "timestamp_s", "timestamp_ms"), Shape(Family.TIMESTAMP, scale=6)),
    "timestamp_ns": Shape(Family.TIMESTAMP, scale=9),
    "timestamp with time zone": Shape(Family.ZONED, scale=6),
    "blob": Shape(Family.BYTES),
    "uuid": Shape(Family.UUID),
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


class DuckDbSpelling(CommonSpelling):
    """What is only found in DuckDB. TRY_CAST costs no more than CAST."""

    int_type, big_type, wide_type = "INTEGER", "BIGINT", "HUGEINT"
    float_type, text_type = "DOUBLE", "VARCHAR"
    small_types = ((8, "TINYINT"), (16, "SMALLINT"))
    byte_length = "strlen"

    def shape(self, type_name: str) -> Shape:
        name = type_name.lower()
        if found := _DECIMAL.fullmatch(name):
            return decimal_shape(int(found[1]), int(found[2]))
        if name.startswith("enum("):
            return Shape(Family.TEXT)
        return _FAMILIES.get(name, Shape(Family.OTHER))

    def name(self, identifier: str) -> str:
        return '"' + identifier.replace('"', '""') + '"'

    def text(self, value: str) -> str:
        return "'" + value.replace("'", "''") + "'"

    def cast(self, sql: str, type_name: str) -> str:
        return f"TRY_CAST({sql} AS {type_name})"

    def source_text(self, column: str) -> str:
        # A column of a database file may be declared with a collation, which copies would keep.
        return f'({self.cast(column, self.text_type)} COLLATE "C")'

    def with_point(self, sql: str) -> str:
        """A text in which a comma stands before decimals, with a point instead, and commas for points."""
        return f"CASE WHEN strlen({sql}) <= {TEXT_BYTES} THEN translate({sql}, '.,', ',.') END"

    def time_of(self, sql: str, form: str) -> str:
        """The timestamp that a text in a form of `strptime` is; else NULL."""
        trimmed = self.trim(sql)
        return (
            f"CASE WHEN strlen({sql}) <= {TEXT_BYTES} THEN try_strptime({trimmed}, {self.text(form)}) END"
        )

    def divide(self, sql: str, by: int) -> str:
        return f"({sql} // {by})"

    def whole(self, sql: str, reach: int) -> str:
        # Sums of squares of four bytes cost a third more than of two.
        return self.cast(sql, "SMALLINT" if reach < 1 << 15 else self.type_for(reach))

    def lower(self, sql: str) -> str:
        return self._in_ascii("lower", sql, super().lower(sql))

    def upper(self, sql: str) -> str:
        return self._in_ascii("upper", sql, super().upper(sql))

    def _in_ascii(self, function: str, sql: str, otherwise: str) -> str:
        """The built-in is eight times faster, and the same where every letter is one byte."""
        return f"CASE WHEN strlen({sql}) = length({sql}) THEN {function}({sql}) ELSE {otherwise} END"

    def matches(self, sql: str, pattern: str) -> str:
        return f"regexp_full_match({sql}, '{pattern}', 's')"

    def total(self, sql: str, reach: int) -> str:
        if reach < 1 << 31:  # fewer than 2^32 rows cannot go beyond 8 bytes
            return f"coalesce(CAST(sum({sql}) AS BIGINT), 0)"
        return f"CAST(coalesce(sum({sql}), 0) AS {self.total_type})"

    def quotient(self, top: str, bottom: str) -> str:
        by = f"nullif({bottom}, 0)"
        uneven = f"({top}) % {by} <> 0 AND (({top}) < 0) <> (({bottom}) < 0)"
        return f"(({top}) // {by} - CASE WHEN {uneven} THEN 1 ELSE 0 END)"

    def like(self, sql: str, pattern: str) -> str:
        if "_" not in pattern:
            return f"(({sql}) LIKE {self.text(pattern)})"
        # LIKE with _ goes back and forth, in time that depends on the text; RE2 is linear.
        parts = {"%": ".*", "_": "."}
        found = "".join(parts.get(letter) or re.escape(letter) for letter in pattern)
        return f"regexp_full_match({sql}, {self.text(found)}, 's')"

    def parse_whole(self, sql: str) -> str:
        return f"CASE WHEN {self.matches(sql, '[+-]?[0-9]{1,15}')} THEN TRY_CAST({sql} AS BIGINT) END"

    def hashed_text(self, sql: str) -> str:
        return f"CAST(TRY_CAST('0x' || substring(md5({sql}), 1, 15) AS BIGINT) % {PRIME} AS INTEGER)"

    def units(self, column: str, shape: Shape, reach: int) -> str:
        digits = len(str(reach)) + shape.scale  # of the product below
        result = self.type_for(reach)
        if shape.scale == 0:
            return self.cast(column, result)
        if digits > 38:
            return self.cast(f"replace(TRY_CAST({column} AS VARCHAR), '.', '')", result)
        width = 18 if digits <= 18 else 38  # 8 or 16 bytes; a product keeps the width of its factors
        value = f"TRY_CAST({column} AS DECIMAL({width}, {shape.scale}))"
        return self.cast(f"{value} * CAST({10**shape.scale} AS DECIMAL({shape.scale + 1}, 0))", result)

    def moment(self, column: str, shape: Shape) -> str:
        if shape.family is Family.DATE:
            days = f"({column} - DATE '1970-01-01')"
            fits = f"{days} BETWEEN -{DAYS_AT_MOST} AND {DAYS_AT_MOST}"
            return f"CASE WHEN {fits} THEN {days} * {SECONDS_OF_DAY} END"
        limit = DAYS_AT_MOST * SECONDS_OF_DAY
        ticks = f"TRY(epoch_{'ns' if shape.scale == 9 else 'us'}({column}))"
        seconds = self.floor_divide(ticks, 10**shape.scale)
        return f"CASE WHEN {seconds} BETWEEN -{limit} AND {limit} THEN {seconds} END"

    def formatted(self, column: str, shape: Shape) -> str:
        match shape.family:
            case Family.DECIMAL if shape.scale:
                text = self.without_zeros(f"TRY_CAST({column} AS VARCHAR)")
                return (
                    f"CASE WHEN {column} = 0 THEN '0' ELSE regexp_replace({text}, '^(-?)[.]', '\\10.') END"
                )
            case Family.BYTES:
                return f"lower(hex({column}))"
            case Family.ZONED:
                return f"TRY_CAST(TRY_CAST({column} AS TIMESTAMP) AS VARCHAR)"
            case _:
                return f"TRY_CAST({column} AS VARCHAR)"
