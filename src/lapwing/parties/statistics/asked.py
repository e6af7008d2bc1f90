"""What statistics have in common whose numbers are the sums of a question of a member's data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lapwing.errors import BadParameter
from lapwing.mechanisms import RandomizedResponse
from lapwing.parties.protocols.protocol import Opened
from lapwing.parties.statistics.statistic import Block, Ints, Noise, Statistic, fitting
from lapwing.query.joint import JointQuestion


class Asked(Statistic):
    """Its charge goes to the accounts of the question's data. Of several stages, `joint` is the first."""

    def __init__(self, joint: JointQuestion) -> None:
        self._joint = joint

    @property
    def meaning(self) -> str:
        return self._joint.meaning

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(
            Block(cells.label, cells.length, cells.l1, cells.l2_squared, cells.weight)
            for cells in self._joint.blocks
        )

    @property
    def source(self) -> JointQuestion:
        return self._joint

    def exact(self, stage: int, earlier: Sequence[Opened]) -> Ints:
        return fitting(self._joint.exact())


def without_local(noises: Sequence[Noise]) -> list[Any]:
    """The noises of sums; a question is never asked in the local model."""
    found = [one for one in noises if not isinstance(one, RandomizedResponse)]
    if len(found) < len(noises):
        raise BadParameter("noises", "rows that randomize themselves cannot answer this")
    return found
