"""Frequency oracles whose message is a number: randomized response, Hadamard, and projective geometry.

`KaryResponse` sends the true option with a fixed probability, else one of the others. `HadamardResponse`
sends a random parity check that the true answer passes more often than other answers. `ProjectiveResponse`
sends a point that is orthogonal to the true one more often than to others. It is the one of Feldman,
Nelson, Nguyen and Talwar (2022): the variance of subset selection, in a short message.

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
from functools import lru_cache
from typing import ClassVar, TypeVar

import numpy as np
from flint import fmpz
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.chances import percent
from lapwing.core.exact import Number, Real, exp_up, whole
from lapwing.core.exact_sampling import Inversion, rational
from lapwing.core.losses import checked_epsilon
from lapwing.errors import BadParameter
from lapwing.survey.randomize import CoinSource
from lapwing.survey.randomizers.randomizer import (
    MOST_MESSAGES,
    NOISE_STREAM,
    ODDS,
    PAIRS,
    IndexMessages,
    TwoLevelOracle,
    checked_answer,
    checked_answers,
    count_in_blocks,
    greatest_favoured,
)

MOST_CHOICE_OPTIONS = 1 << 31
CHUNK = 1 << 16
MOST_TABLE_OPTIONS = 1 << 11  # with more options a table would be too large
LEAST_TABLE_ANSWERS = 1 << 12  # with fewer answers a table is not worth building


@dataclass(frozen=True, slots=True)
class KaryResponse(IndexMessages, TwoLevelOracle):
    """k-ary randomized response: the true option with T chances in 2^48, else a uniform other one.

    Claim    two levels: the ratio is T (k - 1) / (2^48 - T).
    Because  A(v) is the option v itself, out of k messages.
    Test     tests/survey/randomizers/test_randomizers_laws.py::test_the_worst_ratio_is_the_claimed_one
    """

    kind: ClassVar[str] = "choice"
    options: int
    favoured: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._settle(options=2)
        if self.options > MOST_CHOICE_OPTIONS:
            raise BadParameter("options", "must be at most 2^31")
        self._settle_odds()

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, options: int) -> KaryResponse:
        """Make the most truthful one within ε."""
        asked, k = checked_epsilon(epsilon), whole(options, "options", at_least=2)
        return cls(k, greatest_favoured(asked, Fraction(1, k)), asked)

    @classmethod
    def two_coins(cls) -> KaryResponse:
        """Make the textbook's two coins: 3/4 truth, ε = ln 3.

        Heads: the truth. Tails: a second coin answers yes or no.
        """
        return cls(2, 3 * ODDS // 4)

    @property
    def messages(self) -> int:
        """The number of options."""
        return self.options

    @property
    def share(self) -> Fraction:
        """One message of k."""
        return Fraction(1, self.options)

    @property
    def both(self) -> Fraction:
        """No message is favoured by two options."""
        return Fraction(0)

    def stated_odds(self) -> str:
        """Return the odds of the own option and of the others. Two coins are explained."""
        others = "the other one" if self.options == 2 else f"each of the other {self.options - 1:,}"
        text = (
            f"Your device sends your own answer with a chance of {percent(self.inside)}, and {others} "
            f"with {percent(self.outside)}."
        )
        if self.options == 2 and self.inside == Fraction(3, 4):
            text += " It is as if you threw a coin: heads, the truth; tails, a second coin answers for you."
        return text

    def draw(self, answer: int, source: CoinSource) -> int:
        """Draw the option that is sent."""
        if source.odds(self.favoured):
            return answer
        other = source.below(self.options - 1)
        return other + (other >= answer)

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Draw one option for each answer."""
        true = checked_answers(answers, self.options)
        if self.options > MOST_TABLE_OPTIONS or len(true) < LEAST_TABLE_ANSWERS:
            told = noise.bernoulli(self.truth, len(true))
            moved = np.where(told, 0, noise.uniform_int(1, self.options, len(true)))
            return (true + moved) % self.options
        sent = np.empty(len(true), dtype=np.int64)
        table = _distance_table(self.options, self.favoured)
        for start in range(0, len(true), CHUNK):
            part = sent[start : start + CHUNK]
            np.add(true[start : start + CHUNK], table.draw_guided(NOISE_STREAM, len(part)), out=part)
            np.subtract(part, self.options, out=part, where=part >= self.options)
        return sent

    def counts(self, messages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count how often each option was sent."""
        return np.bincount(messages, minlength=self.options).astype(np.int64, copy=False)

    def membership(self, messages: NDArray[np.int64], answer: int) -> NDArray[np.bool_]:
        """Return for each message whether it is this option."""
        chosen: NDArray[np.bool_] = messages == checked_answer(answer, self.options)
        return chosen


@lru_cache(maxsize=32)
def _distance_table(options: int, favoured: int) -> Inversion:
    """Return the law of (message - answer) mod k: 0 with T / 2^48, else uniform."""
    total = ODDS * (options - 1)

    def cdf(step: int) -> Real:
        return rational(Fraction(favoured * (options - 1) + step * (ODDS - favoured), total))

    return Inversion(cdf, options)


_Value = TypeVar("_Value", np.int64, np.float64)
MOST_PARITY_BITS = 62
MOST_TRANSFORMED_BITS = 26  # with more bits the transform of all options would be too large
HALF = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class HadamardResponse(IndexMessages, TwoLevelOracle):
    """A number y of b bits. With T chances in 2^48 an even number of bits is set in y & (v + 1).

    Claim    two levels: the ratio is T / (2^48 - T).
    Because  A(v) are the y with even parity on v + 1, which is not 0: exactly half of all.
    Test     tests/survey/randomizers/test_randomizers_laws.py::test_the_worst_ratio_is_the_claimed_one

    Two such sets share a quarter of all messages, so another answer supports v half of the time.
    """

    kind: ClassVar[str] = "hadamard"
    bits: int
    options: int
    favoured: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._settle(bits=1, options=1)
        if self.bits > MOST_PARITY_BITS:
            raise BadParameter("bits", "must be at most 62")
        if self.options >= 1 << self.bits:
            raise BadParameter("options", "must be below 2^bits")
        self._settle_odds()

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, options: int) -> HadamardResponse:
        """Make the most truthful one within ε, with the shortest message."""
        asked, k = checked_epsilon(epsilon), whole(options, "options", at_least=2)
        return cls(k.bit_length(), k, greatest_favoured(asked, HALF), asked)

    @property
    def messages(self) -> int:
        """The number of possible numbers y."""
        return 1 << self.bits

    @property
    def share(self) -> Fraction:
        """Half of all messages."""
        return HALF

    @property
    def both(self) -> Fraction:
        """A quarter of all messages have even parity on two options."""
        return HALF / 2

    def draw(self, answer: int, source: CoinSource) -> int:
        """Draw the number that is sent."""
        odd = not source.odds(self.favoured)
        row = answer + 1
        drawn = source.below(1 << self.bits)
        # One bit more or less changes the parity.
        return drawn ^ (row & -row) if (drawn & row).bit_count() % 2 != odd else drawn

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Draw one number for each answer."""
        rows = checked_answers(answers, self.options) + 1
        sent = noise.uniform_int(0, 1 << self.bits, len(rows))
        odd = np.bitwise_count(sent & rows) & 1 == 1
        wrong = odd == noise.bernoulli(self.truth, len(rows))
        # Flipping one bit of `rows` maps the numbers of one parity one to one to those of the other.
        return np.where(wrong, sent ^ (rows & -rows), sent)

    def counts(self, messages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the messages with even parity on each option, by one fast Hadamard transform."""
        if self.bits > MOST_TRANSFORMED_BITS:
            raise BadParameter("options", "are too many to count all: name those that are of interest")
        sent = np.bincount(messages, minlength=self.messages).astype(np.int64, copy=False)
        differences = walsh_transform(sent)
        return (len(messages) + differences[1 : self.options + 1]) // 2

    def counts_of(
        self, messages: NDArray[np.int64], answers: Sequence[int] | NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Count for these options: compare each with every distinct message."""
        rows = checked_answers(answers, self.options) + 1
        kinds, weights = np.unique(messages, return_counts=True)
        return count_in_blocks(
            rows, weights, lambda some: np.bitwise_count(some[:, np.newaxis] & kinds) & 1 == 0
        )

    def membership(self, messages: NDArray[np.int64], answer: int) -> NDArray[np.bool_]:
        """Return for each message whether it has even parity on this option."""
        row = checked_answer(answer, self.options) + 1
        even: NDArray[np.bool_] = np.bitwise_count(messages & row) & 1 == 0
        return even


def walsh_transform(values: NDArray[_Value]) -> NDArray[_Value]:
    """Return Σ values(y) (-1)^parity(y & v) for every v. The length must be a power of 2."""
    sums, half = values, 1
    while half < len(sums):
        pairs = sums.reshape(-1, 2, half)
        sums = np.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), axis=1).reshape(-1)
        half *= 2
    return sums


Vectors = NDArray[np.int64]  # one row a vector
MOST_PRIME = (1 << 31) - 1  # products of two coordinates fit 64-bit integers


def is_prime(number: int) -> bool:
    """Return whether a number is a prime: proven, not guessed."""
    return bool(fmpz(number).is_prime())


def next_prime(number: int, step: int = 1) -> int:
    """Return the first prime at or above a number; with a step of -1, at or below it (2 or more)."""
    while not is_prime(number):
        number += step
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


def products(left: Vectors, right: Vectors, prime: int) -> NDArray[np.int64]:
    """Return the scalar product modulo the prime, row by row."""
    total = np.zeros(np.broadcast_shapes(left.shape[:-1], right.shape[:-1]), dtype=np.int64)
    for place in range(left.shape[-1]):  # reduced each time: sums of products could overflow
        total = (total + left[..., place] * right[..., place] % prime) % prime
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
        responses = []
        for prime, dimension in _spaces(min(int(exp_up(asked)), MOST_PRIME), k):
            share = Fraction(points_in(prime, dimension - 1), points_in(prime, dimension))
            responses.append(cls(prime, dimension, k, greatest_favoured(asked, share), asked))
        if not responses:
            raise BadParameter("options", "are too many: messages would have more than 62 bits")
        return min(responses, key=lambda response: (response.variance(0), response.messages))

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

    def draw(self, answer: int, source: CoinSource) -> int:
        """Draw the number of the point that is sent."""
        is_orthogonal = source.odds(self.favoured)
        q, t = self.prime, self.dimension
        [point] = self._vectors(np.array([answer])).tolist()
        last = max(j for j in range(t) if point[j])
        inverse = pow(point[last], -1, q)
        while True:
            vector = [source.below(q) for _ in range(t)]
            if is_orthogonal:
                rest = sum(point[j] * vector[j] for j in range(last))
                vector[last] = -rest * inverse % q
            if any(vector) and (not sum(map(int.__mul__, point, vector)) % q) == is_orthogonal:
                return int(numbers_of(np.array([vector]), q)[0])

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
                points = self._orthogonal(vectors[mine], leading, flat)
                weight = np.repeat(weights[start : start + step][mine], others)
                known = points < self.options
                sums = np.bincount(points[known], weight[known], minlength=self.options)
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
    tried = {next_prime(min(near + 1, MOST_PRIME), step) for step in (-1, 1)}
    spaces = {
        (prime, next(t for t in range(2, MOST_DIMENSION + 3) if points_in(prime, t) >= options))
        for prime in tried
    }
    for dimension in range(2, MOST_DIMENSION + 1):
        # q^(t-1) < points < (q + 1)^(t-1), so the least prime is not far below this root.
        prime = next_prime(max(2, int(options ** (1 / (dimension - 1))) - 2))
        while points_in(prime, dimension) < options:
            prime = next_prime(prime + 1)
        spaces.add((prime, dimension))
    for prime, dimension in sorted(spaces):
        if prime <= MOST_PRIME and points_in(prime, dimension) <= MOST_MESSAGES:
            yield prime, dimension
