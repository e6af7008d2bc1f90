"""A topic: one idea that `lapwing show` computes, tells and draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[int, int], None]
Cell = float | int | str | None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number that a reader may change, with its limits. `name` is the option without its hyphens."""

    name: str
    default: Fraction
    least: Fraction
    most: Fraction
    meaning: str
    is_whole: bool = False


class Year(int):
    """A year: a number that is shown without a separator."""


@dataclass(frozen=True, slots=True)
class NumberTable:
    """A table of computed numbers. Cells are numbers or texts; the commands decide how they look.

    `bars` is a column of numbers that are at least 0. The commands also draw it, one bar for each row.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    bars: int | None = None

    def shares(self) -> list[float]:
        """Return the length of each row's bar, as a share of the longest."""
        if self.bars is None:
            return []
        sizes = [
            value if isinstance(value, int | float) else 0
            for value in (row[self.bars] for row in self.rows)
        ]
        return [size / (max(sizes) or 1) for size in sizes]


@dataclass(frozen=True, slots=True)
class Shown:
    """A topic with its numbers filled in.

    `headline` is a title, without a stop. `sentences` is a short text, in the order in which it is read.
    `picture` draws with the extra `plots`, from the numbers that are here already.
    """

    headline: str
    sentences: tuple[str, ...]
    tables: tuple[NumberTable, ...]
    picture: Callable[[], Figure]


@dataclass(frozen=True, slots=True)
class Topic:
    """One idea: its name on the command line, the question that it answers, and how it is computed.

    `argument` is the page of docs/arguments that proves the claim. `compute` takes the parameters' exact
    values by name, `full` (True for the long version, if there is one) and a function that shows progress.
    """

    name: str
    question: str
    parameters: tuple[Parameter, ...]
    argument: str
    compute: Callable[[Mapping[str, Fraction], bool, Progress], Shown]
    has_full_version: bool = False
    extra: str = ""  # the extra that it needs, such as "learn"


@dataclass(frozen=True, slots=True)
class Chapter:
    """Topics that belong together."""

    title: str
    topics: tuple[Topic, ...]


def computed_in(module: str, name: str) -> Callable[[Mapping[str, Fraction], bool, Progress], Shown]:
    """Return a function of a module that is imported when the function is called.

    So a list of topics imports no library.
    """

    def compute(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
        shown = getattr(import_module(module), name)(values, full, progress)
        assert isinstance(shown, Shown)
        return shown

    return compute


def to_json(topic: Topic, values: Mapping[str, Fraction], shown: Shown) -> dict[str, Any]:
    """Return plain values with stable names. A number that JSON has no word for is null."""
    return {
        "topic": topic.name,
        "question": topic.question,
        "parameters": {name: _plain(value) for name, value in values.items()},
        "headline": shown.headline,
        "text": list(shown.sentences),
        "tables": [
            {
                "title": table.title,
                "rows": [dict(zip(table.heads, map(_json_cell, row), strict=True)) for row in table.rows],
            }
            for table in shown.tables
        ],
        "argument": argument_page(topic),
    }


def argument_page(topic: Topic) -> str:
    """Return where the argument is, in the source of Lapwing."""
    return f"docs/arguments/{topic.argument}"


def cell_text(value: Cell) -> str:
    """Return a cell as people read it: four digits, thousands apart, and – for none."""
    if value is None or isinstance(value, str | Year):
        return "–" if value is None else str(value)
    if not isinstance(value, float):  # also a whole number of numpy
        return f"{int(value):,}"
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if 1e3 <= abs(value) < 1e12:
        return f"{value:,.0f}"
    if 0.99995 <= value < 1:
        return "> 0.9999"  # a chance is never shown as certain
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def _plain(value: Fraction) -> float | int:
    return int(value) if value.denominator == 1 else float(value)


def _json_cell(value: Cell) -> Cell:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, float):  # also a whole number of numpy
        return int(value)
    return float(value) if math.isfinite(value) else None
