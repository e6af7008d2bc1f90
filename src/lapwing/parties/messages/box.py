"""Sealed boxes: what one member sends to another through a relay that cannot read it.

Claim    only the holder of the recipient's box key can open a box, and only as the message of this run,
         stage, round, sender and recipient that it was sealed for. (Against a bounded adversary.)
Because  the key comes from a fresh X25519 key for each box, through HKDF with all of these as context; a
         key is used once, so the nonce may be constant; ChaCha20-Poly1305 refuses what was changed.
Test     tests/parties/running/test_messages.py
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from lapwing.errors import BadValue
from lapwing.noise import random_bytes

_CONTEXT = struct.Struct(">11s32sIHHH")
_NONCE = bytes(12)
_OVERHEAD = 32 + 16


@dataclass(frozen=True, slots=True)
class Place:
    """Where a box belongs."""

    run: bytes
    stage: int
    round: int
    sender: int
    recipient: int

    def to_bytes(self) -> bytes:
        """Fixed in length, and different for every place."""
        return _CONTEXT.pack(b"lapwing box", self.run, self.stage, self.round, self.sender, self.recipient)


def seal(plain: bytes, *, to: X25519PublicKey, place: Place) -> bytes:
    """Sealed with a key that is forgotten at once."""
    once = X25519PrivateKey.from_private_bytes(random_bytes(32))
    public = once.public_key().public_bytes_raw()
    context = place.to_bytes() + public + to.public_bytes_raw()
    return public + _cipher(once.exchange(to), context).encrypt(_NONCE, plain, context)


def unseal(box: bytes, *, key: X25519PrivateKey, place: Place) -> bytes:
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
