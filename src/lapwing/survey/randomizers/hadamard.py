"""Hadamard response: a random parity check that the true answer passes more often than other answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.exact import Number, whole
from lapwing.core.losses import checked_epsilon
from lapwing.errors import BadParameter
from lapwing.survey.randomizers.randomizer import (
    IndexMessages,
    TwoLevelOracle,
    checked_answer,
    checked_answers,
    count_in_blocks,
    greatest_favoured,
)

_Value = TypeVar("_Value", np.int64, np.float64)
MOST_BITS = 62
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
        if self.bits > MOST_BITS:
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
        counted: NDArray[np.int64] = (len(messages) + differences[1 : self.options + 1]) // 2
        return counted

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
    found, half = values, 1
    while half < len(found):
        pairs = found.reshape(-1, 2, half)
        found = np.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), axis=1).reshape(-1)
        half *= 2
    return found
