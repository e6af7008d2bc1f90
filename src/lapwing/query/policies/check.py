"""What holds between the parts of a policy: units through tables, one engine, blocks by columns."""

from __future__ import annotations

from collections.abc import Mapping

from lapwing.query.language.kinds import SECONDS, Moment
from lapwing.query.policies.blocks import period_of
from lapwing.query.policies.policy import Blocks, Source, Table
from lapwing.toml.section import Section, did_you_mean, either
from lapwing.toml.text import Mistakes

BLOCKS = ("by", "cohorts", "column", "every")
PERIODS = ("day", "week", "month", "quarter", "year")
BLOCKS_AT_MOST = 100_000
PERSON_PERIOD = "person-period"


def check_tables(mistakes: Mistakes, tables: Mapping[str, Table], *, named: Mapping[str, object]) -> None:
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
    mistakes: Mistakes, table: Table, tables: Mapping[str, Table], named: Mapping[str, object]
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


def _check_engines(mistakes: Mistakes, first: Table, tables: Mapping[str, Table]) -> None:
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


def blocks_of(root: Section, protects: str | None, tables: Mapping[str, Table]) -> Blocks | None:
    """The declared slices, or None for one block."""
    section = root.below("blocks", BLOCKS)
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


def _of_units(section: Section, protects: str | None, tables: Mapping[str, Table]) -> Blocks | None:
    if protects == PERSON_PERIOD:
        section.wrong("by", 'must be "row" where dataset.protects is "person-period"')
    column = section.name("column") if section.has("column") else Blocks("unit").column
    if column is not None:
        _check_block_name(section, column, tables)
    if section.has("cohorts") and section.has("every"):
        section.wrong("every", "cannot stand beside cohorts. Write one of them")
        return None
    if section.has("every"):
        every = section.one_of("every", ("month",))
        return Blocks("unit", column=column, every=every) if every and column else None
    if not section.has("cohorts"):
        section.missing("cohorts", 'cohorts = 64, or every = "month" for the month of arrival')
        return None
    cohorts = section.whole("cohorts", least=1, most=BLOCKS_AT_MOST)
    return Blocks("unit", cohorts=cohorts, column=column) if cohorts and column else None


def _check_block_name(section: Section, column: str, tables: Mapping[str, Table]) -> None:
    """In SQL the slice is a column of every private table: it must not hide one that is there."""
    for table in tables.values():
        taken = {name.lower() for name in (*table.columns, table.unit.column if table.unit else "")}
        if not table.is_public and column.lower() in taken:
            section.wrong(
                "column", f'[tables.{table.name}] has such a column. Write another name, such as "slice"'
            )
            return


def _of_rows(section: Section, protects: str | None, tables: Mapping[str, Table]) -> Blocks | None:
    if protects is not None and protects != PERSON_PERIOD:
        section.wrong(
            "by",
            '"row" protects a person in one period only: write dataset.protects = "person-period" as well',
        )
    if section.has("cohorts"):
        section.wrong("cohorts", 'belongs to by = "unit". Remove it')
    for name, write in (
        ("column", 'column = "admitted": the date by which rows are sliced'),
        ("every", f"every = {either(PERIODS)}"),
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
    return Blocks("row", column=column, every=every, first=first, last=last)


def _dates_in(mistakes: Mistakes, table: Table, column: str) -> Moment | None:
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
