"""From the reports of a survey to its estimates, in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter, BadValue
from lapwing.exact import Number, exact
from lapwing.survey.estimating.collecting import Collector, as_number, as_oracle, collector, function_table
from lapwing.survey.estimating.functions import Functions, functions_of, indicator, shares_of
from lapwing.survey.estimating.intervals import Level, coin_of
from lapwing.survey.estimating.lies import Liars
from lapwing.survey.estimating.numbers import Scale, mean_table, scores_of
from lapwing.survey.estimating.results import Answer, CrossTable, Estimate, Estimates, Progress, Table
from lapwing.survey.estimating.simplex import projected
from lapwing.survey.estimating.sums import Scores, Sums
from lapwing.survey.planning import Design, Part
from lapwing.survey.planning.reports import Sorted
from lapwing.survey.questionnaire.coding import OneOf, Ranked, Several
from lapwing.survey.questionnaire.scales import Days, Grid
from lapwing.survey.randomizers.randomizer import Messages

BYTES_AT_ONCE = 1 << 25
REPORTS_AT_ONCE = 1 << 17
GROUPS_AT_MOST = 64
CELLS_AT_MOST = 4096


def estimate(
    design: Design,
    reports: NDArray[np.uint8],
    *,
    confidence: Number = 0.95,
    by: str | None = None,
    cross: Sequence[tuple[str, str]] = (),
    liars: Number = 0,
    progress: Progress | None = None,
) -> Estimates:
    """What the reports say about every question.

    Each number has an interval for these respondents (the coins, and which of them were asked) and one for
    the population from which they were drawn at random. `by` names a question: all others are estimated
    within each of its answers. `cross` names pairs of questions. Both need that every respondent was asked
    all of them. `liars` is the fraction of respondents who may send anything: how far they can push is told
    beside each number.
    """
    level = Level.of(confidence)
    fraction = exact(liars, "liars")
    if not 0 <= fraction < 1:
        raise BadParameter("liars", "must be a fraction from 0 up to, but not, 1")
    pushing = Liars(float(fraction), 1 if design.asks_all else len(design.parts))
    every = [_Question(place, part) for place, part in enumerate(design.parts)]
    within = [] if by is None else list(_groups(design, design.survey.place(by)))
    answering: list[_Question | _Group] = [*every, *within]
    pairs = [_Cross(design, design.survey.place(a), design.survey.place(b)) for a, b in cross]
    if not len(reports):
        raise BadValue("there are no reports")
    block = max(min(REPORTS_AT_ONCE, BYTES_AT_ONCE // design.report_size), 1)
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
    return Estimates(design.survey.name, len(reports), level.confidence, fraction, tuple(answers), crosses)


class _Question:
    """One question, over all who were asked."""

    def __init__(self, place: int, part: Part) -> None:
        self._place, self._question = place, part.question
        self._n = 0
        self._collector: Collector = collector(part)

    def add(self, reports: Sorted) -> None:
        rows, messages = reports[self._place]
        self._n += len(rows)
        if len(rows):
            self._collector.add(messages)

    def answer(self, level: Level, liars: Liars, total: int) -> Answer:
        tables = self._collector.tables(level, liars, total) if self._n else ()
        return Answer(self._question.name, self._question.text, self._n, tables)


def _together(design: Design, name: str) -> None:
    if not design.asks_all:
        raise BadParameter(
            name, "each respondent was asked one question: no two answers of anybody were seen together"
        )


def _options(part: Part, name: str) -> int:
    """How many options a question has to group by."""
    is_list = isinstance(part.question.coding, OneOf) or (
        isinstance(part.question.coding, Several) and not part.question.coding.as_set
    )
    if not is_list or as_oracle(part).options > GROUPS_AT_MOST:
        raise BadParameter(
            name,
            f'"{part.question.name}" must be a yes or no, a choice, a rating or several bits, '
            f"of at most {GROUPS_AT_MOST} options",
        )
    return len(part.question.labels)


def _groups(design: Design, place: int) -> Iterator[_Group]:
    _together(design, "by")
    for option in range(_options(design.parts[place], "by")):
        for other, part in enumerate(design.parts):
            if other != place and (isinstance(part.question.coding, Grid | Days) or _functions(part)):
                yield _Group(design, place, option, other)


def _functions(part: Part) -> list[Functions]:
    """What is estimated within groups: shares where options are few, and the question's own functions."""
    coding, found = part.question.coding, list(functions_of(part.question))
    is_list = isinstance(coding, OneOf) or (isinstance(coding, Several) and not coding.as_set)
    if is_list and as_oracle(part).options <= GROUPS_AT_MOST:
        return [shares_of(part.question), *found]
    return found if isinstance(coding, Ranked | Several) else []


class _Group:
    """One question, within those who hold an option of another one."""

    def __init__(self, design: Design, by: int, option: int, place: int) -> None:
        self._by, self._option, self._place = by, option, place
        self._part, group = design.parts[place], design.parts[by]
        self._oracle = as_oracle(group)
        self._name = f"{group.question.name}: {group.question.labels[option]}"
        self._n = 0
        self._is_number = isinstance(self._part.question.coding, Grid | Days)
        self._functions = (
            [] if self._is_number else [(f, Sums(len(f.labels))) for f in _functions(self._part)]
        )
        self._mean = Sums(1)

    def add(self, reports: Sorted) -> None:
        messages = reports[self._place][1]
        self._n += len(messages)
        weight = indicator(self._oracle, reports[self._by][1], self._option)
        if self._is_number:
            self._mean.add(scores_of(as_number(self._part), messages).times(weight))
        for functions, sums in self._functions:
            sums.add(functions.scores(as_oracle(self._part), messages).times(weight))

    def answer(self, level: Level, liars: Liars, total: int) -> Answer:
        weight = coin_of(self._oracle).scores
        question = self._part.question
        tables: tuple[Table, ...]
        if isinstance(question.coding, Grid | Days):
            scale = Scale.of(question.coding)
            number = as_number(self._part)
            tables = (mean_table(number, self._mean, scale, level, liars, total=total, weight=weight),)
        else:
            tables = tuple(
                function_table(as_oracle(self._part), f, sums, level, liars, total=total, weight=weight)
                for f, sums in self._functions
            )
        return Answer(question.name, question.text, self._n, tables, self._name)


class _Cross:
    """The share of each pair of answers to two questions: the product of both scores.

    Claim    the mean of score_u(first) · score_v(second) is unbiased for the share that holds both u and v.
    Because  given the answers, the coins of the two questions are independent.
    Test     tests/survey/estimating/test_estimate.py::test_cross_tables_are_unbiased
    """

    def __init__(self, design: Design, one: int, other: int) -> None:
        _together(design, "cross")
        if one == other:
            raise BadParameter("cross", "needs two questions")
        self._places = one, other
        self._parts = design.parts[one], design.parts[other]
        rows, columns = (_options(part, "cross") for part in self._parts)
        if rows * columns > CELLS_AT_MOST:
            raise BadParameter("cross", f"has more than {CELLS_AT_MOST:,} cells")
        self._sums = [Sums(columns) for _ in range(rows)]
        self._shares = shares_of(self._parts[1].question)

    def add(self, reports: Sorted) -> None:
        first, second = (reports[place][1] for place in self._places)
        scores = self._shares.scores(as_oracle(self._parts[1]), second)
        for option, sums in enumerate(self._sums):
            sums.add(self._cell(scores, first, option))

    def _cell(self, scores: Scores, messages: Messages, option: int) -> Scores:
        return scores.times(indicator(as_oracle(self._parts[0]), messages, option)).of_all()

    def table(self, level: Level, liars: Liars) -> CrossTable:
        first, second = self._parts
        weight = coin_of(as_oracle(first)).scores
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


def _fitted(tables: list[Table]) -> list[Table]:
    """All cells together are 1."""
    values = np.array([[one.value for one in table.estimates] for table in tables])
    nearest = projected(values.ravel()).reshape(values.shape)
    return [
        Table(
            table.title,
            table.unit,
            tuple(
                Estimate(e.label, e.value, float(fit), e.respondents, e.population, e.lies)
                for e, fit in zip(table.estimates, line, strict=True)
            ),
            table.note,
        )
        for table, line in zip(tables, nearest, strict=True)
    ]
