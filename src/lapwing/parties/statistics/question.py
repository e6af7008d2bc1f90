"""A question in SQL: counts, sums, means, variances, histograms, proportions, contingency tables."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from lapwing.parties.protocols.protocol import Opened
from lapwing.parties.statistics.asked import Asked, without_local
from lapwing.parties.statistics.statistic import JointAnswer, Noise
from lapwing.query.dataset import Dataset
from lapwing.query.joint import JointQuestion

_LONGEST_TITLE = 200


class Question(Asked):
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
        self, opened: Sequence[Opened], noises: Sequence[Sequence[Noise]], *, confidence: Fraction
    ) -> JointAnswer:
        rows = self._joint.estimate(opened[0].values, without_local(noises[0]), confidence=confidence)
        return self._answered(rows, opened, confidence, self._joint.notes)
