"""Vectors of numbers modulo a prime: what shares, masks and sums are made of.

Claim    every method gives the exact result, below the modulus, for all elements below the modulus.
Because  2^61 = 1 modulo FIELD. So a product of two elements, written in digits of 2^31, folds into a sum of
         four terms below 2^64: see `multiply`. Other primes are below 2^31, and their products fit.
Test     parties/protocols/test_field.py, against Python's integers
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter, BadValue
from lapwing.parties.protocols.coins import Elements

FIELD = (1 << 61) - 1  # a prime: sums of all values fit between -FIELD/2 and FIELD/2
WORD = 8  # bytes of one element on its way
_SMALL = 1 << 31
_Ints = NDArray[np.int64]
_LOW30, _LOW31, _LOW61 = (np.uint64((1 << bits) - 1) for bits in (30, 31, 61))
_ONE, _30, _31, _61 = (np.uint64(n) for n in (1, 30, 31, 61))


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


@dataclass(frozen=True, slots=True)
class Field:
    """The numbers modulo a prime: `FIELD`, or a small one for tests that see everything."""

    modulus: int

    def __post_init__(self) -> None:
        if self.modulus != FIELD and not (self.modulus < _SMALL and _is_prime(self.modulus)):
            raise BadParameter("modulus", "must be 2^61 - 1, or a prime below 2^31")

    def add(self, a: Elements, b: Elements) -> Elements:
        """a + b."""
        return self._once(a + b)

    def subtract(self, a: Elements, b: Elements) -> Elements:
        """a - b."""
        return self._once(a + (np.uint64(self.modulus) - b))

    def negate(self, a: Elements) -> Elements:
        """-a."""
        return self._once(np.uint64(self.modulus) - a)

    def _once(self, raw: Elements) -> Elements:
        """Of numbers below twice the modulus. Without a branch: all elements cost the same."""
        p = np.uint64(self.modulus)
        return raw - p * (raw >= p)

    def multiply(self, a: Elements, b: Elements | int) -> Elements:
        """a * b; b may be one number for all."""
        other = np.asarray(b % self.modulus if isinstance(b, int) else b, dtype=np.uint64)
        if self.modulus != FIELD:
            return np.asarray(a * other % np.uint64(self.modulus), dtype=np.uint64)
        # a = a1 2^31 + a0, b alike. 2^62 = 2 and, for mid = m1 2^30 + m0, mid 2^31 = m1 + m0 2^31.
        a1, a0 = a >> _31, a & _LOW31
        b1, b0 = other >> _31, other & _LOW31
        mid = a1 * b0 + a0 * b1  # < 2^62
        # Below 2^61 + 2^32 + 2^61 + 2^62, so nothing wraps round.
        raw = ((a1 * b1) << _ONE) + (mid >> _30) + ((mid & _LOW30) << _31) + a0 * b0
        return self._once((raw & _LOW61) + (raw >> _61))

    def total(self, vectors: Iterable[Elements], length: int) -> Elements:
        """The sum of any number of vectors."""
        sum_ = np.zeros(length, dtype=np.uint64)
        for vector in vectors:
            sum_ = self.add(sum_, vector)
        return sum_

    def combine(self, weights: Sequence[int], vectors: Sequence[Elements]) -> Elements:
        """The sum of vectors, each times its weight."""
        products = (self.multiply(v, w) for w, v in zip(weights, vectors, strict=True))
        return self.total(products, len(vectors[0]))

    def inverse(self, number: int) -> int:
        """1 / number, for one public number."""
        return pow(number, -1, self.modulus)

    def from_signed(self, values: _Ints) -> Elements:
        """Any 64-bit integers, modulo the prime. What does not fit wraps round, and nobody is told."""
        return np.asarray(values % np.int64(self.modulus)).astype(np.uint64)

    def to_signed(self, elements: Elements) -> _Ints:
        """The integers between -modulus/2 and modulus/2."""
        plain = elements.astype(np.int64)
        return plain - np.int64(self.modulus) * (plain > self.modulus // 2)

    def to_bytes(self, elements: Elements) -> bytes:
        """Eight bytes each, the least first."""
        return elements.astype("<u8").tobytes()

    def from_bytes(self, data: bytes, length: int) -> Elements:
        """What `to_bytes` gives for `length` elements, and nothing else."""
        if len(data) != WORD * length:
            raise BadValue(f"must have {WORD * length:,} bytes")
        elements = np.frombuffer(data, dtype="<u8").astype(np.uint64)
        if np.any(elements >= np.uint64(self.modulus)):
            raise BadValue("must have numbers below the modulus only")
        return elements
