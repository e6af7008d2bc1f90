"""A run of a protocol in one process: all members, with losses, late posts and a relay that lies.

The same protocol objects as between machines. Signatures are taken as given: nobody posts for another, and
a post is heard only by those who heard the same rounds before: digests signed along with posts see to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType

from lapwing.errors import BadParameter
from lapwing.parties.protocols import PROTOCOLS
from lapwing.parties.protocols.coins import Coins, FreshCoins
from lapwing.parties.protocols.protocol import Heard, Ints, Opened, Post, Protocol, Publics, Setting, Stop

_NOBODY: Mapping[int, int] = MappingProxyType({})
_NO_LIES: Mapping[tuple[int, int], Collection[int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Seen:
    """One message that the adversary has: to everybody (`recipient` None), or to one of its members."""

    round: int
    sender: int
    recipient: int | None
    content: bytes


@dataclass(frozen=True, slots=True)
class RehearsedRound:
    """What was posted in one round, late posts among it, and who was in when the round was closed."""

    name: str
    posts: Mapping[int, Post]
    closed: frozenset[int]

    @property
    def publics(self) -> Publics:
        """As all hear them if the relay is honest."""
        return {i: self.posts[i].public for i in sorted(self.closed)}


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """How it ended for each member, and all that was said."""

    outcomes: tuple[Opened | Stop, ...]
    rounds: tuple[RehearsedRound, ...]

    @property
    def opened(self) -> Opened:
        """What those who came to the end have opened; the `Stop` of the first member, if nobody did."""
        for outcome in self.outcomes:
            if isinstance(outcome, Opened):
                return outcome
        raise next(outcome for outcome in self.outcomes if isinstance(outcome, Stop))

    def view(self, coalition: Iterable[int]) -> list[Seen]:
        """What a coalition and the relay together saw, beside the coalition's own values and coins."""
        members = sorted(set(coalition))
        seen = []
        for number, spoken in enumerate(self.rounds):
            for sender, post in sorted(spoken.posts.items()):
                seen.append(Seen(number, sender, None, post.public))
                private = post.private or {}
                seen += [Seen(number, sender, i, private[i]) for i in members if i in private]
        return seen


@dataclass(frozen=True, slots=True)
class _Member:
    playing: Protocol
    heard: bytes = bytes(32)  # the digest of all rounds that it has heard


def rehearse(
    protocol: str | type[Protocol],
    setting: Setting,
    values: Sequence[Ints],
    *,
    losses: Mapping[int, int] = _NOBODY,
    late: Mapping[int, int] = _NOBODY,
    shown: Mapping[tuple[int, int], Collection[int]] = _NO_LIES,
    coins: Sequence[Coins] | None = None,
    twice: Collection[int] = (),
    on_round: Callable[[RehearsedRound], None] | None = None,
) -> Rehearsal:
    """Take all members through one sum. `protocol` is its letter.

    A member with losses[i] = r posts nothing from round r on. With late[i] = r its post of that round
    reaches the relay, but not the other members. A lying relay shows member i only the posts of shown[r, i]
    in round r, late ones or not. Members in `twice` sign their posts for everybody, whatever they heard.
    """
    if len(values) != setting.members:
        raise BadParameter("values", f"must be {setting.members}, one for each member")
    kind = PROTOCOLS[protocol] if isinstance(protocol, str) else protocol
    drawn = coins if coins is not None else [FreshCoins() for _ in values]
    members = {i: _Member(kind(setting, i, values[i], drawn[i])) for i in range(setting.members)}
    outcomes: dict[int, Opened | Stop] = {}
    rounds: list[RehearsedRound] = []
    for number, name in enumerate(kind.rounds):
        for i in [i for i in members if losses.get(i, len(kind.rounds)) <= number]:
            outcomes[i] = Stop("this member was lost", (i,))
            del members[i]
        posts = {i: member.playing.post(number) for i, member in members.items()}
        spoken = RehearsedRound(name, posts, frozenset(i for i in posts if late.get(i) != number))
        rounds.append(spoken)
        if on_round is not None:
            on_round(spoken)
        members = _heard(number, spoken, members, outcomes, shown=shown, twice=twice)
    outcomes |= {i: _opened(member.playing) for i, member in members.items()}
    return Rehearsal(tuple(outcomes[i] for i in range(setting.members)), tuple(rounds))


def _heard(
    number: int,
    spoken: RehearsedRound,
    members: Mapping[int, _Member],
    outcomes: dict[int, Opened | Stop],
    *,
    shown: Mapping[tuple[int, int], Collection[int]],
    twice: Collection[int],
) -> dict[int, _Member]:
    """Let everybody hear a round. Those who stop have an outcome; the others go on."""
    left = {}
    for i, member in members.items():
        among = shown.get((number, i), spoken.closed)
        senders = [
            j for j in spoken.posts if j in among and (j in twice or members[j].heard == member.heard)
        ]
        heard = {j: _for(i, spoken.posts[j]) for j in senders}
        try:
            member.playing.hear(number, heard)
        except Stop as stop:
            outcomes[i] = stop
        else:
            left[i] = _Member(member.playing, _digest(member.heard, member.playing.heard[-1]))
    return left


def _for(recipient: int, post: Post) -> Heard:
    return Heard(post.public, (post.private or {}).get(recipient))


def _digest(before: bytes, publics: Publics) -> bytes:
    parts = (i.to_bytes(4, "big") + sha256(public).digest() for i, public in sorted(publics.items()))
    return sha256(before + b"".join(parts)).digest()


def _opened(playing: Protocol) -> Opened | Stop:
    try:
        return playing.opened
    except Stop as stop:
        return stop
