"""Estimate a survey from its reports, in one pass: for every question the sums that its tables need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import Number, exact
from lapwing.errors import BadParameter, BadValue
from lapwing.survey.designing import Design, MessagesByQuestion, RandomizedQuestion
from lapwing.survey.estimating.adversarial_shift import AdversarialShift, ScorePair
from lapwing.survey.estimating.intervals import ConfidenceLevel, support_chance_of
from lapwing.survey.estimating.number_estimates import (
    ValueRange,
    distribution_tables,
    mean_table,
    no_answer_scores,
    no_answer_table,
    number_scores,
)
from lapwing.survey.estimating.results import (
    CrossTable,
    EstimateTable,
    Progress,
    QuestionEstimates,
    SurveyEstimates,
)
from lapwing.survey.estimating.scores import (
    AnswerFunctions,
    EstimationTerms,
    Floats,
    ScoreLimits,
    ScoreSums,
    option_scores,
    question_functions,
    score_extremes,
    share_functions,
)
from lapwing.survey.estimating.share_estimates import SupportCounts, frequent_word_tables, nearest_shares
from lapwing.survey.questionnaire import NO_ANSWER, DateScale, NumberScale, OneOf, Ranked, Several
from lapwing.survey.randomizers import FrequencyOracle, NumericRandomizer, PrefixResponse, WindowResponse
from lapwing.survey.randomizers.randomizer import Messages

BLOCK_BYTES = 1 << 25
BLOCK_REPORTS = 1 << 17
MOST_GROUPS = 64
MOST_CELLS = 4096
MOST_RATIO_OPTIONS = 64  # options whose shares among those who answered are computed
MOST_COUNTED_MESSAGES = 1 << 22  # of a square wave, counted one by one


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
    """Estimate every question from the reports.

    Each number has an interval for these respondents (noise of the coins, and the drawing of who was asked)
    and one for the population from which they were drawn at random.

    Args:
        design: The design that the reports belong to.
        reports: The reports, of shape (n, design.report_size).
        confidence: The confidence of all intervals, between 0 and 1.
        by: The name of a question. All others are also estimated within each of its answers. Needs that
            every respondent was asked all questions.
        cross: Pairs of question names. The share of each pair of answers is estimated. Needs the same.
        liars: The fraction of respondents who may send anything. Each number then says how far they can
            shift it.
        progress: A function of the reports done and all reports, called after each block; or None.

    Returns:
        The estimates.

    Raises:
        BadParameter: A name, the confidence or the fraction is wrong, or the questions were not asked
            together.
        BadValue: There are no reports, or one of them is impossible.

    Example:
        >>> import numpy as np
        >>> made = design(load("tea.toml"))
        >>> found = estimate(made, made.simulate({"tea": np.repeat([0, 1], [30, 70])}))
        >>> found.reports
        100
    """
    level = ConfidenceLevel.of(confidence)
    fraction = exact(liars, "liars")
    if not 0 <= fraction < 1:
        raise BadParameter("liars", "must be a fraction from 0 up to, but not, 1")
    shift = AdversarialShift(float(fraction), 1 if design.asks_all else len(design.parts))
    readers: list[_QuestionReader | _GroupReader] = [
        _QuestionReader(place, part) for place, part in enumerate(design.parts)
    ]
    if by is not None:
        readers += _groups(design, design.survey.place(by))
    pairs = [_CrossReader(design, design.survey.place(a), design.survey.place(b)) for a, b in cross]
    if not len(reports):
        raise BadValue("there are no reports")
    block = max(min(BLOCK_REPORTS, BLOCK_BYTES // design.report_size), 1)
    for start in range(0, len(reports), block):
        messages = design.unpack(reports[start : start + block])
        for reader in readers:
            reader.add(messages)
        for pair in pairs:
            pair.add(messages)
        if progress is not None:
            progress(min(start + block, len(reports)), len(reports))
    terms = EstimationTerms(level, shift, len(reports))
    answers = tuple(reader.answer(terms) for reader in readers)
    crosses = tuple(pair.table(terms) for pair in pairs)
    return SurveyEstimates(design.survey.name, len(reports), level.confidence, fraction, answers, crosses)


def as_oracle(part: RandomizedQuestion) -> FrequencyOracle:
    """Return the frequency oracle of a question. Raise `BadParameter` if it has none."""
    if not isinstance(part.randomizer, FrequencyOracle):
        raise BadParameter("by", f'"{part.question.name}" has no options to group by')
    return part.randomizer


def as_number(part: RandomizedQuestion) -> NumericRandomizer:
    """Return the randomizer of a question for a number or date."""
    assert isinstance(part.randomizer, NumericRandomizer)
    return part.randomizer


class QuestionCollector(ABC):
    """The sums of one question: it takes messages, block by block, and makes the tables."""

    @abstractmethod
    def add(self, messages: Messages) -> None:
        """Add a block of messages."""

    @abstractmethod
    def tables(self, terms: EstimationTerms) -> tuple[EstimateTable, ...]:
        """Return the tables of all messages."""


def collector_for(part: RandomizedQuestion) -> QuestionCollector:
    """Return the collector that a question needs."""
    coding, randomizer = part.question.coding, part.randomizer
    if isinstance(randomizer, PrefixResponse):
        return WordCollector(randomizer)
    if isinstance(coding, NumberScale | DateScale):
        if part.question.about == "distribution" and isinstance(randomizer, WindowResponse):
            return WaveCollector(randomizer, coding)
        return NumberCollector(as_number(part), coding)
    return ShareCollector(part)


class FunctionCollector(QuestionCollector):
    """The collector of functions of the answers.

    `weight` has the scores of being in a group. Without it, everybody is in.
    """

    def __init__(self, part: RandomizedQuestion, functions: Sequence[AnswerFunctions]) -> None:
        self._oracle = as_oracle(part)
        self._sums = [(one, ScoreSums(len(one.labels))) for one in functions]

    def add(self, messages: Messages, weight: Floats | None = None) -> None:
        """Add a block of messages."""
        for functions, sums in self._sums:
            sums.add(functions.scores(self._oracle, messages).times(weight))

    def tables(self, terms: EstimationTerms, weight: ScorePair | None = None) -> tuple[EstimateTable, ...]:
        """Return a table of each function's means."""
        return tuple(function_table(self._oracle, f, sums, terms, weight=weight) for f, sums in self._sums)


class ShareCollector(FunctionCollector):
    """The collector of choices, ratings, rankings and sets."""

    def __init__(self, part: RandomizedQuestion) -> None:
        functions = list(question_functions(part.question))
        few = part.question.counts_options and as_oracle(part).options <= MOST_RATIO_OPTIONS
        if few and part.question.no_answer:
            functions.append(share_functions(part.question, of="answered"))
        super().__init__(part, functions)
        self._question = part.question
        self._counts = np.zeros(self._oracle.options, dtype=np.int64)
        self._n = 0

    def add(self, messages: Messages, weight: Floats | None = None) -> None:
        """Add a block of messages."""
        super().add(messages, weight)
        self._n += len(messages)
        self._counts += self._oracle.counts(messages)

    def tables(self, terms: EstimationTerms, weight: ScorePair | None = None) -> tuple[EstimateTable, ...]:
        """Return the shares, and the tables of the question's functions."""
        found = super().tables(terms, weight)
        coding = self._question.coding
        if self._question.counts_options:
            return self._shares(self._question.labels, self._counts, terms), *found
        if isinstance(coding, Ranked) and coding.no_answer:
            return self._shares((NO_ANSWER,), self._counts[-1:], terms), *found
        return found

    def _shares(
        self, labels: tuple[str, ...], counts: NDArray[np.int64], terms: EstimationTerms
    ) -> EstimateTable:
        chance = support_chance_of(self._oracle)
        whole = isinstance(self._question.coding, OneOf)
        counted = SupportCounts(counts, self._n, chance, terms.total)
        shares = counted.estimates(labels, terms.level, terms.shift.share(chance), whole=whole)
        return EstimateTable("share", "share", shares)


def function_table(
    oracle: FrequencyOracle,
    functions: AnswerFunctions,
    sums: ScoreSums,
    terms: EstimationTerms,
    *,
    weight: ScorePair | None = None,
    of_all: bool = False,
) -> EstimateTable:
    """Return the means of functions of the answers, over those in a group or, with `of_all`, over all.

    `weight` is the least and the greatest score of being in the group; None: everybody is in.
    """
    least, most = score_extremes(oracle, functions.values)
    bottom = (1.0, 1.0) if of_all else _products(_bottom(oracle, functions), weight)
    estimates = []
    for column, label in enumerate(functions.labels):
        ends = _products((float(least[column]), float(most[column])), weight)
        if bottom == (1.0, 1.0):
            shift = terms.shift.mean(ends, (functions.low, functions.high))
        else:
            now = sums.moments(column)
            true = [(functions.low, 1.0), (functions.high, 1.0), (0.0, 0.0)]
            shift = terms.shift.ratio((now.top, now.bottom), [(t, b) for t in ends for b in bottom], true)
        limits = ScoreLimits(functions.low, functions.high, ends[1] - ends[0], bottom[1] - bottom[0])
        estimates.append(sums.estimate(column, label, terms, limits, shift))
    return EstimateTable(functions.title, functions.unit, tuple(estimates), functions.note)


def _bottom(oracle: FrequencyOracle, functions: AnswerFunctions) -> ScorePair:
    """Return the least and greatest score of having answered."""
    if functions.of == "all" or functions.none is None:
        return 1.0, 1.0
    scores = support_chance_of(oracle).scores
    return 1 - scores[1], 1 - scores[0]


def _products(ends: ScorePair, weight: ScorePair | None) -> ScorePair:
    if weight is None:
        return ends
    found = [a * b for a in ends for b in weight]
    return min(found), max(found)


class NumberCollector(QuestionCollector):
    """The collector of the mean of a number or date."""

    def __init__(self, randomizer: NumericRandomizer, coding: NumberScale | DateScale) -> None:
        self._randomizer, self._coding = randomizer, coding
        self._mean, self._silent = ScoreSums(1), ScoreSums(1)

    def add(self, messages: Messages, weight: Floats | None = None) -> None:
        """Add a block of messages. `weight` has the scores of being in a group."""
        self._mean.add(number_scores(self._randomizer, messages).times(weight))
        if self._randomizer.none and weight is None:
            self._silent.add(no_answer_scores(self._randomizer, messages))

    def tables(self, terms: EstimationTerms, weight: ScorePair | None = None) -> tuple[EstimateTable, ...]:
        """Return the mean, and over all the share of "no answer" where it is possible."""
        scale = ValueRange.of(self._coding)
        mean = mean_table(self._randomizer, self._mean, scale, terms, weight=weight or (1.0, 1.0))
        if not self._randomizer.none or weight is not None:
            return (mean,)
        return mean, no_answer_table(self._randomizer, self._silent, terms)


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
        found = super().tables(terms, weight)
        if not len(self._counts):
            return found
        return (*found, *distribution_tables(self._window, self._counts, self._coding, terms.level))


class WordCollector(QuestionCollector):
    """The collector of frequent words. It keeps all messages: the candidates are known only at the end."""

    def __init__(self, randomizer: PrefixResponse) -> None:
        self._randomizer = randomizer
        self._messages: list[Messages] = []

    def add(self, messages: Messages) -> None:
        """Add a block of messages."""
        self._messages.append(messages.copy())

    def tables(self, terms: EstimationTerms) -> tuple[EstimateTable, ...]:
        """Return the frequent words, and the share of "no answer"."""
        return frequent_word_tables(self._randomizer, np.concatenate(self._messages), terms)


class _QuestionReader:
    """One question, over all who were asked."""

    def __init__(self, place: int, part: RandomizedQuestion) -> None:
        self._place, self._question = place, part.question
        self._n = 0
        self._collector = collector_for(part)

    def add(self, messages: MessagesByQuestion) -> None:
        rows, sent = messages[self._place]
        self._n += len(rows)
        if len(rows):
            self._collector.add(sent)

    def answer(self, terms: EstimationTerms) -> QuestionEstimates:
        tables = self._collector.tables(terms) if self._n else ()
        return QuestionEstimates(self._question.name, self._question.text, self._n, tables)


def _require_all_asked(design: Design, name: str) -> None:
    if not design.asks_all:
        raise BadParameter(
            name, "each respondent was asked one question: no two answers of anybody were seen together"
        )


def _group_options(part: RandomizedQuestion, name: str) -> int:
    """Return how many options a question has to group by. Raise `BadParameter` if it has none."""
    if not part.question.counts_options or as_oracle(part).options > MOST_GROUPS:
        raise BadParameter(
            name,
            f'"{part.question.name}" must be a yes or no, a choice, a rating or several bits, '
            f"of at most {MOST_GROUPS} options",
        )
    return len(part.question.labels)


def _groups(design: Design, place: int) -> Iterator[_GroupReader]:
    _require_all_asked(design, "by")
    for option in range(_group_options(design.parts[place], "by")):
        for other, part in enumerate(design.parts):
            is_number = isinstance(part.question.coding, NumberScale | DateScale)
            if other != place and (is_number or _group_functions(part)):
                yield _GroupReader(design, place, option, other)


def _group_functions(part: RandomizedQuestion) -> list[AnswerFunctions]:
    """Return the functions to estimate within groups: shares of few options, and the question's own."""
    found = list(question_functions(part.question))
    if part.question.counts_options and as_oracle(part).options <= MOST_GROUPS:
        return [share_functions(part.question), *found]
    return found if isinstance(part.question.coding, Ranked | Several) else []


class _GroupReader:
    """One question, within the respondents who hold an option of another one."""

    def __init__(self, design: Design, by: int, option: int, place: int) -> None:
        self._by, self._option, self._place = by, option, place
        part, group = design.parts[place], design.parts[by]
        self._question, self._group = part.question, as_oracle(group)
        self._name = f"{group.question.name}: {group.question.labels[option]}"
        self._n = 0
        self._collector: NumberCollector | FunctionCollector
        if isinstance(part.question.coding, NumberScale | DateScale):
            self._collector = NumberCollector(as_number(part), part.question.coding)
        else:
            self._collector = FunctionCollector(part, _group_functions(part))

    def add(self, messages: MessagesByQuestion) -> None:
        sent = messages[self._place][1]
        self._n += len(sent)
        weight = option_scores(self._group, messages[self._by][1], self._option)
        self._collector.add(sent, weight)

    def answer(self, terms: EstimationTerms) -> QuestionEstimates:
        tables = self._collector.tables(terms, support_chance_of(self._group).scores)
        return QuestionEstimates(self._question.name, self._question.text, self._n, tables, self._name)


class _CrossReader:
    """The share of each pair of answers to two questions: the product of both scores.

    Claim    the mean of score_u(first) · score_v(second) is unbiased for the share that holds both u and v.
    Because  given the answers, the coins of the two questions are independent.
    Test     tests/survey/estimating/test_survey_estimates.py::test_cross_tables_are_unbiased
    """

    def __init__(self, design: Design, one: int, other: int) -> None:
        _require_all_asked(design, "cross")
        if one == other:
            raise BadParameter("cross", "needs two questions")
        self._places = one, other
        self._parts = design.parts[one], design.parts[other]
        rows, columns = (_group_options(part, "cross") for part in self._parts)
        if rows * columns > MOST_CELLS:
            raise BadParameter("cross", f"has more than {MOST_CELLS:,} cells")
        self._sums = [ScoreSums(columns) for _ in range(rows)]
        self._oracles = as_oracle(self._parts[0]), as_oracle(self._parts[1])
        self._shares = share_functions(self._parts[1].question)

    def add(self, messages: MessagesByQuestion) -> None:
        first, second = (messages[place][1] for place in self._places)
        scores = self._shares.scores(self._oracles[1], second)
        for option, sums in enumerate(self._sums):
            sums.add(scores.times(option_scores(self._oracles[0], first, option)).of_all())

    def table(self, terms: EstimationTerms) -> CrossTable:
        first, second = (part.question for part in self._parts)
        weight = support_chance_of(self._oracles[0]).scores
        found = [
            function_table(self._oracles[1], self._shares, sums, terms, weight=weight, of_all=True)
            for sums in self._sums
        ]
        if isinstance(first.coding, OneOf) and isinstance(second.coding, OneOf):
            found = _fitted(found)
        lines = tuple(zip(first.labels, found, strict=True))
        return CrossTable(first.name, second.name, self._sums[0].n, lines)


def _fitted(tables: list[EstimateTable]) -> list[EstimateTable]:
    """Fit the values so that all cells together are 1."""
    values = np.array([[one.value for one in table.estimates] for table in tables])
    nearest = nearest_shares(values.ravel()).reshape(values.shape)
    return [
        replace(
            table,
            estimates=tuple(
                replace(one, fitted=float(fit)) for one, fit in zip(table.estimates, line, strict=True)
            ),
        )
        for table, line in zip(tables, nearest, strict=True)
    ]
