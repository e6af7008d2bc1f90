from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.errors import BadParameter, BadValue
from lapwing.parties.protocols.secret_sharing import FIELD, Field

EDGES = [
    0,
    1,
    2,
    3,
    (1 << 30) - 1,
    1 << 30,
    1 << 31,
    (1 << 31) - 1,
    (1 << 60) - 1,
    1 << 60,
    FIELD - 2,
    FIELD - 1,
]
LARGE = st.one_of(st.sampled_from(EDGES), st.integers(0, FIELD - 1))


def elements(numbers: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(numbers, dtype=np.uint64)


@given(st.lists(st.tuples(LARGE, LARGE), min_size=1, max_size=50))
def test_arithmetic_is_that_of_whole_numbers(pairs: list[tuple[int, int]]) -> None:
    field = Field(FIELD)
    a, b = elements([x for x, _ in pairs]), elements([y for _, y in pairs])
    assert field.add(a, b).tolist() == [(x + y) % FIELD for x, y in pairs]
    assert field.subtract(a, b).tolist() == [(x - y) % FIELD for x, y in pairs]
    assert field.negate(a).tolist() == [-x % FIELD for x, _ in pairs]
    assert field.multiply(a, b).tolist() == [x * y % FIELD for x, y in pairs]
    factor = pairs[0][1]
    assert field.multiply(a, factor).tolist() == [x * factor % FIELD for x, _ in pairs]


def test_products_of_all_edges_are_right() -> None:
    field = Field(FIELD)
    a, b = (grid.ravel() for grid in np.meshgrid(elements(EDGES), elements(EDGES)))
    assert field.multiply(a, b).tolist() == [int(x) * int(y) % FIELD for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize("modulus", [2, 3, 5, 257, 2**31 - 1])
def test_small_primes_are_right_everywhere(modulus: int) -> None:
    field = Field(modulus)
    some = elements(sorted({n % modulus for n in (0, 1, 2, 3, 4, 100, modulus - 2, modulus - 1)}))
    a, b = (grid.ravel() for grid in np.meshgrid(some, some))
    pairs = [(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    assert field.add(a, b).tolist() == [(x + y) % modulus for x, y in pairs]
    assert field.subtract(a, b).tolist() == [(x - y) % modulus for x, y in pairs]
    assert field.multiply(a, b).tolist() == [x * y % modulus for x, y in pairs]


def test_totals_and_combinations_of_many_vectors_do_not_wrap() -> None:
    field = Field(FIELD)
    vectors = [elements([FIELD - 1, i]) for i in range(100)]
    assert field.total(vectors, 2).tolist() == [FIELD - 100, 4950]
    weights = [FIELD - 1 - i for i in range(100)]
    expected = [sum(w * int(v[k]) for w, v in zip(weights, vectors, strict=True)) % FIELD for k in (0, 1)]
    assert field.combine(weights, vectors).tolist() == expected
    assert field.total([], 2).tolist() == [0, 0]
    assert field.multiply(elements([12345]), field.inverse(12345)).tolist() == [1]


@given(st.lists(st.integers(-(1 << 60) + 1, (1 << 60) - 1), min_size=1))
def test_signed_numbers_come_back(numbers: list[int]) -> None:
    field = Field(FIELD)
    values = np.array(numbers, dtype=np.int64)
    assert field.to_signed(field.from_signed(values)).tolist() == numbers
    assert field.from_bytes(field.to_bytes(field.from_signed(values)), len(numbers)).tolist() == [
        n % FIELD for n in numbers
    ]


def test_signed_numbers_that_do_not_fit_wrap_round() -> None:
    values = np.array([-(1 << 63), (1 << 63) - 1], dtype=np.int64)
    assert Field(FIELD).from_signed(values).tolist() == [-(1 << 63) % FIELD, ((1 << 63) - 1) % FIELD]
    assert Field(5).to_signed(elements([0, 1, 2, 3, 4])).tolist() == [0, 1, 2, -2, -1]


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (b"", 1),
        (bytes(7), 1),
        (bytes(9), 1),
        (bytes(16), 1),
        (bytes(8), 2),
        (FIELD.to_bytes(8, "little"), 1),
        (b"\xff" * 8, 1),
        (bytes(8) + (FIELD + 1).to_bytes(8, "little"), 2),
    ],
)
def test_other_bytes_are_refused(data: bytes, length: int) -> None:
    with pytest.raises(BadValue):
        Field(FIELD).from_bytes(data, length)


@pytest.mark.parametrize("modulus", [0, 1, 4, 2**31 + 11, 2**61, 2**89 - 1, -3])
def test_other_moduli_are_refused(modulus: int) -> None:
    with pytest.raises(BadParameter):
        Field(modulus)
