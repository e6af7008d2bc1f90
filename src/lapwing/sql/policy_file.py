"""A policy from its file (TOML). All mistakes are found and told together, each with its line.

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

What holds between the parts of a policy: units through tables, one engine, blocks by columns.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from lapwing.config.section import (
    LedgerLocations,
    Section,
    did_you_mean,
    quoted_choices,
    read_ledger_locations,
)
from lapwing.config.toml_text import FileMistakes, read_toml
from lapwing.core.budget import DELTA_UNIT, SHARE_DELTA0, Terms
from lapwing.core.exact import round_down
from lapwing.core.losses import checked_delta, checked_epsilon
from lapwing.engines.engine import DEFAULT_LIMITS, MEGABYTE, EngineLimits
from lapwing.errors import BadFile, BadParameter
from lapwing.ledger.entry import checked_label
from lapwing.sql.expression import SECONDS, Moment
from lapwing.sql.policy import BlockRule, Policy, Source, Table, period_of
from lapwing.sql.policy_tables import TableContext, read_tables

BLOCK_KEYS = ("by", "cohorts", "column", "every")
PERIODS = ("day", "week", "month", "quarter", "year")
BLOCKS_AT_MOST = 100_000
PERSON_PERIOD = "person-period"


def check_tables(
    mistakes: FileMistakes, tables: Mapping[str, Table], *, named: Mapping[str, object]
) -> None:
    """Whether the tables fit together. `named` are all that the file names, also those with mistakes."""
    private = [table for table in tables.values() if not table.is_public]
    if not private and len(tables) == len(named):
        mistakes.add(("tables",), "name no private table. Write [tables.visits] with source and unit")
    for table in private:
        _check_through(mistakes, table, tables, named)
    encodings: dict[str, str] = {}
    for table in private:
        source = table.source
        if encodings.setdefault(source.location, source.csv.encoding) != source.csv.encoding:
            mistakes.add(("tables", table.name, "csv", "encoding"), "must be one for the same files")
    if private:
        _check_engines(mistakes, private[0], tables)


def _check_through(
    mistakes: FileMistakes, table: Table, tables: Mapping[str, Table], named: Mapping[str, object]
) -> None:
    assert table.unit is not None
    through = table.unit.through
    if not through:
        return
    key = ("tables", table.name, "unit", "through")
    if through == table.name:
        mistakes.add(key, 'is this table itself. Write unit = "column" if it holds the unit')
    elif through not in named:
        others = [name for name in named if name != table.name]
        mistakes.add(key, f"there is no such table. {did_you_mean(through, others, 'Tables')}")
    elif through in tables:  # else it has mistakes of its own
        other = tables[through]
        if other.unit is None:
            mistakes.add(key, "must be a private table: a public one holds no unit")
        elif other.unit.through:
            mistakes.add(key, f'must hold the unit itself: write unit = "column" in [tables.{through}]')


def _check_engines(mistakes: FileMistakes, first: Table, tables: Mapping[str, Table]) -> None:
    """Rows that may be joined lie in one engine. Public files are small: they are brought to it."""
    for table in tables.values():
        if _together(first.source, table.source) or (table.is_public and table.source.engine == "duckdb"):
            continue
        more = ", or be a file" if table.is_public else ""
        mistakes.add(
            ("tables", table.name, "source"), f"must lie in the same engine as [tables.{first.name}]{more}"
        )


def _together(one: Source, other: Source) -> bool:
    if one.engine != other.engine:
        return False
    return one.engine != "postgres" or one.location == other.location


def read_block_rule(root: Section, protects: str | None, tables: Mapping[str, Table]) -> BlockRule | None:
    """The declared slices, or None for one block."""
    section = root.below("blocks", BLOCK_KEYS)
    if section is None:
        if protects == PERSON_PERIOD and not root.has("blocks"):
            root.missing(
                "blocks", '[blocks] with by = "row", column and every: protects = "person-period" needs it'
            )
        return None
    if not section.has("by"):
        section.missing("by", 'by = "unit", or by = "row" for periods of rows')
        return None
    match section.one_of("by", ("unit", "row")):
        case "unit":
            return _of_units(section, protects, tables)
        case "row":
            return _of_rows(section, protects, tables)
        case _:
            return None


def _of_units(section: Section, protects: str | None, tables: Mapping[str, Table]) -> BlockRule | None:
    if protects == PERSON_PERIOD:
        section.wrong("by", 'must be "row" where dataset.protects is "person-period"')
    column = section.name("column") if section.has("column") else BlockRule("unit").column
    if column is not None:
        _check_block_name(section, column, tables)
    if section.has("cohorts") and section.has("every"):
        section.wrong("every", "cannot stand beside cohorts. Write one of them")
        return None
    if section.has("every"):
        every = section.one_of("every", ("month",))
        return BlockRule("unit", column=column, every=every) if every and column else None
    if not section.has("cohorts"):
        section.missing("cohorts", 'cohorts = 64, or every = "month" for the month of arrival')
        return None
    cohorts = section.whole("cohorts", least=1, most=BLOCKS_AT_MOST)
    return BlockRule("unit", cohorts=cohorts, column=column) if cohorts and column else None


def _check_block_name(section: Section, column: str, tables: Mapping[str, Table]) -> None:
    """In SQL the slice is a column of every private table: it must not hide one that is there."""
    for table in tables.values():
        taken = {name.lower() for name in (*table.columns, table.unit.column if table.unit else "")}
        if not table.is_public and column.lower() in taken:
            section.wrong(
                "column", f'[tables.{table.name}] has such a column. Write another name, such as "slice"'
            )
            return


def _of_rows(section: Section, protects: str | None, tables: Mapping[str, Table]) -> BlockRule | None:
    if protects is not None and protects != PERSON_PERIOD:
        section.wrong(
            "by",
            '"row" protects a person in one period only: write dataset.protects = "person-period" as well',
        )
    if section.has("cohorts"):
        section.wrong("cohorts", 'belongs to by = "unit". Remove it')
    for name, write in (
        ("column", 'column = "admitted": the date by which rows are sliced'),
        ("every", f"every = {quoted_choices(PERIODS)}"),
    ):
        if not section.has(name):
            section.missing(name, write)
    column, every = section.name("column"), section.one_of("every", PERIODS)
    if column is None or every is None:
        return None
    bounds = [found for table in tables.values() if (found := _dates_in(section.mistakes, table, column))]
    if not bounds:
        return None
    first = min(period_of(every, dates.first) for dates in bounds)
    last = max(period_of(every, dates.last) for dates in bounds)
    if last - first >= BLOCKS_AT_MOST:
        section.wrong("every", f"gives more than {BLOCKS_AT_MOST:,} blocks. Write a longer period")
        return None
    return BlockRule("row", column=column, every=every, first=first, last=last)


def _dates_in(mistakes: FileMistakes, table: Table, column: str) -> Moment | None:
    """What a private table declares of the column that slices its rows."""
    if table.is_public:
        return None
    key = ("tables", table.name, "columns", column)
    found = table.columns.get(column)
    if found is None:
        mistakes.add(
            key, "is missing, but blocks.column slices rows by it. Declare it with low and high as dates"
        )
        return None
    if not isinstance(found.kind, Moment) or found.kind.seconds != SECONDS["day"]:
        mistakes.add(
            key, "must have low and high as dates, such as 2024-01-31: blocks.column slices rows by it"
        )
        return None
    return found.kind


__all__ = ["BadFile", "load_policy"]

ROOT = ("dataset", "budget", "blocks", "ledger", "analysts", "engine", "parties", "tables")
LEDGER = "lapwing.ledger"  # the budget follows the data, also if a policy is copied or renamed
IDS = ("exact", "folded")
ENGINE = ("timeout", "failures", "spark_master", "memory", "temporary", "threads")
PROTECTS = ("person", "row", PERSON_PERIOD)
QUERIES = 1000  # the questions with undeclared keys that δ is shared by, unless delta_per_query is given
MOST_MEMBERS = 1000
TIMEOUT, DAY = 600, 86_400  # seconds
FAILURES, MOST_FAILURES = 3, 100
LEAST_MEMORY, MOST_MEGABYTES, MOST_THREADS = 500, 100_000_000, 1024


def load_policy(path: str | Path) -> Policy:
    """The policy in a file, checked; or `BadFile` with every mistake in it. Reads no data."""
    path = Path(path)
    values, mistakes = read_toml(path, what="policy", example="visits.toml", draft="lapwing init DATA")
    root = Section.of(mistakes, (), values, ROOT)
    assert root is not None
    path = path.absolute()
    dataset = _dataset(root)
    budget = _budget(root)
    quotas = _quotas(root, budget)
    engine = _engine(root)
    ledger = _ledger(root, path)
    least_coalition = _least_coalition(root)
    protects = dataset.protects if dataset else None
    if not root.has("tables"):
        root.missing("tables", "[tables.visits] with source, unit and rows_per_unit")
    tables = read_tables(root, TableContext(path.parent, protects, engine.spark_master))
    if root.has("tables"):
        check_tables(mistakes, tables, named=root.tables("tables"))
    blocks = read_block_rule(root, protects, tables)
    mistakes.complain()
    assert dataset is not None
    assert dataset.name is not None
    assert dataset.protects is not None
    assert budget is not None
    return Policy(
        path=path,
        name=dataset.name,
        epsilon=budget.epsilon,
        delta=budget.delta,
        delta_per_query=budget.delta_per_query,
        tables=tables,
        blocks=blocks,
        ledger=ledger.url,
        quotas=quotas,
        protects=dataset.protects,
        population=dataset.population,
        timeout=engine.timeout,
        failures=engine.failures,
        ledger_keys=ledger.keys,
        ledger_anchor=ledger.anchor,
        folds_ids=dataset.folds_ids,
        limits=engine.limits,
        shares_answers=not quotas if dataset.shares_answers is None else dataset.shares_answers,
        least_coalition=least_coalition,
    )


def _least_coalition(root: Section) -> int:
    section = root.below("parties", ("least_coalition",))
    return 0 if section is None else section.whole("least_coalition", least=1, most=MOST_MEMBERS) or 0


@dataclass(frozen=True, slots=True)
class _Dataset:
    name: str | None
    protects: str | None
    population: str
    folds_ids: bool
    shares_answers: bool | None


def _dataset(root: Section) -> _Dataset | None:
    section = root.below("dataset", ("name", "protects", "population", "ids", "share_answers"))
    if section is None:
        if not root.has("dataset"):
            root.missing("dataset", '[dataset] with name = "visits"')
        return None
    if not section.has("name"):
        section.missing("name", 'name = "visits": how the ledger calls these data')
    protects = section.one_of("protects", PROTECTS) if section.has("protects") else "person"
    folds_ids = section.has("ids") and section.one_of("ids", IDS) == "folded"
    shares = section.flag("share_answers") if section.has("share_answers") else None
    return _Dataset(section.label("name"), protects, section.label("population") or "", folds_ids, shares)


@dataclass(frozen=True, slots=True)
class _Budget:
    epsilon: Fraction
    delta: Fraction
    delta_per_query: Fraction


def _budget(root: Section) -> _Budget | None:
    section = root.below("budget", ("epsilon", "delta", "delta_per_query"))
    if section is None:
        if not root.has("budget"):
            root.missing("budget", "[budget] with epsilon = 3.0 and delta = 1e-7, for life")
        return None
    epsilon, delta = _epsilon_delta(section)
    if epsilon is None or delta is None:
        return None
    try:
        Terms.of(epsilon, delta)
    except BadParameter as error:
        section.wrong(error.name, error.why)
    return _Budget(epsilon, delta, _per_query(section, delta))


def _per_query(section: Section, delta: Fraction) -> Fraction:
    default = two_digits_below(delta / QUERIES)
    found = _number(section, "delta_per_query")
    if found is not None and found > delta * SHARE_DELTA0:
        share = f"{float(SHARE_DELTA0):.0%}"
        section.wrong("delta_per_query", f"must be at most {share} of delta: more could never be spent")
    return default if found is None else found


def _epsilon_delta(section: Section) -> tuple[Fraction | None, Fraction | None]:
    for name, write in (("epsilon", "epsilon = 3.0"), ("delta", "delta = 1e-7")):
        if not section.has(name):
            section.missing(name, f"{write}, or what you promise for life")
    return _number(section, "epsilon"), _number(section, "delta")


def _number(section: Section, name: str) -> Fraction | None:
    number = section.number(name)
    check = checked_epsilon if name == "epsilon" else checked_delta
    return None if number is None else section.checked(name, check, number)


def two_digits_below(value: Fraction) -> Fraction:
    """The greatest decimal of two digits, in whole units of the ledger, that is not above `value`."""
    units = round_down(value, DELTA_UNIT)
    scale = 10 ** max(len(str(units)) - 2, 0)
    return Fraction(units // scale * scale, DELTA_UNIT)


def _quotas(root: Section, budget: _Budget | None) -> dict[str, tuple[Fraction, Fraction]]:
    quotas: dict[str, tuple[Fraction, Fraction]] = {}
    for name, raw in root.tables("analysts").items():
        section = Section.of(root.mistakes, ("analysts", name), raw, ("epsilon", "delta"))
        label = root.checked("analysts", checked_label, name)
        if section is None or label is None:
            continue
        if label in quotas:
            root.mistakes.add(section.key, "is here already, written with other characters")
        epsilon, delta = _epsilon_delta(section)
        if epsilon is None or delta is None:
            continue
        if budget is not None and (epsilon > budget.epsilon or delta > budget.delta):
            beyond = "epsilon" if epsilon > budget.epsilon else "delta"
            section.wrong(beyond, f"must be at most budget.{beyond}: a quota is a part of it")
        quotas[label] = epsilon, delta
    return quotas


@dataclass(frozen=True, slots=True)
class _Engine:
    timeout: int = TIMEOUT
    failures: int = FAILURES
    spark_master: str = ""
    limits: EngineLimits = DEFAULT_LIMITS


def _engine(root: Section) -> _Engine:
    section = root.below("engine", ENGINE)
    if section is None:
        return _Engine()
    memory = section.whole("memory", least=LEAST_MEMORY, most=MOST_MEGABYTES)
    temporary = section.whole("temporary", least=1, most=MOST_MEGABYTES)
    limits = EngineLimits(
        None if memory is None else memory * MEGABYTE,
        None if temporary is None else temporary * MEGABYTE,
        section.whole("threads", least=1, most=MOST_THREADS),
    )
    return _Engine(
        section.whole("timeout", least=1, most=DAY) or TIMEOUT,
        section.whole("failures", least=1, most=MOST_FAILURES) or FAILURES,
        section.text("spark_master") or "",
        limits,
    )


def _ledger(root: Section, path: Path) -> LedgerLocations:
    return read_ledger_locations(root, path, default=str(_default_ledger(path)), example=LEDGER)


def _default_ledger(path: Path) -> Path:
    """One for all policies of a folder; but one that is named after the policy, or what is left of it,
    stays the policy's own. Never the policy itself."""
    named = f"{path.stem if path.suffix != '.ledger' else path.name}.ledger"
    has_own = any(path.parent.glob(f"{glob.escape(named)}*"))
    return path.with_name(named if has_own or path.name == LEDGER else LEDGER)
