"""Answers: numbers with intervals, their price and receipt, in words, tables and data frames.

The ledger stores the noisy numbers as they left the mechanisms, and the request. All that people see is
computed from these at no cost, at any confidence, as often as they like.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lapwing.answer_text import ROWS_SHOWN, answer_text, table_of
from lapwing.core.exact import float_up
from lapwing.errors import BadParameter, MissingExtra
from lapwing.html_views import html_view
from lapwing.ledger import Receipt
from lapwing.sql.answering.estimates import AnswerColumn, AnswerRows
from lapwing.sql.pricing import combined_widths
from lapwing.sql.pricing.cost import BudgetLeft, Cost

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class AnswerCharge:
    """What was charged for an answer: the price, the ledger's receipt, and what is left of the budget."""

    cost: Cost
    receipt: Receipt
    left: BudgetLeft


@dataclass(frozen=True, repr=False)
class Answer:
    """A released answer: a table of numbers with intervals, its price and its receipt.

    Print it, or convert it with `to_arrow`, `to_pandas`, `to_polars` or `to_json`.

    Args:
        rows: The columns, with the ends of their intervals.
        confidence: The probability with which each interval holds.
        charge: What was charged. None if nothing was: for a dry run, and for a joint answer, where each
            member is charged on its own ledger.
        is_replay: Whether it was released before, and cost nothing now.
        is_fake: Whether it was made from generated rows.
        of: The number of releases of the same question that it is the narrowest result of.
        notes: Sentences about this answer.
        earlier: Earlier answers of the same question that could not be combined with it.
        truncation: Sentences on how many rows of a person it uses.

    Example:
        >>> answer = dataset.ask("SELECT COUNT(*) AS n FROM visits", epsilon="0.1")
        >>> answer.columns[0].name, len(answer.columns[0].values)
        ('n', 1)
        >>> answer.cost.epsilon
        0.1
    """

    rows: AnswerRows
    confidence: float
    charge: AnswerCharge | None = None
    is_replay: bool = False
    is_fake: bool = False
    of: int = 1
    notes: tuple[str, ...] = ()
    earlier: tuple[Answer, ...] = field(default=(), repr=False)
    truncation: tuple[str, ...] = ()

    @property
    def cost(self) -> Cost:
        """The price. Raises `BadParameter` if nothing was charged: see `charge`."""
        return self._charged().cost

    @property
    def receipt(self) -> Receipt:
        """The ledger's receipt. Raises `BadParameter` if nothing was charged: see `charge`."""
        return self._charged().receipt

    @property
    def left(self) -> BudgetLeft:
        """What is left of the budget. Raises `BadParameter` if nothing was charged: see `charge`."""
        return self._charged().left

    def _charged(self) -> AnswerCharge:
        if self.charge is None:
            why = "it was made of generated rows" if self.is_fake else "each member has its own charge"
            raise BadParameter("answer", f"has no cost, receipt or rest of a budget: {why}")
        return self.charge

    @property
    def columns(self) -> list[AnswerColumn]:
        """The columns, with values and ends of intervals."""
        return self.rows.columns

    def __len__(self) -> int:
        return self.rows.length

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table. A column `n` with intervals has `n_low` and `n_high` beside it.

        Returns:
            The table, with distinct column names.

        Example:
            >>> answer.to_arrow().column_names
            ['n', 'n_low', 'n_high']
        """
        named = [
            (f"{column.name}{end}", values)
            for column in self.columns
            for end, values in (("", column.values), ("_low", column.low), ("_high", column.high))
            if values is not None
        ]
        names = _distinct_names([name for name, _ in named])
        return pa.table([_array(values) for _, values in named], names=names)

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas DataFrame, with columns as in `to_arrow`.

        Returns:
            The data frame.

        Raises:
            MissingExtra: If pandas is not installed.

        Example:
            >>> frame = answer.to_pandas()
        """
        _import_frames("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Return a polars DataFrame, with columns as in `to_arrow`.

        Returns:
            The data frame.

        Raises:
            MissingExtra: If polars is not installed.

        Example:
            >>> frame = answer.to_polars()
        """
        frame: pl.DataFrame = _import_frames("polars").from_arrow(self.to_arrow())
        return frame

    def to_json(self) -> dict[str, Any]:
        """Return the answer as plain values for JSON. An infinite end of an interval is None.

        Returns:
            The columns, the price, the receipt and all sentences.

        Example:
            >>> sorted(answer.to_json())[:3]
            ['columns', 'combines', 'confidence']
        """
        charge = self.charge
        return {
            "columns": [
                {
                    "name": column.name,
                    "values": _plain(column.values),
                    "low": _plain(column.low),
                    "high": _plain(column.high),
                    "note": column.note,
                    "rank_error": column.rank_error,
                }
                for column in self.columns
            ],
            "confidence": self.confidence,
            "cost": "" if charge is None else str(charge.cost),
            "left": "" if charge is None else str(charge.left),
            "replayed": self.is_replay,
            "fake": self.is_fake,
            "combines": self.of,
            "truncation": list(self.truncation),
            "notes": list(self.notes),
            "receipt": None if charge is None else json.loads(charge.receipt.to_json()),
        }

    def to_priced_json(self) -> dict[str, Any]:
        """Return the answer for JSON, with its price as numbers, rounded up.

        The receipt has the same numbers as the ledger has them: rationals as texts.
        """
        described = self.to_json()
        paid = described["receipt"] and described["receipt"]["parameters"]
        price = paid and {name: float_up(Fraction(paid[name])) for name in ("epsilon", "delta")}
        return {**described, "price": price}

    def table(self, most: int | None = ROWS_SHOWN) -> tuple[list[str], list[list[str]]]:
        """Return headings and cells as text, such as "1,234 (1,178 to 1,290)".

        Args:
            most: The largest number of rows. None: all.

        Returns:
            The headings, and one list of texts for each row.

        Example:
            >>> headings, cells = answer.table()
        """
        return table_of(self.columns, len(self), most)

    def __str__(self) -> str:
        return answer_text(self)

    __repr__ = __str__

    def footer(self, *, tells_left: bool = True) -> list[str]:
        """Return the sentences below the table: confidence, price, truncation, notes and receipt.

        Args:
            tells_left: Whether to say what is left of the budget now.

        Returns:
            One text for each line.

        Example:
            >>> print(*answer.footer(), sep="; ")
        """
        kinds = ["intervals"] if any(column.low is not None for column in self.columns) else []
        kinds += ["ranks"] if any(column.rank_error is not None for column in self.columns) else []
        sure = f"{' and '.join(kinds).capitalize()} hold with {self.confidence:.4g} confidence each"
        sure = sure if kinds else "No column has an interval"
        charge, price = self.charge, "nothing was charged"
        if self.is_fake:
            price = "made of generated rows: nothing was read or charged"
        elif charge is not None:
            price = "released before, nothing was charged" if self.is_replay else f"charged {charge.cost}"
        lines = [f"{sure}; {price}.", *self.truncation, *self.notes]
        if self.of > 1:
            wrong = combined_widths.most_wrong(self.confidence, self.of)
            lines.append(
                f"The narrowest of {self.of} releases of this question and their means. Where prices were "
                "chosen after answers, and all at this confidence, the intervals of one number so far are "
                f"all right but with probability {wrong:.4g} at most."
            )
        if charge is not None:
            lines += [f"Budget left: {charge.left}."] if tells_left else []
            lines.append(f"Receipt: {charge.receipt.position}, {charge.receipt.hash[:16]}…")
        return lines

    def _repr_html_(self) -> str:
        return html_view(self)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the answer with error bars.

        Args:
            path: A .svg, .png or .pdf file to write. None: no file is written.

        Returns:
            The figure.

        Raises:
            MissingExtra: If matplotlib is not installed.

        Example:
            >>> figure = answer.plot("visits.svg")
        """
        from lapwing.plots.answers import answer_picture as draw  # noqa: PLC0415 (matplotlib is an extra)
        from lapwing.plots.style import checked_path, save  # noqa: PLC0415

        columns = [
            (column.name, list(column.values), _listed(column.low), _listed(column.high))
            for column in self.columns
        ]
        figure = draw(columns, confidence=self.confidence)
        if path is not None:
            save(figure, checked_path(Path(path)))
        return figure


def _import_frames(library: str) -> Any:
    try:
        return import_module(library)
    except ImportError:
        raise MissingExtra("frames", library) from None


def _array(values: Any) -> pa.Array:
    return pa.array(values if values.dtype != object else values.tolist())


def _distinct_names(names: list[str]) -> list[str]:
    """Make names distinct by numbers: SQL allows equal names, most data frames do not."""
    taken = set(names)
    distinct: list[str] = []
    for name in names:
        other, number = name, 2
        while other in distinct or (other != name and other in taken):
            other, number = f"{name}_{number}", number + 1
        distinct.append(other)
    return distinct


def _listed(values: NDArray[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)


def _plain(values: NDArray[Any] | None) -> list[Any] | None:
    """Return plain values for JSON, which has no infinity: None instead."""
    return None if values is None else [_plain_value(value) for value in values]


def _plain_value(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.isoformat() if isinstance(value, date) else value
