"""A topic: one idea that `lapwing show` computes, tells and draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number that a reader may change, with its limits. `name` is the option without its hyphens."""

    name: str
    default: Fraction
    least: Fraction
    most: Fraction
    meaning: str
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class NumberTable:
    """A table of computed numbers. Cells are numbers or texts; the commands decide how they look."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[float | int | str | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """A topic with its numbers filled in.

    `sentences` is a short text, in the order in which it is read. `picture` draws with the extra `plots`,
    from the numbers that are here already.
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


def to_json(topic: Topic, values: Mapping[str, Fraction], shown: Shown) -> dict[str, Any]:
    """Return plain values with stable names."""
    return {
        "topic": topic.name,
        "question": topic.question,
        "parameters": {name: _plain(value) for name, value in values.items()},
        "headline": shown.headline,
        "text": list(shown.sentences),
        "tables": [
            {"title": one.title, "rows": [dict(zip(one.heads, row, strict=True)) for row in one.rows]}
            for one in shown.tables
        ],
        "argument": f"docs/arguments/{topic.argument}",
    }


def _plain(value: Fraction) -> float | int:
    return int(value) if value.denominator == 1 else float(value)
