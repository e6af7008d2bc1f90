"""The schema of a data set beside the editor: tables, columns and their declared values, in short words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lapwing.answer_text import number_text
from lapwing.server.console.words import counted

VALUES_SHOWN = 6


@dataclass(frozen=True, slots=True)
class ColumnView:
    """A column with its declared values in words."""

    name: str
    words: str


@dataclass(frozen=True, slots=True)
class TableView:
    """A table with its columns."""

    name: str
    words: str
    is_public: bool
    is_open: bool
    columns: tuple[ColumnView, ...]
    rows_words: str


@dataclass(frozen=True, slots=True)
class SchemaView:
    """The tables of a data set."""

    tables: tuple[TableView, ...]
    unit_words: str


def schema_view(schema: Mapping[str, Any]) -> SchemaView:
    """Return the view of a schema, as `ServedData.schema` gives it."""
    unit = unit_of(schema)
    tables = [_table(table, is_open=place == 0, unit=unit) for place, table in enumerate(schema["tables"])]
    first = next((table for table in schema["tables"] if not table["public"]), None)
    words = "Each row is protected." if unit == "row" else "A person is protected with all of their rows."
    if first is not None and unit != "row":
        words += f" At most {counted(first['rows_per_unit'], 'row')} of each count."
    return SchemaView(tuple(tables), words)


def unit_of(schema: Mapping[str, Any]) -> str:
    """Return what is protected: "person" or "row"."""
    return "row" if schema["protects"] == "row" else "person"


def _table(table: Mapping[str, Any], *, is_open: bool, unit: str) -> TableView:
    columns = [ColumnView(one["column"], column_words(one)) for one in table["columns"]]
    if table["unit"]:
        about = "counts people, is never shown"
        columns.insert(0, ColumnView(table["unit"], about))
    kind = "public" if table["public"] else "private"
    number = "all columns" if table["all_columns"] else counted(len(columns), "column")
    rows = "" if table["public"] else f"{counted(table['rows_per_unit'], 'row')} of each {unit} at most"
    return TableView(table["table"], f"{kind} · {number}", table["public"], is_open, tuple(columns), rows)


def column_words(column: Mapping[str, Any]) -> str:
    """Return the declared values of a column in words."""
    values = column["values"]
    if values is not None:
        shown = ", ".join(map(str, values[:VALUES_SHOWN]))
        words = shown if len(values) <= VALUES_SHOWN else f"{shown} and {len(values) - VALUES_SHOWN:,} more"
    elif column["type"] == "bool":
        words = "yes or no"
    elif column["type"] == "text":
        words = "text; groups are selected, needs δ"
    elif column["type"] == "number":
        step = column["step"]
        words = f"{_end(column['low'])} to {_end(column['high'])}"
        words += "" if step == 1 else f", steps of {step:g}"
    else:
        words = f"{column['type']}, {column['low']} to {column['high']}"
    missing = column["missing_counts_as"]
    return words if missing is None else f"{words}; missing counts as {_end(missing)}"


def _end(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    is_year = isinstance(value, int) and 1000 <= value < 10_000
    return str(value) if is_year or not isinstance(value, int | float) else number_text(value)


def examples_for(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return questions to begin with, which use this schema's own names."""
    found: list[str] = []
    for table in schema["tables"]:
        if table["public"]:
            continue
        name = quoted(table["table"])
        keys = [
            quoted(one["column"])
            for one in table["columns"]
            if one["keys"] == "declared" and one["type"] != "number"
        ]
        numbers = [
            quoted(one["column"])
            for one in table["columns"]
            if one["type"] == "number" and one["missing_counts_as"] is not None
        ] or [quoted(one["column"]) for one in table["columns"] if one["type"] == "number"]
        texts = [
            quoted(one["column"])
            for one in table["columns"]
            if one["keys"] == "selected" and one["type"] == "text"
        ]
        if keys:
            found.append(f"SELECT {keys[0]}, COUNT(*) AS {name}\nFROM {name}\nGROUP BY {keys[0]}")
        else:
            found.append(f"SELECT COUNT(*) AS n\nFROM {name}")
        if keys and numbers:
            plain = numbers[0].strip('"')
            found.append(
                f"SELECT {keys[0]}, AVG({numbers[0]}) AS mean_{plain}\nFROM {name}\nGROUP BY {keys[0]}"
            )
        if numbers:
            found.append(f"SELECT MEDIAN({numbers[0]}) AS middle_{numbers[0].strip(chr(34))}\nFROM {name}")
        if texts:
            found.append(f"SELECT {texts[0]}, COUNT(*) AS {name}\nFROM {name}\nGROUP BY {texts[0]}")
    return tuple(found[:6])


def quoted(name: str) -> str:
    """Return a name for SQL, in quotation marks where it needs them."""
    return (
        name
        if name.isidentifier() and name.isascii() and name == name.lower()
        else '"' + name.replace('"', '""') + '"'
    )
