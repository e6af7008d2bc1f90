"""Estimate a survey from its reports, in one pass: for every question the sums that its tables need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import Number, exact
from lapwing.errors import BadParameter, BadValue
from lapwing.survey.designing import Design, MessagesByQuestion, RandomizedQuestion
from lapwing.survey.estimating.intervals import ConfidenceLevel, support_chance_of
from lapwing.survey.estimating.number_estimates import NumberCollector, WaveCollector
from lapwing.survey.estimating.results import (
    CrossTable,
    EstimateTable,
    Progress,
    QuestionEstimates,
    SurveyEstimates,
)
from lapwing.survey.estimating.scores import (
    AdversarialShift,
    AnswerFunctions,
    EstimationTerms,
    Floats,
    QuestionCollector,
    ScoreSums,
    option_scores,
    question_functions,
    share_functions,
)
from lapwing.survey.estimating.share_estimates import (
    FunctionCollector,
    ShareCollector,
    WordCollector,
    as_oracle,
    function_table,
    nearest_shares,
)
from lapwing.survey.questionnaire import DateScale, NumberScale, OneOf, Ranked, Several
from lapwing.survey.randomizers import NumericRandomizer, PrefixResponse, WindowResponse

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
    readers = [_QuestionReader(place, part) for place, part in enumerate(design.parts)]
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


def collector_for(part: RandomizedQuestion, *, is_grouped: bool) -> QuestionCollector:
    """Return the collector that a question needs."""
    coding, randomizer = part.question.coding, part.randomizer
    if isinstance(randomizer, PrefixResponse):
        return WordCollector(randomizer)
    if isinstance(coding, NumberScale | DateScale):
        if (
            part.question.about == "distribution"
            and isinstance(randomizer, WindowResponse)
            and not is_grouped
        ):
            return WaveCollector(randomizer, coding)
        assert isinstance(randomizer, NumericRandomizer)
        return NumberCollector(randomizer, coding)
    return FunctionCollector(part, _group_functions(part)) if is_grouped else ShareCollector(part)


@dataclass(frozen=True, slots=True)
class _Group:
    """The respondents who hold an option of a question."""

    place: int
    part: RandomizedQuestion
    option: int

    @property
    def name(self) -> str:
        return f"{self.part.question.name}: {self.part.question.labels[self.option]}"

    def scores(self, messages: MessagesByQuestion) -> Floats:
        return option_scores(as_oracle(self.part), messages[self.place][1], self.option)


class _QuestionReader:
    """One question, over all who were asked, or within a group of them."""

    def __init__(self, place: int, part: RandomizedQuestion, group: _Group | None = None) -> None:
        self._place, self._question, self._group = place, part.question, group
        self._n = 0
        self._collector = collector_for(part, is_grouped=group is not None)

    def add(self, messages: MessagesByQuestion) -> None:
        rows, sent = messages[self._place]
        self._n += len(rows)
        if len(rows):
            self._collector.add(sent, None if self._group is None else self._group.scores(messages))

    def answer(self, terms: EstimationTerms) -> QuestionEstimates:
        weight = name = None
        if self._group is not None:
            weight, name = support_chance_of(as_oracle(self._group.part)).scores, self._group.name
        tables = self._collector.tables(terms, weight) if self._n else ()
        return QuestionEstimates(self._question.name, self._question.text, self._n, tables, name)


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


def _groups(design: Design, place: int) -> Iterator[_QuestionReader]:
    _require_all_asked(design, "by")
    for option in range(_group_options(design.parts[place], "by")):
        group = _Group(place, design.parts[place], option)
        for other, part in enumerate(design.parts):
            is_number = isinstance(part.question.coding, NumberScale | DateScale)
            if other != place and (is_number or _group_functions(part)):
                yield _QuestionReader(other, part, group)


def _group_functions(part: RandomizedQuestion) -> list[AnswerFunctions]:
    """Return the functions to estimate within groups: shares of few options, and the question's own."""
    functions = list(question_functions(part.question))
    if part.question.counts_options and as_oracle(part).options <= MOST_GROUPS:
        return [share_functions(part.question), *functions]
    return functions if isinstance(part.question.coding, Ranked | Several) else []


class _CrossReader:
    """The share of each pair of answers to two questions: the product of both scores.

    Claim    the mean of score_u(first) · score_v(second) is unbiased for the share that holds both u and v.
    Because  given the answers, the coins of the two questions are independent.
    Test     tests/survey/estimating/test_survey_estimates.py::test_cross_tables_are_unbiased
    """

    def __init__(self, design: Design, first: int, second: int) -> None:
        _require_all_asked(design, "cross")
        if first == second:
            raise BadParameter("cross", "needs two questions")
        self._places = first, second
        self._parts = design.parts[first], design.parts[second]
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
        tables = [
            function_table(self._oracles[1], self._shares, sums, terms, weight=weight, of_all=True)
            for sums in self._sums
        ]
        if isinstance(first.coding, OneOf) and isinstance(second.coding, OneOf):
            tables = _fitted(tables)
        lines = tuple(zip(first.labels, tables, strict=True))
        return CrossTable(first.name, second.name, self._sums[0].n, lines)


def _fitted(tables: list[EstimateTable]) -> list[EstimateTable]:
    """Fit the values so that all cells together are 1."""
    values = np.array([[estimate.value for estimate in table.estimates] for table in tables])
    nearest = nearest_shares(values.ravel()).reshape(values.shape)
    return [
        replace(
            table,
            estimates=tuple(
                replace(estimate, fitted=float(fit))
                for estimate, fit in zip(table.estimates, line, strict=True)
            ),
        )
        for table, line in zip(tables, nearest, strict=True)
    ]
