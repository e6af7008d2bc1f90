"""Answers with their error bars: of private SQL, and the estimates of a survey."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from lapwing.errors import BadParameter
from lapwing.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, new_figure, shortened, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_GROUPS = 60
MOST_COLUMNS = 4
Column = tuple[str, Sequence[Any], Sequence[Any] | None, Sequence[Any] | None]


def answer_picture(columns: Sequence[Column], *, confidence: float) -> Figure:
    """Draw one panel for each number with an interval, over the groups of the answer."""
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
            " and ".join(shortened(column[0], 40) for column in drawn)
            + (f" by {', '.join(shortened(key[0], 30) for key in keys)}" if keys else ""),
            note,
            panels=len(drawn),
            size=(max(7.0, 3.4 * len(drawn) + 2.4), height),
            left=2.2,
            one_scale=False,
        )
        for panel, column, colour in zip(axes, drawn, (BLUE, ORANGE, GREEN, PURPLE), strict=False):
            _draw_answer(panel, column, shown, colour)
        axes[0].set_yticks(range(shown), [shortened(name, 28) for name in names])
        axes[0].set_ylim(shown - 0.4, -0.6)
    return figure


def _are_keys(values: Sequence[Any]) -> bool:
    return all(value is None or isinstance(value, str | int | date) for value in values[:MOST_GROUPS])


def _draw_answer(axes: Axes, column: Column, shown: int, colour: str) -> None:
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
        else:  # an infinite interval is drawn all across the panel
            axes.axhline(row, color=colour, linewidth=5, alpha=0.12)
    axes.set_xlabel(shortened(name, 40))
    axes.grid(axis="x", color=GREY, alpha=0.2)
    axes.tick_params(axis="y", length=0)


MOST_ROWS = 12
MOST_PANELS = 24
_ROW, _AROUND = 0.27, 1.05  # inches
Bar = tuple[float, float]


@dataclass(frozen=True, slots=True)
class EstimatePanel:
    """The estimates of one question: intervals for the population, and for the respondents."""

    title: str
    labels: Sequence[str]
    values: Sequence[float]
    population: Sequence[Bar | None]
    respondents: Sequence[Bar | None]
    show: Callable[[float], str]
    from_zero: bool  # the axis of shares begins at 0


def estimates_picture(panels: Sequence[EstimatePanel], *, title: str, confidence: float) -> Figure:
    """Draw all panels from top to bottom."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415 (an extra)

    drawn = [panel for panel in panels if panel.labels][:MOST_PANELS]
    if not drawn:
        raise BadParameter("plot", "there is no estimate to draw")
    rows = [min(len(panel.labels), MOST_ROWS) for panel in drawn]
    note = (
        f"Pale bars: intervals of {confidence:.4g} confidence for the population. Dark bars: for those "
        "who were asked. Every answer was randomized on its respondent's device."
    )
    with style():
        heights = [_AROUND + _ROW * count for count in rows]
        height = 1.6 + sum(heights)
        figure, (whole,) = new_figure(shortened(title, 60), note, size=(9.0, height), left=2.4)
        box = whole.get_position()
        whole.remove()
        top = box.y1
        for panel, count, inches in zip(drawn, rows, heights, strict=True):
            share = inches / height
            part = _ROW * (count + 0.4) / height
            axes = figure.add_axes((box.x0, top - 0.4 / height - part, box.width, part))
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _, show=panel.show: show(x)))
            _draw_estimates(axes, panel, count)
            top -= share
    return figure


def _draw_estimates(axes: Axes, panel: EstimatePanel, count: int) -> None:
    more = len(panel.labels) - count
    axes.set_title(shortened(panel.title, 70) + (f" (the first {count})" if more else ""), fontsize=10.5)
    for row in range(count):
        pale, dark = (panel.population[row], 8.0, 0.25), (panel.respondents[row], 4.0, 0.7)
        for bar, width, alpha in (pale, dark):
            if bar is not None:
                look: dict[str, Any] = {"linewidth": width, "alpha": alpha, "solid_capstyle": "butt"}
                axes.plot(bar, (row, row), color=BLUE, **look)
        axes.plot([panel.values[row]], [row], "o", color=INK, markersize=4)
    axes.set_yticks(range(count), [shortened(label, 26) for label in panel.labels[:count]])
    axes.set_ylim(count - 0.3, -0.7)
    if panel.from_zero:
        axes.set_xlim(left=min(0.0, axes.get_xlim()[0] if min(panel.values) < 0 else 0.0))
    axes.grid(axis="x", color=GREY, alpha=0.2)
    axes.tick_params(axis="y", length=0)
