"""Cells of tables, columns and lists as they were given: no cell changes how another is read.

Claim    what becomes of a cell depends on that cell, and on types that were there before it.
Because  arrays stay as they are; all else is read cell by cell. (`np.asarray` of a list, or of a table with
         several columns, picks one type by looking at all cells: a single text makes texts of everybody's
         numbers, a single missing value makes floats of them.) A cell that cannot be read is missing.
Test     tests/learn/test_cells.py
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadValue

Wholes = NDArray[np.int64]
NUMBERS = "biuf"  # kinds of numpy's types
UNKNOWN = -1


def plain_array(values: Any) -> NDArray[Any] | None:
    """An array, or a column of plain numbers, as it is. None of anything else."""
    own = getattr(values, "dtype", None)
    plain = isinstance(own, np.dtype) and own.kind in NUMBERS
    return np.asarray(values) if plain or isinstance(values, np.ndarray) else None


def read_column(values: Any, wanted: str) -> NDArray[Any]:
    """Cells in one dimension: an array, a list, a column, or a table of one column."""
    found = plain_array(values)
    if found is None and _columns(values) is not None:
        found = read_table(values, wanted)
    if found is None:
        cells = _listed(values)
        # One list in a cell is a missing value. A list of nothing but lists has another form.
        if cells and all(isinstance(cell, list | tuple | np.ndarray) for cell in cells):
            raise BadValue(wanted)
        found = _other(values, wanted) if cells is None else _objects(cells, len(cells))
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1:
        raise BadValue(wanted)
    return found


def read_table(values: Any, wanted: str) -> NDArray[Any]:
    """Cells in rows and columns: an array, a table, or a list of rows."""
    found, columns = plain_array(values), _columns(values)
    if found is None and columns is not None:
        return _beside([read_column(column, wanted) for column in columns], len(values))
    if found is None:
        rows = _listed(values)
        found = _stacked(rows, wanted) if rows is not None else _other(values, wanted)
    if found.ndim != 2:
        raise BadValue(wanted)
    return found


def read_numbers(cells: NDArray[Any]) -> NDArray[np.float64]:
    """As floats, each by itself. What is no number is NaN: an error would tell that it is there."""
    with np.errstate(all="ignore"):
        if cells.dtype.kind in NUMBERS:
            return cells.astype(np.float64)
        return np.array([_number(cell) for cell in cells.tolist()], dtype=np.float64)


def read_codes(cells: NDArray[Any], place: Mapping[Hashable, int]) -> Wholes:
    """The place of each cell, by itself; `UNKNOWN` if it has none."""
    return np.array([_place(cell, place) for cell in cells.tolist()], dtype=np.int64)


def checked_units(units: Any, rows: int) -> Wholes | None:
    """Whose row each is. None: each row is another's. Only the form is looked at.

    Lists are refused: a cell without a unit would be one of nobody's, or of a unit that it is not.
    """
    if units is None:
        return None
    given = plain_array(units)
    if given is None or given.shape != (rows,) or given.dtype.kind not in "iu":
        raise BadValue("units must be an array of whole numbers, one for each row")
    return given


def _number(cell: Any) -> float:
    try:
        # An array of one number, and a complex one, would be read with a warning, which tells of them.
        return math.nan if isinstance(cell, np.ndarray | np.complexfloating) else float(cell)
    except OverflowError:
        return -math.inf if isinstance(cell, int | Fraction) and cell < 0 else math.inf
    except Exception:  # whatever a cell's own code raises
        return math.nan


def _place(cell: Any, place: Mapping[Hashable, int]) -> int:
    try:
        return place.get(cell, UNKNOWN)
    except Exception:  # a list, or whatever a cell's own code raises
        return UNKNOWN


def _columns(values: Any) -> list[Any] | None:
    """The columns of a table of pandas, polars or pyarrow."""
    if hasattr(values, "iloc") and hasattr(values, "columns"):
        return [values.iloc[:, at] for at in range(values.shape[1])]
    if hasattr(values, "get_columns"):
        return list(values.get_columns())
    if hasattr(values, "column_names"):
        return list(values.columns)
    return None


def _listed(values: Any) -> list[Any] | None:
    """The cells of a column, or the rows of a list."""
    for name in ("to_pylist", "to_list", "tolist"):  # of pyarrow, of pandas and polars, of arrays
        if hasattr(values, name):
            found = getattr(values, name)()
            return found if isinstance(found, list) else None
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return list(values)
    return None


def _other(values: Any, wanted: str) -> NDArray[Any]:
    """What says itself how to become an array has one type already."""
    if not hasattr(values, "__array__"):
        raise BadValue(wanted)
    return np.asarray(values)


def _objects(cells: Any, count: int) -> NDArray[Any]:
    return np.fromiter(cells, dtype=object, count=count)


def _stacked(rows: list[Any], wanted: str) -> NDArray[Any]:
    listed = [_listed(row) for row in rows]
    if not listed or any(row is None for row in listed):
        raise BadValue(wanted)
    full: list[list[Any]] = [row for row in listed if row is not None]
    if len({len(row) for row in full}) > 1:
        raise BadValue("every row must have as many cells as the others")
    return _objects(chain.from_iterable(full), len(full) * len(full[0])).reshape(len(full), len(full[0]))


def _beside(columns: list[NDArray[Any]], rows: int) -> NDArray[Any]:
    """Columns in one array, of their type if it is one and the same."""
    types = {column.dtype for column in columns}
    table = np.empty((rows, len(columns)), dtype=types.pop() if len(types) == 1 else object)
    for at, column in enumerate(columns):
        table[:, at] = column
    return table
