"""Randomized response: the true option with a fixed probability, else one of the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.exact import Number, Real, whole
from lapwing.core.exact_sampling import Inversion, rational
from lapwing.core.losses import checked_epsilon
from lapwing.errors import BadParameter
from lapwing.survey.randomizers.randomizer import (
    NOISE_STREAM,
    ODDS,
    IndexMessages,
    TwoLevelOracle,
    checked_answer,
    checked_answers,
    greatest_favoured,
)

MOST_OPTIONS = 1 << 31
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
        if self.options > MOST_OPTIONS:
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
