"""Running sums of scores: all that means, ratios and their intervals need, in one pass.

A score is a number per report whose expectation, given the answer x, is f(x). `top` has the scores of
several functions f; `bottom` those of an indicator (has answered, is in the group) outside of which every f
is 0; `square` those of f².

Claim    `moments(j)` estimates the variance of both means over reports drawn from a population; with
         `total`, over the coins and over who of so many fixed respondents was drawn: both without bias.
Because  for fixed answers Var Σ top = Σ E[top²|x] - Σ f(x)², of which Σ top² and Σ square are unbiased
         estimates; for bottom² the indicator is its own square, and f times the indicator is f. What the
         whole variance has more is that of drawing n; drawn without putting back from `total`, 1 - n/total
         of it is left.
Test     tests/survey/estimating/test_sums.py::test_both_variances_are_unbiased
         tests/survey/estimating/test_sums.py::test_the_variance_for_those_who_were_drawn_is_unbiased
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lapwing.survey.estimating.intervals import Level, Moments
from lapwing.survey.estimating.results import Interval

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scores:
    """Of some reports: one line a report, one column a function. No `square`: f² cannot be estimated."""

    top: Floats
    bottom: Floats
    square: Floats | None

    def times(self, weight: Floats) -> Scores:
        """Within a group: `weight` has the scores of being in it."""
        by = weight[:, None]
        square = None if self.square is None else self.square * by
        return Scores(self.top * by, self.bottom * weight, square)

    def of_all(self) -> Scores:
        """Not as a ratio: the same tops over all reports."""
        return Scores(self.top, np.ones(len(self.top)), self.square)


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a mean lies for certain, and how far apart possible scores of top and bottom are."""

    low: float
    high: float
    top_span: float
    bottom_span: float


class Sums:
    """Adds up scores."""

    def __init__(self, columns: int) -> None:
        self.n = 0
        self._has_squares = True
        self._top, self._top2, self._both, self._square = (np.zeros(columns) for _ in range(4))
        self._bottom = self._bottom2 = 0.0

    def add(self, scores: Scores) -> None:
        """Some more reports."""
        top, bottom = scores.top, scores.bottom
        self.n += len(bottom)
        self._top += top.sum(axis=0)
        self._top2 += np.einsum("ij,ij->j", top, top)
        self._both += bottom @ top
        self._bottom += float(bottom.sum())
        self._bottom2 += float(bottom @ bottom)
        if scores.square is None:
            self._has_squares = False
        else:
            self._square += scores.square.sum(axis=0)

    def moments(self, column: int, *, total: int | None = None) -> Moments:
        """Of a function's mean, for the population; or for `total` respondents, of whom n were drawn.

        Where the noise alone cannot be told, the whole variance is given.
        """
        n, a, b = self.n, float(self._top[column]), self._bottom
        top2, both, bottom2 = float(self._top2[column]), float(self._both[column]), self._bottom2
        pairs = n * max(n - 1, 1)
        whole = Moments(
            a / n,
            b / n,
            max((top2 - a * a / n) / pairs, 0.0),
            max((bottom2 - b * b / n) / pairs, 0.0),
            (both - a * b / n) / pairs,
        )
        if total is None or not self._has_squares:
            return whole
        square = float(self._square[column])
        noise = Moments(a / n, b / n, (top2 - square) / n**2, (bottom2 - b) / n**2, (both - a) / n**2)
        # With few reports an estimate may be out of reach: then the whole is on the safe side.
        return noise.mixed(whole, 1 - n / total) if noise.within(whole) else whole

    def interval(self, column: int, level: Level, limits: Limits, *, total: int | None = None) -> Interval:
        """Fieller's interval within the limits.

        Few reports may be alike by chance, and scores may have few values. So, as Wilson's interval has it
        for shares, the variance is that of z² more reports, half of them at each end of possible scores;
        and half a report is to spare.
        """
        if self.n < 2:
            return Interval(limits.low, limits.high, np.nan)
        moments = self.moments(column, total=total)
        more = level.z**2 / (4 * self.n**2)
        wider = moments.wider(more * limits.top_span**2, more * limits.bottom_span**2)
        spare = limits.top_span / (2 * self.n)
        return Interval(*wider.interval(level.t(self.n), limits.low, limits.high, spare), moments.error())
