"""Signed envelopes: what one member says in one round, for everybody to see.

Claim    an envelope that is accepted was signed by its sender for this run, stage and round, together with
         the digest of all that the sender heard in the round before; and there is one way to write it.
Because  the signature covers the head, which holds all of these, a digest of the public part and the
         commitments; reading refuses every other length, order or number.
Test     tests/parties/running/test_messages.py
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lapwing.errors import BadValue
from lapwing.noise import random_bytes

if TYPE_CHECKING:
    from lapwing.parties.identity import Card, Keys

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

    def signed(self, keys: Keys) -> Envelope:
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
