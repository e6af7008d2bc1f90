"""The coins of a protocol: everything that a member draws to hide its value on the way.

Noise is not among them: a value is noised before a protocol gets it. Coins can be recorded, so that a
member that crashed sends what it sent before; and enumerated, so that tests see the whole law of a view.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from lapwing.noise import random_bytes, uniform_int

Elements = NDArray[np.uint64]


class Coins(ABC):
    """Independent and uniform, whatever was drawn before."""

    @abstractmethod
    def elements(self, modulus: int, count: int) -> Elements:
        """Uniform numbers below `modulus`."""

    @abstractmethod
    def secret(self) -> bytes:
        """32 bytes that nobody else has: a key, a seed, a salt."""


class FreshCoins(Coins):
    """From the operating system, by the project's one door."""

    def elements(self, modulus: int, count: int) -> Elements:
        return uniform_int(0, modulus, count).astype(np.uint64)

    def secret(self) -> bytes:
        return random_bytes(32)
