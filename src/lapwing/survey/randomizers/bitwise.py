"""Any number of options: each is a yes-or-no question of its own.

One bit per option, each thrown by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.exact import Number, set_fields, whole
from lapwing.core.losses import Pure, checked_epsilon
from lapwing.errors import BadParameter
from lapwing.survey.randomizers.masks import (
    contains_option,
    count_options,
    decode_masks,
    mask_size,
    random_masks,
    set_option,
    set_sizes,
)
from lapwing.survey.randomizers.randomizer import (
    ODDS,
    WORD,
    Recipe,
    ShareEstimator,
    checked_answer,
    checked_answers,
    checked_stated_epsilon,
    greatest_favoured,
    loss_of_ratio,
    row_of,
    two_level_ratio,
)

MOST_BIT_OPTIONS = 62  # an answer is a whole number of so many bits


@dataclass(frozen=True, slots=True)
class BitwiseResponse(ShareEstimator):
    """One binary randomized response per option. An answer is a set: the sum of 2^j over its options j.

    Claim    the ratio is (T / (2^48 - T))^m for m options.
    Because  the bits are independent, each has the ratio T / (2^48 - T), and two answers may differ in all.
    Test     tests/survey/randomizers/test_laws.py::test_the_worst_ratio_is_the_claimed_one
    """

    options: int
    favoured: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        set_fields(
            self,
            options=whole(self.options, "options", at_least=1),
            favoured=whole(self.favoured, "favoured", at_least=1),
        )
        if self.options > MOST_BIT_OPTIONS:
            raise BadParameter("options", "must be at most 62 when each is a bit")
        if not ODDS // 2 < self.favoured < ODDS:
            raise BadParameter("favoured", "must be likelier than by chance, and below 2^48")
        set_fields(self, epsilon=checked_stated_epsilon(self.ratio, self.epsilon))

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, options: int) -> BitwiseResponse:
        """Each bit gets an equal part of ε."""
        asked, m = checked_epsilon(epsilon), whole(options, "options", at_least=1)
        return cls(m, greatest_favoured(asked / m, Fraction(1, 2)), asked)

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers: exact."""
        return two_level_ratio(self.favoured, Fraction(1, 2)) ** self.options

    @property
    def loss(self) -> Pure:
        """What a message reveals: the ε that was asked for, or ln(ratio) rounded up."""
        return loss_of_ratio(self.ratio, self.epsilon)

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
        lies = int(set_sizes(true ^ self.decode(row_of(message, self.size)))[0])
        return self.inside ** (self.options - lies) * self.outside**lies

    def counts(self, messages: NDArray[np.uint8]) -> NDArray[np.int64]:
        """How many messages have each option."""
        return count_options(messages, self.options)

    def membership(self, messages: NDArray[np.uint8], answer: int) -> NDArray[np.bool_]:
        """Which messages have this option (an option, not a set)."""
        return contains_option(messages, checked_answer(answer, self.options))


MOST_UNARY_OPTIONS = 1 << 16


@dataclass(frozen=True, slots=True)
class UnaryEncoding(ShareEstimator):
    """Unary encoding: the true option's bit is set with `one` chances in 2^48, all others with `zero`.

    Claim    the ratio is at most one (2^48 - zero) / ((2^48 - one) zero).
    Because  two answers differ in the laws of two bits. One is likelier set by one / zero, the other
             likelier clear by (2^48 - zero) / (2^48 - one); the bits are independent.
    Test     tests/survey/randomizers/test_laws.py::test_the_worst_ratio_is_the_claimed_one

    With one = 2^47 (a fair coin) the variance is least: optimized unary encoding.
    """

    options: int
    one: int
    zero: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        set_fields(
            self,
            options=whole(self.options, "options", at_least=2),
            one=whole(self.one, "one", at_least=1),
            zero=whole(self.zero, "zero", at_least=1),
        )
        if self.options > MOST_UNARY_OPTIONS:
            raise BadParameter("options", "must be at most 65,536: a message has a bit for each")
        if not self.zero < self.one < ODDS:
            raise BadParameter("one", "must be above zero and below 2^48")
        set_fields(self, epsilon=checked_stated_epsilon(self.ratio, self.epsilon))

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, options: int) -> UnaryEncoding:
        """A fair coin for the true option; the others are as rarely set as ε allows."""
        asked = checked_epsilon(epsilon)
        # (2^48 - zero) / zero <= e^ε, so 2^48 - zero is what binary randomized response favours.
        return cls(options, ODDS // 2, ODDS - greatest_favoured(asked, Fraction(1, 2)), asked)

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers: exact."""
        return Fraction(self.one * (ODDS - self.zero), (ODDS - self.one) * self.zero)

    @property
    def loss(self) -> Pure:
        """What a message reveals: the ε that was asked for, or ln(ratio) rounded up."""
        return loss_of_ratio(self.ratio, self.epsilon)

    @property
    def inputs(self) -> int:
        """As many answers as options."""
        return self.options

    @property
    def size(self) -> int:
        """One bit per option."""
        return mask_size(self.options)

    @property
    def inside(self) -> Fraction:
        """P[the bit of the option that is held]."""
        return Fraction(self.one, ODDS)

    @property
    def outside(self) -> Fraction:
        """P[the bit of any other option]."""
        return Fraction(self.zero, ODDS)

    def recipe(self) -> Recipe:
        """For devices."""
        return {"kind": "unary", "options": self.options, "one": self.one, "zero": self.zero}

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """One set of bits per answer, packed."""
        true = checked_answers(answers, self.options)
        masks = random_masks(self.zero, len(true), self.options)
        set_option(masks, true, noise.bernoulli(self.inside, len(true)))
        return masks

    def encode(self, messages: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Messages are packed already."""
        return messages

    def decode(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Any bits, as many as there are options."""
        return decode_masks(rows, self.options)

    def probability(self, answer: int, message: bytes) -> Fraction:
        """The product over all bits."""
        true = checked_answer(answer, self.options)
        sent = self.decode(row_of(message, self.size))
        told = bool(contains_option(sent, true)[0])
        others = int(set_sizes(sent)[0]) - told
        own = self.inside if told else 1 - self.inside
        return own * self.outside**others * (1 - self.outside) ** (self.options - 1 - others)

    def counts(self, messages: NDArray[np.uint8]) -> NDArray[np.int64]:
        """How many messages have each bit."""
        return count_options(messages, self.options)

    def membership(self, messages: NDArray[np.uint8], answer: int) -> NDArray[np.bool_]:
        """Which messages have this option's bit."""
        return contains_option(messages, checked_answer(answer, self.options))
