"""Posts of members as bytes: sealed boxes, signed envelopes, a member's parcel and the relay's delivery.

Claim    only the holder of the recipient's box key can open a sealed box, and only as the message of this
         run, stage, round, sender and recipient that it was sealed for. (Against a bounded adversary.)
Because  the key comes from a fresh X25519 key for each box, through HKDF with all of these as context; a
         key is used once, so the nonce may be constant; ChaCha20-Poly1305 refuses changed bytes.
Test     tests/parties/test_messages.py

Claim    an accepted envelope was signed by its sender for this run, stage and round, together with the
         digest of all posts that the sender received in the round before; and there is one way to write it.
Because  the signature covers the head, which holds all of these, a digest of the public part and the
         commitments; reading refuses every other length, order or number.
Test     tests/parties/test_messages.py
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from lapwing.core.noise import random_bytes
from lapwing.errors import BadValue
from lapwing.parties.identity import SIGNATURE_BYTES, SignedStatement
from lapwing.parties.run_configuration import RoundKey

# Sealed boxes

_CONTEXT = struct.Struct(">11s32sIHHH")
_NONCE = bytes(12)
_OVERHEAD = 32 + 16


@dataclass(frozen=True, slots=True)
class BoxContext:
    """The run, stage, round, sender and recipient that a sealed box belongs to."""

    run: bytes
    stage: int
    round: int
    sender: int
    recipient: int

    def to_bytes(self) -> bytes:
        """Return bytes of a fixed length, different for every context."""
        return _CONTEXT.pack(b"lapwing box", self.run, self.stage, self.round, self.sender, self.recipient)


def seal(plain: bytes, *, to: X25519PublicKey, place: BoxContext) -> bytes:
    """Seal bytes for a recipient, with a key that is used once and then forgotten."""
    once = X25519PrivateKey.from_private_bytes(random_bytes(32))
    public = once.public_key().public_bytes_raw()
    context = place.to_bytes() + public + to.public_bytes_raw()
    return public + _cipher(once.exchange(to), context).encrypt(_NONCE, plain, context)


def unseal(box: bytes, *, key: X25519PrivateKey, place: BoxContext) -> bytes:
    """Return the bytes in a sealed box. Raises `BadValue`."""
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
    """Return the bytes of a sealed box around `plain` bytes."""
    return plain + _OVERHEAD


def _cipher(shared: bytes, context: bytes) -> ChaCha20Poly1305:
    key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=context).derive(shared)
    return ChaCha20Poly1305(key)


# Signed envelopes

SALT_BYTES = 64  # twice the digest: nearly every digest then fits every plain text
_MAGIC = b"lapwing envelope"
_HEAD = struct.Struct(">16s32sIHH32s32sH")
_COMMITMENT = struct.Struct(">H32s")


@dataclass(frozen=True, slots=True)
class Envelope(SignedStatement):
    """The public part of one member's post. `commitments` are to its private parts, by recipient."""

    run: bytes
    stage: int
    round: int
    sender: int
    seen: bytes  # digest of the round before, as the sender received it
    public: bytes = field(repr=False)
    commitments: Mapping[int, bytes]
    signature: bytes = field(repr=False, default=b"")
    head: bytes = field(
        init=False, repr=False, compare=False
    )  # the signed bytes, with a digest of `public`

    def __post_init__(self) -> None:
        digest, count = hashlib.sha256(self.public).digest(), len(self.commitments)
        try:
            fixed = _HEAD.pack(
                _MAGIC, self.run, self.stage, self.round, self.sender, self.seen, digest, count
            )
            pairs = [_COMMITMENT.pack(to, each) for to, each in sorted(self.commitments.items())]
        except struct.error as error:
            raise BadValue("an envelope has a number that is out of range") from error
        if self.sender in self.commitments or {len(self.run), len(self.seen)} != {32}:
            raise BadValue("an envelope is not of the right form")
        object.__setattr__(self, "head", fixed + b"".join(pairs))

    def _signed_part(self) -> bytes:
        return self.head

    def to_bytes(self) -> bytes:
        """Return head, signature and public part."""
        return self.head + self.signature + self.public

    @classmethod
    def from_bytes(cls, raw: bytes | memoryview) -> Envelope:
        """Read an envelope as `to_bytes` writes it. Raises `BadValue` for all other bytes."""
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
        """Return the bytes of an envelope with `public` bytes and commitments for `recipients`."""
        return _HEAD.size + recipients * _COMMITMENT.size + SIGNATURE_BYTES + public


def start_digest(run: bytes) -> bytes:
    """Return the digest that the first posts of a run refer to, as there is no round before."""
    return hashlib.sha256(b"lapwing start" + run).digest()


def round_digest(envelopes: Iterable[Envelope]) -> bytes:
    """Return the digest of a closed round: of all senders and their posts.

    Signatures are left out: several signatures may fit one head.
    """
    ordered = sorted(envelopes, key=lambda envelope: envelope.sender)
    heads = b"".join(hashlib.sha256(envelope.head).digest() for envelope in ordered)
    return hashlib.sha256(b"lapwing round" + heads).digest()


def commit(plain: bytes) -> tuple[bytes, bytes]:
    """Return a fresh salt, and the commitment to `plain` under it."""
    salt = random_bytes(SALT_BYTES)
    return salt, commitment(salt, plain)


def commitment(salt: bytes, plain: bytes) -> bytes:
    """Return a commitment. It is binding, and hiding as long as the salt is secret."""
    digest = hashlib.sha256(salt)
    digest.update(plain)
    return digest.digest()


# Parcels and deliveries

_LENGTH = struct.Struct(">I")
_COUNT = struct.Struct(">H")
_ADDRESSED = struct.Struct(">HI")
_CLOSED = struct.Struct(">IHHH")
_ITEM = struct.Struct(">IBI")


@dataclass(frozen=True, slots=True)
class Parcel:
    """One member's post on its way to the relay: its signed envelope, and sealed boxes by recipient."""

    envelope: bytes
    boxes: Mapping[int, bytes]

    def to_bytes(self) -> bytes:
        """Return the parcel with its boxes in the order of recipients."""
        parts = [_LENGTH.pack(len(self.envelope)), self.envelope, _COUNT.pack(len(self.boxes))]
        for to, box in sorted(self.boxes.items()):
            parts += (_ADDRESSED.pack(to, len(box)), box)
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Parcel:
        """Read a parcel as `to_bytes` writes it. Raises `BadValue` for all other bytes."""
        reader = _Reader(raw)
        envelope = reader.take(*reader.unpack(_LENGTH))
        [count] = reader.unpack(_COUNT)
        boxes: dict[int, bytes] = {}
        for _ in range(count):
            to, length = reader.unpack(_ADDRESSED)
            if boxes and to <= max(boxes):
                raise BadValue("a parcel's boxes must be in order, one for each recipient")
            boxes[to] = reader.take(length)
        reader.end()
        return cls(envelope, boxes)

    @classmethod
    def size(cls, envelope: int, box: int, recipients: int) -> int:
        """Return the bytes of a parcel with `recipients` boxes, from the sizes of envelope and box."""
        return _LENGTH.size + envelope + _COUNT.size + recipients * (_ADDRESSED.size + box)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A closed round as the relay delivers it to one member: all envelopes, and the boxes for this member.

    `missing` is the relay's explanation for each member that was in the round before and is out now.
    """

    stage: int
    round: int
    items: Sequence[tuple[bytes, bytes | None]]
    missing: Mapping[int, str]

    def to_parts(self) -> list[bytes]:
        """Return the pieces of the message, without copying long ones."""
        parts = [_CLOSED.pack(self.stage, self.round, len(self.items), len(self.missing))]
        for member, why in sorted(self.missing.items()):
            text = why.encode()
            parts += (_ADDRESSED.pack(member, len(text)), text)
        for envelope, box in self.items:
            parts += (_ITEM.pack(len(envelope), box is not None, len(box or b"")), envelope, box or b"")
        return parts

    def to_bytes(self) -> bytes:
        """Return the message in one piece, for the journal."""
        return b"".join(self.to_parts())

    @classmethod
    def from_bytes(cls, raw: bytes) -> Delivery:
        """Read a delivery as `to_bytes` writes it. Raises `BadValue` for all other bytes."""
        reader = _Reader(raw)
        stage, round_, count, lost = reader.unpack(_CLOSED)
        missing = {}
        for _ in range(lost):
            member, length = reader.unpack(_ADDRESSED)
            try:
                missing[member] = reader.take(length).decode()
            except UnicodeDecodeError as error:
                raise BadValue("a delivery's words must be text") from error
        items = []
        for _ in range(count):
            size, has_box, length = reader.unpack(_ITEM)
            if has_box > 1 or (length and not has_box):
                raise BadValue("a delivery's item is not of the right form")
            envelope, box = reader.take(size), reader.take(length)
            items.append((envelope, box if has_box else None))
        reader.end()
        return cls(stage, round_, items, missing)

    @property
    def key(self) -> RoundKey:
        """Stage and round."""
        return self.stage, self.round

    @property
    def envelopes(self) -> tuple[Envelope, ...]:
        """The envelopes, in the order of delivery. Raises `BadValue`."""
        return tuple(Envelope.from_bytes(raw) for raw, _ in self.items)


class _Reader:
    """Reads bytes strictly from the beginning to the end."""

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
