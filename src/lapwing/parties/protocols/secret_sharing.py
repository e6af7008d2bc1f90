"""Secret sharing over a prime field, and the random coins that protocols draw.

Coins are the random numbers that hide a member's value on its way. Noise is not among them: a member adds
noise to its value before a protocol gets the value. A member's journal records coins, so that a member that
crashed sends the same bytes again. Tests enumerate coins, to compute the exact distribution of a view.

Claim    arithmetic of `Field` returns the exact result, below the modulus, for all elements below it.
Because  2^61 = 1 modulo FIELD. So a product of two elements, written in digits of 2^31, folds into a sum of
         four terms below 2^64: see `multiply`. Other primes are below 2^31, and their products fit.
Test     parties/protocols/test_secret_sharing_field.py, against Python's integers

Claim    additive sharing: all pieces but one are independent and uniform, for every secret.
         Shamir sharing with threshold k: any k - 1 pieces are independent and uniform, for every secret;
         any k pieces determine the secret; pieces of sums are sums of pieces.
Because  additive: all pieces but the last are drawn at random, and the choice of the last does not matter.
         Shamir: pieces are values at 1, 2, ... of a polynomial of degree k - 1 with the secret at 0. For
         each secret exactly one such polynomial goes through any k - 1 given values (Lagrange).
Test     parties/protocols/test_secret_sharing.py, by enumeration and against MPyC
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lapwing.core.noise import random_bytes, uniform_int
from lapwing.errors import BadParameter, BadValue

Elements = NDArray[np.uint64]


class ProtocolCoins(ABC):
    """Source of independent, uniform random numbers for one member in one protocol run."""

    @abstractmethod
    def elements(self, modulus: int, count: int) -> Elements:
        """Draw `count` uniform numbers below `modulus`."""

    @abstractmethod
    def secret(self) -> bytes:
        """Draw 32 secret bytes: a key, a seed or a salt."""


class FreshCoins(ProtocolCoins):
    """Coins from the operating system, drawn through `lapwing.core.noise`."""

    def elements(self, modulus: int, count: int) -> Elements:
        """Draw `count` uniform numbers below `modulus`."""
        return uniform_int(0, modulus, count).astype(np.uint64)

    def secret(self) -> bytes:
        """Draw 32 secret bytes."""
        return random_bytes(32)


FIELD = (1 << 61) - 1  # a prime: sums of all values fit between -FIELD/2 and FIELD/2
WORD = 8  # bytes of one element in a message
_SMALL = 1 << 31
_Ints = NDArray[np.int64]
_LOW30, _LOW31, _LOW61 = (np.uint64((1 << bits) - 1) for bits in (30, 31, 61))
_ONE, _30, _31, _61 = (np.uint64(n) for n in (1, 30, 31, 61))


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


@dataclass(frozen=True, slots=True)
class Field:
    """The integers modulo a prime: `FIELD`, or a small prime for tests that enumerate all elements."""

    modulus: int

    def __post_init__(self) -> None:
        if self.modulus != FIELD and not (self.modulus < _SMALL and _is_prime(self.modulus)):
            raise BadParameter("modulus", "must be 2^61 - 1, or a prime below 2^31")

    def add(self, a: Elements, b: Elements) -> Elements:
        """Return a + b."""
        return self._once(a + b)

    def subtract(self, a: Elements, b: Elements) -> Elements:
        """Return a - b."""
        return self._once(a + (np.uint64(self.modulus) - b))

    def negate(self, a: Elements) -> Elements:
        """Return -a."""
        return self._once(np.uint64(self.modulus) - a)

    def _once(self, raw: Elements) -> Elements:
        """Reduce numbers below twice the modulus, without a branch: all elements take the same time."""
        p = np.uint64(self.modulus)
        return raw - p * (raw >= p)

    def multiply(self, a: Elements, b: Elements | int) -> Elements:
        """Return a * b. b may be one number for all elements."""
        other = np.asarray(b % self.modulus if isinstance(b, int) else b, dtype=np.uint64)
        if self.modulus != FIELD:
            return np.asarray(a * other % np.uint64(self.modulus), dtype=np.uint64)
        # a = a1 2^31 + a0, b alike. 2^62 = 2 and, for mid = m1 2^30 + m0, mid 2^31 = m1 + m0 2^31.
        a1, a0 = a >> _31, a & _LOW31
        b1, b0 = other >> _31, other & _LOW31
        mid = a1 * b0 + a0 * b1  # < 2^62
        # The sum is below 2^61 + 2^32 + 2^61 + 2^62, so it does not overflow.
        raw = ((a1 * b1) << _ONE) + (mid >> _30) + ((mid & _LOW30) << _31) + a0 * b0
        return self._once((raw & _LOW61) + (raw >> _61))

    def total(self, vectors: Iterable[Elements], length: int) -> Elements:
        """Return the sum of any number of vectors."""
        sum_ = np.zeros(length, dtype=np.uint64)
        for vector in vectors:
            sum_ = self.add(sum_, vector)
        return sum_

    def combine(self, weights: Sequence[int], vectors: Sequence[Elements]) -> Elements:
        """Return the sum of the vectors, each multiplied by its weight."""
        products = (self.multiply(v, w) for w, v in zip(weights, vectors, strict=True))
        return self.total(products, len(vectors[0]))

    def inverse(self, number: int) -> int:
        """Return 1 / number, for one public number."""
        return pow(number, -1, self.modulus)

    def from_signed(self, values: _Ints) -> Elements:
        """Return 64-bit integers modulo the prime. Values beyond the modulus wrap round silently."""
        return np.asarray(values % np.int64(self.modulus)).astype(np.uint64)

    def to_signed(self, elements: Elements) -> _Ints:
        """Return the elements as integers between -modulus/2 and modulus/2."""
        plain = elements.astype(np.int64)
        return plain - np.int64(self.modulus) * (plain > self.modulus // 2)

    def to_bytes(self, elements: Elements) -> bytes:
        """Return eight bytes for each element, little-endian."""
        return elements.astype("<u8").tobytes()

    def from_bytes(self, data: bytes, length: int) -> Elements:
        """Read exactly `length` elements, as `to_bytes` writes them. Raises `BadValue` for other bytes."""
        if len(data) != WORD * length:
            raise BadValue(f"must have {WORD * length:,} bytes")
        elements = np.frombuffer(data, dtype="<u8").astype(np.uint64)
        if np.any(elements >= np.uint64(self.modulus)):
            raise BadValue("must have numbers below the modulus only")
        return elements

    def additive_pieces(self, secret: Elements, pieces: int, coins: ProtocolCoins) -> list[Elements]:
        """Draw vectors that add up to the secret."""
        length = len(secret)
        drawn = coins.elements(self.modulus, (pieces - 1) * length).reshape(pieces - 1, length)
        return [self.subtract(secret, self.total(drawn, length)), *drawn]

    def shamir_pieces(
        self, secret: Elements, *, threshold: int, members: int, coins: ProtocolCoins
    ) -> list[Elements]:
        """Draw one piece per member: the values at 1 .. members of a polynomial of degree threshold - 1."""
        if not 1 <= threshold <= members < self.modulus:
            raise BadParameter(
                "threshold", "must be 1 to the number of members, which is below the modulus"
            )
        length = len(secret)
        drawn = coins.elements(self.modulus, (threshold - 1) * length).reshape(threshold - 1, length)
        pieces = []
        for point in range(1, members + 1):
            value = np.zeros(length, dtype=np.uint64)
            for coefficient in drawn:
                value = self.multiply(self.add(value, coefficient), point)
            pieces.append(self.add(value, secret))
        return pieces

    def reconstruct(self, pieces: Mapping[int, Elements], *, threshold: int) -> Elements:
        """Compute the secret from the pieces of the `threshold` members with the lowest numbers."""
        first = _first(pieces, threshold)
        return self.combine(lagrange(self, first, 0), [pieces[i] for i in first])

    def inconsistent_members(self, pieces: Mapping[int, Elements], *, threshold: int) -> tuple[int, ...]:
        """Return the members whose pieces may be wrong.

        The result is empty if all pieces lie on one polynomial. It is one member if the others' pieces then
        do (and are enough to tell). Else it is all members.
        """
        if self._agree(pieces, threshold):
            return ()
        for member in sorted(pieces):
            rest = {i: piece for i, piece in pieces.items() if i != member}
            if len(rest) > threshold and self._agree(rest, threshold):
                return (member,)
        return tuple(sorted(pieces))

    def _agree(self, pieces: Mapping[int, Elements], threshold: int) -> bool:
        """Return whether all pieces lie on the polynomial through the first `threshold` of them."""
        first = _first(pieces, threshold)
        base = [pieces[i] for i in first]
        return all(
            np.array_equal(self.combine(lagrange(self, first, i + 1), base), pieces[i])
            for i in sorted(pieces)
            if i not in first
        )


@lru_cache(maxsize=4096)
def lagrange(field: Field, members: tuple[int, ...], at: int) -> tuple[int, ...]:
    """Return the weights of the members' pieces in the polynomial's value at `at`."""
    weights = []
    for i in members:
        above = below = 1
        for j in members:
            if j != i:
                above = above * (at - (j + 1)) % field.modulus
                below = below * (i - j) % field.modulus
        weights.append(above * field.inverse(below) % field.modulus)
    return tuple(weights)


def _first(pieces: Mapping[int, Elements], threshold: int) -> tuple[int, ...]:
    """Return the `threshold` lowest member numbers."""
    if len(pieces) < threshold:
        raise BadParameter("pieces", f"must be at least {threshold}")
    return tuple(sorted(pieces)[:threshold])
