"""Secrets that the server gives out: random, shown once, and stored as hashes.

Claim    nobody who reads the state file can sign in with what is stored there.
Because  a secret has 256 random bits, and only its SHA-256 is stored: there is nothing to guess.
Test     tests/server/people/test_credentials.py
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256

from lapwing.core.noise import random_bytes

SECRET_BYTES, ID_BYTES = 32, 9
_LONGEST = 128  # characters of a secret that a request may bring


def new_secret(prefix: str = "") -> str:
    """Return a new secret of 256 random bits, as text for headers and addresses."""
    return prefix + _text(random_bytes(SECRET_BYTES))


def new_id() -> str:
    """Return a new public id: no secret, never repeated."""
    return _text(random_bytes(ID_BYTES))


def hash_of(secret: str) -> bytes:
    """Return what is stored of a secret."""
    return sha256(secret[:_LONGEST].encode("utf-8", "surrogatepass")).digest()


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")
