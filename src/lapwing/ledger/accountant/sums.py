"""Many exact sums of whole numbers, eight to a row, each in two machine words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = slice | NDArray[np.intp]
Whole = NDArray[np.int64]

LIMB = 31
MASK = (1 << LIMB) - 1
TOP = (1 << LIMB) - 1


class Growing:
    """Rows of numbers that grow at the end."""

    def __init__(self, kind: type[np.generic], width: int = 0) -> None:
        self._all: NDArray[Any] = np.zeros((16, width) if width else 16, kind)
        self.count = 0

    def extend(self, values: Any, count: int) -> int:
        """Append `count` rows, all alike or one by one; where they begin."""
        end = self.count + count
        if end > len(self._all):
            grown = np.zeros((max(end, len(self._all) * 3 // 2), *self._all.shape[1:]), self._all.dtype)
            grown[: self.count] = self._all[: self.count]
            self._all = grown
        start, self.count = self.count, end
        self._all[start:end] = values
        return start

    @property
    def rows(self) -> NDArray[Any]:
        """All rows, to read and to change."""
        return self._all[: self.count]


class Sums:
    """Rows of eight sums. Up to 2^31 numbers, each below 2^63, add up without error."""

    def __init__(self, width: int, count: int = 0) -> None:
        self._low, self._high = Growing(np.uint32, width), Growing(np.int64, width)
        self._low.extend(0, count)
        self._high.extend(0, count)

    def append(self, count: int, start: Sequence[int]) -> None:
        """`count` further rows, all starting with these sums."""
        low, high = limbs(start)
        self._low.extend(low, count)
        self._high.extend(high, count)

    def add(self, rows: Rows, low: Whole, high: Whole) -> None:
        """Add numbers, given in limbs, to rows (each named once)."""
        sums = low + self._low.rows[rows]
        self._high.rows[rows] += high + (sums >> LIMB)
        self._low.rows[rows] = sums & MASK

    def put(self, rows: Rows, sums: Whole) -> None:
        """Set rows to these sums."""
        self._low.rows[rows] = sums & MASK
        self._high.rows[rows] = sums >> LIMB

    def packed(self) -> list[str]:
        """All sums, as texts."""
        return [self._low.rows.astype("<u4").tobytes().hex(), self._high.rows.astype("<i8").tobytes().hex()]

    def unpack(self, packed: list[str], width: int) -> None:
        """Append the rows that `packed` gave."""
        for words, kind, text in zip((self._low, self._high), ("<u4", "<i8"), packed, strict=True):
            rows = np.frombuffer(bytes.fromhex(text), kind).reshape(-1, width)
            words.extend(rows, len(rows))

    def below(self, rows: Rows) -> Whole:
        """The sums as one word each; for those of 2^62 and more, some number not far below that."""
        value: Whole = (np.minimum(self._high.rows[rows], TOP) << LIMB) | self._low.rows[rows]
        return value

    def exactly(self, row: int) -> tuple[int, ...]:
        """The sums of one row."""
        return joined(self._low.rows[row], self._high.rows[row])


def limbs(numbers: Sequence[int]) -> tuple[Whole, Whole]:
    """Whole numbers, each in two words."""
    low = np.array([number & MASK for number in numbers], np.int64)
    return low, np.array([number >> LIMB for number in numbers], np.int64)


def joined(low: NDArray[Any], high: NDArray[Any]) -> tuple[int, ...]:
    """Whole numbers from their two words."""
    return tuple([(top << LIMB) + rest for rest, top in zip(low.tolist(), high.tolist(), strict=True)])
