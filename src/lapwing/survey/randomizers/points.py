"""Points of a projective space over a prime field, and their numbers.

A point is a vector of t coordinates in 0 .. q - 1, not all 0, up to a factor: it is scaled so that its
first coordinate that is not 0 is 1. With m coordinates after that 1, its number is

    (q^m - 1) / (q - 1)  +  those m coordinates as a number in base q, the first one highest.

So the points with fewer coordinates come first: 0 is (0, .., 0, 1); 1 .. q are (0, .., 0, 1, x) for
x = 0 .. q - 1; then come (0, .., 1, x, y) in the order of q x + y; and so on.
"""

from __future__ import annotations

import numpy as np
from flint import fmpz
from numpy.typing import NDArray

Vectors = NDArray[np.int64]  # one row a vector
MOST_PRIME = (1 << 31) - 1  # products of two coordinates fit 64-bit integers


def is_prime(number: int) -> bool:
    """Whether it is a prime: proven, not guessed."""
    return bool(fmpz(number).is_prime())


def next_prime(number: int) -> int:
    """The least prime at or above it."""
    while not is_prime(number):
        number += 1
    return number


def previous_prime(number: int) -> int:
    """The greatest prime at or below it, which is 2 or more."""
    while not is_prime(number):
        number -= 1
    return number


def points_in(prime: int, dimension: int) -> int:
    """How many points a space of so many coordinates has."""
    return int((prime**dimension - 1) // (prime - 1))


def _offsets(prime: int, dimension: int) -> NDArray[np.int64]:
    """The number of the first point with 0, 1, .. coordinates after the leading 1."""
    return np.array([points_in(prime, m) for m in range(dimension)], dtype=np.int64)


def vectors_of(numbers: NDArray[np.int64], prime: int, dimension: int) -> Vectors:
    """The scaled vectors of points."""
    offsets = _offsets(prime, dimension)
    after = np.searchsorted(offsets, numbers, side="right") - 1
    rest = numbers - offsets[after]
    vectors = np.zeros((len(numbers), dimension), dtype=np.int64)
    for place in range(dimension - 1, -1, -1):  # the last coordinate is the lowest digit
        vectors[:, place] = rest % prime
        rest //= prime
    # No digit is left at the leading place, where the 1 goes.
    vectors[np.arange(len(numbers)), dimension - 1 - after] = 1
    return vectors


def inverses(values: NDArray[np.int64], prime: int) -> NDArray[np.int64]:
    """1 / value modulo the prime: value^(q - 2)."""
    result, power, exponent = np.ones_like(values), values % prime, prime - 2
    while exponent > 0:
        if exponent & 1:
            result = result * power % prime
        power = power * power % prime
        exponent >>= 1
    return result


def numbers_of(vectors: Vectors, prime: int) -> NDArray[np.int64]:
    """The numbers of the points through these vectors, none of which is 0."""
    count, dimension = vectors.shape
    leading = np.argmax(vectors != 0, axis=1)
    scale = inverses(vectors[np.arange(count), leading], prime)
    value = np.zeros(count, dtype=np.int64)
    for place in range(dimension):
        scaled = vectors[:, place] * scale % prime
        value = np.where(place > leading, value * prime + scaled, 0)
    numbers: NDArray[np.int64] = _offsets(prime, dimension)[dimension - 1 - leading] + value
    return numbers


def products(one: Vectors, other: Vectors, prime: int) -> NDArray[np.int64]:
    """Row by row: the scalar product modulo the prime."""
    total = np.zeros(np.broadcast_shapes(one.shape[:-1], other.shape[:-1]), dtype=np.int64)
    for place in range(one.shape[-1]):  # reduced each time: sums of products could overflow
        total = (total + one[..., place] * other[..., place] % prime) % prime
    return total


def orthogonal(rows: Vectors, columns: Vectors, prime: int) -> NDArray[np.bool_]:
    """Each row against each column: whether their scalar product is 0 modulo the prime."""
    if rows.shape[-1] * (prime - 1) ** 2 >= 1 << 53:
        zero: NDArray[np.bool_] = products(rows[:, np.newaxis], columns[np.newaxis], prime) == 0
        return zero
    # Whole numbers below 2^53 are exact as floats, and multiplying matrices of them is fast. A multiple of
    # the prime, divided by it, is a whole number exactly; another number is not within 1/prime of one.
    total = rows.astype(np.float64) @ columns.T.astype(np.float64)
    total /= prime
    whole: NDArray[np.bool_] = total == np.rint(total)
    return whole
