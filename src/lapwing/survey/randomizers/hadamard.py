"""Hadamard response: a random parity check, which the true answer passes more often than not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.exact import Number, set_fields, whole
from lapwing.core.losses import checked_epsilon
from lapwing.errors import BadParameter
from lapwing.survey.randomizers.randomizer import (
    Recipe,
    ShareEstimator,
    TwoLevel,
    checked_answer,
    checked_answers,
    decode_index,
    encode_index,
    greatest_favoured,
    index_size,
    row_of,
)

MOST_BITS = 62
MOST_TRANSFORMED_BITS = 26  # up to so many bits all options are counted by one transform
HALF = Fraction(1, 2)
PAIRS = 1 << 22  # of message and option looked at together


@dataclass(frozen=True, slots=True)
class HadamardResponse(TwoLevel, ShareEstimator):
    """A number y of b bits. With T chances in 2^48 an even number of bits is set in y & (v + 1).

    Claim    two_level: the ratio is T / (2^48 - T).
    Because  A(v) are the y with even parity on v + 1, which is not 0: exactly half of all.
    Test     tests/survey/randomizers/test_laws.py::test_the_worst_ratio_is_the_claimed_one

    Two such sets share a quarter of all messages, so other answers speak for v half of the time.
    """

    bits: int
    options: int
    favoured: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        set_fields(
            self,
            bits=whole(self.bits, "bits", at_least=1),
            options=whole(self.options, "options", at_least=1),
        )
        if self.bits > MOST_BITS:
            raise BadParameter("bits", "must be at most 62")
        if self.options >= 1 << self.bits:
            raise BadParameter("options", "must be below 2^bits")
        self._settle_odds()

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, options: int) -> HadamardResponse:
        """The most truthful one within ε, with the shortest message."""
        asked, k = checked_epsilon(epsilon), whole(options, "options", at_least=2)
        return cls(k.bit_length(), k, greatest_favoured(asked, HALF), asked)

    @property
    def inputs(self) -> int:
        """As many answers as options."""
        return self.options

    @property
    def share(self) -> Fraction:
        """Half of all messages."""
        return HALF

    @property
    def size(self) -> int:
        """The number y."""
        return index_size(1 << self.bits)

    @property
    def inside(self) -> Fraction:
        """P[even parity on the option that is held]."""
        return self.truth

    @property
    def outside(self) -> Fraction:
        """P[even parity on any other option]."""
        return HALF

    def recipe(self) -> Recipe:
        """For devices."""
        return {
            "kind": "hadamard",
            "bits": self.bits,
            "options": self.options,
            "favoured": self.favoured,
        }

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.int64]:
        """One number per answer."""
        rows = checked_answers(answers, self.options) + 1
        sent = noise.uniform_int(0, 1 << self.bits, len(rows))
        odd = np.bitwise_count(sent & rows) & 1 == 1
        wrong = odd == noise.bernoulli(self.truth, len(rows))
        # One bit that counts is turned: the numbers of one parity go to those of the other, one to one.
        return np.where(wrong, sent ^ (rows & -rows), sent)

    def encode(self, messages: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The number."""
        return encode_index(messages, self.size)

    def decode(self, rows: NDArray[np.uint8]) -> NDArray[np.int64]:
        """A number of b bits."""
        return decode_index(rows, 1 << self.bits)

    def probability(self, answer: int, message: bytes) -> Fraction:
        """Two levels: by parity."""
        row = checked_answer(answer, self.options) + 1
        sent = int(self.decode(row_of(message, self.size))[0])
        return (self.unlikely if (sent & row).bit_count() % 2 else self.likely) / (1 << self.bits)

    def counts(self, messages: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many messages have even parity on each option: one fast Hadamard transform."""
        if self.bits > MOST_TRANSFORMED_BITS:
            raise BadParameter("options", "are too many to count all: name those that are of interest")
        differences = np.bincount(messages, minlength=1 << self.bits).astype(np.int64, copy=False)
        for bit in range(self.bits):
            pairs = differences.reshape(-1, 2, 1 << bit)
            differences = np.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), axis=1).reshape(
                -1
            )
        counted: NDArray[np.int64] = (len(messages) + differences[1 : self.options + 1]) // 2
        return counted

    def counts_of(
        self, messages: NDArray[np.int64], answers: Sequence[int] | NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """For these options only: each is compared with every message that differs."""
        rows = checked_answers(answers, self.options) + 1
        kinds, weights = np.unique(messages, return_counts=True)
        counted = np.zeros(len(rows), dtype=np.int64)
        step = max(1, PAIRS // max(len(kinds), 1))
        for start in range(0, len(rows), step):
            odd = np.bitwise_count(rows[start : start + step, np.newaxis] & kinds) & 1
            counted[start : start + step] = len(messages) - odd @ weights
        return counted

    def membership(self, messages: NDArray[np.int64], answer: int) -> NDArray[np.bool_]:
        """Which messages have even parity on this option."""
        row = checked_answer(answer, self.options) + 1
        even: NDArray[np.bool_] = np.bitwise_count(messages & row) & 1 == 0
        return even
