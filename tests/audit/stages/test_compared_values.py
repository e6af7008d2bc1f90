"""Results are told apart by type, bits, order and state, and compare equal if all of these are."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from lapwing.audit.stages.compared_values import comparable
from lapwing.audit.stages.input_distances import NotComparable
from lapwing.core.laplace import Laplace

COUNT = Laplace.for_epsilon(1, l1=1)


class Kind(Enum):
    ONE = 1
    TWO = 2


class Slotted:
    __slots__ = ("__hidden",)

    def __init__(self, hidden: Any) -> None:
        self.__hidden = hidden


class Liar:
    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, _: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Named(dict[str, int]):
    pass


@dataclass
class Held:
    value: Any


def closed(value: Any) -> Callable[[], Any]:
    return lambda: value


def named(rows: int) -> Named:
    found = Named(a=1)
    found.rows = rows  # type: ignore[attr-defined]
    return found


def nan(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000000 + bits))[0])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.0, -0.0), (1, True), (1, 1.0), ([1], (1,)), ("a", b"a"), (nan(0), nan(1)), ({1}, frozenset({1})),
        (np.array([1, 2]), np.array([1.0, 2.0])), (np.array([[1]]), np.array([1])),
        (np.array([1 << 70], dtype=object), np.array([1 << 71], dtype=object)), (np.float64(1), 1.0),
        (np.int64(1), np.int32(1)), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({"a": 1}, OrderedDict(a=1)),
        (COUNT, Laplace.for_epsilon(2, l1=1)), (Kind.ONE, Kind.TWO), (Fraction(1), 1),
        (Slotted(1), Slotted(2)),
        (Liar(1), Liar(2)), (named(1), named(2)), (Held(Liar(1)), Held(Liar(2))), (closed(1), closed(2)),
        (partial(int, 1), partial(int, 2)), ([1].append, [2].append), (int, str), ([], [[]]),
        (torch.tensor([1.0]), torch.tensor([2.0])), (torch.tensor([1.0]), torch.tensor([1])),
        (Held(0).__eq__, Held(1).__eq__), (bytearray(b"a"), bytearray(b"b")),
    ],
)  # fmt: skip
def test_what_differs_is_told_apart(one: Any, other: Any) -> None:
    assert comparable(one) != comparable(other)
    assert comparable([one]) != comparable([other])


@pytest.mark.parametrize(
    "make",
    [
        lambda: [float("nan"), {"a": np.array([1.0, float("nan")])}],
        lambda: Laplace.for_epsilon(1, l1=1), lambda: Kind.ONE, lambda: Slotted([1, 2]), lambda: Liar(3),
        lambda: named(3), lambda: closed({"a": 1}), lambda: partial(closed, value=Fraction(1, 3)),
        lambda: {3, 1, 2}, lambda: torch.nn.Linear(2, 1, bias=False).requires_grad_(False).zero_grad,
        lambda: object, lambda: Held(None).__repr__,
    ],
)  # fmt: skip
def test_what_is_made_twice_is_equal(make: Callable[[], Any]) -> None:
    torch.manual_seed(1)
    first = comparable(make())
    torch.manual_seed(1)
    assert first == comparable(make())


def test_loops_end() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert comparable(loop) == comparable(loop)
    assert comparable(loop) != comparable([1, [1, []]])


def test_what_has_no_known_content_is_refused() -> None:
    for value in (iter([1]), memoryview(b"a"), object(), (one for one in "a")):
        with pytest.raises(NotComparable, match="has no content that replay knows"):
            comparable([value])
