"""What members want of a joint computation, and fear."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lapwing.errors import BadParameter
from lapwing.exact import settle, whole
from lapwing.parties.protocols import NAMES
from lapwing.parties.protocols.protocol import NOBODY_AGAINST
from lapwing.privacy.loss import checked_delta, checked_epsilon
from lapwing.query.answering.shares import NOISES

ADVERSARIES = ("unbounded", "bounded")
CHOICES = ("auto", *NAMES)
QUORUMS = ("honest", "majority")
MOST_MEMBERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class JointWish:
    """Everything that decides who may learn what. Nothing here has a default.

    A person's rows may be at `people_at` of the members; ε and δ are for all of them together. The
    adversary may hold `coalition` members (at least one, where there are several), and `losses` more may
    fail before they have shared.

    `quorum` says how many must agree on who is in a sum: with "honest" any two agreements share an honest
    member, with "majority" any member. Not said, it is the safest that the losses leave: "honest" where so
    many are left, and "majority" where no losses are planned, as there is one set only, everybody's.
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
        settle(self, members=whole(self.members, "members", at_least=1))
        settle(self, coalition=whole(self.coalition, "coalition"), losses=whole(self.losses, "losses"))
        settle(self, people_at=whole(self.people_at, "people_at", at_least=1))
        settle(self, epsilon=checked_epsilon(self.epsilon), delta=checked_delta(self.delta))
        if self.members > MOST_MEMBERS:
            raise BadParameter("members", f"must be at most {MOST_MEMBERS:,}")
        if self.members > 1 and not self.coalition:
            raise BadParameter("coalition", NOBODY_AGAINST)
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
            ("protocol", self.protocol, CHOICES),
            ("noise", self.noise, NOISES),
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
        """So many may be planned for if any two agreements share an honest member."""
        return self.members - (self.members + self.coalition) // 2 - 1

    def to_json(self) -> dict[str, Any]:
        """Plain values; rationals as text."""
        return {
            "members": self.members,
            "coalition": self.coalition,
            "losses": self.losses,
            "adversary": self.adversary,
            "protocol": self.protocol,
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "people_at": self.people_at,
            "noise": self.noise,
            # As files were written before there was a choice.
            **({} if self.quorum == "majority" else {"quorum": self.quorum}),
        }
