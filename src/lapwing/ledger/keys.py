"""Keys of the ledger, which signs its history and hashes unit ids, and of the curator, who signs decisions.

The *ledger's* signing key signs the history, and its *people* key hashes unit ids. Both are stored beside
the ledger. The *curator's* key signs decisions that only a person may take, and belongs elsewhere.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter
from lapwing.storage.private_file import read_key_file, write_key_file

KEY_BYTES = 32
SIGNATURE_BYTES = 64

_LEDGER_FILE = "Lapwing ledger keys 1. Keep secret: it can forge the ledger and find people in it."
_CURATOR_FILE = "Lapwing curator key 1. Keep secret and away from the ledger: it can raise budgets."


class SigningKey:
    """An Ed25519 key that signs. Only its public half can be read from it."""

    __slots__ = ("_private", "public")

    def __init__(self, secret: bytes) -> None:
        if not isinstance(secret, bytes) or len(secret) != KEY_BYTES:
            raise BadParameter("secret", f"must be {KEY_BYTES} bytes")
        self._private = Ed25519PrivateKey.from_private_bytes(secret)
        self.public: bytes = self._private.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the signature of 64 bytes. The same message always has the same signature."""
        return self._private.sign(message)

    def __repr__(self) -> str:
        return f"SigningKey(public={self.public.hex()})"


def public_key(text: str) -> bytes:
    """Return a public key from its hexadecimal digits. Raises BadParameter if it is none."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise BadParameter("key", f"must be {2 * KEY_BYTES} hexadecimal digits")
    return key


def good_signature(public: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether the owner of the public key signed this message. Malformed input returns False."""
    if not all(isinstance(part, bytes) for part in (public, message, signature)):
        return False
    if len(public) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True, slots=True, eq=False)
class LedgerKeys:
    """The key with which the ledger signs, and the key with which it hashes unit ids."""

    signing: SigningKey
    people: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.people, bytes) or len(self.people) != KEY_BYTES:
            raise BadParameter("people", f"must be {KEY_BYTES} bytes")

    @classmethod
    def create(cls, path: str | Path) -> LedgerKeys:
        """Create the keys in a new file that only its owner can read.

        An existing file is never replaced.
        """
        signing, people = _write(path, _LEDGER_FILE, ("signing", "people"))
        return cls(SigningKey(signing), people)

    @classmethod
    def load(cls, path: str | Path) -> LedgerKeys:
        """Read the keys from a file. Raises BadParameter if other users can read the file."""
        signing, people = _read(path, _LEDGER_FILE, ("signing", "people"))
        return cls(SigningKey(signing), people)


@dataclass(frozen=True, slots=True, eq=False)
class CuratorKey:
    """The key with which the curator signs decisions.

    They are raises, recoveries, and data with other people.

    Args:
        signing: the private key.

    Example:
        >>> from lapwing.ledger import CuratorKey
        >>> key = CuratorKey.create("other.curator")
        >>> CuratorKey.load("other.curator").public == key.public
        True
    """

    signing: SigningKey

    @classmethod
    def create(cls, path: str | Path) -> CuratorKey:
        """Create a key in a new file that only its owner can read.

        Args:
            path: the new file. An existing file is never replaced.

        Returns:
            The new key.

        Raises:
            BadParameter: if the file exists.
            Unavailable: if the file cannot be written.
        """
        return cls(SigningKey(*_write(path, _CURATOR_FILE, ("signing",))))

    @classmethod
    def load(cls, path: str | Path) -> CuratorKey:
        """Read the key from a file.

        Raises BadParameter if other users can read the file, or if it is no curator key file.
        """
        return cls(SigningKey(*_read(path, _CURATOR_FILE, ("signing",))))

    @property
    def public(self) -> bytes:
        """The public key, which stands in the first entry of the ledger."""
        return self.signing.public

    def sign(self, body: bytes) -> bytes:
        """Sign a decision."""
        return self.signing.sign(body)


def _write(path: str | Path, header: str, names: tuple[str, ...]) -> tuple[bytes, ...]:
    """Draw a key for each name into a new file, which is durable when this returns."""
    secrets = tuple(random_bytes(KEY_BYTES) for _ in names)
    write_key_file(path, _text(header, names, secrets), "path")
    return secrets


def _read(path: str | Path, header: str, names: tuple[str, ...]) -> tuple[bytes, ...]:
    """Return the keys in a file. Errors show nothing of its content."""
    content = read_key_file(path, "path")
    secrets = tuple(
        bytes.fromhex(match[1].decode())
        for name in names
        if (match := re.search(rb"^%b ([0-9a-f]{64})$" % name.encode(), content, re.MULTILINE))
    )
    if len(secrets) != len(names) or content != _text(header, names, secrets):
        raise BadParameter("path", f"{path} is damaged, or is no key file of this kind")
    return secrets


def _text(header: str, names: tuple[str, ...], secrets: tuple[bytes, ...]) -> bytes:
    """Return the content of a key file.

    The last line is a checksum: a damaged people key would make every unit look new.
    """
    lines = [header, *(f"{name} {key.hex()}" for name, key in zip(names, secrets, strict=True))]
    check = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return "".join(f"{line}\n" for line in (*lines, f"check {check}")).encode("ascii")
