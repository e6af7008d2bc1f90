"""Answers of a server: numbers with intervals, their price and receipt, as `lapwing.Answer` has them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lapwing.answer_text import ROWS_SHOWN, answer_html, answer_text, table_of
from lapwing.errors import MissingExtra
from lapwing.html_views import html_view
from lapwing.prices import BudgetLeft, Cost

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RemoteColumn:
    """A column of an answer: values, and the ends of their intervals (None: no interval).

    An end that is infinite is None.
    """

    name: str
    values: list[Any]
    low: list[Any] | None = None
    high: list[Any] | None = None
    note: str = ""
    rank_error: float | None = None


@dataclass(frozen=True, slots=True)
class RemoteReceipt:
    """A receipt of a server's ledger.

    Args:
        position: The number of the entry.
        hash: Its digest.
        fields: All that the receipt says.
    """

    position: int
    hash: str
    fields: Mapping[str, Any] = field(repr=False)

    def to_json(self) -> str:
        """Return the receipt as text, for a file that `lapwing verify` checks."""
        return json.dumps(self.fields, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, repr=False)
class RemoteAnswer:
    """A released answer of a server: a table of numbers with intervals, its price and its receipt.

    Print it, or convert it with `to_arrow`, `to_pandas`, `to_polars` or `to_json`.

    Args:
        id: Its name on the server, such as "visits.212"; "" for a dry run.
        sql: The question; "" for a dry run.
        columns: The columns, with the ends of their intervals.
        rows: The number of rows.
        cost: The price.
        confidence: The probability with which each interval holds.
        receipt: The ledger's receipt; None for a dry run.
        is_replay: Whether it was released before, and cost nothing now.
        is_fake: Whether it was made from generated rows.
        of: The number of releases of the same question that it is the narrowest result of.
        left: What is left of the budget; None for a dry run.
        sentences: The sentences below the table.
        truncation: Sentences on how many rows of a person it uses.
        described: The answer as the server sent it.

    Example:
        >>> answer = visits.ask("SELECT COUNT(*) AS n FROM visits", epsilon="0.1")
        >>> answer.columns[0].name, len(answer.columns[0].values)
        ('n', 1)
    """

    id: str
    sql: str
    columns: list[RemoteColumn]
    rows: int
    cost: Cost | None
    confidence: float
    receipt: RemoteReceipt | None
    is_replay: bool
    is_fake: bool
    of: int
    left: BudgetLeft | None
    sentences: tuple[str, ...]
    truncation: tuple[str, ...]
    described: Mapping[str, Any]
    _arrow: Callable[[], bytes] | None = field(default=None, compare=False)

    @classmethod
    def read(cls, told: Mapping[str, Any], arrow: Callable[[str], bytes] | None = None) -> RemoteAnswer:
        """Return the answer of a reply. `arrow` fetches its table by its id."""
        receipt, name = told.get("receipt"), str(told.get("id", ""))
        return cls(
            id=name,
            sql=str(told.get("sql", "")),
            columns=[RemoteColumn(**column) for column in told["columns"]],
            rows=int(told["rows"]),
            cost=read_cost(told["cost"]),
            confidence=float(told["confidence"]),
            receipt=None
            if receipt is None
            else RemoteReceipt(receipt["position"], receipt["hash"], receipt),
            is_replay=bool(told["is_replay"]),
            is_fake=bool(told["is_fake"]),
            of=int(told["combines"]),
            left=read_left(told["left"]),
            sentences=tuple(told["footer"]),
            truncation=tuple(told["truncation"]),
            described=told,
            _arrow=None if arrow is None or not name else lambda: arrow(name),
        )

    def __len__(self) -> int:
        return self.rows

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table. A column `n` with intervals has `n_low` and `n_high` beside it.

        The table of a stored answer is fetched from the server, with the types that the columns have there.

        Returns:
            The table, with distinct column names.

        Raises:
            MissingExtra: If pyarrow is not installed.

        Example:
            >>> answer.to_arrow().column_names
            ['n', 'n_low', 'n_high']
        """
        try:
            arrow = import_module("pyarrow")
        except ImportError:
            raise MissingExtra("client", "pyarrow") from None
        if self._arrow is not None:
            table: pa.Table = arrow.ipc.open_stream(self._arrow()).read_all()
            return table
        named = [
            (f"{column.name}{end}", values)
            for column in self.columns
            for end, values in (("", column.values), ("_low", column.low), ("_high", column.high))
            if values is not None
        ]
        return arrow.table([arrow.array(values) for _, values in named], names=[name for name, _ in named])

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
        return {
            "columns": self.described["columns"],
            "confidence": self.confidence,
            "cost": "" if self.cost is None else str(self.cost),
            "left": "" if self.left is None else str(self.left),
            "replayed": self.is_replay,
            "fake": self.is_fake,
            "combines": self.of,
            "truncation": list(self.truncation),
            "notes": list(self.described.get("notes", ())),
            "receipt": None if self.receipt is None else self.receipt.fields,
        }

    def to_priced_json(self) -> dict[str, Any]:
        """Return the answer for JSON, with its price as numbers, rounded up."""
        paid = None if self.receipt is None else self.cost
        price = paid and {"epsilon": float_above(paid.epsilon), "delta": float_above(paid.delta)}
        return {**self.to_json(), "price": price}

    def table(self, most: int | None = ROWS_SHOWN) -> tuple[list[str], list[list[str]]]:
        """Return headings and cells as text, such as "1,234 (1,178 to 1,290)".

        Args:
            most: The largest number of rows. None: all.

        Returns:
            The headings, and one list of texts for each row.

        Example:
            >>> headings, cells = answer.table()
        """
        return table_of(self.columns, self.rows, most)

    def footer(self) -> list[str]:
        """Return the sentences below the table: confidence, price, truncation, notes and receipt.

        Returns:
            One text for each line.

        Example:
            >>> print(*answer.footer(), sep="; ")
        """
        return list(self.sentences)

    def __str__(self) -> str:
        return answer_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_view(self)


html_view.register(RemoteAnswer, answer_html)


def float_above(value: Fraction) -> float:
    """Return the least float that is not below a number."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def read_cost(told: Mapping[str, str] | None) -> Cost | None:
    """Return the price of a reply."""
    return None if told is None else Cost(Fraction(told["epsilon"]), Fraction(told["delta"]))


def read_left(told: Mapping[str, Any] | None) -> BudgetLeft | None:
    """Return what is left, of a reply."""
    if told is None:
        return None
    epsilon, of, delta = (Fraction(told[name]) for name in ("epsilon", "of", "delta"))
    return BudgetLeft(epsilon, of, delta, read_left(told["quota"]))


def _import_frames(library: str) -> Any:
    try:
        return import_module(library)
    except ImportError:
        raise MissingExtra("frames", library) from None
