"""From an engine's tables to what mechanisms get: every group in its place, no number cut off."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from lapwing.sql.policy.kinds import Numeric, Text
from lapwing.sql.question.bound_query import BoundQuery, Key, NoisySum, Spectrum, Sum
from lapwing.sql.question.expression import Reference
from lapwing.sql.question.relation import Scan
from lapwing.sql.reading.reader import lay_out

WHOLE = Numeric(Fraction(1), -2, 1)
X = Reference("x", WHOLE)
DECLARED = Key("x", X, range(-2, 2))
NAMED = Key("name", Reference("name", Text()), None)


def question(
    keys: tuple[Key, ...], *combinations: tuple[tuple[int, int], ...], spectra: int = 0
) -> BoundQuery:
    sums = 1 + max((place for one in combinations for _, place in one), default=0)
    return BoundQuery(
        Scan("t", (("x", WHOLE),), 1), keys, (tuple(range(len(keys))),),
        (Sum("rows"), *(Sum("sum", X) for _ in range(sums - 1))),
        tuple(NoisySum(f"{n}", one, 1, 1) for n, one in enumerate(combinations)),
        tuple(Spectrum("x", X, WHOLE, 1) for _ in range(spectra)), (), 1,
    )  # fmt: skip


def test_groups_without_rows_are_0_and_codes_outside_are_nobody() -> None:
    two = (DECLARED, Key("y", X, range(3)))
    rows = pa.table({"k0": [1, -2, -3, 2, 0], "k1": [2, 0, 0, 1, 3], "s0": [5, 7, 100, 100, 100]})
    values = lay_out(question(two, ((1, 0),)), 0, rows, []).values[:, 0].tolist()
    assert values == [7, *[0] * 10, 5]


@pytest.mark.parametrize("size", [2**60, 2**61, 2**62, 2**63 - 1])
def test_S4_combinations_are_exact_beyond_8_bytes(size: int) -> None:
    asked = question((), ((1, 0), (-3, 1)), ((4, 1),))
    exact = lay_out(asked, 0, pa.table({"s0": [size], "s1": [-size]}), []).values
    assert list(map(int, exact[0])) == [4 * size, -4 * size]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([Decimal(10**30), None], pa.decimal128(38, 0)),
        pa.array([2**64 - 1, 3], pa.uint64()),
        pa.array(["12", "-7"]),
    ],
)
def test_numbers_of_any_type_are_whole(column: Any) -> None:
    rows = pa.table({"k0": pa.array([0, 1], pa.int8()), "s0": column})
    expected = [0 if value is None else int(value) for value in column.to_pylist()]
    values = lay_out(question((DECLARED,), ((1, 0),)), 0, rows, []).values[:, 0]
    assert list(map(int, values)) == [0, 0, *expected]


def test_an_empty_table_is_nothing_everywhere() -> None:
    nothing = pa.table({"k0": pa.array([], pa.int32()), "s0": pa.array([], pa.int64())})
    assert lay_out(question((DECLARED,), ((1, 0),)), 0, nothing, []).values.tolist() == [[0]] * 4
    empty = pa.table({"k0": pa.array([], pa.string()), "s0": [0][:0], "units": pa.array([], pa.int64())})
    found = lay_out(question((NAMED,), ((1, 0),)), 0, empty, [])
    assert (found.values.shape, list(found.keys or ())) == ((0, 1), [])


def test_codes_are_counted_in_the_groups_of_their_keys() -> None:
    spectrum = pa.table({"k0": ["b", "a", "gone", "b"], "code": [1, 0, 1, -2], "n": [3, 4, 5, 6]})
    rows = pa.table({"k0": ["a", "b"], "s0": [4, 9], "units": [2, 1]})
    found = lay_out(question((NAMED,), ((1, 0),), spectra=1), 0, rows, [spectrum])
    assert found.keys == [("a",), ("b",)]
    assert found.units is not None
    assert found.units.tolist() == [2, 1]
    one = found.spectra[0]
    assert sorted(zip(one.cells.tolist(), one.codes.tolist(), one.rows.tolist(), strict=True)) == [
        (0, 0, 4), (1, -2, 6), (1, 1, 3),
    ]  # fmt: skip


def test_quantiles_alone_need_no_sums() -> None:
    spectrum = pa.table({"k0": [True, False], "code": [1, 0], "n": [3, 4]})
    found = lay_out(question((DECLARED,), spectra=1), 0, None, [spectrum])
    assert found.values.shape == (4, 0)
    assert found.spectra[0].cells.tolist() == [3, 2]


def test_rows_without_a_key_are_in_no_group() -> None:
    two = (DECLARED, Key("y", X, range(3)))
    rows = pa.table({"k0": [1, None, None, -2], "k1": [None, 2, None, 0], "s0": [100, 100, 100, 7]})
    codes = pa.table({"k0": [1, None, -2], "k1": [None, 0, 0], "code": [1, 1, 0], "n": [9, 9, 2]})
    found = lay_out(question(two, ((1, 0),), spectra=1), 0, rows, [codes])
    assert found.values[:, 0].tolist() == [7, *[0] * 11]
    assert (found.spectra[0].cells.tolist(), found.spectra[0].rows.tolist()) == ([0], [2])
    named = pa.table({"k0": ["a", None], "s0": [1, 100], "units": [1, 100]})
    found = lay_out(question((NAMED,), ((1, 0),)), 0, named, [])
    assert (found.keys, found.values.tolist()) == ([("a",)], [[1]])
    assert found.units is not None
    assert found.units.tolist() == [1]
