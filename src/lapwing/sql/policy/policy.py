"""The policy of a data set: its privacy unit, its tables and public bounds, and its lifetime budget.

A policy can divide units or rows into blocks, each with the whole budget.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

from lapwing.engines.csv_files import DEFAULT_CSV, CsvForm
from lapwing.engines.dialect import TEXT_BYTES
from lapwing.engines.engine import DEFAULT_LIMITS, EngineLimits
from lapwing.sql.policy.kinds import MONTHS, SECONDS, Kind, Period, StoredWord, Text

READ_BYTES = 1_000  # of a text without `longest`: a query reads no more
STEPS_PER_UNIT = 100_000  # that the rows of one unit may take in a query
TEXT_PER_UNIT = 200_000  # bytes of text that the rows of one unit may have in a query


@dataclass(frozen=True, slots=True, repr=False)
class Source(StoredWord, word="Source", later=("csv",)):
    """The place that a table is read from.

    engine    "duckdb" (files and DuckDB databases), "postgres" or "spark".
    location  an absolute pattern of files (special characters of patterns are escaped: `[[]`), the absolute
              path of a DuckDB database, a PostgreSQL URL, or a Spark master ("" for the default one).
    table     the table within the location, or "" for files; for "spark-parquet", the absolute path.
    form      "parquet", "csv", "duckdb", "postgres", "spark", "spark-parquet": how the table is read.
    csv       the properties of CSV files that the files themselves do not state.
    """

    engine: str
    location: str
    table: str
    form: str
    csv: CsvForm = DEFAULT_CSV

    @property
    def reading(self) -> tuple[str, ...]:
        """The CSV form, where the policy gives one.

        Digests include it; an empty tuple leaves them unchanged.
        """
        return () if self.csv == DEFAULT_CSV else (repr(self.csv),)

    @property
    def place(self) -> str:
        """The location in words, without passwords."""
        scheme, mark, rest = self.location.partition("://")
        location = f"{scheme}://{rest.rsplit('@', 1)[-1]}" if mark else self.location
        return f"{self.form}:{location}#{self.table}"


@dataclass(frozen=True, slots=True, repr=False)
class Column(StoredWord, word="Column", later=("longest", "source", "checks")):
    """A declared column. Missing values stay NULL, unless `missing` gives the code that they count as."""

    name: str
    kind: Kind
    missing: int | None = None  # the code of a missing value; None leaves it NULL
    longest: int | None = None  # characters of a text that are read; None for `READ_BYTES`
    source: str = ""  # its name in the source, if that is another one
    checks: Kind | None = None  # the kind that cells are checked against; the codes are then `STATES`

    @property
    def coding(self) -> tuple[object, ...]:
        """Everything that decides the codes.

        Digests include it; options that are not given leave them unchanged.
        """
        cut = () if self.longest is None else (self.longest,)
        called = ("source", self.source) if self.source else ()
        return (self.kind, self.missing, *cut, *called, *(() if self.checks is None else (self.checks,)))

    @property
    def most_bytes(self) -> int:
        """The bytes of the longest text that a query reads. A character has at most four."""
        return READ_BYTES if self.longest is None else 4 * self.longest

    @property
    def in_source(self) -> str:
        """Its name in the source."""
        return self.source or self.name


@dataclass(frozen=True, slots=True, repr=False)
class UnitBy(StoredWord, word="UnitBy", later=("source",)):
    """The column that gives the privacy unit of a row: its own, or a key into another private table.

    If rows are protected and no column identifies them, `column` is "": each row is its own unit.
    """

    column: str
    through: str = ""  # the table that holds the unit; the column refers to its `key`
    key: str = ""
    source: str = ""  # the column's name in the source, if that is another one

    @property
    def in_source(self) -> str:
        """The column's name in the source."""
        return self.source or self.column


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """A private table (with a unit) or a public one (without).

    Only declared columns can be used. If a public table declares no column, all of its columns can be used.
    """

    name: str
    source: Source
    columns: Mapping[str, Column]
    unit: UnitBy | None
    rows_per_unit: int  # 0 for public tables
    primary_key: tuple[str, ...] = ()
    rows: int | None = None  # the declared, public size, for the price of averages; None if not declared
    hidden: tuple[str, ...] = ()  # columns that are declared as hidden: nobody can use them

    @property
    def is_public(self) -> bool:
        """True if the rows belong to no privacy unit."""
        return self.unit is None

    @property
    def coded_bytes(self) -> int:
        """The bytes of a text without `longest` that is coded.

        Rows that are their own units are identified by their codes, which must never change: their texts
        are cut when a query reads them.
        """
        return TEXT_BYTES if self.unit is not None and not self.unit.column else READ_BYTES

    @property
    def open_texts(self) -> list[str]:
        """The columns of text without `longest`."""
        columns = self.columns.values()
        return [
            column.name for column in columns if isinstance(column.kind, Text) and column.longest is None
        ]

    @property
    def numbers_equal_rows(self) -> bool:
        """True if the rank of a row depends on its number among the equal rows of its unit.

        A primary key tells rows apart without it. Where each row is a unit, there is nothing to choose.
        """
        return self.unit is not None and bool(self.unit.column) and not self.primary_key


@dataclass(frozen=True, slots=True, repr=False)
class BlockRule(StoredWord, word="Blocks"):
    """The rule that divides the data into disjoint blocks.

    `by` is "unit" for cohorts of units (or for the month in which a unit arrived) and "row" for periods of
    rows.
    """

    by: str
    cohorts: int = 0
    column: str = "cohort"  # the block's name in SQL; for periods of rows, the date column
    every: str = ""  # day, week, month, quarter, year
    first: int = 0  # the codes of the first and the last period of rows, from the column's bounds
    last: int = 0


@dataclass(frozen=True, slots=True)
class CheckedPolicy:
    """A policy that was read and checked."""

    path: Path
    name: str
    epsilon: Fraction
    delta: Fraction
    delta_per_query: Fraction
    tables: Mapping[str, CheckedTable]
    blocks: BlockRule | None
    ledger: str
    quotas: Mapping[str, tuple[Fraction, Fraction]]  # epsilon and delta of each analyst
    protects: str = "person"  # or "row", or "person-period"
    population: str = ""  # the account's name; data sets about the same people share it
    timeout: int = 600  # the most seconds that an engine may work on one query
    failures: int = 3  # failed queries of an analyst after which all of theirs are held
    ledger_keys: str = ""  # the places of the ledger's keys and anchor, if not beside it
    ledger_anchor: str = ""
    ledger_registry: str = ""  # the folder of the registry, if it is not the user's own
    folds_ids: bool = False  # whether ids that differ only in outer spaces and ASCII case are equal
    limits: EngineLimits = DEFAULT_LIMITS  # of the engine's memory, disk and threads
    shares_answers: bool = False  # whether an answer that one analyst paid for is given to all
    pads: bool = False  # whether charged work ends at a rung of a random ladder: see `ledger.padding`
    least_coalition: int = 0  # the smallest coalition of members that a consortium must tolerate
    steps_per_unit: int = STEPS_PER_UNIT
    text_per_unit: int = TEXT_PER_UNIT
    least_epsilon: Fraction = Fraction(0)  # of one question
    is_in_code: bool = field(default=False, repr=False, compare=False)  # `path` is where a file would be

    @property
    def private_tables(self) -> list[CheckedTable]:
        """The tables whose rows belong to privacy units."""
        return [table for table in self.tables.values() if not table.is_public]


EPOCH = date(1970, 1, 1)


def account_label(policy: CheckedPolicy) -> str:
    """Return the account's name. Data sets about the same population share an account."""
    return policy.population or policy.name


def has_blocks_by_arrival(policy: CheckedPolicy) -> bool:
    """Return whether a unit's block is the period of its arrival, which only the copy holds."""
    blocks = policy.blocks
    return blocks is not None and blocks.by == "unit" and not blocks.cohorts


def block_rule_text(policy: CheckedPolicy) -> str:
    """Return the block rule in words, which are the same only for rules that make the same blocks."""
    blocks = policy.blocks
    if blocks is None:
        return ""
    if blocks.by == "row":
        return f"rows by {blocks.column}, every {blocks.every}"
    if not blocks.cohorts:
        # In other data the same people arrive at other times: the blocks are of this data set alone.
        return f"units by their first {blocks.every} in {policy.name}"
    rows = [table for table in policy.tables.values() if table.unit is not None and not table.unit.column]
    if not rows:
        return f"{blocks.cohorts} cohorts of units"
    # Rows that are their own units are identified by their codes. Other codes would put them elsewhere.
    coded = sorted((t.name, sorted((c.name, repr(c.coding)) for c in t.columns.values())) for t in rows)
    return f"{blocks.cohorts} cohorts of rows, coded as {sha256(repr(coded).encode()).hexdigest()[:16]}"


def period_of(every: str, day: int) -> int:
    """Return the block of a row: the number of whole periods from 1970 to its day.

    `day` is the number of days since 1970. Weeks begin on Thursdays, as 1970 did.
    """
    if every in MONTHS:
        then = EPOCH + timedelta(days=day)
        return ((then.year - EPOCH.year) * 12 + then.month - 1) // MONTHS[every]
    return day // days_in(every)


def days_in(every: str) -> int:
    """Return the number of days in a day or a week."""
    return SECONDS[every] // SECONDS["day"]


def block_label(blocks: BlockRule, code: int) -> str:
    """Return the public name of a block: a cohort's number, or the beginning of a period."""
    if blocks.by == "unit" and blocks.cohorts:
        return str(code)
    if blocks.every in MONTHS:
        start = Period(MONTHS[blocks.every], code, code).value(code)
        return f"{start.year:04d}" if blocks.every == "year" else f"{start.year:04d}-{start.month:02d}"
    return (EPOCH + timedelta(days=code * days_in(blocks.every))).isoformat()


def codes_of_blocks(blocks: BlockRule) -> range:
    """Return the codes of all declared blocks. Blocks of arriving units are opened when units arrive."""
    if blocks.by == "unit":
        return range(blocks.cohorts)
    return range(blocks.first, blocks.last + 1)


def block_labels(blocks: BlockRule, reached: Container[int] | None = None) -> list[str]:
    """Return the public names of the declared blocks with one of the given codes; of all if it is None."""
    codes = codes_of_blocks(blocks)
    return [block_label(blocks, code) for code in codes if reached is None or code in reached]
