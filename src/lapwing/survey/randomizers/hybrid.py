"""Numbers: sometimes a window, sometimes an end, said openly. Better at worst than either alone."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing import noise
from lapwing.errors import BadParameter, BadValue
from lapwing.exact import Number, settle, whole
from lapwing.privacy import Pure
from lapwing.survey.randomizers.duchi import Duchi
from lapwing.survey.randomizers.numeric import worst_of
from lapwing.survey.randomizers.randomizer import Recipe
from lapwing.survey.randomizers.two_level import ODDS
from lapwing.survey.randomizers.window import Piecewise, Window
from lapwing.survey.randomizers.wire import checked_answers, checked_rows, row_of

Rows = NDArray[np.uint8]
Spread = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Hybrid:
    """With `odds` chances in 2^48 the window's message, else Duchi's; the first byte says which (1 or 0).

    Claim    the loss is the greater of the two. Scores are unbiased.
    Because  which one is used does not depend on the answer, and each is within its claim.
    Test     tests/survey/randomizers/test_laws.py::test_the_worst_ratio_is_the_claimed_one,
             tests/survey/randomizers/test_numeric.py::test_scores_are_exactly_unbiased

    Messages in memory are the rows that are sent.
    """

    odds: int
    window: Window
    duchi: Duchi

    def __post_init__(self) -> None:
        settle(self, odds=whole(self.odds, "odds"))
        if self.odds > ODDS:
            raise BadParameter("odds", "must be at most 2^48")
        if (self.window.steps, self.window.none) != (self.duchi.steps, self.duchi.none):
            raise BadParameter("window", "and duchi must take the same answers")

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, steps: int, none: bool) -> Hybrid:
        """The piecewise window and Duchi's method in the proportion with the least variance at worst."""
        window = Piecewise.for_epsilon(epsilon, steps=steps, none=none)
        duchi = Duchi.for_epsilon(epsilon, steps=steps, none=none)
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


def _worst(odds: int, window: Spread, duchi: Spread, *, steps: int, none: int) -> float:
    far = odds / ODDS
    square, slope, level, silent = (far * w + (1 - far) * d for w, d in zip(window, duchi, strict=True))
    return max(worst_of(square, slope, level, steps), silent * none)
