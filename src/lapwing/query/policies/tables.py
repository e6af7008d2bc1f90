"""The tables of a policy: where they lie, whom their rows are about, and which columns may be used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lapwing.errors import BadParameter
from lapwing.query.policies.columns import SOURCE_AT_MOST, column_of, source_name
from lapwing.query.policies.csv import csv_source
from lapwing.query.policies.policy import Column, Source, Table, UnitBy
from lapwing.query.policies.source import source_of
from lapwing.toml.section import Section, kind_of, twice, why_no_name
from lapwing.toml.text import Mistakes, quoted

TABLE = ("source", "unit", "rows_per_unit", "public", "primary_key", "rows", "columns", "csv")
UNIT = ("through", "by", "key", "name", "source")
TABLES_AT_MOST = 500
COLUMNS_AT_MOST = 5_000
ROWS_PER_UNIT_AT_MOST = 1_000_000
ROWS_AT_MOST = 10**15
WHICH_UNIT = 'unit = "patient_id": the column that says whom a row is about'
EACH_ROW = UnitBy(column="")


@dataclass(frozen=True, slots=True)
class Around:
    """What the rest of the file says that tables need to know."""

    folder: Path
    protects: str | None
    spark_master: str


def tables_of(root: Section, around: Around) -> dict[str, Table]:
    """The tables, each checked by itself. What is wrong in one is noted, and the table left out."""
    found = root.tables("tables")
    if len(found) > TABLES_AT_MOST:
        root.wrong("tables", f"must be at most {TABLES_AT_MOST}")
        return {}
    if sum(_columns_in(raw) for raw in found.values()) > COLUMNS_AT_MOST:
        root.wrong("tables", f"must declare at most {COLUMNS_AT_MOST:,} columns in all")
        return {}
    _check_names(root.mistakes, ("tables",), found)
    tables = {}
    for name, raw in found.items():
        section = Section.of(root.mistakes, ("tables", name), raw, TABLE)
        table = None if section is None else _table(section, name, around)
        if table is not None:
            tables[name] = table
    return tables


def _columns_in(raw: object) -> int:
    columns = raw.get("columns") if isinstance(raw, dict) else None
    return len(columns) if isinstance(columns, dict) else 0


def _check_names(mistakes: Mistakes, key: tuple[str, ...], names: Iterable[str]) -> None:
    names = list(names)
    for name in names:
        if why := why_no_name(name):
            mistakes.add((*key, name), f"cannot be called so. A name {why}")
    for name, before in twice(names):
        mistakes.add((*key, name), f"is {quoted(before, at_most=80)} again: SQL does not see capitals")


def _table(section: Section, name: str, around: Around) -> Table | None:
    source = _source(section, name, around)
    is_public = section.flag("public")
    unit = None if is_public else _unit(section, around.protects)
    if is_public:
        _check_no_unit(section)
    rows_per_unit = 0 if is_public else _rows_per_unit(section, around.protects)
    columns, hidden = _columns(section, unit)
    primary_key = _primary_key(section)
    rows = section.whole("rows", least=1, most=ROWS_AT_MOST)
    if source is None or rows_per_unit is None or (unit is None and not is_public):
        return None
    return Table(name, source, columns, unit, rows_per_unit, primary_key, rows, hidden)


def _source(section: Section, name: str, around: Around) -> Source | None:
    text = section.text("source")
    if text is None:
        if not section.has("source"):
            section.missing("source", 'source = "visits.parquet", or where the table lies')
        return None
    try:
        source = source_of(text, folder=around.folder, table=name, spark_master=around.spark_master)
        return csv_source(section, source)
    except BadParameter as error:
        section.wrong("source", error.why)
        return None


def _check_no_unit(section: Section) -> None:
    for name in ("unit", "rows_per_unit"):
        if section.has(name):
            section.wrong(
                name, "cannot stand in a public table: its rows protect nobody. Remove it, or public"
            )


def _unit(section: Section, protects: str | None) -> UnitBy | None:
    found = section.values.get("unit")
    if found is None:
        if protects == "row":
            return EACH_ROW
        if protects is not None:  # else that mistake is noted already
            section.missing("unit", f"{WHICH_UNIT}; or public = true if the rows protect nobody")
        return None
    if isinstance(found, dict):
        return _through(section, protects)
    if not isinstance(found, str):
        section.wrong("unit", f"must be the name of one column, not {kind_of(found)}. Write {WHICH_UNIT}")
    elif not found.strip():
        section.wrong("unit", f"is empty. Write {WHICH_UNIT}")
    name = section.name("unit") if isinstance(found, str) and found.strip() else None
    return None if name is None else UnitBy(name)


def _through(section: Section, protects: str | None) -> UnitBy | None:
    inner = section.below("unit", UNIT)
    assert inner is not None
    if inner.has("name") or inner.has("source"):
        return _renamed(inner)
    if protects == "row":
        section.wrong("unit", 'must be one column, or left out, where dataset.protects is "row"')
        return None
    for name, write in (
        ("through", 'through = "patients": the private table that holds the unit'),
        ("by", 'by = "patient_key": the column of this table that refers to it'),
        ("key", 'key = "key": the column of the other table that is referred to'),
    ):
        if not inner.has(name):
            inner.missing(name, write)
    through, by, key = inner.text("through"), source_name(inner, "by"), source_name(inner, "key")
    return UnitBy(by, through, key) if through and by and key else None


def _renamed(section: Section) -> UnitBy | None:
    """A column of this table that the source calls otherwise than SQL does."""
    for other in ("through", "by", "key"):
        if section.has(other):
            section.wrong(other, "cannot stand beside name and source. Write through, by and key, or those")
            return None
    for needed, write in (
        ("name", 'name = "customer": how questions call the column'),
        ("source", 'source = "Customer ID": what the source calls it'),
    ):
        if not section.has(needed):
            section.missing(needed, write)
    name, source = section.name("name"), source_name(section, "source")
    return UnitBy(name, source=source) if name and source else None


def _rows_per_unit(section: Section, protects: str | None) -> int | None:
    name = "rows_per_unit"
    if protects == "row":
        if section.has(name) and section.values[name] != 1:
            section.wrong(name, 'must be 1 where dataset.protects is "row". Remove it')
        return 1
    if not section.has(name) and protects is not None:
        section.missing(name, f"{name} = 5: how many rows of one unit may count. The others are left out")
    return section.whole(name, least=1, most=ROWS_PER_UNIT_AT_MOST)


def _columns(section: Section, unit: UnitBy | None) -> tuple[dict[str, Column], tuple[str, ...]]:
    found = section.tables("columns")
    key = (*section.key, "columns")
    _check_names(section.mistakes, key, found)
    columns, hidden = {}, []
    people = set() if unit is None or unit.through else {unit.column.lower(), unit.in_source.lower()} - {""}
    for name, raw in found.items():
        called = raw.get("source") if isinstance(raw, dict) else None
        read = called.lower() if isinstance(called, str) else name.lower()
        if people & {name.lower(), read}:
            section.mistakes.add(
                (*key, name), "is the unit: it can be counted, never shown. Remove it here"
            )
        column = column_of(section.mistakes, (*key, name), raw)
        if column is not None:
            columns[name] = column
        elif isinstance(raw, dict) and raw.get("hidden") is True:
            hidden += [name, *([called] if isinstance(called, str) else [])]
    closed = {name.lower() for name in hidden}
    for name, column in columns.items():
        if column.in_source.lower() in closed:
            section.mistakes.add((*key, name), "reads a column that is declared as hidden. Remove one")
    return columns, tuple(hidden)


def _primary_key(section: Section) -> tuple[str, ...]:
    found = section.values.get("primary_key")
    if found is None:
        return ()
    if isinstance(found, str):
        found = [found]
    if not isinstance(found, list) or not found or not all(isinstance(name, str) for name in found):
        section.wrong(
            "primary_key", 'must be a column or a list of columns, such as "id" or ["ward", "bed"]'
        )
    elif not all(0 < len(name) <= SOURCE_AT_MOST and "\0" not in name for name in found):
        section.wrong("primary_key", "must name columns, as the source calls them")
    elif len({name.lower() for name in found}) < len(found):
        section.wrong("primary_key", "must name each column once")
    else:
        return tuple(found)
    return ()
