"""Common rules of all protocols.

Members go through rounds in step. In a round every member posts one message: a public part, and private
parts for single recipients. A round closes when all members have posted, or at its deadline. Then all
members receive the same posts, and later posts are discarded. A member that missed a round is out of the
run. Each post is signed together with a digest of all public parts of the round before. So nobody can show
one member other rounds than the rest, and to post is to sign the set of posts that the member received.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter, BadValue, LapwingError
from lapwing.parties.protocols.secret_sharing import FIELD, Elements, Field, ProtocolCoins

TOO_FEW_AGREED = "too few members agreed on who is in the sum"
LARGEST_VALUE = 1 << 52  # one member's numbers are clamped to this before noise
COALITION_TOO_SMALL = (
    "must be at least 1: members are protected from one another only if at least one of them may be the "
    "adversary's: write 1"
)
Ints = NDArray[np.int64]
Publics = Mapping[int, bytes]  # the public parts of a closed round, by the number of the member


class ProtocolStopped(LapwingError):
    """A protocol cannot continue: nothing more is posted, and nothing is opened. The charge stays.

    `members` are the numbers of members that were missing or sent an impossible message. `why` is public.
    """

    code = "protocol-stopped"

    def __init__(self, why: str, members: tuple[int, ...] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.members = members


@dataclass(frozen=True, slots=True)
class Setting:
    """Parameters that all members know before the first round.

    The adversary may control `coalition` (t) members, and `losses` more may fail. Noise is sized for the
    honest members that certainly take part: members - coalition - losses, or 1 where each member's noise
    must hide its value alone. With `honest_quorum` any two agreements have an honest member in common, even
    if the coalition signs both.
    """

    members: int
    coalition: int
    losses: int
    length: int
    run: bytes = bytes(32)  # identifies the run and the stage, so that messages cannot be replayed
    modulus: int = FIELD  # tests enumerate smaller fields
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
    def field(self) -> Field:
        """The field that values and sums belong to."""
        return Field(self.modulus)

    @property
    def largest(self) -> int:
        """The bound of one member's numbers before noise: then a sum fills at most half of the field."""
        return min(LARGEST_VALUE, self.modulus // (4 * self.members))

    @property
    def least(self) -> int:
        """The number of members that must be in a sum, so that it holds enough honest noise."""
        return self.members - self.losses

    @property
    def majority(self) -> int:
        """More than half of all members. If each member signs once, no two sets reach it."""
        return self.members // 2 + 1

    @property
    def quorum(self) -> int:
        """The number of members that must agree on a set, where two opened sums would reveal more than one.

        Two sets of more than (members + coalition) / 2 members have more than a coalition in common.
        """
        return (self.members + self.coalition) // 2 + 1 if self.honest_quorum else self.majority


@dataclass(frozen=True, slots=True)
class Post:
    """One member's message in one round: a public part, and private parts by recipient."""

    public: bytes = b""
    private: Mapping[int, bytes] | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """A post as one recipient receives it. `private` is the part for this recipient, or None."""

    public: bytes = b""
    private: bytes | None = None


@dataclass(frozen=True, slots=True)
class RoundTraffic:
    """The size of one member's post in one round, in bytes, if no member is lost."""

    public: int
    private: int = 0  # to each of `recipients`
    recipients: int = 0


class RoundRule(NamedTuple):
    """A rule for the public parts of one round.

    If fewer than `least` members post, the protocol stops, and `why` tells the reason. `expected` are the
    members that may be missing then; None stands for all. Each public part has `elements` field elements.
    It is empty if that is 0, and a protocol checks it by itself if that is None.
    """

    least: int
    why: str
    elements: int | None = 0
    expected: Collection[int] | None = None


@dataclass(frozen=True, slots=True)
class OpenedSum:
    """The sum of the noised values of all `contributors`, between -modulus/2 and modulus/2."""

    values: Ints
    contributors: tuple[int, ...]


class Protocol(ABC):
    """One member's side of one sum: a deterministic function of its value, its coins and received posts.

    `follow` checks all rules that concern public parts alone, and `outcome` computes the sum from them.
    Members and strangers who read a transcript run the same code.
    """

    name: ClassVar[str]
    rounds: ClassVar[tuple[str, ...]]  # names of the rounds, in order

    def __init__(self, setting: Setting, me: int, value: Ints, coins: ProtocolCoins) -> None:
        """Begin with a value that is already noised.

        If values exceed modulus / 2 / members, sums wrap round. That changes the result, not its privacy.
        """
        self._require_served(setting)
        if not 0 <= me < setting.members:
            raise BadParameter("me", "must be the number of a member")
        if value.shape != (setting.length,) or value.dtype != np.int64:
            raise BadParameter("value", f"must have {setting.length} whole numbers of 64 bits")
        self.setting = setting
        self.field = setting.field
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
        """Return why this protocol cannot serve the setting, or None."""

    @classmethod
    def _require_served(cls, setting: Setting) -> None:
        why = cls.refusal(setting)
        if why is not None:
            raise BadParameter("protocol", why)

    @classmethod
    def honest(cls, setting: Setting) -> int:
        """Return how many honest members' noise is at least in every sum that the adversary learns."""
        return setting.members - setting.coalition - setting.losses

    @classmethod
    @abstractmethod
    def threshold(cls, setting: Setting) -> int:
        """Return the number of members that can open a sum. Fewer cannot."""

    @classmethod
    def agreeing(cls, setting: Setting) -> int:
        """Return how many members must agree on who is in the sum."""
        return setting.quorum

    @classmethod
    @abstractmethod
    def traffic(cls, setting: Setting) -> tuple[RoundTraffic, ...]:
        """Return the exact size of one member's post in every round."""

    @classmethod
    def follow(cls, setting: Setting, rounds: Sequence[Publics]) -> None:
        """Check that the last closed round is a valid continuation of the rounds before it.

        Raises `ProtocolStopped`, with the sender's number if a public part has not exactly the right form.
        """
        last = rounds[-1]
        before: Collection[int] = range(setting.members) if len(rounds) == 1 else rounds[-2]
        strangers = tuple(sorted(set(last) - set(before)))
        if strangers:
            raise ProtocolStopped(
                "a post came from a member who is not, or no longer, in this run", strangers
            )
        cls._follow(setting, rounds)

    @classmethod
    def _follow(cls, setting: Setting, rounds: Sequence[Publics]) -> None:
        """Check this protocol's own rules for the last round. Raises `ProtocolStopped`."""
        last, rule = rounds[-1], cls._rule(setting, rounds)
        if rule.elements == 0 and any(last.values()):
            wrong = tuple(i for i in sorted(last) if last[i])
            raise ProtocolStopped("a public part must be empty in this round", wrong)
        if len(last) < rule.least:
            expected = range(setting.members) if rule.expected is None else sorted(rule.expected)
            raise ProtocolStopped(rule.why, tuple(i for i in expected if i not in last))
        if rule.elements:
            for i, public in last.items():
                read_elements(setting, public, rule.elements, sender=i)

    @classmethod
    @abstractmethod
    def _rule(cls, setting: Setting, rounds: Sequence[Publics]) -> RoundRule:
        """Return the rule for the last of these rounds."""

    @classmethod
    @abstractmethod
    def outcome(cls, setting: Setting, rounds: Sequence[Publics]) -> OpenedSum:
        """Return the sum that the public parts of all rounds open. Raises `ProtocolStopped`."""

    @classmethod
    def observe(cls, setting: Setting, rounds: Sequence[Publics]) -> OpenedSum | None:
        """Check the public parts of rounds as a stranger can, and return the sum, or None before the end.

        Raises `ProtocolStopped`.
        """
        cls._require_served(setting)
        if len(rounds) > len(cls.rounds):
            raise ProtocolStopped("there are more rounds than this protocol has")
        for number in range(len(rounds)):
            cls.follow(setting, rounds[: number + 1])
        return cls.outcome(setting, rounds) if len(rounds) == len(cls.rounds) else None

    def post(self, round: int) -> Post:  # noqa: A002
        """Return this member's post. Call it once per round, in order, before `hear` of that round."""
        if self._stopped or round != self._posted or round != len(self.heard):
            raise ProtocolStopped("nothing more is posted: a member posts once in each round, in order")
        self._posted += 1
        return self._post(round)

    @abstractmethod
    def _post(self, number: int) -> Post: ...

    def hear(self, round: int, posts: Mapping[int, Heard]) -> None:  # noqa: A002
        """Receive all posts of a closed round, also this member's own.

        Raises `ProtocolStopped`, with the sender's number if a post has not exactly the right form. After
        that every call raises it.
        """
        if self._stopped or round != len(self.heard) or round + 1 != self._posted:
            raise ProtocolStopped("a round is received once, after this member has posted in it")
        try:
            if self.me not in posts:
                raise ProtocolStopped(
                    "this member's post came too late, so it is no longer in the run", (self.me,)
                )
            self.heard.append({i: posts[i].public for i in sorted(posts)})
            self.follow(self.setting, self.heard)
            self._take(round, posts)
        except ProtocolStopped:
            self._stopped = True
            raise

    @abstractmethod
    def _take(self, number: int, posts: Mapping[int, Heard]) -> None:
        """Keep the parts of a round's posts that this member needs later, above all the private parts."""

    @property
    def opened(self) -> OpenedSum:
        """The sum, after the last round was received. Raises `ProtocolStopped`."""
        if self._stopped or len(self.heard) != len(self.rounds):
            raise ProtocolStopped("nothing was opened")
        if self._opened is None:
            self._opened = self.outcome(self.setting, self.heard)
        return self._opened


def read_elements(setting: Setting, data: bytes | None, length: int, *, sender: int) -> Elements:
    """Read the field elements that a member sent. Raises `ProtocolStopped` with the sender's number."""
    if data is None:
        raise ProtocolStopped("a member left out the part for this member", (sender,))
    try:
        return setting.field.from_bytes(data, length)
    except BadValue as bad:
        raise ProtocolStopped(f"a member's part {bad}", (sender,)) from None


def total_of(setting: Setting, publics: Publics, *, contributors: Collection[int]) -> OpenedSum:
    """Add up the vectors in the public parts of one round."""
    field = setting.field
    vectors = (field.from_bytes(public, setting.length) for public in publics.values())
    return OpenedSum(field.to_signed(field.total(vectors, setting.length)), tuple(sorted(contributors)))


def coalition_refusal(setting: Setting) -> str | None:
    """Return why a coalition of 0 is refused, or None if members are protected from one another.

    With a coalition of 0, noise and thresholds protect from the relay only. One member's number then has
    only a part of the noise, and other members could read it.
    """
    is_open = setting.members > 1 and not setting.coalition
    return f"the coalition {COALITION_TOO_SMALL}" if is_open else None


def quorum_refusal(setting: Setting, quorum: int) -> str | None:
    """Return why too few members would be left to agree on a set, or None."""
    if setting.least >= quorum:
        return None
    some = "more than half" if quorum == setting.majority else f"{quorum}"
    return f"{some} of the members must agree, so losses must be at most {setting.members - quorum}"
