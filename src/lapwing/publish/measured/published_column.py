"""Published columns: the cells that values are counted in, and the dictionary that describes them.

Claim    the cell of a value depends on that value and on public declarations only, and every value has one.
Because  declared kinds have finitely many codes, fixed by the policy; bins are cut from the declared
         bounds; a missing value has a cell of its own, or its row is left out.
Test     tests/publish/measured/test_published_column.py

The dictionary of a bundle has each column's type, values or bins, missing values, and their origin.
"""

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

from lapwing.core.noise import uniform_int
from lapwing.errors import BadParameter
from lapwing.publish.models.domain import Domain
from lapwing.sql.policy.kinds import Choice, Kind, Truth, codes_of
from lapwing.sql.question.public_tables import code_of
from lapwing.sql.row_questions import CodedColumn, PrivateRows

Wholes = NDArray[np.int64]
PublishedValue = str | int | float | bool | date | datetime | None
MOST_CELLS = 1024  # of one column
USUAL_BINS = 32  # of a number or date with more values than `BINNED_BEYOND`
BINNED_BEYOND = 128
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PublishedColumn:
    """A column, the first code of its kind, the codes in a bin, and whether missing values are published.

    Without `has_unknown`, rows in which the value is missing are left out.
    """

    name: str
    kind: Kind
    first: int
    last: int
    width: int
    has_unknown: bool = True

    @property
    def bins(self) -> int:
        """The number of cells of known values."""
        return (self.last - self.first) // self.width + 1

    @property
    def size(self) -> int:
        """The number of cells."""
        return self.bins + self.has_unknown

    def cells(self, column: CodedColumn) -> Wholes:
        """Return the cell of each value. Values are clamped to the declared bounds."""
        inside = np.clip(column.codes, self.first, self.last)
        return np.where(column.known, (inside - self.first) // self.width, self.bins)

    def cell_of(self, value: object, key: str) -> int:
        """Return the cell of a declared value. Raises BadParameter, with a key of the release file."""
        code = code_of(value, self.kind)
        if not isinstance(code, int) or not self.first <= code <= self.last:
            raise BadParameter(key, f'is no value of "{self.name}"')
        return (code - self.first) // self.width

    def label(self, cell: int) -> str:
        """Return the value or the bin of a cell, as it is shown."""
        low, high = self.ends(cell)
        return shown_value(low) if low == high else f"{shown_value(low)} to {shown_value(high)}"

    def values(self, cells: Wholes) -> list[PublishedValue]:
        """Return a value for each cell; within a bin, each value has the same chance."""
        low = self.first + np.minimum(cells, self.bins - 1) * self.width
        wide = np.minimum(low + self.width - 1, self.last) - low + 1
        codes = low + (uniform_int(0, 1 << 53, len(cells)) % wide if self.width > 1 and len(cells) else 0)
        distinct = {int(code): self._value(int(code)) for code in np.unique(codes)}
        return [
            None if cell >= self.bins else distinct[int(code)]
            for cell, code in zip(cells.tolist(), codes.tolist(), strict=True)
        ]

    def ends(self, cell: int) -> tuple[PublishedValue, PublishedValue]:
        """Return the first and the last value of a cell; None of missing values."""
        if cell >= self.bins:
            return None, None
        low = self.first + cell * self.width
        return self._value(low), self._value(min(low + self.width - 1, self.last))

    def _value(self, code: int) -> PublishedValue:
        if isinstance(self.kind, Truth):
            return bool(code)
        assert not isinstance(self.kind, str)
        return self.kind.value(code)  # type: ignore[union-attr]  # kinds without values are refused before


def shown_value(value: PublishedValue) -> str:
    """Return a value as it stands in tables."""
    if value is None:
        return UNKNOWN
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def published_column(name: str, kind: Kind, *, bins: int | None, has_unknown: bool) -> PublishedColumn:
    """Return a published column of a declared kind.

    `bins` is the number of equal bins; None: one cell for each value, or the usual number for a long
    column.
    """
    codes = codes_of(kind)
    if codes is None:
        raise BadParameter(
            name, "has no declared values or bounds. Declare them in the policy, or leave it out"
        )
    if bins is not None and isinstance(kind, Choice | Truth):
        raise BadParameter(name, "has declared values, which are not cut into bins")
    if bins is None:
        bins = USUAL_BINS if len(codes) > BINNED_BEYOND and not isinstance(kind, Choice) else len(codes)
    if not 1 <= bins <= len(codes):
        raise BadParameter(name, f"bins must lie between 1 and {len(codes):,}, the number of its values")
    width = -(-len(codes) // bins)
    column = PublishedColumn(name, kind, codes[0], codes[-1], width, has_unknown)
    if column.size > MOST_CELLS:
        raise BadParameter(
            name, f"has {column.size:,} cells, and at most {MOST_CELLS:,} are possible. Use bins"
        )
    if has_unknown and UNKNOWN in map(column.label, range(column.bins)):
        raise BadParameter(
            name,
            f'has the declared value "{UNKNOWN}", which is the name of missing values. Set unknown = false '
            f"under [columns.{name}], or rename the value",
        )
    return column


def domain_of(columns: Sequence[PublishedColumn]) -> Domain:
    """Return the domain of published columns."""
    return Domain(tuple(column.name for column in columns), tuple(column.size for column in columns))


def coded_rows(columns: Sequence[PublishedColumn], rows: PrivateRows) -> Wholes:
    """Return the cells of each row, without rows that miss a value that must be known. Private."""
    kept = np.ones(len(rows), np.bool_)
    for column in columns:
        if not column.has_unknown:
            kept &= rows.columns[column.name].known
    by_column = [column.cells(rows.columns[column.name])[kept] for column in columns]
    return np.column_stack(by_column) if by_column else np.zeros((int(kept.sum()), 0), np.int64)


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
            return tuple(reads(value) if reads and value is not None else value for value in values)

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
            numbers = all(isinstance(end, int | float) for end in (value, low))
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
