"""Learning from growing data: the attempts of a run, and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lapwing.core.exact import short
from lapwing.plots.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    EndLabel,
    in_title,
    label_ends,
    new_figure,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {"accept": GREEN, "reject": ORANGE, "retry": BLUE, "crashed": GREY}
_FEW = 8  # attempts that have room below


@dataclass(frozen=True, slots=True)
class ShownAttempt:
    """An attempt: its estimate, its bound, its verdict, and the data and ε that it used."""

    number: int
    estimate: float | None
    bound: float | None
    verdict: str
    blocks: int
    epsilon: float


def attempts_picture(name: str, shown: Sequence[ShownAttempt], *, what: str, target: float) -> Figure:
    """Draw the bound of each attempt of a run beside the target, and what each attempt used."""
    with style():
        last = shown[-1].verdict
        ended = {"accept": "was accepted", "reject": "was rejected"}.get(last, "is not accepted yet")
        figure, (axes,) = new_figure(
            f"{in_title(name)} {ended} at attempt {shown[-1].number}",
            f"Points: what was shown about the {what} with the declared probability{_also(last)}. "
            "Rings: estimates. Below: blocks, and ε of each of them.",
            right=0.84,
        )
        _attempts(axes, shown, target)
        axes.set_ylabel(what)
        side = "at least" if what == "accuracy" else "at most"
        label_ends(axes, [EndLabel(target, f"target:\n{side} {short(target)}", INK)])
        return figure


def _also(last: str) -> str:
    return " (of the rejection: what every model of its class loses at least)" if last == "reject" else ""


def _used(attempt: ShownAttempt) -> str:
    blocks = f"{attempt.blocks} block{'' if attempt.blocks == 1 else 's'}"
    return f"{attempt.verdict}\n{blocks}\nε {short(attempt.epsilon)}"


def _attempts(axes: Axes, shown: Sequence[ShownAttempt], target: float) -> None:
    axes.axhline(target, color=INK, linestyle="--", linewidth=1.4, gid="target")
    for attempt in shown:
        colour = _COLOURS[attempt.verdict]
        if attempt.bound is not None:
            axes.plot(
                [attempt.number],
                [attempt.bound],
                "o",
                color=colour,
                markersize=9,
                gid=f"bound-{attempt.number}",
            )
        if attempt.estimate is not None:
            ring: dict[str, Any] = {"markerfacecolor": "white", "gid": f"estimate-{attempt.number}"}
            axes.plot([attempt.number], [attempt.estimate], "o", color=colour, markersize=7, **ring)
        if attempt.estimate is not None and attempt.bound is not None:
            axes.plot([attempt.number] * 2, [attempt.estimate, attempt.bound], color=colour, linewidth=1.2)
    axes.set_xticks([attempt.number for attempt in shown])
    axes.set_xticklabels([_used(attempt) for attempt in shown], size=10 if len(shown) <= _FEW else 7.5)
    highest = max(
        [target, *(attempt.bound or 0 for attempt in shown), *(attempt.estimate or 0 for attempt in shown)]
    )
    axes.set(xlim=(0.5, shown[-1].number + 0.5), ylim=(0, 1.08 * highest))


@dataclass(frozen=True, slots=True)
class ShownBin:
    """Units whose prediction is in low … high: their mean and its interval. No mean: too few units."""

    low: float
    high: float
    mean: float | None
    at_least: float
    at_most: float


def calibration_picture(
    name: str, bins: Sequence[ShownBin], *, predicted: str, compared: str, confidence: float
) -> Figure:
    """Draw a model's predictions, in bins, against the true values."""
    told = [shown for shown in bins if shown.mean is not None]
    off = [shown for shown in told if shown.at_least > shown.high or shown.at_most < shown.low]
    verdict = (
        f"is off in {len(off)} of {len(told)} bins" if off else "agrees with what is so, as far as seen"
    )
    with style():
        figure, (axes,) = new_figure(
            f"{in_title(name)} {verdict if told else 'met too few units to be compared with what is so'}",
            "Squares: where the means of a calibrated model lie. Points: means from noisy counts of testing"
            f" units, each with an interval that holds with probability {short(confidence)}.",
            size=(7.6, 6.6),
            right=0.95,
        )
        ends = bins[0].low, bins[-1].high
        for shown in bins:
            middle = (shown.low + shown.high) / 2
            axes.fill_between([shown.low, shown.high], shown.low, shown.high, color=PALE, linewidth=0)
            if shown.mean is None:
                at = (middle, ends[0] + 0.02 * (ends[1] - ends[0]))
                axes.annotate("too few", at, color=GREY, size=8.5, ha="center", rotation=90, va="bottom")
                continue
            colour = ORANGE if shown in off else BLUE
            interval = [shown.at_least, shown.at_most]
            axes.plot([middle] * 2, interval, color=colour, linewidth=1.6, gid=f"interval-{shown.low:g}")
            gid = f"mean-{shown.low:g}"
            axes.plot([middle], [shown.mean], "o", color=colour, markersize=7, clip_on=False, gid=gid)
        axes.set(xlim=ends, ylim=ends, xlabel=predicted, ylabel=compared)
        return figure
