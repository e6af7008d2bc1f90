"""Answers as text and as HTML: a table with intervals, and the sentences below it.

Claim    all that is shown is what the columns and the sentences say, and HTML has no markup from texts.
Because  numbers are rounded for reading only, and `lapwing.html_views` escapes every text.
Test     tests/sql/answering/test_html_view.py, tests/client/test_remote_answer.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from numbers import Integral, Rational, Real
from typing import Any, Protocol

from lapwing.html_views import fragment, grid, notes

ROWS_SHOWN = 20


class ShownColumn(Protocol):
    """A column of an answer: values, and the ends of their intervals (None: no interval)."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def values(self) -> Any:
        """The values, a list or an array; None for a missing one."""

    @property
    def low(self) -> Any:
        """The lower ends."""

    @property
    def high(self) -> Any:
        """The upper ends."""

    @property
    def note(self) -> str:
        """A sentence about it, or an empty text."""

    @property
    def rank_error(self) -> float | None:
        """The error in ranks, of quantiles."""


class ShownAnswer(Protocol):
    """An answer with its sentences."""

    @property
    def columns(self) -> Sequence[ShownColumn]:
        """The columns."""

    def __len__(self) -> int: ...

    def table(self, most: int | None = ROWS_SHOWN) -> tuple[list[str], list[list[str]]]:
        """Return headings and cells."""

    def footer(self) -> list[str]:
        """Return the sentences below the table."""


def table_of(
    columns: Sequence[ShownColumn], length: int, most: int | None
) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells as text, of at most so many rows. None: all."""
    shown = length if most is None else min(most, length)
    headings = [column.name for column in columns]
    return headings, [[cell_text(column, row) for column in columns] for row in range(shown)]


def answer_text(answer: ShownAnswer) -> str:
    """Return an answer as text."""
    headings, cells = answer.table()
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    lines = [
        "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in [headings, *cells]
    ]
    return "\n".join([*lines, *lines_below(answer, len(cells))])


def answer_html(answer: ShownAnswer) -> str:
    """Return an answer as HTML."""
    headings, cells = answer.table()
    return fragment(grid(headings, cells), notes(lines_below(answer, len(cells))))


def lines_below(answer: ShownAnswer, shown: int) -> list[str]:
    """Return the sentences below a table that shows so many rows."""
    more = [f"… {len(answer) - shown:,} more rows"] if len(answer) > shown else []
    return [*more, *column_notes(answer.columns), *answer.footer()]


def column_notes(columns: Sequence[ShownColumn]) -> list[str]:
    """Return the notes of the columns. A quantile has an error in ranks instead of an interval."""
    return [
        f"{column.name}: {'no interval of values; ' if _is_by_rank(column) else ''}{column.note}"
        for column in columns
        if column.note
    ]


def _is_by_rank(column: ShownColumn) -> bool:
    return column.rank_error is not None and column.low is None


def cell_text(column: ShownColumn, row: int) -> str:
    """Return one value as text, with its interval."""
    value = column.values[row]
    if value is None:
        return "·"
    if column.low is None or column.high is None:
        return number_text(value) if isinstance(value, float) else str(value)  # 2026 may be a year
    low, high = column.low[row], column.high[row]
    if low is None or high is None:
        return number_text(value)
    return f"{number_text(value)} ({number_text(low)} to {number_text(high)})"


def number_text(value: Any) -> str:
    """Return a number as text, with thousands separated and few digits."""
    if isinstance(value, bool | str | date):
        return str(value)
    if isinstance(value, Integral):
        return f"{int(value):,}"
    if isinstance(value, Real) and not isinstance(value, Rational):
        size = abs(float(value))
        if size == math.inf:
            return "∞" if float(value) > 0 else "-∞"
        digits = 0 if size >= 1000 or not size else 1 if size >= 100 else 2 if size >= 1 else 4
        return f"{float(value):,.{digits}f}"
    return str(value)
