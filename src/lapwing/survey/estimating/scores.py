"""Scores of reports, and their running sums: all that means, ratios and their intervals need.

A score is a number per report whose expectation, given the answer x, is f(x). `top` has the scores of
several functions f. `bottom` has those of an indicator (has answered, is in the group) outside of which
every f is 0. `square` has those of f².

Claim    `moments(j)` estimates the variance of both means over reports drawn from a population; with
         `total`, over the coins and over which of `total` fixed respondents were drawn: both unbiased.
Because  for fixed answers Var Σ top = Σ E[top²|x] - Σ f(x)², of which Σ top² and Σ square are unbiased
         estimates; for bottom² the indicator is its own square, and f times the indicator is f. The rest
         of the whole variance is that of drawing n; drawn without replacement from `total`, 1 - n/total
         of it is left.
Test     tests/survey/estimating/test_scores_sums.py::test_both_variances_are_unbiased
         tests/survey/estimating/test_scores_sums.py::test_the_variance_for_those_who_were_drawn_is_unbiased

A rating's mean, a mean rank and a share of sets are linear functions of an answer.

Claim    with F the values of f, the score (Σ F(v) over supported v - outside ΣF) / (inside - outside) of a
         report has expectation f(x) if x is the answer.
Because  option v is supported with chance `inside` if x = v, else with `outside`.
Test     tests/survey/estimating/test_scores_functions.py::test_scores_have_the_function_as_expectation

The adversarial shift (failure case P2) is how far a declared fraction of respondents can move an estimate.
An adversary sends the possible message that moves the estimate most; impossible messages are refused. The
*honest value* is the estimate that the reports would give if every adversary had answered truthfully. Down
and up say how far the adversaries may have moved the estimate away from it.

Claim    the honest value lies in [found - up, found + down].
Because  with a fraction η of adversaries who score s instead of the truth x, a mean's honest value is
         found - η (s - x); for a ratio that holds of top and bottom. A mean reaches both ends.
Test     tests/survey/estimating/test_scores_adversaries.py::test_the_honest_ratio_is_always_within_reach
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.survey.estimating.intervals import (
    ConfidenceLevel,
    RatioMoments,
    SupportChance,
    support_chance_of,
    without_rounding,
)
from lapwing.survey.estimating.results import EstimatedValue, EstimateTable, Interval, ValueUnit
from lapwing.survey.questionnaire import OneOf, Question, Ranked, Several
from lapwing.survey.randomizers import (
    BitwiseResponse,
    FrequencyOracle,
    HadamardResponse,
    KaryResponse,
    ProjectiveResponse,
    SubsetSelection,
    UnaryEncoding,
)
from lapwing.survey.randomizers.randomizer import Messages

Floats = NDArray[np.float64]
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
        observed, eta = top / bottom, self.among
        true = list(true)
        corners = [(top - eta * (s - x), bottom - eta * (d - g)) for s, d in sent for x, g in true]
        if any(below <= 0 for _, below in corners):
            return math.inf, math.inf
        honest = [above / below for above, below in corners]
        return max(max(honest) - observed, 0.0), max(observed - min(honest), 0.0)


@dataclass(frozen=True, slots=True)
class EstimationTerms:
    """The terms of all estimates: the confidence, the adversarial shift, and the number of respondents."""

    level: ConfidenceLevel
    shift: AdversarialShift
    total: int  # of whom some were asked a question


@dataclass(frozen=True, slots=True)
class ReportScores:
    """The scores of some reports: a row for each report, a column for each function.

    `square` is None where f² cannot be estimated.
    """

    top: Floats
    bottom: Floats
    square: Floats | None

    def times(self, weight: Floats | None) -> ReportScores:
        """Return the scores within a group. `weight` has the scores of being in it; None: all are."""
        if weight is None:
            return self
        by = weight[:, None]
        square = None if self.square is None else self.square * by
        return ReportScores(self.top * by, self.bottom * weight, square)

    def of_all(self) -> ReportScores:
        """Return the same tops over all reports, not as a ratio."""
        return ReportScores(self.top, np.ones(len(self.top)), self.square)


@dataclass(frozen=True, slots=True)
class ScoreLimits:
    """The bounds of a mean, and the distance between the least and greatest score of top and bottom."""

    low: float
    high: float
    top_span: float
    bottom_span: float


class ScoreSums:
    """Running sums of scores over n reports."""

    def __init__(self, columns: int) -> None:
        self.n = 0
        self._has_squares = True
        self._top, self._top2, self._both, self._square = (np.zeros(columns) for _ in range(4))
        self._bottom = self._bottom2 = 0.0

    def add(self, scores: ReportScores) -> None:
        """Add the scores of more reports."""
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

    def moments(self, column: int, *, total: int | None = None) -> RatioMoments:
        """Return the moments of a function's mean, for the population or for `total` respondents.

        n of the `total` respondents were drawn. Where the noise alone cannot be estimated, the whole
        variance is returned.
        """
        n, a, b = self.n, float(self._top[column]), self._bottom
        top2, both, bottom2 = float(self._top2[column]), float(self._both[column]), self._bottom2
        pairs = n * max(n - 1, 1)
        whole = RatioMoments(
            a / n,
            b / n,
            max(without_rounding(top2 - a * a / n, top2) / pairs, 0.0),
            max(without_rounding(bottom2 - b * b / n, bottom2) / pairs, 0.0),
            without_rounding(both - a * b / n, abs(both)) / pairs,
        )
        if total is None or not self._has_squares:
            return whole
        square = float(self._square[column])
        noise = RatioMoments(a / n, b / n, (top2 - square) / n**2, (bottom2 - b) / n**2, (both - a) / n**2)
        # With few reports the estimate may be impossible: then the whole variance is on the safe side.
        return noise.mixed(whole, 1 - n / total) if noise.within(whole) else whole

    def interval(
        self, column: int, level: ConfidenceLevel, limits: ScoreLimits, *, total: int | None = None
    ) -> Interval:
        """Return Fieller's interval within the limits.

        Few reports may be equal by chance, and scores may have few values. So, as in Wilson's interval for
        shares, z² reports are added to the variance, half of them at each end of possible scores, and both
        ends move outwards by half a report.
        """
        if self.n < 2:
            return Interval(limits.low, limits.high, np.nan)
        moments = self.moments(column, total=total)
        more = level.z**2 / (4 * self.n**2)
        wider = moments.wider(more * limits.top_span**2, more * limits.bottom_span**2)
        spare = limits.top_span / (2 * self.n)
        return Interval(*wider.interval(level.t(self.n), limits.low, limits.high, spare), moments.error())

    def estimate(
        self, column: int, label: str, terms: EstimationTerms, limits: ScoreLimits, shift: ScorePair
    ) -> EstimatedValue:
        """Return a function's mean with its intervals, and the adversarial shift beside it."""
        value = self.moments(column).value
        return EstimatedValue(
            label,
            value,
            min(max(value, limits.low), limits.high),
            self.interval(column, terms.level, limits, total=terms.total),
            self.interval(column, terms.level, limits),
            shift,
        )


class QuestionCollector(ABC):
    """The sums of one question: it takes messages, block by block, and makes the tables."""

    @abstractmethod
    def add(self, messages: Messages, weight: Floats | None = None) -> None:
        """Add a block of messages. `weight` has the scores of being in a group; None: everybody is in."""

    @abstractmethod
    def tables(self, terms: EstimationTerms, weight: ScorePair | None = None) -> tuple[EstimateTable, ...]:
        """Return the tables of all messages.

        `weight` is the least and the greatest score of being in the group; None: everybody is in.
        """


CELLS = 1 << 22  # of a table of reports by options, at once


@dataclass(frozen=True, slots=True)
class AnswerFunctions:
    """Functions of the answer: `values` has a row for each option and a column for each function.

    All functions are 0 for "no answer". `of` says over whom they are averaged: "all", or those who
    "answered".
    """

    title: str
    labels: tuple[str, ...]
    values: Floats
    none: int | None  # the option of "no answer"
    of: str
    low: float = 0.0
    high: float = 1.0
    unit: ValueUnit = "share"
    note: str = ""

    def scores(self, oracle: FrequencyOracle, messages: Messages) -> ReportScores:
        """Return the scores of messages, a row for each."""
        scored = function_scores(oracle, messages, np.hstack([self.values, self.values**2]))
        width = len(self.labels)
        bottom = np.ones(len(messages))
        if self.of == "answered" and self.none is not None:
            bottom -= option_scores(oracle, messages, self.none)
        return ReportScores(scored[:, :width], bottom, scored[:, width:])


def option_scores(oracle: FrequencyOracle, messages: Messages, option: int) -> Floats:
    """Return the scores of holding an option."""
    return support_chance_of(oracle).share(oracle.membership(messages, option), 1)


def function_scores(oracle: FrequencyOracle, messages: Messages, values: Floats) -> Floats:
    """Return the scores of functions of the options, computed in blocks of reports."""
    scored = np.empty((len(messages), values.shape[1]))
    used = np.flatnonzero(values.any(axis=1))
    block = max(CELLS // max(len(used), 1), 64)
    for start in range(0, len(messages), block):
        part = messages[start : start + block]
        supports = np.empty((len(used), len(part)), dtype=np.float64)
        for line, option in enumerate(used.tolist()):
            supports[line] = oracle.membership(part, option)
        scored[start : start + block] = supports.T @ values[used]
    coin = support_chance_of(oracle)
    scored -= coin.outside * values.sum(axis=0)
    scored /= coin.gap
    return scored


def score_extremes(oracle: FrequencyOracle, values: Floats) -> tuple[Floats, Floats]:
    """Return the least and greatest score of any possible message, exactly, for each function."""
    match oracle:
        case KaryResponse():
            low, high = values.min(axis=0), values.max(axis=0)
        case SubsetSelection():
            rising = np.sort(values, axis=0)
            low, high = rising[: oracle.chosen].sum(axis=0), rising[-oracle.chosen :].sum(axis=0)
        case BitwiseResponse() | UnaryEncoding():
            low, high = np.minimum(values, 0).sum(axis=0), np.maximum(values, 0).sum(axis=0)
        case HadamardResponse() | ProjectiveResponse():
            # Few enough options for functions: so all messages can be tried.
            every = function_scores(oracle, np.arange(oracle.messages), values)
            return every.min(axis=0), every.max(axis=0)
        case _:
            raise BadParameter("randomizer", "does not count options")
    coin = support_chance_of(oracle)
    base = coin.outside * values.sum(axis=0)
    return (low - base) / coin.gap, (high - base) / coin.gap


def share_functions(question: Question, *, of: str = "all") -> AnswerFunctions:
    """Return the share of every option as functions: for groups, cross tables, and those who answered."""
    labels = question.labels
    none = len(labels) - 1 if question.no_answer else None
    shown = labels[:-1] if of == "answered" and none is not None else labels
    values = np.eye(len(labels))[:, : len(shown)]
    title = "share of those who answered" if of == "answered" else "share"
    return AnswerFunctions(title, shown, values, none, of)


def question_functions(question: Question) -> Iterator[AnswerFunctions]:
    """Yield the functions to estimate for a question, besides the share of every option."""
    match question.coding:
        case OneOf() as coding if question.kind == "rating":
            yield _rating(coding)
        case Ranked() as coding:
            yield from _ranking(coding)
        case Several(as_set=True) as coding:
            yield _sets(coding)
        case _:
            return


def _rating(coding: OneOf) -> AnswerFunctions:
    numbers = [float(label) for label in coding.options]
    none = len(numbers) if coding.no_answer else None
    values = np.array([*numbers, 0.0] if coding.no_answer else numbers)[:, None]
    ends = min(numbers), max(numbers)
    return AnswerFunctions("mean", ("mean",), values, none, "answered", *ends, unit="number")


def _ranking(coding: Ranked) -> Iterator[AnswerFunctions]:
    size = len(coding.options)
    orders = [coding.order(code) for code in range(coding.inputs)]
    ranks = np.array([[order.index(item) + 1 if order else 0 for item in range(size)] for order in orders])
    none = coding.inputs - 1 if coding.no_answer else None
    values, ends = ranks.astype(np.float64), (1.0, float(size))
    yield AnswerFunctions(
        "mean rank", coding.options, values, none, "answered", *ends, unit="rank", note="1 is first."
    )
    pairs = list(combinations(range(size), 2))
    before = np.array([[0 < row[a] < row[b] for a, b in pairs] for row in ranks]).astype(np.float64)
    names = tuple([f"{coding.options[a]} before {coding.options[b]}" for a, b in pairs])
    yield AnswerFunctions("preferred", names, before, none, "answered")


def _sets(coding: Several) -> AnswerFunctions:
    codes = np.arange(coding.inputs)
    size = len(coding.options)
    bits = ((codes[:, None] >> np.arange(size + coding.no_answer)) & 1).astype(np.float64)
    none = coding.inputs - 1 if coding.no_answer else None
    return AnswerFunctions("share", coding.labels, bits, none, "all")
