"""Projective-geometry response: a point that is orthogonal to the true one more often than to others.

After Feldman, Nelson, Nguyen and Talwar (2022): the variance of subset selection, in a short message.

A point of a projective space over a prime field is a vector of t coordinates in 0 .. q - 1, not all 0, up
to a factor. It is scaled so that its first coordinate that is not 0 is 1. With m coordinates after that 1,
its number is

    (q^m - 1) / (q - 1)  +  those m coordinates as a number in base q, the first one highest.

So the points with fewer coordinates come first: 0 is (0, .., 0, 1); 1 .. q are (0, .., 0, 1, x) for
x = 0 .. q - 1; then come (0, .., 1, x, y) in the order of q x + y; and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np
from flint import fmpz
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.exact import Number, exp_up, whole
from lapwing.core.losses import checked_epsilon
from lapwing.errors import BadParameter
from lapwing.survey.randomizers.randomizer import (
    MOST_MESSAGES,
    PAIRS,
    IndexMessages,
    TwoLevelOracle,
    checked_answer,
    checked_answers,
    count_in_blocks,
    greatest_favoured,
)

Vectors = NDArray[np.int64]  # one row a vector
MOST_PRIME = (1 << 31) - 1  # products of two coordinates fit 64-bit integers


def is_prime(number: int) -> bool:
    """Return whether a number is a prime: proven, not guessed."""
    return bool(fmpz(number).is_prime())


def next_prime(number: int) -> int:
    """Return the least prime at or above a number."""
    while not is_prime(number):
        number += 1
    return number


def previous_prime(number: int) -> int:
    """Return the greatest prime at or below a number, which must be 2 or more."""
    while not is_prime(number):
        number -= 1
    return number


def points_in(prime: int, dimension: int) -> int:
    """Return the number of points of a space with `dimension` coordinates."""
    return int((prime**dimension - 1) // (prime - 1))


def _offsets(prime: int, dimension: int) -> NDArray[np.int64]:
    """Return the number of the first point with 0, 1, .. coordinates after the leading 1."""
    return np.array([points_in(prime, m) for m in range(dimension)], dtype=np.int64)


def vectors_of(numbers: NDArray[np.int64], prime: int, dimension: int) -> Vectors:
    """Return the scaled vectors of points."""
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
    """Return 1 / value modulo the prime: value^(q - 2)."""
    result, power, exponent = np.ones_like(values), values % prime, prime - 2
    while exponent > 0:
        if exponent & 1:
            result = result * power % prime
        power = power * power % prime
        exponent >>= 1
    return result


def numbers_of(vectors: Vectors, prime: int) -> NDArray[np.int64]:
    """Return the numbers of the points through these vectors, none of which is 0."""
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
    """Return the scalar product modulo the prime, row by row."""
    total = np.zeros(np.broadcast_shapes(one.shape[:-1], other.shape[:-1]), dtype=np.int64)
    for place in range(one.shape[-1]):  # reduced each time: sums of products could overflow
        total = (total + one[..., place] * other[..., place] % prime) % prime
    return total


def orthogonal(rows: Vectors, columns: Vectors, prime: int) -> NDArray[np.bool_]:
    """Return for each row and column whether their scalar product is 0 modulo the prime."""
    if rows.shape[-1] * (prime - 1) ** 2 >= 1 << 53:
        zero: NDArray[np.bool_] = products(rows[:, np.newaxis], columns[np.newaxis], prime) == 0
        return zero
    # Whole numbers below 2^53 are exact as floats, and multiplying matrices of them is fast. A multiple of
    # the prime, divided by it, is a whole number exactly; another number is not within 1/prime of one.
    total = rows.astype(np.float64) @ columns.T.astype(np.float64)
    total /= prime
    whole: NDArray[np.bool_] = total == np.rint(total)
    return whole


MOST_COUNTED = 1 << 26
MOST_DIMENSION = 62


@dataclass(frozen=True, slots=True)
class ProjectiveResponse(IndexMessages, TwoLevelOracle):
    """A point of the space of t coordinates over F_q. Option v is the point number v.

    Claim    two levels: the ratio is T (|Y| - |A|) / ((2^48 - T) |A|).
    Because  A(v), the points orthogonal to v, are spaces of t - 1 coordinates for all v, as q is a prime:
             |A| = (q^(t-1) - 1) / (q - 1) out of |Y| = (q^t - 1) / (q - 1).
    Test     tests/survey/randomizers/test_randomizers_laws.py::test_the_worst_ratio_is_the_claimed_one

    Two such sets share a space of t - 2 coordinates, whichever two: so all other answers support v alike.
    """

    kind: ClassVar[str] = "projective"
    prime: int
    dimension: int
    options: int
    favoured: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._settle(prime=2, dimension=2, options=2)
        if self.prime > MOST_PRIME or not is_prime(self.prime):
            raise BadParameter("prime", "must be a prime below 2^31")
        if self.dimension > MOST_DIMENSION or self.messages > MOST_MESSAGES:
            raise BadParameter("dimension", "must leave at most 2^62 points")
        if self.options > self.messages:
            raise BadParameter("options", "must be at most the number of points")
        self._settle_odds()

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, options: int) -> ProjectiveResponse:
        """Make the most truthful one within ε, over the prime with the least variance."""
        asked, k = checked_epsilon(epsilon), whole(options, "options", at_least=2)
        if k > MOST_MESSAGES:
            raise BadParameter("options", "must be at most 2^62")
        found = []
        for prime, dimension in _spaces(min(int(exp_up(asked)), MOST_PRIME), k):
            share = Fraction(points_in(prime, dimension - 1), points_in(prime, dimension))
            found.append(cls(prime, dimension, k, greatest_favoured(asked, share), asked))
        if not found:
            raise BadParameter("options", "are too many: messages would have more than 62 bits")
        return min(found, key=lambda one: (one.variance(0), one.messages))

    @property
    def messages(self) -> int:
        """The number of points."""
        return points_in(self.prime, self.dimension)

    @property
    def share(self) -> Fraction:
        """The share of all points that are orthogonal to a given point."""
        return Fraction(points_in(self.prime, self.dimension - 1), self.messages)

    @property
    def both(self) -> Fraction:
        """The share of all points that are orthogonal to two given points."""
        return Fraction(points_in(self.prime, self.dimension - 2), self.messages)

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Draw one point for each answer."""
        true = self._vectors(checked_answers(answers, self.options))
        wanted = noise.bernoulli(self.truth, len(true))
        # Where a point must be orthogonal, it is fitted at the last coordinate of v that is not 0.
        last = self.dimension - 1 - np.argmax(true[:, ::-1] != 0, axis=1)
        sent = np.zeros_like(true)
        open_ = np.arange(len(true))
        while len(open_):
            drawn = noise.uniform_int(0, self.prime, len(open_) * self.dimension)
            vectors = drawn.reshape(-1, self.dimension)
            fits = np.flatnonzero(wanted[open_])
            self._fit(vectors, true[open_], last[open_], fits)
            product = products(vectors, true[open_], self.prime)
            good = vectors.any(axis=1) & ((product == 0) == wanted[open_])
            sent[open_[good]] = vectors[good]
            open_ = open_[~good]
        return numbers_of(sent, self.prime)

    def _fit(
        self, vectors: Vectors, true: Vectors, last: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> None:
        """Overwrite one coordinate of these rows, so that they are orthogonal to the true points."""
        places, factors = last[rows], true[rows, last[rows]]
        vectors[rows, places] = 0
        product = products(vectors[rows], true[rows], self.prime)
        vectors[rows, places] = -product * inverses(factors, self.prime) % self.prime

    def _vectors(self, numbers: NDArray[np.int64]) -> Vectors:
        return vectors_of(numbers, self.prime, self.dimension)

    def counts(self, messages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the messages that are orthogonal to each option.

        Each distinct message is counted for all points that are orthogonal to it.
        """
        if self.options > MOST_COUNTED:
            raise BadParameter("options", "are too many to count all: name those that are of interest")
        counted = np.zeros(self.options, dtype=np.int64)
        kinds, weights = np.unique(messages, return_counts=True)
        others = points_in(self.prime, self.dimension - 1)
        flat = vectors_of(np.arange(others, dtype=np.int64), self.prime, self.dimension - 1)
        step = max(1, PAIRS // others)
        for start in range(0, len(kinds), step):
            vectors = self._vectors(kinds[start : start + step])
            for leading in range(self.dimension):
                mine = np.flatnonzero(np.argmax(vectors != 0, axis=1) == leading)
                found = self._orthogonal(vectors[mine], leading, flat)
                weight = np.repeat(weights[start : start + step][mine], others)
                known = found < self.options
                sums = np.bincount(found[known], weight[known], minlength=self.options)
                counted += np.rint(sums).astype(np.int64)  # whole numbers far below 2^53
        return counted

    def _orthogonal(self, vectors: Vectors, leading: int, flat: Vectors) -> NDArray[np.int64]:
        """Return all points orthogonal to each vector. Their first coordinate not 0 is at `leading`."""
        others = np.delete(vectors, leading, axis=1)
        fitting = -products(others[:, np.newaxis], flat[np.newaxis], self.prime) % self.prime
        every = np.broadcast_to(flat, (len(vectors), *flat.shape))
        whole_ = np.insert(every, leading, fitting, axis=2)
        return numbers_of(whole_.reshape(-1, self.dimension), self.prime)

    def counts_of(
        self, messages: NDArray[np.int64], answers: Sequence[int] | NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Count for these options: compare each with every distinct message."""
        rows = self._vectors(checked_answers(answers, self.options))
        kinds, weights = np.unique(messages, return_counts=True)
        vectors = self._vectors(kinds)
        return count_in_blocks(rows, weights, lambda some: orthogonal(some, vectors, self.prime))

    def membership(self, messages: NDArray[np.int64], answer: int) -> NDArray[np.bool_]:
        """Return for each message whether it is orthogonal to this option."""
        row = self._vectors(np.array([checked_answer(answer, self.options)]))
        orthogonal: NDArray[np.bool_] = products(self._vectors(messages), row, self.prime) == 0
        return orthogonal


def _spaces(near: int, options: int) -> Iterator[tuple[int, int]]:
    """Yield the spaces that may be best: a prime and a dimension, with a point for every option.

    The variance is least for a prime near e^ε + 1. The primes next to it are tried with
    their least dimension, and each dimension with its least prime, which has the shortest messages.
    """
    tried = {previous_prime(min(near + 1, MOST_PRIME)), next_prime(min(near + 1, MOST_PRIME))}
    found = {
        (prime, next(t for t in range(2, MOST_DIMENSION + 3) if points_in(prime, t) >= options))
        for prime in tried
    }
    for dimension in range(2, MOST_DIMENSION + 1):
        # q^(t-1) < points < (q + 1)^(t-1), so the least prime is not far below this root.
        prime = next_prime(max(2, int(options ** (1 / (dimension - 1))) - 2))
        while points_in(prime, dimension) < options:
            prime = next_prime(prime + 1)
        found.add((prime, dimension))
    for prime, dimension in sorted(found):
        if prime <= MOST_PRIME and points_in(prime, dimension) <= MOST_MESSAGES:
            yield prime, dimension
