"""Codes of a source's values, row by row, and the keyed hash of rows.

The hash is plain SQL on whole numbers, the same on every engine to the last bit.

Claim    for values that differ modulo p, the keyed sums modulo p are equal with probability 1/p over keys.
Because  p = 2^31 - 1 is prime and each value has a key of its own in 1 .. p - 1, so that a difference
         times its key equals a given number for at most one key.
Test     tests/sql/reading/test_column_codes.py::test_the_hash_is_what_python_computes

Units are told apart by the exact id, unless the policy folds ids.

Claim    rows of different ids are rows of different units (unless the policy folds ids); and a unit keeps
         the cohort, the block and the place in the ledger's sketches that earlier versions gave it.
Because  whole numbers and decimals are compared by value, texts by code point. Ids that cannot be told
         apart exactly are refused (floats) or belong to nobody (texts of more than a million bytes).
         Earlier versions folded every id. Cohorts, blocks of arrival and sketches still use the folded id:
         it follows from the exact one, so it belongs to the unit. docs/arguments/ranks.md.
Test     tests/sql/reading/test_prepare_ids.py
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
from lapwing.engines.dialect import TEXT_BYTES, SqlDialect
from lapwing.engines.dialects import DuckDbDialect
from lapwing.errors import BadParameter
from lapwing.sql.policy.kinds import SECONDS, Choice, Kind, Moment, Numeric, Period, Person, Text, Truth
from lapwing.sql.policy.policy import READ_BYTES, CheckedPolicy, Column
from lapwing.sql.question.typed_expressions import LARGEST
from lapwing.sql.reading.render_expression import literal

PRIME = (1 << 31) - 1
MOST = 1 << 62  # every sum is below it before it is reduced


@dataclass(frozen=True, slots=True)
class HashTerm:
    """A value in 0 ..

    most, as SQL of an 8-byte whole number that is never NULL. `label` identifies its key.
    """

    label: str
    sql: str
    most: int


@dataclass(frozen=True, slots=True)
class HashKeys:
    """The hash keys of one purpose (a table's ranks, a policy's cohorts), derived from the secret."""

    secret: bytes
    purpose: str

    def of(self, label: str) -> int:
        """Return the key of a label, in 1 .. p - 1."""
        words = f"{len(self.purpose)}:{self.purpose}:{label}".encode()
        digest = hashlib.blake2b(words, key=self.secret, person=b"lapwing ranks", digest_size=32).digest()
        return int.from_bytes(digest) % (PRIME - 1) + 1

    def summed(self, terms: Iterable[HashTerm]) -> str:
        """Return SQL of (k_0 + Σ k_i v_i) mod p, reduced only as often as 8 bytes require."""
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
    """Return SQL of x^2 mod p, for a column x in 0 .. p - 1."""
    return f"({name} * {name}) % {PRIME}"


def fifth_power(name: str, squared: str) -> str:
    """Return SQL of x^5 mod p, from columns with x and its square. It is different for each x."""
    return f"((({squared} * {squared}) % {PRIME}) * {name}) % {PRIME}"


WHOLE = re.compile(
    r"u?tinyint|u?smallint|int|u?integer|bigint|int[1248]|byte|short|long|(small|big)?serial"
)  # types of whole numbers that fit into 8 bytes
WIDEST = 1 << 62  # the greatest unit that is a whole number
_NESTED = re.compile(r"(struct|map|union|variant)\b|.*[\[<]")
STATES = ("used", "missing", "unreadable", "undeclared", "clamped")  # the results of checking a cell
FEW = 8  # up to this number of values, CASE is faster than a join


@dataclass(slots=True)
class ColumnCoder:
    """A FROM item under the alias t, with its columns' types.

    `lookups` are joins to lists of declared values.
    """

    dialect: SqlDialect
    types: Mapping[str, str]
    where: str  # the table's name, for messages
    lookups: list[str] = field(default_factory=list)
    alias: str = "t"
    csv: CsvForm = DEFAULT_CSV
    folds: bool = False  # whether ids that differ only in outer spaces and ASCII case are equal
    text_bytes: int = READ_BYTES  # of a text without `longest`

    def column(self, name: str) -> tuple[str, str]:
        """Return the SQL and the type of a column. Raises BadParameter if there is none of that name."""
        same = [known for known in self.types if known.lower() == name.lower()]
        if not same:
            raise BadParameter(f"tables.{self.where}", f"the source has no column {name!r}")
        exact = name if name in same else same[0]
        return f"{self.alias}.{self.dialect.name(exact)}", self.types[exact]

    def is_whole(self, name: str) -> bool:
        """Return whether ids in this column can be whole numbers, which fit into 8 bytes."""
        kind = self.column(name)[1]
        shape = self.dialect.shape(kind)
        fits = shape.family is TypeFamily.DECIMAL and shape.scale == 0 and 0 < shape.last <= WIDEST
        return fits or _is_whole_type(kind)

    def is_decimal(self, name: str) -> bool:
        """Return whether a column has decimals that cannot be whole numbers."""
        is_decimal = self.dialect.shape(self.column(name)[1]).family is TypeFamily.DECIMAL
        return is_decimal and not self.is_whole(name)

    def require_exact(self, name: str) -> None:
        """Raise BadParameter if the type of an id column cannot tell units apart."""
        kind = self.column(name)[1]
        if self.folds and self.is_decimal(name):  # the ledger and cohorts fold decimals by rounding
            why = f'"folded" is for texts, and {name!r} of {self.where} has decimals. Leave it out'
            raise BadParameter("dataset.ids", why)
        family = self.dialect.shape(kind).family
        if family is TypeFamily.FLOAT:
            why = "of a floating-point type, in which different ids may be equal"
        elif family is TypeFamily.OTHER and _NESTED.match(kind.lower()):
            why = "of a nested type, in which different ids may be written alike"
        else:
            return
        what = f"{name!r} is {why}. Store ids as whole numbers or as texts"
        raise BadParameter(f"tables.{self.where}.unit", what)

    def unit(self, name: str, *, whole: bool) -> str:
        """Return the SQL of a unit, as a whole number if `whole`, else as a text."""
        (sql, kind), dialect = self.column(name), self.dialect
        if self.is_whole(name):
            number = self._whole(sql, kind)
            return number if whole else dialect.plain_text(number, "bigint")
        text = dialect.id_text(sql, kind)
        return dialect.lower(dialect.trim(text)) if self.folds else text

    def is_known(self, name: str) -> str:
        """Return a condition that a unit is not NULL and not only spaces.

        Engines compute conditions separately, so this one contains nothing slow.
        """
        sql, kind = self.column(name)
        if self.is_whole(name):
            return f"{self._whole(sql, kind)} IS NOT NULL"
        return f"{self.dialect.trim(self.dialect.id_text(sql, kind))} <> ''"

    def _whole(self, sql: str, kind: str) -> str:
        """Return a whole number, as narrow as in the source: rows are sorted by it."""
        shape = self.dialect.shape(kind)
        reach = min(max(shape.last, -1 - shape.first), WIDEST)
        if shape.family is TypeFamily.DECIMAL:
            sql = self.dialect.clamped_steps(sql, kind, step=Fraction(1), first=-WIDEST, last=WIDEST)
        return self.dialect.whole(sql, reach)

    def key(self, name: str, label: str, alias: str) -> tuple[str, HashTerm]:
        """Return the SQL of a primary key's column, and its hash term under an alias."""
        sql, kind = self.column(name)
        if _is_whole_type(kind):
            return self.dialect.whole(sql, WIDEST), whole_term(self.dialect, label, alias)
        return self.dialect.plain_text(sql, kind), text_term(self.dialect, label, alias)

    def raw(self, column: Column) -> str:
        """Return the code, or the seconds of a time, which `stored_code` uses several times."""
        if column.checks is not None:
            return self._state(column, column.checks)
        (sql, kind), dialect = self.column(column.in_source), self.dialect
        match column.kind:
            case Numeric(step, first, last):
                low, high = _ends(first, last)
                return dialect.clamped_steps(self._with_point(sql), kind, step=step, first=low, last=high)
            case Choice():
                return self._choice(column.kind, sql, kind)
            case Moment() | Period():
                return dialect.whole(self._seconds(sql, kind), LARGEST)
            case Truth():
                return dialect.truth(sql, kind)
            case Text():
                most = self.text_bytes if column.longest is None else TEXT_BYTES
                text = dialect.plain_text(sql, kind, most)
                return text if column.longest is None else dialect.substring(text, 1, column.longest)
            case Person():
                raise AssertionError("the unit has no code")

    def _state(self, column: Column, checks: Kind) -> str:
        """Return the result of checking a cell, as a position in `STATES`. It depends on the cell alone."""
        sql, kind = self.column(column.in_source)
        whole = replace(self, text_bytes=TEXT_BYTES, lookups=self.lookups)
        raw = whole.raw(replace(column, kind=checks, checks=None, longest=None))
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
        """Return the position among the declared values; NULL for others."""
        values, dialect = choice.values, self.dialect
        if all(isinstance(value, bool) for value in values):
            return _case(dialect.truth(sql, kind), ["TRUE" if value else "FALSE" for value in values])
        numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
        if len(numbers) < len(values):
            texts = [value if isinstance(value, str) else str(value).lower() for value in values]
            return self._position(dialect.plain_text(sql, kind), [dialect.text(text) for text in texts])
        if not _is_whole_type(kind):  # beyond the declared ones there is room for "another one"
            ends = {"first": min(numbers) - 1, "last": max(numbers) + 1}
            sql = dialect.clamped_steps(sql, kind, step=Fraction(1), **ends)
        return self._position(dialect.whole(sql, WIDEST), [literal(value) for value in numbers])

    def _position(self, sql: str, values: list[str]) -> str:
        if len(values) <= FEW:
            return _case(sql, values)
        alias = f"v{len(self.lookups)}"
        rows = ", ".join(f"({value}, {n})" for n, value in enumerate(values))
        self.lookups.append(f" LEFT JOIN (VALUES {rows}) AS {alias}(x, c) ON {alias}.x = {sql}")
        return f"{alias}.c"


def stored_code(dialect: SqlDialect, column: Column, raw: str, *, strictly: bool = False) -> str:
    """Return the stored code, from the column that holds the raw one.

    With `strictly`, a time beyond the bounds becomes NULL, and a missing value stays NULL.
    """
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
        inside = _within(dialect, raw, low, high)
        sql = f"CASE WHEN {known} THEN {dialect.floor_divide(inside, kind.seconds)} END"
    elif isinstance(kind, Period):
        inside = _within(dialect, raw, _start(kind, first), _start(kind, last + 1) - 1)
        months = dialect.month_of(dialect.floor_divide(inside, SECONDS["day"]))
        sql = f"CASE WHEN {raw} IS NOT NULL THEN {dialect.floor_divide(months, kind.months)} END"
    if missing is not None and not strictly:
        sql = f"coalesce({sql}, {literal(missing)})"
    return dialect.stored(sql, first, last)


def _within(dialect: SqlDialect, sql: str, first: int, last: int) -> str:
    return dialect.least([dialect.greatest([sql, literal(first)]), literal(last)])


def _start(period: Period, code: int) -> int:
    return (period.value(code) - date(1970, 1, 1)).days * SECONDS["day"]


def code_bounds(kind: Kind) -> tuple[int, int]:
    """Return the least and the greatest code."""
    match kind:
        case Choice(values):
            return 0, len(values) - 1
        case Numeric(_, first, last) | Moment(_, first, last) | Period(_, first, last):
            return _ends(first, last)
        case _:
            raise AssertionError(kind)


def hash_terms(dialect: SqlDialect, column: Column, sql: str) -> list[HashTerm]:
    """Return the hash terms of a code. NULL counts as one more value."""
    match column.kind:
        case Text():
            return [text_term(dialect, column.name, sql)]
        case Truth():
            value = f"coalesce({dialect.whole(dialect.whole(sql, 1), LARGEST)} + 1, 0)"
            return [HashTerm(column.name, value, 2)]
        case kind:
            first, last = code_bounds(kind)
            most = last - first + 1
            value = f"coalesce({dialect.whole(sql, LARGEST)} - {literal(first - 1)}, 0)"
            terms = [HashTerm(column.name, value, most)]
            if most >= PRIME:  # two terms, so that different values stay different
                high = dialect.floor_divide(value, PRIME)
                terms.append(HashTerm(f"{column.name}/p", high, most // PRIME))
            return terms


def whole_term(dialect: SqlDialect, label: str, sql: str) -> HashTerm:
    """Return the term of an 8-byte whole number of any sign, with NULL as 0."""
    return HashTerm(label, f"(coalesce({dialect.whole(sql, WIDEST)}, 0) % {PRIME} + {PRIME})", 2 * PRIME)


def text_term(dialect: SqlDialect, label: str, sql: str) -> HashTerm:
    """Return the term of a text."""
    return HashTerm(label, f"coalesce({dialect.whole(dialect.hashed_text(sql), LARGEST)} + 1, 0)", PRIME)


def _case(sql: str, values: list[str]) -> str:
    """Return the position of the SQL among values; NULL if it is none of them."""
    return f"CASE {sql} {' '.join(f'WHEN {value} THEN {code}' for code, value in enumerate(values))} END"


def _ends(first: int | None, last: int | None) -> tuple[int, int]:
    return (1 - LARGEST if first is None else first, LARGEST - 1 if last is None else last)


def _is_whole_type(kind: str) -> bool:
    return WHOLE.fullmatch(kind.strip().lower()) is not None


SHORT = 10**15 - 1  # the greatest whole number that `parse_whole` can read
_BROKEN = "-?[0-9]+[.][0-9]+"


@dataclass(frozen=True, slots=True)
class UnitIds:
    """The form of unit ids: whole numbers if ids are whole in all tables, else texts in all of them.

    `decimals`: ids of some table are decimals, which earlier versions rounded.
    """

    dialect: SqlDialect
    whole: bool
    decimals: bool

    @classmethod
    def of(
        cls, policy: CheckedPolicy, dialect: SqlDialect, types: Mapping[str, Mapping[str, str]]
    ) -> UnitIds:
        """Make it from the column types of the private tables."""
        own = [
            (ColumnCoder(dialect, types[table.name], table.name), table.unit.in_source)
            for table in policy.tables.values()
            if table.unit and table.unit.column and not table.unit.through
        ]
        whole = all(source.is_whole(column) for source, column in own)
        return cls(dialect, whole, any(source.is_decimal(column) for source, column in own))

    def folded(self, unit: str) -> str:
        """Return a unit without outer spaces and in lower case (ASCII); decimals are rounded."""
        if self.whole:
            return unit
        dialect = self.dialect
        text = dialect.lower(dialect.trim(unit))
        if not self.decimals:
            return text
        number = dialect.clamped_steps(unit, dialect.text_type, step=Fraction(1), first=-SHORT, last=SHORT)
        rounded = dialect.plain_text(dialect.whole(number, SHORT), "bigint")
        return f"CASE WHEN {dialect.matches(unit, _BROKEN)} THEN {rounded} ELSE {text} END"
