"""Keys: who may write this ledger, who may decide about it, and what hides the people in it.

The *ledger's* signing key seals the history; its *people* key hashes unit ids. Both lie beside the ledger.
The *curator's* key signs the decisions that only a person may take, and belongs elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter, Unavailable

KEY_BYTES = 32
SIGNATURE_BYTES = 64

_LEDGER_FILE = "Lapwing ledger keys 1. Keep secret: it can forge the ledger and find people in it."
_CURATOR_FILE = "Lapwing curator key 1. Keep secret and away from the ledger: it can raise budgets."
_LARGEST_FILE = 4096
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class SigningKey:
    """An Ed25519 key that signs. Only its public half can be read from it."""

    __slots__ = ("_private", "public")

    def __init__(self, secret: bytes) -> None:
        if not isinstance(secret, bytes) or len(secret) != KEY_BYTES:
            raise BadParameter("secret", f"must be {KEY_BYTES} bytes")
        self._private = Ed25519PrivateKey.from_private_bytes(secret)
        self.public: bytes = self._private.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """The signature of 64 bytes; the same message always has the same one."""
        return self._private.sign(message)

    def __repr__(self) -> str:
        return f"SigningKey(public={self.public.hex()})"


def good_signature(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the owner of the public key signed this message. What is malformed is not signed."""
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
    """What the ledger itself signs with, and what it hashes the ids of people with."""

    signing: SigningKey
    people: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.people, bytes) or len(self.people) != KEY_BYTES:
            raise BadParameter("people", f"must be {KEY_BYTES} bytes")

    @classmethod
    def create(cls, path: str | Path) -> LedgerKeys:
        """Fresh keys in a new file that only its owner can read. An existing file is never replaced."""
        return cls._of(_write(path, _LEDGER_FILE, ("signing", "people")))

    @classmethod
    def load(cls, path: str | Path) -> LedgerKeys:
        """The keys of this file, unless others can read it."""
        return cls._of(_read(path, _LEDGER_FILE, ("signing", "people")))

    @classmethod
    def _of(cls, secrets: tuple[bytes, ...]) -> LedgerKeys:
        signing, people = secrets
        return cls(SigningKey(signing), people)


@dataclass(frozen=True, slots=True, eq=False)
class CuratorKey:
    """What the curator signs decisions with: a raised budget, a recovery, people that differ."""

    signing: SigningKey

    @classmethod
    def create(cls, path: str | Path) -> CuratorKey:
        """A fresh key in a new file that only its owner can read. An existing file is never replaced."""
        return cls(SigningKey(*_write(path, _CURATOR_FILE, ("signing",))))

    @classmethod
    def load(cls, path: str | Path) -> CuratorKey:
        """The key of this file, unless others can read it."""
        return cls(SigningKey(*_read(path, _CURATOR_FILE, ("signing",))))

    @property
    def public(self) -> bytes:
        """The half that the ledger knows from its first entry on."""
        return self.signing.public

    def sign(self, body: bytes) -> bytes:
        """The curator's signature under a decision."""
        return self.signing.sign(body)


def _write(path: str | Path, header: str, names: tuple[str, ...]) -> tuple[bytes, ...]:
    """Draw a key for each name into a new file. When this returns, it survives a power loss."""
    secrets = tuple(random_bytes(KEY_BYTES) for _ in names)
    try:
        # Never through a link, and never readable by others, not even for a moment.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise BadParameter("path", f"{path} exists already, and keys are never overwritten") from None
    except OSError as error:
        raise Unavailable(f"the key file {path} cannot be made: {error.strerror}") from error
    try:
        with open(file, "wb") as writing:
            writing.write(_text(header, names, secrets))
            writing.flush()
            os.fsync(writing.fileno())
        folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        os.unlink(path)  # half a key file would only be in the way
        raise Unavailable(f"the key file {path} cannot be written: {error.strerror}") from error
    return secrets


def _read(path: str | Path, header: str, names: tuple[str, ...]) -> tuple[bytes, ...]:
    """The keys in a file, or an error that shows nothing of what is in it."""
    try:
        # Without waiting: a pipe in its place must not hang us. What was opened is what is checked.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(file).st_mode
            if not stat.S_ISREG(mode):
                raise BadParameter("path", f"{path} is not a plain file")
            if mode & _OTHERS:
                raise BadParameter("path", f"others can use the keys in {path}: chmod 600 {path}")
            content = os.read(file, _LARGEST_FILE)
        finally:
            os.close(file)
    except OSError as error:
        raise Unavailable(f"the key file {path} cannot be read: {error.strerror}") from error
    secrets = tuple(
        bytes.fromhex(found[1].decode())
        for name in names
        if (found := re.search(rb"^%b ([0-9a-f]{64})$" % name.encode(), content, re.MULTILINE))
    )
    if len(secrets) != len(names) or content != _text(header, names, secrets):
        raise BadParameter("path", f"{path} does not hold what its kind of key file must hold")
    return secrets


def _text(header: str, names: tuple[str, ...], secrets: tuple[bytes, ...]) -> bytes:
    """The whole file. The last line tells damage: with a changed people key nobody would be found again."""
    lines = [header, *(f"{name} {key.hex()}" for name, key in zip(names, secrets, strict=True))]
    check = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return "".join(f"{line}\n" for line in (*lines, f"check {check}")).encode("ascii")
