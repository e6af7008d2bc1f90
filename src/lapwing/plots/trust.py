"""What it costs to trust nobody: a curator's error against that of randomized response."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from lapwing.errors import BadParameter
from lapwing.exact import Number, whole
from lapwing.mechanisms import Laplace, RandomizedResponse
from lapwing.plots.style import BLUE, ORANGE, EndLabel, label_ends, new_figure, short, style
from lapwing.privacy.loss import checked_epsilon

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZES = tuple(round(10 ** (k / 2)) for k in range(2, 13))
# A measured point takes this many coins at most, and is left out where that would be too few runs.
_MOST_REPORTS = 4_000_000
_FEWEST_RUNS = 30


def curator_error(epsilon: Fraction, n: int) -> float:
    """Root mean square error of a share under Laplace noise on the count: √(2q) / ((1 - q) n)."""
    q = math.exp(-float(epsilon))
    return math.sqrt(2 * q) / (1 - q) / n


def local_error(epsilon: Fraction, n: int) -> float:
    """Root mean square error of the estimated share of n respondents' answers, whatever they are.

    √(p (1 - p) / n) / (2p - 1) with p = e^ε / (1 + e^ε), the probability of the truth.
    """
    p = 1 / (1 + math.exp(-float(epsilon)))
    return math.sqrt(p * (1 - p) / n) / (2 * p - 1)


def measured(epsilon: Fraction, n: int, repetitions: int) -> tuple[float, float]:
    """Root mean square errors of both, over fresh runs of the real mechanisms on a half-yes crowd."""
    answers = np.arange(n) % 2
    count, share = int(answers.sum()), answers.mean()
    released = Laplace.for_epsilon(epsilon, l1=1).sample(np.full(repetitions, count)) / n
    coins = RandomizedResponse.for_epsilon(epsilon)
    estimates = [coins.estimate(coins.sample(answers))[1] for _ in range(repetitions)]
    return _rms(released - share), _rms(np.array(estimates) - share)


def _rms(errors: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(np.sqrt((errors**2).mean()))


def curator_and_local(*, epsilon: Number, repetitions: int = 200) -> Figure:
    """Error of a share as n grows: trusted curator against randomized response.

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
    from matplotlib.ticker import FuncFormatter, NullLocator  # noqa: PLC0415 (an extra)

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
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.8 * _SIZES[0], _SIZES[-1])
    axes.set_ylim(0.3 * curator[-1], 2.5 * max(local[0], curator[0]))
    axes.plot(_SIZES, curator, color=BLUE, gid="curator")
    axes.plot(_SIZES, local, color=ORANGE, gid="local")
    if runs:
        sizes = [n for n in _SIZES if n * min(runs, _FEWEST_RUNS) <= _MOST_REPORTS]
        points = [measured(epsilon, n, min(runs, _MOST_REPORTS // n)) for n in sizes]
        look: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 6, "markeredgecolor": "white"}
        axes.plot(sizes, [100 * c for c, _ in points], color=BLUE, gid="curator-measured", **look)
        axes.plot(sizes, [100 * r for _, r in points], color=ORANGE, gid="local-measured", **look)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{short(value)} %"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("people asked, n")
    axes.set_ylabel("error of the share, in percentage points")
    label_ends(
        axes,
        [
            EndLabel(local[-1], "each flips coins,\nnobody is trusted:\nfalls like 1/√n", ORANGE),
            EndLabel(curator[-1], "a curator sees all,\nadds noise once:\nfalls like 1/n", BLUE),
        ],
    )
    return figure
