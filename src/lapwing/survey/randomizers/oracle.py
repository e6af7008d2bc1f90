"""What all randomizers that estimate shares have in common: the estimate's variance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.survey.randomizers.wire import checked_answers


class Shares(ABC):
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
    """The formula of `Shares`."""
    gap = (inside - outside) ** 2
    held, other = inside * (1 - inside) / gap, outside * (1 - outside) / gap
    return share * float(held) + (1 - share) * float(other)
