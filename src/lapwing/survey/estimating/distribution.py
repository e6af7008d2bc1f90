"""The distribution of a number from a square wave: a histogram and quantiles.

The histogram is the most likely one (EM), which is slightly biased. Its intervals do not rest on it: they
are those of linear estimators that are exactly unbiased for every distribution.

Claim    for weights φ over messages with Σ φ(y) P(y|x) = c(x) for all x, the mean of φ is unbiased for the
         mean of c. With c above (below) the indicator of a bin, its interval bounds the bin's share from
         above (below). The weights do not depend on the reports.
Because  expectation is linear, and c <= indicator (or >=) at every x.
Test     tests/survey/estimating/test_distribution.py::test_weights_are_exactly_unbiased
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lapwing.survey.estimating.intervals import Level
from lapwing.survey.randomizers import Window

Floats = NDArray[np.float64]
MOST_BINS, LEAST_BINS = 40, 5
STEPS_AT_MOST = 1024  # beyond, no intervals: the weights would take too long
ROUNDS, STILL = 2_000, 1e-7
RAMPS = (0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 3 / 16)  # of the range


@dataclass(frozen=True)
class Waves:
    """A square wave and how often each of its messages came."""

    window: Window
    counts: NDArray[np.int64]  # of every message

    @property
    def n(self) -> int:
        return int(self.counts.sum())

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where the window of every answer begins, that of no answer last."""
        return self.window.start(np.arange(self.window.inputs))

    @cached_property
    def levels(self) -> tuple[float, float]:
        """The probability of a message outside the window, and how much more it is inside."""
        low = float(self.window.unlikely / self.window.messages)
        return low, float(self.window.likely / self.window.messages) - low

    def forward(self, shares: Floats) -> Floats:
        """The probability of every message if answers have these shares."""
        low, gap = self.levels
        steps = np.zeros(self.window.messages + 1)
        np.add.at(steps, self.starts, shares)
        np.add.at(steps, self.starts + self.window.width, -shares)
        found: Floats = low * shares.sum() + gap * np.cumsum(steps)[:-1]
        return found

    def backward(self, weights: Floats) -> Floats:
        """For every answer the expectation of weights over its messages."""
        low, gap = self.levels
        sums = np.concatenate([[0.0], np.cumsum(weights)])
        found: Floats = low * sums[-1] + gap * (sums[self.starts + self.window.width] - sums[self.starts])
        return found

    def bins(self) -> NDArray[np.int64]:
        """Where bins of answers begin, and the end: as many as the reports can tell apart."""
        codes = self.window.steps + 1
        stray = float(self.window.unlikely * self.window.share)
        informative = self.n * (float(self.window.truth) - stray) ** 2
        count = min(codes, MOST_BINS, max(LEAST_BINS, round(informative ** (1 / 3))))
        return np.unique(np.linspace(0, codes, count + 1).round().astype(np.int64))

    def most_likely(self, edges: NDArray[np.int64]) -> tuple[Floats, float]:
        """Shares of the bins, and of no answer, by EM. Inside a bin all answers count alike."""
        starts = np.concatenate([edges[:-1], [edges[-1]] * self.window.none]).astype(np.int64)
        sizes = np.diff(np.concatenate([starts, [self.window.inputs]])).astype(np.float64)
        shares = sizes / sizes.sum()
        observed = self.counts / max(self.n, 1)
        for _ in range(ROUNDS):
            seen = self.forward(np.repeat(shares / sizes, sizes.astype(np.int64)))
            gain = np.add.reduceat(self.backward(observed / seen), starts) / sizes
            better = shares * gain
            better /= better.sum()
            moved = float(np.abs(better - shares).max())
            shares = better
            if moved < STILL:
                break
        return (shares[:-1], float(shares[-1])) if self.window.none else (shares, 0.0)


@dataclass(frozen=True)
class Linear:
    """Unbiased linear estimators from the messages of a square wave."""

    waves: Waves

    @cached_property
    def _inverse(self) -> tuple[Floats, Floats]:
        """The law of every answer's messages over that of all answers alike, and their Gram matrix."""
        window = self.waves.window
        low, gap = self.waves.levels
        law = np.full((window.inputs, window.messages), low)
        for row, start in zip(law, self.waves.starts.tolist(), strict=True):
            row[start : start + window.width] += gap
        even = law.mean(axis=0)
        return law / even, (law / even) @ law.T

    def weights(self, functions: Floats) -> Floats:
        """φ with Σ φ(y) P(y|x) = f(x), one column a function: least variance if answers are all alike."""
        over, gram = self._inverse
        found: Floats = over.T @ np.linalg.solve(gram, functions)
        return found

    def mean_and_error(self, weights: Floats) -> tuple[Floats, Floats]:
        """Of the weights over the reports; the error is that for the population."""
        counts, n = self.waves.counts, self.waves.n
        mean = counts @ weights / n
        variance = (counts @ weights**2 / n - mean**2) / max(n - 1, 1)
        return mean, np.sqrt(np.maximum(variance, 0.0))

    def ends(self, weights: Floats, level: Level) -> tuple[Floats, Floats]:
        """Of the expectations of weights: what lies below and above with the level's risk on each side.

        Few reports may be alike by chance, and then show no variance. So, as for other means (`Sums`), the
        variance is that of z² more reports, half of them at each end of the weights; and half a report is
        to spare.
        """
        mean, error = self.mean_and_error(weights)
        n, span = self.waves.n, np.ptp(weights, axis=0)
        wider = np.sqrt(error**2 + (level.z * span / (2 * n)) ** 2)
        reach = level.t(n) * wider + span / (2 * n)
        return mean - reach, mean + reach

    @cached_property
    def ramp(self) -> int:
        """How many answers a slope takes: chosen from the coins and n alone, never from what was sent."""
        window = self.waves.window
        middle = (window.steps + 1) // 2
        slopes = sorted({round(part * window.steps) for part in RAMPS})
        weights = self.weights(np.stack([self.inner(0, middle, slope) for slope in slopes], axis=1))
        even = self.waves.forward(np.full(window.inputs, 1 / window.inputs))
        errors = np.sqrt(np.maximum(even @ weights**2 - (even @ weights) ** 2, 0.0) / max(self.waves.n, 1))
        cost = [2 * error + slope / window.inputs / 2 for error, slope in zip(errors, slopes, strict=True)]
        return slopes[int(np.argmin(cost))]

    def inner(self, first: int, end: int, slope: int) -> Floats:
        """At most the indicator of first <= x < end, rising over `slope` answers at each inner end."""
        last = self.waves.window.steps + 1
        x = np.arange(last)
        rise = np.ones(last) if first <= 0 else np.clip((x - first + 1) / (slope + 1), 0, 1)
        fall = np.ones(last) if end >= last else np.clip((end - x) / (slope + 1), 0, 1)
        found = np.where((x >= first) & (x < end), np.minimum(rise, fall), 0.0)
        return np.concatenate([found, np.zeros(self.waves.window.none)])

    def outer(self, first: int, end: int, slope: int) -> Floats:
        """At least that indicator: the same, outside of it."""
        last = self.waves.window.steps + 1
        x = np.arange(last)
        rise = np.ones(last) if first <= 0 else np.clip((x - first + 1 + slope) / (slope + 1), 0, 1)
        fall = np.ones(last) if end >= last else np.clip((end + slope - x) / (slope + 1), 0, 1)
        return np.concatenate([np.minimum(rise, fall), np.zeros(self.waves.window.none)])

    def bounds(self, ranges: list[tuple[int, int]], level: Level) -> tuple[Floats, Floats, Floats]:
        """Lower and upper ends of the shares of answers in these ranges, and the greater standard error."""
        under = self.weights(np.stack([self.inner(*ends, self.ramp) for ends in ranges], axis=1))
        over = self.weights(np.stack([self.outer(*ends, self.ramp) for ends in ranges], axis=1))
        lows, highs = np.clip(self.ends(under, level)[0], 0, 1), np.clip(self.ends(over, level)[1], 0, 1)
        errors = np.maximum(self.mean_and_error(under)[1], self.mean_and_error(over)[1])
        return np.minimum(lows, highs), highs, errors

    @cached_property
    def _sides(self) -> tuple[Floats, Floats, Floats]:
        """Weights for a bound of the share <= x from above and of < x from below, and for answering."""
        window = self.waves.window
        codes = range(window.steps + 1)
        at_most = self.weights(np.stack([self.outer(0, x + 1, self.ramp) for x in codes], axis=1))
        below = self.weights(np.stack([self.inner(0, x, self.ramp) for x in codes], axis=1))
        answered = np.concatenate([np.ones(window.steps + 1), np.zeros(window.none)])
        return at_most, below, self.weights(answered[:, np.newaxis])

    def quantile(self, part: float, level: Level) -> tuple[int, int]:
        """All x at which the share below may be `part` of those who answered: from the first to the last.

        A quantile x has share(<= x) >= part >= share(< x). Each side is tested by a linear function of the
        answers: that share less `part` of those who answered.
        """
        at_most, below, answered = self._sides
        steps = self.waves.window.steps
        reaches = np.flatnonzero(self.ends(at_most - part * answered, level)[1] >= 0)
        allowed = np.flatnonzero(self.ends(below - part * answered, level)[0] <= 0)
        first = int(reaches[0]) if len(reaches) else steps
        last = int(allowed[-1]) if len(allowed) else 0
        return min(first, last), max(first, last)


def quantile_of(shares: Floats, edges: NDArray[np.int64], part: float) -> float:
    """Where the histogram reaches `part`, in answers, all answers of a bin alike."""
    sums = np.concatenate([[0.0], np.cumsum(shares)])
    place = float(np.interp(part * sums[-1], sums, edges)) - 0.5
    return min(max(place, 0.0), float(edges[-1] - 1))
