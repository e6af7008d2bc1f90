"""The mean absolute noise is the scale: exactly by the law, and measured with fresh draws."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lapwing.audit.laws.decimals import precise
from lapwing.audit.laws.noise_laws import laplace_at_least
from lapwing.core.exact import short
from lapwing.mechanisms import Laplace
from lapwing.plots.accuracy import mean_size
from lapwing.plots.style import (
    BLUE,
    DOTS,
    GREY,
    ORANGE,
    EndLabel,
    error_axes,
    label_ends,
    new_figure,
    style,
)
from lapwing.show.topic import NumberTable, Progress, Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OTHERS = ("0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "2")
_STEPS = (1, 10, 100, 1000)
_SCALES = 60  # less than 1e-25 lies beyond


def mean_noise(values: Mapping[str, Fraction], _full: bool, progress: Progress) -> Shown:
    """Compute E|noise| from the law, and the mean of |noise| over n draws."""
    epsilon, draws = values["epsilon"], int(values["n"])
    every = sorted({epsilon, *map(Fraction, _OTHERS)})
    rows = []
    for place, other in enumerate(every):
        progress(place, len(every))
        rows.append((float(other), float(1 / other), mean_size(1 / other), _drawn(1 / other, draws)))
    exact = float(expected_size(1 / epsilon))
    drawn = next(row[3] for row in rows if row[0] == float(epsilon))
    scale = short(float(1 / epsilon))
    return Shown(
        headline=f"At ε = {short(float(epsilon))} the noise of a count has scale {scale}; its size is "
        f"{exact:.4g} on average, and was {drawn:.4g} in {draws:,} draws",
        sentences=(
            "An answer is above the truth as often as below it, so the noise is 0 on average.",
            "Its size, without the sign, is on average the scale: the sensitivity divided by ε.",
            "This is exact for noise on all real numbers. Our noise is on whole numbers, and its mean size "
            f"is 1/sinh(1/scale), which is less: {exact:.6g} instead of {scale}. On a finer grid the two "
            "agree.",
            "A single answer may be farther off: at this ε, at least 95 % of all answers lie within "
            f"± {Laplace.for_epsilon(epsilon, l1=1).spread('0.95'):,} of the truth.",
        ),
        tables=(
            NumberTable(
                "The mean size of the noise of a count",
                ("ε", "scale", "mean size, exactly", f"mean size of {draws:,} draws"),
                tuple(rows),
                bars=2,
            ),
            NumberTable(
                f"The same sum on a finer grid, at ε = {short(float(epsilon))}",
                ("steps in 1", "mean size, exactly", "mean size / scale"),
                tuple(_on_grid(epsilon, steps) for steps in _STEPS),
            ),
        ),
        picture=partial(_draw, rows, draws),
    )


@precise
def expected_size(scale: Fraction) -> Decimal:
    """Return E|noise| = 2 Σ P[noise >= k] over k >= 1, from the exact law."""
    tails = (laplace_at_least(scale, k) for k in range(1, math.ceil(_SCALES * scale) + 2))
    return 2 * sum(tails, Decimal(0))


def _drawn(scale: Fraction, draws: int) -> float:
    return float(np.abs(Laplace(scale, 1).sample(np.zeros(draws, np.int64))).mean())


def _on_grid(epsilon: Fraction, steps: int) -> tuple[int, float, float]:
    """Return the mean size of the noise on a sum in steps of 1/steps, of which one person changes 1."""
    size = mean_size(Laplace.for_epsilon(epsilon, l1=steps).scale) / steps
    return steps, size, size * float(epsilon)


def _draw(rows: list[tuple[float, float, float, float]], draws: int) -> Figure:
    with style():
        figure, (axes,) = new_figure(
            "For a small ε the mean size of the noise is about its scale: half the ε, twice the noise",
            f"Noise of a count of people. Line: exact. Dots: {draws:,} fresh draws for each ε.",
            right=0.74,
        )
        epsilons = [row[0] for row in rows]
        error_axes(axes)
        axes.plot(epsilons, [row[1] for row in rows], color=GREY, linestyle=(0, (5, 3)), linewidth=1.2)
        axes.plot(epsilons, [row[2] for row in rows], color=BLUE)
        axes.plot(epsilons, [row[3] or math.nan for row in rows], color=ORANGE, **DOTS)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: short(value))
        axes.set(xlabel="ε (smaller is more private)", ylabel="size of the noise, in people")
        axes.set_xlim(epsilons[0], epsilons[-1])
        labels = [
            EndLabel(rows[-1][1], "the scale, 1/ε: noise\non all real numbers", GREY),
            EndLabel(rows[-1][2], "mean size on\nwhole numbers", BLUE),
        ]
        label_ends(axes, labels)
        return figure
