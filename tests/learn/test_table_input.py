"""No cell changes how another is read: not one text among numbers, nor one missing value beside them."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from lapwing.errors import BadValue
from lapwing.learn.table_input import (
    UNKNOWN,
    checked_ids,
    checked_units,
    one_row_each,
    read_codes,
    read_column,
    read_numbers,
    read_table,
)
from support.cases import each

HUGE = 2**53 + 1  # no float
WANTED = "must have another form"


class Failing:
    """Whose own code fails, and tells something."""

    def __float__(self) -> float:
        raise RuntimeError("Alice")

    def __hash__(self) -> int:
        raise RuntimeError("Alice")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("Alice")


ODD: list[Any] = [
    "?", None, math.nan, 0.5, 1j, np.complex128(1), True, HUGE, 10**400, [1], {}, np.zeros(1), pd.NA,
    pd.NaT, Failing(), Decimal("sNaN"), b"1", np.longdouble("1e4000"), np.datetime64("2020"),
]  # fmt: skip
PLACES = {0: 0, 1: 1, HUGE: 2, "a": 3}


def read(cells: Any) -> list[tuple[Any, int]]:
    """Each cell as a number (NaN as None) and as a place."""
    numbers = [None if math.isnan(number) else number for number in read_numbers(cells).tolist()]
    return list(zip(numbers, read_codes(cells, PLACES).tolist(), strict=True))


@each("odd", ODD)
@each("clean", [[0, 1, HUGE], [True, False], [0.25, 1.0], ["a", "1"]])
def test_one_odd_cell_changes_no_other(clean: list[Any], odd: Any) -> None:
    together = [*clean, odd]
    assert read(read_column(together, WANTED))[:-1] == read(read_column(clean, WANTED))
    tables = [read_table([[cell] for cell in cells], WANTED)[:, 0] for cells in (together, clean)]
    assert read(tables[0])[:-1] == read(tables[1])
    series = [read_column(pd.Series(cells, dtype=object), WANTED) for cells in (together, clean)]
    assert read(series[0])[:-1] == read(series[1])


@each("clean", [[0, 1, HUGE], [True, False, True], [0.25, 1.0, 3.0], ["a", "1", "b"]])
@each("kind", [list, pd.Series, pa.array, pl.Series, torch.tensor])
def test_a_column_reads_the_same_in_every_container(clean: list[Any], kind: Any) -> None:
    if kind is torch.tensor and isinstance(clean[0], str):
        return
    given = kind(clean)
    if kind is torch.tensor and given.dtype == torch.float32:
        given = given.to(torch.float64)
    array = np.array(clean)
    assert read(read_column(given, WANTED)) == read(read_column(array, WANTED)) == read(array)


def test_a_missing_cell_in_a_nullable_column_changes_no_other() -> None:
    for kind in ("Int64", "int64[pyarrow]"):
        known = read_column(pd.Series([HUGE, 1], dtype=kind), WANTED)
        missing = read_column(pd.Series([HUGE, 1, None], dtype=kind), WANTED)
        assert read(known) == read(missing)[:-1] == [(float(HUGE), 2), (1.0, 1)]
    assert read(read_column(pa.array([HUGE, None]), WANTED)) == [(float(HUGE), 2), (None, UNKNOWN)]
    assert read(read_column(pl.Series([HUGE, None]), WANTED)) == [(float(HUGE), 2), (None, UNKNOWN)]


@each("kind", [pd.DataFrame, pa.table, pl.DataFrame])
def test_a_column_of_a_table_does_not_change_another(kind: Any) -> None:
    """Through one common type, whole numbers beside a float, or a missing one, would be floats."""
    table = read_table(kind({"a": [HUGE, 1], "b": [0.5, None], "c": ["x", "y"]}), WANTED)
    assert [read(table[:, at]) for at in range(3)] == [
        [(float(HUGE), 2), (1.0, 1)],
        [(0.5, UNKNOWN), (None, UNKNOWN)],
        [(None, UNKNOWN), (None, UNKNOWN)],
    ]


def test_a_table_of_one_type_is_not_copied_into_objects() -> None:
    assert read_table(pd.DataFrame({"a": [1.0], "b": [2.0]}), WANTED).dtype == np.float64


def test_arrays_stay_as_they_are() -> None:
    array = np.array([["1", "x"]])
    assert read_table(array, WANTED) is array


def test_what_is_no_number_is_missing_and_what_is_too_large_is_far() -> None:
    cells = read_column([10**400, -(10**400), Fraction(-(10**400)), "1e999", Failing(), [1]], WANTED)
    assert [number for number, _ in read(cells)] == [math.inf, -math.inf, -math.inf, math.inf, None, None]


@each("kind", ["longdouble", "f8", "f2", "u8", "i1", "?"])
def test_no_number_warns(kind: str) -> None:
    largest = np.array(["1e4000", "-1e4000", "nan"], np.longdouble)
    with np.errstate(all="ignore"):
        array = largest if kind == "longdouble" else largest.astype(kind)
    assert read_numbers(array).dtype == np.float64


@each("rows", [[[1, 2], [3]], [[1], 2], [1, 2], [], "text", 3, np.zeros(3), ["ab", "cd"], {"a": [1]}])
def test_a_table_of_another_form_is_refused_without_numbers(rows: Any) -> None:
    with pytest.raises(BadValue) as caught:
        read_table(rows, WANTED)
    assert not any(letter.isdigit() for letter in str(caught.value))


@each("values", [[[1], [2]], np.zeros((2, 2)), 3, "text", None])
def test_a_column_of_another_form_is_refused(values: Any) -> None:
    with pytest.raises(BadValue, match=WANTED):
        read_column(values, WANTED)


def test_a_table_of_one_column_is_a_column() -> None:
    assert read_column(np.zeros((3, 1)), WANTED).shape == (3,)
    assert read_column(pd.DataFrame({"a": [1, 2]}), WANTED).tolist() == [1, 2]


@each(
    "units",
    [[1, 2, 3], [1, 2, None], np.zeros(3), np.zeros((3, 1), int), np.arange(2), np.array(["a", "b", "c"]),
     pd.Series([1, 2, 3], dtype="Int64"), pa.array([1, 2, 3])],
)  # fmt: skip
def test_units_are_arrays_of_whole_numbers(units: Any) -> None:
    """Else whether there is an error would depend on one cell."""
    with pytest.raises(BadValue, match="array of whole numbers"):
        checked_units(units, 3)


@each(
    "ids",
    [["ann", "ben", "ann"], ["ann", None, "ann"], np.array(["a", "b", "a"]), [1, "1", True],
     pd.Series([1, 2, None], dtype="Int64"), pa.array(["x", None, "x"]), np.array([3, 1, 3]),
     [b"1", UUID(int=1), object()]],
)  # fmt: skip
def test_ids_are_whole_numbers_and_texts(ids: Any) -> None:
    """One row of each id is drawn, and none of a cell that is no id."""
    given = checked_ids(ids, 3)
    assert given is not None
    known = [cell for cell in given.tolist() if type(cell) in (str, int, bytes, UUID)]
    chosen = [given[row] for row in one_row_each(given, 3)]
    assert len(chosen) == len(set(known))
    assert set(chosen) == set(known)


@each(
    "ids",
    [np.zeros(3), np.zeros((3, 1, 1), int), np.arange(2), [[1], [2], [3]], 3, pd.Series([1, 2, None])],
)
def test_ids_of_another_form_are_refused(ids: Any) -> None:
    with pytest.raises(BadValue, match="whole numbers or texts"):
        checked_ids(ids, 3)


def test_each_row_of_a_text_id_is_equally_likely() -> None:
    """Each of 2,000 ids draws its first row with probability ½: beyond 6 σ once in 5·10^8 runs."""
    ids = checked_ids([f"p{n // 2}" for n in range(4000)], 4000)
    first = (one_row_each(ids, 4000) % 2 == 0).sum()
    assert abs(first - 1000) < 6 * 500**0.5


def test_units_of_a_series_are_read() -> None:
    found = checked_units(pd.Series([3, 1, 3]), 3)
    assert found is not None
    assert found.tolist() == [3, 1, 3]
    assert checked_units(None, 3) is None
