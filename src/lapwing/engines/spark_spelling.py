"""Spark's words, with ANSI mode off: what overflows or divides by 0 there raises nothing."""

from __future__ import annotations

import re

from lapwing.engines.calendar import DAYS_AT_MOST, SECONDS_OF_DAY
from lapwing.engines.common import HEX_BYTES, PRIME, CommonSpelling
from lapwing.engines.shape import Family, Shape, decimal_shape, whole_shape

_FAMILIES = {
    "tinyint": whole_shape(8),
    "smallint": whole_shape(16),
    "int": whole_shape(32),
    "bigint": whole_shape(64),
    "boolean": Shape(Family.TRUTH),
    **dict.fromkeys(("float", "double"), Shape(Family.FLOAT)),
    **dict.fromkeys(("string", "char", "varchar"), Shape(Family.TEXT)),
    "date": Shape(Family.DATE),
    "timestamp_ntz": Shape(Family.TIMESTAMP),
    "timestamp": Shape(Family.ZONED),
    "binary": Shape(Family.BYTES),
}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_SIZE = re.compile(r"\([^)]*\)")


class SparkSpelling(CommonSpelling):
    """What is only found in Spark."""

    int_type, big_type, wide_type = "INT", "BIGINT", "DECIMAL(38, 0)"
    float_type, text_type = "DOUBLE", "STRING"
    small_types = ((8, "TINYINT"), (16, "SMALLINT"))

    def shape(self, type_name: str) -> Shape:
        name = type_name.lower()
        if found := _DECIMAL.fullmatch(name):
            return decimal_shape(int(found[1]), int(found[2]))
        return _FAMILIES.get(_SIZE.sub("", name).removesuffix(" collate utf8_binary"), Shape(Family.OTHER))

    def name(self, identifier: str) -> str:
        return "`" + identifier.replace("`", "``") + "`"

    def text(self, value: str) -> str:
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def cast(self, sql: str, type_name: str) -> str:
        return f"try_cast({sql} AS {type_name})"

    def source_text(self, column: str) -> str:
        return f"try_validate_utf8({super().source_text(column)})"  # files may hold anything

    def divide(self, sql: str, by: int) -> str:
        return f"({sql} div {by})"

    def quotient(self, top: str, bottom: str) -> str:
        by = f"nullif({bottom}, 0)"
        uneven = f"({top}) % {by} <> 0 AND (({top}) < 0) <> (({bottom}) < 0)"
        return f"(({top}) div {by} - CASE WHEN {uneven} THEN 1 ELSE 0 END)"

    def matches(self, sql: str, pattern: str) -> str:
        whole = self.text(rf"(?s)\A(?:{pattern})\z")
        return f"(({sql}) RLIKE {whole})"

    def total(self, sql: str, reach: int) -> str:
        if reach < 1 << 31:
            return f"coalesce(sum(CAST({sql} AS BIGINT)), 0)"
        digits = len(str(reach))  # a sum has ten digits more
        value = f"CAST({sql} AS DECIMAL({digits if digits <= 28 else 38}, 0))"
        return f"coalesce(CAST(sum({value}) AS {self.total_type}), CAST(0 AS {self.total_type}))"

    def like(self, sql: str, pattern: str) -> str:
        """By a regular expression that never goes back: of what stands between two %, the first place
        where it fits is as good as any other."""
        parts = pattern.split("%")
        first, *rest = ("".join("." if c == "_" else re.escape(c) for c in part) for part in parts)
        middle = "".join(f"(?>.*?{part})" for part in rest[:-1] if part)
        last = f".*{rest[-1]}" if rest else ""
        whole = self.text(rf"(?s)\A{first}{middle}{last}\z")
        return f"(({sql}) RLIKE {whole})"

    def parse_whole(self, sql: str) -> str:
        return f"CASE WHEN {self.matches(sql, '[+-]?[0-9]{1,15}')} THEN try_cast({sql} AS BIGINT) END"

    def hashed_text(self, sql: str) -> str:
        return f"CAST(CAST(conv(substring(md5({sql}), 1, 15), 16, 10) AS BIGINT) % {PRIME} AS INT)"

    def units(self, column: str, shape: Shape, reach: int) -> str:
        scale, result = shape.scale, self.type_for(reach)
        if scale == 0:
            return self.cast(column, result)
        width = max(len(str(reach)), scale)
        if width + scale + 2 > 38:  # a product would lose digits
            return self.cast(f"replace({self._plain(column, shape)}, '.', '')", result)
        value = self.cast(column, f"DECIMAL({width}, {scale})")
        return self.cast(f"{value} * CAST({10**scale} AS DECIMAL({scale + 1}, 0))", result)

    def _plain(self, column: str, shape: Shape) -> str:
        """All digits. A cast would write small numbers with an exponent."""
        width = len(str(shape.last))
        front = "9" * max(width - shape.scale - 1, 0) + "0"
        return f"trim(to_char({column}, 'MI{front}D{'9' * shape.scale}'))"

    def moment(self, column: str, shape: Shape) -> str:
        if shape.family is Family.DATE:
            days = f"CAST(unix_date({column}) AS BIGINT)"
            fits = f"{days} BETWEEN -{DAYS_AT_MOST} AND {DAYS_AT_MOST}"
            return f"CASE WHEN {fits} THEN {days} * {SECONDS_OF_DAY} END"
        limit = DAYS_AT_MOST * SECONDS_OF_DAY
        zoned = column if shape.family is Family.ZONED else f"CAST({column} AS TIMESTAMP)"
        seconds = self.floor_divide(f"unix_micros({zoned})", 10**6)
        return f"CASE WHEN {seconds} BETWEEN -{limit} AND {limit} THEN {seconds} END"

    def formatted(self, column: str, shape: Shape) -> str:
        match shape.family:
            case Family.DECIMAL if shape.scale:
                text = self.without_zeros(self._plain(column, shape))
                return (
                    f"CASE WHEN {column} = 0 THEN '0' ELSE regexp_replace({text}, '^(-?)[.]', '$10.') END"
                )
            case Family.BYTES:
                return f"lower(hex(substring({column}, 1, {HEX_BYTES})))"
            case _:
                return f"CAST({column} AS STRING)"
