"""Statistics that members compute together: vectors of whole numbers, summed over members, and answers.

A statistic is the same at every member except for its private rows. It consists of *blocks* of cells; each
block gets noise of one scale. Most statistics take one *stage*, which is one sum. A quantile is searched in
several stages, all with the same blocks, and each stage depends on the opened sums of earlier ones.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lapwing.canonical_json import canonical_json
from lapwing.core.exact import positive, set_fields, whole
from lapwing.core.gaussian import SummedGaussian
from lapwing.core.laplace import SummedLaplace
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.core.values import whole_values
from lapwing.errors import BadParameter, BadValue
from lapwing.parties.protocols.protocol import LARGEST_VALUE, Ints, OpenedSum
from lapwing.sql.answering.answers import Answer
from lapwing.sql.answering.estimates import AnswerColumn, AnswerRows
from lapwing.sql.dataset import Dataset
from lapwing.sql.joint_questions import JointQuestion
from lapwing.sql.pricing.noise_widths import half_width

Noise = SummedLaplace | SummedGaussian | RandomizedResponse  # the noise in one block of an opened sum
MOST_CELLS = 20_000_000
_LONGEST_TITLE = 200


@dataclass(frozen=True, slots=True)
class CellBlock:
    """Cells that get noise of one scale.

    Claim    removing one unit at one member moves that member's cells of this block by at most `l1` in L1
             and √`l2_squared` in L2. `weight` tells how much its error matters, per unit of `l1`.
    Test     tests/parties/statistics/test_statistics_neighbours.py

    Args:
        label: the name of the block.
        length: the number of cells.
        l1: the sensitivity in L1.
        l2_squared: the square of the sensitivity in L2.
        weight: how much the error of these cells matters.

    Raises:
        BadParameter: if a number is too small, too large, or `l2_squared` is above the square of `l1`.

    Example:
        >>> from lapwing.parties import CellBlock
        >>> CellBlock("visits", length=10_000, l1=1, l2_squared=1).weight
        Fraction(1, 1)
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
        """Return plain values, for a consortium's document."""
        sizes = {"length": self.length, "l1": self.l1, "l2_squared": self.l2_squared}
        return {"label": self.label, **sizes, "weight": str(self.weight)}


class Statistic(ABC):
    """A statistic that members compute together, bound to one member's data (or to none, to plan it).

    `spec` is the statistic as plain values: `statistic_of(spec, data)` returns the same one. `title`
    describes it in a line.
    """

    spec: dict[str, Any]
    title: str
    stages: int = 1  # sums that are opened one after the other; each costs as much as one

    @property
    @abstractmethod
    def meaning(self) -> str:
        """A digest of the parts of members' policies that must be equal at all members."""

    @property
    @abstractmethod
    def blocks(self) -> tuple[CellBlock, ...]:
        """The blocks of every stage."""

    @property
    def length(self) -> int:
        """The number of cells of a stage."""
        return sum(block.length for block in self.blocks)

    @property
    def why_not_local(self) -> str:
        """The reason why rows cannot be randomized one by one (protocol L). Empty if they can."""
        return "a policy's account is for data of which people can be added or removed"

    @property
    def source(self) -> JointQuestion | None:
        """The question whose accounts are charged, or None if the data is an array."""
        return None

    @abstractmethod
    def exact(self, stage: int, earlier: Sequence[OpenedSum]) -> Ints:
        """Return this member's numbers without noise, within ±2^52. They are private.

        `earlier` are the opened sums of the stages before.
        """

    @abstractmethod
    def answer(
        self, opened: Sequence[OpenedSum], noises: Sequence[Sequence[Noise]], *, confidence: Fraction
    ) -> JointAnswer:
        """Return the answer that follows from the opened sums of all stages.

        `noises[stage][block]` is the noise in them. This is post-processing, and costs nothing.
        """

    def _answered(
        self, rows: AnswerRows, opened: Sequence[OpenedSum], confidence: Fraction, notes: tuple[str, ...]
    ) -> JointAnswer:
        least = min(len(opened_sum.contributors) for opened_sum in opened)
        return JointAnswer(rows, float(confidence), notes=notes, title=self.title, contributors=least)


@dataclass(frozen=True, repr=False)
class JointAnswer(Answer):
    """A released answer of several members. Each value with noise has an interval."""

    title: str = field(kw_only=True)
    contributors: int = field(kw_only=True)  # the least number of members in a sum, of all stages

    def column(self, name: str) -> AnswerColumn:
        """Return the column of this name. Raises `BadParameter` if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise BadParameter("column", f"there is none called {name!r}"[:80])

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "title": self.title,
            "columns": super().to_json()["columns"],
            "confidence": self.confidence,
            "contributors": self.contributors,
            "notes": list(self.notes),
        }

    def footer(self, *, tells_left: bool = True) -> list[str]:
        """Return lines about confidence, members and notes. Each member's own ledger tells what is left."""
        return [
            f"Intervals hold with {self.confidence:.4g} confidence each; the sum of {self.contributors} "
            "members' numbers.",
            *self.notes,
        ]

    def __str__(self) -> str:
        return f"{self.title}\n{super().__str__()}"

    __repr__ = __str__


def clamp_to_range(values: NDArray[Any]) -> Ints:
    """Return whole numbers of any size, clamped to ±2^52.

    Clamping is 1-Lipschitz: a unit moves clamped numbers no further than the original ones.
    """
    if values.dtype == object:
        values = np.array([min(max(int(value), -LARGEST_VALUE), LARGEST_VALUE) for value in values])
    clamped: Ints = np.clip(values, -LARGEST_VALUE, LARGEST_VALUE).astype(np.int64)
    return clamped


class VectorStatistic(Statistic):
    """A vector of whole numbers that a member brings as it is: its bounds are declared, not enforced.

    The caller is responsible for `l1` and `l2_squared`: they bound how far one unit's rows can move one
    member's numbers. In the local model every unit counts once, in one cell: the numbers are the counts of
    the cells.
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
        """Check the vector. Without values (None) it can be planned and answered, but not contributed."""
        self._block = CellBlock("cells", length, l1, l2_squared)
        if labels is not None and (isinstance(labels, str) or len(labels) != length):
            raise BadParameter("labels", f"must be {length} names, one for each cell")
        if labels is not None and not all(isinstance(label, str) and label for label in labels):
            raise BadParameter("labels", "must be texts")
        self._labels = None if labels is None else tuple(labels)
        self._values = None if values is None else clamp_to_range(whole_values(values))
        if self._values is not None and len(self._values) != length:
            raise BadValue(f"there must be {length} numbers")
        block = self._block
        bounds = {"length": block.length, "l1": block.l1, "l2_squared": block.l2_squared}
        self.spec = {"kind": "vector", **bounds, "labels": None if labels is None else list(labels)}
        self.title = f"the sum of vectors of {block.length:,} numbers"

    @property
    def meaning(self) -> str:
        """A digest of the spec."""
        return hashlib.sha256(canonical_json(self.spec, spaces=True).encode()).hexdigest()

    @property
    def blocks(self) -> tuple[CellBlock, ...]:
        """The one block of the vector."""
        return (self._block,)

    @property
    def why_not_local(self) -> str:
        """The reason why rows cannot be randomized one by one. Empty if they can."""
        if self._block.l1 != 1 or self._block.length < 2:
            return (
                "a row randomizes itself among cells of which it fills one: l1 = 1, and two or more cells"
            )
        return ""

    def exact(self, stage: int, earlier: Sequence[OpenedSum]) -> Ints:
        """Return this member's numbers without noise. Raises `BadParameter` if there are none."""
        if self._values is None:
            raise BadParameter("values", "were not given: this vector can only be planned")
        return self._values.copy()

    def answer(
        self, opened: Sequence[OpenedSum], noises: Sequence[Sequence[Noise]], *, confidence: Fraction
    ) -> JointAnswer:
        """Return the cells with intervals."""
        ((noise,),), (opened_sum,) = noises, opened
        if isinstance(noise, RandomizedResponse):
            values, low, high, notes = _local(opened_sum.values, noise, confidence)
        else:
            half = half_width(noise, confidence)
            values, notes = opened_sum.values, ()
            low, high = values - half, values + half
        names = np.empty(len(opened_sum.values), dtype=object)
        names[:] = self._labels or [str(place) for place in range(len(names))]
        rows = AnswerRows(
            [AnswerColumn("cell", names), AnswerColumn("value", values, low, high)], len(names)
        )
        return self._answered(rows, opened, confidence, notes)


def _local(tally: Ints, response: RandomizedResponse, confidence: Fraction) -> tuple[Any, Any, Any, Any]:
    """Estimate the count of each option from the reports. All rows report, so their number is known.

    The estimate is unbiased. The interval is Hoeffding's, for any data.
    """
    n = int(tally.sum())
    if n < 1 or len(tally) != response.options or tally.min() < 0:
        raise BadValue("reports must be counted for every option, and there must be some")
    truth = float(response.truth_probability()(256))
    other = (1 - truth) / (response.options - 1)
    values = (tally - n * other) / (truth - other)
    half = n * response.spread(confidence, n=n)
    return values, np.maximum(values - half, 0), np.minimum(values + half, n), (f"{n:,} rows reported.",)


class DatasetStatistic(Statistic):
    """Base of statistics whose numbers are the sums of a question, and whose data's accounts are charged.

    `joint` is the question of the first stage.
    """

    def __init__(self, joint: JointQuestion) -> None:
        self._joint = joint

    @property
    def meaning(self) -> str:
        """A digest of the parts of the policy that must be equal at all members."""
        return self._joint.meaning

    @property
    def blocks(self) -> tuple[CellBlock, ...]:
        """The blocks of every stage."""
        return tuple(
            CellBlock(cells.label, cells.length, cells.l1, cells.l2_squared, cells.weight)
            for cells in self._joint.blocks
        )

    @property
    def source(self) -> JointQuestion:
        """The question whose accounts are charged."""
        return self._joint

    def exact(self, stage: int, earlier: Sequence[OpenedSum]) -> Ints:
        """Return this member's numbers without noise."""
        return clamp_to_range(self._joint.exact())

    @staticmethod
    def _summed(noises: Sequence[Noise]) -> list[Any]:
        """Return the noises of sums. Raises `BadParameter` for noise of the local model."""
        additive = [noise for noise in noises if not isinstance(noise, RandomizedResponse)]
        if len(additive) < len(noises):
            raise BadParameter("noises", "rows that randomize themselves cannot answer this")
        return additive


class SqlStatistic(DatasetStatistic):
    """The answer of one SELECT for all members' rows together."""

    def __init__(self, dataset: Dataset, sql: str) -> None:
        """Bind the question to the member's policy. Raises `Refused`. Only public tables are read."""
        super().__init__(JointQuestion.of(dataset, sql))
        self.spec = {"kind": "question", "sql": sql}
        text = " ".join(sql.split())
        self.title = text if len(text) <= _LONGEST_TITLE else f"{text[:_LONGEST_TITLE]} …"

    def answer(
        self, opened: Sequence[OpenedSum], noises: Sequence[Sequence[Noise]], *, confidence: Fraction
    ) -> JointAnswer:
        """Return the rows of the answer with intervals."""
        noise = self._summed(noises[0])
        rows = self._joint.estimate(opened[0].values, noise, confidence=confidence)
        return self._answered(rows, opened, confidence, self._joint.notes)
