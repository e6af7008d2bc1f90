"""From the reports of a survey to its estimates, in one pass.

One pass over the reports: for every question the sums that its tables are made from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import Number, exact
from lapwing.errors import BadParameter, BadValue
from lapwing.survey.designing import Design, MessagesByQuestion, RandomizedQuestion
from lapwing.survey.estimating.adversarial_shift import AdversarialShift, ScorePair
from lapwing.survey.estimating.intervals import ConfidenceLevel, support_chance_of
from lapwing.survey.estimating.number_estimates import (
    NumberScores,
    ValueRange,
    distribution_tables,
    mean_table,
    no_answer_scores,
    no_answer_table,
    number_scores,
)
from lapwing.survey.estimating.results import (
    CrossTable,
    EstimatedValue,
    EstimateTable,
    Progress,
    QuestionEstimates,
    SurveyEstimates,
)
from lapwing.survey.estimating.scores import (
    AnswerFunctions,
    ReportScores,
    ScoreLimits,
    ScoreSums,
    option_scores,
    question_functions,
    score_extremes,
    share_functions,
)
from lapwing.survey.estimating.share_estimates import SupportCounts, frequent_word_tables, nearest_shares
from lapwing.survey.questionnaire import NO_ANSWER, DateScale, NumberScale, OneOf, Ranked, Several
from lapwing.survey.randomizers import FrequencyOracle, PrefixResponse, WindowResponse
from lapwing.survey.randomizers.randomizer import Messages

MOST_RATIO_OPTIONS = 64  # options whose shares among those who answered are computed
MOST_COUNTED_MESSAGES = 1 << 22  # of a square wave, counted one by one
Counts = NDArray[np.int64]


class QuestionCollector(Protocol):
    """Takes the messages to one question, block by block, and makes its tables."""

    def add(self, messages: Messages) -> None: ...

    def tables(
        self, level: ConfidenceLevel, liars: AdversarialShift, total: int
    ) -> tuple[EstimateTable, ...]:
        """`total`: of all respondents, of whom some were asked this."""


def collector_for(part: RandomizedQuestion) -> QuestionCollector:
    """What a question needs."""
    question, randomizer = part.question, part.randomizer
    if isinstance(randomizer, PrefixResponse):
        return WordCollector(randomizer)
    if isinstance(question.coding, NumberScale | DateScale):
        if question.about == "distribution" and isinstance(randomizer, WindowResponse):
            return WaveCollector(randomizer, question.coding)
        return NumberCollector(as_number(part), question.coding)
    return ShareCollector(part)


def as_oracle(part: RandomizedQuestion) -> FrequencyOracle:
    """The randomizer of a question whose options are counted."""
    if not isinstance(part.randomizer, FrequencyOracle):
        raise BadParameter("by", f'"{part.question.name}" has no options to group by')
    return part.randomizer


def as_number(part: RandomizedQuestion) -> NumberScores:
    """The randomizer of a number."""
    assert hasattr(part.randomizer, "scores")
    return part.randomizer  # type: ignore[return-value]


class ShareCollector:
    """Choices, ratings, rankings, sets."""

    def __init__(self, part: RandomizedQuestion) -> None:
        self._question, self._oracle = part.question, as_oracle(part)
        self._counts = np.zeros(self._oracle.options, dtype=np.int64)
        self._n = 0
        functions = list(question_functions(part.question))
        listed = isinstance(part.question.coding, OneOf | Several) and not _is_set(part)
        if listed and part.question.no_answer and self._oracle.options <= MOST_RATIO_OPTIONS:
            functions.append(share_functions(part.question, of="answered"))
        self._functions = [(one, ScoreSums(len(one.labels))) for one in functions]

    def add(self, messages: Messages) -> None:
        self._n += len(messages)
        self._counts += self._oracle.counts(messages)
        for functions, sums in self._functions:
            sums.add(functions.scores(self._oracle, messages))

    def tables(
        self, level: ConfidenceLevel, liars: AdversarialShift, total: int
    ) -> tuple[EstimateTable, ...]:
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
        self,
        labels: tuple[str, ...],
        counts: Counts,
        level: ConfidenceLevel,
        liars: AdversarialShift,
        total: int,
    ) -> EstimateTable:
        coin = support_chance_of(self._oracle)
        whole = isinstance(self._question.coding, OneOf)
        counted = SupportCounts(counts, self._n, coin, total)
        return EstimateTable(
            "share", "share", counted.estimates(labels, level, liars.share(coin), whole=whole)
        )


def _is_set(part: RandomizedQuestion) -> bool:
    return isinstance(part.question.coding, Several) and part.question.coding.as_set


def function_table(
    oracle: FrequencyOracle,
    functions: AnswerFunctions,
    sums: ScoreSums,
    level: ConfidenceLevel,
    liars: AdversarialShift,
    *,
    total: int,
    weight: ScorePair | None = None,
    of_all: bool = False,
) -> EstimateTable:
    """Means of functions of the answers; `weight` is the least and greatest score of being in the group.

    They are over those in the group, or `of_all`.
    """
    least, most = score_extremes(oracle, functions.values)
    bottom = (1.0, 1.0) if of_all else _products(_bottom(oracle, functions), weight)
    estimates = []
    for column, label in enumerate(functions.labels):
        now = sums.moments(column)
        ends = _products((float(least[column]), float(most[column])), weight)
        down, up = _pushed(liars, (now.top, now.bottom), ends, bottom, functions)
        value = now.value
        limits = ScoreLimits(functions.low, functions.high, ends[1] - ends[0], bottom[1] - bottom[0])
        estimates.append(
            EstimatedValue(
                label,
                value,
                min(max(value, functions.low), functions.high),
                sums.interval(column, level, limits, total=total),
                sums.interval(column, level, limits),
                (down, up),
            )
        )
    return EstimateTable(functions.title, functions.unit, tuple(estimates), functions.note)


def _bottom(oracle: FrequencyOracle, functions: AnswerFunctions) -> ScorePair:
    if functions.of == "all" or functions.none is None:
        return 1.0, 1.0
    coin = support_chance_of(oracle)
    return 1 - coin.scores[1], 1 - coin.scores[0]


def _products(ends: ScorePair, weight: ScorePair | None) -> ScorePair:
    if weight is None:
        return ends
    found = [a * b for a in ends for b in weight]
    return min(found), max(found)


def _pushed(
    liars: AdversarialShift, now: ScorePair, top: ScorePair, bottom: ScorePair, functions: AnswerFunctions
) -> ScorePair:
    if bottom == (1.0, 1.0):
        return liars.mean(top, (functions.low, functions.high))
    true = [(functions.low, 1.0), (functions.high, 1.0), (0.0, 0.0)]
    return liars.ratio(now, [(t, b) for t in top for b in bottom], true)


class NumberCollector:
    """The mean of a number or date."""

    def __init__(self, randomizer: NumberScores, coding: NumberScale | DateScale) -> None:
        self._randomizer, self._scale = randomizer, ValueRange.of(coding)
        self._mean, self._silent = ScoreSums(1), ScoreSums(1)

    def add(self, messages: Messages) -> None:
        self._mean.add(number_scores(self._randomizer, messages))
        if self._randomizer.none:
            self._silent.add(no_answer_scores(self._randomizer, messages))

    def tables(
        self, level: ConfidenceLevel, liars: AdversarialShift, total: int
    ) -> tuple[EstimateTable, ...]:
        mean = mean_table(self._randomizer, self._mean, self._scale, level, liars, total=total)
        if not self._randomizer.none:
            return (mean,)
        return mean, no_answer_table(self._randomizer, self._silent, level, liars, total=total)


class WaveCollector(NumberCollector):
    """The mean, and the distribution."""

    def __init__(self, window: WindowResponse, coding: NumberScale | DateScale) -> None:
        super().__init__(window, coding)
        self._window, self._coding = window, coding
        size = window.messages if window.messages <= MOST_COUNTED_MESSAGES else 0
        self._counts = np.zeros(size, dtype=np.int64)

    def add(self, messages: Messages) -> None:
        super().add(messages)
        if len(self._counts):
            self._counts += np.bincount(messages, minlength=len(self._counts))

    def tables(
        self, level: ConfidenceLevel, liars: AdversarialShift, total: int
    ) -> tuple[EstimateTable, ...]:
        found = super().tables(level, liars, total)
        return (
            (*found, *distribution_tables(self._window, self._counts, self._coding, level))
            if len(self._counts)
            else found
        )


class WordCollector:
    """Frequent words. All messages are kept: which words to look for is known only at the end."""

    def __init__(self, randomizer: PrefixResponse) -> None:
        self._randomizer = randomizer
        self._messages: list[Messages] = []

    def add(self, messages: Messages) -> None:
        self._messages.append(messages.copy())

    def tables(
        self, level: ConfidenceLevel, liars: AdversarialShift, total: int
    ) -> tuple[EstimateTable, ...]:
        return frequent_word_tables(self._randomizer, np.concatenate(self._messages), level, liars, total)


BLOCK_BYTES = 1 << 25
BLOCK_REPORTS = 1 << 17
MOST_GROUPS = 64
MOST_CELLS = 4096


def estimate(
    design: Design,
    reports: NDArray[np.uint8],
    *,
    confidence: Number = 0.95,
    by: str | None = None,
    cross: Sequence[tuple[str, str]] = (),
    liars: Number = 0,
    progress: Progress | None = None,
) -> SurveyEstimates:
    """What the reports say about every question.

    Each number has an interval for these respondents (the coins, and which of them were asked) and one for
    the population from which they were drawn at random. `by` names a question: all others are estimated
    within each of its answers. `cross` names pairs of questions. Both need that every respondent was asked
    all of them. `liars` is the fraction of respondents who may send anything: how far they can push is told
    beside each number.
    """
    level = ConfidenceLevel.of(confidence)
    fraction = exact(liars, "liars")
    if not 0 <= fraction < 1:
        raise BadParameter("liars", "must be a fraction from 0 up to, but not, 1")
    pushing = AdversarialShift(float(fraction), 1 if design.asks_all else len(design.parts))
    every = [_QuestionReader(place, part) for place, part in enumerate(design.parts)]
    within = [] if by is None else list(_groups(design, design.survey.place(by)))
    answering: list[_QuestionReader | _GroupReader] = [*every, *within]
    pairs = [_CrossReader(design, design.survey.place(a), design.survey.place(b)) for a, b in cross]
    if not len(reports):
        raise BadValue("there are no reports")
    block = max(min(BLOCK_REPORTS, BLOCK_BYTES // design.report_size), 1)
    for start in range(0, len(reports), block):
        sorted_ = design.unpack(reports[start : start + block])
        for reader in answering:
            reader.add(sorted_)
        for pair in pairs:
            pair.add(sorted_)
        if progress is not None:
            progress(min(start + block, len(reports)), len(reports))
    answers = [reader.answer(level, pushing, len(reports)) for reader in answering]
    crosses = tuple(pair.table(level, pushing) for pair in pairs)
    return SurveyEstimates(
        design.survey.name, len(reports), level.confidence, fraction, tuple(answers), crosses
    )


class _QuestionReader:
    """One question, over all who were asked."""

    def __init__(self, place: int, part: RandomizedQuestion) -> None:
        self._place, self._question = place, part.question
        self._n = 0
        self._collector: QuestionCollector = collector_for(part)

    def add(self, reports: MessagesByQuestion) -> None:
        rows, messages = reports[self._place]
        self._n += len(rows)
        if len(rows):
            self._collector.add(messages)

    def answer(self, level: ConfidenceLevel, liars: AdversarialShift, total: int) -> QuestionEstimates:
        tables = self._collector.tables(level, liars, total) if self._n else ()
        return QuestionEstimates(self._question.name, self._question.text, self._n, tables)


def _require_all_asked(design: Design, name: str) -> None:
    if not design.asks_all:
        raise BadParameter(
            name, "each respondent was asked one question: no two answers of anybody were seen together"
        )


def _options(part: RandomizedQuestion, name: str) -> int:
    """How many options a question has to group by."""
    is_list = isinstance(part.question.coding, OneOf) or (
        isinstance(part.question.coding, Several) and not part.question.coding.as_set
    )
    if not is_list or as_oracle(part).options > MOST_GROUPS:
        raise BadParameter(
            name,
            f'"{part.question.name}" must be a yes or no, a choice, a rating or several bits, '
            f"of at most {MOST_GROUPS} options",
        )
    return len(part.question.labels)


def _groups(design: Design, place: int) -> Iterator[_GroupReader]:
    _require_all_asked(design, "by")
    for option in range(_options(design.parts[place], "by")):
        for other, part in enumerate(design.parts):
            if other != place and (
                isinstance(part.question.coding, NumberScale | DateScale) or _group_functions(part)
            ):
                yield _GroupReader(design, place, option, other)


def _group_functions(part: RandomizedQuestion) -> list[AnswerFunctions]:
    """What is estimated within groups: shares where options are few, and the question's own functions."""
    coding, found = part.question.coding, list(question_functions(part.question))
    is_list = isinstance(coding, OneOf) or (isinstance(coding, Several) and not coding.as_set)
    if is_list and as_oracle(part).options <= MOST_GROUPS:
        return [share_functions(part.question), *found]
    return found if isinstance(coding, Ranked | Several) else []


class _GroupReader:
    """One question, within those who hold an option of another one."""

    def __init__(self, design: Design, by: int, option: int, place: int) -> None:
        self._by, self._option, self._place = by, option, place
        self._part, group = design.parts[place], design.parts[by]
        self._oracle = as_oracle(group)
        self._name = f"{group.question.name}: {group.question.labels[option]}"
        self._n = 0
        self._is_number = isinstance(self._part.question.coding, NumberScale | DateScale)
        self._functions = (
            [] if self._is_number else [(f, ScoreSums(len(f.labels))) for f in _group_functions(self._part)]
        )
        self._mean = ScoreSums(1)

    def add(self, reports: MessagesByQuestion) -> None:
        messages = reports[self._place][1]
        self._n += len(messages)
        weight = option_scores(self._oracle, reports[self._by][1], self._option)
        if self._is_number:
            self._mean.add(number_scores(as_number(self._part), messages).times(weight))
        for functions, sums in self._functions:
            sums.add(functions.scores(as_oracle(self._part), messages).times(weight))

    def answer(self, level: ConfidenceLevel, liars: AdversarialShift, total: int) -> QuestionEstimates:
        weight = support_chance_of(self._oracle).scores
        question = self._part.question
        tables: tuple[EstimateTable, ...]
        if isinstance(question.coding, NumberScale | DateScale):
            scale = ValueRange.of(question.coding)
            number = as_number(self._part)
            tables = (mean_table(number, self._mean, scale, level, liars, total=total, weight=weight),)
        else:
            tables = tuple(
                function_table(as_oracle(self._part), f, sums, level, liars, total=total, weight=weight)
                for f, sums in self._functions
            )
        return QuestionEstimates(question.name, question.text, self._n, tables, self._name)


class _CrossReader:
    """The share of each pair of answers to two questions: the product of both scores.

    Claim    the mean of score_u(first) · score_v(second) is unbiased for the share that holds both u and v.
    Because  given the answers, the coins of the two questions are independent.
    Test     tests/survey/estimating/test_estimate.py::test_cross_tables_are_unbiased
    """

    def __init__(self, design: Design, one: int, other: int) -> None:
        _require_all_asked(design, "cross")
        if one == other:
            raise BadParameter("cross", "needs two questions")
        self._places = one, other
        self._parts = design.parts[one], design.parts[other]
        rows, columns = (_options(part, "cross") for part in self._parts)
        if rows * columns > MOST_CELLS:
            raise BadParameter("cross", f"has more than {MOST_CELLS:,} cells")
        self._sums = [ScoreSums(columns) for _ in range(rows)]
        self._shares = share_functions(self._parts[1].question)

    def add(self, reports: MessagesByQuestion) -> None:
        first, second = (reports[place][1] for place in self._places)
        scores = self._shares.scores(as_oracle(self._parts[1]), second)
        for option, sums in enumerate(self._sums):
            sums.add(self._cell(scores, first, option))

    def _cell(self, scores: ReportScores, messages: Messages, option: int) -> ReportScores:
        return scores.times(option_scores(as_oracle(self._parts[0]), messages, option)).of_all()

    def table(self, level: ConfidenceLevel, liars: AdversarialShift) -> CrossTable:
        first, second = self._parts
        weight = support_chance_of(as_oracle(first)).scores
        found = [
            function_table(
                as_oracle(second),
                self._shares,
                sums,
                level,
                liars,
                total=sums.n,
                weight=weight,
                of_all=True,
            )
            for sums in self._sums
        ]
        if all(isinstance(part.question.coding, OneOf) for part in self._parts):
            found = _fitted(found)
        lines = tuple(zip(first.question.labels, found, strict=True))
        return CrossTable(first.question.name, second.question.name, self._sums[0].n, lines)


def _fitted(tables: list[EstimateTable]) -> list[EstimateTable]:
    """All cells together are 1."""
    values = np.array([[one.value for one in table.estimates] for table in tables])
    nearest = nearest_shares(values.ravel()).reshape(values.shape)
    return [
        EstimateTable(
            table.title,
            table.unit,
            tuple(
                EstimatedValue(
                    e.label, e.value, float(fit), e.respondents, e.population, e.adversarial_shift
                )
                for e, fit in zip(table.estimates, line, strict=True)
            ),
            table.note,
        )
        for table, line in zip(tables, nearest, strict=True)
    ]
