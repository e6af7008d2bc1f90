"""Which protocol holds against whom: the table that the planner chooses from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lapwing.parties.planning.wish import JointWish
from lapwing.parties.protocols import NAMES, PROTOCOLS, Setting
from lapwing.parties.protocols.masked import Masked
from lapwing.parties.protocols.shamir import Shamir
from lapwing.parties.statistics import Block

OWN_NOISE, ADDITIVE, SHAMIR, MASKED, LOCAL = "ABCDL"


@dataclass(frozen=True, slots=True)
class Footing:
    """On what a protocol stands for a wish.

    Noise shares are 1/`honest` of a whole noise. `threshold` members can open the sum, fewer do not (with
    own noise, more than half: they sign whose values are in it); so many as `survives` may fail once all
    have shared and agreed. `why_not` is empty where the protocol serves.
    """

    letter: str
    honest: int
    threshold: int
    survives: int
    why_not: str = ""

    @property
    def name(self) -> str:
        """As people call it."""
        return NAMES[self.letter]


def footing(letter: str, wish: JointWish, blocks: Sequence[Block], stages: int) -> Footing:
    """What a protocol needs and gives, for members who wish so."""
    m, t = wish.members, wish.coalition
    setting = setting_of(wish, sum(block.length for block in blocks))
    kind = PROTOCOLS[letter]
    why = kind.refusal(setting) or ""
    match letter:
        case "A" | "L":
            threshold, survives = setting.majority, m - setting.majority
            if letter == LOCAL:
                why = _why_not_local(blocks, stages) or why
        case "B":
            threshold, survives = setting.least, 0
        case "C":
            threshold, survives = Shamir.threshold(setting), m - t - 1
        case _:
            threshold = Masked.threshold(setting)
            survives = max(m - threshold, 0)
            if wish.adversary != "bounded":
                why = "its masks hold only against an adversary with bounded computing power"
    return Footing(letter, kind.honest(setting), threshold, survives, why)


def setting_of(wish: JointWish, length: int) -> Setting:
    """What the protocol of one stage is told, in any run."""
    return Setting(
        members=wish.members,
        coalition=wish.coalition,
        losses=wish.losses,
        length=length,
        honest_quorum=wish.quorum == "honest",
    )


def _why_not_local(blocks: Sequence[Block], stages: int) -> str:
    if stages > 1:
        return "every row answers once, and this needs several sums"
    if len(blocks) != 1 or blocks[0].l1 != 1:
        return "a row can only randomize which one of some groups it is in, and this is not one such count"
    return ""
