"""The results of an estimation, as rows for tables and as JSON. Every number comes with its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date, timedelta
from fractions import Fraction
from itertools import product
from typing import Any, Literal

IntervalKind = Literal["respondents", "population"]
ValueUnit = Literal["share", "number", "date", "rank"]
INTERVAL_KINDS: tuple[IntervalKind, ...] = ("respondents", "population")


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval from low to high, at the confidence of the estimates, and the standard error."""

    low: float
    high: float
    error: float


@dataclass(frozen=True, slots=True)
class EstimatedValue:
    """One number, for these respondents and for the population they were drawn from.

    `value` is unbiased for shares of all and other linear functions, and may be impossible, such as a
    negative share. Ratios (of those who answered, within a group), histograms and quantiles are slightly
    biased, the less the more reports there are. `fitted` is the nearest possible value, or None.

    `adversarial_shift` says how far the declared fraction of liars may have moved the value down and up.
    Had they answered truthfully, it would lie between value - up and value + down. None for histograms.
    """

    label: str
    value: float
    fitted: float | None = None
    respondents: Interval | None = None
    population: Interval | None = None
    adversarial_shift: tuple[float, float] | None = field(default=None, metadata={"json": "lies"})

    def interval(self, kind: IntervalKind) -> Interval | None:
        """Return the interval of a kind, or None where no valid one is known."""
        return self.respondents if kind == "respondents" else self.population


@dataclass(frozen=True, slots=True)
class EstimateRow:
    """A row of a table of estimates."""

    question: str
    table: str
    group: str | None
    label: str
    share: float
    low: float
    high: float
    kind: IntervalKind


@dataclass(frozen=True, slots=True)
class EstimateTable:
    """Estimates of one sort: shares, means, ranks, pairs, bins. `note` applies to all of them.

    Dates are counted in days from `origin`.
    """

    title: str
    unit: ValueUnit
    estimates: tuple[EstimatedValue, ...]
    note: str = ""
    origin: date | None = field(default=None, metadata={"json": "days_from", "optional": True})

    def show(self, value: float) -> str:
        """Return a value as text."""
        if not math.isfinite(value):
            return "unknown"
        if self.unit == "share":
            return f"{100 * value:.1f} %"
        if self.unit == "date":
            assert self.origin is not None
            return str(self.origin + timedelta(days=round(value)))
        return f"{value:.4g}"

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, with the date from which days are counted."""
        return dict(_plain(self))


@dataclass(frozen=True, slots=True)
class QuestionEstimates:
    """All estimates of one question, over all reports or within a group."""

    question: str
    text: str
    reports: int
    tables: tuple[EstimateTable, ...]
    group: str | None = None

    def table(self, title: str) -> EstimateTable:
        """Return the table of a title."""
        return next(table for table in self.tables if table.title == title)

    def rows(self) -> Iterator[EstimateRow]:
        """Yield two rows for each number with intervals: for these respondents, and for the population."""
        for table in self.tables:
            of = self.question, table.title, self.group
            for estimate, kind in product(table.estimates, INTERVAL_KINDS):
                if (interval := estimate.interval(kind)) is not None:
                    yield EstimateRow(
                        *of, estimate.label, estimate.value, interval.low, interval.high, kind
                    )


@dataclass(frozen=True, slots=True)
class CrossTable:
    """The share of every pair of answers to two questions, with a line for each answer to the first."""

    rows_of: str
    columns_of: str
    reports: int
    lines: tuple[tuple[str, EstimateTable], ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class SurveyEstimates:
    """The estimates of all questions of a survey."""

    survey: str
    reports: int
    confidence: Fraction
    liars: Fraction
    answers: tuple[QuestionEstimates, ...]
    crosses: tuple[CrossTable, ...] = ()

    def answer(self, question: str, group: str | None = None) -> QuestionEstimates:
        """Return the estimates of a question, over all reports or within a group."""
        return next(a for a in self.answers if a.question == question and a.group == group)

    def rows(self) -> list[EstimateRow]:
        """Return the rows of a table: question, label, share, low, high, kind of interval."""
        return [row for answer in self.answers for row in answer.rows()]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return dict(_plain(self))


Progress = Callable[[int, int], None]  # reports done, reports in all


def _plain(value: Any) -> Any:
    """Return plain data for JSON. An unknown number is null."""
    if is_dataclass(value):
        return {
            each.metadata.get("json", each.name): _plain(content)
            for each in fields(value)
            if (content := getattr(value, each.name)) is not None or "optional" not in each.metadata
        }
    match value:
        case (str() as label, EstimateTable() as table):  # a line of a cross table
            return {"label": label, **_plain(table)}
        case tuple():
            return [_plain(each) for each in value]
        case float() | Fraction():
            return float(value) if math.isfinite(value) else None
        case date():
            return str(value)
        case _:
            return value
