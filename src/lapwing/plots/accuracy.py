"""What privacy costs in accuracy: the error of a count, a mean and a histogram against ε."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from lapwing.errors import BadParameter
from lapwing.exact import whole
from lapwing.mechanisms import Laplace
from lapwing.plots.style import BLUE, GREEN, GREY, ORANGE, new_figure, short, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BARS = 20
_STEPS = 1000  # a value in [0, 1] is rounded to a thousandth
_EPSILONS = tuple(Fraction(round(10 ** (k / 8) * 10**4), 10**4) for k in range(-16, 5))
_CONFIDENCE = Fraction(95, 100)


@dataclass(frozen=True, slots=True)
class Error:
    """Of an answer, as a share of what it could be at most."""

    expected: float
    within: float  # with 95 % confidence; NaN where nothing can be said


def mean_size(scale: Fraction) -> float:
    """E|noise| of discrete Laplace noise: 2q / (1 - q²), q = exp(-1/scale)."""
    return 1 / math.sinh(1 / float(scale))


def of_count(epsilon: Fraction, n: int) -> Error:
    """A count of people, as a share of n."""
    noise = Laplace.for_epsilon(epsilon, l1=1)
    return Error(mean_size(noise.scale) / n, noise.spread(_CONFIDENCE) / n)


def of_mean(epsilon: Fraction, n: int) -> Error:
    """The mean of values in [0, 1] (here: with mean 1/2), n private: a noisy sum over a noisy count.

    Each gets ε/2. The error is (a - b/2) / (n + b) for noises a and b. Expected size: to leading
    order in 1/n, by E|X + Y| = (p² + pq + q²) / (p + q) for Laplace X, Y of scales p, q.
    """
    sums, counts = Laplace.for_epsilon(epsilon / 2, l1=_STEPS), Laplace.for_epsilon(epsilon / 2, l1=1)
    p = float(sums.scale) / _STEPS
    q = float(counts.scale) / 2
    expected = (p * p + p * q + q * q) / (p + q) / n
    # Both noises keep within their widths together with 95 % confidence.
    a, b = sums.spread(_CONFIDENCE, answers=2) / _STEPS, counts.spread(_CONFIDENCE, answers=2)
    return Error(expected, (a + b / 2) / (n - b) if 2 * b < n else math.nan)


def of_histogram(epsilon: Fraction, n: int) -> Error:
    """The worst of 20 bars, as a share of n."""
    noise = Laplace.for_epsilon(epsilon, l1=1)
    q = math.exp(-1 / float(noise.scale))
    # E max = Σ P[max > w], P[|noise| <= w] = 1 - 2 q^(w+1) / (1 + q); 60 scales leave 1e-25 out.
    widths = np.arange(math.ceil(60 * float(noise.scale)) + 1)
    expected = float((1 - (1 - 2 * q ** (widths + 1) / (1 + q)) ** BARS).sum())
    return Error(expected / n, noise.spread(_CONFIDENCE, answers=BARS) / n)


_PANELS: tuple[tuple[str, str, str, Callable[[Fraction, int], Error]], ...] = (
    ("count", "A count", BLUE, of_count),
    ("mean", "A mean of values from 0 to 1", ORANGE, of_mean),
    ("histogram", f"The worst of {BARS} bars", GREEN, of_histogram),
)


def accuracy(*, n: int) -> Figure:
    """Expected error and 95 % bound against ε for a count, a mean and a histogram of n people."""
    people = whole(n, "n", at_least=10)
    if people > 10**12:
        raise BadParameter("n", "must be at most 1e12 to be drawn")
    with style():
        one, tenth = (_percent(of_count(Fraction(1, k), people).within) for k in (1, 10))
        figure, panels = new_figure(
            f"A ten times smaller ε costs ten times the error: at ε = 1 a count of {people:,} people is "
            f"within {one}, at ε = 0.1 within {tenth}",
            "Error of one answer under Laplace noise, as a share of n (count, bars) or of the range of "
            "values (mean). Dashed: by how much a random sample of n people is off anyway.",
            panels=3,
            size=(11.0, 5.4),
        )
        for axes, (name, title, colour, error) in zip(panels, _PANELS, strict=True):
            found = [error(epsilon, people) for epsilon in _EPSILONS]
            _panel(axes, name, colour, found)
            axes.set_title(title, color=colour)
            _sampling(axes, people, labelled=axes is panels[-1])
        panels[0].set_ylabel("error, in % of n or of the range")
        panels[0].set_ylim(bottom=100 * 0.3 / people)  # less than a third of a person is no error
        _name_lines(panels[0], people)
        return figure


def _panel(axes: Axes, name: str, colour: str, found: list[Error]) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter  # noqa: PLC0415 (an extra)

    epsilons = [float(epsilon) for epsilon in _EPSILONS]
    expected = [100 * error.expected for error in found]
    # Noise that is 0 in 95 % of all cases has no place on a log axis.
    within = [100 * error.within or math.nan for error in found]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(epsilons[0], epsilons[-1])
    axes.fill_between(epsilons, expected, within, color=colour, alpha=0.15, linewidth=0)
    axes.plot(epsilons, within, color=colour, linewidth=1.2, gid=f"{name}-within")
    axes.plot(epsilons, expected, color=colour, gid=f"{name}-expected")
    plain = FuncFormatter(lambda value, _: short(value))
    axes.xaxis.set_major_formatter(plain)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{short(value)} %"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("ε (smaller is more private)")


def _name_lines(axes: Axes, n: int) -> None:
    for epsilon, what, text, shift in (
        (Fraction(2, 10), "within", "95 % of answers\nare within this", (9, 6)),
        (Fraction(1, 10), "expected", "expected error", (-7, -8)),
    ):
        axes.annotate(
            text,
            xy=(float(epsilon), 100 * getattr(of_count(epsilon, n), what)),
            xytext=shift,
            textcoords="offset points",
            ha="left" if shift[0] > 0 else "right",
            va="bottom" if shift[1] > 0 else "top",
            color=BLUE,
            size=9.5,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )


def _sampling(axes: Axes, n: int, *, labelled: bool) -> None:
    """For comparison: by how much a random sample of n people is off anyway."""
    chance = 100 * 1.96 * math.sqrt(0.25 / n)
    axes.axhline(chance, color=GREY, linewidth=1, linestyle=(0, (5, 3)))
    if labelled:
        axes.annotate(
            "sampling error (95 %)",
            xy=(_EPSILONS[-1], chance),
            xytext=(-2, 4),
            textcoords="offset points",
            ha="right",
            color=GREY,
            size=9.5,
        )


def _percent(share: float) -> str:
    return f"{short(100 * share)} %"
