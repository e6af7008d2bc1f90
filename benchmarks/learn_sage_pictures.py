"""The pictures of the simulations in learn_sage.py, for the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lapwing.core.exact import short
from lapwing.plots.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    EndLabel,
    label_ends,
    new_figure,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINES = (BLUE, ORANGE, GREEN, PURPLE, INK)
Series = Mapping[str, Sequence[tuple[float, float]]]  # points of each line


def violations_picture(rates: Series, *, eta: float) -> Figure:
    """Draw how often a model is accepted that misses its target: (ε, rate) for each validation."""
    return _curves_picture(
        "Only validation that allows for its own noise keeps bad models out",
        f"Share of accepted models that miss their target, by the ε of an attempt. η = {short(eta)}.",
        rates,
        x=_Axis("ε of an attempt", "log"),
        y=_Axis("accepted models that are bad"),
        right=0.78,
        eta=eta,
    )


def needed_picture(needed: Series) -> Figure:
    """Draw the data needed until a model is accepted: (ε, rows) for each target."""
    return _curves_picture(
        "A tighter target or a smaller ε needs more data before a model can be accepted",
        "Rows of the first accepted attempt (mean over runs), against the ε of an attempt.",
        needed,
        x=_Axis("ε of an attempt", "log"),
        y=_Axis("rows needed", "log"),
        right=0.8,
    )


def release_picture(times: Series) -> Figure:
    """Draw the mean time until a pipeline releases its model, against arrivals, for each accounting."""
    return _curves_picture(
        "Counting loss per block, and sparing it, releases models soonest under load",
        "Mean time from a pipeline's arrival to its release, in hours (simulated; one block an hour).",
        times,
        x=_Axis("pipelines that arrive each hour"),
        y=_Axis("hours to release", "log"),
        right=0.76,
    )


class _Axis(NamedTuple):
    label: str
    scale: str = "linear"


def _curves_picture(
    title: str, note: str, series: Series, *, x: _Axis, y: _Axis, right: float, eta: float | None = None
) -> Figure:
    with style():
        figure, (axes,) = new_figure(title, note, right=right)
        labels = []
        for (name, points), colour in zip(series.items(), _LINES, strict=False):
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", gid=name)
            labels.append(EndLabel(points[-1][1], name, colour))
        if eta is not None:
            axes.axhline(eta, color=GREY, linestyle="--", linewidth=1.4, gid="eta")
            labels.append(EndLabel(eta, f"η = {short(eta)}", GREY))
        _frame(axes, series, x, y)
        label_ends(axes, labels)
        return figure


def _frame(axes: Axes, series: Series, x: _Axis, y: _Axis) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator  # noqa: PLC0415 (an extra)

    axes.set(xlabel=x.label, ylabel=y.label, xscale=x.scale, yscale=y.scale)
    axes.set_xticks(sorted({at for points in series.values() for at, _ in points}))
    axes.xaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:,.3g}" if value < 1000 else f"{value:,.0f}")
        )
