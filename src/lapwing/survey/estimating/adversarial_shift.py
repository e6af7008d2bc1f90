"""The adversarial shift (failure case P2): how far a declared fraction of respondents can move an estimate.

An adversary sends the possible message that moves the estimate most; impossible messages are refused. The
*honest value* is the estimate that the reports would give if every adversary had answered truthfully. Down
and up say how far the adversaries may have moved the estimate away from it.

Claim    the honest value lies in [found - up, found + down].
Because  with a fraction η of adversaries who score s instead of the truth x, a mean's honest value is
         found - η (s - x); for a ratio that holds of top and bottom. A mean reaches both ends.
Test     tests/survey/estimating/test_adversarial_shift.py::test_the_honest_ratio_is_always_within_reach
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from lapwing.survey.estimating.intervals import SupportChance

ScorePair = tuple[float, float]  # top and bottom of a ratio


@dataclass(frozen=True, slots=True)
class AdversarialShift:
    """The shift by a fraction of all respondents.

    Where a device draws one of `ways` questions or levels at random, adversaries choose theirs.
    """

    fraction: float
    ways: int = 1

    @property
    def among(self) -> float:
        """The fraction of adversaries among the reports to one question, if all choose that question."""
        honest = (1 - self.fraction) / self.ways
        return self.fraction / (self.fraction + honest) if self.fraction else 0.0

    def of(self, ways: int) -> AdversarialShift:
        """Return the shift where a report also draws one of `ways` more."""
        return AdversarialShift(self.fraction, self.ways * ways)

    def share(self, coin: SupportChance) -> ScorePair:
        """Return the shift of a share, down and up. Exact: a report supports the option, or does not."""
        return self.mean(coin.scores, (0.0, 1.0))

    def mean(self, scores: ScorePair, values: ScorePair) -> ScorePair:
        """Return the shift of a mean, down and up, from the least and greatest score and value. Exact."""
        return self.among * (values[1] - scores[0]), self.among * (scores[1] - values[0])

    def ratio(self, now: ScorePair, sent: Iterable[ScorePair], true: Iterable[ScorePair]) -> ScorePair:
        """Return bounds of the shift of a ratio as it was found, down and up.

        `sent` are the corners of possible scores (top, bottom), `true` those of possible true values. The
        honest top and bottom lie in a polygon, and over it a ratio is extreme at a corner. Where the honest
        bottom may be 0 there is no bound.
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
