"""What all protocols have in common.

Members go through rounds in step. In a round everybody posts one message: a public part, and a part for
each recipient's eyes. A round is closed when all have posted, or at its deadline; then everybody hears the
same posts, and what comes later is discarded. Who has missed a round is out. Each post is signed together
with a digest of all public parts of the round before, so nobody can be shown another round than the rest,
and to post at all is to sign the set that was heard.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter, LapwingError
from lapwing.parties.protocols.coins import Coins

FIELD = (1 << 61) - 1  # a prime: sums of all values fit between -FIELD/2 and FIELD/2
LARGEST_VALUE = 1 << 52  # of one member's number before noise; beyond, it is clamped
Ints = NDArray[np.int64]


class Stop(LapwingError):
    """A protocol cannot go on: nothing more is posted, and nothing is opened. The charge stays.

    `members` are the numbers of those who were missing or sent what cannot be. `why` is public.
    """

    def __init__(self, why: str, members: tuple[int, ...] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.members = members


@dataclass(frozen=True, slots=True)
class Setting:
    """What all members know before the first round.

    `coalition` (t) members may be the adversary's; noise is sized for the `honest` that are guaranteed to
    have shared: members - coalition - losses, or 1 where everybody hides alone.
    """

    members: int
    coalition: int
    losses: int
    length: int
    run: bytes = bytes(32)  # of this run and stage: no message of another one is taken for one of this
    modulus: int = FIELD  # tests enumerate smaller ones

    def __post_init__(self) -> None:
        if not 1 <= self.members <= 1000:
            raise BadParameter("members", "must be 1 to 1,000")
        if not 0 <= self.coalition < max(self.members, 1):
            raise BadParameter("coalition", "must leave at least one honest member")
        if not 0 <= self.losses < self.members - self.coalition:
            raise BadParameter("losses", "must leave at least one honest member who shared noise")
        if self.length < 1:
            raise BadParameter("length", "must be at least 1")

    @property
    def least(self) -> int:
        """How many members must be in a sum, so that enough honest noise is."""
        return self.members - self.losses

    @property
    def quorum(self) -> int:
        """More than half of all: no two sets can both be agreed on."""
        return self.members // 2 + 1


@dataclass(frozen=True, slots=True)
class Post:
    """What one member sends in one round: to everybody, and to some for their eyes only."""

    public: bytes = b""
    private: Mapping[int, bytes] | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """A post as one recipient hears it. `private` is what was sent to this recipient, if anything."""

    public: bytes = b""
    private: bytes | None = None


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one member posts in one round, in bytes, when nobody is lost."""

    public: int
    private: int = 0  # to each of `recipients`
    recipients: int = 0


@dataclass(frozen=True, slots=True)
class Opened:
    """The sum of the noised values of all `contributors`, between -modulus/2 and modulus/2."""

    values: Ints
    contributors: tuple[int, ...]


class Protocol(ABC):
    """One member's part in one sum. A deterministic function of its value, its coins and what it hears."""

    rounds: ClassVar[tuple[str, ...]]  # names of the rounds, in order

    def __init__(self, setting: Setting, me: int, value: Ints, coins: Coins) -> None:
        """`value` is noised already, and fits: |value| <= modulus / 2 / members."""
        self.setting = setting
        self.me = me
        self.value = value
        self.coins = coins
        if value.shape != (setting.length,):
            raise BadParameter("value", f"must have {setting.length} numbers")

    @classmethod
    @abstractmethod
    def traffic(cls, setting: Setting) -> tuple[Traffic, ...]:
        """The exact size of the posts of every round, for the plan."""

    @abstractmethod
    def post(self, round: int) -> Post:  # noqa: A002
        """What this member posts. Called once per round, in order, before `hear` of that round."""

    @abstractmethod
    def hear(self, round: int, posts: Mapping[int, Heard]) -> None:  # noqa: A002
        """All posts of a closed round, this member's own among them. Raises `Stop`.

        Must refuse, by the number of its sender, whatever has not exactly the form it should have.
        """

    @property
    @abstractmethod
    def opened(self) -> Opened:
        """The outcome, after the last round was heard."""
