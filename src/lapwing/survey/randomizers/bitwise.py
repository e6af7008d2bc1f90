"""Randomizers with a coin for each option: `BitwiseResponse` for sets, `UnaryEncoding` for one option."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.exact import Number, whole
from lapwing.core.losses import checked_epsilon
from lapwing.errors import BadParameter
from lapwing.survey.randomizers.masks import (
    MaskMessages,
    contains_option,
    random_masks,
    set_option,
    set_sizes,
)
from lapwing.survey.randomizers.randomizer import (
    ODDS,
    checked_answer,
    checked_answers,
    greatest_favoured,
    row_of,
    two_level_ratio,
)

MOST_BIT_OPTIONS = 62  # an answer is a whole number with a bit for each option
MOST_UNARY_OPTIONS = 1 << 16
HALF = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class BitwiseResponse(MaskMessages):
    """One binary randomized response per option. An answer is a set: the sum of 2^j over its options j.

    Claim    the ratio is (T / (2^48 - T))^m for m options.
    Because  the bits are independent, each has the ratio T / (2^48 - T), and two answers may differ in all.
    Test     tests/survey/randomizers/test_randomizers_laws.py::test_the_worst_ratio_is_the_claimed_one
    """

    kind: ClassVar[str] = "bits"
    options: int
    favoured: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._settle(options=1, favoured=1)
        if self.options > MOST_BIT_OPTIONS:
            raise BadParameter("options", "must be at most 62 when each is a bit")
        if not ODDS // 2 < self.favoured < ODDS:
            raise BadParameter("favoured", "must be likelier than by chance, and below 2^48")
        self._settle_epsilon()

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, options: int) -> BitwiseResponse:
        """Make one that gives each bit an equal part of ε."""
        asked, m = checked_epsilon(epsilon), whole(options, "options", at_least=1)
        return cls(m, greatest_favoured(asked / m, HALF), asked)

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers: exact."""
        return two_level_ratio(self.favoured, HALF) ** self.options

    @property
    def inputs(self) -> int:
        """The number of sets of options."""
        return 1 << self.options

    @property
    def inside(self) -> Fraction:
        """The probability that the bit of an option in the set is set."""
        return Fraction(self.favoured, ODDS)

    @property
    def outside(self) -> Fraction:
        """The probability that the bit of an option outside the set is set."""
        return 1 - self.inside

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Draw one packed set of bits for each answer."""
        flipped = random_masks(ODDS - self.favoured, len(answers), self.options)
        return flipped ^ self._packed(checked_answers(answers, self.inputs))

    def _packed(self, answers: NDArray[np.int64]) -> NDArray[np.uint8]:
        wide = answers.astype("<u8").view(np.uint8).reshape(-1, 8)
        return np.ascontiguousarray(wide[:, : self.size])

    def probability(self, answer: int, message: bytes) -> Fraction:
        """Return the product over all bits."""
        true = self._packed(np.array([checked_answer(answer, self.inputs)]))
        flipped = int(set_sizes(true ^ self.decode(row_of(message, self.size)))[0])
        return self.inside ** (self.options - flipped) * self.outside**flipped


@dataclass(frozen=True, slots=True)
class UnaryEncoding(MaskMessages):
    """Unary encoding: the true option's bit is set with `one` chances in 2^48, all others with `zero`.

    Claim    the ratio is at most one (2^48 - zero) / ((2^48 - one) zero).
    Because  two answers differ in the laws of two bits. One is likelier set by one / zero, the other
             likelier clear by (2^48 - zero) / (2^48 - one); the bits are independent.
    Test     tests/survey/randomizers/test_randomizers_laws.py::test_the_worst_ratio_is_the_claimed_one

    With one = 2^47 (a fair coin) the variance is least: optimized unary encoding.
    """

    kind: ClassVar[str] = "unary"
    options: int
    one: int
    zero: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._settle(options=2, one=1, zero=1)
        if self.options > MOST_UNARY_OPTIONS:
            raise BadParameter("options", "must be at most 65,536: a message has a bit for each")
        if not self.zero < self.one < ODDS:
            raise BadParameter("one", "must be above zero and below 2^48")
        self._settle_epsilon()

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, options: int) -> UnaryEncoding:
        """Make one with a fair coin for the true option, and the others as rarely set as ε allows."""
        asked = checked_epsilon(epsilon)
        # (2^48 - zero) / zero <= e^ε, so 2^48 - zero is what binary randomized response favours.
        return cls(options, ODDS // 2, ODDS - greatest_favoured(asked, HALF), asked)

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers: exact."""
        return Fraction(self.one * (ODDS - self.zero), (ODDS - self.one) * self.zero)

    @property
    def inside(self) -> Fraction:
        """The probability that the bit of the true option is set."""
        return Fraction(self.one, ODDS)

    @property
    def outside(self) -> Fraction:
        """The probability that the bit of any other option is set."""
        return Fraction(self.zero, ODDS)

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Draw one packed set of bits for each answer."""
        true = checked_answers(answers, self.options)
        masks = random_masks(self.zero, len(true), self.options)
        set_option(masks, true, noise.bernoulli(self.inside, len(true)))
        return masks

    def probability(self, answer: int, message: bytes) -> Fraction:
        """Return the product over all bits."""
        true = checked_answer(answer, self.options)
        sent = self.decode(row_of(message, self.size))
        is_set = bool(contains_option(sent, true)[0])
        others = int(set_sizes(sent)[0]) - is_set
        own = self.inside if is_set else 1 - self.inside
        return own * self.outside**others * (1 - self.outside) ** (self.options - 1 - others)
