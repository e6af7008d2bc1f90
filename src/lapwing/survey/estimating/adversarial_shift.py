"""What liars can do (failure case P2): the greatest shift of an estimate by a declared fraction of reports.

A liar sends the possible message that pushes most; impossible ones are refused at the door. The *honest
value* is what the estimate would be if every lie were replaced by that respondent's truth. Down and up say
how far lies may have pushed the estimate that was found away from it.

Claim    the honest value lies in [found - up, found + down].
Because  with a fraction η of liars who score s instead of the truth x, a mean's honest value is
         found - η (s - x); for a ratio that holds of top and bottom. A mean reaches both ends.
Test     tests/survey/estimating/test_lies.py::test_the_honest_ratio_is_always_within_reach
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from lapwing.survey.estimating.intervals import SupportChance

ScorePair = tuple[float, float]  # top and bottom of a ratio


@dataclass(frozen=True, slots=True)
class AdversarialShift:
    """A fraction of all respondents. Where one of `ways` is drawn at random, they may choose theirs."""

    fraction: float
    ways: int = 1

    @property
    def among(self) -> float:
        """Their fraction among the reports to one question, if all of them go for it."""
        honest = (1 - self.fraction) / self.ways
        return self.fraction / (self.fraction + honest) if self.fraction else 0.0

    def of(self, ways: int) -> AdversarialShift:
        """Where a report draws one of so many more ways."""
        return AdversarialShift(self.fraction, self.ways * ways)

    def share(self, coin: SupportChance) -> ScorePair:
        """Of a share: down and up. Exact: a liar's report supports the option, or does not."""
        return self.mean(coin.scores, (0.0, 1.0))

    def mean(self, scores: ScorePair, values: ScorePair) -> ScorePair:
        """Of a mean of scores, from the least and greatest score and true value: down and up. Exact."""
        return self.among * (values[1] - scores[0]), self.among * (scores[1] - values[0])

    def ratio(self, now: ScorePair, sent: Iterable[ScorePair], true: Iterable[ScorePair]) -> ScorePair:
        """Of a ratio as it was found, lies included: at most, down and up, from what a message may score
        and what may be true.

        Without the lies top and bottom lie in a polygon, and over it a ratio is extreme at a corner. Where
        the honest bottom may be 0 there is no bound.
        """
        top, bottom = now
        if not bottom > 0:
            return math.inf, math.inf
        found, eta = top / bottom, self.among
        true = list(true)
        corners = [(top - eta * (s - x), bottom - eta * (d - g)) for s, d in sent for x, g in true]
        if any(below <= 0 for _, below in corners):
            return math.inf, math.inf
        honest = [above / below for above, below in corners]
        return max(max(honest) - found, 0.0), max(found - min(honest), 0.0)
