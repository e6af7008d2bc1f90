"""One bit per option, each thrown by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing import noise
from lapwing.errors import BadParameter
from lapwing.exact import Number, settle, whole
from lapwing.privacy import Pure
from lapwing.privacy.loss import checked_epsilon
from lapwing.survey.randomizers.masks import (
    count_options,
    decode_masks,
    has,
    mask_size,
    put,
    random_masks,
    sizes_of,
)
from lapwing.survey.randomizers.oracle import Shares
from lapwing.survey.randomizers.randomizer import Recipe
from lapwing.survey.randomizers.two_level import ODDS, check_stated, favour, loss_within
from lapwing.survey.randomizers.wire import checked_answer, checked_answers, row_of

MOST_OPTIONS = 1 << 16


@dataclass(frozen=True, slots=True)
class Unary(Shares):
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
        settle(
            self,
            options=whole(self.options, "options", at_least=2),
            one=whole(self.one, "one", at_least=1),
            zero=whole(self.zero, "zero", at_least=1),
        )
        if self.options > MOST_OPTIONS:
            raise BadParameter("options", "must be at most 65,536: a message has a bit for each")
        if not self.zero < self.one < ODDS:
            raise BadParameter("one", "must be above zero and below 2^48")
        settle(self, epsilon=check_stated(self.ratio, self.epsilon))

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, options: int) -> Unary:
        """A fair coin for the true option; the others are as rarely set as ε allows."""
        asked = checked_epsilon(epsilon)
        # (2^48 - zero) / zero <= e^ε, so 2^48 - zero is what binary randomized response favours.
        return cls(options, ODDS // 2, ODDS - favour(asked, Fraction(1, 2)), asked)

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers: exact."""
        return Fraction(self.one * (ODDS - self.zero), (ODDS - self.one) * self.zero)

    @property
    def loss(self) -> Pure:
        """What a message reveals: the ε that was asked for, or ln(ratio) rounded up."""
        return loss_within(self.ratio, self.epsilon)

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
        put(masks, true, noise.bernoulli(self.inside, len(true)))
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
        told = bool(has(sent, true)[0])
        others = int(sizes_of(sent)[0]) - told
        own = self.inside if told else 1 - self.inside
        return own * self.outside**others * (1 - self.outside) ** (self.options - 1 - others)

    def counts(self, messages: NDArray[np.uint8]) -> NDArray[np.int64]:
        """How many messages have each bit."""
        return count_options(messages, self.options)

    def membership(self, messages: NDArray[np.uint8], answer: int) -> NDArray[np.bool_]:
        """Which messages have this option's bit."""
        return has(messages, checked_answer(answer, self.options))
