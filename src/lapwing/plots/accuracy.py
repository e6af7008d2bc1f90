"""The cost of privacy in accuracy.

`accuracy` draws the error of a count, a mean and a histogram against ε. `curator_and_local` compares a
trusted curator with randomized response, where nobody is trusted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from lapwing.core.exact import Number, short, whole
from lapwing.core.laplace import Laplace
from lapwing.core.losses import checked_epsilon
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.errors import BadParameter
from lapwing.plots.style import (
    BLUE,
    DOTS,
    GREEN,
    GREY,
    ORANGE,
    WHITE_BOX,
    EndLabel,
    error_axes,
    label_ends,
    new_figure,
    note_beside,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


BARS = 20
_STEPS = 1000  # a value in [0, 1] is rounded to a thousandth
_EPSILONS = tuple(Fraction(round(10 ** (k / 8) * 10**4), 10**4) for k in range(-16, 5))
_CONFIDENCE = Fraction(95, 100)


@dataclass(frozen=True, slots=True)
class RelativeError:
    """The error of an answer, as a share of its largest possible value."""

    expected: float
    within: float  # with 95 % confidence; NaN where nothing can be said


def mean_size(scale: Fraction) -> float:
    """Return E|noise| of discrete Laplace noise: 2q / (1 - q²), q = exp(-1/scale)."""
    return 1 / math.sinh(1 / float(scale))


def of_count(epsilon: Fraction, n: int) -> RelativeError:
    """Return the error of a count of people, as a share of n."""
    noise = Laplace.for_epsilon(epsilon, l1=1)
    return RelativeError(mean_size(noise.scale) / n, noise.spread(_CONFIDENCE) / n)


def of_mean(epsilon: Fraction, n: int) -> RelativeError:
    """Return the error of the mean of values in [0, 1] (here: with mean 1/2), where n is private.

    It is a noisy sum over a noisy count. Each gets ε/2. The error is (a - b/2) / (n + b) for noises a and
    b. Expected size: to leading order in 1/n, by E|X + Y| = (p² + pq + q²) / (p + q) for Laplace X, Y of
    scales p, q.
    """
    sums, counts = Laplace.for_epsilon(epsilon / 2, l1=_STEPS), Laplace.for_epsilon(epsilon / 2, l1=1)
    p = float(sums.scale) / _STEPS
    q = float(counts.scale) / 2
    expected = (p * p + p * q + q * q) / (p + q) / n
    # Both noises keep within their widths together with 95 % confidence.
    a, b = sums.spread(_CONFIDENCE, answers=2) / _STEPS, counts.spread(_CONFIDENCE, answers=2)
    return RelativeError(expected, (a + b / 2) / (n - b) if 2 * b < n else math.nan)


def of_histogram(epsilon: Fraction, n: int) -> RelativeError:
    """Return the error of the worst of 20 bars, as a share of n."""
    noise = Laplace.for_epsilon(epsilon, l1=1)
    q = math.exp(-1 / float(noise.scale))
    # E max = Σ P[max > w], P[|noise| <= w] = 1 - 2 q^(w+1) / (1 + q); 60 scales leave 1e-25 out.
    widths = np.arange(math.ceil(60 * float(noise.scale)) + 1)
    expected = float((1 - (1 - 2 * q ** (widths + 1) / (1 + q)) ** BARS).sum())
    return RelativeError(expected / n, noise.spread(_CONFIDENCE, answers=BARS) / n)


_PANELS: tuple[tuple[str, str, str, Callable[[Fraction, int], RelativeError]], ...] = (
    ("count", "A count", BLUE, of_count),
    ("mean", "A mean of values from 0 to 1", ORANGE, of_mean),
    ("histogram", f"The worst of {BARS} bars", GREEN, of_histogram),
)


def accuracy(*, n: int) -> Figure:
    """Draw the expected error and its 95 % bound against ε, of three statistics of n people."""
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
        panels[0].set_ylim(bottom=100 * 0.3 / people)  # smaller errors are not drawn
        _name_lines(panels[0], people)
        return figure


def _panel(axes: Axes, name: str, colour: str, found: list[RelativeError]) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter  # noqa: PLC0415 (an extra)

    epsilons = [float(epsilon) for epsilon in _EPSILONS]
    expected = [100 * error.expected for error in found]
    # Noise that is 0 in 95 % of all cases has no place on a log axis.
    within = [100 * error.within or math.nan for error in found]
    axes.set(xscale="log", yscale="log", xlabel="ε (smaller is more private)")
    axes.set_xlim(epsilons[0], epsilons[-1])
    axes.fill_between(epsilons, expected, within, color=colour, alpha=0.15, linewidth=0)
    axes.plot(epsilons, within, color=colour, linewidth=1.2, gid=f"{name}-within")
    axes.plot(epsilons, expected, color=colour, gid=f"{name}-expected")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{short(value)} %"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())


def _name_lines(axes: Axes, n: int) -> None:
    for epsilon, what, text, shift in (
        (Fraction(2, 10), "within", "95 % of answers\nare within this", (9, 6)),
        (Fraction(1, 10), "expected", "expected error", (-7, -8)),
    ):
        at = (float(epsilon), 100 * getattr(of_count(epsilon, n), what))
        ha, va = "left" if shift[0] > 0 else "right", "bottom" if shift[1] > 0 else "top"
        note_beside(axes, text, at, shift, ha=ha, va=va, color=BLUE, size=9.5, bbox=WHITE_BOX)


def _sampling(axes: Axes, n: int, *, labelled: bool) -> None:
    """Draw the error of a random sample of n people, for comparison."""
    chance = 100 * 1.96 * math.sqrt(0.25 / n)
    axes.axhline(chance, color=GREY, linewidth=1, linestyle=(0, (5, 3)))
    if labelled:
        at = (_EPSILONS[-1], chance)
        note_beside(axes, "sampling error (95 %)", at, (-2, 4), ha="right", color=GREY, size=9.5)


def _percent(share: float) -> str:
    return f"{short(100 * share)} %"


_SIZES = tuple(round(10 ** (k / 2)) for k in range(2, 13))
# A measured point takes this many coins at most, and is left out where that would be too few runs.
_MOST_REPORTS = 4_000_000
_FEWEST_RUNS = 30


def curator_error(epsilon: Fraction, n: int) -> float:
    """Return the root mean square error of a share with Laplace noise on the count.

    It is √(2q) / ((1 - q) n) with q = e^-ε.
    """
    q = math.exp(-float(epsilon))
    return math.sqrt(2 * q) / (1 - q) / n


def local_error(epsilon: Fraction, n: int) -> float:
    """Return the root mean square error of the estimated share of n respondents, whatever they answer.

    √(p (1 - p) / n) / (2p - 1) with p = e^ε / (1 + e^ε), the probability of the truth.
    """
    p = 1 / (1 + math.exp(-float(epsilon)))
    return math.sqrt(p * (1 - p) / n) / (2 * p - 1)


def measured(epsilon: Fraction, n: int, repetitions: int) -> tuple[float, float]:
    """Return root mean square errors of both, over fresh runs of the mechanisms; half of all say yes."""
    answers = np.arange(n) % 2
    count, share = int(answers.sum()), answers.mean()
    released = Laplace.for_epsilon(epsilon, l1=1).sample(np.full(repetitions, count)) / n
    coins = RandomizedResponse.for_epsilon(epsilon)
    estimates = [coins.estimate(coins.sample(answers))[1] for _ in range(repetitions)]
    return _rms(released - share), _rms(np.array(estimates) - share)


def _rms(errors: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(np.sqrt((errors**2).mean()))


def curator_and_local(*, epsilon: Number, repetitions: int = 200) -> Figure:
    """Draw the error of a share as n grows: a trusted curator against randomized response.

    Lines are exact. Points are measured with fresh noise, over `repetitions` runs where n is small and
    fewer where it is large; 0 draws lines only.
    """
    e = checked_epsilon(epsilon)
    if not Fraction(1, 1000) <= e <= 20:
        raise BadParameter("epsilon", "must lie between 0.001 and 20 to be drawn")
    runs = whole(repetitions, "repetitions")
    with style():
        return _draw(e, runs)


def _draw(epsilon: Fraction, runs: int) -> Figure:
    curator = [100 * curator_error(epsilon, n) for n in _SIZES]
    local = [100 * local_error(epsilon, n) for n in _SIZES]
    people = 10_000
    factor = local_error(epsilon, people) / curator_error(epsilon, people)
    figure, (axes,) = new_figure(
        f"Trusting nobody costs accuracy: with {people:,} people at ε = {short(float(epsilon))} the error "
        f"of a share is {factor:,.0f} times that of a trusted curator",
        "Root mean square error of a share of yes answers. Lines: exact."
        + (" Points: measured with fresh noise." if runs else ""),
        right=0.74,
    )
    error_axes(axes)
    axes.set_xlim(0.8 * _SIZES[0], _SIZES[-1])
    axes.set_ylim(0.3 * curator[-1], 2.5 * max(local[0], curator[0]))
    axes.plot(_SIZES, curator, color=BLUE, gid="curator")
    axes.plot(_SIZES, local, color=ORANGE, gid="local")
    if runs:
        sizes = [n for n in _SIZES if n * min(runs, _FEWEST_RUNS) <= _MOST_REPORTS]
        points = [measured(epsilon, n, min(runs, _MOST_REPORTS // n)) for n in sizes]
        axes.plot(sizes, [100 * c for c, _ in points], color=BLUE, gid="curator-measured", **DOTS)
        axes.plot(sizes, [100 * r for _, r in points], color=ORANGE, gid="local-measured", **DOTS)
    axes.set(xlabel="people asked, n", ylabel="error of the share, in percentage points")
    label_ends(
        axes,
        [
            EndLabel(local[-1], "each flips coins,\nnobody is trusted:\nfalls like 1/√n", ORANGE),
            EndLabel(curator[-1], "a curator sees all,\nadds noise once:\nfalls like 1/n", BLUE),
        ],
    )
    return figure
