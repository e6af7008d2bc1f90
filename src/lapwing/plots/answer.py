"""A private answer with its error bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from lapwing.errors import BadParameter
from lapwing.plots.names import fitting
from lapwing.plots.style import BLUE, GREEN, GREY, ORANGE, PURPLE, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_GROUPS = 60
MOST_COLUMNS = 4
Column = tuple[str, Sequence[Any], Sequence[Any] | None, Sequence[Any] | None]


def answer(columns: Sequence[Column], *, confidence: float) -> Figure:
    """One panel for each number with an interval, over the groups of the answer."""
    numbers = [column for column in columns if column[2] is not None and column[3] is not None]
    if not numbers:
        raise BadParameter("plot", "there is no number with an interval to draw")
    keys = [column for column in columns if column[2] is None and _are_keys(column[1])]
    length = len(numbers[0][1])
    shown = min(length, MOST_GROUPS)
    names = [", ".join(str(key[1][row]) for key in keys) or "all" for row in range(shown)]
    drawn = numbers[:MOST_COLUMNS]
    note = f"Bars are intervals of {confidence:.4g} confidence each. Noise was added for privacy."
    if length > shown:
        note += f" The first {shown} of {length:,} groups."
    with style():
        height = max(3.2, 1.9 + 0.27 * shown)
        figure, axes = new_figure(
            " and ".join(fitting(column[0], 40) for column in drawn)
            + (f" by {', '.join(fitting(key[0], 30) for key in keys)}" if keys else ""),
            note,
            panels=len(drawn),
            size=(max(7.0, 3.4 * len(drawn) + 2.4), height),
            left=2.2,
            one_scale=False,
        )
        for panel, column, colour in zip(axes, drawn, (BLUE, ORANGE, GREEN, PURPLE), strict=False):
            _draw(panel, column, shown, colour)
        axes[0].set_yticks(range(shown), [fitting(name, 28) for name in names])
        axes[0].set_ylim(shown - 0.4, -0.6)
    return figure


def _are_keys(values: Sequence[Any]) -> bool:
    return all(
        value is None or isinstance(value, str | int | bool | date) for value in values[:MOST_GROUPS]
    )


def _draw(axes: Axes, column: Column, shown: int, colour: str) -> None:
    name, values, low, high = column
    assert low is not None
    assert high is not None
    for row in range(shown):
        if values[row] is None:
            continue
        axes.plot([float(values[row])], [row], "o", color=colour, markersize=5)
        ends = [float(low[row]), float(high[row])]
        if all(map(math.isfinite, ends)):
            axes.plot(ends, [row, row], color=colour, linewidth=5, alpha=0.35)
        else:  # as far as there is no end: all across the panel
            axes.axhline(row, color=colour, linewidth=5, alpha=0.12)
    axes.set_xlabel(fitting(name, 40))
    axes.grid(axis="x", color=GREY, alpha=0.2)
    axes.tick_params(axis="y", length=0)
