"""What an engine found, laid out for the mechanisms: every declared group, every sum combined.

The numbers here are private. They go to `noise` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lapwing.query.answering.noising import Counted, Exact, KeyTuple
from lapwing.query.answering.shares import cells_of, is_declared
from lapwing.query.language.question import Question

_FITS = 1 << 61  # beyond, sums are Python's integers
Ints = NDArray[np.int64]


def lay_out(question: Question, grouping: int, sums: pa.Table | None, spectra: Sequence[pa.Table]) -> Exact:
    """One grouping of a question, from the tables that its statements gave."""
    count = len(question.sets[grouping])
    sums = None if sums is None else _known(sums, count)
    spectra = [_known(table, count) for table in spectra]
    if is_declared(question, grouping):
        return _declared(question, grouping, sums, spectra)
    assert sums is not None
    keys = _keys(sums, count)
    values = _combined(question, sums, len(keys), np.arange(len(keys)))
    places = {key: place for place, key in enumerate(keys)}
    counted = []
    for table in spectra:
        cells = [places.get(key, -1) for key in _keys(table, count)]
        counted.append(_counted(table, np.array(cells, dtype=np.int64)))
    return Exact(values, tuple(counted), keys, _whole(sums.column("units")))


def _known(table: pa.Table, count: int) -> pa.Table:
    """The groups whose keys are all known: rows without a key are in no group."""
    for n in range(count):
        column = table.column(f"k{n}")
        if column.null_count:
            table = table.filter(column.is_valid())
    return table


def _declared(
    question: Question, grouping: int, sums: pa.Table | None, spectra: Sequence[pa.Table]
) -> Exact:
    cells = cells_of(question, grouping)
    counted = tuple(_counted(table, _places(question, grouping, table)) for table in spectra)
    if sums is None:
        return Exact(np.zeros((cells, 0), dtype=np.int64), counted)
    return Exact(_combined(question, sums, cells, _places(question, grouping, sums)), counted)


def _places(question: Question, grouping: int, table: pa.Table) -> Ints:
    """The position of each row's group among all declared ones, or -1."""
    places = np.zeros(table.num_rows, dtype=np.int64)
    for n, key in enumerate(question.sets[grouping]):
        codes = question.keys[key].codes
        assert codes is not None
        offset = _whole(table.column(f"k{n}")) - codes.start
        outside = (offset < 0) | (offset >= len(codes)) | (places < 0)
        places = np.where(outside, -1, places * len(codes) + offset)
    return places


def _combined(question: Question, table: pa.Table, groups: int, places: Ints) -> NDArray[Any]:
    """[groups, numbers of all parts]: groups without rows are 0."""
    inside = places >= 0
    columns = [_numbers(table.column(f"s{n}")) for n in range(len(question.sums))]
    values: list[NDArray[Any]] = []
    for combination in (one for part in question.parts for one in part.numbers):
        wide = any(columns[place].dtype == object for _, place in combination)
        most = sum(abs(factor) * _size(columns[place]) for factor, place in combination)
        kind: Any = object if wide or most >= _FITS else np.int64
        column = np.zeros(groups, dtype=kind)
        total: NDArray[Any] = np.zeros(table.num_rows, dtype=kind)
        for factor, place in combination:
            total = total + factor * columns[place].astype(kind)
        column[places[inside]] = total[inside]
        values.append(column)
    if not values:
        return np.zeros((groups, 0), dtype=np.int64)
    return np.stack(values, axis=1)


def _size(column: NDArray[Any]) -> int:
    return max((abs(int(column.min())), abs(int(column.max()))), default=0) if len(column) else 0


def _numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    """Whole numbers of any width."""
    if pa.types.is_integer(column.type) and column.type != pa.uint64():
        return _whole(column)
    found = [0 if value is None else int(Decimal(value)) for value in column.to_pylist()]
    return np.array(found, dtype=object)


def _whole(column: pa.ChunkedArray) -> Ints:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if not pa.types.is_integer(column.type):
        return np.array([int(value) for value in column.to_pylist()], dtype=np.int64)
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _keys(table: pa.Table, count: int) -> list[KeyTuple]:
    columns = [table.column(f"k{n}").to_pylist() for n in range(count)]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def _counted(table: pa.Table, cells: Ints) -> Counted:
    inside = cells >= 0
    return Counted(cells[inside], _whole(table.column("code"))[inside], _whole(table.column("n"))[inside])
