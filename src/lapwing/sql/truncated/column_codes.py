"""From a source's own values to codes: total, row by row.

A keyed hash in plain whole-number SQL, alike on every engine to the last bit.

Claim    for values that differ (as seen modulo p), sums modulo p are equal with probability 1/p over keys.
Because  p = 2^31 - 1 is prime and each value has a key of its own in 1 .. p - 1, so that a difference
         times its key hits any one number for at most one key.
Test     tests/query/test_coded.py::test_the_hash_is_what_python_computes

How units are told apart in a policy's private tables: by the exact id, unless the policy folds ids.

Claim    rows of different ids are rows of different units (but where the policy asks to fold ids); and a
         person keeps the cohort, the block and the place in the ledger's sketches of earlier versions.
Because  whole numbers and decimals are compared by value, texts by code point, and what cannot be told
         apart exactly (floats, texts of more than a million bytes) is refused, or nobody's. Those versions
         folded every id. Cohorts, blocks of arrival and sketches go by the folded id still: it follows from
         the exact one, so that it is the unit's own. docs/arguments/ranks.md.
Test     tests/query/test_ids.py
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from fractions import Fraction

from lapwing.engines.column_values import TypeFamily
from lapwing.engines.csv_files import DEFAULT_CSV, CsvForm
from lapwing.engines.dialect import SqlDialect
from lapwing.engines.dialects import DuckDbDialect
from lapwing.errors import BadParameter
from lapwing.sql.expression import SECONDS, Choice, Kind, Moment, Numeric, Period, Person, Text, Truth
from lapwing.sql.policy import Column, Policy
from lapwing.sql.truncated.render_expression import LARGEST, literal

PRIME = (1 << 31) - 1
MOST = 1 << 62  # sums stay below it before they are reduced


@dataclass(frozen=True, slots=True)
class HashTerm:
    """A value in 0 .. most, as SQL of an 8-byte whole number that is never NULL. The label is its name."""

    label: str
    sql: str
    most: int


@dataclass(frozen=True, slots=True)
class HashKeys:
    """The keys of one purpose (the ranks of a table, the cohorts of a policy), from the secret."""

    secret: bytes
    purpose: str

    def of(self, label: str) -> int:
        """In 1 .. p - 1, for each name another one."""
        words = f"{len(self.purpose)}:{self.purpose}:{label}".encode()
        digest = hashlib.blake2b(words, key=self.secret, person=b"lapwing ranks", digest_size=32).digest()
        return int.from_bytes(digest) % (PRIME - 1) + 1

    def summed(self, terms: Iterable[HashTerm]) -> str:
        """(k_0 + Σ k_i v_i) mod p, reduced only as often as 8 bytes ask for."""
        sql, reach = str(self.of("")), self.of("")
        for term in terms:
            key = self.of(term.label)
            value, most = term.sql, term.most
            if most >= PRIME:
                value, most = f"({value} % {PRIME})", PRIME - 1
            if reach + key * most >= MOST:
                sql, reach = f"({sql}) % {PRIME}", PRIME - 1
            sql, reach = f"{sql} + {key} * {value}", reach + key * most
        return f"({sql}) % {PRIME}"


def square(name: str) -> str:
    """x^2 mod p of a column with x in 0 .. p - 1."""
    return f"({name} * {name}) % {PRIME}"


def fifth_power(name: str, squared: str) -> str:
    """x^5 mod p, from columns with x and its square: one number for each x, as 5 does not divide p - 1."""
    return f"((({squared} * {squared}) % {PRIME}) * {name}) % {PRIME}"


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
class ColumnCoder:
    """A FROM item under the alias t, its columns' types, and the lists of values that are joined to it."""

    dialect: SqlDialect
    types: Mapping[str, str]
    where: str  # the table's name, for messages
    lookups: list[str] = field(default_factory=list)
    alias: str = "t"
    csv: CsvForm = DEFAULT_CSV
    folds: bool = False  # whether ids that differ in spaces around and in ASCII capitals only are one

    def column(self, name: str) -> tuple[str, str]:
        """Its SQL and its type."""
        found = name if name in self.types else None
        if found is None:
            found = next((known for known in self.types if known.lower() == name.lower()), None)
        if found is None:
            raise BadParameter(f"tables.{self.where}", f"the source has no column {name!r}")
        return f"{self.alias}.{self.dialect.name(found)}", self.types[found]

    def is_whole(self, name: str) -> bool:
        """Tell whether a column can be a unit as a whole number: all of its type fit into 8 bytes."""
        kind = self.column(name)[1]
        shape = self.dialect.shape(kind)
        fits = shape.family is TypeFamily.DECIMAL and shape.scale == 0 and 0 < shape.last <= WIDEST
        return fits or _plain(kind) in WHOLE

    def is_decimal(self, name: str) -> bool:
        """Tell whether a column is of decimals that are no such whole numbers."""
        return self.dialect.shape(self.column(name)[1]).family is TypeFamily.DECIMAL and not self.is_whole(
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
        family = self.dialect.shape(kind).family
        why = (
            "of a floating-point type, in which different ids may be equal"
            if family is TypeFamily.FLOAT
            else ""
        )
        if family is TypeFamily.OTHER and _NESTED.match(kind.lower()):
            why = "of a nested type, in which different ids may be written alike"
        if why:
            advice = "Store ids as whole numbers or as texts"
            raise BadParameter(f"tables.{self.where}.unit", f"{name!r} is {why}. {advice}")

    def unit(self, name: str, *, whole: bool) -> str:
        """A column that tells people apart, exactly."""
        sql, kind = self.column(name)
        spelling = self.dialect
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
        return f"{self.dialect.trim(self.dialect.id_text(sql, kind))} <> ''"

    def _whole(self, sql: str, kind: str) -> str:
        """As narrow as in the source: ranking sorts by it."""
        shape = self.dialect.shape(kind)
        reach = min(max(shape.last, -1 - shape.first), WIDEST)
        if shape.family is TypeFamily.DECIMAL:
            sql = self.dialect.clamped_steps(sql, kind, step=Fraction(1), first=-WIDEST, last=WIDEST)
        return self.dialect.whole(sql, reach)

    def key(self, name: str, label: str, alias: str) -> tuple[str, HashTerm]:
        """A column of a primary key, and how it enters the hash under an alias."""
        sql, kind = self.column(name)
        if _plain(kind) in WHOLE:
            return self.dialect.whole(sql, WIDEST), whole_term(self.dialect, label, alias)
        return self.dialect.plain_text(sql, kind), text_term(self.dialect, label, alias)

    def raw(self, column: Column) -> str:
        """The code; of times the seconds, since what is used several times is better found once."""
        if column.checks is not None:
            return self._state(column, column.checks)
        sql, kind = self.column(column.in_source)
        spelling = self.dialect
        match column.kind:
            case Numeric(step, first, last):
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
            case Numeric(step, first, last):
                low, high = _ends(first, last)
                number = self._with_point(sql)
                known = self.dialect.clamped_steps(number, kind, step=step, first=low - 1, last=high + 1)
                beyond = f"{known} < {literal(low)} OR {known} > {literal(high)}"
            case Moment(seconds, first, last):
                low, high = first * seconds, (last + 1) * seconds - 1
                beyond = f"{raw} < {literal(low)} OR {raw} > {literal(high)}"
            case Choice():
                unread = STATES.index("undeclared")
            case Text() if column.longest is not None:
                beyond = f"{self.dialect.length(raw)} > {column.longest}"
        return (
            f"CASE WHEN {sql} IS NULL THEN {STATES.index('missing')} WHEN {known} IS NULL THEN {unread} "
            f"WHEN {beyond} THEN {STATES.index('clamped')} ELSE {STATES.index('used')} END"
        )

    def _with_point(self, sql: str) -> str:
        if self.csv.decimal == ".":
            return sql
        assert isinstance(self.dialect, DuckDbDialect), "only DuckDB reads CSV"
        return self.dialect.with_point(sql)

    def _seconds(self, sql: str, kind: str) -> str:
        if not self.csv.date_format:
            return self.dialect.seconds(sql, kind)
        assert isinstance(self.dialect, DuckDbDialect), "only DuckDB reads CSV"
        return self.dialect.seconds(self.dialect.time_of(sql, self.csv.date_format), "timestamp")

    def _choice(self, choice: Choice, sql: str, kind: str) -> str:
        """The position among declared values; NULL for others."""
        values, spelling = choice.values, self.dialect
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


def stored_code(spelling: SqlDialect, column: Column, raw: str, *, strictly: bool = False) -> str:
    """The stored code, from the column that holds the raw one. Strictly, a time beyond the bounds is
    missing, and what is missing stays so."""
    kind, missing = column.kind, column.missing
    if isinstance(kind, Truth):
        return raw if missing is None else f"coalesce({raw}, {'TRUE' if missing else 'FALSE'})"
    if isinstance(kind, Text | Person):
        return raw
    first, last = code_bounds(kind)
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


def _within(spelling: SqlDialect, sql: str, first: int, last: int) -> str:
    return spelling.least([spelling.greatest([sql, literal(first)]), literal(last)])


def _start(period: Period, code: int) -> int:
    return (period.value(code) - date(1970, 1, 1)).days * SECONDS["day"]


def code_bounds(kind: Kind) -> tuple[int, int]:
    """The least and the greatest code."""
    match kind:
        case Choice(values):
            return 0, len(values) - 1
        case Numeric(_, first, last) | Moment(_, first, last) | Period(_, first, last):
            return _ends(first, last)
        case _:
            raise AssertionError(kind)


def hash_terms(spelling: SqlDialect, column: Column, sql: str) -> list[HashTerm]:
    """A code, NULL being one more value, as terms of the hash."""
    match column.kind:
        case Text():
            return [text_term(spelling, column.name, sql)]
        case Truth():
            value = f"coalesce({spelling.whole(spelling.whole(sql, 1), LARGEST)} + 1, 0)"
            return [HashTerm(column.name, value, 2)]
        case kind:
            first, last = code_bounds(kind)
            value = f"coalesce({spelling.whole(sql, LARGEST)} - {literal(first - 1)}, 0)"
            return split_term(spelling, column.name, value, last - first + 1)


def split_term(spelling: SqlDialect, label: str, value: str, most: int) -> list[HashTerm]:
    """A value that may be beyond p is seen in two parts, so that all that differ stay different."""
    if most < PRIME:
        return [HashTerm(label, value, most)]
    high = spelling.floor_divide(value, PRIME)
    return [HashTerm(label, value, most), HashTerm(f"{label}/p", high, most // PRIME)]


def whole_term(spelling: SqlDialect, label: str, sql: str) -> HashTerm:
    """Of an 8-byte whole number of any sign, NULL as 0."""
    return HashTerm(label, f"(coalesce({spelling.whole(sql, WIDEST)}, 0) % {PRIME} + {PRIME})", 2 * PRIME)


def text_term(spelling: SqlDialect, label: str, sql: str) -> HashTerm:
    """Of a text."""
    return HashTerm(label, f"coalesce({spelling.whole(spelling.hashed_text(sql), LARGEST)} + 1, 0)", PRIME)


def _case(sql: str, pairs: list[tuple[str, int]]) -> str:
    return f"CASE {sql} {' '.join(f'WHEN {value} THEN {code}' for value, code in pairs)} END"


def _ends(first: int | None, last: int | None) -> tuple[int, int]:
    return (1 - LARGEST if first is None else first, LARGEST - 1 if last is None else last)


def _plain(kind: str) -> str:
    return kind.strip().lower()


SHORT = 10**15 - 1  # the greatest whole number that `parse_whole` reads
_BROKEN = "-?[0-9]+[.][0-9]+"


@dataclass(frozen=True, slots=True)
class UnitIds:
    """Units are whole numbers if ids are so in all tables, else texts in all: one person has one name.

    `decimals`: in some table ids are decimals, which those versions rounded.
    """

    dialect: SqlDialect
    whole: bool
    decimals: bool

    @classmethod
    def of(cls, policy: Policy, spelling: SqlDialect, types: Mapping[str, Mapping[str, str]]) -> UnitIds:
        """From the types of the private tables' columns."""
        own = [
            (ColumnCoder(spelling, types[table.name], table.name), table.unit.in_source)
            for table in policy.tables.values()
            if table.unit and table.unit.column and not table.unit.through
        ]
        return cls(
            spelling,
            all(source.is_whole(column) for source, column in own),
            any(source.is_decimal(column) for source, column in own),
        )

    def folded(self, unit: str) -> str:
        """A unit without spaces around it and with small ASCII letters; decimals are rounded."""
        if self.whole:
            return unit
        spelling = self.dialect
        text = spelling.lower(spelling.trim(unit))
        if not self.decimals:
            return text
        kind = spelling.text_type
        number = spelling.clamped_steps(unit, kind, step=Fraction(1), first=-SHORT, last=SHORT)
        rounded = spelling.plain_text(spelling.whole(number, SHORT), "bigint")
        return f"CASE WHEN {spelling.matches(unit, _BROKEN)} THEN {rounded} ELSE {text} END"
