"""The mean and the distribution of a number or date.

The mean is that of scores, over those who answered. A distribution comes from a square wave: a histogram
and quantiles. The histogram is the most likely one (EM), which is slightly biased. Its intervals do not
rest on it: they are those of linear estimators that are exactly unbiased for every distribution.

Claim    for weights φ over messages with Σ φ(y) P(y|x) = c(x) for all x, the mean of φ is unbiased for the
         mean of c. With c above (below) the indicator of a bin, its interval bounds the bin's share from
         above (below). The weights do not depend on the reports.
Because  expectation is linear, and c <= indicator (or >=) at every x.
Test     tests/survey/estimating/test_number_estimates_distribution.py::test_weights_are_exactly_unbiased
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.survey.estimating.intervals import ConfidenceLevel
from lapwing.survey.estimating.results import EstimatedValue, EstimateTable, Interval, ValueUnit
from lapwing.survey.estimating.scores import (
    EstimationTerms,
    Floats,
    QuestionCollector,
    ReportScores,
    ScoreLimits,
    ScorePair,
    ScoreSums,
)
from lapwing.survey.questionnaire import NO_ANSWER, DateScale, NumberScale
from lapwing.survey.randomizers import DuchiResponse, HybridResponse, NumericRandomizer, WindowResponse
from lapwing.survey.randomizers.randomizer import Messages


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The map from 0 .. 1 to a question's values: low + range · t. Dates are days from `origin`."""

    low: float
    range: float
    unit: ValueUnit
    origin: date | None

    @classmethod
    def of(cls, coding: NumberScale | DateScale) -> ValueRange:
        """Return the range of a question's scale."""
        if isinstance(coding, DateScale):
            return cls(0.0, float(coding.steps * coding.step), "date", coding.low)
        return cls(float(coding.low), float(coding.steps * coding.step), "number", None)

    def value(self, t: float) -> float:
        """Return the value of a part t of the range."""
        return self.low + self.range * t

    def scaled(self, estimate: EstimatedValue) -> EstimatedValue:
        """Return an estimate in 0 .. 1, with its intervals and shift, as one of the question's values."""

        def interval(share_interval: Interval | None) -> Interval | None:
            if share_interval is None:
                return None
            return Interval(
                self.value(share_interval.low),
                self.value(share_interval.high),
                share_interval.error * self.range,
            )

        return EstimatedValue(
            estimate.label,
            self.value(estimate.value),
            None if estimate.fitted is None else self.value(estimate.fitted),
            interval(estimate.respondents),
            interval(estimate.population),
            estimate.adversarial_shift
            and (estimate.adversarial_shift[0] * self.range, estimate.adversarial_shift[1] * self.range),
        )


def number_scores(randomizer: NumericRandomizer, messages: Messages) -> ReportScores:
    """Return the scores of x / steps, over those who answered.

    E[score²|x] = (square + 1) t² + slope t + level, so t² has an unbiased score where square > -1. For
    Duchi's method it is -1: messages say nothing about t², and the noise's variance cannot be estimated.
    """
    score, answered = randomizer.scores(messages), randomizer.answered(messages)
    square, slope, level, silent = randomizer.spread()
    squares = None
    if square > -1 + 1e-9:
        known = slope * score + level * answered + silent * (1 - answered)
        squares = ((score**2 - known) / (square + 1))[:, None]
    return ReportScores(score[:, None], answered, squares)


def no_answer_scores(randomizer: NumericRandomizer, messages: Messages) -> ReportScores:
    """Return the scores of "no answer", over all."""
    silent = (1 - randomizer.answered(messages))[:, None]
    return ReportScores(silent, np.ones(len(silent)), silent)


def score_corners(randomizer: NumericRandomizer) -> list[ScorePair]:
    """Return the extreme pairs of score and answered score over all messages: exact."""
    match randomizer:
        case WindowResponse():
            ends = np.array([0, randomizer.numbers - 1, randomizer.messages - 1])
            return _pairs(randomizer, ends)
        case DuchiResponse():
            return _pairs(randomizer, np.arange(randomizer.messages))
        case HybridResponse():
            return [pair for part in randomizer.parts.values() for pair in score_corners(part)]
        case _:
            raise BadParameter("randomizer", "is none of numbers")


def _pairs(randomizer: NumericRandomizer, messages: Messages) -> list[ScorePair]:
    return list(
        zip(randomizer.scores(messages).tolist(), randomizer.answered(messages).tolist(), strict=True)
    )


MOST_COUNTED_MESSAGES = 1 << 22  # of a square wave, counted one by one


class NumberCollector(QuestionCollector):
    """The collector of the mean of a number or date."""

    def __init__(self, randomizer: NumericRandomizer, coding: NumberScale | DateScale) -> None:
        self._randomizer, self._coding = randomizer, coding
        self._mean, self._silent = ScoreSums(1), ScoreSums(1)

    def add(self, messages: Messages, weight: Floats | None = None) -> None:
        """Add a block of messages."""
        self._mean.add(number_scores(self._randomizer, messages).times(weight))
        if self._randomizer.none and weight is None:
            self._silent.add(no_answer_scores(self._randomizer, messages))

    def tables(self, terms: EstimationTerms, weight: ScorePair | None = None) -> tuple[EstimateTable, ...]:
        """Return the mean, and over all the share of "no answer" where it is possible."""
        mean = self._mean_of_answers(terms, weight or (1.0, 1.0))
        if not self._randomizer.none or weight is not None:
            return (mean,)
        return mean, self._no_answer(terms)

    def _mean_of_answers(self, terms: EstimationTerms, weight: ScorePair) -> EstimateTable:
        """Return the mean of those who answered."""
        none, scale, now = self._randomizer.none, ValueRange.of(self._coding), self._mean.moments(0)
        true = [(0.0, 1.0), (1.0, 1.0)] + ([(0.0, 0.0)] if none or weight[0] < 1 else [])
        sent = [(s * w, d * w) for s, d in score_corners(self._randomizer) for w in weight]
        shift = terms.shift.ratio((now.top, now.bottom), sent, true)
        limits = ScoreLimits(0.0, 1.0, *(max(side) - min(side) for side in zip(*sent, strict=True)))
        mean = scale.scaled(self._mean.estimate(0, "mean", terms, limits, shift))
        return EstimateTable("mean", scale.unit, (mean,), "Of those who answered." * none, scale.origin)

    def _no_answer(self, terms: EstimationTerms) -> EstimateTable:
        """Return the share of "no answer"."""
        silent = [1 - answered for _, answered in score_corners(self._randomizer)]
        limits = ScoreLimits(0.0, 1.0, max(silent) - min(silent), 0.0)
        shift = terms.shift.mean((min(silent), max(silent)), (0.0, 1.0))
        return EstimateTable("share", "share", (self._silent.estimate(0, NO_ANSWER, terms, limits, shift),))


MOST_BINS, LEAST_BINS = 40, 5
MOST_LINEAR_STEPS = 1024  # beyond, no intervals: the weights would take too long
EM_ROUNDS, EM_STILL = 2_000, 1e-7
RAMP_SHARES = (0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 3 / 16)  # of the range


@dataclass(frozen=True)
class SquareWaveCounts:
    """A square wave and the counts of its messages."""

    window: WindowResponse
    counts: NDArray[np.int64]  # of every message

    @property
    def n(self) -> int:
        """The number of messages."""
        return int(self.counts.sum())

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first message of every answer's window, that of "no answer" last."""
        return self.window.start(np.arange(self.window.inputs))

    @cached_property
    def levels(self) -> tuple[float, float]:
        """The probability of a message outside the window, and the excess of one inside."""
        low = float(self.window.unlikely / self.window.messages)
        return low, float(self.window.likely / self.window.messages) - low

    def forward(self, shares: Floats) -> Floats:
        """Return the probability of every message if answers have these shares."""
        low, gap = self.levels
        steps = np.zeros(self.window.messages + 1)
        np.add.at(steps, self.starts, shares)
        np.add.at(steps, self.starts + self.window.width, -shares)
        probabilities: Floats = low * shares.sum() + gap * np.cumsum(steps)[:-1]
        return probabilities

    def backward(self, weights: Floats) -> Floats:
        """Return for every answer the expectation of weights over its messages."""
        low, gap = self.levels
        sums = np.concatenate([[0.0], np.cumsum(weights)])
        expectations: Floats = low * sums[-1] + gap * (
            sums[self.starts + self.window.width] - sums[self.starts]
        )
        return expectations

    def bins(self) -> NDArray[np.int64]:
        """Return the starts of the bins, and the end: as many bins as the reports can resolve."""
        codes = self.window.steps + 1
        stray = float(self.window.unlikely * self.window.share)
        informative = self.n * (float(self.window.truth) - stray) ** 2
        count = min(codes, MOST_BINS, max(LEAST_BINS, round(informative ** (1 / 3))))
        return np.unique(np.linspace(0, codes, count + 1).round().astype(np.int64))

    def most_likely(self, edges: NDArray[np.int64]) -> tuple[Floats, float]:
        """Return the shares of the bins and of "no answer", by EM. A bin is uniform."""
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
    def _inverse(self) -> tuple[Floats, Floats]:
        """Return the laws of messages over their mean law, one row per answer, and their Gram matrix."""
        window = self.waves.window
        low, gap = self.waves.levels
        law = np.full((window.inputs, window.messages), low)
        for row, start in zip(law, self.waves.starts.tolist(), strict=True):
            row[start : start + window.width] += gap
        even = law.mean(axis=0)
        return law / even, (law / even) @ law.T

    def weights(self, functions: Floats) -> Floats:
        """Return φ with Σ φ(y) P(y|x) = f(x), a column for each f.

        They have the least variance if all answers are equally likely.
        """
        over, gram = self._inverse
        return over.T @ np.linalg.solve(gram, functions)

    def mean_and_error(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return the mean of weights over the reports, and its standard error for the population."""
        counts, n = self.waves.counts, self.waves.n
        mean = counts @ weights / n
        variance = (counts @ weights**2 / n - mean**2) / max(n - 1, 1)
        return mean, np.sqrt(np.maximum(variance, 0.0))

    def ends(self, weights: Floats, level: ConfidenceLevel) -> tuple[Floats, Floats]:
        """Return intervals for the expectations of weights, with the level's risk on each side.

        Few reports may be equal by chance, and then show no variance. So, as for other means (`ScoreSums`),
        z² reports are added to the variance, half of them at each end of the weights, and both ends move
        outwards by half a report.
        """
        mean, error = self.mean_and_error(weights)
        n, span = self.waves.n, np.ptp(weights, axis=0)
        wider = np.sqrt(error**2 + (level.z * span / (2 * n)) ** 2)
        reach = level.t(n) * wider + span / (2 * n)
        return mean - reach, mean + reach

    @cached_property
    def ramp(self) -> int:
        """The number of answers of a slope: chosen from the coins and n alone, never from the reports."""
        window = self.waves.window
        middle = (window.steps + 1) // 2
        slopes = sorted({round(part * window.steps) for part in RAMP_SHARES})
        weights = self.weights(np.stack([self.inner(0, middle, slope) for slope in slopes], axis=1))
        even = self.waves.forward(np.full(window.inputs, 1 / window.inputs))
        errors = np.sqrt(np.maximum(even @ weights**2 - (even @ weights) ** 2, 0.0) / max(self.waves.n, 1))
        cost = [2 * error + slope / window.inputs / 2 for error, slope in zip(errors, slopes, strict=True)]
        return slopes[int(np.argmin(cost))]

    def inner(self, first: int, end: int, slope: int) -> Floats:
        """Return a function below the indicator of first <= x < end, with slopes inside of it."""
        return self._ramped(first, end, slope, reach=0)

    def outer(self, first: int, end: int, slope: int) -> Floats:
        """Return a function above the indicator of first <= x < end, with slopes outside of it."""
        return self._ramped(first, end, slope, reach=slope)

    def _ramped(self, first: int, end: int, slope: int, *, reach: int) -> Floats:
        """Return a function that rises to 1, and falls to 0 at `reach` answers outside of first .. end."""
        last = self.waves.window.steps + 1
        x = np.arange(last)
        rise = np.ones(last) if first <= 0 else np.clip((x - first + 1 + reach) / (slope + 1), 0, 1)
        fall = np.ones(last) if end >= last else np.clip((end + reach - x) / (slope + 1), 0, 1)
        return np.concatenate([np.minimum(rise, fall), np.zeros(self.waves.window.none)])

    def bounds(
        self, ranges: list[tuple[int, int]], level: ConfidenceLevel
    ) -> tuple[Floats, Floats, Floats]:
        """Return lower and upper ends of the shares of these ranges, and the greater standard error."""
        under = self.weights(np.stack([self.inner(*ends, self.ramp) for ends in ranges], axis=1))
        over = self.weights(np.stack([self.outer(*ends, self.ramp) for ends in ranges], axis=1))
        lows, highs = np.clip(self.ends(under, level)[0], 0, 1), np.clip(self.ends(over, level)[1], 0, 1)
        errors = np.maximum(self.mean_and_error(under)[1], self.mean_and_error(over)[1])
        return np.minimum(lows, highs), highs, errors

    @cached_property
    def _sides(self) -> tuple[Floats, Floats, Floats]:
        """Return weights that bound share(<= x) from above and share(< x) from below, and of answering."""
        window = self.waves.window
        codes = range(window.steps + 1)
        at_most = self.weights(np.stack([self.outer(0, x + 1, self.ramp) for x in codes], axis=1))
        below = self.weights(np.stack([self.inner(0, x, self.ramp) for x in codes], axis=1))
        answered = np.concatenate([np.ones(window.steps + 1), np.zeros(window.none)])
        return at_most, below, self.weights(answered[:, np.newaxis])

    def quantile(self, part: float, level: ConfidenceLevel) -> tuple[int, int]:
        """Return the first and last x that may be the quantile `part` of those who answered.

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


def histogram_quantile(shares: Floats, edges: NDArray[np.int64], part: float) -> float:
    """Return where the histogram reaches `part`, in answers. In a bin all answers are equally likely."""
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
    """Return the most likely histogram, and its quantiles."""
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
    low, high = coding.text_of(first), coding.text_of(end - 1)
    return low if end - first == 1 else f"{low} to {high}"


def _quantiles(
    places: list[float],
    linear: LinearEstimators | None,
    coding: NumberScale | DateScale,
    level: ConfidenceLevel,
) -> EstimateTable:
    scale, quantiles = ValueRange.of(coding), []
    for part, place in zip(QUANTILES, places, strict=True):
        value, interval = scale.value(place / coding.steps), None
        if linear is not None:
            first, last = linear.quantile(part, level)
            low, high = scale.value(first / coding.steps), scale.value(last / coding.steps)
            interval = Interval(low, high, float("nan"))
        quantiles.append(EstimatedValue(f"{100 * part:g} %", value, value, interval, interval))
    note = "So many percent of those who answered are at or below."
    return EstimateTable("quantiles", scale.unit, tuple(quantiles), note, scale.origin)


class WaveCollector(NumberCollector):
    """The collector of the mean and the distribution of a number or date."""

    def __init__(self, window: WindowResponse, coding: NumberScale | DateScale) -> None:
        super().__init__(window, coding)
        self._window = window
        size = window.messages if window.messages <= MOST_COUNTED_MESSAGES else 0
        self._counts = np.zeros(size, dtype=np.int64)

    def add(self, messages: Messages, weight: Floats | None = None) -> None:
        """Add a block of messages."""
        super().add(messages, weight)
        if len(self._counts):
            self._counts += np.bincount(messages, minlength=len(self._counts))

    def tables(self, terms: EstimationTerms, weight: ScorePair | None = None) -> tuple[EstimateTable, ...]:
        """Return the mean, the histogram and the quantiles."""
        tables = super().tables(terms, weight)
        if not len(self._counts):
            return tables
        return (*tables, *distribution_tables(self._window, self._counts, self._coding, terms.level))
