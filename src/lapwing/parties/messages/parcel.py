"""How posts travel and are stored: a member's parcel to the relay, the relay's delivery to each member."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lapwing.errors import BadValue

_LENGTH = struct.Struct(">I")
_COUNT = struct.Struct(">H")
_ADDRESSED = struct.Struct(">HI")
_CLOSED = struct.Struct(">IHHH")
_ITEM = struct.Struct(">IBI")


@dataclass(frozen=True, slots=True)
class Parcel:
    """One member's post: its signed envelope, and a sealed box for each of some others."""

    envelope: bytes
    boxes: Mapping[int, bytes]

    def to_bytes(self) -> bytes:
        """In order of the recipients."""
        parts = [_LENGTH.pack(len(self.envelope)), self.envelope, _COUNT.pack(len(self.boxes))]
        for to, box in sorted(self.boxes.items()):
            parts += (_ADDRESSED.pack(to, len(box)), box)
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Parcel:
        """What `to_bytes` gave. Raises `BadValue` for everything else."""
        reading = _Reading(raw)
        envelope = reading.take(*reading.unpack(_LENGTH))
        [count] = reading.unpack(_COUNT)
        boxes: dict[int, bytes] = {}
        for _ in range(count):
            to, length = reading.unpack(_ADDRESSED)
            if boxes and to <= max(boxes):
                raise BadValue("a parcel's boxes must be in order, one for each recipient")
            boxes[to] = reading.take(length)
        reading.end()
        return cls(envelope, boxes)

    @classmethod
    def size(cls, envelope: int, box: int, recipients: int) -> int:
        """In bytes, with `recipients` boxes of this size."""
        return _LENGTH.size + envelope + _COUNT.size + recipients * (_ADDRESSED.size + box)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A closed round as one member hears it: all envelopes, and the boxes for this member.

    `missing` says, for those who were in before and are out now, what the relay says about them.
    """

    stage: int
    round: int
    items: Sequence[tuple[bytes, bytes | None]]
    missing: Mapping[int, str]

    def to_parts(self) -> list[bytes]:
        """To be written one after the other, without copying what is long."""
        parts = [_CLOSED.pack(self.stage, self.round, len(self.items), len(self.missing))]
        for member, why in sorted(self.missing.items()):
            text = why.encode()
            parts += (_ADDRESSED.pack(member, len(text)), text)
        for envelope, box in self.items:
            parts += (_ITEM.pack(len(envelope), box is not None, len(box or b"")), envelope, box or b"")
        return parts

    def to_bytes(self) -> bytes:
        """For the journal."""
        return b"".join(self.to_parts())

    @classmethod
    def from_bytes(cls, raw: bytes) -> Delivery:
        """What `to_bytes` gave. Raises `BadValue` for everything else."""
        reading = _Reading(raw)
        stage, round_, count, lost = reading.unpack(_CLOSED)
        missing = {}
        for _ in range(lost):
            member, length = reading.unpack(_ADDRESSED)
            try:
                missing[member] = reading.take(length).decode()
            except UnicodeDecodeError as error:
                raise BadValue("a delivery's words must be text") from error
        items = []
        for _ in range(count):
            size, has_box, length = reading.unpack(_ITEM)
            if has_box > 1 or (length and not has_box):
                raise BadValue("a delivery's item is not of the right form")
            envelope, box = reading.take(size), reading.take(length)
            items.append((envelope, box if has_box else None))
        reading.end()
        return cls(stage, round_, items, missing)


class _Reading:
    """Strictly from the beginning to the end."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.take(form.size))

    def take(self, length: int) -> bytes:
        piece = bytes(self._raw[self._at : self._at + length])
        if len(piece) != length:
            raise BadValue("a message is shorter than it says")
        self._at += length
        return piece

    def end(self) -> None:
        if self._at != len(self._raw):
            raise BadValue("a message is longer than it says")
