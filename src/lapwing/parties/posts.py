"""Sealed boxes: what one member sends to another through a relay that cannot read it.

Claim    only the holder of the recipient's box key can open a box, and only as the message of this run,
         stage, round, sender and recipient that it was sealed for. (Against a bounded adversary.)
Because  the key comes from a fresh X25519 key for each box, through HKDF with all of these as context; a
         key is used once, so the nonce may be constant; ChaCha20-Poly1305 refuses what was changed.
Test     tests/parties/running/test_messages.py

Signed envelopes: what one member says in one round, for everybody to see.

Claim    an envelope that is accepted was signed by its sender for this run, stage and round, together with
         the digest of all that the sender heard in the round before; and there is one way to write it.
Because  the signature covers the head, which holds all of these, a digest of the public part and the
         commitments; reading refuses every other length, order or number.
Test     tests/parties/running/test_messages.py

How posts travel and are stored: a member's parcel to the relay, the relay's delivery to each member.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from lapwing.core.noise import random_bytes
from lapwing.errors import BadValue

if TYPE_CHECKING:
    from lapwing.parties.identity import Card, MemberKeys


_CONTEXT = struct.Struct(">11s32sIHHH")
_NONCE = bytes(12)
_OVERHEAD = 32 + 16


@dataclass(frozen=True, slots=True)
class BoxContext:
    """Where a box belongs."""

    run: bytes
    stage: int
    round: int
    sender: int
    recipient: int

    def to_bytes(self) -> bytes:
        """Fixed in length, and different for every place."""
        return _CONTEXT.pack(b"lapwing box", self.run, self.stage, self.round, self.sender, self.recipient)


def seal(plain: bytes, *, to: X25519PublicKey, place: BoxContext) -> bytes:
    """Sealed with a key that is forgotten at once."""
    once = X25519PrivateKey.from_private_bytes(random_bytes(32))
    public = once.public_key().public_bytes_raw()
    context = place.to_bytes() + public + to.public_bytes_raw()
    return public + _cipher(once.exchange(to), context).encrypt(_NONCE, plain, context)


def unseal(box: bytes, *, key: X25519PrivateKey, place: BoxContext) -> bytes:
    """What was sealed. Raises `BadValue`."""
    if len(box) < _OVERHEAD:
        raise BadValue("a sealed box is too short")
    public = bytes(box[:32])
    context = place.to_bytes() + public + key.public_key().public_bytes_raw()
    try:
        shared = key.exchange(X25519PublicKey.from_public_bytes(public))
        return _cipher(shared, context).decrypt(_NONCE, box[32:], context)
    except (InvalidTag, ValueError) as error:
        raise BadValue("a sealed box does not open: it was changed, or belongs elsewhere") from error


def sealed_size(plain: int) -> int:
    """In bytes."""
    return plain + _OVERHEAD


def _cipher(shared: bytes, context: bytes) -> ChaCha20Poly1305:
    key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=context).derive(shared)
    return ChaCha20Poly1305(key)


SALT_BYTES = 64  # twice the digest: nearly every digest then fits every plain text
_MAGIC = b"lapwing envelope"
_HEAD = struct.Struct(">16s32sIHH32s32sH")
_COMMITMENT = struct.Struct(">H32s")
SIGNATURE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Envelope:
    """One member's post as everybody sees it. `commitments` are to what it sent to others in private."""

    run: bytes
    stage: int
    round: int
    sender: int
    seen: bytes  # digest of the round before, as the sender heard it
    public: bytes = field(repr=False)
    commitments: Mapping[int, bytes]
    signature: bytes = field(repr=False, default=b"")
    head: bytes = field(init=False, repr=False, compare=False)  # what is signed; `public` by its digest

    def __post_init__(self) -> None:
        digest = hashlib.sha256(self.public).digest()
        try:
            fixed = _HEAD.pack(
                _MAGIC,
                self.run,
                self.stage,
                self.round,
                self.sender,
                self.seen,
                digest,
                len(self.commitments),
            )
            pairs = [_COMMITMENT.pack(to, each) for to, each in sorted(self.commitments.items())]
        except struct.error as error:
            raise BadValue("an envelope has a number that is out of range") from error
        if self.sender in self.commitments or {len(self.run), len(self.seen)} != {32}:
            raise BadValue("an envelope is not of the right form")
        object.__setattr__(self, "head", fixed + b"".join(pairs))

    def signed(self, keys: MemberKeys) -> Envelope:
        """The same, signed."""
        return Envelope(
            self.run,
            self.stage,
            self.round,
            self.sender,
            self.seen,
            self.public,
            self.commitments,
            keys.sign(self.head),
        )

    def is_signed_by(self, card: Card) -> bool:
        """Whether the signature is the card's."""
        return card.verifies(self.signature, self.head)

    def to_bytes(self) -> bytes:
        """Head, signature, public part."""
        return self.head + self.signature + self.public

    @classmethod
    def from_bytes(cls, raw: bytes | memoryview) -> Envelope:
        """What `to_bytes` gave. Raises `BadValue` for everything else."""
        if len(raw) < _HEAD.size + SIGNATURE_BYTES:
            raise BadValue("an envelope is too short")
        magic, run, stage, round_, sender, seen, _, count = _HEAD.unpack_from(raw)
        at = _HEAD.size + count * _COMMITMENT.size
        if magic != _MAGIC or len(raw) < at + SIGNATURE_BYTES:
            raise BadValue("this is not an envelope")
        commitments = dict(_COMMITMENT.iter_unpack(raw[_HEAD.size : at]))
        signature, public = bytes(raw[at : at + SIGNATURE_BYTES]), bytes(raw[at + SIGNATURE_BYTES :])
        envelope = cls(run, stage, round_, sender, seen, public, commitments, signature)
        if envelope.head != raw[:at]:  # another order, a recipient twice, another public part
            raise BadValue("an envelope is not as it was signed")
        return envelope

    @classmethod
    def size(cls, public: int, recipients: int) -> int:
        """In bytes."""
        return _HEAD.size + recipients * _COMMITMENT.size + SIGNATURE_BYTES + public


def start_digest(run: bytes) -> bytes:
    """What the first posts of a run say they have seen."""
    return hashlib.sha256(b"lapwing start" + run).digest()


def round_digest(envelopes: Iterable[Envelope]) -> bytes:
    """Of a closed round: who posted, and what. Signatures are left out, as many may fit one head."""
    ordered = sorted(envelopes, key=lambda envelope: envelope.sender)
    heads = b"".join(hashlib.sha256(envelope.head).digest() for envelope in ordered)
    return hashlib.sha256(b"lapwing round" + heads).digest()


def commit(plain: bytes) -> tuple[bytes, bytes]:
    """A fresh salt, and the commitment to `plain` under it."""
    salt = random_bytes(SALT_BYTES)
    return salt, commitment(salt, plain)


def commitment(salt: bytes, plain: bytes) -> bytes:
    """Binding, and hiding as long as the salt is secret."""
    digest = hashlib.sha256(salt)
    digest.update(plain)
    return digest.digest()


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
