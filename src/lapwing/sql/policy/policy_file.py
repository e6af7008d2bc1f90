"""Reading a policy from its TOML file, and checks between its parts.

All mistakes are found and reported together, each with its line.

```toml
[dataset]
name = "visits"
[budget]
epsilon = 3.0
delta = 1e-7
[tables.visits]
source = "visits.parquet"
unit = "patient_id"
rows_per_unit = 5
[tables.visits.columns.stay]
low = 0
high = 60
```
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from lapwing.config.file_table import (
    ColumnName,
    Delta,
    Epsilon,
    FileTable,
    Flag,
    Label,
    LedgerTable,
    Text,
    needed,
    one_of,
    read_table,
)
from lapwing.config.toml_text import FileMistakes, read_toml
from lapwing.config.values import checked_choice, checked_label, did_you_mean, quoted_choices
from lapwing.core.budget import DELTA_UNIT, EPSILON_UNIT, SHARE_DELTA0, Terms
from lapwing.core.exact import round_down
from lapwing.engines.engine import MEGABYTE, EngineLimits
from lapwing.sql.policy.kinds import SECONDS, Moment
from lapwing.sql.policy.policy import BlockRule, CheckedPolicy, CheckedTable, period_of
from lapwing.sql.policy.policy_tables import COLUMNS_AT_MOST, TABLES_AT_MOST, DataTable, check_names

PERIODS = ("day", "week", "month", "quarter", "year")
BLOCKS_AT_MOST = 100_000
PERSON_PERIOD = "person-period"
LEDGER = "lapwing.ledger"  # in the policy's folder: copies of a policy use the same ledger
QUERIES = 1000  # queries with undeclared keys that share delta, unless delta_per_query is given
QUESTIONS = 1000  # that share epsilon without delta, unless least_epsilon is given
MOST_MEMBERS = 1000
DAY = 86_400  # seconds
MOST_FAILURES = 100
MOST_OF_A_UNIT = 10**9  # steps, or bytes of text
LEAST_MEMORY, MOST_MEGABYTES, MOST_THREADS = 500, 100_000_000, 1024


# Blocks


class BlocksTable(FileTable):
    """The table [blocks]."""

    by: Annotated[Text, one_of(("unit", "row"))] | None = needed(
        'by = "unit", or by = "row" for periods of rows'
    )
    cohorts: int | None = Field(default=None, ge=1, le=BLOCKS_AT_MOST)
    column: ColumnName | None = None
    every: Text | None = None

    def rule(self, protects: str | None, tables: Mapping[str, CheckedTable]) -> BlockRule | None:
        """Return the block rule; None if it is wrong, which is noted."""
        if self.by is None:
            return None
        return (self._of_units if self.by == "unit" else self._of_rows)(protects, tables)

    def _period(self, periods: tuple[str, ...]) -> str | None:
        return self.every and self.attempt(lambda: checked_choice(str(self.every), periods, "every"))

    def _of_units(self, protects: str | None, tables: Mapping[str, CheckedTable]) -> BlockRule | None:
        if protects == PERSON_PERIOD:
            self.wrong("by", 'must be "row" where dataset.protects is "person-period"')
        column = self.column if self.has("column") else BlockRule("unit").column
        if column is not None:
            self._check_name(column, tables)
        if self.has("cohorts") and self.has("every"):
            self.wrong("every", "cannot stand beside cohorts. Write one of them")
            return None
        if self.has("every"):
            every = self._period(("month",))
            return BlockRule("unit", column=column, every=every) if every and column else None
        self.require(cohorts='cohorts = 64, or every = "month" for the month of arrival')
        return BlockRule("unit", cohorts=self.cohorts, column=column) if self.cohorts and column else None

    def _check_name(self, column: str, tables: Mapping[str, CheckedTable]) -> None:
        """Note a block name that is also a column of a private table.

        In SQL, each of them has the block as a column.
        """
        for table in tables.values():
            taken = {name.lower() for name in (*table.columns, table.unit.column if table.unit else "")}
            if not table.is_public and column.lower() in taken:
                self.wrong(
                    "column",
                    f'[tables.{table.name}] has such a column. Write another name, such as "slice"',
                )
                return

    def _of_rows(self, protects: str | None, tables: Mapping[str, CheckedTable]) -> BlockRule | None:
        if protects is not None and protects != PERSON_PERIOD:
            self.wrong(
                "by",
                '"row" protects a person in one period only: write dataset.protects = "person-period" as '
                "well",
            )
        if self.has("cohorts"):
            self.wrong("cohorts", 'belongs to by = "unit". Remove it')
        self.require(
            column='column = "admitted": the date that divides rows into periods',
            every=f"every = {quoted_choices(PERIODS)}",
        )
        column, every = self.column, self._period(PERIODS)
        if column is None or every is None:
            return None
        bounds = [moment for table in tables.values() if (moment := self._dates_in(table, column))]
        if not bounds:
            return None
        first = min(period_of(every, dates.first) for dates in bounds)
        last = max(period_of(every, dates.last) for dates in bounds)
        if last - first >= BLOCKS_AT_MOST:
            self.wrong("every", f"gives more than {BLOCKS_AT_MOST:,} blocks. Write a longer period")
            return None
        return BlockRule("row", column=column, every=every, first=first, last=last)

    def _dates_in(self, table: CheckedTable, column: str) -> Moment | None:
        """Return the bounds of a private table's date column.

        None means that it is wrong, or the table is public.
        """
        if table.is_public:
            return None
        declared = table.columns.get(column)
        if (
            declared is not None
            and isinstance(declared.kind, Moment)
            and declared.kind.seconds == SECONDS["day"]
        ):
            return declared.kind
        why = "is missing, but blocks.column divides rows by it. Declare it with low and high as dates"
        if declared is not None:
            why = "must have low and high as dates, such as 2024-01-31: blocks.column divides rows by it"
        self._mistakes.add(("tables", table.name, "columns", column), why)
        return None


# The other tables


class DatasetTable(FileTable):
    """The table [dataset]."""

    name: Label | None = needed('name = "visits": how the ledger calls these data')
    protects: Annotated[Text, one_of(("person", "row", PERSON_PERIOD))] | None = "person"
    population: Label | None = ""
    ids: Annotated[Text, one_of(("exact", "folded"))] | None = "exact"
    share_answers: Flag = None

    def fields(self, *, has_quotas: bool) -> dict[str, Any]:
        """Return the fields of `CheckedPolicy` that this table gives."""
        shares = not has_quotas if self.share_answers is None else self.share_answers
        given = self.model_dump(include={"name", "protects", "population"})
        return {**given, "folds_ids": self.ids == "folded", "shares_answers": shares}


class QuotaTable(FileTable):
    """One of the tables [analysts.NAME]."""

    epsilon: Epsilon | None = needed("epsilon = 3.0, or what you promise for life")
    delta: Delta | None = needed("delta = 1e-7, or what you promise for life")


class BudgetTable(QuotaTable):
    """The table [budget]."""

    delta_per_query: Delta | None = None
    least_epsilon: Epsilon | None = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of `CheckedPolicy` that this table gives. Wrong ones are noted."""
        epsilon, delta, given = self.epsilon, self.delta, self.delta_per_query
        if epsilon is None or delta is None:
            return {}
        self.attempt(lambda: Terms.of(epsilon, delta))
        if given is not None and given > delta * SHARE_DELTA0:
            share = f"{float(SHARE_DELTA0):.0%}"
            self.wrong("delta_per_query", f"must be at most {share} of delta: more could never be spent")
        per_query = two_digits_below(delta / QUERIES) if given is None else given
        default = Fraction(round_down(epsilon / QUESTIONS, EPSILON_UNIT), EPSILON_UNIT)
        least = default if self.least_epsilon is None else self.least_epsilon
        if least > epsilon:
            self.wrong("least_epsilon", "must be at most epsilon: no question could be asked")
        return {"epsilon": epsilon, "delta": delta, "delta_per_query": per_query, "least_epsilon": least}


def two_digits_below(value: Fraction) -> Fraction:
    """Return the greatest decimal with two digits that is at most `value`, in whole ledger units."""
    units = round_down(value, DELTA_UNIT)
    scale = 10 ** max(len(str(units)) - 2, 0)
    return Fraction(units // scale * scale, DELTA_UNIT)


class EngineTable(FileTable):
    """The table [engine]. Sizes are in megabytes."""

    timeout: int | None = Field(default=None, ge=1, le=DAY)
    failures: int | None = Field(default=None, ge=1, le=MOST_FAILURES)
    spark_master: Text | None = None
    memory: int | None = Field(default=None, ge=LEAST_MEMORY, le=MOST_MEGABYTES)
    temporary: int | None = Field(default=None, ge=1, le=MOST_MEGABYTES)
    threads: int | None = Field(default=None, ge=1, le=MOST_THREADS)
    pad: Flag = None
    steps_per_unit: int | None = Field(default=None, ge=1, le=MOST_OF_A_UNIT)
    text_per_unit: int | None = Field(default=None, ge=1, le=MOST_OF_A_UNIT)

    def fields(self) -> dict[str, Any]:
        """Return the fields of `CheckedPolicy` that this table gives."""
        memory, temporary = (size and size * MEGABYTE for size in (self.memory, self.temporary))
        given = self.model_dump(include={"timeout", "failures", "steps_per_unit", "text_per_unit"})
        limits = EngineLimits(memory, temporary, self.threads)
        return {
            "limits": limits,
            "pads": bool(self.pad),
            **{name: value for name, value in given.items() if value},
        }


class PartiesTable(FileTable):
    """The table [parties]."""

    least_coalition: int | None = Field(default=0, ge=1, le=MOST_MEMBERS)


class PolicyFile(FileTable):
    """A policy file as it is written."""

    dataset: DatasetTable = needed('[dataset] with name = "visits"')
    budget: BudgetTable = needed("[budget] with epsilon = 3.0 and delta = 1e-7, for life")
    blocks: BlocksTable | None = None
    ledger: LedgerTable = Field(default_factory=LedgerTable.model_construct)
    analysts: dict[str, QuotaTable] = Field(default_factory=dict)
    engine: EngineTable = Field(default_factory=EngineTable.model_construct)
    parties: PartiesTable = Field(default_factory=PartiesTable.model_construct)
    tables: dict[str, DataTable] = needed("[tables.visits] with source, unit and rows_per_unit")

    def quotas(self) -> dict[str, tuple[Fraction, Fraction]]:
        """Return epsilon and delta of each analyst. Wrong ones are noted."""
        quotas: dict[str, tuple[Fraction, Fraction]] = {}
        whole = {"epsilon": self.budget.epsilon, "delta": self.budget.delta}
        for name, table in self.analysts.items():
            label = self.attempt(lambda name=name: checked_label(name, "analysts"))  # type: ignore[misc]
            if label is None or table.epsilon is None or table.delta is None:
                continue
            if label in quotas:
                table.note("is here already, written with other characters")
            for part, most in whole.items():
                if None not in whole.values() and getattr(table, part) > most:
                    table.wrong(part, f"must be at most budget.{part}: a quota is a part of it")
            quotas[label] = table.epsilon, table.delta
        return quotas

    def data_tables(self, folder: Path, *, rows_follow: bool = False) -> dict[str, CheckedTable]:
        """Return the tables, each checked by itself. Those with mistakes are left out.

        `rows_follow`: rows of data frames need not be stored yet.
        """
        if len(self.tables) > TABLES_AT_MOST:
            self.wrong("tables", f"must be at most {TABLES_AT_MOST}")
            return {}
        if sum(len(table.columns) for table in self.tables.values()) > COLUMNS_AT_MOST:
            self.wrong("tables", f"must declare at most {COLUMNS_AT_MOST:,} columns in all")
            return {}
        check_names(self.tables)
        settings = folder, self.dataset.protects, self.engine.spark_master or ""
        made = {
            name: table.table(name, *settings, rows_follow=rows_follow)
            for name, table in self.tables.items()
        }
        return {name: table for name, table in made.items() if table is not None}

    def check_tables(self, tables: Mapping[str, CheckedTable]) -> None:
        """Note the mistakes between tables. `tables` has those without mistakes of their own."""
        private = [table for table in tables.values() if not table.is_public]
        if not private and len(tables) == len(self.tables):
            self.wrong("tables", "name no private table. Write [tables.visits] with source and unit")
        encodings: dict[str, str] = {}
        for table in private:
            self._check_through(table, tables)
            encoding = table.source.csv.encoding
            if encodings.setdefault(table.source.location, encoding) != encoding:
                self.tables[table.name].note("must be the same for the same files", "csv", "encoding")
        for table in tables.values() if private else ():
            self._check_engine(table, private[0])

    def _check_through(self, table: CheckedTable, tables: Mapping[str, CheckedTable]) -> None:
        through = table.unit.through if table.unit else ""
        other, why = tables.get(through), ""  # None if it has mistakes of its own
        if through == table.name:
            why = 'is this table itself. Write unit = "column" if it holds the unit'
        elif through and through not in self.tables:
            others = [name for name in self.tables if name != table.name]
            why = f"there is no such table. {did_you_mean(through, others, 'Tables')}"
        elif other is not None and other.unit is None:
            why = "must be a private table: a public one holds no unit"
        elif other is not None and other.unit is not None and other.unit.through:
            why = f'must hold the unit itself: write unit = "column" in [tables.{through}]'
        if why:
            self.tables[table.name].note(why, "unit", "through")

    def _check_engine(self, table: CheckedTable, first: CheckedTable) -> None:
        """Note a table in another engine than the first: rows could not be joined."""
        here, there = table.source, first.source
        is_apart = here.engine != there.engine or (
            here.engine == "postgres" and here.location != there.location
        )
        if is_apart and not (table.is_public and here.engine == "duckdb"):
            more = ", or be a file" if table.is_public else ""
            self.tables[table.name].wrong(
                "source", f"must lie in the same engine as [tables.{first.name}]{more}"
            )

    def block_rule(self, tables: Mapping[str, CheckedTable]) -> BlockRule | None:
        """Return the block rule; None if all data are one block or the rule is wrong."""
        if self.blocks is not None:
            return self.blocks.rule(self.dataset.protects, tables)
        if self.dataset.protects == PERSON_PERIOD:
            needs = '[blocks] with by = "row", column and every: protects = "person-period" needs it'
            self.require(blocks=needs)
        return None


def load_policy(path: str | Path) -> CheckedPolicy:
    """Read and check the policy in a file. No data is read.

    Args:
        path: The policy's TOML file.

    Returns:
        The policy. Its sources are absolute.

    Raises:
        BadFile: The file cannot be read or has mistakes. All mistakes are listed, each with its line.

    Example:
        policy = load_policy("visits.toml")
    """
    values, mistakes = read_policy(path)
    return checked_policy(values, mistakes, Path(path).absolute())


def read_policy(path: str | Path) -> tuple[dict[str, Any], FileMistakes]:
    """Return what a policy file says, and the list for its mistakes."""
    return read_toml(Path(path), what="policy", example="visits.toml", draft="lapwing init DATA")


def checked_policy(
    values: dict[str, Any], mistakes: FileMistakes, path: Path, *, rows_follow: bool = False
) -> CheckedPolicy:
    """Return the policy that `values` say, or raise an error with all mistakes. No data is read.

    Args:
        values: The tables of a policy file. Wrong ones are taken out.
        mistakes: The list for its mistakes.
        path: The absolute path of the file. A policy in code has the path that it would be saved at.
        rows_follow: Whether rows of data frames need not be stored yet.
    """
    has_tables = isinstance(values.get("tables"), dict)
    file = read_table(PolicyFile, values, mistakes)
    budget, quotas = file.budget.fields(), file.quotas()
    ledger = file.ledger.locations(path, default=str(_default_ledger(path)), example=LEDGER)
    tables = file.data_tables(path.parent, rows_follow=rows_follow)
    if has_tables:
        file.check_tables(tables)
    blocks = file.block_rule(tables)
    mistakes.complain()
    return CheckedPolicy(
        path=path,
        tables=tables,
        blocks=blocks,
        quotas=quotas,
        **ledger,
        **file.dataset.fields(has_quotas=bool(quotas)),
        **budget,
        **file.engine.fields(),
        **dict(file.parties),
    )


def _default_ledger(path: Path) -> Path:
    """Return the ledger's default place: one ledger for all policies of a folder.

    If files exist that are named after the policy, the policy keeps a ledger of its own. The ledger's file
    is never the policy itself.
    """
    named = f"{path.stem if path.suffix != '.ledger' else path.name}.ledger"
    has_own = any(path.parent.glob(f"{glob.escape(named)}*"))
    return path.with_name(named if has_own or path.name == LEDGER else LEDGER)
