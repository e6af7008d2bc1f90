"""A policy: who is protected in which tables, what is public about them, and the budget for life.

Blocks of a policy: what they are called, and by which rule units or rows are put into them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

from lapwing.engines.csv_files import DEFAULT_CSV, CsvForm
from lapwing.engines.engine import DEFAULT_LIMITS, EngineLimits
from lapwing.sql.expression import MONTHS, SECONDS, Kind, Period


@dataclass(frozen=True, slots=True)
class Source:
    """Where a table lies.

    engine    "duckdb" (files and DuckDB files), "postgres" or "spark".
    location  an absolute pattern of files (letters with a meaning in patterns are escaped: `[[]`), the
              absolute path of a DuckDB file, a PostgreSQL URL, or a Spark master ("" for the default one).
    table     the table within it, or "" for files; for "spark-parquet", the absolute path or pattern.
    form      "parquet", "csv", "duckdb", "postgres", "spark", "spark-parquet": how it is read.
    csv       what CSV files do not say themselves.
    """

    engine: str
    location: str
    table: str
    form: str
    csv: CsvForm = DEFAULT_CSV

    def __repr__(self) -> str:
        """Digests are made of this: of files that say no more, those of before."""
        more = "".join(f", csv={form}" for form in self.reading)
        said = (
            f"engine={self.engine!r}, location={self.location!r}, table={self.table!r}, form={self.form!r}"
        )
        return f"Source({said}{more})"

    @property
    def reading(self) -> tuple[str, ...]:
        """How its files are read, where the policy says it: for digests, in which nothing is as before."""
        return () if self.csv == DEFAULT_CSV else (repr(self.csv),)

    @property
    def place(self) -> str:
        """Where it is, in words without secrets."""
        scheme, mark, rest = self.location.partition("://")
        location = f"{scheme}://{rest.rsplit('@', 1)[-1]}" if mark else self.location
        return f"{self.form}:{location}#{self.table}"


@dataclass(frozen=True, slots=True)
class Column:
    """A declared column. What is missing in it stays missing, unless `missing` says what it counts as."""

    name: str
    kind: Kind
    missing: int | None = None  # a code
    longest: int | None = None  # letters of a text that are read
    source: str = ""  # what the source calls it, if not so
    checks: Kind | None = None  # the kind whose cells are told apart by `STATES`, which its own kind lists

    @property
    def coding(self) -> tuple[object, ...]:
        """All that decides codes. Digests are made of it: of columns that say no more, those of before."""
        cut = () if self.longest is None else (self.longest,)
        called = ("source", self.source) if self.source else ()
        return (self.kind, self.missing, *cut, *called, *(() if self.checks is None else (self.checks,)))

    @property
    def in_source(self) -> str:
        """What the source calls it."""
        return self.source or self.name

    def __repr__(self) -> str:
        """Digests are made of this, too."""
        more = "" if self.longest is None else f", longest={self.longest!r}"
        more += f", source={self.source!r}" if self.source else ""
        more += "" if self.checks is None else f", checks={self.checks!r}"
        return f"Column(name={self.name!r}, kind={self.kind!r}, missing={self.missing!r}{more})"


@dataclass(frozen=True, slots=True)
class UnitBy:
    """How a table's rows find their unit: a column of their own, or a key into another private table.

    Where rows are protected and no column tells them apart, the column is "": each row is its own unit.
    """

    column: str
    through: str = ""  # the table that holds the unit, whose `key` the column refers to
    key: str = ""
    source: str = ""  # what the source calls the column, if not so

    @property
    def in_source(self) -> str:
        """What the source calls the column."""
        return self.source or self.column

    def __repr__(self) -> str:
        """Digests are made of this: of units that say no more, those of before."""
        more = f", source={self.source!r}" if self.source else ""
        return f"UnitBy(column={self.column!r}, through={self.through!r}, key={self.key!r}{more})"


@dataclass(frozen=True, slots=True)
class Table:
    """A private table (with a unit) or a public one (without).

    Only declared columns can be used. A public table that declares none shows all of its columns.
    """

    name: str
    source: Source
    columns: Mapping[str, Column]
    unit: UnitBy | None
    rows_per_unit: int  # 0 for public tables
    primary_key: tuple[str, ...] = ()
    rows: int | None = None  # a declared, public size: prices of averages are computed with it
    hidden: tuple[str, ...] = ()  # columns that are declared to be used by nobody

    @property
    def is_public(self) -> bool:
        """Whether its rows protect nobody."""
        return self.unit is None


@dataclass(frozen=True, slots=True)
class BlockRule:
    """Disjoint slices. `by` "unit": cohorts of units (or the month of their arrival); "row": periods."""

    by: str
    cohorts: int = 0
    column: str = "cohort"  # how analysts call the slice in SQL; for rows, the column that is sliced
    every: str = ""  # day, week, month, quarter, year
    first: int = 0  # of periods of rows: the codes of the first and the last, from the column's bounds
    last: int = 0


@dataclass(frozen=True, slots=True)
class Policy:
    """All of it, checked."""

    path: Path
    name: str
    epsilon: Fraction
    delta: Fraction
    delta_per_query: Fraction
    tables: Mapping[str, Table]
    blocks: BlockRule | None
    ledger: str
    quotas: Mapping[str, tuple[Fraction, Fraction]]  # by analyst
    protects: str = "person"  # or "row", or "person-period"
    population: str = ""  # the account's name, shared by data sets about the same people
    timeout: int = 600  # seconds that an engine may work on one question
    failures: int = 3  # charged questions of an analyst that may fail before all of theirs are held
    ledger_keys: str = ""  # where the ledger's keys and anchor lie, if not beside it
    ledger_anchor: str = ""
    folds_ids: bool = False  # whether ids that differ in spaces around and in ASCII capitals only are one
    limits: EngineLimits = DEFAULT_LIMITS  # of what an engine may use
    shares_answers: bool = False  # whether all analysts get an answer that one of them was charged for
    least_coalition: int = 0  # so many members of a consortium may belong together, or it is refused


EPOCH = date(1970, 1, 1)


def block_rule_text(policy: Policy) -> str:
    """The rule, in words that two policies share only if they slice alike."""
    blocks = policy.blocks
    if blocks is None:
        return ""
    if blocks.by == "row":
        return f"rows by {blocks.column}, every {blocks.every}"
    if not blocks.cohorts:
        # In other data the same people arrive at other times: only this data slices as it does.
        return f"units by their first {blocks.every} in {policy.name}"
    rows = [table for table in policy.tables.values() if table.unit is not None and not table.unit.column]
    if not rows:
        return f"{blocks.cohorts} cohorts of units"
    # Rows that are their own units are told apart by their codes: with others they would move.
    coded = sorted((t.name, sorted((c.name, repr(c.coding)) for c in t.columns.values())) for t in rows)
    return f"{blocks.cohorts} cohorts of rows, coded as {sha256(repr(coded).encode()).hexdigest()[:16]}"


def period_of(every: str, day: int) -> int:
    """The block of a row: the whole periods from 1970 to its day. Weeks begin on Thursdays, as 1970 did."""
    if every in MONTHS:
        then = EPOCH + timedelta(days=day)
        return ((then.year - EPOCH.year) * 12 + then.month - 1) // MONTHS[every]
    return day // days_in(every)


def days_in(every: str) -> int:
    """Of a period that is no number of months."""
    return SECONDS[every] // SECONDS["day"]


def block_label(blocks: BlockRule, code: int) -> str:
    """What a block is called: a cohort's number, or the beginning of a period."""
    if blocks.by == "unit" and blocks.cohorts:
        return str(code)
    if blocks.every in MONTHS:
        start = Period(MONTHS[blocks.every], code, code).value(code)
        return f"{start.year:04d}" if blocks.every == "year" else f"{start.year:04d}-{start.month:02d}"
    return (EPOCH + timedelta(days=code * days_in(blocks.every))).isoformat()


def codes_of_blocks(blocks: BlockRule) -> range:
    """All blocks that the policy declares. Those of arriving units open as they arrive."""
    if blocks.by == "unit":
        return range(blocks.cohorts)
    return range(blocks.first, blocks.last + 1)


def block_labels(blocks: BlockRule, codes: Iterable[int] | None = None) -> list[str]:
    """The names of some blocks, or of all."""
    return [block_label(blocks, code) for code in (codes_of_blocks(blocks) if codes is None else codes)]
