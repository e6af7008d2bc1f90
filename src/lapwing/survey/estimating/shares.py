"""Shares from counts of supporting reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lapwing.survey.estimating.intervals import Coin, Level
from lapwing.survey.estimating.lies import Point
from lapwing.survey.estimating.results import Estimate, Interval
from lapwing.survey.estimating.simplex import projected


@dataclass(frozen=True, slots=True)
class Counted:
    """How many of n reports support each option, and how often they do by chance.

    `total` is how many respondents there are. Where it is more than n, their devices drew who answers this,
    and the interval for all of them has that drawing in it.
    """

    counts: NDArray[np.int64]
    n: int
    coin: Coin
    total: int

    def estimates(
        self, labels: Sequence[str], level: Level, lies: Point, *, whole: bool
    ) -> tuple[Estimate, ...]:
        """Unbiased shares with their intervals; `whole` if together they are 1."""
        shares = self.coin.share(self.counts, self.n)
        fitted = projected(shares) if whole else np.clip(shares, 0.0, 1.0)
        there = self.coin.for_population(self.counts, self.n, level)
        here = self.coin.for_respondents(self.counts, self.n, level, total=self.total)
        error = np.sqrt(self.coin.variance(shares, self.n))
        noise = np.sqrt(self.coin.noise_variance(shares, self.n, total=self.total))
        return tuple(
            Estimate(
                label,
                float(shares[i]),
                float(fitted[i]),
                Interval(float(here[0][i]), float(here[1][i]), float(noise[i])),
                Interval(float(there[0][i]), float(there[1][i]), float(error[i])),
                lies,
            )
            for i, label in enumerate(labels)
        )
