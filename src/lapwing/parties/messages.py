"""What travels in a run: signed envelopes, sealed boxes, frames; and the table that all sit at.

Frames: how messages follow one another on a connection, each with its kind and a bounded length.

Signed greetings: a member says that it is ready for a run, and the others can check that it did.

Claim    a greeting that is accepted was signed by its member for exactly this run, in this version of the
         protocol, after the member had read its data. A relay that says who is ready must show as many of
         them as the run needs. It may show what a member signed in any lobby of the same run, also one that
         was ended: then a member may be charged alone, once for the run (docs/limits.md).
Test     tests/parties/running/test_messages.py, tests/faults/test_parties_lies.py

Signed notices: a member that leaves a run says so, and why, so that nobody has to wait for it.

Progress of a run, for whoever watches. All of it is public.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from lapwing.core.noise import random_bytes
from lapwing.errors import BadValue
from lapwing.parties.posts import SALT_BYTES, Envelope, Parcel, sealed_size
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.run_configuration import RunConfiguration

if TYPE_CHECKING:
    from lapwing.parties.identity import Card, MemberKeys


HEADER = struct.Struct(">IB")
SMALL_FRAME_BYTES = 1 << 16  # of everything but posts, deliveries and the greetings of all members


class FrameKind(IntEnum):
    """What a frame holds."""

    HELLO = 1  # member: its version, which run, and how far it is
    POST = 2  # member: a parcel
    NOTICE = 3  # member: it leaves
    DONE = 4  # member: it has all it needs
    BEGIN = 5  # relay: the greetings of all who are ready
    CLOSED = 6  # relay: a delivery
    NEWS = 7  # relay: who has come, is ready, has posted, was refused
    END = 8  # relay: why it is over for this member
    WELCOME = 9  # relay: its version; the member may come in
    READY = 10  # member: its greeting; it has read its data
    OUT = 11  # relay: this member missed a round; all rounds follow when the sums are open


def frame(kind: FrameKind, *parts: bytes) -> list[bytes]:
    """Header and parts, to be written one after the other."""
    return [HEADER.pack(sum(map(len, parts)), kind), *parts]


def json_frame(kind: FrameKind, **said: object) -> list[bytes]:
    """A frame of JSON."""
    return frame(kind, json.dumps(said).encode())


def read_header(raw: bytes, *, largest: int) -> tuple[FrameKind, int]:
    """Kind and length of what follows. Raises `BadValue`."""
    length, number = HEADER.unpack(raw)
    try:
        kind = FrameKind(number)
    except ValueError as error:
        raise BadValue("a frame is of no known kind") from error
    bound = largest if kind in (FrameKind.POST, FrameKind.BEGIN, FrameKind.CLOSED) else SMALL_FRAME_BYTES
    if length > bound:
        raise BadValue(f"a frame of {length:,} bytes came, where at most {bound:,} can")
    return kind, length


def read_json(payload: bytes) -> dict[str, Any]:
    """What `json_frame` wrote. Raises `BadValue`."""
    try:
        said = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise BadValue("a message is not JSON") from error
    if not isinstance(said, dict):
        raise BadValue("a message is not of the right form")
    return said


def largest_post(table: RunConfiguration) -> int:
    """More than any post of this table has; posts of members who were lost make others a little longer."""
    sizes = [
        parcel_size(traffic.public, traffic.private, traffic.recipients)
        for traffic in PROTOCOLS[table.protocol].traffic(table.setting(0))
    ]
    return 2 * max(sizes) + SMALL_FRAME_BYTES


def largest_delivery(table: RunConfiguration) -> int:
    """More than any closed round of this table has."""
    return (len(table.cards) + 1) * largest_post(table)


def parcel_size(public: int, private: int, recipients: int) -> int:
    """Bytes of one post on the wire: envelope and boxes around what a protocol posts."""
    envelope = Envelope.size(public, recipients)
    box = sealed_size(SALT_BYTES + private)
    return HEADER.size + Parcel.size(envelope, box, recipients)


# Of what members and relays say to one another. 1 knew neither versions nor who is ready: it says none.
PROTOCOL_VERSION = 2
_NONCE_BYTES = 16


@dataclass(frozen=True, slots=True)
class ReadyMessage:
    """`nonce` is fresh each time a member takes part: no two greetings are alike."""

    run: bytes
    sender: int
    nonce: bytes
    signature: bytes = b""

    @classmethod
    def fresh(cls, run: bytes, sender: int, keys: MemberKeys) -> ReadyMessage:
        """A new one, signed."""
        unsigned = cls(run, sender, random_bytes(_NONCE_BYTES))
        return replace(unsigned, signature=keys.sign(unsigned._signed_part()))

    def _signed_part(self) -> bytes:
        whole = [PROTOCOL_VERSION, self.run.hex(), self.sender, self.nonce.hex()]
        return b"lapwing ready\n" + json.dumps(whole).encode()

    def is_signed_by(self, card: Card) -> bool:
        """Whether the signature is the card's."""
        return card.verifies(self.signature, self._signed_part())

    def to_json(self) -> list[object]:
        """Member, nonce and signature; the run is known to whoever reads it."""
        return [
            self.sender,
            base64.b64encode(self.nonce).decode(),
            base64.b64encode(self.signature).decode(),
        ]

    @classmethod
    def from_json(cls, run: bytes, value: object) -> ReadyMessage:
        """What `to_json` gave. Raises `BadValue`."""
        match value:
            case [int(sender), str(nonce), str(signature)]:
                try:
                    return cls(
                        run,
                        sender,
                        base64.b64decode(nonce, validate=True),
                        base64.b64decode(signature, validate=True),
                    )
                except ValueError as error:
                    raise BadValue("a greeting is not of the right form") from error
        raise BadValue("a greeting is not of the right form")


def version_mismatch(said: object) -> str | None:
    """Why who says this version cannot be talked with, if so. None is what version 1 says."""
    if said == PROTOCOL_VERSION and type(said) is int:
        return None
    theirs = f"version {said}" if type(said) is int and 0 < said < 1 << 31 else "no version, as old ones do"
    return (
        f"it speaks {theirs}, and this is version {PROTOCOL_VERSION} of the protocol: all members and the host must "
        "have the same version of lapwing"
    )


LONGEST_REASON = 300
_FIELDS = {"run", "stage", "round", "member", "why", "signature"}


@dataclass(frozen=True, slots=True)
class LeaveMessage:
    """`why` is public: it names members and rounds, never data."""

    run: bytes
    stage: int
    round: int
    sender: int
    why: str
    signature: bytes = b""

    def _signed_part(self) -> bytes:
        whole = [self.run.hex(), self.stage, self.round, self.sender, self.why]
        return b"lapwing notice\n" + json.dumps(whole).encode()

    def signed(self, keys: MemberKeys) -> LeaveMessage:
        """The same, signed."""
        signature = keys.sign(self._signed_part())
        return LeaveMessage(self.run, self.stage, self.round, self.sender, self.why, signature)

    def is_signed_by(self, card: Card) -> bool:
        """Whether the signature is the card's."""
        return card.verifies(self.signature, self._signed_part())

    def to_json(self) -> dict[str, object]:
        """As in a transcript."""
        return {
            "run": self.run.hex(),
            "stage": self.stage,
            "round": self.round,
            "member": self.sender,
            "why": self.why,
            "signature": base64.b64encode(self.signature).decode(),
        }

    @classmethod
    def from_json(cls, value: object) -> LeaveMessage:
        """What `to_json` gave. Raises `BadValue`."""
        if not isinstance(value, dict) or set(value) != _FIELDS:
            raise BadValue("a notice is not of the right form")
        match value:
            case {
                "run": str(run),
                "stage": int(stage),
                "round": int(round_),
                "member": int(sender),
                "why": str(why),
                "signature": str(signature),
            } if len(why) <= LONGEST_REASON and why.isprintable():
                try:
                    raw = base64.b64decode(signature, validate=True)
                    return cls(bytes.fromhex(run), stage, round_, sender, why, raw)
                except ValueError as error:
                    raise BadValue("a notice is not of the right form") from error
        raise BadValue("a notice is not of the right form")


@dataclass(frozen=True, slots=True)
class Progress:
    """One thing that happened. `kind` is one of

    arrived   `names` are in the lobby
    ready     `names` have read their data, and can begin
    refused   `names` were turned away at the door: `why`
    begun     `names` are in the run
    round     round `round` (number `index` of `rounds`) of stage `stage` of `stages` is open
    posted    `names` have posted in it
    closed    `names` were in time
    lost      `names` are out
    opened    the sum of a stage is open, and `names` are in it
    unserved  `names` may not know the sums, which are kept for them: `why`
    away      the relay cannot be reached; trying again
    """

    kind: str
    names: tuple[str, ...] = ()
    stage: int = 0
    stages: int = 1
    round: str = ""
    index: int = 0
    rounds: int = 0
    why: str = ""


ProgressCallback = Callable[[Progress], None]


def ignore_progress(_: Progress) -> None:
    """The default."""


def suppress_errors(watch: ProgressCallback) -> ProgressCallback:
    """The same, but what goes wrong in watching, such as a closed terminal, never reaches the run."""

    def tell(progress: Progress) -> None:
        with suppress(Exception):
            watch(progress)

    return tell
