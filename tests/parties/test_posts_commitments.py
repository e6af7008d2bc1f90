"""Commitments in a transcript tell nothing, whatever computing power one has."""

from __future__ import annotations

from lapwing.parties.posts import SALT_BYTES


def test_salts_are_twice_as_long_as_digests() -> None:
    """With salts as long as the digest, about e^-1 of all plain texts would fit no salt, and an unbounded
    coalition could rule them out. With 32 bytes more nearly every plain text has 2^256 salts that fit."""
    assert SALT_BYTES >= 2 * 32
