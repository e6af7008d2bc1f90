"""A question in SQL: counts, sums, means, variances, histograms, proportions, contingency tables."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from lapwing.errors import BadParameter
from lapwing.mechanisms import RandomizedResponse
from lapwing.parties.protocols.protocol import Opened
from lapwing.parties.statistics.statistic import (
    Block,
    Ints,
    JointAnswer,
    Noise,
    Statistic,
    fitting,
    least_contributors,
)
from lapwing.query.dataset import Dataset
from lapwing.query.joint import JointQuestion

_LONGEST_TITLE = 200


class Question(Statistic):
    """What one SELECT asks of all members' rows together."""

    def __init__(self, dataset: Dataset, sql: str) -> None:
        """Bound against the member's policy. Raises `Refused`; nothing is read but public tables."""
        self._joint = JointQuestion.of(dataset, sql)
        self._sql = sql

    @property
    def spec(self) -> dict[str, Any]:
        return {"kind": "question", "sql": self._sql}

    @property
    def title(self) -> str:
        text = " ".join(self._sql.split())
        return text if len(text) <= _LONGEST_TITLE else f"{text[:_LONGEST_TITLE]} …"

    @property
    def meaning(self) -> str:
        return self._joint.meaning

    @property
    def blocks(self) -> tuple[Block, ...]:
        return blocks_of(self._joint)

    @property
    def source(self) -> JointQuestion:
        return self._joint

    def exact(self, stage: int, earlier: Sequence[Opened]) -> Ints:
        return fitting(self._joint.exact())

    def answer(
        self, opened: Sequence[Opened], noises: Sequence[Sequence[Noise]], *, confidence: Fraction
    ) -> JointAnswer:
        rows = self._joint.estimate(opened[0].values, without_local(noises[0]), confidence=confidence)
        return JointAnswer(
            self.title, rows, float(confidence), least_contributors(opened), self._joint.notes
        )


def blocks_of(joint: JointQuestion) -> tuple[Block, ...]:
    """The blocks of a question's vector."""
    return tuple(
        Block(cells.label, cells.length, cells.l1, cells.l2_squared, cells.weight) for cells in joint.blocks
    )


def without_local(noises: Sequence[Noise]) -> list[Any]:
    """The noises of sums; a question is never asked in the local model."""
    found = [one for one in noises if not isinstance(one, RandomizedResponse)]
    if len(found) < len(noises):
        raise BadParameter("noises", "rows that randomize themselves cannot answer this")
    return found
