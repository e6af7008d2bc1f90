"""What every randomizer promises: one whole-number answer in, one message of a fixed size out.

All coins are whole numbers: "true with T chances in 2^48", and "uniform below N". So a device can throw
them exactly, and what a message reveals follows from the whole numbers of the recipe alone.

Messages in memory are arrays, one row a message: numbers (`int64`) or, where a message is a set, packed
bits (`uint8`, option j is bit j % 8 of byte j // 8). On the wire every message has `size` bytes.

The one proof behind almost every randomizer here.

Every answer v favours a set A(v) of messages, all of one size |A|, out of |Y| messages. With T chances in
2^48 a uniform message of A(v) is sent, else a uniform one of the rest.

Claim    a message is at most T (|Y| - |A|) / ((2^48 - T) |A|) times likelier for one answer than another.
Because  any message has one of two probabilities, T / (2^48 |A|) or (2^48 - T) / (2^48 (|Y| - |A|)),
         whatever the answer; the first is the greater; the claim is their ratio.
Test     tests/survey/randomizers/test_laws.py::test_the_worst_ratio_is_the_claimed_one

T is the greatest whole number for which that ratio is at most e^ε: proven by balls, never by floats.

What all randomizers that estimate shares have in common: the estimate's variance.

Numbers 0 .. steps: what the randomizers of numbers share.

Answers and messages at the door: checked, and packed into bytes. No error shows a value.

The stream that tables draw from: `noise.random_bytes`, so that there is still only one door.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.exact import Number, ball, log_up, lower, precision, set_fields, whole
from lapwing.core.losses import Pure, checked_epsilon
from lapwing.core.random_stream import RandomStream
from lapwing.errors import BadParameter, BadValue

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
class FrequencyOracle(Randomizer, Protocol):
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
class NumericRandomizer(Randomizer, Protocol):
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


ODDS = 1 << 48
_START_PRECISION, _MOST_PRECISION = 192, 1 << 14


def ratio_is_within(ratio: Fraction, epsilon: Fraction) -> bool:
    """Whether ratio <= e^epsilon. (Equal only for epsilon = 0: e to a rational power is not rational.)"""
    bits = _START_PRECISION
    while bits <= _MOST_PRECISION:
        with precision(bits):
            most, found = ball(epsilon).exp(), ball(ratio)
            if found <= most:
                return True
            if found > most:
                return False
        bits *= 2
    return False  # closer than 16,000 bits can tell: the safe answer


def two_level_ratio(favoured: int, share: Fraction) -> Fraction:
    """The claimed ratio, where share = |A| / |Y|."""
    return favoured * (1 - share) / ((ODDS - favoured) * share)


def greatest_favoured(epsilon: Fraction, share: Fraction) -> int:
    """The greatest T with a ratio of at most e^epsilon, where share = |A| / |Y|."""
    with precision(_START_PRECISION):
        odds = ball(1 / share - 1) * ball(-epsilon).exp()
        favoured = min(int(lower(ODDS / (1 + odds))), ODDS - 1)
    while favoured + 1 < ODDS and ratio_is_within(two_level_ratio(favoured + 1, share), epsilon):
        favoured += 1
    if favoured <= share * ODDS:
        raise BadParameter("epsilon", "is so small here that coins of 48 bits cannot favour any message")
    return favoured


def loss_of_ratio(ratio: Fraction, epsilon: Fraction | None) -> Pure:
    """The loss of a greatest ratio: what was asked for, if that was said and holds, else ln of it."""
    if epsilon is None:
        return Pure(log_up(ratio))
    return Pure(epsilon)


def checked_stated_epsilon(ratio: Fraction, epsilon: Number | None) -> Fraction | None:
    """ε as it was asked for, or None. It must not be below what the coins really cost."""
    if epsilon is None:
        return None
    stated = checked_epsilon(epsilon)
    if not ratio_is_within(ratio, stated):
        raise BadParameter("epsilon", "is below what these coins cost")
    return stated


class TwoLevel(ABC):
    """What the randomizers with two levels share: the odds, the check of them, and the loss.

    `epsilon` is what was asked for. It is no part of a recipe: a device computes the loss from T.
    """

    __slots__ = ()
    favoured: int
    epsilon: Fraction | None

    @property
    @abstractmethod
    def share(self) -> Fraction:
        """|A| / |Y|."""

    def _settle_odds(self) -> None:
        """Check T and ε, once the sizes are known to be good."""
        set_fields(self, favoured=whole(self.favoured, "favoured", at_least=1))
        if not self.share * ODDS < self.favoured < ODDS:
            raise BadParameter("favoured", "must be likelier than by chance, and below 2^48")
        set_fields(self, epsilon=checked_stated_epsilon(self.ratio, self.epsilon))

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers: exact."""
        return two_level_ratio(self.favoured, self.share)

    @property
    def loss(self) -> Pure:
        """What a message reveals: the ε that was asked for, or ln(ratio) rounded up."""
        return loss_of_ratio(self.ratio, self.epsilon)

    @property
    def truth(self) -> Fraction:
        """The probability of a favoured message."""
        return Fraction(self.favoured, ODDS)

    @property
    def likely(self) -> Fraction:
        """The probability of each favoured message, times |Y|."""
        return self.truth / self.share

    @property
    def unlikely(self) -> Fraction:
        """The probability of each other message, times |Y|."""
        return (1 - self.truth) / (1 - self.share)


WORD = 8  # bytes of a number in memory
MOST_MESSAGES = 1 << 62  # so that numbers of messages add up inside 64 bits


def checked_answers(answers: NDArray[np.int64] | Sequence[int], inputs: int) -> NDArray[np.int64]:
    """Whole numbers in 0 .. inputs - 1, one row each."""
    array = np.asarray(answers)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise BadValue("answers must be whole numbers in one dimension")
    if array.size and (array.min() < 0 or array.max() >= inputs):
        raise BadValue(f"answers must lie in 0 .. {inputs - 1}")
    return array.astype(np.int64, copy=False)


def checked_answer(answer: int, inputs: int) -> int:
    """One answer."""
    return int(checked_answers(np.array([answer]), inputs)[0])


def checked_rows(rows: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Bytes as they came, of shape (n, size)."""
    if (
        not isinstance(rows, np.ndarray)
        or rows.dtype != np.uint8
        or rows.ndim != 2
        or rows.shape[1] != size
    ):
        raise BadValue(f"messages must be of {size} bytes each")
    return np.ascontiguousarray(rows)


def row_of(message: bytes, size: int) -> NDArray[np.uint8]:
    """One message as an array of one row."""
    return checked_rows(np.frombuffer(message, dtype=np.uint8)[np.newaxis], size)


def index_size(messages: int) -> int:
    """Bytes for the numbers 0 .. messages - 1: at least one."""
    return max(1, -(-(messages - 1).bit_length() // 8))


def encode_index(messages: NDArray[Any], size: int) -> NDArray[np.uint8]:
    """Numbers, big endian, in `size` bytes each."""
    if size == 1:
        return messages.astype(np.uint8)[:, np.newaxis]
    wide = messages.astype(">u8").view(np.uint8).reshape(-1, WORD)
    return np.ascontiguousarray(wide[:, WORD - size :])


def decode_index(rows: NDArray[np.uint8], messages: int) -> NDArray[np.int64]:
    """Numbers below `messages`, or `BadValue`."""
    size = index_size(messages)
    sent = checked_rows(rows, size)
    if size == 1:
        numbers = sent[:, 0].astype(np.int64)
    else:
        wide = np.zeros((len(sent), WORD), dtype=np.uint8)
        wide[:, WORD - size :] = sent
        numbers = wide.view(">u8")[:, 0].astype(np.uint64).view(np.int64)
    # 2^63 and more is negative as a signed number.
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= messages):
        raise BadValue(f"a message is impossible: its number must lie in 0 .. {messages - 1}")
    return numbers


class ShareEstimator(ABC):
    """share = (counts / n - outside) / (inside - outside), and how far it strays.

    Claim    the share is unbiased; n times its variance is
             (f p (1 - p) + (1 - f) q (1 - q)) / (p - q)^2 with p = inside, q = outside, f = true share.
    Because  a count is a sum of independent coins: n f with chance p, n (1 - f) with chance q.
    Test     tests/survey/randomizers/test_oracles.py::test_shares_are_unbiased_and_vary_as_claimed
    """

    __slots__ = ()
    options: int

    @property
    @abstractmethod
    def inside(self) -> Fraction:
        """P[message in A(v)] of a respondent who holds v."""

    @property
    @abstractmethod
    def outside(self) -> Fraction:
        """P[message in A(v)] of any respondent who does not."""

    @abstractmethod
    def counts(self, messages: NDArray[Any]) -> NDArray[np.int64]:
        """For every option, how many messages speak for it."""

    def counts_of(
        self, messages: NDArray[Any], answers: Sequence[int] | NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The same for these options only."""
        wanted = checked_answers(answers, self.options)
        return self.counts(messages)[wanted]

    def variance(self, share: float) -> float:
        """n times the variance of an estimated share of these n respondents."""
        if not 0 <= share <= 1:
            raise BadParameter("share", "must lie in [0, 1]")
        return share_variance(self.inside, self.outside, share)


def share_variance(inside: Fraction, outside: Fraction, share: float) -> float:
    """The formula of `ShareEstimator`."""
    gap = (inside - outside) ** 2
    held, other = inside * (1 - inside) / gap, outside * (1 - outside) / gap
    return share * float(held) + (1 - share) * float(other)


MOST_STEPS = 1 << 40


class SteppedNumbers(ABC):
    """Answers are 0 .. steps, and steps + 1 for "no answer" where `none` is 1."""

    __slots__ = ()
    steps: int
    none: int

    def _settle_steps(self) -> None:
        set_fields(
            self,
            steps=whole(self.steps, "steps", at_least=1),
            none=whole(int(self.none) if isinstance(self.none, bool) else self.none, "none"),
        )
        if self.steps > MOST_STEPS:
            raise BadParameter("steps", "must be at most 2^40")
        if self.none > 1:
            raise BadParameter("none", "must be 0 or 1")

    @property
    def inputs(self) -> int:
        """Every number, and "no answer" where that is one."""
        return self.steps + 1 + self.none


def quadratic_maximum(square: float, slope: float, level: float, steps: int) -> float:
    """The greatest value of square t^2 + slope t + level over t = 0, 1/steps, .., 1."""
    places = [0, steps]
    if square < 0:
        peak = min(max(-slope / (2 * square), 0.0), 1.0) * steps
        places += [int(peak), min(int(peak) + 1, steps)]
    return max((square * place / steps + slope) * place / steps + level for place in places)


class _NoiseStream(RandomStream):
    """Fresh bytes, each used once."""

    def take(self, size: int) -> bytes:
        return noise.random_bytes(size)


NOISE_STREAM = _NoiseStream()
