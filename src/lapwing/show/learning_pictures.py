"""The pictures of the simulations in learn_sage.py, for the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lapwing.core.exact import short
from lapwing.plots import style as plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINES = (plot.BLUE, plot.ORANGE, plot.GREEN, plot.PURPLE, plot.INK)
Series = Mapping[str, Sequence[tuple[float, float]]]  # points of each line


ONLY_OURS = "Only validation that allows for its own noise keeps bad models out"
NEEDS_MORE = "A tighter target or a smaller ε needs more data before a model can be accepted"
SOONEST = "Counting loss per block, and sparing it, releases the most models under load"


def violations_picture(
    rates: Series, *, eta: float, title: str = ONLY_OURS, of: str = "accepted models that are bad"
) -> Figure:
    """Draw how often a model is accepted that misses its target: (ε, rate) for each validation.

    Args:
        rates: The points of each way to validate.
        eta: The probability with which a run may release a bad model.
        title: The text above the picture.
        of: The share that is drawn, as the name of the y axis.
    """
    return _curves_picture(
        title,
        f"Share of {of}, by the ε of an attempt. A bad model misses its target on new rows. "
        f"η = {short(eta)}.",
        rates,
        x=_Axis("ε of an attempt", "log"),
        y=_Axis(of),
        right=0.74,
        eta=eta,
    )


def needed_picture(needed: Series, *, title: str = NEEDS_MORE) -> Figure:
    """Draw the data needed until a model is accepted: (ε, rows) for each target."""
    return _curves_picture(
        title,
        "Rows of the first accepted attempt (mean over runs), against the ε of an attempt.",
        needed,
        x=_Axis("ε of an attempt", "log"),
        y=_Axis("rows needed", "log"),
        right=0.78,
    )


def release_picture(shares: Series, *, within: int, title: str = SOONEST) -> Figure:
    """Draw the share of pipelines that do not release their model in time, for each accounting."""
    return _curves_picture(
        title,
        f"Share of pipelines that are not released within {within} hours of their arrival (simulated; one "
        "block an hour).",
        shares,
        x=_Axis("pipelines that arrive each hour"),
        y=_Axis(f"not released within {within} hours"),
        right=0.74,
    )


class _Axis(NamedTuple):
    label: str
    scale: str = "linear"


def _curves_picture(
    title: str, note: str, series: Series, *, x: _Axis, y: _Axis, right: float, eta: float | None = None
) -> Figure:
    with plot.style():
        figure, (axes,) = plot.new_figure(title, note, right=right)
        labels = []
        for (name, points), colour in zip(series.items(), _LINES, strict=False):
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", gid=name)
            labels.append(plot.EndLabel(points[-1][1], name, colour))
        if eta is not None:
            axes.axhline(eta, color=plot.GREY, linestyle="--", linewidth=1.4, gid="eta")
        _frame(axes, series, x, y)
        if eta is not None:
            left = min(at for points in series.values() for at, _ in points)
            plot.note_beside(axes, f"η = {short(eta)}", (left, eta), (14, 4), color=plot.GREY, size=10)
        if labels:  # of lines that end together, the first has the highest label
            plot.label_ends(axes, labels[::-1])
        else:
            axes.text(
                0.5, 0.5, "no point was reached", transform=axes.transAxes, ha="center", color=plot.GREY
            )
        return figure


def _frame(axes: Axes, series: Series, x: _Axis, y: _Axis) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    axes.set(xlabel=x.label, ylabel=y.label, xscale=x.scale, yscale=y.scale)
    axes.set_xticks(sorted({at for points in series.values() for at, _ in points}))
    axes.xaxis.set_minor_locator(NullLocator())
    plain = FuncFormatter(lambda value, _: f"{value:,.3g}" if value < 1000 else f"{value:,.0f}")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(plain)
    heights = [height for points in series.values() for _, height in points if height > 0]
    if y.scale == "log" and heights:
        low, high = min(heights) / 1.3, 2 * max(heights)  # room for labels of lines that end together
        axes.set_ylim(low, high)
        digits = (1, 2, 5) if high < 100 * low else (1,)
        ticks = [digit * 10.0**power for power in range(-3, 9) for digit in digits]
        axes.set_yticks([tick for tick in ticks if low <= tick <= high])
        axes.yaxis.set_minor_locator(NullLocator())
