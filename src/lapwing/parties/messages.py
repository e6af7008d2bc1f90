"""Messages between a member and the relay: frames, signed statements of members, and progress events.

Claim    an accepted ready message was signed by its member for exactly this run, in this version of the
         protocol, after the member had read its data. A relay that says which members are ready must show
         as many ready messages as the run needs. It may show messages that members signed in any lobby of
         the same run, also in one that was ended: then a member may be charged alone, once for the run
         (docs/limits.md).
Test     tests/parties/test_messages.py, tests/faults/test_parties_lies.py
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from lapwing.core.noise import random_bytes
from lapwing.errors import BadValue
from lapwing.parties.identity import MemberKeys, SignedStatement
from lapwing.parties.posts import SALT_BYTES, Envelope, Parcel, sealed_size
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.run_configuration import RoundKey, RunConfiguration

# Frames

HEADER = struct.Struct(">IB")
SMALL_FRAME_BYTES = 1 << 16  # bound of all frames but posts, deliveries and the list of ready messages


class FrameKind(IntEnum):
    """The kind of a frame: its sender, and its content."""

    HELLO = 1  # member: its version, its run, and its position in the run
    POST = 2  # member: a parcel
    LEAVE = 3  # member: its leave message; the relay passes it on
    DONE = 4  # member: it needs nothing more
    BEGIN = 5  # relay: the run begins; the ready messages
    CLOSED = 6  # relay: a delivery
    NEWS = 7  # relay: which members arrived, are ready, posted or were refused
    END = 8  # relay: the run is over for this member; the reason
    WELCOME = 9  # relay: its version; the member is admitted
    READY = 10  # member: its ready message; it has read its data
    OUT = 11  # relay: this member missed a round; all rounds follow when the sums are open


def frame(kind: FrameKind, *parts: bytes) -> list[bytes]:
    """Return a frame as its header and its parts, to be written in this order."""
    return [HEADER.pack(sum(map(len, parts)), kind), *parts]


def json_frame(kind: FrameKind, **content: object) -> list[bytes]:
    """Return a frame with JSON content."""
    return frame(kind, json.dumps(content).encode())


def read_header(raw: bytes, *, largest: int) -> tuple[FrameKind, int]:
    """Return the kind and the length of a frame. Raises `BadValue`, also for a length above the bound."""
    length, number = HEADER.unpack(raw)
    try:
        kind = FrameKind(number)
    except ValueError as error:
        raise BadValue("a frame is of no known kind") from error
    bound = largest if kind in (FrameKind.POST, FrameKind.BEGIN, FrameKind.CLOSED) else SMALL_FRAME_BYTES
    if length > bound:
        raise BadValue(f"a frame has {length:,} bytes, but at most {bound:,} are possible")
    return kind, length


def read_json(payload: bytes) -> dict[str, Any]:
    """Return the content of a frame that `json_frame` wrote. Raises `BadValue`."""
    try:
        content = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise BadValue("a message is not JSON") from error
    if not isinstance(content, dict):
        raise BadValue("a message is not of the right form")
    return content


def largest_post(config: RunConfiguration) -> int:
    """Return a bound in bytes for posts of a run. Posts grow a little when other members are lost."""
    sizes = [
        parcel_size(traffic.public, traffic.private, traffic.recipients)
        for traffic in PROTOCOLS[config.protocol].traffic(config.setting(0))
    ]
    return 2 * max(sizes) + SMALL_FRAME_BYTES


def largest_delivery(config: RunConfiguration) -> int:
    """Return a bound in bytes for deliveries of a run."""
    return (len(config.cards) + 1) * largest_post(config)


def parcel_size(public: int, private: int, recipients: int) -> int:
    """Return the bytes of one post on the wire, from the sizes of its parts in the protocol."""
    box = sealed_size(SALT_BYTES + private)
    return HEADER.size + Parcel.size(Envelope.size(public, recipients), box, recipients)


# Signed statements of members

# The version of this protocol between members and relays. Version 1 sent no version, and no ready messages.
PROTOCOL_VERSION = 2
LONGEST_REASON = 300
_NONCE_BYTES = 16


class _RunStatement(SignedStatement):
    """A statement of one member about one run."""

    __slots__ = ()
    run: bytes
    sender: int

    def is_valid_in(self, config: RunConfiguration) -> bool:
        """Return whether a member of this run has signed this for it."""
        is_member = self.run == config.run_id and 0 <= self.sender < len(config.cards)
        return is_member and self.is_signed_by(config.cards[self.sender])


@dataclass(frozen=True, slots=True)
class ReadyMessage(_RunStatement):
    """A member's statement that it is ready to begin. `nonce` is fresh: no two messages are equal."""

    run: bytes
    sender: int
    nonce: bytes
    signature: bytes = b""

    @classmethod
    def fresh(cls, run: bytes, sender: int, keys: MemberKeys) -> ReadyMessage:
        """Return a new, signed message."""
        return cls(run, sender, random_bytes(_NONCE_BYTES)).signed(keys)

    def _signed_part(self) -> bytes:
        whole = [PROTOCOL_VERSION, self.run.hex(), self.sender, self.nonce.hex()]
        return b"lapwing ready\n" + json.dumps(whole).encode()

    def to_json(self) -> list[object]:
        """Return member, nonce and signature. Readers know the run."""
        return [self.sender, *(base64.b64encode(part).decode() for part in (self.nonce, self.signature))]

    @classmethod
    def from_json(cls, run: bytes, value: object) -> ReadyMessage:
        """Read a message of this run as `to_json` writes it. Raises `BadValue`."""
        with suppress(ValueError):
            match value:
                case [int(sender), str(nonce), str(signature)]:
                    parts = (base64.b64decode(part, validate=True) for part in (nonce, signature))
                    return cls(run, sender, *parts)
        raise BadValue("a ready message is not of the right form")


@dataclass(frozen=True, slots=True)
class LeaveMessage(_RunStatement):
    """A member's statement that it leaves the run, so that nobody waits for it.

    `why` is public: it names members and rounds, never data.
    """

    run: bytes
    stage: int
    round: int
    sender: int
    why: str
    signature: bytes = b""

    def _signed_part(self) -> bytes:
        whole = [self.run.hex(), self.stage, self.round, self.sender, self.why]
        return b"lapwing notice\n" + json.dumps(whole).encode()

    def to_json(self) -> dict[str, object]:
        """Return plain values, as in a transcript."""
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
        """Read a message as `to_json` writes it. Raises `BadValue`."""
        with suppress(ValueError):
            match value:
                case {
                    "run": str(run),
                    "stage": int(stage),
                    "round": int(round_),
                    "member": int(sender),
                    "why": str(why),
                    "signature": str(signature),
                    **rest,
                } if not rest and len(why) <= LONGEST_REASON and why.isprintable():
                    raw = base64.b64decode(signature, validate=True)
                    return cls(bytes.fromhex(run), stage, round_, sender, why, raw)
        raise BadValue("a leave message is not of the right form")


def version_mismatch(version: object) -> str | None:
    """Return why this version of a peer is not supported, or None if it is. Version 1 sends None."""
    if version == PROTOCOL_VERSION and type(version) is int:
        return None
    is_number = type(version) is int and 0 < version < 1 << 31
    theirs = f"version {version}" if is_number else "no version, as old ones do"
    return (
        f"it has {theirs}, and this is version {PROTOCOL_VERSION} of the protocol: all members and the "
        "host must have the same version of lapwing"
    )


# Progress


@dataclass(frozen=True, slots=True)
class Progress:
    """One public event of a run. `kind` is one of the following.

    arrived   `names` are in the lobby
    ready     `names` have read their data, and can begin
    refused   `names` were refused by the relay: `why`
    begun     `names` are in the run
    round     round `round` (number `index` of `rounds`) of stage `stage` of `stages` is open
    posted    `names` have posted in it
    closed    `names` were in time
    lost      `names` are out of the run
    opened    the sum of a stage is open, and `names` are in it
    unserved  `names` may not know the sums, which are kept for them: `why`
    away      the relay cannot be reached; the member tries again
    """

    kind: str
    names: tuple[str, ...] = ()
    stage: int = 0
    stages: int = 1
    round: str = ""
    index: int = 0
    rounds: int = 0
    why: str = ""

    @classmethod
    def of_round(cls, config: RunConfiguration, kind: str, names: Iterable[str], key: RoundKey) -> Progress:
        """Return an event of this round. After the last stage the round has no name."""
        (stage, index), rounds = key, config.rounds
        name = rounds[index] if stage < config.stages else ""
        return cls(kind, tuple(names), stage, config.stages, name, index, len(rounds))


ProgressCallback = Callable[[Progress], None]


def ignore_progress(_: Progress) -> None:
    """Ignore an event: the default callback."""


def suppress_errors(watch: ProgressCallback) -> ProgressCallback:
    """Return a callback whose errors, such as a closed terminal, never reach the run."""

    def tell(progress: Progress) -> None:
        with suppress(Exception):
            watch(progress)

    return tell
