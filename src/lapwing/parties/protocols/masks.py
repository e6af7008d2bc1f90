"""Masks that two members know, and masks that one member knows: the secrets of the masked star.

Claim    to everybody who has neither secret key of a pair, the mask of that pair looks uniform; so does the
         mask of a seed to everybody who has not the seed. For computationally bounded adversaries only.
Because  X25519 (hashed Diffie-Hellman), HKDF-SHA256 over the shared secret and the context, AES-256-CTR,
         all taken as secure. A keystream word is cut to as many bits as the modulus has, and drawn again if
         it is not below it: uniform words give uniform elements.
Test     parties/protocols/test_masks.py; views are tested with ideal masks in parties/test_views.py
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from lapwing.errors import BadValue
from lapwing.parties.protocols.coins import Elements
from lapwing.parties.protocols.field import FIELD, WORD

SECRET = 32  # bytes of a key or a seed
_CHUNK = 7  # bytes of a secret in one element of FIELD


class Masks(ABC):
    """Key agreement and expansion. A secret can be cut into elements, to be shared among members."""

    public_bytes: int  # of a public key

    @abstractmethod
    def public_key(self, secret: bytes) -> bytes:
        """What others may know of this secret."""

    @abstractmethod
    def seed(self, secret: bytes, public: bytes, context: bytes) -> bytes:
        """The same for both sides of a pair, for nobody else. Raises `BadValue` if `public` is no key."""

    @abstractmethod
    def expand(self, seed: bytes, modulus: int, count: int) -> Elements:
        """As many elements as wanted, always the same ones."""

    @abstractmethod
    def pieces(self, modulus: int, length: int) -> int:
        """How many elements a secret is cut into."""

    @abstractmethod
    def cut(self, secret: bytes, modulus: int) -> Elements:
        """A secret as elements."""

    @abstractmethod
    def join(self, elements: Elements, modulus: int) -> bytes:
        """The secret again. Raises `BadValue` if no secret was cut so."""


class KeyedMasks(Masks):
    """X25519, HKDF-SHA256 and AES-256-CTR."""

    public_bytes = 32

    def public_key(self, secret: bytes) -> bytes:
        return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()

    def seed(self, secret: bytes, public: bytes, context: bytes) -> bytes:
        try:
            shared = X25519PrivateKey.from_private_bytes(secret).exchange(
                X25519PublicKey.from_public_bytes(public)
            )
        except ValueError:  # a point of low order: the shared secret would be known to all
            raise BadValue("must be a public key of X25519") from None
        return HKDF(SHA256(), SECRET, salt=None, info=b"lapwing mask" + context).derive(shared)

    def expand(self, seed: bytes, modulus: int, count: int) -> Elements:
        stream = Cipher(AES(seed), CTR(bytes(16))).encryptor()
        bits = np.uint64((1 << modulus.bit_length()) - 1)
        found = np.empty(0, dtype=np.uint64)
        while len(found) < count:
            words = np.frombuffer(stream.update(bytes(WORD * (count - len(found)))), dtype="<u8")
            words = words.astype(np.uint64) & bits
            kept = words[words < np.uint64(modulus)]
            found = kept if not len(found) else np.concatenate((found, kept))
        return found

    def pieces(self, modulus: int, length: int) -> int:
        return -(-SECRET // self._chunk(modulus))

    @staticmethod
    def _chunk(modulus: int) -> int:
        if modulus.bit_length() <= 8:
            raise BadValue("must be a modulus above 255: an element holds a whole byte")
        return _CHUNK if modulus == FIELD else 1

    def cut(self, secret: bytes, modulus: int) -> Elements:
        size = self._chunk(modulus)
        chunks = [secret[at : at + size] for at in range(0, SECRET, size)]
        return np.array([int.from_bytes(chunk, "little") for chunk in chunks], dtype=np.uint64)

    def join(self, elements: Elements, modulus: int) -> bytes:
        size = self._chunk(modulus)
        try:
            return b"".join(
                int(element).to_bytes(min(size, SECRET - at), "little")
                for at, element in zip(range(0, SECRET, size), elements, strict=True)
            )
        except OverflowError:
            raise BadValue("must be the pieces of a secret of 32 bytes") from None
