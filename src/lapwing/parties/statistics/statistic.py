"""What members compute together: vectors of whole numbers, summed over members, and what is made of them.

A statistic is the same at every member but for its private rows. It comes as *blocks* of cells; each block
gets noise of one scale. Most statistics take one *stage*, which is one sum; a quantile is searched in
several, all with the same blocks, and each stage asks from what earlier ones have opened.

A vector of whole numbers that a member brings as it is: its bounds are declared, not enforced.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lapwing.core.exact import positive, set_fields, whole
from lapwing.core.gaussian import SummedGaussian
from lapwing.core.laplace import SummedLaplace
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.core.values import whole_values
from lapwing.errors import BadParameter, BadValue
from lapwing.parties.protocols.protocol import LARGEST_VALUE, OpenedSum
from lapwing.sql.answers import Answer
from lapwing.sql.estimates import AnswerColumn, AnswerRows
from lapwing.sql.intervals import half_width
from lapwing.sql.joint_questions import JointQuestion

Noise = SummedLaplace | SummedGaussian | RandomizedResponse  # in one block of an opened sum
Ints = NDArray[np.int64]
MOST_CELLS = 20_000_000


@dataclass(frozen=True, slots=True)
class CellBlock:
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
        set_fields(
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
    def blocks(self) -> tuple[CellBlock, ...]:
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
    def exact(self, stage: int, earlier: Sequence[OpenedSum]) -> Ints:
        """This member's numbers, without noise: private, and read only after the charge.

        `earlier` are the sums of the stages before, which everybody knows. Within ±2^52.
        """

    @abstractmethod
    def answer(
        self, opened: Sequence[OpenedSum], noises: Sequence[Sequence[Noise]], *, confidence: Fraction
    ) -> JointAnswer:
        """What the opened sums of all stages come to. `noises[stage][block]` is the noise that is in them.

        It is post-processing, and costs nothing.
        """

    def _answered(
        self, rows: AnswerRows, opened: Sequence[OpenedSum], confidence: Fraction, notes: tuple[str, ...]
    ) -> JointAnswer:
        least = min(len(one.contributors) for one in opened)
        return JointAnswer(self.title, rows, float(confidence), least, notes)


@dataclass(frozen=True, repr=False)
class JointAnswer:
    """A released answer. `low` and `high` stand beside each value that has noise.

    `footer` and `table` are those that `lapwing.cli.query.show_rows` prints.
    """

    title: str
    rows: AnswerRows
    confidence: float
    contributors: int  # how many members' values are in it; the least of all stages
    notes: tuple[str, ...] = field(default=())

    @property
    def columns(self) -> list[AnswerColumn]:
        """The columns of the answer."""
        return self.rows.columns

    def __len__(self) -> int:
        return self.rows.length

    def column(self, name: str) -> AnswerColumn:
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


def clamp_to_range(values: NDArray[Any]) -> Ints:
    """Whole numbers of any size, clamped to ±2^52.

    Clamping is 1-Lipschitz: a unit moves clamped numbers no further than it moves the others.
    """
    if values.dtype == object:
        values = np.array([min(max(int(one), -LARGEST_VALUE), LARGEST_VALUE) for one in values])
    clamped: Ints = np.clip(values, -LARGEST_VALUE, LARGEST_VALUE).astype(np.int64)
    return clamped


class VectorStatistic(Statistic):
    """Numbers from elsewhere. Whoever computes them answers for `l1` and `l2_squared`: they say how far one
    unit's rows can move one member's numbers.

    In the local model every unit counts once, in one cell: the numbers are how many chose each.
    """

    def __init__(
        self,
        values: ArrayLike | None,
        *,
        length: int,
        l1: int,
        l2_squared: int,
        labels: Sequence[str] | None = None,
    ) -> None:
        """Without values it can be planned and answered, but brings nothing."""
        self._block = CellBlock("cells", length, l1, l2_squared)
        if labels is not None and (isinstance(labels, str) or len(labels) != length):
            raise BadParameter("labels", f"must be {length} names, one for each cell")
        if labels is not None and not all(isinstance(label, str) and label for label in labels):
            raise BadParameter("labels", "must be texts")
        self._labels = None if labels is None else tuple(labels)
        self._values = None if values is None else clamp_to_range(whole_values(values))
        if self._values is not None and len(self._values) != length:
            raise BadValue(f"there must be {length} numbers")

    @property
    def spec(self) -> dict[str, Any]:
        block = self._block
        labels = None if self._labels is None else list(self._labels)
        bounds = {"length": block.length, "l1": block.l1, "l2_squared": block.l2_squared}
        return {"kind": "vector", **bounds, "labels": labels}

    @property
    def title(self) -> str:
        return f"the sum of vectors of {self._block.length:,} numbers"

    @property
    def meaning(self) -> str:
        return hashlib.sha256(json.dumps(self.spec, sort_keys=True).encode()).hexdigest()

    @property
    def blocks(self) -> tuple[CellBlock, ...]:
        return (self._block,)

    @property
    def why_not_local(self) -> str:
        if self._block.l1 != 1 or self._block.length < 2:
            return (
                "a row randomizes itself among cells of which it fills one: l1 = 1, and two or more cells"
            )
        return ""

    def exact(self, stage: int, earlier: Sequence[OpenedSum]) -> Ints:
        if self._values is None:
            raise BadParameter("values", "were not given: this vector can only be planned")
        return self._values.copy()

    def answer(
        self, opened: Sequence[OpenedSum], noises: Sequence[Sequence[Noise]], *, confidence: Fraction
    ) -> JointAnswer:
        ((noise,),), (found,) = noises, opened
        if isinstance(noise, RandomizedResponse):
            values, low, high, notes = _local(found.values, noise, confidence)
        else:
            half = half_width(noise, confidence)
            values, notes = found.values, ()
            low, high = values - half, values + half
        names = np.empty(len(found.values), dtype=object)
        names[:] = self._labels or [str(place) for place in range(len(names))]
        rows = AnswerRows(
            [AnswerColumn("cell", names), AnswerColumn("value", values, low, high)], len(names)
        )
        return self._answered(rows, opened, confidence, notes)


def _local(tally: Ints, response: RandomizedResponse, confidence: Fraction) -> tuple[Any, Any, Any, Any]:
    """How many chose each option, from how many reported it. Everybody reports, so their number is known.

    Unbiased; the interval is Hoeffding's, for any data.
    """
    n = int(tally.sum())
    if n < 1 or len(tally) != response.options or tally.min() < 0:
        raise BadValue("reports must be counted for every option, and there must be some")
    truth = float(response.truth_probability()(256))
    other = (1 - truth) / (response.options - 1)
    values = (tally - n * other) / (truth - other)
    half = n * response.spread(confidence, n=n)
    return values, np.maximum(values - half, 0), np.minimum(values + half, n), (f"{n:,} rows reported.",)
