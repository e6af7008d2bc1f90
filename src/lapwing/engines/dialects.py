"""The dialects of DuckDB, PostgreSQL and Spark.

DuckDB: whole numbers that overflow are an error, so every number is clamped before it is computed with.

PostgreSQL: there is no TRY_CAST. A cast that fails, or a float that is too small, is an error. So every
text is matched before it is cast, every number is clamped before it is computed with, and texts have
COLLATE "C": other collations sort in another order, and some cannot be searched.

Spark, with ANSI mode off: overflow and division by 0 raise nothing.
"""

from __future__ import annotations

import re
from fractions import Fraction

from lapwing.engines.column_values import DAYS_AT_MOST, SECONDS_OF_DAY, ColumnType, TypeFamily, whole_type
from lapwing.engines.dialect import HEX_BYTES, PRIME, SECONDS_AT_MOST, TEXT_BYTES, SqlDialect

_DUCKDB_WHOLE = {"tinyint": 8, "smallint": 16, "integer": 32, "bigint": 64, "hugeint": 128}
_DUCKDB_TYPES = {
    **{name: whole_type(bits) for name, bits in _DUCKDB_WHOLE.items()},
    **{f"u{name}": whole_type(bits, signed=False) for name, bits in _DUCKDB_WHOLE.items()},
    "boolean": ColumnType(TypeFamily.TRUTH),
    **dict.fromkeys(("float", "double"), ColumnType(TypeFamily.FLOAT)),
    "varchar": ColumnType(TypeFamily.TEXT),
    "date": ColumnType(TypeFamily.DATE),
    **dict.fromkeys(
        ("timestamp", "timestamp_s", "timestamp_ms"), ColumnType(TypeFamily.TIMESTAMP, scale=6)
    ),
    "timestamp_ns": ColumnType(TypeFamily.TIMESTAMP, scale=9),
    "timestamp with time zone": ColumnType(TypeFamily.ZONED, scale=6),
    "blob": ColumnType(TypeFamily.BYTES),
    "uuid": ColumnType(TypeFamily.UUID),
}  # fmt: skip


class DuckDbDialect(SqlDialect):
    """DuckDB's dialect. TRY_CAST costs no more than CAST."""

    int_type, big_type, wide_type = "INTEGER", "BIGINT", "HUGEINT"
    float_type, text_type, division = "DOUBLE", "VARCHAR", "//"
    small_types = ((8, "TINYINT"), (16, "SMALLINT"))
    byte_length, types = "strlen", _DUCKDB_TYPES

    def shape(self, type_name: str) -> ColumnType:
        """Return the column type. The name of an enumeration contains its values."""
        return super().shape("varchar" if type_name.lower().startswith("enum(") else type_name)

    def cast(self, sql: str, type_name: str) -> str:
        """Return a cast that gives NULL instead of failing."""
        return f"TRY_CAST({sql} AS {type_name})"

    def source_text(self, column: str) -> str:
        """Return a text column of any type as plain text, compared by code point."""
        # A column of a database file may be declared with a collation, which copies would keep.
        return f'({self.cast(column, self.text_type)} COLLATE "C")'

    def with_point(self, sql: str) -> str:
        """Return a text with decimal commas replaced by points, and points by commas."""
        return f"CASE WHEN strlen({sql}) <= {TEXT_BYTES} THEN translate({sql}, '.,', ',.') END"

    def time_of(self, sql: str, form: str) -> str:
        """Return the timestamp that a text in a `strptime` form is; else NULL."""
        parsed = f"try_strptime({self.trim(sql)}, {self.text(form)})"
        return f"CASE WHEN strlen({sql}) <= {TEXT_BYTES} THEN {parsed} END"

    def whole(self, sql: str, reach: int) -> str:
        """Cast to the narrowest type to compute with."""
        # Sums of squares of four bytes cost a third more than of two.
        return self.cast(sql, "SMALLINT" if reach < 1 << 15 else self.type_for(reach))

    def lower(self, sql: str) -> str:
        """Return the text with ASCII letters in lower case."""
        return self._in_ascii("lower", sql, super().lower(sql))

    def upper(self, sql: str) -> str:
        """Return the text with ASCII letters in upper case."""
        return self._in_ascii("upper", sql, super().upper(sql))

    def _in_ascii(self, function: str, sql: str, otherwise: str) -> str:
        """Use the built-in where every letter is one byte: it is eight times faster, and the same there."""
        return f"CASE WHEN strlen({sql}) = length({sql}) THEN {function}({sql}) ELSE {otherwise} END"

    def matches(self, sql: str, pattern: str) -> str:
        """Return whether the whole text matches a regular expression."""
        return f"regexp_full_match({sql}, '{pattern}', 's')"

    def total(self, sql: str, reach: int) -> str:
        """Return a sum of whole numbers that never overflows; 0 for no rows."""
        if reach < 1 << 31:  # fewer than 2^32 rows cannot go beyond 8 bytes
            return f"coalesce(CAST(sum({sql}) AS BIGINT), 0)"
        return f"CAST(coalesce(sum({sql}), 0) AS {self.total_type})"

    def like(self, sql: str, pattern: str) -> str:
        """Return a case-sensitive LIKE, in at most as many steps as text times pattern."""
        if "_" not in pattern:
            return f"(({sql}) LIKE {self.text(pattern)})"
        # LIKE with _ backtracks once for each %; RE2 never does.
        parts = {"%": ".*", "_": "."}
        regex = "".join(parts.get(letter) or re.escape(letter) for letter in pattern)
        return f"regexp_full_match({sql}, {self.text(regex)}, 's')"

    def hashed_text(self, sql: str) -> str:
        """Return a whole number in 0..2^31-2 from a text (md5)."""
        return f"CAST(TRY_CAST('0x' || substring(md5({sql}), 1, 15) AS BIGINT) % {PRIME} AS INTEGER)"

    def units(self, column: str, shape: ColumnType, reach: int) -> str:
        """Return a decimal times 10^scale, as a whole number."""
        if shape.scale == 0:
            return super().units(column, shape, reach)
        digits, result = len(str(reach)) + shape.scale, self.type_for(reach)  # digits of the product below
        if digits > 38:
            return self.cast(f"replace(TRY_CAST({column} AS VARCHAR), '.', '')", result)
        width = 18 if digits <= 18 else 38  # 8 or 16 bytes; a product keeps the width of its factors
        value = f"TRY_CAST({column} AS DECIMAL({width}, {shape.scale}))"
        return self.cast(f"{value} * CAST({10**shape.scale} AS DECIMAL({shape.scale + 1}, 0))", result)

    def moment(self, column: str, shape: ColumnType) -> str:
        """Return seconds since 1970, or NULL out of range."""
        if shape.family is TypeFamily.DATE:
            days = f"({column} - DATE '1970-01-01')"
            return self._if_within(days, DAYS_AT_MOST, f"{days} * {SECONDS_OF_DAY}")
        ticks = f"TRY(epoch_{'ns' if shape.scale == 9 else 'us'}({column}))"
        seconds = self.floor_divide(ticks, 10**shape.scale)
        return self._if_within(seconds, SECONDS_AT_MOST, seconds)

    def formatted(self, column: str, shape: ColumnType) -> str:
        """Return the text of a decimal, time, UUID or bytes."""
        match shape.family:
            case TypeFamily.DECIMAL if shape.scale:
                return self.decimal_text(column, f"TRY_CAST({column} AS VARCHAR)", "\\10.")
            case TypeFamily.BYTES:
                return f"lower(hex({column}))"
            case TypeFamily.ZONED:
                return f"TRY_CAST(TRY_CAST({column} AS TIMESTAMP) AS VARCHAR)"
            case _:
                return f"TRY_CAST({column} AS VARCHAR)"


_POSTGRES_TYPES = {
    "smallint": whole_type(16),
    "integer": whole_type(32),
    "bigint": whole_type(64),
    "numeric": ColumnType(TypeFamily.DECIMAL),
    "boolean": ColumnType(TypeFamily.TRUTH),
    **dict.fromkeys(("real", "double precision"), ColumnType(TypeFamily.FLOAT)),
    **dict.fromkeys(
        ("text", "character varying", "character", '"char"', "name", "enum"), ColumnType(TypeFamily.TEXT)
    ),
    "date": ColumnType(TypeFamily.DATE),
    "timestamp without time zone": ColumnType(TypeFamily.TIMESTAMP),
    "timestamp with time zone": ColumnType(TypeFamily.ZONED),
    "bytea": ColumnType(TypeFamily.BYTES),
    "uuid": ColumnType(TypeFamily.UUID),
}


class PostgresDialect(SqlDialect):
    """PostgreSQL's dialect. A backslash is no escape in texts: the session's settings say so."""

    int_type, big_type, wide_type = "integer", "bigint", "numeric"
    float_type, text_type, total_type = "double precision", "text", "numeric(38, 0)"
    small_types, division, types = ((16, "smallint"),), "/", _POSTGRES_TYPES

    def matches(self, sql: str, pattern: str) -> str:
        """Return whether the whole text matches a regular expression."""
        return f"(({sql}) COLLATE \"C\" ~ '^(?:{pattern})$')"

    def source_text(self, column: str) -> str:
        """Return a text column of any type as plain text, compared by code point."""
        return f'(CAST({column} AS text) COLLATE "C")'

    def compared_text(self, sql: str) -> str:
        """Return the text with the collation that compares by code point."""
        return f'(({sql}) COLLATE "C")'

    def is_nan(self, sql: str) -> str:
        """Return whether a number is NaN."""
        return f"({sql} = 'NaN')"

    def not_tiny(self, value: str, width: float) -> str:
        """Return 0 for a value whose quotient by the width would be an underflow, an error here."""
        return f"CASE WHEN abs({value}) < {self.double(width * 2.0**-60)} THEN 0 ELSE {value} END"

    def floor_divide(self, sql: str, by: int) -> str:
        """Return floor(a / by) for by > 0. It is exact also where / makes fractions."""
        return f"((({sql}) - {self.modulo(sql, by)}) / {by})"

    def quotient(self, top: str, bottom: str) -> str:
        """Return floor(top / bottom); NULL where the bottom is 0."""
        by = f"nullif({bottom}, 0)"
        return f"((({top}) - (({top}) % {by} + {by}) % {by}) / {by})"

    def total(self, sql: str, reach: int) -> str:
        """Return a sum of whole numbers that never overflows; 0 for no rows."""
        if reach < 1 << 31:
            return f"coalesce(sum(CAST({sql} AS integer)), 0)"
        return f"CAST(coalesce(sum({sql}), 0) AS {self.total_type})"

    def like(self, sql: str, pattern: str) -> str:
        """Return a case-sensitive LIKE, in at most as many steps as text times pattern."""
        return f"(({sql}) COLLATE \"C\" LIKE {self.text(pattern)} ESCAPE '')"

    def parse_whole(self, sql: str) -> str:
        """Return the whole number that a text is; else NULL, which the cast never sees."""
        return f"CAST(substring(({sql}) COLLATE \"C\" from '^[+-]?[0-9]{{1,15}}$') AS bigint)"

    def hashed_text(self, sql: str) -> str:
        """Return a whole number in 0..2^31-2 from a text (md5)."""
        bits = f"CAST('x' || substring(md5({sql}), 1, 15) AS bit(60))"
        return f"CAST(CAST({bits} AS bigint) % {PRIME} AS integer)"

    def exact_steps(self, column: str, shape: ColumnType, step: Fraction, first: int, last: int) -> str:
        """Clamp with a margin at both ends, since numerics are of any scale; then compute exactly."""
        if shape.family is TypeFamily.WHOLE:
            return super().exact_steps(column, shape, step, first, last)
        top, bottom = step.numerator, step.denominator
        low, high = (first - 2) * top // bottom - 1, (last + 2) * top // bottom + 1
        shift = top - 2 * top * (first - 4)
        steps = f"div({column} * {2 * bottom} + {self.number(shift)}, {2 * top}) + {self.number(first - 4)}"
        inside = f"least(greatest({steps}, {self.number(first)}), {self.number(last)})"
        return (
            f"CASE WHEN {self.is_nan(column)} THEN NULL WHEN {column} <= {self.number(low)} "
            f"THEN {self.number(first)} WHEN {column} >= {self.number(high)} THEN {self.number(last)} "
            f"WHEN {column} IS NOT NULL THEN {inside} END"
        )

    def truth(self, column: str, type_name: str) -> str:
        """Return a column as a boolean; a numeric may be NaN here."""
        if self.shape(type_name).family is TypeFamily.DECIMAL:
            return f"CASE WHEN NOT {self.is_nan(column)} THEN {column} <> 0 END"
        return super().truth(column, type_name)

    def moment(self, column: str, shape: ColumnType) -> str:
        """Return seconds since 1970, or NULL out of range."""
        if shape.family is TypeFamily.DATE:
            last = f"DATE '1970-01-01' + {DAYS_AT_MOST}"  # the earliest date is after 1970 - DAYS_AT_MOST
            days = f"CAST({column} - DATE '1970-01-01' AS bigint)"
            return f"CASE WHEN isfinite({column}) AND {column} <= {last} THEN {days} * {SECONDS_OF_DAY} END"
        seconds = f"CAST(floor(extract(epoch FROM {column})) AS bigint)"
        inside = self._if_within(seconds, SECONDS_AT_MOST, seconds)
        return f"CASE WHEN isfinite({column}) THEN {inside} END"

    def formatted(self, column: str, shape: ColumnType) -> str:
        """Return the text of a decimal, time, UUID or bytes."""
        match shape.family:
            case TypeFamily.DECIMAL:
                infinite = "'Infinity', '-Infinity', 'NaN'"
                return f"CASE WHEN {column} NOT IN ({infinite}) THEN CAST(trim_scale({column}) AS text) END"
            case TypeFamily.BYTES:
                return f"encode(substring({column}, 1, {HEX_BYTES}), 'hex')"
            case TypeFamily.ZONED:
                return f"CAST({column} AT TIME ZONE 'UTC' AS text)"
            case _:
                return f"CAST({column} AS text)"


_SPARK_TYPES = {
    "tinyint": whole_type(8),
    "smallint": whole_type(16),
    "int": whole_type(32),
    "bigint": whole_type(64),
    "boolean": ColumnType(TypeFamily.TRUTH),
    **dict.fromkeys(("float", "double"), ColumnType(TypeFamily.FLOAT)),
    **dict.fromkeys(("string", "char", "varchar"), ColumnType(TypeFamily.TEXT)),
    "date": ColumnType(TypeFamily.DATE),
    "timestamp_ntz": ColumnType(TypeFamily.TIMESTAMP),
    "timestamp": ColumnType(TypeFamily.ZONED),
    "binary": ColumnType(TypeFamily.BYTES),
}


class SparkDialect(SqlDialect):
    """Spark's dialect."""

    int_type, big_type, wide_type = "INT", "BIGINT", "DECIMAL(38, 0)"
    float_type, text_type, division = "DOUBLE", "STRING", "div"
    small_types, types = ((8, "TINYINT"), (16, "SMALLINT")), _SPARK_TYPES

    def shape(self, type_name: str) -> ColumnType:
        """Return the column type. Only texts of this collation are compared by code point."""
        return super().shape(type_name.lower().removesuffix(" collate utf8_binary"))

    def name(self, identifier: str) -> str:
        """Quote an identifier."""
        return "`" + identifier.replace("`", "``") + "`"

    def text(self, value: str) -> str:
        """Quote a text literal, in which a backslash escapes."""
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def cast(self, sql: str, type_name: str) -> str:
        """Return a cast that gives NULL instead of failing."""
        return f"try_cast({sql} AS {type_name})"

    def source_text(self, column: str) -> str:
        """Return a text column as plain text; NULL where a file's bytes are not UTF-8."""
        return f"try_validate_utf8({super().source_text(column)})"  # files may hold anything

    def matches(self, sql: str, pattern: str) -> str:
        """Return whether the whole text matches a regular expression."""
        whole = self.text(rf"(?s)\A(?:{pattern})\z")
        return f"(({sql}) RLIKE {whole})"

    def total(self, sql: str, reach: int) -> str:
        """Return a sum of whole numbers that never overflows; 0 for no rows."""
        if reach < 1 << 31:
            return f"coalesce(sum(CAST({sql} AS BIGINT)), 0)"
        digits = len(str(reach))  # a sum has ten digits more
        value = f"CAST({sql} AS DECIMAL({digits if digits <= 28 else 38}, 0))"
        return f"coalesce(CAST(sum({value}) AS {self.total_type}), CAST(0 AS {self.total_type}))"

    def like(self, sql: str, pattern: str) -> str:
        """Return a case-sensitive LIKE, by a regular expression that never backtracks.

        Of the text between two %, the first match is as good as any other.
        """
        parts = pattern.split("%")
        first, *rest = ("".join("." if c == "_" else re.escape(c) for c in part) for part in parts)
        middle = "".join(f"(?>.*?{part})" for part in rest[:-1] if part)
        last = f".*{rest[-1]}" if rest else ""
        whole = self.text(rf"(?s)\A{first}{middle}{last}\z")
        return f"(({sql}) RLIKE {whole})"

    def hashed_text(self, sql: str) -> str:
        """Return a whole number in 0..2^31-2 from a text (md5)."""
        return f"CAST(CAST(conv(substring(md5({sql}), 1, 15), 16, 10) AS BIGINT) % {PRIME} AS INT)"

    def units(self, column: str, shape: ColumnType, reach: int) -> str:
        """Return a decimal times 10^scale, as a whole number."""
        scale, result = shape.scale, self.type_for(reach)
        if scale == 0:
            return super().units(column, shape, reach)
        width = max(len(str(reach)), scale)
        if width + scale + 2 > 38:  # a product would lose digits
            return self.cast(f"replace({self._plain(column, shape)}, '.', '')", result)
        value = self.cast(column, f"DECIMAL({width}, {scale})")
        return self.cast(f"{value} * CAST({10**scale} AS DECIMAL({scale + 1}, 0))", result)

    def _plain(self, column: str, shape: ColumnType) -> str:
        """Return all digits. A cast would write small numbers with an exponent."""
        width = len(str(shape.last))
        front = "9" * max(width - shape.scale - 1, 0) + "0"
        return f"trim(to_char({column}, 'MI{front}D{'9' * shape.scale}'))"

    def moment(self, column: str, shape: ColumnType) -> str:
        """Return seconds since 1970, or NULL out of range."""
        if shape.family is TypeFamily.DATE:
            days = f"CAST(unix_date({column}) AS BIGINT)"
            return self._if_within(days, DAYS_AT_MOST, f"{days} * {SECONDS_OF_DAY}")
        zoned = column if shape.family is TypeFamily.ZONED else f"CAST({column} AS TIMESTAMP)"
        seconds = self.floor_divide(f"unix_micros({zoned})", 10**6)
        return self._if_within(seconds, SECONDS_AT_MOST, seconds)

    def formatted(self, column: str, shape: ColumnType) -> str:
        """Return the text of a decimal, time, UUID or bytes."""
        match shape.family:
            case TypeFamily.DECIMAL if shape.scale:
                return self.decimal_text(column, self._plain(column, shape), "$10.")
            case TypeFamily.BYTES:
                return f"lower(hex(substring({column}, 1, {HEX_BYTES})))"
            case _:
                return f"CAST({column} AS STRING)"
