"""Answers: numbers with intervals, what they cost, and a receipt."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lapwing.errors import MissingExtra
from lapwing.ledger import Receipt
from lapwing.query.answering.estimate import Col, Rows

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from matplotlib.figure import Figure

_SHOWN = 20


@dataclass(frozen=True, repr=False)
class Answer:
    """A released answer. `low` and `high` stand beside each value that has noise.

    `is_replay`: it was released before, and cost nothing now. `of` says how many releases it combines.
    `truncation` says how many rows of a person it uses, and what was bought about the others.
    """

    rows: Rows
    cost: str
    confidence: float
    receipt: Receipt | None
    is_replay: bool = False
    is_fake: bool = False
    of: int = 1
    left: str = ""
    notes: tuple[str, ...] = ()
    earlier: tuple[Answer, ...] = field(default=(), repr=False)
    truncation: tuple[str, ...] = ()

    @property
    def columns(self) -> list[Col]:
        """The columns of the answer."""
        return self.rows.columns

    def __len__(self) -> int:
        return self.rows.length

    def to_arrow(self) -> pa.Table:
        """A table. A column with intervals `n` has `n_low` and `n_high` beside it."""
        names: list[str] = []
        arrays: list[Any] = []
        for column in self.columns:
            names.append(column.name)
            arrays.append(_array(column.values))
            for end, values in (("low", column.low), ("high", column.high)):
                if values is not None:
                    names.append(f"{column.name}_{end}")
                    arrays.append(_array(values))
        return pa.table(arrays, names=_told_apart(names))

    def to_pandas(self) -> pd.DataFrame:
        """A pandas DataFrame."""
        try:
            import pandas  # noqa: F401, PLC0415 (an extra)
        except ImportError:
            raise MissingExtra("frames", "pandas") from None
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """A polars DataFrame."""
        try:
            import polars  # noqa: PLC0415 (an extra)
        except ImportError:
            raise MissingExtra("frames", "polars") from None
        found = polars.from_arrow(self.to_arrow())
        assert isinstance(found, polars.DataFrame)
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "columns": [
                {
                    "name": column.name,
                    "values": [_plain(value) for value in column.values],
                    "low": None if column.low is None else [_plain(value) for value in column.low],
                    "high": None if column.high is None else [_plain(value) for value in column.high],
                    "note": column.note,
                    "rank_error": column.rank_error,
                }
                for column in self.columns
            ],
            "confidence": self.confidence,
            "cost": self.cost,
            "left": self.left,
            "replayed": self.is_replay,
            "fake": self.is_fake,
            "combines": self.of,
            "truncation": list(self.truncation),
            "notes": list(self.notes),
            "receipt": None if self.receipt is None else json.loads(self.receipt.to_json()),
        }

    def table(self, most: int | None = _SHOWN) -> tuple[list[str], list[list[str]]]:
        """Headings and cells as people read them: 1,234 ± 56."""
        shown = len(self) if most is None else min(most, len(self))
        headings = [column.name for column in self.columns]
        cells = [[cell(column, row) for column in self.columns] for row in range(shown)]
        return headings, cells

    def __str__(self) -> str:
        headings, cells = self.table()
        widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
        lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)).rstrip()
                 for row in [headings, *cells]]  # fmt: skip
        if len(self) > len(cells):
            lines.append(f"… {len(self) - len(cells):,} more rows")
        return "\n".join([*lines, *column_notes(self.columns), *self.footer()])

    __repr__ = __str__

    def footer(self) -> list[str]:
        """What it cost, and what is to be known about it."""
        kinds = ["intervals"] if any(column.low is not None for column in self.columns) else []
        kinds += ["ranks"] if any(map(_is_by_rank, self.columns)) else []
        sure = f"{' and '.join(kinds).capitalize()} hold with {self.confidence:.4g} confidence each"
        sure = sure if kinds else "No column has an interval"
        price = "released before, nothing was charged" if self.is_replay else f"charged {self.cost}"
        if self.is_fake:
            price = "made of generated rows: nothing was read or charged"
        lines = [f"{sure}; {price}.", *self.truncation, *self.notes]
        if self.of > 1:
            lines.append(
                f"It combines {self.of} releases of the same question, or is the best of them if sharper."
            )
        if self.left:
            lines.append(f"Left: {self.left}.")
        if self.receipt is not None:
            lines.append(f"Receipt: {self.receipt.position}, {self.receipt.hash[:16]}…")
        return lines

    def _repr_html_(self) -> str:
        headings, cells = self.table()
        head = "".join(f"<th>{html.escape(text)}</th>" for text in headings)
        body = "".join(
            "<tr>"
            + "".join(f"<td style='text-align:right'>{html.escape(text)}</td>" for text in row)
            + "</tr>"
            for row in cells
        )
        foot = "<br>".join(html.escape(line) for line in [*column_notes(self.columns), *self.footer()])
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><small>{foot}</small>"

    def plot(self, path: str | Path | None = None) -> Figure:
        """A picture with error bars; written to a .svg, .png or .pdf file if a path is given."""
        from lapwing.plots.answer import answer as draw  # noqa: PLC0415 (matplotlib is an extra)
        from lapwing.plots.style import checked_path, save  # noqa: PLC0415

        figure = draw(
            [
                (column.name, list(column.values), _listed(column.low), _listed(column.high))
                for column in self.columns
            ],
            confidence=self.confidence,
        )
        if path is not None:
            save(figure, checked_path(Path(path)))
        return figure


def column_notes(columns: Sequence[Col]) -> list[str]:
    """What is to be said about single columns. A quantile has a distance in ranks, and no interval."""
    return [
        f"{column.name}: {'no interval of values; ' if _is_by_rank(column) else ''}{column.note}"
        for column in columns
        if column.note
    ]


def _is_by_rank(column: Col) -> bool:
    return column.rank_error is not None and column.low is None


def cell(column: Col, row: int) -> str:
    """One value as people read it."""
    value = column.values[row]
    if value is None:
        return "·"
    if column.low is None or column.high is None:
        return number(value) if isinstance(value, float) else str(value)  # 2026 may be a year
    low, high = column.low[row], column.high[row]
    if low is None or high is None:
        return number(value)
    return f"{number(value)} ({number(low)} to {number(high)})"


def number(value: Any) -> str:
    """A number with thousands separated and no more digits than mean something."""
    if isinstance(value, bool | np.bool_ | str | date | datetime):
        return str(value)
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    if isinstance(value, float | np.floating):
        size = abs(float(value))
        if size == np.inf:
            return "∞" if value > 0 else "-∞"
        digits = 0 if size >= 1000 or not size else 1 if size >= 100 else 2 if size >= 1 else 4
        return f"{float(value):,.{digits}f}"
    return str(value)


def _array(values: Any) -> pa.Array:
    return pa.array(values if values.dtype != object else values.tolist())


def _told_apart(names: list[str]) -> list[str]:
    """SQL may call two columns alike; most frames may not."""
    taken = set(names)
    found: list[str] = []
    for name in names:
        other, number = name, 2
        while other in found or (other != name and other in taken):
            other, number = f"{name}_{number}", number + 1
        found.append(other)
    return found


def _listed(values: Any) -> list[Any] | None:
    return None if values is None else list(values)


def _plain(value: Any) -> Any:
    """For JSON, which has no infinity: an end that is not there is null."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value.isoformat() if isinstance(value, date | datetime) else value
