"""Requirements of a joint computation, and the protocols that can meet them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from lapwing.core.exact import set_fields, whole
from lapwing.core.losses import checked_delta, checked_epsilon
from lapwing.errors import BadParameter
from lapwing.parties.protocols.protocol import COALITION_TOO_SMALL, Setting
from lapwing.parties.protocols.registry import ADDITIVE, LOCAL, MASKED, NAMES, PROTOCOL_CHOICES, PROTOCOLS
from lapwing.parties.statistics import CellBlock
from lapwing.sql.pricing.noise_shares import NOISE_NAMES

ADVERSARIES = ("unbounded", "bounded")
QUORUMS = ("honest", "majority")
MOST_MEMBERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class JointRequirements:
    """The privacy requirements of all members. None of them has a default.

    A person's rows may be at `people_at` of the members; ε and δ are for all of them together. The
    adversary may control `coalition` members (at least one, if there are several), and `losses` more may
    fail before they have shared their values.

    `quorum` tells how many members must agree on who is in a sum: with "honest" any two agreements share an
    honest member, with "majority" any member. If it is empty, the safest possible value is chosen: "honest"
    if enough members stay after the losses, and "majority" if no losses are planned, as there is only the
    set of all members then.

    Args:
        members: the number of members.
        coalition: the most members that the adversary may control.
        losses: the most members that may fail before they have shared their values.
        adversary: "unbounded", or "bounded" for one that cannot break encryption.
        protocol: "auto", or the letter of a protocol.
        epsilon: the ε of a run, for all stages together.
        delta: its δ.
        people_at: the most members that can have rows of one person.
        noise: "auto", "laplace" or "gaussian".
        quorum: "honest", "majority", or "" for the safest that is possible.

    Raises:
        BadParameter: if the numbers do not fit one another.

    Example:
        >>> from fractions import Fraction
        >>> from lapwing.parties import JointRequirements
        >>> needs = JointRequirements(
        ...     members=3, coalition=1, losses=0, people_at=1, adversary="unbounded", protocol="auto",
        ...     epsilon=Fraction(1), delta=Fraction(0), noise="auto",
        ... )
        >>> needs.members
        3
    """

    members: int
    coalition: int
    losses: int
    adversary: str
    protocol: str
    epsilon: Fraction
    delta: Fraction
    people_at: int
    noise: str
    quorum: str = ""

    def __post_init__(self) -> None:
        set_fields(
            self,
            members=whole(self.members, "members", at_least=1),
            coalition=whole(self.coalition, "coalition"),
            losses=whole(self.losses, "losses"),
            people_at=whole(self.people_at, "people_at", at_least=1),
            epsilon=checked_epsilon(self.epsilon),
            delta=checked_delta(self.delta),
        )
        if self.members > MOST_MEMBERS:
            raise BadParameter("members", f"must be at most {MOST_MEMBERS:,}")
        if self.members > 1 and not self.coalition:
            raise BadParameter("coalition", COALITION_TOO_SMALL)
        if self.coalition >= self.members:
            raise BadParameter(
                "coalition", f"must be below {self.members}, the number of members: one must be honest"
            )
        if self.losses >= self.members - self.coalition:
            raise BadParameter(
                "losses",
                f"must be below {self.members - self.coalition}: with {self.members} members and a "
                f"coalition of {self.coalition}, nobody's noise would be left",
            )
        if self.people_at > self.members:
            raise BadParameter("people_at", f"must be at most {self.members}, the number of members")
        for name, value, known in (
            ("adversary", self.adversary, ADVERSARIES),
            ("protocol", self.protocol, PROTOCOL_CHOICES),
            ("noise", self.noise, NOISE_NAMES),
            ("quorum", self.quorum or QUORUMS[0], QUORUMS),
        ):
            if value not in known:
                raise BadParameter(name, f"must be one of {', '.join(known)}")
        if self.noise == "gaussian" and not self.delta:
            raise BadParameter("delta", "must be above 0: Gaussian noise is never purely private")
        if not self.quorum:
            chosen = "honest" if 0 < self.losses <= self.most_losses else "majority"
            object.__setattr__(self, "quorum", chosen)

    @property
    def most_losses(self) -> int:
        """The most losses that can be planned if any two agreements must share an honest member."""
        return self.members - (self.members + self.coalition) // 2 - 1

    def to_json(self) -> dict[str, Any]:
        """Return plain values, with rationals as text."""
        plain = {**asdict(self), "epsilon": str(self.epsilon), "delta": str(self.delta)}
        if self.quorum == "majority":  # left out, as in files that were written before there was a choice
            del plain["quorum"]
        return plain


@dataclass(frozen=True, slots=True)
class ProtocolFit:
    """How a protocol meets given requirements.

    Noise shares are 1/`honest` of a whole noise. `threshold` members can open the sum, and fewer cannot
    (with own noise, more than half: they sign which values are in it). `survives` members may fail after
    all have shared and agreed. `why_not` tells why the protocol cannot serve; it is empty if it can.
    """

    letter: str
    honest: int
    threshold: int
    survives: int
    why_not: str = ""

    @property
    def name(self) -> str:
        """The protocol's name for people."""
        return NAMES[self.letter]


def protocol_fit(
    letter: str, needs: JointRequirements, blocks: Sequence[CellBlock], stages: int
) -> ProtocolFit:
    """Return how a protocol meets the requirements."""
    setting = protocol_setting(needs, sum(block.length for block in blocks))
    kind = PROTOCOLS[letter]
    why = kind.refusal(setting) or ""
    if letter == LOCAL:
        why = _why_not_local(blocks, stages) or why
    if letter == MASKED and needs.adversary != "bounded":
        why = "its masks hold only against an adversary with bounded computing power"
    threshold = kind.threshold(setting)
    survives = 0 if letter == ADDITIVE else needs.members - threshold  # B needs all who are in the sum
    return ProtocolFit(letter, kind.honest(setting), threshold, survives, why)


def protocol_setting(needs: JointRequirements, length: int) -> Setting:
    """Return the parameters of a protocol in one stage, without the run's identifier."""
    return Setting(
        members=needs.members,
        coalition=needs.coalition,
        losses=needs.losses,
        length=length,
        honest_quorum=needs.quorum == "honest",
    )


def _why_not_local(blocks: Sequence[CellBlock], stages: int) -> str:
    if stages > 1:
        return "every row answers once, and this needs several sums"
    if len(blocks) != 1 or blocks[0].l1 != 1:
        return "a row can only randomize which one of some groups it is in, and this is not one such count"
    return ""
