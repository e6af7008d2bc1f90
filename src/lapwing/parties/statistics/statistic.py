"""What members compute together: vectors of whole numbers, summed over members, and what is made of them.

A statistic is the same at every member but for its private rows. It comes as *blocks* of cells; each block
gets noise of one scale. Most statistics take one *stage*, which is one sum; a quantile is searched in
several, all with the same blocks, and each stage asks from what earlier ones have opened.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.exact import positive, settle, whole
from lapwing.mechanisms import RandomizedResponse, SummedGaussian, SummedLaplace
from lapwing.parties.protocols.protocol import LARGEST_VALUE, Opened
from lapwing.query.answering.answer import Answer
from lapwing.query.answering.estimate import Col, Rows
from lapwing.query.joint import JointQuestion

Noise = SummedLaplace | SummedGaussian | RandomizedResponse  # in one block of an opened sum
Ints = NDArray[np.int64]
MOST_CELLS = 20_000_000


@dataclass(frozen=True, slots=True)
class Block:
    """Cells that get noise of one scale.

    Claim    removing one unit at one member moves that member's cells of this block by at most `l1` in L1
             and √`l2_squared` in L2. `weight` says how much its error matters, per unit of `l1`.
    Test     tests/parties/statistics/test_neighbours.py
    """

    label: str
    length: int
    l1: int
    l2_squared: int
    weight: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        settle(
            self,
            length=whole(self.length, "length", at_least=1),
            l1=whole(self.l1, "l1", at_least=1),
            l2_squared=whole(self.l2_squared, "l2_squared", at_least=1),
            weight=positive(self.weight, "weight"),
        )
        if self.length > MOST_CELLS:
            raise BadParameter("length", f"must be at most {MOST_CELLS:,}")
        if self.l1 > LARGEST_VALUE or self.l2_squared > self.l1 * self.l1:
            raise BadParameter("l2_squared", "must be at most l1², and l1 at most 2^52")

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a consortium's document."""
        return {
            "label": self.label,
            "length": self.length,
            "l1": self.l1,
            "l2_squared": self.l2_squared,
            "weight": str(self.weight),
        }


class Statistic(ABC):
    """Something that members compute together, bound to one member's data (or to none, to plan it)."""

    @property
    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """What was asked, as plain values: `statistic_of(spec, data)` gives the same statistic."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is, in a line."""

    @property
    @abstractmethod
    def meaning(self) -> str:
        """A digest of all that must be alike at all members, though it stands in their own policies."""

    @property
    @abstractmethod
    def blocks(self) -> tuple[Block, ...]:
        """Of every stage."""

    @property
    def stages(self) -> int:
        """How many sums are opened, one after the other. Each costs as much as one."""
        return 1

    @property
    def length(self) -> int:
        """How many numbers a member brings to a stage."""
        return sum(block.length for block in self.blocks)

    @property
    def why_not_local(self) -> str:
        """Why rows cannot randomize themselves (protocol L); "" if they can."""
        return "a policy's account is for data of which people can be added or removed"

    @property
    def source(self) -> JointQuestion | None:
        """The question whose accounts are charged; None where the data is an array."""
        return None

    @abstractmethod
    def exact(self, stage: int, earlier: Sequence[Opened]) -> Ints:
        """This member's numbers, without noise: private, and read only after the charge.

        `earlier` are the sums of the stages before, which everybody knows. Within ±2^52.
        """

    @abstractmethod
    def answer(
        self, opened: Sequence[Opened], noises: Sequence[Sequence[Noise]], *, confidence: Fraction
    ) -> JointAnswer:
        """What the opened sums of all stages come to. `noises[stage][block]` is the noise that is in them.

        It is post-processing, and costs nothing.
        """

    def _answered(
        self, rows: Rows, opened: Sequence[Opened], confidence: Fraction, notes: tuple[str, ...]
    ) -> JointAnswer:
        least = min(len(one.contributors) for one in opened)
        return JointAnswer(self.title, rows, float(confidence), least, notes)


@dataclass(frozen=True, repr=False)
class JointAnswer:
    """A released answer. `low` and `high` stand beside each value that has noise.

    `footer` and `table` are those that `lapwing.cli.show_query.show_rows` prints.
    """

    title: str
    rows: Rows
    confidence: float
    contributors: int  # how many members' values are in it; the least of all stages
    notes: tuple[str, ...] = field(default=())

    @property
    def columns(self) -> list[Col]:
        """The columns of the answer."""
        return self.rows.columns

    def __len__(self) -> int:
        return self.rows.length

    def column(self, name: str) -> Col:
        """The column of this name."""
        for column in self.columns:
            if column.name == name:
                return column
        raise BadParameter("column", f"there is none called {name!r}"[:80])

    def _plain(self) -> Answer:
        return Answer(self.rows, "", self.confidence, None)

    def table(self, most: int | None = 20) -> tuple[list[str], list[list[str]]]:
        """Headings and cells as people read them."""
        return self._plain().table(most)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        columns = self._plain().to_json()["columns"]
        return {
            "title": self.title,
            "columns": columns,
            "confidence": self.confidence,
            "contributors": self.contributors,
            "notes": list(self.notes),
        }

    def to_bytes(self) -> bytes:
        """As one line of JSON."""
        return json.dumps(self.to_json(), ensure_ascii=False, sort_keys=True).encode()

    def footer(self) -> list[str]:
        """What is to be known about it."""
        return [
            f"Intervals hold with {self.confidence:.4g} confidence each; the sum of {self.contributors} "
            "members' numbers.",
            *self.notes,
        ]

    def __str__(self) -> str:
        headings, cells = self.table()
        widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
        lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)).rstrip()
                 for row in [headings, *cells]]  # fmt: skip
        more = [f"… {len(self) - len(cells):,} more rows"] if len(self) > len(cells) else []
        return "\n".join([self.title, *lines, *more, *self.footer()])

    __repr__ = __str__


def fitting(values: NDArray[Any]) -> Ints:
    """Whole numbers of any size, clamped to ±2^52.

    Clamping is 1-Lipschitz: a unit moves clamped numbers no further than it moves the others.
    """
    if values.dtype == object:
        values = np.array([min(max(int(one), -LARGEST_VALUE), LARGEST_VALUE) for one in values])
    clamped: Ints = np.clip(values, -LARGEST_VALUE, LARGEST_VALUE).astype(np.int64)
    return clamped
