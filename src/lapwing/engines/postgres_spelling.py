"""PostgreSQL's words. Nothing is tried in it: a cast that fails, or a float that is too small, is an error.

So every text is matched before it is cast, every number clamped before it is computed with, and texts
have COLLATE "C": other collations sort otherwise, and some refuse to be searched.
"""

from __future__ import annotations

import re
from fractions import Fraction

from lapwing.engines.calendar import DAYS_AT_MOST, SECONDS_OF_DAY
from lapwing.engines.common import HEX_BYTES, PRIME, CommonSpelling
from lapwing.engines.shape import Family, Shape, whole_shape

_FAMILIES = {
    "smallint": whole_shape(16),
    "integer": whole_shape(32),
    "bigint": whole_shape(64),
    "numeric": Shape(Family.DECIMAL),
    "boolean": Shape(Family.TRUTH),
    **dict.fromkeys(("real", "double precision"), Shape(Family.FLOAT)),
    **dict.fromkeys(
        ("text", "character varying", "character", '"char"', "name", "enum"), Shape(Family.TEXT)
    ),
    "date": Shape(Family.DATE),
    "timestamp without time zone": Shape(Family.TIMESTAMP),
    "timestamp with time zone": Shape(Family.ZONED),
    "bytea": Shape(Family.BYTES),
    "uuid": Shape(Family.UUID),
}
_SIZE = re.compile(r"\([^)]*\)")


class PostgresSpelling(CommonSpelling):
    """What is only found in PostgreSQL."""

    int_type, big_type, wide_type = "integer", "bigint", "numeric"
    float_type, text_type, total_type = "double precision", "text", "numeric(38, 0)"
    small_types = ((16, "smallint"),)

    def shape(self, type_name: str) -> Shape:
        return _FAMILIES.get(_SIZE.sub("", type_name.lower()), Shape(Family.OTHER))

    def name(self, identifier: str) -> str:
        return '"' + identifier.replace('"', '""') + '"'

    def text(self, value: str) -> str:
        return "'" + value.replace("'", "''") + "'"  # a backslash is a backslash: the session says so

    def divide(self, sql: str, by: int) -> str:
        return f"({sql} / {by})"

    def matches(self, sql: str, pattern: str) -> str:
        return f"(({sql}) COLLATE \"C\" ~ '^(?:{pattern})$')"

    def source_text(self, column: str) -> str:
        return f'(CAST({column} AS text) COLLATE "C")'

    def compared_text(self, sql: str) -> str:
        return f'(({sql}) COLLATE "C")'

    def is_nan(self, sql: str) -> str:
        return f"({sql} = 'NaN')"

    def not_tiny(self, value: str, width: float) -> str:
        return f"CASE WHEN abs({value}) < {self.double(width * 2.0**-60)} THEN 0 ELSE {value} END"

    def floor_divide(self, sql: str, by: int) -> str:
        return f"((({sql}) - {self.modulo(sql, by)}) / {by})"  # also where / makes fractions: it is whole

    def quotient(self, top: str, bottom: str) -> str:
        by = f"nullif({bottom}, 0)"
        return f"((({top}) - (({top}) % {by} + {by}) % {by}) / {by})"

    def total(self, sql: str, reach: int) -> str:
        if reach < 1 << 31:
            return f"coalesce(sum(CAST({sql} AS integer)), 0)"
        return f"CAST(coalesce(sum({sql}), 0) AS {self.total_type})"

    def like(self, sql: str, pattern: str) -> str:
        return f"(({sql}) COLLATE \"C\" LIKE {self.text(pattern)} ESCAPE '')"

    def parse_whole(self, sql: str) -> str:
        # What does not match is NULL, so that the cast never sees it.
        return f"CAST(substring(({sql}) COLLATE \"C\" from '^[+-]?[0-9]{{1,15}}$') AS bigint)"

    def hashed_text(self, sql: str) -> str:
        bits = f"CAST('x' || substring(md5({sql}), 1, 15) AS bit(60))"
        return f"CAST(CAST({bits} AS bigint) % {PRIME} AS integer)"

    def units(self, column: str, shape: Shape, reach: int) -> str:
        raise NotImplementedError  # numerics have no fixed scale: see decimal_steps

    def decimal_steps(self, column: str, shape: Shape, step: Fraction, first: int, last: int) -> str:
        """With some room at both ends, since numerics are of any scale; then exactly."""
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
        if self.shape(type_name).family is Family.DECIMAL:
            return f"CASE WHEN NOT {self.is_nan(column)} THEN {column} <> 0 END"
        return super().truth(column, type_name)

    def moment(self, column: str, shape: Shape) -> str:
        if shape.family is Family.DATE:
            last = f"DATE '1970-01-01' + {DAYS_AT_MOST}"  # the earliest date is after 1970 - DAYS_AT_MOST
            days = f"CAST({column} - DATE '1970-01-01' AS bigint)"
            return f"CASE WHEN isfinite({column}) AND {column} <= {last} THEN {days} * {SECONDS_OF_DAY} END"
        limit = DAYS_AT_MOST * SECONDS_OF_DAY
        seconds = f"CAST(floor(extract(epoch FROM {column})) AS bigint)"
        return (
            f"CASE WHEN isfinite({column}) THEN "
            f"CASE WHEN {seconds} BETWEEN -{limit} AND {limit} THEN {seconds} END END"
        )

    def formatted(self, column: str, shape: Shape) -> str:
        match shape.family:
            case Family.DECIMAL:
                infinite = "'Infinity', '-Infinity', 'NaN'"
                return f"CASE WHEN {column} NOT IN ({infinite}) THEN CAST(trim_scale({column}) AS text) END"
            case Family.BYTES:
                return f"encode(substring({column}, 1, {HEX_BYTES}), 'hex')"
            case Family.ZONED:
                return f"CAST({column} AT TIME ZONE 'UTC' AS text)"
            case _:
                return f"CAST({column} AS text)"
