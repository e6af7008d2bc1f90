"""Statistics of a member's data set: the base class, and questions in SQL.

An SQL question is a count, a sum, a mean, a variance, a histogram, a proportion or a contingency table.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from lapwing.core.randomized_response import RandomizedResponse
from lapwing.errors import BadParameter
from lapwing.parties.protocols.protocol import Ints, OpenedSum
from lapwing.parties.statistics.statistic import CellBlock, JointAnswer, Noise, Statistic, clamp_to_range
from lapwing.sql.dataset import Dataset
from lapwing.sql.joint_questions import JointQuestion

_LONGEST_TITLE = 200


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


def require_summed_noises(noises: Sequence[Noise]) -> list[Any]:
    """Return the noises of sums. Raises `BadParameter` for noise of the local model."""
    found = [one for one in noises if not isinstance(one, RandomizedResponse)]
    if len(found) < len(noises):
        raise BadParameter("noises", "rows that randomize themselves cannot answer this")
    return found


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
        noise = require_summed_noises(noises[0])
        rows = self._joint.estimate(opened[0].values, noise, confidence=confidence)
        return self._answered(rows, opened, confidence, self._joint.notes)
