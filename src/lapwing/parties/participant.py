"""One member's protocol state in a run: its posts, and its checks of received rounds. No input or output.

Claim    for every behaviour of the relay, an honest member's protocol receives only rounds in which every
         post is signed by its member for exactly this run, stage and round, and whose senders have all
         received the same rounds before. It receives each round once, and posts once in each.
Because  `hear` checks all of this first, and stops at the first violation; `seen` chains the rounds.
Test     tests/parties/test_participant.py
"""

from __future__ import annotations

from collections.abc import Mapping

from lapwing.errors import BadValue
from lapwing.parties import posts
from lapwing.parties.identity import MemberKeys
from lapwing.parties.posts import SALT_BYTES, BoxContext, Delivery, Envelope, Parcel
from lapwing.parties.protocols.protocol import Heard, Ints, OpenedSum, Post, Protocol, ProtocolStopped
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.protocols.secret_sharing import ProtocolCoins
from lapwing.parties.run_configuration import RoundKey, RunConfiguration


class Participant:
    """A member's way through stages and rounds.

    Call `start_stage` once per stage, then `post` and `hear` once per round.
    """

    def __init__(self, config: RunConfiguration, me: int, keys: MemberKeys) -> None:
        self.config = config
        self.me = me
        self.stage = 0
        self.round = 0
        self.opened: list[OpenedSum] = []
        self.seen = posts.start_digest(config.run_id)
        self._keys = keys
        self._in = set(range(len(config.cards)))  # the members that posted in the round before
        self._protocol: Protocol | None = None
        self._post: Post | None = None
        self._envelope = b""
        self._has_stopped = False

    @property
    def key(self) -> RoundKey:
        """Stage and round that are open now."""
        return self.stage, self.round

    @property
    def is_over(self) -> bool:
        """True if all stages were opened."""
        return self.stage == self.config.stages

    @property
    def needs_value(self) -> bool:
        """True if the stage waits for `start_stage`."""
        return self._protocol is None

    def start_stage(self, value: Ints, coins: ProtocolCoins) -> None:
        """Begin a stage with this member's noised value."""
        assert self.needs_value
        assert not self.is_over
        kind = PROTOCOLS[self.config.protocol]
        self._protocol = kind(self.config.setting(self.stage), self.me, value, coins)

    def post(self) -> Parcel:
        """Return this member's post of the open round, signed and sealed."""
        post = self._protocol_post()
        commitments: dict[int, bytes] = {}
        boxes: dict[int, bytes] = {}
        for to, plain in (post.private or {}).items():
            if to != self.me:
                salt, commitments[to] = posts.commit(plain)
                key = self.config.cards[to].box_key
                boxes[to] = posts.seal(salt + plain, to=key, place=self._box_context(self.me, to))
        envelope = Envelope(self.config.run_id, *self.key, self.me, self.seen, post.public, commitments)
        self._envelope = envelope.signed(self._keys).to_bytes()
        return Parcel(self._envelope, boxes)

    def repeat_post(self, parcel: Parcel) -> None:
        """Continue after a crash with the open round's post from the journal. Raises `ProtocolStopped`."""
        post = self._protocol_post()
        stored = Envelope.from_bytes(parcel.envelope)
        if stored.public != post.public or stored.seen != self.seen:
            raise ProtocolStopped(
                "the post in the journal does not follow from the rest of the journal", (self.me,)
            )
        self._envelope = parcel.envelope

    def _protocol_post(self) -> Post:
        if self._has_stopped:
            raise ProtocolStopped("nothing more is posted: this member has stopped")
        assert self._protocol is not None
        assert self._post is None
        self._post = self._protocol.post(self.round)
        return self._post

    def hear(self, delivery: Delivery) -> None:
        """Check a closed round, and pass it to the protocol.

        Raises `ProtocolStopped`. After that this member never posts again.
        """
        try:
            self._hear(delivery)
        except ProtocolStopped:
            self._has_stopped = True
            raise

    def _hear(self, delivery: Delivery) -> None:
        assert self._protocol is not None
        assert self._post is not None
        if delivery.key != self.key:
            raise ProtocolStopped("the relay showed another round than the open one")
        envelopes = self._checked(delivery)
        heard = {
            envelope.sender: self._heard(envelope, box)
            for envelope, (_, box) in zip(envelopes.values(), delivery.items, strict=True)
        }
        self._protocol.hear(self.round, heard)
        self.seen = posts.round_digest(envelopes.values())
        self._in = set(envelopes)
        self._post = None
        self.round += 1
        if self.round == len(self.config.rounds):
            self.opened.append(self._protocol.opened)
            self._protocol = None
            self.stage, self.round = self.stage + 1, 0

    def _checked(self, delivery: Delivery) -> Mapping[int, Envelope]:
        """Return the envelopes by sender, in the order of delivery. Raises `ProtocolStopped`."""
        envelopes: dict[int, Envelope] = {}
        for raw, _ in delivery.items:
            try:
                envelope = Envelope.from_bytes(raw)
            except BadValue as error:
                raise ProtocolStopped(f"the relay passed on bytes that are no post: {error}") from error
            if envelope.sender >= len(self.config.cards):
                raise ProtocolStopped("the relay passed on a post of a member that does not exist")
            why = self._objection(envelope, raw)
            if envelope.sender in envelopes:
                why = "a member posted twice in one round"
            if why is not None:
                raise ProtocolStopped(why, (envelope.sender,))
            envelopes[envelope.sender] = envelope
        if self.me not in envelopes:
            raise ProtocolStopped("the relay left this member's own post out", (self.me,))
        others = tuple(sorted(i for i, envelope in envelopes.items() if envelope.seen != self.seen))
        if others:
            raise ProtocolStopped("the relay showed members different rounds", others)
        return envelopes

    def _objection(self, envelope: Envelope, raw: bytes) -> str | None:
        """Return why this post cannot belong to the open round, or None."""
        sender, members = envelope.sender, len(self.config.cards)
        violations = {
            "a post is not signed by its sender": not envelope.is_signed_by(self.config.cards[sender]),
            "a post is of another run": envelope.run != self.config.run_id,
            "a post is of another round": (envelope.stage, envelope.round) != self.key,
            "a member who missed a round posted again": sender not in self._in,
            "a post has a private part for a member that does not exist": any(
                to >= members for to in envelope.commitments
            ),
            "the relay changed this member's own post": sender == self.me and raw != self._envelope,
        }
        return next((why for why, is_so in violations.items() if is_so), None)

    def _heard(self, envelope: Envelope, box: bytes | None) -> Heard:
        """Return a post with the private part for this member. Raises `ProtocolStopped`."""
        sender = envelope.sender
        if sender == self.me:
            assert self._post is not None
            return Heard(envelope.public, (self._post.private or {}).get(self.me))
        committed = envelope.commitments.get(self.me)
        if (committed is None) != (box is None):
            raise ProtocolStopped(
                "a private part is missing, or its sender did not commit to it", (sender,)
            )
        if box is None or committed is None:
            return Heard(envelope.public)
        try:
            opened = posts.unseal(box, key=self._keys.box, place=self._box_context(sender, self.me))
        except BadValue as error:
            raise ProtocolStopped(str(error), (sender,)) from error
        salt, plain = opened[:SALT_BYTES], opened[SALT_BYTES:]
        if len(salt) != SALT_BYTES or posts.commitment(salt, plain) != committed:
            raise ProtocolStopped("a private part is not the one that was committed to", (sender,))
        return Heard(envelope.public, plain)

    def _box_context(self, sender: int, recipient: int) -> BoxContext:
        return BoxContext(self.config.run_id, self.stage, self.round, sender, recipient)
