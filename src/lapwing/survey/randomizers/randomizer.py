"""Base classes of all randomizers: one whole-number answer in, one message of a fixed size out.

All coins are whole numbers: "true with T chances in 2^48", and "uniform below N". So a device can draw
them exactly, and the loss of a message follows from the whole numbers of the recipe alone.

Messages in memory are arrays with one row for each message: numbers (`int64`) or, where a message is a set,
packed bits (`uint8`, option j is bit j % 8 of byte j // 8). On the wire every message has `size` bytes.

Almost every randomizer has two levels, and one proof serves them all. Every answer v favours a set A(v) of
messages. All these sets have one size |A|, out of |Y| messages. With T chances in 2^48 a uniform message of
A(v) is sent, else a uniform one of the rest.

Claim    a message is at most T (|Y| - |A|) / ((2^48 - T) |A|) times likelier for one answer than another.
Because  any message has one of two probabilities, T / (2^48 |A|) or (2^48 - T) / (2^48 (|Y| - |A|)),
         whatever the answer; the first is the greater; the claim is their ratio.
Test     tests/survey/randomizers/test_randomizers_laws.py::test_the_worst_ratio_is_the_claimed_one

T is the greatest whole number for which that ratio is at most e^ε. Ball arithmetic proves it, not floats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.chances import percent
from lapwing.core.exact import ball, log_up, lower, precision, set_fields, whole
from lapwing.core.losses import Pure, checked_epsilon
from lapwing.core.random_stream import RandomStream
from lapwing.errors import BadParameter, BadValue
from lapwing.survey.randomize import CoinSource

ODDS = 1 << 48
Messages = NDArray[Any]
Recipe = dict[str, Any]
ScoreVariance = tuple[float, float, float, float]
MOST_STEPS = 1 << 40
MOST_MESSAGES = 1 << 62  # sums of message numbers then fit 64 bits
PAIRS = 1 << 21  # of message and option compared together
_WORD = 8  # bytes of a number in memory
_START_PRECISION, _MOST_PRECISION = 192, 1 << 14


class Randomizer(ABC):
    """A map from an answer 0 .. inputs - 1 to a random message.

    `loss` holds for replacing the answer by any other answer.
    """

    __slots__ = ()
    kind: ClassVar[str]  # of the recipe

    @property
    @abstractmethod
    def inputs(self) -> int:
        """The number of possible answers."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Bytes of a message on the wire, the same for every message."""

    @property
    @abstractmethod
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers: exact."""

    @property
    @abstractmethod
    def loss(self) -> Pure:
        """The privacy loss of one message."""

    @classmethod
    def recipe_names(cls) -> list[str]:
        """Return the names in a recipe of this kind, besides its kind."""
        return [each.name for each in fields(cls) if each.init and each.name != "epsilon"]  # type: ignore[arg-type]

    def recipe(self) -> Recipe:
        """Return everything that a device needs, as JSON: the kind and the whole numbers."""
        return {"kind": self.kind} | {name: _as_json(getattr(self, name)) for name in self.recipe_names()}

    def _settle(self, **least: int) -> None:
        """Check that these fields are whole numbers, each at least as large as given."""
        for name, value in least.items():
            set_fields(self, **{name: whole(getattr(self, name), name, at_least=value)})

    @abstractmethod
    def sample(self, answers: NDArray[np.int64]) -> Messages:
        """Draw one message for each answer, with exactly the law of the recipe. For simulation."""

    @abstractmethod
    def stated_odds(self) -> str:
        """Return the possible messages and their odds, as the public part of a survey states them.

        The text comes from whole numbers. It belongs to the survey's digest, so it never changes.
        """

    def randomize(self, answer: int, source: CoinSource) -> bytes:
        """Draw the message for an answer, as a device does. All messages of a randomizer have one size.

        Raises `BadValue` if the answer is not a possible one.
        """
        if isinstance(answer, bool) or not isinstance(answer, int) or not 0 <= answer < self.inputs:
            raise BadValue("an answer must be a whole number that this question knows")
        sent = self.draw(answer, source)
        return sent if isinstance(sent, bytes) else sent.to_bytes(self.size, "big")

    @abstractmethod
    def draw(self, answer: int, source: CoinSource) -> int | bytes:
        """Draw the message for a possible answer: bytes, or a number that is sent big endian."""

    @abstractmethod
    def encode(self, messages: Messages) -> NDArray[np.uint8]:
        """Return messages as they are sent: an array of shape (n, size)."""

    @abstractmethod
    def decode(self, rows: NDArray[np.uint8]) -> Messages:
        """Return the messages of received bytes. Raise `BadValue` if a message is impossible."""

    @abstractmethod
    def probability(self, answer: int, message: bytes) -> Fraction:
        """Return the exact probability that this answer is sent as this message."""


def _as_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_as_json(each) for each in value]
    return value.recipe() if isinstance(value, Randomizer) else value


class PartedRandomizer(Randomizer):
    """A randomizer that draws one of several others by chance. The first byte of a message says which one.

    Messages in memory are the rows that are sent.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def parts(self) -> Mapping[int, Randomizer]:
        """The randomizers that can be drawn, by the first byte of their messages."""

    @abstractmethod
    def chance(self, first: int) -> Fraction:
        """Return the probability that this part is drawn."""

    @abstractmethod
    def _draw_part(self, source: CoinSource) -> int:
        """Draw the first byte of a message on a device."""

    @abstractmethod
    def _draw_parts(self, count: int) -> NDArray[Any]:
        """Draw the first bytes of messages."""

    def part_answers(self, answers: NDArray[np.int64], first: int) -> NDArray[np.int64]:
        """Return the answers that a part gets: the same ones, unless it gets less of them."""
        del first
        return answers

    @property
    def size(self) -> int:
        """The bytes of the part's number and the longest message."""
        return 1 + max(part.size for part in self.parts.values())

    def draw(self, answer: int, source: CoinSource) -> bytes:
        """Draw the part, then its message."""
        first = self._draw_part(source)
        [true] = self.part_answers(np.array([answer]), first).tolist()
        return (bytes([first]) + self.parts[first].randomize(true, source)).ljust(self.size, b"\0")

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Draw one row for each answer."""
        true = checked_answers(answers, self.inputs)
        rows = np.zeros((len(true), self.size), dtype=np.uint8)
        rows[:, 0] = self._draw_parts(len(true))
        for first, part in self.parts.items():
            mine = rows[:, 0] == first
            sent = part.sample(self.part_answers(true[mine], first))
            rows[mine, 1 : 1 + part.size] = part.encode(sent)
        return rows

    def probability(self, answer: int, message: bytes) -> Fraction:
        """Return the part's chance times the message's."""
        first = int(self.decode(row_of(message, self.size))[0, 0])
        part = self.parts[first]
        [true] = self.part_answers(np.array([checked_answer(answer, self.inputs)]), first).tolist()
        return self.chance(first) * part.probability(true, message[1 : 1 + part.size])

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers: exact."""
        return max(part.ratio for part in self.parts.values())

    @property
    def loss(self) -> Pure:
        """The greatest loss of the parts."""
        return max((part.loss for part in self.parts.values()), key=lambda loss: loss.epsilon)

    def encode(self, messages: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return messages unchanged: they are rows already."""
        return messages

    def decode(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return received rows. Raise `BadValue` if one is impossible."""
        sent = checked_rows(rows, self.size)
        if not np.isin(sent[:, 0], list(self.parts)).all():
            raise BadValue("a message is impossible: it must begin with a part that is used")
        for first, part in self.parts.items():
            self.messages_of(sent, first)
            if sent[sent[:, 0] == first, 1 + part.size :].any():
                raise BadValue("a message is impossible: it is longer than its part")
        return sent

    def messages_of(self, rows: NDArray[np.uint8], first: int) -> Messages:
        """Return the messages of one part, decoded by it."""
        part = self.parts[first]
        return part.decode(rows[rows[:, 0] == first, 1 : 1 + part.size])


class StatedRandomizer(Randomizer):
    """A randomizer that may state its ε.

    `epsilon` is the ε that was asked for, or None. It is no part of a recipe: a device computes the loss
    from the coins.
    """

    __slots__ = ()
    epsilon: Fraction | None

    @property
    def loss(self) -> Pure:
        """The ε that was asked for, or ln(ratio) rounded up."""
        return Pure(log_up(self.ratio) if self.epsilon is None else self.epsilon)

    def _settle_epsilon(self) -> None:
        """Check ε, if it is stated. Raise `BadParameter` if the coins cost more."""
        if self.epsilon is not None:
            set_fields(self, epsilon=checked_epsilon(self.epsilon))
            if not ratio_is_within(self.ratio, self.epsilon):
                raise BadParameter("epsilon", "is below what these coins cost")


class FrequencyOracle(StatedRandomizer):
    """A randomizer from whose messages the share of every option is estimated.

    Each option v has a set A(v) of messages that support it. Options are the answers, except for
    `BitwiseResponse`, where an answer is a set of options. The estimate is
    share = (counts / n - outside) / (inside - outside).

    Claim    the share is unbiased; n times its variance is
             (f p (1 - p) + (1 - f) q (1 - q)) / (p - q)^2 with p = inside, q = outside, f = true share.
    Because  a count is a sum of independent coins: n f with chance p, n (1 - f) with chance q.
    Test     survey/randomizers/test_randomizers_oracles.py::test_shares_are_unbiased_and_vary_as_claimed
    """

    __slots__ = ()
    options: int

    @property
    def inputs(self) -> int:
        """The number of possible answers: one for each option."""
        return self.options

    @property
    @abstractmethod
    def inside(self) -> Fraction:
        """The probability of a message in A(v), for a respondent who holds v."""

    @property
    @abstractmethod
    def outside(self) -> Fraction:
        """The probability of a message in A(v), for a respondent who does not hold v."""

    def stated_odds(self) -> str:
        """Return the odds of a code number that supports many options."""
        return (
            "Your device sends a code number, which stands for many options at once. It stands for your "
            f"own answer with a chance of {percent(self.inside)}, for any other one with "
            f"{percent(self.outside)}."
        )

    @abstractmethod
    def counts(self, messages: Messages) -> NDArray[np.int64]:
        """Count the messages that support each option."""

    def counts_of(
        self, messages: Messages, answers: Sequence[int] | NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Count the messages that support each of these options."""
        return self.counts(messages)[checked_answers(answers, self.options)]

    @abstractmethod
    def membership(self, messages: Messages, answer: int) -> NDArray[np.bool_]:
        """Return for each message whether it supports this option."""

    def variance(self, share: float) -> float:
        """Return n times the variance of an estimated share among these n respondents.

        For the population that they were drawn from, add share (1 - share).
        """
        if not 0 <= share <= 1:
            raise BadParameter("share", "must lie in [0, 1]")
        inside, outside = self.inside, self.outside
        gap = (inside - outside) ** 2
        held, other = inside * (1 - inside) / gap, outside * (1 - outside) / gap
        return share * float(held) + (1 - share) * float(other)


class NumericRandomizer(Randomizer):
    """A randomizer from whose messages a mean is estimated.

    Answers are 0 .. steps, and steps + 1 for "no answer" where `none` is 1.
    """

    __slots__ = ()
    steps: int
    none: int

    def _settle_steps(self) -> None:
        if isinstance(self.none, bool):
            set_fields(self, none=int(self.none))
        self._settle(steps=1, none=0)
        if self.steps > MOST_STEPS:
            raise BadParameter("steps", "must be at most 2^40")
        if self.none > 1:
            raise BadParameter("none", "must be 0 or 1")

    @property
    def inputs(self) -> int:
        """The number of possible answers, "no answer" included where it is one."""
        return self.steps + 1 + self.none

    @abstractmethod
    def scores(self, messages: Messages) -> NDArray[np.float64]:
        """Return one number per message. Its expectation is answer / steps, and 0 for "no answer"."""

    @abstractmethod
    def answered(self, messages: Messages) -> NDArray[np.float64]:
        """Return one number per message. Its expectation is 1, and 0 for "no answer"."""

    @abstractmethod
    def spread(self) -> ScoreVariance:
        """Return the variance of a score: square, slope, level, and that of "no answer".

        Var[score | x] = square t^2 + slope t + level with t = x / steps.
        """

    def worst_variance(self) -> float:
        """Return the greatest variance of a score, over all answers."""
        return worst_score_variance(self.spread(), self.steps, self.none)


def worst_score_variance(spread: ScoreVariance, steps: int, none: int) -> float:
    """Return the greatest of square t^2 + slope t + level over t = 0, 1/steps, .., 1, and "no answer"."""
    square, slope, level, silent = spread
    places = [0, steps]
    if square < 0:
        peak = min(max(-slope / (2 * square), 0.0), 1.0) * steps
        places += [int(peak), min(int(peak) + 1, steps)]
    answered = max((square * place / steps + slope) * place / steps + level for place in places)
    return max(answered, silent * none)


class TwoLevel(StatedRandomizer):
    """The odds of a randomizer with two levels, and their check. The module's text has the proof."""

    __slots__ = ()
    favoured: int  # T

    @property
    @abstractmethod
    def share(self) -> Fraction:
        """|A| / |Y|."""

    @property
    @abstractmethod
    def both(self) -> Fraction:
        """The share of all messages that two answers both favour: for no two of them less."""

    @property
    @abstractmethod
    def messages(self) -> int:
        """|Y|, the number of possible messages."""

    def _settle_odds(self) -> None:
        """Check T and ε. The sizes must have been checked before."""
        self._settle(favoured=1)
        if not self.share * ODDS < self.favoured < ODDS:
            raise BadParameter("favoured", "must be likelier than by chance, and below 2^48")
        self._settle_epsilon()

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers: exact."""
        return two_level_ratio(self.favoured, self.share)

    @property
    def truth(self) -> Fraction:
        """The probability that the message is a favoured one."""
        return Fraction(self.favoured, ODDS)

    @property
    def likely(self) -> Fraction:
        """The probability of each favoured message, times |Y|."""
        return self.truth / self.share

    @property
    def unlikely(self) -> Fraction:
        """The probability of each other message, times |Y|."""
        return (1 - self.truth) / (1 - self.share)


class TwoLevelOracle(TwoLevel, FrequencyOracle):
    """A frequency oracle with two levels: a message supports the options that favour it.

    Any two options both favour the same share of all messages, exactly `both`.
    """

    __slots__ = ()

    @property
    def inside(self) -> Fraction:
        """The probability that the message supports the option that is held."""
        return self.truth

    @property
    def outside(self) -> Fraction:
        """The probability that the message supports any one other option."""
        return self.likely * self.both + self.unlikely * (self.share - self.both)

    def probability(self, answer: int, message: bytes) -> Fraction:
        """Return one of two levels: the message supports the answer, or it does not."""
        sent = self.decode(row_of(message, self.size))
        return (self.likely if self.membership(sent, answer)[0] else self.unlikely) / self.messages


class IndexMessages(TwoLevel):
    """A randomizer whose message is a number 0 .. messages - 1, sent big endian."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """The bytes of the greatest number: at least one."""
        return max(1, -(-(self.messages - 1).bit_length() // 8))

    def encode(self, messages: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the numbers as rows of `size` bytes."""
        if self.size == 1:
            return messages.astype(np.uint8)[:, np.newaxis]
        wide = messages.astype(">u8").view(np.uint8).reshape(-1, _WORD)
        return np.ascontiguousarray(wide[:, _WORD - self.size :])

    def decode(self, rows: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the numbers of rows. Raise `BadValue` unless all are below `messages`."""
        sent = checked_rows(rows, self.size)
        if self.size == 1:
            numbers = sent[:, 0].astype(np.int64)
        else:
            wide = np.zeros((len(sent), _WORD), dtype=np.uint8)
            wide[:, _WORD - self.size :] = sent
            numbers = wide.view(">u8")[:, 0].astype(np.uint64).view(np.int64)
        # 2^63 and more is negative as a signed number.
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= self.messages):
            raise BadValue(f"a message is impossible: its number must lie in 0 .. {self.messages - 1}")
        return numbers


def ratio_is_within(ratio: Fraction, epsilon: Fraction) -> bool:
    """Return whether ratio <= e^epsilon.

    They are equal only for epsilon = 0, since e to another rational power is not rational.
    """
    bits = _START_PRECISION
    while bits <= _MOST_PRECISION:
        with precision(bits):
            most, exact = ball(epsilon).exp(), ball(ratio)
            if exact <= most:
                return True
            if exact > most:
                return False
        bits *= 2
    return False  # closer than 16,000 bits can tell: the safe answer


def two_level_ratio(favoured: int, share: Fraction) -> Fraction:
    """Return the claimed ratio of T = `favoured`, where share = |A| / |Y|."""
    return favoured * (1 - share) / ((ODDS - favoured) * share)


def greatest_favoured(epsilon: Fraction, share: Fraction) -> int:
    """Return the greatest T with a ratio of at most e^epsilon, where share = |A| / |Y|."""
    with precision(_START_PRECISION):
        odds = ball(1 / share - 1) * ball(-epsilon).exp()
        favoured = min(int(lower(ODDS / (1 + odds))), ODDS - 1)
    while favoured + 1 < ODDS and ratio_is_within(two_level_ratio(favoured + 1, share), epsilon):
        favoured += 1
    if favoured <= share * ODDS:
        raise BadParameter("epsilon", "is so small here that coins of 48 bits cannot favour any message")
    return favoured


def count_in_blocks(
    options: NDArray[np.int64],
    weights: NDArray[np.int64],
    supported: Callable[[NDArray[np.int64]], NDArray[np.bool_]],
) -> NDArray[np.int64]:
    """Count the messages that support each option.

    `weights` say how often each distinct message came; `supported` compares some options with all of them.
    """
    counted = np.zeros(len(options), dtype=np.int64)
    step = max(1, PAIRS // max(len(weights), 1))
    for start in range(0, len(options), step):
        counted[start : start + step] = supported(options[start : start + step]) @ weights
    return counted


def checked_answers(answers: NDArray[np.int64] | Sequence[int], inputs: int) -> NDArray[np.int64]:
    """Return answers as an array. Raise `BadValue` unless all are whole numbers in 0 .. inputs - 1."""
    array = np.asarray(answers)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise BadValue("answers must be whole numbers in one dimension")
    if array.size and (array.min() < 0 or array.max() >= inputs):
        raise BadValue(f"answers must lie in 0 .. {inputs - 1}")
    return array.astype(np.int64, copy=False)


def checked_answer(answer: int, inputs: int) -> int:
    """Return one answer. Raise `BadValue` unless it is a whole number in 0 .. inputs - 1."""
    return int(checked_answers(np.array([answer]), inputs)[0])


def checked_rows(rows: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return received bytes. Raise `BadValue` unless they have the shape (n, size)."""
    well_formed = isinstance(rows, np.ndarray) and rows.dtype == np.uint8 and rows.ndim == 2
    if not well_formed or rows.shape[1] != size:
        raise BadValue(f"messages must be of {size} bytes each")
    return np.ascontiguousarray(rows)


def row_of(message: bytes, size: int) -> NDArray[np.uint8]:
    """Return one message as an array of one row."""
    return checked_rows(np.frombuffer(message, dtype=np.uint8)[np.newaxis], size)


class _NoiseStream(RandomStream):
    """Fresh bytes of `noise.random_bytes`, each used once."""

    def take(self, size: int) -> bytes:
        """Return fresh random bytes."""
        return noise.random_bytes(size)


NOISE_STREAM = _NoiseStream()  # tables draw from it, so that all randomness still has one source
