"""One member's place in a run: what it posts, and what it makes of what it is shown. No I/O in here.

Claim    whatever a relay shows, an honest member's protocol hears only rounds in which every post is signed
         by its member for exactly this run, stage and round, and by members who have all heard the same
         rounds before. It hears each round once, and posts once in each.
Because  `hear` checks all of it first, and stops at the first thing that is not so; `seen` chains rounds.
Test     tests/parties/running/test_seat.py
"""

from __future__ import annotations

from collections.abc import Mapping

from lapwing.errors import BadValue
from lapwing.parties.identity import MemberKeys
from lapwing.parties.posts import (
    SALT_BYTES,
    BoxContext,
    Delivery,
    Envelope,
    Parcel,
    commit,
    commitment,
    round_digest,
    seal,
    start_digest,
    unseal,
)
from lapwing.parties.protocols.protocol import Heard, Ints, OpenedSum, Post, Protocol, ProtocolStopped
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.protocols.secret_sharing import ProtocolCoins
from lapwing.parties.run_configuration import RunConfiguration


class Participant:
    """Goes through stages and rounds: `sit` once per stage, then `post` and `hear` once per round."""

    def __init__(self, table: RunConfiguration, me: int, keys: MemberKeys) -> None:
        self.table = table
        self.me = me
        self.stage = 0
        self.round = 0
        self.opened: list[OpenedSum] = []
        self.seen = start_digest(table.run_id)
        self._keys = keys
        self._kind = PROTOCOLS[table.protocol]
        self._in = set(range(len(table.cards)))  # who was in the round before
        self._protocol: Protocol | None = None
        self._post: Post | None = None
        self._envelope = b""
        self._has_stopped = False

    @property
    def rounds(self) -> tuple[str, ...]:
        """The names of a stage's rounds."""
        return self._kind.rounds

    @property
    def is_over(self) -> bool:
        """Whether all stages were opened."""
        return self.stage == self.table.stages

    @property
    def needs_value(self) -> bool:
        """Whether this stage waits for `sit`."""
        return self._protocol is None

    def start_stage(self, value: Ints, coins: ProtocolCoins) -> None:
        """Begin a stage, with this member's noised value."""
        assert self.needs_value
        assert not self.is_over
        self._protocol = self._kind(self.table.setting(self.stage), self.me, value, coins)

    def post(self) -> Parcel:
        """What this member posts in this round: signed, and sealed."""
        post = self._protocol_post()
        commitments: dict[int, bytes] = {}
        boxes: dict[int, bytes] = {}
        for to, plain in (post.private or {}).items():
            if to == self.me:
                continue
            salt, commitments[to] = commit(plain)
            key = self.table.cards[to].box_key
            boxes[to] = seal(salt + plain, to=key, place=self._place(self.me, to))
        envelope = Envelope(
            self.table.run_id, self.stage, self.round, self.me, self.seen, post.public, commitments
        )
        self._envelope = envelope.signed(self._keys).to_bytes()
        return Parcel(self._envelope, boxes)

    def repeat_post(self, parcel: Parcel) -> None:
        """After a crash: what was posted in this round, from the journal."""
        post = self._protocol_post()
        stored = Envelope.from_bytes(parcel.envelope)
        if stored.public != post.public or stored.seen != self.seen:
            raise ProtocolStopped("the journal does not lead to what it says was posted", (self.me,))
        self._envelope = parcel.envelope

    def _protocol_post(self) -> Post:
        if self._has_stopped:
            raise ProtocolStopped("nothing more is posted: this member has stopped")
        assert self._protocol is not None
        assert self._post is None
        self._post = self._protocol.post(self.round)
        return self._post

    def hear(self, delivery: Delivery) -> None:
        """Check a closed round, and take it in. Raises `ProtocolStopped`: then nothing more is posted, ever."""
        try:
            self._hear(delivery)
        except ProtocolStopped:
            self._has_stopped = True
            raise

    def _hear(self, delivery: Delivery) -> None:
        assert self._protocol is not None
        assert self._post is not None
        if (delivery.stage, delivery.round) != (self.stage, self.round):
            raise ProtocolStopped("the relay showed a round that is not the one that is open")
        envelopes = self._checked(delivery)
        heard = {
            envelope.sender: self._heard(envelope, box)
            for envelope, (_, box) in zip(envelopes.values(), delivery.items, strict=True)
        }
        self._protocol.hear(self.round, heard)
        self.seen = round_digest(envelopes.values())
        self._in = set(envelopes)
        self._post = None
        self.round += 1
        if self.round == len(self.rounds):
            self.opened.append(self._protocol.opened)
            self._protocol = None
            self.stage, self.round = self.stage + 1, 0

    def _checked(self, delivery: Delivery) -> Mapping[int, Envelope]:
        """The envelopes by sender; in the order in which they came."""
        found: dict[int, Envelope] = {}
        for raw, _ in delivery.items:
            try:
                envelope = Envelope.from_bytes(raw)
            except BadValue as error:
                raise ProtocolStopped(f"the relay passed on what is no post: {error}") from error
            if envelope.sender >= len(self.table.cards):
                raise ProtocolStopped("the relay passed on a post of nobody")
            why = self._objection(envelope, raw)
            if envelope.sender in found:
                why = "a member posted twice in one round"
            if why is not None:
                raise ProtocolStopped(why, (envelope.sender,))
            found[envelope.sender] = envelope
        if self.me not in found:
            raise ProtocolStopped("the relay left this member's own post out", (self.me,))
        others = tuple(sorted(i for i, envelope in found.items() if envelope.seen != self.seen))
        if others:
            raise ProtocolStopped("the relay showed members different rounds", others)
        return found

    def _objection(self, envelope: Envelope, raw: bytes) -> str | None:
        """Why this post cannot be one of this round, if so."""
        sender, members = envelope.sender, len(self.table.cards)
        is_here = (envelope.stage, envelope.round) == (self.stage, self.round)
        wrongs = {
            "a post is not signed by its sender": not envelope.is_signed_by(self.table.cards[sender]),
            "a post is of another run": envelope.run != self.table.run_id,
            "a post is of another round": not is_here,
            "a member who missed a round posted again": sender not in self._in,
            "a post has a part for nobody": any(to >= members for to in envelope.commitments),
            "the relay changed this member's own post": sender == self.me and raw != self._envelope,
        }
        return next((why for why, is_so in wrongs.items() if is_so), None)

    def _heard(self, envelope: Envelope, box: bytes | None) -> Heard:
        sender = envelope.sender
        if sender == self.me:
            assert self._post is not None
            return Heard(envelope.public, (self._post.private or {}).get(self.me))
        committed = envelope.commitments.get(self.me)
        if (committed is None) != (box is None):
            raise ProtocolStopped("a private part is missing, or nobody committed to it", (sender,))
        if box is None or committed is None:
            return Heard(envelope.public)
        try:
            opened = unseal(box, key=self._keys.box, place=self._place(sender, self.me))
        except BadValue as error:
            raise ProtocolStopped(str(error), (sender,)) from error
        salt, plain = opened[:SALT_BYTES], opened[SALT_BYTES:]
        if len(salt) != SALT_BYTES or commitment(salt, plain) != committed:
            raise ProtocolStopped("a private part is not the one that was committed to", (sender,))
        return Heard(envelope.public, plain)

    def _place(self, sender: int, recipient: int) -> BoxContext:
        return BoxContext(self.table.run_id, self.stage, self.round, sender, recipient)
