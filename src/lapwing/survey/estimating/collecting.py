"""One pass over the reports: for every question the sums that its tables are made from."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.survey.estimating.functions import Functions, extremes, functions_of, shares_of
from lapwing.survey.estimating.intervals import Level, coin_of
from lapwing.survey.estimating.lies import Liars, Point
from lapwing.survey.estimating.numbers import (
    Number,
    Scale,
    mean_table,
    scores_of,
    silent_scores,
    silent_table,
)
from lapwing.survey.estimating.results import Estimate, Table
from lapwing.survey.estimating.shares import Counted
from lapwing.survey.estimating.sums import Limits, Sums
from lapwing.survey.estimating.waves import wave_tables
from lapwing.survey.estimating.words import word_tables
from lapwing.survey.planning import Part
from lapwing.survey.questionnaire.coding import NO_ANSWER, OneOf, Ranked, Several
from lapwing.survey.questionnaire.scales import Days, Grid
from lapwing.survey.randomizers import Oracle, Prefixes, Window
from lapwing.survey.randomizers.randomizer import Messages

RATIOS_AT_MOST = 64  # options whose shares among those who answered are computed
MESSAGES_AT_MOST = 1 << 22  # of a square wave, counted one by one
Counts = NDArray[np.int64]


class Collector(Protocol):
    """Takes the messages to one question, block by block, and makes its tables."""

    def add(self, messages: Messages) -> None: ...

    def tables(self, level: Level, liars: Liars, total: int) -> tuple[Table, ...]:
        """`total`: of all respondents, of whom some were asked this."""


def collector(part: Part) -> Collector:
    """What a question needs."""
    question, randomizer = part.question, part.randomizer
    if isinstance(randomizer, Prefixes):
        return WordCollector(randomizer)
    if isinstance(question.coding, Grid | Days):
        if question.about == "distribution" and isinstance(randomizer, Window):
            return WaveCollector(randomizer, question.coding)
        return NumberCollector(as_number(part), question.coding)
    return ShareCollector(part)


def as_oracle(part: Part) -> Oracle:
    """The randomizer of a question whose options are counted."""
    if not isinstance(part.randomizer, Oracle):
        raise BadParameter("by", f'"{part.question.name}" has no options to group by')
    return part.randomizer


def as_number(part: Part) -> Number:
    """The randomizer of a number."""
    assert hasattr(part.randomizer, "scores")
    return part.randomizer  # type: ignore[return-value]


class ShareCollector:
    """Choices, ratings, rankings, sets."""

    def __init__(self, part: Part) -> None:
        self._question, self._oracle = part.question, as_oracle(part)
        self._counts = np.zeros(self._oracle.options, dtype=np.int64)
        self._n = 0
        functions = list(functions_of(part.question))
        listed = isinstance(part.question.coding, OneOf | Several) and not _is_set(part)
        if listed and part.question.no_answer and self._oracle.options <= RATIOS_AT_MOST:
            functions.append(shares_of(part.question, of="answered"))
        self._functions = [(one, Sums(len(one.labels))) for one in functions]

    def add(self, messages: Messages) -> None:
        self._n += len(messages)
        self._counts += self._oracle.counts(messages)
        for functions, sums in self._functions:
            sums.add(functions.scores(self._oracle, messages))

    def tables(self, level: Level, liars: Liars, total: int) -> tuple[Table, ...]:
        coding, found = self._question.coding, []
        if isinstance(coding, OneOf) or (isinstance(coding, Several) and not coding.as_set):
            found.append(self._shares(self._question.labels, self._counts, level, liars, total))
        elif isinstance(coding, Ranked) and coding.no_answer:
            found.append(self._shares((NO_ANSWER,), self._counts[-1:], level, liars, total))
        found += [
            function_table(self._oracle, f, sums, level, liars, total=total) for f, sums in self._functions
        ]
        return tuple(found)

    def _shares(
        self, labels: tuple[str, ...], counts: Counts, level: Level, liars: Liars, total: int
    ) -> Table:
        coin = coin_of(self._oracle)
        whole = isinstance(self._question.coding, OneOf)
        counted = Counted(counts, self._n, coin, total)
        return Table("share", "share", counted.estimates(labels, level, liars.share(coin), whole=whole))


def _is_set(part: Part) -> bool:
    return isinstance(part.question.coding, Several) and part.question.coding.as_set


def function_table(
    oracle: Oracle,
    functions: Functions,
    sums: Sums,
    level: Level,
    liars: Liars,
    *,
    total: int,
    weight: Point | None = None,
    of_all: bool = False,
) -> Table:
    """Means of functions of the answers; `weight` is the least and greatest score of being in the group.

    They are over those in the group, or `of_all`.
    """
    least, most = extremes(oracle, functions.values)
    bottom = (1.0, 1.0) if of_all else _products(_bottom(oracle, functions), weight)
    estimates = []
    for column, label in enumerate(functions.labels):
        now = sums.moments(column)
        ends = _products((float(least[column]), float(most[column])), weight)
        down, up = _pushed(liars, (now.top, now.bottom), ends, bottom, functions)
        value = now.value
        limits = Limits(functions.low, functions.high, ends[1] - ends[0], bottom[1] - bottom[0])
        estimates.append(
            Estimate(
                label,
                value,
                min(max(value, functions.low), functions.high),
                sums.interval(column, level, limits, total=total),
                sums.interval(column, level, limits),
                (down, up),
            )
        )
    return Table(functions.title, functions.unit, tuple(estimates), functions.note)


def _bottom(oracle: Oracle, functions: Functions) -> Point:
    if functions.of == "all" or functions.none is None:
        return 1.0, 1.0
    coin = coin_of(oracle)
    return 1 - coin.scores[1], 1 - coin.scores[0]


def _products(ends: Point, weight: Point | None) -> Point:
    if weight is None:
        return ends
    found = [a * b for a in ends for b in weight]
    return min(found), max(found)


def _pushed(liars: Liars, now: Point, top: Point, bottom: Point, functions: Functions) -> Point:
    if bottom == (1.0, 1.0):
        return liars.mean(top, (functions.low, functions.high))
    true = [(functions.low, 1.0), (functions.high, 1.0), (0.0, 0.0)]
    return liars.ratio(now, [(t, b) for t in top for b in bottom], true)


class NumberCollector:
    """The mean of a number or date."""

    def __init__(self, randomizer: Number, coding: Grid | Days) -> None:
        self._randomizer, self._scale = randomizer, Scale.of(coding)
        self._mean, self._silent = Sums(1), Sums(1)

    def add(self, messages: Messages) -> None:
        self._mean.add(scores_of(self._randomizer, messages))
        if self._randomizer.none:
            self._silent.add(silent_scores(self._randomizer, messages))

    def tables(self, level: Level, liars: Liars, total: int) -> tuple[Table, ...]:
        mean = mean_table(self._randomizer, self._mean, self._scale, level, liars, total=total)
        if not self._randomizer.none:
            return (mean,)
        return mean, silent_table(self._randomizer, self._silent, level, liars, total=total)


class WaveCollector(NumberCollector):
    """The mean, and the distribution."""

    def __init__(self, window: Window, coding: Grid | Days) -> None:
        super().__init__(window, coding)
        self._window, self._coding = window, coding
        size = window.messages if window.messages <= MESSAGES_AT_MOST else 0
        self._counts = np.zeros(size, dtype=np.int64)

    def add(self, messages: Messages) -> None:
        super().add(messages)
        if len(self._counts):
            self._counts += np.bincount(messages, minlength=len(self._counts))

    def tables(self, level: Level, liars: Liars, total: int) -> tuple[Table, ...]:
        found = super().tables(level, liars, total)
        return (
            (*found, *wave_tables(self._window, self._counts, self._coding, level))
            if len(self._counts)
            else found
        )


class WordCollector:
    """Frequent words. All messages are kept: which words to look for is known only at the end."""

    def __init__(self, randomizer: Prefixes) -> None:
        self._randomizer = randomizer
        self._messages: list[Messages] = []

    def add(self, messages: Messages) -> None:
        self._messages.append(messages.copy())

    def tables(self, level: Level, liars: Liars, total: int) -> tuple[Table, ...]:
        return word_tables(self._randomizer, np.concatenate(self._messages), level, liars, total)
