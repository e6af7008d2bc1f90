"""Training from growing data: attempts of a run, and what validation, data and load come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lapwing.plots.names import in_title
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
    short,
    style,
)  # fmt: skip

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {"accept": GREEN, "reject": ORANGE, "retry": BLUE, "crashed": GREY}
_LINES = (BLUE, ORANGE, GREEN, PURPLE, INK)


@dataclass(frozen=True, slots=True)
class Shown:
    """An attempt: what was estimated and shown, the verdict, and what it used."""

    number: int
    estimate: float | None
    bound: float | None
    verdict: str
    blocks: int
    epsilon: float


def attempts_picture(name: str, shown: Sequence[Shown], *, what: str, target: float) -> Figure:
    """What each attempt of a run showed, beside the target, and what it used."""
    with style():
        last = shown[-1].verdict
        ended = {"accept": "was accepted", "reject": "was rejected"}.get(last, "is not accepted yet")
        figure, (axes,) = new_figure(
            f"{in_title(name)} {ended} at attempt {shown[-1].number}",
            f"Points: what was shown about the {what} with the declared probability. Rings: estimates. "
            "Below: blocks, and ε of each.",
            right=0.84,
        )
        _attempts(axes, shown, target)
        axes.set_ylabel(what)
        side = "at least" if what == "accuracy" else "at most"
        label_ends(axes, [EndLabel(target, f"target:\n{side} {short(target)}", INK)])
        return figure


def _attempts(axes: Axes, shown: Sequence[Shown], target: float) -> None:
    axes.axhline(target, color=INK, linestyle="--", linewidth=1.4, gid="target")
    for one in shown:
        colour = _COLOURS[one.verdict]
        if one.bound is not None:
            axes.plot([one.number], [one.bound], "o", color=colour, markersize=9, gid=f"bound-{one.number}")
        if one.estimate is not None:
            axes.plot(
                [one.number], [one.estimate], "o", color=colour, markersize=7, markerfacecolor="white",
                gid=f"estimate-{one.number}",
            )  # fmt: skip
        if one.estimate is not None and one.bound is not None:
            axes.plot([one.number] * 2, [one.estimate, one.bound], color=colour, linewidth=1.2)
    axes.set_xticks([one.number for one in shown])
    axes.set_xticklabels([f"{one.verdict}\n{one.blocks} · ε {short(one.epsilon)}" for one in shown])
    axes.set_xlim(0.5, shown[-1].number + 0.5)
    highest = max([target, *(one.bound or 0 for one in shown), *(one.estimate or 0 for one in shown)])
    axes.set_ylim(0, 1.08 * highest)


def violations_picture(rates: Mapping[str, Sequence[tuple[float, float]]], *, eta: float) -> Figure:
    """How often a model is accepted that is worse than its target: for each way to validate, (ε, rate)."""
    with style():
        figure, (axes,) = new_figure(
            "Only validation that allows for its own noise keeps bad models out",
            f"Share of accepted models that miss their target, by the ε of an attempt. η = {short(eta)}.",
            right=0.78,
        )
        _curves(axes, rates, x="log")
        axes.axhline(eta, color=GREY, linestyle="--", linewidth=1.4, gid="eta")
        axes.set_xlabel("ε of an attempt")
        axes.set_ylabel("accepted models that are bad")
        ends = [EndLabel(points[-1][1], name, colour) for (name, points), colour in _named(rates)]
        label_ends(axes, [*ends, EndLabel(eta, f"η = {short(eta)}", GREY)])
        return figure


def needed_picture(needed: Mapping[str, Sequence[tuple[float, float]]]) -> Figure:
    """Data needed until a model is accepted: for each target, (ε, rows)."""
    with style():
        figure, (axes,) = new_figure(
            "A tighter target or a smaller ε needs more data before a model can be accepted",
            "Rows of the first accepted attempt (mean over runs), against the ε of an attempt.",
            right=0.8,
        )
        _curves(axes, needed, x="log", y="log")
        axes.set_xlabel("ε of an attempt")
        axes.set_ylabel("rows needed")
        label_ends(
            axes, [EndLabel(points[-1][1], name, colour) for (name, points), colour in _named(needed)]
        )
        return figure


def release_picture(times: Mapping[str, Sequence[tuple[float, float]]]) -> Figure:
    """Mean time until a pipeline releases its model, against how many arrive: for each way to account."""
    with style():
        figure, (axes,) = new_figure(
            "Counting loss per block, and sparing it, releases models soonest under load",
            "Mean time from a pipeline's arrival to its release, in hours (simulated; one block an hour).",
            right=0.76,
        )
        _curves(axes, times, y="log")
        axes.set_xlabel("pipelines that arrive each hour")
        axes.set_ylabel("hours to release")
        label_ends(
            axes, [EndLabel(points[-1][1], name, colour) for (name, points), colour in _named(times)]
        )
        return figure


def _named(
    series: Mapping[str, Sequence[tuple[float, float]]],
) -> list[tuple[tuple[str, Sequence[tuple[float, float]]], str]]:
    return list(zip(series.items(), _LINES, strict=False))


def _curves(
    axes: Axes, series: Mapping[str, Sequence[tuple[float, float]]], *, x: str = "linear", y: str = "linear"
) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator  # noqa: PLC0415 (an extra)

    axes.set_xscale(x)
    axes.set_yscale(y)
    for (name, points), colour in _named(series):
        axes.plot([at for at, _ in points], [to for _, to in points], color=colour, marker="o", gid=name)
    axes.set_xticks(sorted({at for points in series.values() for at, _ in points}))
    axes.xaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:,.3g}" if value < 1000 else f"{value:,.0f}")
        )
