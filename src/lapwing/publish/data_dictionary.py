"""The dictionary of a bundle: each column's type, values or bins, missing values, and their origin."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from hashlib import sha256
from html import escape
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.publish.measured.published_column import UNKNOWN, PublishedColumn, PublishedValue

FORM = "lapwing dictionary 1"
_TYPES = {bool: "truth", int: "whole number", float: "number", str: "text", date: "date", datetime: "time"}


def dictionary_of(columns: Sequence[PublishedColumn], rows_per_unit: int) -> dict[str, Any]:
    """Return the dictionary as JSON values."""
    return {
        "form": FORM,
        "rows_per_unit": rows_per_unit,
        "columns": [_described(column) for column in columns],
    }


def dictionary_bytes(columns: Sequence[PublishedColumn], rows_per_unit: int) -> bytes:
    """Return the dictionary as a file. Stored answers have its digest, so that no value can be renamed."""
    return (json.dumps(dictionary_of(columns, rows_per_unit), indent=1, ensure_ascii=False) + "\n").encode()


def dictionary_digest(columns: Sequence[PublishedColumn], rows_per_unit: int) -> str:
    """Return the SHA-256 digest of the dictionary's file."""
    return sha256(dictionary_bytes(columns, rows_per_unit)).hexdigest()


def _described(column: PublishedColumn) -> dict[str, Any]:
    ends = [column.ends(cell) for cell in range(column.bins)]
    kinds = {type(value) for pair in ends for value in pair}
    kind = float if kinds == {int, float} else kinds.pop()
    return {
        "name": column.name,
        "type": _TYPES[kind],
        "declared": "values and bounds follow from the policy and the release file, not from the data",
        "values_of_a_cell": column.width,
        "missing": f'the value "{UNKNOWN}" (an empty field)' if column.has_unknown else "row is left out",
        "cells": [
            {"label": column.label(cell), "low": _json(low), "high": _json(high)}
            for cell, (low, high) in enumerate(ends)
        ]
        + ([{"label": UNKNOWN, "low": None, "high": None}] if column.has_unknown else []),
    }


def _json(value: PublishedValue) -> str | int | float | bool | None:
    return value.isoformat() if isinstance(value, date) else value


def dictionary_text(dictionary: Mapping[str, Any]) -> str:
    """Return the dictionary for people, in Markdown."""
    rows = dictionary["rows_per_unit"]
    used = (
        "1 row of each person (or other privacy unit) was" if rows == 1 else f"{rows:,} rows of each were"
    )
    lines = ["# Columns", "", f"At most {used} used; others were left out."]
    for column in dictionary["columns"]:
        labels = [plain_text(cell["label"]) for cell in column["cells"]]
        shown = labels if len(labels) <= 24 else [*labels[:20], f"… and {len(labels) - 20} more"]
        lines += [
            "", f"## {plain_text(column['name'])}", "", f"- Type: {column['type']}; {column['declared']}.",
            f"- Missing: {column['missing']}.", f"- {len(labels):,} cells: {', '.join(shown)}.",
        ]  # fmt: skip
        if column["values_of_a_cell"] > 1:
            lines.append(
                f"- A bin has {column['values_of_a_cell']:,} values. Within a bin, each value is equally "
                "likely in the rows: only the bin was measured."
            )
    return "\n".join(lines) + "\n"


def plain_text(text: str) -> str:
    """Return a text for Markdown: on one line, without HTML and without table marks."""
    return escape(" ".join(text.split()), quote=False).replace("|", "&#124;")


@dataclass(frozen=True, slots=True)
class ColumnCells:
    """A column of a dictionary: the cell of each value, and the label of each cell."""

    name: str
    labels: tuple[str, ...]
    lows: tuple[Any, ...]
    highs: tuple[Any, ...]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> ColumnCells:
        """Return a column as a dictionary describes it."""
        reads = {"date": date.fromisoformat, "time": datetime.fromisoformat}.get(record["type"])
        cells = record["cells"]

        def ends(name: str) -> tuple[Any, ...]:
            values = [cell[name] for cell in cells]
            return tuple(reads(one) if reads and one is not None else one for one in values)

        return cls(record["name"], tuple(cell["label"] for cell in cells), ends("low"), ends("high"))

    @property
    def size(self) -> int:
        """The number of cells."""
        return len(self.labels)

    def cell_of(self, value: Any) -> int:
        """Return the cell of a value, or of a label. Raises BadParameter if there is none."""
        for cell, (low, high) in enumerate(zip(self.lows, self.highs, strict=True)):
            if value is None or low is None:
                if value is low:
                    return cell
                continue
            numbers = all(isinstance(one, int | float) for one in (value, low))
            if numbers:
                is_same = isinstance(value, bool) == isinstance(low, bool)
            else:
                is_same = type(value) is type(low)
            if is_same and low <= value <= high:
                return cell
        if isinstance(value, str) and value in self.labels:
            return self.labels.index(value)
        raise BadParameter(self.name, "has no such value. See dictionary.md")

    def cells(self, column: pa.ChunkedArray) -> NDArray[np.int64]:
        """Return the cell of each value of a table's column. Raises BadParameter if a value has none."""
        coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.combine_chunks()
        places = np.array([self.cell_of(value) for value in coded.dictionary.to_pylist()], np.int64)
        return places[np.asarray(coded.indices, np.int64)] if len(column) else np.zeros(0, np.int64)


def columns_of(dictionary: Mapping[str, Any]) -> tuple[ColumnCells, ...]:
    """Return the columns of a dictionary."""
    return tuple(ColumnCells.of(record) for record in dictionary["columns"])
