"""What all protocols have in common.

Members go through rounds in step. In a round everybody posts one message: a public part, and a part for
each recipient's eyes. A round is closed when all have posted, or at its deadline; then everybody hears the
same posts, and what comes later is discarded. Who has missed a round is out. Each post is signed together
with a digest of all public parts of the round before, so nobody can be shown another round than the rest,
and to post at all is to sign the set that was heard.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter, BadValue, LapwingError
from lapwing.parties.protocols.secret_sharing import FIELD, Elements, Field, ProtocolCoins

LARGEST_VALUE = 1 << 52  # of one member's number before noise; beyond, it is clamped
COALITION_TOO_SMALL = (
    "must be at least 1: members are protected from one another only if at least one of them may be the "
    "adversary's: write 1"
)
Ints = NDArray[np.int64]
Publics = Mapping[int, bytes]  # the public parts of a closed round, by the number of the member


class ProtocolStopped(LapwingError):
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
    have shared: members - coalition - losses, or 1 where everybody hides alone. With `honest_quorum` any
    two agreements share an honest member, also if the coalition signs both.
    """

    members: int
    coalition: int
    losses: int
    length: int
    run: bytes = bytes(32)  # of this run and stage: no message of another one is taken for one of this
    modulus: int = FIELD  # tests enumerate smaller ones
    honest_quorum: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.members <= 1000:
            raise BadParameter("members", "must be 1 to 1,000")
        if not 0 <= self.coalition < max(self.members, 1):
            raise BadParameter("coalition", "must leave at least one honest member")
        if not 0 <= self.losses < self.members - self.coalition:
            raise BadParameter("losses", "must leave at least one honest member who shared noise")
        if self.length < 1:
            raise BadParameter("length", "must be at least 1")
        Field(self.modulus)

    @property
    def largest(self) -> int:
        """Of one member's number before noise: sums of all members fill at most half of the field."""
        return min(LARGEST_VALUE, self.modulus // (4 * self.members))

    @property
    def least(self) -> int:
        """How many members must be in a sum, so that enough honest noise is."""
        return self.members - self.losses

    @property
    def majority(self) -> int:
        """More than half of all: no two sets can both be agreed on by members who sign once."""
        return self.members // 2 + 1

    @property
    def quorum(self) -> int:
        """How many must agree on who is in a sum, where two sums would tell more than one. More than
        (members + coalition) / 2 have more than a coalition in common."""
        return (self.members + self.coalition) // 2 + 1 if self.honest_quorum else self.majority


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
class RoundTraffic:
    """What one member posts in one round, in bytes, when nobody is lost."""

    public: int
    private: int = 0  # to each of `recipients`
    recipients: int = 0


@dataclass(frozen=True, slots=True)
class OpenedSum:
    """The sum of the noised values of all `contributors`, between -modulus/2 and modulus/2."""

    values: Ints
    contributors: tuple[int, ...]


class Protocol(ABC):
    """One member's part in one sum. A deterministic function of its value, its coins and what it hears.

    What can be checked by public parts alone is checked by `follow` and summed up by `outcome`: the same
    code for a member and for a stranger who reads the transcript.
    """

    name: ClassVar[str]
    rounds: ClassVar[tuple[str, ...]]  # names of the rounds, in order

    def __init__(self, setting: Setting, me: int, value: Ints, coins: ProtocolCoins) -> None:
        """`value` is noised already. Beyond modulus / 2 / members sums wrap round, which is as private."""
        why = self.refusal(setting)
        if why is not None:
            raise BadParameter("protocol", why)
        if not 0 <= me < setting.members:
            raise BadParameter("me", "must be the number of a member")
        if value.shape != (setting.length,) or value.dtype != np.int64:
            raise BadParameter("value", f"must have {setting.length} whole numbers of 64 bits")
        self.setting = setting
        self.field = Field(setting.modulus)
        self.me = me
        self.value = self.field.from_signed(value)
        self.coins = coins
        self.heard: list[Publics] = []
        self._posted = 0
        self._stopped = False
        self._opened: OpenedSum | None = None

    @classmethod
    @abstractmethod
    def refusal(cls, setting: Setting) -> str | None:
        """Why this protocol is none for this setting, if so."""

    @classmethod
    def honest(cls, setting: Setting) -> int:
        """How many honest members' noise is in all that the adversary learns (g): noise is sized for it."""
        return setting.members - setting.coalition - setting.losses

    @classmethod
    @abstractmethod
    def traffic(cls, setting: Setting) -> tuple[RoundTraffic, ...]:
        """The exact size of the posts of every round, for the plan."""

    @classmethod
    def follow(cls, setting: Setting, rounds: Sequence[Publics]) -> None:
        """Whether the last of these closed rounds may stand after the others. Raises `ProtocolStopped`.

        Refuses, by the number of its sender, a public part that has not exactly the form it should have.
        """
        last = rounds[-1]
        before: Collection[int] = range(setting.members) if len(rounds) == 1 else rounds[-2]
        strangers = tuple(sorted(set(last) - set(before)))
        if strangers:
            raise ProtocolStopped(
                "a post came from a member who is not or no longer in this run", strangers
            )
        cls._follow(setting, rounds)

    @classmethod
    @abstractmethod
    def _follow(cls, setting: Setting, rounds: Sequence[Publics]) -> None:
        """The rules of this protocol for the last of these rounds."""

    @classmethod
    @abstractmethod
    def outcome(cls, setting: Setting, rounds: Sequence[Publics]) -> OpenedSum:
        """What the public parts of all rounds open. Raises `ProtocolStopped`."""

    @classmethod
    def observe(cls, setting: Setting, rounds: Sequence[Publics]) -> OpenedSum:
        """What a stranger makes of the public parts of all rounds: every rule checked, then the sum."""
        why = cls.refusal(setting)
        if why is not None:
            raise BadParameter("protocol", why)
        if len(rounds) != len(cls.rounds):
            raise ProtocolStopped("not all rounds were held, so nothing was opened")
        for number in range(len(rounds)):
            cls.follow(setting, rounds[: number + 1])
        return cls.outcome(setting, rounds)

    def post(self, round: int) -> Post:  # noqa: A002
        """What this member posts. Called once per round, in order, before `hear` of that round."""
        if self._stopped or round != self._posted or round != len(self.heard):
            raise ProtocolStopped("nothing more is posted: a member posts once in each round, in order")
        self._posted += 1
        return self._post(round)

    @abstractmethod
    def _post(self, number: int) -> Post: ...

    def hear(self, round: int, posts: Mapping[int, Heard]) -> None:  # noqa: A002
        """All posts of a closed round, this member's own among them. Raises `ProtocolStopped`, and then for good.

        Refuses, by the number of its sender, whatever has not exactly the form it should have.
        """
        if self._stopped or round != len(self.heard) or round + 1 != self._posted:
            raise ProtocolStopped("a round is heard once, after it was posted in")
        try:
            if self.me not in posts:
                raise ProtocolStopped("this member's post came too late, so it is out", (self.me,))
            self.heard.append({i: posts[i].public for i in sorted(posts)})
            self.follow(self.setting, self.heard)
            self._take(round, posts)
        except ProtocolStopped:
            self._stopped = True
            raise

    @abstractmethod
    def _take(self, number: int, posts: Mapping[int, Heard]) -> None:
        """What this member keeps of a round, private parts above all."""

    @property
    def opened(self) -> OpenedSum:
        """The outcome, after the last round was heard. Raises `ProtocolStopped`."""
        if self._stopped or len(self.heard) != len(self.rounds):
            raise ProtocolStopped("nothing was opened")
        if self._opened is None:
            self._opened = self.outcome(self.setting, self.heard)
        return self._opened


def require_posts(setting: Setting, posts: Publics, *, least: int, why: str) -> None:
    """At least so many posts, or `ProtocolStopped` with those who are missing."""
    if len(posts) < least:
        raise ProtocolStopped(why, tuple(i for i in range(setting.members) if i not in posts))


def require_all(of: Publics, posts: Publics, *, why: str) -> None:
    """Posts of all who posted before, or `ProtocolStopped` with those who are missing."""
    if set(posts) != set(of):
        raise ProtocolStopped(why, tuple(sorted(set(of) - set(posts))))


def require_empty(posts: Publics) -> None:
    """Rounds in which the public part says nothing: to post is to agree."""
    if any(posts.values()):
        raise ProtocolStopped(
            "a public part must be empty in this round", tuple(i for i in sorted(posts) if posts[i])
        )


def require_elements(setting: Setting, posts: Publics, length: int) -> None:
    """Rounds in which the public part is so many elements."""
    for i, public in posts.items():
        read_elements(setting, public, length, sender=i)


def read_elements(setting: Setting, data: bytes | None, length: int, *, sender: int) -> Elements:
    """Elements as a member has sent them, or `ProtocolStopped` with its number."""
    if data is None:
        raise ProtocolStopped("a member left out the part for this member", (sender,))
    try:
        return Field(setting.modulus).from_bytes(data, length)
    except BadValue as bad:
        raise ProtocolStopped(f"a member's part {bad}", (sender,)) from None


def coalition_refusal(setting: Setting) -> str | None:
    """Why members would read one another's numbers, if so: noise and threshold are then sized for the relay
    alone, and one member's number has only a part of a noise."""
    is_open = setting.members > 1 and not setting.coalition
    return f"the coalition {COALITION_TOO_SMALL}" if is_open else None


def quorum_refusal(setting: Setting, quorum: int) -> str | None:
    """Why so many losses leave nobody to agree on a set, if so."""
    if setting.least >= quorum:
        return None
    some = "more than half" if quorum == setting.majority else f"{quorum}"
    return f"{some} of the members must agree, so losses must be at most {setting.members - quorum}"
