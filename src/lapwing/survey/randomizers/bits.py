"""Any number of options: each is a yes-or-no question of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.exact import Number, settle, whole
from lapwing.privacy import Pure
from lapwing.privacy.loss import checked_epsilon
from lapwing.survey.randomizers.masks import (
    count_options,
    decode_masks,
    has,
    mask_size,
    random_masks,
    sizes_of,
)
from lapwing.survey.randomizers.oracle import Shares
from lapwing.survey.randomizers.randomizer import Recipe
from lapwing.survey.randomizers.two_level import ODDS, check_stated, favour, loss_within, ratio_of
from lapwing.survey.randomizers.wire import WORD, checked_answer, checked_answers, row_of

MOST_OPTIONS = 62  # an answer is a whole number of so many bits


@dataclass(frozen=True, slots=True)
class Bits(Shares):
    """One binary randomized response per option. An answer is a set: the sum of 2^j over its options j.

    Claim    the ratio is (T / (2^48 - T))^m for m options.
    Because  the bits are independent, each has the ratio T / (2^48 - T), and two answers may differ in all.
    Test     tests/survey/randomizers/test_laws.py::test_the_worst_ratio_is_the_claimed_one
    """

    options: int
    favoured: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        settle(
            self,
            options=whole(self.options, "options", at_least=1),
            favoured=whole(self.favoured, "favoured", at_least=1),
        )
        if self.options > MOST_OPTIONS:
            raise BadParameter("options", "must be at most 62 when each is a bit")
        if not ODDS // 2 < self.favoured < ODDS:
            raise BadParameter("favoured", "must be likelier than by chance, and below 2^48")
        settle(self, epsilon=check_stated(self.ratio, self.epsilon))

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, options: int) -> Bits:
        """Each bit gets an equal part of ε."""
        asked, m = checked_epsilon(epsilon), whole(options, "options", at_least=1)
        return cls(m, favour(asked / m, Fraction(1, 2)), asked)

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers: exact."""
        return ratio_of(self.favoured, Fraction(1, 2)) ** self.options

    @property
    def loss(self) -> Pure:
        """What a message reveals: the ε that was asked for, or ln(ratio) rounded up."""
        return loss_within(self.ratio, self.epsilon)

    @property
    def inputs(self) -> int:
        """Every set of options is an answer."""
        return 1 << self.options

    @property
    def size(self) -> int:
        """One bit per option."""
        return mask_size(self.options)

    @property
    def inside(self) -> Fraction:
        """P[the bit of an option that is held]."""
        return Fraction(self.favoured, ODDS)

    @property
    def outside(self) -> Fraction:
        """P[the bit of an option that is not]."""
        return 1 - self.inside

    def recipe(self) -> Recipe:
        """For devices."""
        return {"kind": "bits", "options": self.options, "favoured": self.favoured}

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """One set of bits per answer, packed."""
        lies = random_masks(ODDS - self.favoured, len(answers), self.options)
        return lies ^ self._packed(checked_answers(answers, self.inputs))

    def _packed(self, answers: NDArray[np.int64]) -> NDArray[np.uint8]:
        wide = answers.astype("<u8").view(np.uint8).reshape(-1, WORD)
        return np.ascontiguousarray(wide[:, : self.size])

    def encode(self, messages: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Messages are packed already."""
        return messages

    def decode(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Any bits, as many as there are options."""
        return decode_masks(rows, self.options)

    def probability(self, answer: int, message: bytes) -> Fraction:
        """The product over all bits."""
        true = self._packed(np.array([checked_answer(answer, self.inputs)]))
        lies = int(sizes_of(true ^ self.decode(row_of(message, self.size)))[0])
        return self.inside ** (self.options - lies) * self.outside**lies

    def counts(self, messages: NDArray[np.uint8]) -> NDArray[np.int64]:
        """How many messages have each option."""
        return count_options(messages, self.options)

    def membership(self, messages: NDArray[np.uint8], answer: int) -> NDArray[np.bool_]:
        """Which messages have this option (an option, not a set)."""
        return has(messages, checked_answer(answer, self.options))
