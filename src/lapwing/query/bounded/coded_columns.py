"""From a source's own values to codes: total, row by row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from fractions import Fraction

from lapwing.engines.csv_form import PLAIN, CsvForm
from lapwing.engines.duckdb_spelling import DuckDbSpelling
from lapwing.engines.shape import Family
from lapwing.engines.spelling import Spelling
from lapwing.errors import BadParameter
from lapwing.query.bounded.keyed_hash import PRIME, Term
from lapwing.query.bounded.render_expression import LARGEST, literal
from lapwing.query.language.kinds import SECONDS, Choice, Kind, Moment, Number, Period, Person, Text, Truth
from lapwing.query.policies.policy import Column

WHOLE = frozenset(
    [
        "tinyint",
        "smallint",
        "int",
        "integer",
        "bigint",
        "utinyint",
        "usmallint",
        "uinteger",
        "int1",
        "int2",
        "int4",
        "int8",
        "byte",
        "short",
        "long",
        "smallserial",
        "serial",
        "bigserial",
    ]
)
WIDEST = 1 << 62  # of a unit that is a whole number
_NESTED = re.compile(r"(struct|map|union|variant)\b|.*[\[<]")
STATES = ("used", "missing", "unreadable", "undeclared", "clamped")  # what can become of a cell
FEW = 8  # values that a CASE finds faster than a join does


@dataclass(slots=True)
class Source:
    """A FROM item under the alias t, its columns' types, and the lists of values that are joined to it."""

    spelling: Spelling
    types: Mapping[str, str]
    where: str  # the table's name, for messages
    lookups: list[str] = field(default_factory=list)
    alias: str = "t"
    csv: CsvForm = PLAIN
    folds: bool = False  # whether ids that differ in spaces around and in ASCII capitals only are one

    def column(self, name: str) -> tuple[str, str]:
        """Its SQL and its type."""
        found = name if name in self.types else None
        if found is None:
            found = next((known for known in self.types if known.lower() == name.lower()), None)
        if found is None:
            raise BadParameter(f"tables.{self.where}", f"the source has no column {name!r}")
        return f"{self.alias}.{self.spelling.name(found)}", self.types[found]

    def is_whole(self, name: str) -> bool:
        """Tell whether a column can be a unit as a whole number: all of its type fit into 8 bytes."""
        kind = self.column(name)[1]
        shape = self.spelling.shape(kind)
        fits = shape.family is Family.DECIMAL and shape.scale == 0 and 0 < shape.last <= WIDEST
        return fits or _plain(kind) in WHOLE

    def is_decimal(self, name: str) -> bool:
        """Tell whether a column is of decimals that are no such whole numbers."""
        return self.spelling.shape(self.column(name)[1]).family is Family.DECIMAL and not self.is_whole(
            name
        )

    def require_exact(self, name: str) -> None:
        """Refuse a column of people whose type cannot tell them apart."""
        kind = self.column(name)[1]
        if self.folds and self.is_decimal(name):  # which the ledger and cohorts fold by rounding
            raise BadParameter(
                "dataset.ids",
                f'"folded" is for texts, and {name!r} of {self.where} has decimals. Leave it out',
            )
        family = self.spelling.shape(kind).family
        why = (
            "of a floating-point type, in which different ids may be equal"
            if family is Family.FLOAT
            else ""
        )
        if family is Family.OTHER and _NESTED.match(kind.lower()):
            why = "of a nested type, in which different ids may be written alike"
        if why:
            advice = "Store ids as whole numbers or as texts"
            raise BadParameter(f"tables.{self.where}.unit", f"{name!r} is {why}. {advice}")

    def unit(self, name: str, *, whole: bool) -> str:
        """A column that tells people apart, exactly."""
        sql, kind = self.column(name)
        spelling = self.spelling
        if self.is_whole(name):
            number = self._whole(sql, kind)
            return number if whole else spelling.plain_text(number, "bigint")
        text = spelling.id_text(sql, kind)
        return spelling.lower(spelling.trim(text)) if self.folds else text

    def is_known(self, name: str) -> str:
        """SQL that tells whether a unit is somebody: not NULL, and not spaces alone.

        Engines compute conditions apart: this leaves out what is slow.
        """
        sql, kind = self.column(name)
        if self.is_whole(name):
            return f"{self._whole(sql, kind)} IS NOT NULL"
        return f"{self.spelling.trim(self.spelling.id_text(sql, kind))} <> ''"

    def _whole(self, sql: str, kind: str) -> str:
        """As narrow as in the source: ranking sorts by it."""
        shape = self.spelling.shape(kind)
        reach = min(max(shape.last, -1 - shape.first), WIDEST)
        if shape.family is Family.DECIMAL:
            sql = self.spelling.clamped_steps(sql, kind, step=Fraction(1), first=-WIDEST, last=WIDEST)
        return self.spelling.whole(sql, reach)

    def key(self, name: str, label: str, alias: str) -> tuple[str, Term]:
        """A column of a primary key, and how it enters the hash under an alias."""
        sql, kind = self.column(name)
        if _plain(kind) in WHOLE:
            return self.spelling.whole(sql, WIDEST), whole_term(self.spelling, label, alias)
        return self.spelling.plain_text(sql, kind), text_term(self.spelling, label, alias)

    def raw(self, column: Column) -> str:
        """The code; of times the seconds, since what is used several times is better found once."""
        if column.checks is not None:
            return self._state(column, column.checks)
        sql, kind = self.column(column.in_source)
        spelling = self.spelling
        match column.kind:
            case Number(step, first, last):
                low, high = _ends(first, last)
                return spelling.clamped_steps(self._with_point(sql), kind, step=step, first=low, last=high)
            case Choice():
                return self._choice(column.kind, sql, kind)
            case Moment() | Period():
                return spelling.whole(self._seconds(sql, kind), LARGEST)
            case Truth():
                return spelling.truth(sql, kind)
            case Text():
                text = spelling.plain_text(sql, kind)
                return text if column.longest is None else spelling.substring(text, 1, column.longest)
            case Person():
                raise AssertionError("the unit has no code")

    def _state(self, column: Column, checks: Kind) -> str:
        """What became of a cell, as a position in `STATES`: its code follows from the cell alone."""
        sql, kind = self.column(column.in_source)
        raw = self.raw(replace(column, kind=checks, checks=None, longest=None))
        known, beyond, unread = raw, "FALSE", STATES.index("unreadable")
        match checks:
            case Number(step, first, last):
                low, high = _ends(first, last)
                number = self._with_point(sql)
                known = self.spelling.clamped_steps(number, kind, step=step, first=low - 1, last=high + 1)
                beyond = f"{known} < {literal(low)} OR {known} > {literal(high)}"
            case Moment(seconds, first, last):
                low, high = first * seconds, (last + 1) * seconds - 1
                beyond = f"{raw} < {literal(low)} OR {raw} > {literal(high)}"
            case Choice():
                unread = STATES.index("undeclared")
            case Text() if column.longest is not None:
                beyond = f"{self.spelling.length(raw)} > {column.longest}"
        return (
            f"CASE WHEN {sql} IS NULL THEN {STATES.index('missing')} WHEN {known} IS NULL THEN {unread} "
            f"WHEN {beyond} THEN {STATES.index('clamped')} ELSE {STATES.index('used')} END"
        )

    def _with_point(self, sql: str) -> str:
        if self.csv.decimal == ".":
            return sql
        assert isinstance(self.spelling, DuckDbSpelling), "only DuckDB reads CSV"
        return self.spelling.with_point(sql)

    def _seconds(self, sql: str, kind: str) -> str:
        if not self.csv.date_format:
            return self.spelling.seconds(sql, kind)
        assert isinstance(self.spelling, DuckDbSpelling), "only DuckDB reads CSV"
        return self.spelling.seconds(self.spelling.time_of(sql, self.csv.date_format), "timestamp")

    def _choice(self, choice: Choice, sql: str, kind: str) -> str:
        """The position among declared values; NULL for others."""
        values, spelling = choice.values, self.spelling
        if all(isinstance(value, bool) for value in values):
            truth = spelling.truth(sql, kind)
            pairs = [("TRUE" if value else "FALSE", n) for n, value in enumerate(values)]
            return _case(truth, pairs)
        numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
        if len(numbers) < len(values):
            texts = [
                spelling.text(value if isinstance(value, str) else str(value).lower()) for value in values
            ]
            return self._position(spelling.plain_text(sql, kind), texts)
        if _plain(kind) not in WHOLE:  # beyond the declared ones there is room for "another one"
            ends = {"first": min(numbers) - 1, "last": max(numbers) + 1}
            sql = spelling.clamped_steps(sql, kind, step=Fraction(1), **ends)
        return self._position(spelling.whole(sql, WIDEST), [literal(value) for value in numbers])

    def _position(self, sql: str, values: list[str]) -> str:
        if len(values) <= FEW:
            return _case(sql, [(value, n) for n, value in enumerate(values)])
        alias = f"v{len(self.lookups)}"
        rows = ", ".join(f"({value}, {n})" for n, value in enumerate(values))
        self.lookups.append(f" LEFT JOIN (VALUES {rows}) AS {alias}(x, c) ON {alias}.x = {sql}")
        return f"{alias}.c"


def finished(spelling: Spelling, column: Column, raw: str, *, strictly: bool = False) -> str:
    """The stored code, from the column that holds the raw one. Strictly, a time beyond the bounds is
    missing, and what is missing stays so."""
    kind, missing = column.kind, column.missing
    if isinstance(kind, Truth):
        return raw if missing is None else f"coalesce({raw}, {'TRUE' if missing else 'FALSE'})"
    if isinstance(kind, Text | Person):
        return raw
    first, last = bounds_of(kind)
    sql = raw
    if isinstance(kind, Moment):
        assert kind.start == 0, "columns are counted from 1970"
        low, high = first * kind.seconds, (last + 1) * kind.seconds - 1
        known = f"{raw} BETWEEN {literal(low)} AND {literal(high)}" if strictly else f"{raw} IS NOT NULL"
        inside = _within(spelling, raw, low, high)
        sql = f"CASE WHEN {known} THEN {spelling.floor_divide(inside, kind.seconds)} END"
    elif isinstance(kind, Period):
        inside = _within(spelling, raw, _start(kind, first), _start(kind, last + 1) - 1)
        months = spelling.month_of(spelling.floor_divide(inside, SECONDS["day"]))
        sql = f"CASE WHEN {raw} IS NOT NULL THEN {spelling.floor_divide(months, kind.months)} END"
    if missing is not None and not strictly:
        sql = f"coalesce({sql}, {literal(missing)})"
    return spelling.stored(sql, first, last)


def _within(spelling: Spelling, sql: str, first: int, last: int) -> str:
    return spelling.least([spelling.greatest([sql, literal(first)]), literal(last)])


def _start(period: Period, code: int) -> int:
    return (period.value(code) - date(1970, 1, 1)).days * SECONDS["day"]


def bounds_of(kind: Kind) -> tuple[int, int]:
    """The least and the greatest code."""
    match kind:
        case Choice(values):
            return 0, len(values) - 1
        case Number(_, first, last) | Moment(_, first, last) | Period(_, first, last):
            return _ends(first, last)
        case _:
            raise AssertionError(kind)


def hashed(spelling: Spelling, column: Column, sql: str) -> list[Term]:
    """A code, NULL being one more value, as terms of the hash."""
    match column.kind:
        case Text():
            return [text_term(spelling, column.name, sql)]
        case Truth():
            value = f"coalesce({spelling.whole(spelling.whole(sql, 1), LARGEST)} + 1, 0)"
            return [Term(column.name, value, 2)]
        case kind:
            first, last = bounds_of(kind)
            value = f"coalesce({spelling.whole(sql, LARGEST)} - {literal(first - 1)}, 0)"
            return split(spelling, column.name, value, last - first + 1)


def split(spelling: Spelling, label: str, value: str, most: int) -> list[Term]:
    """A value that may be beyond p is seen in two parts, so that all that differ stay different."""
    if most < PRIME:
        return [Term(label, value, most)]
    high = spelling.floor_divide(value, PRIME)
    return [Term(label, value, most), Term(f"{label}/p", high, most // PRIME)]


def whole_term(spelling: Spelling, label: str, sql: str) -> Term:
    """Of an 8-byte whole number of any sign, NULL as 0."""
    return Term(label, f"(coalesce({spelling.whole(sql, WIDEST)}, 0) % {PRIME} + {PRIME})", 2 * PRIME)


def text_term(spelling: Spelling, label: str, sql: str) -> Term:
    """Of a text."""
    return Term(label, f"coalesce({spelling.whole(spelling.hashed_text(sql), LARGEST)} + 1, 0)", PRIME)


def _case(sql: str, pairs: list[tuple[str, int]]) -> str:
    return f"CASE {sql} {' '.join(f'WHEN {value} THEN {code}' for value, code in pairs)} END"


def _ends(first: int | None, last: int | None) -> tuple[int, int]:
    return (1 - LARGEST if first is None else first, LARGEST - 1 if last is None else last)


def _plain(kind: str) -> str:
    return kind.strip().lower()
