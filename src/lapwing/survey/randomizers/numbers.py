"""Numbers: a message near the true one more often than not. Square wave, and the piecewise method.

Numbers: one of the two ends, the nearer one more often, then randomized response.

Numbers: sometimes a window, sometimes an end, said openly. Better at worst than either alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.exact import Number, set_fields, whole
from lapwing.core.losses import Pure, checked_epsilon
from lapwing.errors import BadParameter, BadValue
from lapwing.survey.randomizers.choice import KaryResponse
from lapwing.survey.randomizers.randomizer import (
    ODDS,
    Recipe,
    SteppedNumbers,
    TwoLevel,
    checked_answer,
    checked_answers,
    checked_rows,
    decode_index,
    encode_index,
    greatest_favoured,
    index_size,
    quadratic_maximum,
    row_of,
)

MOST_WINDOW_MESSAGES = 1 << 48
LEAST_PIECEWISE_MESSAGES = 1024  # a piecewise window moves over at least so many messages


@dataclass(frozen=True, slots=True)
class WindowResponse(TwoLevel, SteppedNumbers):
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
        set_fields(
            self,
            stride=whole(self.stride, "stride", at_least=1),
            width=whole(self.width, "width", at_least=1),
        )
        if self.messages > MOST_WINDOW_MESSAGES:
            raise BadParameter("width", "and stride must leave at most 2^48 messages")
        self._settle_odds()

    @classmethod
    def with_width(
        cls, epsilon: Number, *, steps: int, stride: int, width: int, none: bool
    ) -> WindowResponse:
        """The most truthful one within ε, for a given window."""
        asked = checked_epsilon(epsilon)
        g, s, w = (whole(n, name, at_least=1) for n, name in
                   ((steps, "steps"), (stride, "stride"), (width, "width")))  # fmt: skip
        share = Fraction(w, g * s + w + (w if none else 0))
        return cls(g, s, w, int(none), greatest_favoured(asked, share), asked)

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
        return max(quadratic_maximum(square, slope, level, self.steps), silent * self.none)


def _squares(count: int) -> int:
    """0 + 1 + 4 + .. + (count - 1)^2."""
    return (count - 1) * count * (2 * count - 1) // 6


class SquareWave:
    """The window for distributions (Li and others, 2020): a message per step, the most telling width."""

    @staticmethod
    def for_epsilon(epsilon: Number, *, steps: int, none: bool) -> WindowResponse:
        """Half of the width is (ε e^ε - e^ε + 1) / (2 e^ε (e^ε - 1 - ε)) of the range."""
        e = min(float(checked_epsilon(epsilon)), 300.0)
        g = whole(steps, "steps", at_least=1)
        # Both sides lose their digits for small ε: two terms of the series are enough there.
        half = (
            1 / 2 - e / 3 if e < 1e-3 else (e * math.exp(e) - math.exp(e) + 1)
            / (2 * math.exp(e) * (math.exp(e) - 1 - e))
        )  # fmt: skip
        return WindowResponse.with_width(
            epsilon, steps=g, stride=1, width=max(1, round(2 * half * g)), none=none
        )


class Piecewise:
    """The window for means (Wang and others, 2019): the width with the least variance at worst."""

    @staticmethod
    def for_epsilon(epsilon: Number, *, steps: int, none: bool) -> WindowResponse:
        """Around e^(-ε/2) of the range, which is best for fine steps and where everyone answers."""
        e, g = checked_epsilon(epsilon), whole(steps, "steps", at_least=1)
        stride = max(1, -(-LEAST_PIECEWISE_MESSAGES // g))
        best = g * stride * math.exp(-float(e) / 2)
        widths = {max(1, round(best * 2 ** (step / 8))) for step in range(-16, 17)}
        found = [
            WindowResponse.with_width(e, steps=g, stride=stride, width=width, none=none)
            for width in sorted(widths)
        ]
        return min(found, key=lambda one: one.worst_variance())


@dataclass(frozen=True, slots=True)
class DuchiResponse(TwoLevel, SteppedNumbers):
    """x becomes the upper end (1) with x chances in g, else the lower (0); "no answer" is a third end (2).

    Claim    two_level: the ratio is that of `KaryResponse` among the ends. Scores are unbiased.
    Because  a message's law is a mixture of the laws for the ends, whose ratios are within the claim.
             (1[message is 1] - outside) / (inside - outside) has expectation P[end is 1] = x / g.
    Test     tests/survey/randomizers/test_laws.py::test_the_worst_ratio_is_the_claimed_one,
             tests/survey/randomizers/test_numeric.py::test_scores_are_exactly_unbiased
    """

    steps: int
    none: int
    favoured: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._settle_steps()
        self._settle_odds()

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, steps: int, none: bool) -> DuchiResponse:
        """The most truthful one within ε."""
        asked = checked_epsilon(epsilon)
        return cls(steps, int(none), greatest_favoured(asked, Fraction(1, 2 + bool(none))), asked)

    @property
    def share(self) -> Fraction:
        """One end of two, or of three."""
        return Fraction(1, 2 + self.none)

    @property
    def ends(self) -> KaryResponse:
        """Randomized response among the ends."""
        return KaryResponse(2 + self.none, self.favoured)

    @property
    def size(self) -> int:
        """The number of the end."""
        return 1

    def recipe(self) -> Recipe:
        """For devices."""
        return {"kind": "duchi", "steps": self.steps, "none": self.none, "favoured": self.favoured}

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.int64]:
        """One end per answer."""
        true = checked_answers(answers, self.inputs)
        upper = noise.uniform_int(0, self.steps, len(true)) < true
        ends = np.where(true > self.steps, 2, upper.astype(np.int64))
        return self.ends.sample(ends)

    def encode(self, messages: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The end."""
        return self.ends.encode(messages)

    def decode(self, rows: NDArray[np.uint8]) -> NDArray[np.int64]:
        """An end."""
        return self.ends.decode(rows)

    def probability(self, answer: int, message: bytes) -> Fraction:
        """The mixture over the ends."""
        true = checked_answer(answer, self.inputs)
        sent = int(self.decode(row_of(message, self.size))[0])
        upper = Fraction(true, self.steps)
        law = (
            [Fraction(0), Fraction(0), Fraction(1)]
            if true > self.steps
            else [1 - upper, upper, Fraction(0)]
        )
        ends = self.ends
        return ends.outside + law[sent] * (ends.inside - ends.outside)

    def scores(self, messages: NDArray[np.int64]) -> NDArray[np.float64]:
        """Unbiased for x / g, and for 0 where there is no answer."""
        return self._share_of(1, messages)

    def answered(self, messages: NDArray[np.int64]) -> NDArray[np.float64]:
        """Unbiased for 1, and for 0 where there is no answer."""
        if not self.none:
            return np.ones(len(messages))
        return 1 - self._share_of(2, messages)

    def _share_of(self, end: int, messages: NDArray[np.int64]) -> NDArray[np.float64]:
        """Unbiased for 1 where this was the end, else for 0."""
        inside, outside = float(self.ends.inside), float(self.ends.outside)
        found: NDArray[np.float64] = ((messages == end) - outside) / (inside - outside)
        return found

    def spread(self) -> tuple[float, float, float, float]:
        """Var[score | x] = square t^2 + slope t + level with t = x / g; and that of "no answer"."""
        inside, outside = self.ends.inside, self.ends.outside
        gap = inside - outside
        # P[message is 1] = p = outside + t gap, and the variance is p (1 - p) / gap^2.
        level = outside * (1 - outside) / gap**2
        return -1.0, float((1 - 2 * outside) / gap), float(level), float(level)

    def worst_variance(self) -> float:
        """The greatest variance of a score, over all answers."""
        square, slope, level, silent = self.spread()
        return max(quadratic_maximum(square, slope, level, self.steps), silent * self.none)


Rows = NDArray[np.uint8]
ScoreVariance = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class HybridResponse:
    """With `odds` chances in 2^48 the window's message, else Duchi's; the first byte says which (1 or 0).

    Claim    the loss is the greater of the two. Scores are unbiased.
    Because  which one is used does not depend on the answer, and each is within its claim.
    Test     tests/survey/randomizers/test_laws.py::test_the_worst_ratio_is_the_claimed_one,
             tests/survey/randomizers/test_numeric.py::test_scores_are_exactly_unbiased

    Messages in memory are the rows that are sent.
    """

    odds: int
    window: WindowResponse
    duchi: DuchiResponse

    def __post_init__(self) -> None:
        set_fields(self, odds=whole(self.odds, "odds"))
        if self.odds > ODDS:
            raise BadParameter("odds", "must be at most 2^48")
        if (self.window.steps, self.window.none) != (self.duchi.steps, self.duchi.none):
            raise BadParameter("window", "and duchi must take the same answers")

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, steps: int, none: bool) -> HybridResponse:
        """The piecewise window and Duchi's method in the proportion with the least variance at worst."""
        window = Piecewise.for_epsilon(epsilon, steps=steps, none=none)
        duchi = DuchiResponse.for_epsilon(epsilon, steps=steps, none=none)
        parts = window.spread(), duchi.spread()

        def worst(odds: int) -> float:
            return _worst(odds, *parts, steps=window.steps, none=window.none)

        # The worst variance is convex in the odds: a maximum of lines.
        low, high = 0, ODDS
        while high - low > 3:
            one, other = low + (high - low) // 3, high - (high - low) // 3
            low, high = (low, other) if worst(one) <= worst(other) else (one, high)
        return cls(min((0, low, ODDS), key=worst), window, duchi)

    @property
    def steps(self) -> int:
        """The greatest number."""
        return self.window.steps

    @property
    def none(self) -> int:
        """1 where "no answer" is one of the answers."""
        return self.window.none

    @property
    def inputs(self) -> int:
        """Every number, and "no answer" where that is one."""
        return self.window.inputs

    @property
    def loss(self) -> Pure:
        """The greater one of the parts that are used."""
        parts = [part for part, odds in ((self.window, self.odds), (self.duchi, ODDS - self.odds)) if odds]
        return max((part.loss for part in parts), key=lambda loss: loss.epsilon)

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers: exact."""
        parts = ((self.window, self.odds), (self.duchi, ODDS - self.odds))
        return max(part.ratio for part, odds in parts if odds)

    @property
    def size(self) -> int:
        """Which part, and its message."""
        return 1 + max(self.window.size, self.duchi.size)

    def recipe(self) -> Recipe:
        """For devices."""
        return {
            "kind": "hybrid",
            "odds": self.odds,
            "window": self.window.recipe(),
            "duchi": self.duchi.recipe(),
        }

    def sample(self, answers: NDArray[np.int64]) -> Rows:
        """One row per answer."""
        true = checked_answers(answers, self.inputs)
        rows = np.zeros((len(true), self.size), dtype=np.uint8)
        far = noise.bernoulli(Fraction(self.odds, ODDS), len(true))
        rows[:, 0] = far
        for part, mine in ((self.window, far), (self.duchi, ~far)):
            rows[mine, 1 : 1 + part.size] = part.encode(part.sample(true[mine]))
        return rows

    def encode(self, messages: Rows) -> Rows:
        """Messages are rows already."""
        return messages

    def decode(self, rows: Rows) -> Rows:
        """Rows that can be sent."""
        sent = checked_rows(rows, self.size)
        far = sent[:, 0] == 1
        unused = (far.any() and not self.odds) or (not far.all() and self.odds == ODDS)
        if unused or bool(np.any(sent[:, 0] > 1)):
            raise BadValue("a message is impossible: it must begin with a part that is used")
        for part, mine in ((self.window, far), (self.duchi, ~far)):
            part.decode(sent[mine, 1 : 1 + part.size])
            if sent[mine, 1 + part.size :].any():
                raise BadValue("a message is impossible: it is longer than its part")
        return sent

    def probability(self, answer: int, message: bytes) -> Fraction:
        """The part's chance times the message's."""
        far = bool(self.decode(row_of(message, self.size))[0, 0])
        part = self.window if far else self.duchi
        chance = Fraction(self.odds if far else ODDS - self.odds, ODDS)
        return chance * part.probability(answer, message[1 : 1 + part.size])

    def _each(self, messages: Rows, what: str) -> NDArray[np.float64]:
        far = messages[:, 0] == 1
        found = np.empty(len(messages), dtype=np.float64)
        for part, mine in ((self.window, far), (self.duchi, ~far)):
            found[mine] = getattr(part, what)(part.decode(messages[mine, 1 : 1 + part.size]))
        return found

    def scores(self, messages: Rows) -> NDArray[np.float64]:
        """Unbiased for x / g, and for 0 where there is no answer."""
        return self._each(messages, "scores")

    def answered(self, messages: Rows) -> NDArray[np.float64]:
        """Unbiased for 1, and for 0 where there is no answer."""
        return self._each(messages, "answered")

    def worst_variance(self) -> float:
        """The greatest variance of a score: both parts have the same mean, so their variances mix."""
        spreads = self.window.spread(), self.duchi.spread()
        return _worst(self.odds, *spreads, steps=self.steps, none=self.none)


def _worst(odds: int, window: ScoreVariance, duchi: ScoreVariance, *, steps: int, none: int) -> float:
    far = odds / ODDS
    square, slope, level, silent = (far * w + (1 - far) * d for w, d in zip(window, duchi, strict=True))
    return max(quadratic_maximum(square, slope, level, steps), silent * none)
