"""The estimates of a survey with their error bars, one panel for each question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lapwing.errors import BadParameter
from lapwing.plots.names import fitting
from lapwing.plots.style import BLUE, GREY, INK, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 12
MOST_PANELS = 24
_ROW, _AROUND = 0.27, 1.05  # inches
Bar = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Panel:
    """The estimates of one question: intervals for the population, and for those who were asked."""

    title: str
    labels: Sequence[str]
    values: Sequence[float]
    population: Sequence[Bar | None]
    respondents: Sequence[Bar | None]
    show: Callable[[float], str]
    from_zero: bool  # shares are compared with nothing at all


def estimates(panels: Sequence[Panel], *, title: str, confidence: float) -> Figure:
    """A picture of all panels, from top to bottom."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415 (an extra)

    drawn = [panel for panel in panels if panel.labels][:MOST_PANELS]
    if not drawn:
        raise BadParameter("picture", "there is no estimate to draw")
    rows = [min(len(panel.labels), MOST_ROWS) for panel in drawn]
    note = (
        f"Pale bars: intervals of {confidence:.4g} confidence for the population. Dark bars: for those "
        "who were asked. Every answer was randomized on its respondent's device."
    )
    with style():
        heights = [_AROUND + _ROW * count for count in rows]
        height = 1.6 + sum(heights)
        figure, (whole,) = new_figure(fitting(title, 60), note, size=(9.0, height), left=2.4)
        box = whole.get_position()
        whole.remove()
        top = box.y1
        for panel, count, inches in zip(drawn, rows, heights, strict=True):
            share = inches / height
            part = _ROW * (count + 0.4) / height
            axes = figure.add_axes((box.x0, top - 0.4 / height - part, box.width, part))
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _, show=panel.show: show(x)))
            _draw(axes, panel, count)
            top -= share
    return figure


def _draw(axes: Axes, panel: Panel, count: int) -> None:
    more = len(panel.labels) - count
    axes.set_title(fitting(panel.title, 70) + (f" (the first {count})" if more else ""), fontsize=10.5)
    for row in range(count):
        for bar, colour, width, alpha in (
            (panel.population[row], BLUE, 8.0, 0.25),
            (panel.respondents[row], BLUE, 4.0, 0.7),
        ):
            if bar is not None:
                axes.plot(
                    bar, (row, row), color=colour, linewidth=width, alpha=alpha, solid_capstyle="butt"
                )
        axes.plot([panel.values[row]], [row], "o", color=INK, markersize=4)
    axes.set_yticks(range(count), [fitting(label, 26) for label in panel.labels[:count]])
    axes.set_ylim(count - 0.3, -0.7)
    if panel.from_zero:
        axes.set_xlim(left=min(0.0, axes.get_xlim()[0] if min(panel.values) < 0 else 0.0))
    axes.grid(axis="x", color=GREY, alpha=0.2)
    axes.tick_params(axis="y", length=0)
