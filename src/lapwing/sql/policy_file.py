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
from typing import Any

from lapwing.config.section import Section, did_you_mean, quoted_choices, read_ledger_locations
from lapwing.config.toml_text import FileMistakes, read_toml
from lapwing.config.values import checked_label
from lapwing.core.budget import DELTA_UNIT, SHARE_DELTA0, Terms
from lapwing.core.exact import round_down
from lapwing.core.losses import checked_delta, checked_epsilon
from lapwing.engines.engine import MEGABYTE, EngineLimits
from lapwing.errors import BadFile, BadParameter
from lapwing.sql.expression import SECONDS, Moment
from lapwing.sql.policy import BlockRule, Policy, Source, Table, period_of
from lapwing.sql.policy_tables import TableContext, read_tables, require_keys

BLOCK_KEYS = ("by", "cohorts", "column", "every")
PERIODS = ("day", "week", "month", "quarter", "year")
BLOCKS_AT_MOST = 100_000
PERSON_PERIOD = "person-period"


def check_tables(
    mistakes: FileMistakes, tables: Mapping[str, Table], *, named: Mapping[str, object]
) -> None:
    """Note the mistakes between tables. `named` are all tables of the file, also those with mistakes."""
    private = [table for table in tables.values() if not table.is_public]
    if not private and len(tables) == len(named):
        mistakes.add(("tables",), "name no private table. Write [tables.visits] with source and unit")
    for table in private:
        _check_through(mistakes, table, tables, named)
    encodings: dict[str, str] = {}
    for table in private:
        source = table.source
        if encodings.setdefault(source.location, source.csv.encoding) != source.csv.encoding:
            mistakes.add(("tables", table.name, "csv", "encoding"), "must be the same for the same files")
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
    """Note private tables in different engines: their rows could not be joined.

    Public files may lie elsewhere.
    """
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
    """Return the block rule of the file, or None if all data are one block or the rule is wrong."""
    section = root.below("blocks", BLOCK_KEYS)
    if section is None:
        if protects == PERSON_PERIOD:
            needed = '[blocks] with by = "row", column and every: protects = "person-period" needs it'
            require_keys(root, {"blocks": needed})
        return None
    if not section.has("by"):
        section.missing("by", 'by = "unit", or by = "row" for periods of rows')
        return None
    by = section.one_of("by", ("unit", "row"))
    if by is None:
        return None
    return (_of_units if by == "unit" else _of_rows)(section, protects, tables)


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
    """Note a block name that is also a column of a private table.

    In SQL, each of them has the block as a column.
    """
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
    column_hint = 'column = "admitted": the date that divides rows into periods'
    require_keys(section, {"column": column_hint, "every": f"every = {quoted_choices(PERIODS)}"})
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
    """Return the bounds of a private table's date column.

    None means that it is wrong, or the table is public.
    """
    if table.is_public:
        return None
    key = ("tables", table.name, "columns", column)
    found = table.columns.get(column)
    if found is None:
        mistakes.add(
            key, "is missing, but blocks.column divides rows by it. Declare it with low and high as dates"
        )
        return None
    if not isinstance(found.kind, Moment) or found.kind.seconds != SECONDS["day"]:
        mistakes.add(
            key, "must have low and high as dates, such as 2024-01-31: blocks.column divides rows by it"
        )
        return None
    return found.kind


__all__ = ["BadFile", "load_policy"]

ROOT = ("dataset", "budget", "blocks", "ledger", "analysts", "engine", "parties", "tables")
LEDGER = "lapwing.ledger"  # in the policy's folder: copies of a policy use the same ledger
IDS = ("exact", "folded")
ENGINE = ("timeout", "failures", "spark_master", "memory", "temporary", "threads")
PROTECTS = ("person", "row", PERSON_PERIOD)
QUERIES = 1000  # queries with undeclared keys that share delta, unless delta_per_query is given
MOST_MEMBERS = 1000
DAY = 86_400  # seconds
MOST_FAILURES = 100
LEAST_MEMORY, MOST_MEGABYTES, MOST_THREADS = 500, 100_000_000, 1024


def load_policy(path: str | Path) -> Policy:
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
    path = Path(path)
    values, mistakes = read_toml(path, what="policy", example="visits.toml", draft="lapwing init DATA")
    root = Section.of(mistakes, (), values, ROOT)
    assert root is not None
    path = path.absolute()
    dataset, budget = _dataset(root), _budget(root)
    quotas = _quotas(root, budget)
    engine, spark_master = _engine(root)
    ledger = read_ledger_locations(root, path, default=str(_default_ledger(path)), example=LEDGER)
    parties = root.below("parties", ("least_coalition",))
    coalition = None if parties is None else parties.whole("least_coalition", least=1, most=MOST_MEMBERS)
    protects = dataset.get("protects")
    require_keys(root, {"tables": "[tables.visits] with source, unit and rows_per_unit"})
    tables = read_tables(root, TableContext(path.parent, protects, spark_master))
    if root.has("tables"):
        check_tables(mistakes, tables, named=root.tables("tables"))
    blocks = read_block_rule(root, protects, tables)
    mistakes.complain()
    return Policy(
        path=path,
        tables=tables,
        blocks=blocks,
        quotas=quotas,
        ledger=ledger.url,
        ledger_keys=ledger.keys,
        ledger_anchor=ledger.anchor,
        least_coalition=coalition or 0,
        **{"shares_answers": not quotas, **dataset, **budget, **engine},
    )


def _dataset(root: Section) -> dict[str, Any]:
    """Return the fields of `Policy` that [dataset] gives."""
    section = root.below("dataset", ("name", "protects", "population", "ids", "share_answers"))
    if section is None:
        require_keys(root, {"dataset": '[dataset] with name = "visits"'})
        return {}
    require_keys(section, {"name": 'name = "visits": how the ledger calls these data'})
    shares = {"shares_answers": section.flag("share_answers")} if section.has("share_answers") else {}
    return {
        "name": section.label("name"),
        "protects": section.one_of("protects", PROTECTS) if section.has("protects") else "person",
        "population": section.label("population") or "",
        "folds_ids": section.has("ids") and section.one_of("ids", IDS) == "folded",
        **shares,
    }


def _budget(root: Section) -> dict[str, Fraction]:
    """Return the fields of `Policy` that [budget] gives; none of them if epsilon or delta is wrong."""
    section = root.below("budget", ("epsilon", "delta", "delta_per_query"))
    if section is None:
        require_keys(root, {"budget": "[budget] with epsilon = 3.0 and delta = 1e-7, for life"})
        return {}
    epsilon, delta = _epsilon_delta(section)
    if epsilon is None or delta is None:
        return {}
    try:
        Terms.of(epsilon, delta)
    except BadParameter as error:
        section.wrong(error.name, error.why)
    return {"epsilon": epsilon, "delta": delta, "delta_per_query": _per_query(section, delta)}


def _per_query(section: Section, delta: Fraction) -> Fraction:
    given = _number(section, "delta_per_query")
    if given is not None and given > delta * SHARE_DELTA0:
        share = f"{float(SHARE_DELTA0):.0%}"
        section.wrong("delta_per_query", f"must be at most {share} of delta: more could never be spent")
    return two_digits_below(delta / QUERIES) if given is None else given


def _epsilon_delta(section: Section) -> tuple[Fraction | None, Fraction | None]:
    examples = {"epsilon": "epsilon = 3.0", "delta": "delta = 1e-7"}
    require_keys(section, {name: f"{one}, or what you promise for life" for name, one in examples.items()})
    return _number(section, "epsilon"), _number(section, "delta")


def _number(section: Section, name: str) -> Fraction | None:
    number = section.number(name)
    check = checked_epsilon if name == "epsilon" else checked_delta
    return None if number is None else section.checked(name, check, number)


def two_digits_below(value: Fraction) -> Fraction:
    """Return the greatest decimal with two digits that is at most `value`, in whole ledger units."""
    units = round_down(value, DELTA_UNIT)
    scale = 10 ** max(len(str(units)) - 2, 0)
    return Fraction(units // scale * scale, DELTA_UNIT)


def _quotas(root: Section, budget: Mapping[str, Fraction]) -> dict[str, tuple[Fraction, Fraction]]:
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
        given = {"epsilon": epsilon, "delta": delta}
        beyond = next((name for name in given if budget and given[name] > budget[name]), None)
        if beyond is not None:
            section.wrong(beyond, f"must be at most budget.{beyond}: a quota is a part of it")
        quotas[label] = epsilon, delta
    return quotas


def _engine(root: Section) -> tuple[dict[str, Any], str]:
    """Return the fields of `Policy` that [engine] gives, and the Spark master ("" for the default one)."""
    section = root.below("engine", ENGINE)
    if section is None:
        return {}, ""
    memory = section.whole("memory", least=LEAST_MEMORY, most=MOST_MEGABYTES)
    temporary = section.whole("temporary", least=1, most=MOST_MEGABYTES)
    given = {
        "timeout": section.whole("timeout", least=1, most=DAY),
        "failures": section.whole("failures", least=1, most=MOST_FAILURES),
        "limits": EngineLimits(
            None if memory is None else memory * MEGABYTE,
            None if temporary is None else temporary * MEGABYTE,
            section.whole("threads", least=1, most=MOST_THREADS),
        ),
    }
    return {name: value for name, value in given.items() if value}, section.text("spark_master") or ""


def _default_ledger(path: Path) -> Path:
    """Return the ledger's default place: one ledger for all policies of a folder.

    If files exist that are named after the policy, the policy keeps a ledger of its own. The ledger's file
    is never the policy itself.
    """
    named = f"{path.stem if path.suffix != '.ledger' else path.name}.ledger"
    has_own = any(path.parent.glob(f"{glob.escape(named)}*"))
    return path.with_name(named if has_own or path.name == LEDGER else LEDGER)
