"""One of several options: the truth with a fixed probability, else one of the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.exact import Number, Real, set_fields, whole
from lapwing.core.exact_sampling import Inversion, rational
from lapwing.core.losses import checked_epsilon
from lapwing.errors import BadParameter
from lapwing.survey.randomizers.randomizer import (
    NOISE_STREAM,
    ODDS,
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

MOST_OPTIONS = 1 << 31
CHUNK = 1 << 16
MOST_TABLE_OPTIONS = 1 << 11  # up to so many options have a table
LEAST_TABLE_ANSWERS = 1 << 12  # answers


@dataclass(frozen=True, slots=True)
class KaryResponse(TwoLevel, ShareEstimator):
    """k-ary randomized response: the truth with T chances in 2^48, else one of the others, all alike.

    Claim    two_level: the ratio is T (k - 1) / (2^48 - T).
    Because  A(v) is the option v itself, out of k messages.
    Test     tests/survey/randomizers/test_laws.py::test_the_worst_ratio_is_the_claimed_one
    """

    options: int
    favoured: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        set_fields(self, options=whole(self.options, "options", at_least=2))
        if self.options > MOST_OPTIONS:
            raise BadParameter("options", "must be at most 2^31")
        self._settle_odds()

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, options: int) -> KaryResponse:
        """The most truthful one within ε."""
        asked, k = checked_epsilon(epsilon), whole(options, "options", at_least=2)
        return cls(k, greatest_favoured(asked, Fraction(1, k)), asked)

    @classmethod
    def two_coins(cls) -> KaryResponse:
        """Heads: the truth. Tails: a second coin answers yes or no. So 3/4 truth, ε = ln 3."""
        return cls(2, 3 * ODDS // 4)

    @property
    def inputs(self) -> int:
        """As many answers as options."""
        return self.options

    @property
    def share(self) -> Fraction:
        """One message of k."""
        return Fraction(1, self.options)

    @property
    def size(self) -> int:
        """The number of the option."""
        return index_size(self.options)

    @property
    def inside(self) -> Fraction:
        """P[the option that is held]."""
        return self.truth

    @property
    def outside(self) -> Fraction:
        """P[any one other option]."""
        return (1 - self.truth) / (self.options - 1)

    def recipe(self) -> Recipe:
        """For devices."""
        return {"kind": "choice", "options": self.options, "favoured": self.favoured}

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.int64]:
        """One option per answer."""
        true = checked_answers(answers, self.options)
        if self.options > MOST_TABLE_OPTIONS or len(true) < LEAST_TABLE_ANSWERS:
            told = noise.bernoulli(self.truth, len(true))
            moved = np.where(told, 0, noise.uniform_int(1, self.options, len(true)))
            return (true + moved) % self.options
        sent = np.empty(len(true), dtype=np.int64)
        table = _steps(self.options, self.favoured)
        for start in range(0, len(true), CHUNK):
            part = sent[start : start + CHUNK]
            np.add(true[start : start + CHUNK], table.draw_guided(NOISE_STREAM, len(part)), out=part)
            np.subtract(part, self.options, out=part, where=part >= self.options)
        return sent

    def encode(self, messages: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The option's number."""
        return encode_index(messages, self.size)

    def decode(self, rows: NDArray[np.uint8]) -> NDArray[np.int64]:
        """An option."""
        return decode_index(rows, self.options)

    def probability(self, answer: int, message: bytes) -> Fraction:
        """`inside` for the answer, `outside` for every other."""
        true = checked_answer(answer, self.options)
        sent = int(self.decode(row_of(message, self.size))[0])
        return self.inside if sent == true else self.outside

    def counts(self, messages: NDArray[np.int64]) -> NDArray[np.int64]:
        """How often each option was sent."""
        return np.bincount(messages, minlength=self.options).astype(np.int64, copy=False)

    def membership(self, messages: NDArray[np.int64], answer: int) -> NDArray[np.bool_]:
        """Which messages are this option."""
        chosen: NDArray[np.bool_] = messages == checked_answer(answer, self.options)
        return chosen


@lru_cache(maxsize=32)
def _steps(options: int, favoured: int) -> Inversion:
    """How far the message lies from the answer, going round: 0 with T / 2^48, else all alike."""
    total = ODDS * (options - 1)

    def cdf(step: int) -> Real:
        return rational(Fraction(favoured * (options - 1) + step * (ODDS - favoured), total))

    return Inversion(cdf, options)
