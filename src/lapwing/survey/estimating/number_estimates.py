"""The mean of a number or date: scores, over those who answered.

The distribution of a number from a square wave: a histogram and quantiles.

The histogram is the most likely one (EM), which is slightly biased. Its intervals do not rest on it: they
are those of linear estimators that are exactly unbiased for every distribution.

Claim    for weights φ over messages with Σ φ(y) P(y|x) = c(x) for all x, the mean of φ is unbiased for the
         mean of c. With c above (below) the indicator of a bin, its interval bounds the bin's share from
         above (below). The weights do not depend on the reports.
Because  expectation is linear, and c <= indicator (or >=) at every x.
Test     tests/survey/estimating/test_distribution.py::test_weights_are_exactly_unbiased

The tables of a distribution: a histogram and quantiles, with intervals where honest ones are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.survey.estimating.adversarial_shift import AdversarialShift, ScorePair
from lapwing.survey.estimating.intervals import ConfidenceLevel
from lapwing.survey.estimating.results import EstimatedValue, EstimateTable, Interval, ValueUnit
from lapwing.survey.estimating.scores import Floats, ReportScores, ScoreLimits, ScoreSums
from lapwing.survey.questionnaire import NO_ANSWER, DateScale, NumberScale
from lapwing.survey.randomizers import DuchiResponse, HybridResponse, WindowResponse
from lapwing.survey.randomizers.randomizer import ODDS, Messages


class NumberScores(Protocol):
    """A randomizer of numbers."""

    @property
    def none(self) -> int: ...

    def scores(self, messages: Messages) -> Floats: ...

    def answered(self, messages: Messages) -> Floats: ...


@dataclass(frozen=True, slots=True)
class ValueRange:
    """From 0 .. 1 to the numbers of a question: value = low + range · t. Dates are days from `origin`."""

    low: float
    range: float
    unit: ValueUnit
    origin: date | None

    @classmethod
    def of(cls, coding: NumberScale | DateScale) -> ValueRange:
        if isinstance(coding, DateScale):
            return cls(0.0, float(coding.steps * coding.step), "date", coding.low)
        return cls(float(coding.low), float(coding.steps * coding.step), "number", None)

    def value(self, t: float) -> float:
        return self.low + self.range * t


def score_variance_of(randomizer: NumberScores) -> tuple[float, float, float, float]:
    """Var[score | x] = square t² + slope t + level, t = x / steps; and that of no answer."""
    match randomizer:
        case WindowResponse() | DuchiResponse():
            return randomizer.spread()
        case HybridResponse():
            far = randomizer.odds / ODDS
            one, other = randomizer.window.spread(), randomizer.duchi.spread()
            square, slope, level, silent = (
                far * w + (1 - far) * d for w, d in zip(one, other, strict=True)
            )
            return square, slope, level, silent
        case _:
            raise BadParameter("randomizer", "is none of numbers")


def number_scores(randomizer: NumberScores, messages: Messages) -> ReportScores:
    """Columns: x / steps, and whether there is no answer; over those who answered.

    E[score²|x] = (square + 1) t² + slope t + level, so t² has an unbiased score where square > -1. It is
    -1 for Duchi's method: messages tell nothing about t², and the noise's variance cannot be estimated.
    """
    score, answered = randomizer.scores(messages), randomizer.answered(messages)
    square, slope, level, silent = score_variance_of(randomizer)
    squares = None
    if square > -1 + 1e-9:
        known = slope * score + level * answered + silent * (1 - answered)
        squares = ((score**2 - known) / (square + 1))[:, None]
    return ReportScores(score[:, None], answered, squares)


def no_answer_scores(randomizer: NumberScores, messages: Messages) -> ReportScores:
    """The share of no answer, over all."""
    silent = (1 - randomizer.answered(messages))[:, None]
    return ReportScores(silent, np.ones(len(silent)), silent)


def score_corners(randomizer: NumberScores) -> list[ScorePair]:
    """The extreme pairs of score and answered score over all messages: exact."""
    match randomizer:
        case WindowResponse():
            ends = np.array([0, randomizer.numbers - 1, randomizer.messages - 1])
            return _pairs(randomizer, ends)
        case DuchiResponse():
            return _pairs(randomizer, np.arange(2 + randomizer.none))
        case HybridResponse():
            far = score_corners(randomizer.window) if randomizer.odds else []
            return far + (score_corners(randomizer.duchi) if randomizer.odds < ODDS else [])
        case _:
            raise BadParameter("randomizer", "is none of numbers")


def _pairs(randomizer: NumberScores, messages: Messages) -> list[ScorePair]:
    return list(
        zip(randomizer.scores(messages).tolist(), randomizer.answered(messages).tolist(), strict=True)
    )


def mean_table(
    randomizer: NumberScores,
    sums: ScoreSums,
    scale: ValueRange,
    level: ConfidenceLevel,
    liars: AdversarialShift,
    *,
    total: int,
    weight: ScorePair = (1.0, 1.0),
) -> EstimateTable:
    """The mean of those who answered; `weight` is the least and greatest score of being in the group."""
    value = sums.moments(0).value
    now = sums.moments(0)
    true = [(0.0, 1.0), (1.0, 1.0)] + ([(0.0, 0.0)] if randomizer.none or weight[0] < 1 else [])
    sent = [(s * w, d * w) for s, d in score_corners(randomizer) for w in weight]
    down, up = liars.ratio((now.top, now.bottom), sent, true)
    limits = ScoreLimits(0.0, 1.0, *(max(side) - min(side) for side in zip(*sent, strict=True)))
    found = [_scaled(sums.interval(0, level, limits, total=of), scale) for of in (total, None)]
    estimate = EstimatedValue(
        "mean",
        scale.value(value),
        min(max(scale.value(value), scale.low), scale.low + scale.range),
        found[0],
        found[1],
        (down * scale.range, up * scale.range),
    )
    return EstimateTable(
        "mean", scale.unit, (estimate,), "Of those who answered." * randomizer.none, scale.origin
    )


def _scaled(interval: Interval, scale: ValueRange) -> Interval:
    return Interval(scale.value(interval.low), scale.value(interval.high), interval.error * scale.range)


def no_answer_table(
    randomizer: NumberScores,
    sums: ScoreSums,
    level: ConfidenceLevel,
    liars: AdversarialShift,
    *,
    total: int,
) -> EstimateTable:
    """The share of no answer."""
    value = sums.moments(0).value
    silent = [1 - answered for _, answered in score_corners(randomizer)]
    limits = ScoreLimits(0.0, 1.0, max(silent) - min(silent), 0.0)
    found = [sums.interval(0, level, limits, total=of) for of in (total, None)]
    lies = liars.mean((min(silent), max(silent)), (0.0, 1.0))
    estimate = EstimatedValue(NO_ANSWER, value, min(max(value, 0.0), 1.0), found[0], found[1], lies)
    return EstimateTable("share", "share", (estimate,))


FloatArray = NDArray[np.float64]
MOST_BINS, LEAST_BINS = 40, 5
MOST_LINEAR_STEPS = 1024  # beyond, no intervals: the weights would take too long
EM_ROUNDS, EM_STILL = 2_000, 1e-7
RAMP_SHARES = (0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 3 / 16)  # of the range


@dataclass(frozen=True)
class SquareWaveCounts:
    """A square wave and how often each of its messages came."""

    window: WindowResponse
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

    def forward(self, shares: FloatArray) -> FloatArray:
        """The probability of every message if answers have these shares."""
        low, gap = self.levels
        steps = np.zeros(self.window.messages + 1)
        np.add.at(steps, self.starts, shares)
        np.add.at(steps, self.starts + self.window.width, -shares)
        found: FloatArray = low * shares.sum() + gap * np.cumsum(steps)[:-1]
        return found

    def backward(self, weights: FloatArray) -> FloatArray:
        """For every answer the expectation of weights over its messages."""
        low, gap = self.levels
        sums = np.concatenate([[0.0], np.cumsum(weights)])
        found: FloatArray = low * sums[-1] + gap * (
            sums[self.starts + self.window.width] - sums[self.starts]
        )
        return found

    def bins(self) -> NDArray[np.int64]:
        """Where bins of answers begin, and the end: as many as the reports can tell apart."""
        codes = self.window.steps + 1
        stray = float(self.window.unlikely * self.window.share)
        informative = self.n * (float(self.window.truth) - stray) ** 2
        count = min(codes, MOST_BINS, max(LEAST_BINS, round(informative ** (1 / 3))))
        return np.unique(np.linspace(0, codes, count + 1).round().astype(np.int64))

    def most_likely(self, edges: NDArray[np.int64]) -> tuple[FloatArray, float]:
        """Shares of the bins, and of no answer, by EM. Inside a bin all answers count alike."""
        starts = np.concatenate([edges[:-1], [edges[-1]] * self.window.none]).astype(np.int64)
        sizes = np.diff(np.concatenate([starts, [self.window.inputs]])).astype(np.float64)
        shares = sizes / sizes.sum()
        observed = self.counts / max(self.n, 1)
        for _ in range(EM_ROUNDS):
            seen = self.forward(np.repeat(shares / sizes, sizes.astype(np.int64)))
            gain = np.add.reduceat(self.backward(observed / seen), starts) / sizes
            better = shares * gain
            better /= better.sum()
            moved = float(np.abs(better - shares).max())
            shares = better
            if moved < EM_STILL:
                break
        return (shares[:-1], float(shares[-1])) if self.window.none else (shares, 0.0)


@dataclass(frozen=True)
class LinearEstimators:
    """Unbiased linear estimators from the messages of a square wave."""

    waves: SquareWaveCounts

    @cached_property
    def _inverse(self) -> tuple[FloatArray, FloatArray]:
        """The law of every answer's messages over that of all answers alike, and their Gram matrix."""
        window = self.waves.window
        low, gap = self.waves.levels
        law = np.full((window.inputs, window.messages), low)
        for row, start in zip(law, self.waves.starts.tolist(), strict=True):
            row[start : start + window.width] += gap
        even = law.mean(axis=0)
        return law / even, (law / even) @ law.T

    def weights(self, functions: FloatArray) -> FloatArray:
        """φ with Σ φ(y) P(y|x) = f(x), one column a function: least variance if answers are all alike."""
        over, gram = self._inverse
        found: FloatArray = over.T @ np.linalg.solve(gram, functions)
        return found

    def mean_and_error(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of the weights over the reports; the error is that for the population."""
        counts, n = self.waves.counts, self.waves.n
        mean = counts @ weights / n
        variance = (counts @ weights**2 / n - mean**2) / max(n - 1, 1)
        return mean, np.sqrt(np.maximum(variance, 0.0))

    def ends(self, weights: FloatArray, level: ConfidenceLevel) -> tuple[FloatArray, FloatArray]:
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
        slopes = sorted({round(part * window.steps) for part in RAMP_SHARES})
        weights = self.weights(np.stack([self.inner(0, middle, slope) for slope in slopes], axis=1))
        even = self.waves.forward(np.full(window.inputs, 1 / window.inputs))
        errors = np.sqrt(np.maximum(even @ weights**2 - (even @ weights) ** 2, 0.0) / max(self.waves.n, 1))
        cost = [2 * error + slope / window.inputs / 2 for error, slope in zip(errors, slopes, strict=True)]
        return slopes[int(np.argmin(cost))]

    def inner(self, first: int, end: int, slope: int) -> FloatArray:
        """At most the indicator of first <= x < end, rising over `slope` answers at each inner end."""
        last = self.waves.window.steps + 1
        x = np.arange(last)
        rise = np.ones(last) if first <= 0 else np.clip((x - first + 1) / (slope + 1), 0, 1)
        fall = np.ones(last) if end >= last else np.clip((end - x) / (slope + 1), 0, 1)
        found = np.where((x >= first) & (x < end), np.minimum(rise, fall), 0.0)
        return np.concatenate([found, np.zeros(self.waves.window.none)])

    def outer(self, first: int, end: int, slope: int) -> FloatArray:
        """At least that indicator: the same, outside of it."""
        last = self.waves.window.steps + 1
        x = np.arange(last)
        rise = np.ones(last) if first <= 0 else np.clip((x - first + 1 + slope) / (slope + 1), 0, 1)
        fall = np.ones(last) if end >= last else np.clip((end + slope - x) / (slope + 1), 0, 1)
        return np.concatenate([np.minimum(rise, fall), np.zeros(self.waves.window.none)])

    def bounds(
        self, ranges: list[tuple[int, int]], level: ConfidenceLevel
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Lower and upper ends of the shares of answers in these ranges, and the greater standard error."""
        under = self.weights(np.stack([self.inner(*ends, self.ramp) for ends in ranges], axis=1))
        over = self.weights(np.stack([self.outer(*ends, self.ramp) for ends in ranges], axis=1))
        lows, highs = np.clip(self.ends(under, level)[0], 0, 1), np.clip(self.ends(over, level)[1], 0, 1)
        errors = np.maximum(self.mean_and_error(under)[1], self.mean_and_error(over)[1])
        return np.minimum(lows, highs), highs, errors

    @cached_property
    def _sides(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Weights for a bound of the share <= x from above and of < x from below, and for answering."""
        window = self.waves.window
        codes = range(window.steps + 1)
        at_most = self.weights(np.stack([self.outer(0, x + 1, self.ramp) for x in codes], axis=1))
        below = self.weights(np.stack([self.inner(0, x, self.ramp) for x in codes], axis=1))
        answered = np.concatenate([np.ones(window.steps + 1), np.zeros(window.none)])
        return at_most, below, self.weights(answered[:, np.newaxis])

    def quantile(self, part: float, level: ConfidenceLevel) -> tuple[int, int]:
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


def histogram_quantile(shares: FloatArray, edges: NDArray[np.int64], part: float) -> float:
    """Where the histogram reaches `part`, in answers, all answers of a bin alike."""
    sums = np.concatenate([[0.0], np.cumsum(shares)])
    place = float(np.interp(part * sums[-1], sums, edges)) - 0.5
    return min(max(place, 0.0), float(edges[-1] - 1))


QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
_HOLDS = (
    "Intervals are those of unbiased estimators for the population; for these respondents they hold, too."
)
_FINE = "No intervals: the steps are too fine."


def distribution_tables(
    window: WindowResponse,
    counts: NDArray[np.int64],
    coding: NumberScale | DateScale,
    level: ConfidenceLevel,
) -> tuple[EstimateTable, EstimateTable]:
    """The most likely histogram, and quantiles of it."""
    waves = SquareWaveCounts(window, counts)
    edges = waves.bins()
    shares, _ = waves.most_likely(edges)
    linear = LinearEstimators(waves) if window.steps < MOST_LINEAR_STEPS else None
    ranges = [(int(first), int(end)) for first, end in pairwise(edges)]
    ends: list[Interval | None] = [None] * len(ranges)
    if linear is not None:
        ends = [
            Interval(float(low), float(high), float(error))
            for low, high, error in zip(*linear.bounds(ranges, level), strict=True)
        ]
    bins = tuple(
        EstimatedValue(_label(coding, *inside), float(share), float(share), interval, interval)
        for inside, share, interval in zip(ranges, shares, ends, strict=True)
    )
    note = f"The most likely histogram; shares are of all. {_FINE if linear is None else _HOLDS}"
    places = [histogram_quantile(shares, edges, part) for part in QUANTILES]
    return EstimateTable("histogram", "share", bins, note), _quantiles(places, linear, coding, level)


def _label(coding: NumberScale | DateScale, first: int, end: int) -> str:
    return coding.said(first) if end - first == 1 else f"{coding.said(first)} to {coding.said(end - 1)}"


def _quantiles(
    places: list[float],
    linear: LinearEstimators | None,
    coding: NumberScale | DateScale,
    level: ConfidenceLevel,
) -> EstimateTable:
    scale, found = ValueRange.of(coding), []
    for part, place in zip(QUANTILES, places, strict=True):
        value, interval = scale.value(place / coding.steps), None
        if linear is not None:
            first, last = linear.quantile(part, level)
            low, high = scale.value(first / coding.steps), scale.value(last / coding.steps)
            interval = Interval(low, high, float("nan"))
        found.append(EstimatedValue(f"{100 * part:g} %", value, value, interval, interval))
    note = "So many percent of those who answered are at or below."
    return EstimateTable("quantiles", scale.unit, tuple(found), note, scale.origin)
