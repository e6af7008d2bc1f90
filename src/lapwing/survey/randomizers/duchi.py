"""Numbers: one of the two ends, the nearer one more often, then randomized response."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing import noise
from lapwing.exact import Number
from lapwing.privacy.loss import checked_epsilon
from lapwing.survey.randomizers.choice import Choice
from lapwing.survey.randomizers.numeric import Numbers, worst_of
from lapwing.survey.randomizers.randomizer import Recipe
from lapwing.survey.randomizers.two_level import TwoLevel, favour
from lapwing.survey.randomizers.wire import checked_answer, checked_answers, row_of


@dataclass(frozen=True, slots=True)
class Duchi(TwoLevel, Numbers):
    """x becomes the upper end (1) with x chances in g, else the lower (0); "no answer" is a third end (2).

    Claim    two_level: the ratio is that of `Choice` among the ends. Scores are unbiased.
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
    def for_epsilon(cls, epsilon: Number, *, steps: int, none: bool) -> Duchi:
        """The most truthful one within ε."""
        asked = checked_epsilon(epsilon)
        return cls(steps, int(none), favour(asked, Fraction(1, 2 + bool(none))), asked)

    @property
    def share(self) -> Fraction:
        """One end of two, or of three."""
        return Fraction(1, 2 + self.none)

    @property
    def ends(self) -> Choice:
        """Randomized response among the ends."""
        return Choice(2 + self.none, self.favoured)

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
        return max(worst_of(square, slope, level, self.steps), silent * self.none)
