"""Reading tables, columns and lists cell by cell: no cell changes how another cell is read.

Claim    the value of a cell depends on that cell, and on types that were fixed before it was read.
Because  arrays are used as they are, and everything else is read cell by cell. (`np.asarray` of a list, or
         of a table with several columns, picks one type for all cells: a single text turns everybody's
         numbers into texts, and a single missing value turns them into floats.) A cell that cannot be read
         is missing.
Test     tests/learn/test_table_input.py
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from itertools import chain
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lapwing.core.noise import permutation
from lapwing.errors import BadValue

Cells = NDArray[Any]
Floats = NDArray[np.float64]
Wholes = NDArray[np.int64]
Truths = NDArray[np.bool_]
NUMBERS = "biuf"  # type kinds of numpy
UNKNOWN = -1
Values = ArrayLike | Sequence[Any]
_UNSURE = 2.0**-48


class Rounding(Enum):
    """The direction in which a number may be rounded."""

    UP = "up"
    DOWN = "down"
    NEAREST = "either, by at most one half"


def plain_array(values: Any) -> Cells | None:
    """Return an array, or a column of plain numbers, without changes; None for any other input."""
    own = getattr(values, "dtype", None)
    plain = isinstance(own, np.dtype) and own.kind in NUMBERS
    return np.asarray(values) if plain or isinstance(values, np.ndarray) else None


def read_column(values: Any, wanted: str) -> Cells:
    """Return the cells of an array, a list, a column, or a table with one column, in one dimension.

    Raises BadValue with the text `wanted` for any other input.
    """
    cells = plain_array(values)
    if cells is None and _columns(values) is not None:
        cells = read_table(values, wanted)
    if cells is None:
        listed = _listed(values)
        # A list in a single cell is a missing value. If all cells are lists, the input has two dimensions.
        if listed and all(isinstance(cell, list | tuple | np.ndarray) for cell in listed):
            raise BadValue(wanted)
        cells = _other(values, wanted) if listed is None else np.fromiter(listed, object, len(listed))
    if cells.ndim == 2 and cells.shape[1] == 1:
        cells = cells[:, 0]
    if cells.ndim != 1:
        raise BadValue(wanted)
    return cells


def read_table(values: Any, wanted: str) -> Cells:
    """Return the cells of an array, a table, or a list of rows, in two dimensions.

    Raises BadValue with the text `wanted` for any other input.
    """
    cells, columns = plain_array(values), _columns(values)
    if cells is None and columns is not None:
        return beside([read_column(column, wanted) for column in columns], len(values))
    if cells is None:
        rows = _listed(values)
        cells = _stacked(rows, wanted) if rows is not None else _other(values, wanted)
    if cells.ndim != 2:
        raise BadValue(wanted)
    return cells


def read_numbers(cells: Cells) -> Floats:
    """Convert each cell to a float by itself.

    A cell that is no number becomes NaN. An error would reveal that such a cell exists.
    """
    with np.errstate(all="ignore"):
        if cells.dtype.kind in NUMBERS:
            return cells.astype(np.float64)
        return np.array([_number(cell) for cell in cells.tolist()], dtype=np.float64)


def read_codes(cells: Cells, place: Mapping[Hashable, int]) -> Wholes:
    """Return the code of each cell, or `UNKNOWN` if the mapping has none for it."""
    return np.array([_place(cell, place) for cell in cells.tolist()], dtype=np.int64)


def checked_units(units: Any, rows: int) -> Wholes | None:
    """Return the unit of each row, or None if each row is a unit of its own. Only the form is checked.

    Lists are refused: a cell without a unit would count as nobody's row, or as another unit's.
    """
    if units is None:
        return None
    given = plain_array(units)
    if given is None or given.shape != (rows,) or given.dtype.kind not in "iu":
        raise BadValue("units must be an array of whole numbers, one for each row")
    return given


def checked_ids(units: Any, rows: int) -> Cells | None:
    """Return the id of each row's unit, or None if each row is a unit of its own. Only the form is checked.

    An id is a whole number, a text, bytes or a UUID; 1 and "1" are two ids, and so are "Ann" and "ann". An
    array of floats is refused: large ids would be rounded to those of others.
    """
    if units is None:
        return None
    wanted = "units must be whole numbers or texts, one for each row"
    given = read_column(units, wanted)
    if given.shape != (rows,) or (rows and given.dtype.kind not in "iuOU"):
        raise BadValue(wanted)
    return given


def one_row_each(units: Cells | None, rows: int) -> Wholes:
    """Return the indexes of one row per unit, each row of a unit being equally likely.

    In a random order of all rows, the first row of a unit is uniform among its rows, whatever rows the
    other units have. If `units` is None, each row is a unit of its own. A row without an id is left out: it
    belongs to nobody.
    """
    if units is None:
        return np.arange(rows, dtype=np.int64)
    order = permutation(rows)
    if units.dtype.kind in "iu":
        return order[np.unique(units[order], return_index=True)[1]]
    numbers: dict[Hashable, int] = {}
    numbered = np.array([_unit_number(cell, numbers) for cell in units.tolist()], dtype=np.int64)
    distinct, first = np.unique(numbered[order], return_index=True)
    chosen: Wholes = order[first[distinct != UNKNOWN]]
    return chosen


def _unit_number(cell: Any, numbers: dict[Hashable, int]) -> int:
    """Return the number of an id, a new one if it was not met; `UNKNOWN` for a cell that is no id."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    if type(cell) not in (str, int, bytes, UUID):
        return UNKNOWN
    return numbers.setdefault(cell, len(numbers))


def value_rows(values: Values, kinds: str, wanted: str) -> Cells:
    """Return one cell per row. The type of an array is checked, never its values; lists have no type."""
    cells = read_column(values, wanted)
    if cells.size and cells.dtype.kind not in kinds + "O":
        raise BadValue(wanted)
    return cells if cells.size else np.zeros(0, object)


def real_rows(values: Values) -> Floats:
    """Return one number per row, and NaN for a cell that is no number."""
    return read_numbers(value_rows(values, NUMBERS, "there must be one number per row"))


def unit_means(wholes: Wholes, units: Wholes, rounding: Rounding) -> Wholes:
    """Return the mean of each unit's rows, as a whole number."""
    if not len(wholes):
        return wholes
    order = np.argsort(units, kind="stable")
    starts = np.flatnonzero(np.diff(units[order], prepend=-1))
    sums = np.add.reduceat(wholes[order], starts)
    counts = np.diff(starts, append=len(wholes))
    means: Wholes
    if rounding is Rounding.UP:
        means = -(-sums // counts)
    elif rounding is Rounding.DOWN:
        means = sums // counts
    else:
        means = (2 * sums + counts) // (2 * counts)
    return means


def in_steps(losses: Floats, step: Fraction, most: int, rounding: Rounding) -> Wholes:
    """Convert losses to whole numbers of steps in 0 .. most, rounded to one side exactly.

    A missing loss counts as the worst case: `most` if rounded up, otherwise 0. Where the float quotient
    cannot decide (the loss is near a multiple of the step), the exact quotient does.
    """
    up = rounding is Rounding.UP
    known = np.maximum(np.where(np.isnan(losses), np.inf if up else 0.0, losses), 0.0)
    with np.errstate(over="ignore", under="ignore"):
        quotients = np.minimum(known / float(step), most + 1.0)
    wholes = (np.ceil(quotients) if up else np.floor(quotients)).astype(np.int64)
    distance = np.abs(quotients - np.rint(quotients))
    unsure = (distance <= quotients * _UNSURE) & (known > 0) & (quotients < most + 0.5)
    if unsure.any():
        distinct, places = np.unique(known[unsure], return_inverse=True)
        exactly = [Fraction(loss) / step for loss in distinct.tolist()]
        settled = [math.ceil(q) if up else math.floor(q) for q in exactly]
        wholes[unsure] = np.array(settled, dtype=np.int64)[places]
    return np.clip(wholes, 0, most)


def _number(cell: Any) -> float:
    try:
        # Arrays of one number and complex numbers would cause a warning, which reveals them.
        return math.nan if isinstance(cell, np.ndarray | np.complexfloating) else float(cell)
    except OverflowError:
        return -math.inf if isinstance(cell, int | Fraction) and cell < 0 else math.inf
    except Exception:  # a cell's own code may raise anything
        return math.nan


def _place(cell: Any, place: Mapping[Hashable, int]) -> int:
    try:
        return place.get(cell, UNKNOWN)
    except Exception:  # a list cannot be hashed, and a cell's own code may raise anything
        return UNKNOWN


def column_names(values: Any) -> list[Any] | None:
    """Return the names of the columns of a table of pandas, polars or pyarrow; None for any other input."""
    if hasattr(values, "get_columns") or (hasattr(values, "iloc") and hasattr(values, "columns")):
        return list(values.columns)
    return list(values.column_names) if hasattr(values, "column_names") else None


def named_columns(values: Any, names: Sequence[str]) -> Any:
    """Return these columns of a table of pandas, polars or pyarrow, in this order. No cell is read.

    Raises BadValue if the table has no names, or not each of these once.
    """
    present = column_names(values)
    if present is None:
        raise BadValue("X has no column names: give a data frame, or declare columns as a sequence")
    for name in names:
        if present.count(name) != 1:
            raise BadValue(f"X has no column {name[:60]!r}, or two of that name")
    return values[list(names)] if hasattr(values, "iloc") else values.select(list(names))


def column_of(values: Any, given: Any, name: str) -> Any:
    """Return a column of a table, if it is given by its name; what is given otherwise."""
    if not isinstance(given, str):
        return given
    if (column_names(values) or []).count(given) != 1:
        raise BadValue(f"{name} is the text {given[:60]!r}, and X has no column of that name")
    return named_columns(values, [given])


def _columns(values: Any) -> list[Any] | None:
    """Return the columns of a table of pandas, polars or pyarrow; None for any other input."""
    if hasattr(values, "iloc") and hasattr(values, "columns"):
        return [values.iloc[:, at] for at in range(values.shape[1])]
    if hasattr(values, "get_columns"):
        return list(values.get_columns())
    if hasattr(values, "column_names"):
        return list(values.columns)
    return None


def _listed(values: Any) -> list[Any] | None:
    """Return the cells of a column, or the rows of a list; None for any other input."""
    for name in ("to_pylist", "to_list", "tolist"):  # of pyarrow, of pandas and polars, of arrays
        if hasattr(values, name):
            cells = getattr(values, name)()
            return cells if isinstance(cells, list) else None
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return list(values)
    return None


def _other(values: Any, wanted: str) -> Cells:
    """Convert an object that defines `__array__`: it has one type already."""
    if not hasattr(values, "__array__"):
        raise BadValue(wanted)
    return np.asarray(values)


def _stacked(rows: list[Any], wanted: str) -> Cells:
    listed = [_listed(row) for row in rows]
    if not listed or any(row is None for row in listed):
        raise BadValue(wanted)
    full: list[list[Any]] = [row for row in listed if row is not None]
    if len({len(row) for row in full}) > 1:
        raise BadValue("every row must have as many cells as the others")
    cells = np.fromiter(chain.from_iterable(full), object, len(full) * len(full[0]))
    return cells.reshape(len(full), len(full[0]))


def beside(columns: list[Cells], rows: int) -> Cells:
    """Combine columns into one array, with their type if they all have the same one."""
    types = {column.dtype for column in columns}
    table = np.empty((rows, len(columns)), dtype=types.pop() if len(types) == 1 else object)
    for at, column in enumerate(columns):
        table[:, at] = column
    return table
