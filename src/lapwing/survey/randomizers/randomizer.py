"""What every randomizer promises: one whole-number answer in, one message of a fixed size out.

All coins are whole numbers: "true with T chances in 2^48", and "uniform below N". So a device can throw
them exactly, and what a message reveals follows from the whole numbers of the recipe alone.

Messages in memory are arrays, one row a message: numbers (`int64`) or, where a message is a set, packed
bits (`uint8`, option j is bit j % 8 of byte j // 8). On the wire every message has `size` bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lapwing.privacy import Pure

Messages = NDArray[Any]
Recipe = dict[str, Any]


@runtime_checkable
class Randomizer(Protocol):
    """Turns an answer 0 .. inputs - 1 into a message. `loss` is of replacing the answer by any other."""

    @property
    def inputs(self) -> int:
        """How many answers there are."""

    @property
    def size(self) -> int:
        """Bytes of a message on the wire, the same for every message."""

    @property
    def loss(self) -> Pure:
        """What a message reveals at most."""

    def recipe(self) -> Recipe:
        """All that a device needs, as JSON."""

    def sample(self, answers: NDArray[np.int64]) -> Messages:
        """One message per answer, with exactly the law of the recipe: for simulation."""

    def encode(self, messages: Messages) -> NDArray[np.uint8]:
        """Messages as they are sent: an array of shape (n, size)."""

    def decode(self, rows: NDArray[np.uint8]) -> Messages:
        """What was sent, checked: `BadValue` where a message is impossible."""

    def probability(self, answer: int, message: bytes) -> Fraction:
        """The exact probability that this answer is sent as this message."""


@runtime_checkable
class Oracle(Randomizer, Protocol):
    """Estimates shares. Each option v has a set A(v) of messages that speak for it.

    share = (counts / n - outside) / (inside - outside) is unbiased for every option. Options are the
    answers, except for `Bits`, where an answer is a set of options.
    """

    @property
    def options(self) -> int:
        """How many options are counted."""

    @property
    def inside(self) -> Fraction:
        """P[message in A(v)] of a respondent who holds v."""

    @property
    def outside(self) -> Fraction:
        """P[message in A(v)] of any respondent who does not."""

    def counts(self, messages: Messages) -> NDArray[np.int64]:
        """For every option, how many messages speak for it."""

    def counts_of(
        self, messages: Messages, answers: Sequence[int] | NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The same for these options only."""

    def membership(self, messages: Messages, answer: int) -> NDArray[np.bool_]:
        """Which messages speak for this option."""

    def variance(self, share: float) -> float:
        """n times the variance of an estimated share of these n respondents.

        For the population that they were drawn from, share (1 - share) is added.
        """


@runtime_checkable
class Numeric(Randomizer, Protocol):
    """Estimates a mean. Answers are 0 .. steps, and steps + 1 for "no answer" where `none` is 1."""

    @property
    def steps(self) -> int:
        """The greatest number; it scores 1."""

    @property
    def none(self) -> int:
        """1 where "no answer" is one of the answers, else 0."""

    def scores(self, messages: Messages) -> NDArray[np.float64]:
        """One number per message. Its expectation is answer / steps, and 0 for "no answer"."""

    def answered(self, messages: Messages) -> NDArray[np.float64]:
        """One number per message. Its expectation is 1, and 0 for "no answer"."""

    def worst_variance(self) -> float:
        """The greatest variance of a score, over all answers."""
