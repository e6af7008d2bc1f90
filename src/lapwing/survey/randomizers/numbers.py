"""Randomizers of numbers: a window around the true number, one of the two ends, or a hybrid of both.

`SquareWave` and `Piecewise` make windows for distributions and for means. `DuchiResponse` sends an end, the
nearer one more often. `HybridResponse` draws one of the two and says which: its worst variance is smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.chances import percent
from lapwing.core.exact import Number, set_fields, whole
from lapwing.core.losses import checked_epsilon
from lapwing.errors import BadParameter
from lapwing.survey.randomize import CoinSource
from lapwing.survey.randomizers.index_oracles import KaryResponse
from lapwing.survey.randomizers.randomizer import (
    ODDS,
    IndexMessages,
    Messages,
    NumericRandomizer,
    PartedRandomizer,
    ScoreVariance,
    checked_answer,
    checked_answers,
    greatest_favoured,
    row_of,
    worst_score_variance,
)

MOST_WINDOW_MESSAGES = 1 << 48
Rows = NDArray[np.uint8]
LEAST_PIECEWISE_MESSAGES = 1024  # the least number of positions of a piecewise window


@dataclass(frozen=True, slots=True)
class WindowResponse(IndexMessages, NumericRandomizer):
    """A number in 0 .. g s + w - 1; the true x favours x s .. x s + w - 1; "no answer" has w more.

    Claim    two levels: the ratio is T (|Y| - w) / ((2^48 - T) w). Scores are unbiased.
    Because  every window has w messages. A score is a y + b, and c for "no answer"; its expectation is
             a constant plus the sum over the window, which is linear in x; a, b, c solve
             E[score | x] = x / g and E[score | no answer] = 0.
    Test     tests/survey/randomizers/test_randomizers_laws.py::test_the_worst_ratio_is_the_claimed_one,
             tests/survey/randomizers/test_numbers.py::test_scores_are_exactly_unbiased
    """

    kind: ClassVar[str] = "window"
    steps: int
    stride: int
    width: int
    none: int
    favoured: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._settle_steps()
        self._settle(stride=1, width=1)
        if self.messages > MOST_WINDOW_MESSAGES:
            raise BadParameter("width", "and stride must leave at most 2^48 messages")
        self._settle_odds()

    @classmethod
    def with_width(
        cls, epsilon: Number, *, steps: int, stride: int, width: int, none: bool
    ) -> WindowResponse:
        """Make the most truthful one within ε, for a given window."""
        asked = checked_epsilon(epsilon)
        g, s, w = (whole(n, name, at_least=1) for n, name in
                   ((steps, "steps"), (stride, "stride"), (width, "width")))  # fmt: skip
        share = Fraction(w, g * s + w + (w if none else 0))
        return cls(g, s, w, int(none), greatest_favoured(asked, share), asked)

    @property
    def numbers(self) -> int:
        """The number of messages that stand for numbers."""
        return self.steps * self.stride + self.width

    @property
    def messages(self) -> int:
        """The number of all messages."""
        return self.numbers + self.none * self.width

    @property
    def share(self) -> Fraction:
        """The share of all messages that one window has."""
        return Fraction(self.width, self.messages)

    @property
    def both(self) -> Fraction:
        """The share of all messages that the windows of 0 and g have in common; "no answer" has none."""
        shared = 0 if self.none else max(0, self.width - self.steps * self.stride)
        return Fraction(shared, self.messages)

    def start(self, answers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first message of the window of each answer."""
        return np.where(answers > self.steps, self.numbers, answers * self.stride)

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Draw one message for each answer."""
        starts = self.start(checked_answers(answers, self.inputs))
        near = noise.uniform_int(0, self.width, len(starts)) + starts
        far = noise.uniform_int(0, self.messages - self.width, len(starts))
        far += np.where(far >= starts, self.width, 0)
        return np.where(noise.bernoulli(self.truth, len(starts)), near, far)

    def stated_odds(self) -> str:
        """Return the odds of the window."""
        return f"On your device, {self.odds_clause()}"

    def odds_clause(self) -> str:
        """Return the odds of the window, as a sentence without its beginning."""
        return (
            f"one of {self.messages:,} numbers is sent; with a chance of {percent(self.truth)} it is one "
            f"of the {self.width:,} around your own answer, all alike, else any other."
        )

    def draw(self, answer: int, source: CoinSource) -> int:
        """Draw the number that is sent."""
        [start] = self.start(np.array([answer])).tolist()
        if source.odds(self.favoured):
            return int(start + source.below(self.width))
        outside = source.below(self.messages - self.width)
        return int(outside + self.width * (outside >= start))

    def probability(self, answer: int, message: bytes) -> Fraction:
        """Return one of two levels: the message is in the window, or not."""
        start = int(self.start(np.array([checked_answer(answer, self.inputs)]))[0])
        sent = int(self.decode(row_of(message, self.size))[0])
        return (self.likely if 0 <= sent - start < self.width else self.unlikely) / self.messages

    def line(self) -> tuple[Fraction, Fraction, Fraction]:
        """Return a, b, c: the score of message y is a y + b, and c in the window of "no answer"."""
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
        """Return scores that are unbiased for x / g, and for 0 where there is no answer."""
        a, b, c = (float(part) for part in self.line())
        return np.where(messages >= self.numbers, c, a * messages + b)

    def answered(self, messages: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return scores that are unbiased for 1, and for 0 where there is no answer."""
        if not self.none:
            return np.ones(len(messages))
        stray = self.unlikely * self.share
        silent = (messages >= self.numbers).astype(np.float64)
        return 1 - (silent - float(stray)) / float(self.truth - stray)

    def spread(self) -> ScoreVariance:
        """Return the variance of a score: square, slope, level, and that of "no answer"."""
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


def _squares(count: int) -> int:
    """Return 0 + 1 + 4 + .. + (count - 1)^2."""
    return (count - 1) * count * (2 * count - 1) // 6


class SquareWave:
    """The window for distributions (Li and others, 2020): a message per step, the best width."""

    @staticmethod
    def for_epsilon(epsilon: Number, *, steps: int, none: bool) -> WindowResponse:
        """Make the window. Half of its width is (ε e^ε - e^ε + 1) / (2 e^ε (e^ε - 1 - ε)) of the range."""
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
    """The window for means (Wang and others, 2019): the width with the least worst variance."""

    @staticmethod
    def for_epsilon(epsilon: Number, *, steps: int, none: bool) -> WindowResponse:
        """Make the best window among widths around e^(-ε/2) of the range.

        That width is best for fine steps and where everyone answers.
        """
        e, g = checked_epsilon(epsilon), whole(steps, "steps", at_least=1)
        stride = max(1, -(-LEAST_PIECEWISE_MESSAGES // g))
        best = g * stride * math.exp(-float(e) / 2)
        widths = {max(1, round(best * 2 ** (step / 8))) for step in range(-16, 17)}
        responses = [
            WindowResponse.with_width(e, steps=g, stride=stride, width=width, none=none)
            for width in sorted(widths)
        ]
        return min(responses, key=lambda response: response.worst_variance())


@dataclass(frozen=True, slots=True)
class DuchiResponse(IndexMessages, NumericRandomizer):
    """x becomes the upper end (1) with x chances in g, else the lower (0); "no answer" is a third end (2).

    Claim    two levels: the ratio is that of `KaryResponse` among the ends. Scores are unbiased.
    Because  a message's law is a mixture of the laws for the ends, whose ratios are within the claim.
             (1[message is 1] - outside) / (inside - outside) has expectation P[end is 1] = x / g.
    Test     tests/survey/randomizers/test_randomizers_laws.py::test_the_worst_ratio_is_the_claimed_one,
             tests/survey/randomizers/test_numbers.py::test_scores_are_exactly_unbiased
    """

    kind: ClassVar[str] = "duchi"
    steps: int
    none: int
    favoured: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._settle_steps()
        self._settle_odds()

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, steps: int, none: bool) -> DuchiResponse:
        """Make the most truthful one within ε."""
        asked = checked_epsilon(epsilon)
        return cls(steps, int(none), greatest_favoured(asked, Fraction(1, 2 + bool(none))), asked)

    @property
    def share(self) -> Fraction:
        """One end of two, or of three."""
        return Fraction(1, self.messages)

    @property
    def both(self) -> Fraction:
        """Two ends favour no message both."""
        return Fraction(0)

    @property
    def messages(self) -> int:
        """The number of ends."""
        return 2 + self.none

    @property
    def ends(self) -> KaryResponse:
        """Randomized response among the ends."""
        return KaryResponse(2 + self.none, self.favoured)

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Draw one end for each answer."""
        true = checked_answers(answers, self.inputs)
        upper = noise.uniform_int(0, self.steps, len(true)) < true
        ends = np.where(true > self.steps, 2, upper.astype(np.int64))
        return self.ends.sample(ends)

    def stated_odds(self) -> str:
        """Return the odds of the ends."""
        return f"On your device, {self.odds_clause()}"

    def odds_clause(self) -> str:
        """Return the odds of the ends, as a sentence without its beginning."""
        truth, other = percent(self.ends.inside), percent(self.ends.outside)
        none = f' Whoever does not answer sends "none" with {truth}.' if self.none else ""
        words = '"low", "high" or "none"' if self.none else '"low" or "high"'
        return (
            f'only {words} is sent. "High" has a chance of {other} for the lowest answer, '
            f"{truth} for the highest, and in between it rises evenly.{none}"
        )

    def draw(self, answer: int, source: CoinSource) -> int:
        """Draw the true end, then the one that is sent."""
        end = 2 if answer > self.steps else int(source.below(self.steps) < answer)
        return self.ends.draw(end, source)

    def probability(self, answer: int, message: bytes) -> Fraction:
        """Return the mixture over the ends."""
        true = checked_answer(answer, self.inputs)
        sent = int(self.decode(row_of(message, self.size))[0])
        upper = Fraction(true, self.steps)
        law = (Fraction(0), Fraction(0), Fraction(1))
        if true <= self.steps:
            law = (1 - upper, upper, Fraction(0))
        ends = self.ends
        return ends.outside + law[sent] * (ends.inside - ends.outside)

    def scores(self, messages: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return scores that are unbiased for x / g, and for 0 where there is no answer."""
        return self._share_of(1, messages)

    def answered(self, messages: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return scores that are unbiased for 1, and for 0 where there is no answer."""
        if not self.none:
            return np.ones(len(messages))
        return 1 - self._share_of(2, messages)

    def _share_of(self, end: int, messages: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return scores that are unbiased for 1 where this was the end, else for 0."""
        inside, outside = float(self.ends.inside), float(self.ends.outside)
        scores: NDArray[np.float64] = ((messages == end) - outside) / (inside - outside)
        return scores

    def spread(self) -> ScoreVariance:
        """Return the variance of a score: square, slope, level, and that of "no answer"."""
        inside, outside = self.ends.inside, self.ends.outside
        gap = inside - outside
        # P[message is 1] = p = outside + t gap, and the variance is p (1 - p) / gap^2.
        level = outside * (1 - outside) / gap**2
        return -1.0, float((1 - 2 * outside) / gap), float(level), float(level)


@dataclass(frozen=True, slots=True)
class HybridResponse(PartedRandomizer, NumericRandomizer):
    """With `odds` chances in 2^48 the window's message, else Duchi's; the first byte says which (1 or 0).

    Claim    the loss is the greater of the two. Scores are unbiased.
    Because  which one is used does not depend on the answer, and each is within its claim.
    Test     tests/survey/randomizers/test_randomizers_laws.py::test_the_worst_ratio_is_the_claimed_one,
             tests/survey/randomizers/test_numbers.py::test_scores_are_exactly_unbiased
    """

    kind: ClassVar[str] = "hybrid"
    odds: int
    window: WindowResponse
    duchi: DuchiResponse
    steps: int = field(init=False, repr=False, compare=False)
    none: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        set_fields(self, odds=whole(self.odds, "odds"), steps=self.window.steps, none=self.window.none)
        if self.odds > ODDS:
            raise BadParameter("odds", "must be at most 2^48")
        if (self.steps, self.none) != (self.duchi.steps, self.duchi.none):
            raise BadParameter("window", "and duchi must take the same answers")

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, steps: int, none: bool) -> HybridResponse:
        """Make the piecewise window and Duchi's method, in the proportion with the least worst variance."""
        window = Piecewise.for_epsilon(epsilon, steps=steps, none=none)
        duchi = DuchiResponse.for_epsilon(epsilon, steps=steps, none=none)
        spreads = window.spread(), duchi.spread()

        def worst(odds: int) -> float:
            return worst_score_variance(_mixed_spread(odds, *spreads), window.steps, window.none)

        # The worst variance is convex in the odds: a maximum of lines.
        low, high = 0, ODDS
        while high - low > 3:
            third, two_thirds = low + (high - low) // 3, high - (high - low) // 3
            low, high = (low, two_thirds) if worst(third) <= worst(two_thirds) else (third, high)
        return cls(min((0, low, ODDS), key=worst), window, duchi)

    @property
    def parts(self) -> dict[int, WindowResponse | DuchiResponse]:
        """The window (1) and Duchi's method (0), as far as their odds are above 0."""
        return ({1: self.window} if self.odds else {}) | ({0: self.duchi} if self.odds < ODDS else {})

    @property
    def size(self) -> int:
        """The bytes of the part's number and the longer message."""
        return 1 + max(self.window.size, self.duchi.size)

    def chance(self, first: int) -> Fraction:
        """Return the probability of the window (1) or of Duchi's method (0)."""
        return Fraction(self.odds if first else ODDS - self.odds, ODDS)

    def stated_odds(self) -> str:
        """Return the odds of the two ways, and those of each."""
        wide = f"With a chance of {percent(self.chance(1))}, {self.window.odds_clause()}"
        return f"Your device first chooses one of two ways. {wide} Otherwise, {self.duchi.odds_clause()}"

    def _draw_part(self, source: CoinSource) -> int:
        return int(source.odds(self.odds))

    def _draw_parts(self, count: int) -> NDArray[np.bool_]:
        return noise.bernoulli(self.chance(1), count)

    def scores(self, messages: Rows) -> NDArray[np.float64]:
        """Return scores that are unbiased for x / g, and for 0 where there is no answer."""
        return self._by_part(messages, lambda part, sent: part.scores(sent))

    def answered(self, messages: Rows) -> NDArray[np.float64]:
        """Return scores that are unbiased for 1, and for 0 where there is no answer."""
        return self._by_part(messages, lambda part, sent: part.answered(sent))

    def _by_part(
        self, messages: Rows, score: Callable[[NumericRandomizer, Messages], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        scores = np.empty(len(messages), dtype=np.float64)
        for first, part in self.parts.items():
            scores[messages[:, 0] == first] = score(part, self.messages_of(messages, first))
        return scores

    def spread(self) -> ScoreVariance:
        """Return the variance of a score: both parts have the same mean, so their variances mix."""
        return _mixed_spread(self.odds, self.window.spread(), self.duchi.spread())


def _mixed_spread(odds: int, window: ScoreVariance, duchi: ScoreVariance) -> ScoreVariance:
    far = odds / ODDS
    square, slope, level, silent = (far * w + (1 - far) * d for w, d in zip(window, duchi, strict=True))
    return square, slope, level, silent
