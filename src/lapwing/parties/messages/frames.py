"""Frames: how messages follow one another on a connection, each with its kind and a bounded length."""

from __future__ import annotations

import json
import struct
from enum import IntEnum
from typing import Any

from lapwing.errors import BadValue
from lapwing.parties.messages.box import sealed_size
from lapwing.parties.messages.envelope import SALT_BYTES, Envelope
from lapwing.parties.messages.parcel import Parcel
from lapwing.parties.messages.table import Table
from lapwing.parties.protocols import PROTOCOLS

HEADER = struct.Struct(">IB")
SMALL = 1 << 16  # of everything but posts, deliveries and the greetings of all members


class Kind(IntEnum):
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


def frame(kind: Kind, *parts: bytes) -> list[bytes]:
    """Header and parts, to be written one after the other."""
    return [HEADER.pack(sum(map(len, parts)), kind), *parts]


def words(kind: Kind, **said: object) -> list[bytes]:
    """A frame of JSON."""
    return frame(kind, json.dumps(said).encode())


def read_header(raw: bytes, *, largest: int) -> tuple[Kind, int]:
    """Kind and length of what follows. Raises `BadValue`."""
    length, number = HEADER.unpack(raw)
    try:
        kind = Kind(number)
    except ValueError as error:
        raise BadValue("a frame is of no known kind") from error
    bound = largest if kind in (Kind.POST, Kind.BEGIN, Kind.CLOSED) else SMALL
    if length > bound:
        raise BadValue(f"a frame of {length:,} bytes came, where at most {bound:,} can")
    return kind, length


def read_words(payload: bytes) -> dict[str, Any]:
    """What `words` wrote. Raises `BadValue`."""
    try:
        said = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise BadValue("a message is not JSON") from error
    if not isinstance(said, dict):
        raise BadValue("a message is not of the right form")
    return said


def largest_post(table: Table) -> int:
    """More than any post of this table has; posts of members who were lost make others a little longer."""
    sizes = [
        parcel_size(traffic.public, traffic.private, traffic.recipients)
        for traffic in PROTOCOLS[table.protocol].traffic(table.setting(0))
    ]
    return 2 * max(sizes) + SMALL


def largest_delivery(table: Table) -> int:
    """More than any closed round of this table has."""
    return (len(table.cards) + 1) * largest_post(table)


def parcel_size(public: int, private: int, recipients: int) -> int:
    """Bytes of one post on the wire: envelope and boxes around what a protocol posts."""
    envelope = Envelope.size(public, recipients)
    box = sealed_size(SALT_BYTES + private)
    return HEADER.size + Parcel.size(envelope, box, recipients)
