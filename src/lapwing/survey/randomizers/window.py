"""Numbers: a message near the true one more often than not. Square wave, and the piecewise method."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing import noise
from lapwing.errors import BadParameter
from lapwing.exact import Number, settle, whole
from lapwing.privacy.loss import checked_epsilon
from lapwing.survey.randomizers.numeric import Numbers, worst_of
from lapwing.survey.randomizers.randomizer import Recipe
from lapwing.survey.randomizers.two_level import TwoLevel, favour
from lapwing.survey.randomizers.wire import (
    checked_answer,
    checked_answers,
    decode_index,
    encode_index,
    index_size,
    row_of,
)

MOST_MESSAGES = 1 << 48
FINE = 1024  # a piecewise window moves over at least so many messages


@dataclass(frozen=True, slots=True)
class Window(TwoLevel, Numbers):
    """A number in 0 .. g s + w - 1; the true x favours x s .. x s + w - 1; "no answer" has w more.

    Claim    two_level: the ratio is T (|Y| - w) / ((2^48 - T) w). Scores are unbiased.
    Because  every window has w messages. A score is a y + b, and c for "no answer"; its expectation is
             a constant plus the sum over the window, which is linear in x; a, b, c solve
             E[score | x] = x / g and E[score | no answer] = 0.
    Test     tests/survey/randomizers/test_laws.py::test_the_worst_ratio_is_the_claimed_one,
             tests/survey/randomizers/test_numeric.py::test_scores_are_exactly_unbiased
    """

    steps: int
    stride: int
    width: int
    none: int
    favoured: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._settle_steps()
        settle(
            self,
            stride=whole(self.stride, "stride", at_least=1),
            width=whole(self.width, "width", at_least=1),
        )
        if self.messages > MOST_MESSAGES:
            raise BadParameter("width", "and stride must leave at most 2^48 messages")
        self._settle_odds()

    @classmethod
    def with_width(cls, epsilon: Number, *, steps: int, stride: int, width: int, none: bool) -> Window:
        """The most truthful one within ε, for a given window."""
        asked = checked_epsilon(epsilon)
        g, s, w = (whole(n, name, at_least=1) for n, name in
                   ((steps, "steps"), (stride, "stride"), (width, "width")))  # fmt: skip
        share = Fraction(w, g * s + w + (w if none else 0))
        return cls(g, s, w, int(none), favour(asked, share), asked)

    @property
    def numbers(self) -> int:
        """Messages that speak for numbers."""
        return self.steps * self.stride + self.width

    @property
    def messages(self) -> int:
        """All messages."""
        return self.numbers + self.none * self.width

    @property
    def share(self) -> Fraction:
        """A window, out of all messages."""
        return Fraction(self.width, self.messages)

    @property
    def size(self) -> int:
        """The number of the message."""
        return index_size(self.messages)

    def recipe(self) -> Recipe:
        """For devices."""
        return {
            "kind": "window",
            "steps": self.steps,
            "stride": self.stride,
            "width": self.width,
            "none": self.none,
            "favoured": self.favoured,
        }

    def start(self, answers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the windows of these answers begin."""
        return np.where(answers > self.steps, self.numbers, answers * self.stride)

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.int64]:
        """One message per answer."""
        starts = self.start(checked_answers(answers, self.inputs))
        near = noise.uniform_int(0, self.width, len(starts)) + starts
        far = noise.uniform_int(0, self.messages - self.width, len(starts))
        far += np.where(far >= starts, self.width, 0)
        return np.where(noise.bernoulli(self.truth, len(starts)), near, far)

    def encode(self, messages: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The number."""
        return encode_index(messages, self.size)

    def decode(self, rows: NDArray[np.uint8]) -> NDArray[np.int64]:
        """A number that can be sent."""
        return decode_index(rows, self.messages)

    def probability(self, answer: int, message: bytes) -> Fraction:
        """Two levels: in the window, or not."""
        start = int(self.start(np.array([checked_answer(answer, self.inputs)]))[0])
        sent = int(self.decode(row_of(message, self.size))[0])
        return (self.likely if 0 <= sent - start < self.width else self.unlikely) / self.messages

    def line(self) -> tuple[Fraction, Fraction, Fraction]:
        """a, b, c: the score of message y is a y + b, and c in the window of "no answer"."""
        w, numbers = self.width, self.numbers
        low = self.unlikely / self.messages
        gap = self.likely / self.messages - low
        a = 1 / (self.steps * self.stride * w * gap)
        # E[score | 0] = low (sum of all scores) + gap w c = 0, where c = b + a (w - 1) / 2 is the mean
        # score of the window of 0: so it is the score of "no answer" too.
        rise = a * Fraction(w - 1, 2)
        all_a = a * Fraction(numbers * (numbers - 1), 2) + self.none * w * rise
        b = -(low * all_a + gap * w * rise) / (low * (numbers + self.none * w) + gap * w)
        return a, b, b + rise

    def scores(self, messages: NDArray[np.int64]) -> NDArray[np.float64]:
        """Unbiased for x / g, and for 0 where there is no answer."""
        a, b, c = (float(part) for part in self.line())
        return np.where(messages >= self.numbers, c, a * messages + b)

    def answered(self, messages: NDArray[np.int64]) -> NDArray[np.float64]:
        """Unbiased for 1, and for 0 where there is no answer."""
        if not self.none:
            return np.ones(len(messages))
        stray = self.unlikely * self.share
        silent = (messages >= self.numbers).astype(np.float64)
        return 1 - (silent - float(stray)) / float(self.truth - stray)

    def spread(self) -> tuple[float, float, float, float]:
        """Var[score | x] = square t^2 + slope t + level with t = x / g; and that of "no answer"."""
        a, b, c = self.line()
        w, numbers = self.width, self.numbers
        low = self.unlikely / self.messages
        gap = self.likely / self.messages - low
        all_ = a * a * _squares(numbers) + a * b * numbers * (numbers - 1) + b * b * numbers
        all_ += self.none * w * c * c
        first = a * a * _squares(w) + a * b * w * (w - 1) + b * b * w  # over the window of 0
        reach = a * self.steps * self.stride
        square = gap * w * reach * reach - 1
        slope = gap * 2 * reach * w * c
        level = low * all_ + gap * first
        return float(square), float(slope), float(level), float(low * all_ + gap * w * c * c)

    def worst_variance(self) -> float:
        """The greatest variance of a score, over all answers."""
        square, slope, level, silent = self.spread()
        return max(worst_of(square, slope, level, self.steps), silent * self.none)


def _squares(count: int) -> int:
    """0 + 1 + 4 + .. + (count - 1)^2."""
    return (count - 1) * count * (2 * count - 1) // 6


class SquareWave:
    """The window for distributions (Li and others, 2020): a message per step, the most telling width."""

    @staticmethod
    def for_epsilon(epsilon: Number, *, steps: int, none: bool) -> Window:
        """Half of the width is (ε e^ε - e^ε + 1) / (2 e^ε (e^ε - 1 - ε)) of the range."""
        e = min(float(checked_epsilon(epsilon)), 300.0)
        g = whole(steps, "steps", at_least=1)
        # Both sides lose their digits for small ε: two terms of the series are enough there.
        half = (
            1 / 2 - e / 3 if e < 1e-3 else (e * math.exp(e) - math.exp(e) + 1)
            / (2 * math.exp(e) * (math.exp(e) - 1 - e))
        )  # fmt: skip
        return Window.with_width(epsilon, steps=g, stride=1, width=max(1, round(2 * half * g)), none=none)


class Piecewise:
    """The window for means (Wang and others, 2019): the width with the least variance at worst."""

    @staticmethod
    def for_epsilon(epsilon: Number, *, steps: int, none: bool) -> Window:
        """Around e^(-ε/2) of the range, which is best for fine steps and where everyone answers."""
        e, g = checked_epsilon(epsilon), whole(steps, "steps", at_least=1)
        stride = max(1, -(-FINE // g))
        best = g * stride * math.exp(-float(e) / 2)
        widths = {max(1, round(best * 2 ** (step / 8))) for step in range(-16, 17)}
        found = [
            Window.with_width(e, steps=g, stride=stride, width=width, none=none) for width in sorted(widths)
        ]
        return min(found, key=lambda one: one.worst_variance())
