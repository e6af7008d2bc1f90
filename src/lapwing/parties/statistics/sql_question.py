"""What statistics have in common whose numbers are the sums of a question of a member's data set.

A question in SQL: counts, sums, means, variances, histograms, proportions, contingency tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from lapwing.core.randomized_response import RandomizedResponse
from lapwing.errors import BadParameter
from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.statistics.statistic import (
    CellBlock,
    Ints,
    JointAnswer,
    Noise,
    Statistic,
    clamp_to_range,
)
from lapwing.sql.dataset import Dataset
from lapwing.sql.joint_questions import JointQuestion


class DatasetStatistic(Statistic):
    """Its charge goes to the accounts of the question's data. Of several stages, `joint` is the first."""

    def __init__(self, joint: JointQuestion) -> None:
        self._joint = joint

    @property
    def meaning(self) -> str:
        return self._joint.meaning

    @property
    def blocks(self) -> tuple[CellBlock, ...]:
        return tuple(
            CellBlock(cells.label, cells.length, cells.l1, cells.l2_squared, cells.weight)
            for cells in self._joint.blocks
        )

    @property
    def source(self) -> JointQuestion:
        return self._joint

    def exact(self, stage: int, earlier: Sequence[OpenedSum]) -> Ints:
        return clamp_to_range(self._joint.exact())


def require_summed_noises(noises: Sequence[Noise]) -> list[Any]:
    """The noises of sums; a question is never asked in the local model."""
    found = [one for one in noises if not isinstance(one, RandomizedResponse)]
    if len(found) < len(noises):
        raise BadParameter("noises", "rows that randomize themselves cannot answer this")
    return found


_LONGEST_TITLE = 200


class SqlStatistic(DatasetStatistic):
    """What one SELECT asks of all members' rows together."""

    def __init__(self, dataset: Dataset, sql: str) -> None:
        """Bound against the member's policy. Raises `Refused`; nothing is read but public tables."""
        super().__init__(JointQuestion.of(dataset, sql))
        self._sql = sql

    @property
    def spec(self) -> dict[str, Any]:
        return {"kind": "question", "sql": self._sql}

    @property
    def title(self) -> str:
        text = " ".join(self._sql.split())
        return text if len(text) <= _LONGEST_TITLE else f"{text[:_LONGEST_TITLE]} …"

    def answer(
        self, opened: Sequence[OpenedSum], noises: Sequence[Sequence[Noise]], *, confidence: Fraction
    ) -> JointAnswer:
        rows = self._joint.estimate(
            opened[0].values, require_summed_noises(noises[0]), confidence=confidence
        )
        return self._answered(rows, opened, confidence, self._joint.notes)
