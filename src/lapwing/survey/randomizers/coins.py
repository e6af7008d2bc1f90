"""The stream that tables draw from: `noise.random_bytes`, so that there is still only one door."""

from __future__ import annotations

from lapwing import noise
from lapwing.noise.stream import Stream


class _Door(Stream):
    """Fresh bytes, each used once."""

    def take(self, size: int) -> bytes:
        return noise.random_bytes(size)


COINS = _Door()
