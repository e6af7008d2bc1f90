"""Many answers at once: the noise of each grows with √k under Gaussian noise, and with k under Laplace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lapwing.core.exact import short
from lapwing.mechanisms import Gaussian, Laplace
from lapwing.plots.style import BLUE, DOTS, ORANGE, EndLabel, error_axes, label_ends, new_figure, style
from lapwing.show.topic import NumberTable, Progress, Shown, cell_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DRAWS, _MOST_RUNS = 20_000, 2_000
_WIDE = 3  # from here on, the deviation of discrete Gaussian noise is σ to 15 digits


@dataclass(frozen=True, slots=True)
class NoiseOfMany:
    """The noise of each of k numbers: its exact deviation, and a measured one."""

    k: int
    laplace: float
    gaussian: float
    laplace_drawn: float
    gaussian_drawn: float


def many_numbers(values: Mapping[str, Fraction], _full: bool, progress: Progress) -> Shown:
    """Compute the noise of k counts that one person may all change by 1, for growing k."""
    epsilon, delta, most = values["epsilon"], values["delta"], int(values["k"])
    sizes = sorted({1, most, *(size for size in _grown(most))})
    found = []
    for place, k in enumerate(sizes):
        progress(place, len(sizes))
        found.append(noise_of(k, epsilon, delta))
    last = found[-1]
    better, worse = sorted((("Laplace", last.laplace), ("Gaussian", last.gaussian)), key=lambda one: one[1])
    above = [one.k for one in found if one.laplace <= one.gaussian]
    below = [one.k for one in found if one.laplace > one.gaussian]
    first = first_gaussian(epsilon, delta, (max(above, default=0), below[0])) if below else None
    turn = (
        f"Here Gaussian noise is the smaller one from {first:,} number{'s' * (first > 1)} on."
        if first is not None
        else f"Here Laplace noise is the smaller one for all sizes up to {most:,}."
    )
    return Shown(
        headline=f"For {most:,} counts under the same ε = {short(float(epsilon))}, {better[0]} noise has a "
        f"deviation of {cell_text(better[1])} for each count, {worse[0]} noise {cell_text(worse[1])}",
        sentences=(
            f"Up to {most:,} counts are released together, and one person may change every one of them "
            "by 1.",
            "The total ε is the same for all k: it covers all counts together, not each of them.",
            "Laplace noise must cover the sum of all changes, which is k. Gaussian noise must cover their "
            "Euclidean length, which is √k.",
            f"Gaussian noise needs a δ, here {short(float(delta))}. Laplace noise needs none.",
            turn,
        ),
        tables=(
            NumberTable(
                "Deviation of the noise of each count",
                ("counts, k", "Laplace", "Gaussian", "Laplace, measured", "Gaussian, measured"),
                tuple(
                    (one.k, one.laplace, one.gaussian, one.laplace_drawn, one.gaussian_drawn)
                    for one in found
                ),
            ),
        ),
        picture=partial(_draw, found, float(epsilon), float(delta)),
    )


def first_gaussian(epsilon: Fraction, delta: Fraction, between: tuple[int, int]) -> int:
    """Return the least k at which Gaussian noise is the smaller one.

    It is so at the second of the two k, and not at the first. The ratio of both deviations rises with k.
    """
    not_yet, already = between
    while already - not_yet > 1:
        middle = (not_yet + already) // 2
        by_laplace, by_gauss = deviations(middle, epsilon, delta)
        not_yet, already = (not_yet, middle) if by_gauss < by_laplace else (middle, already)
    return already


def deviations(k: int, epsilon: Fraction, delta: Fraction) -> tuple[float, float]:
    """Return the deviations of Laplace and of Gaussian noise of each of k counts."""
    q = math.exp(-1 / Laplace.for_epsilon(epsilon, l1=k).scale)
    sigma = float(Gaussian.for_budget(epsilon, delta, l2_squared=k, dimension=k).sigma)
    return math.sqrt(2 * q) / (1 - q), _on_whole_numbers(sigma)


def _on_whole_numbers(sigma: float) -> float:
    """Return the deviation of discrete Gaussian noise. It is below σ where σ is small."""
    if sigma > _WIDE:
        return sigma
    noise = np.arange(-50, 51)
    chances = np.exp(-(noise**2) / (2 * sigma**2))
    return math.sqrt(float((chances * noise**2).sum() / chances.sum()))


def _grown(most: int) -> list[int]:
    """Return 1, 3, 10, 30, … below `most`."""
    return [size for power in range(6) for size in (10**power, 3 * 10**power) if size < most]


def noise_of(k: int, epsilon: Fraction, delta: Fraction) -> NoiseOfMany:
    """Return the noise of each of k counts, from the mechanisms and from draws."""
    by_laplace = Laplace.for_epsilon(epsilon, l1=k)
    by_gauss = Gaussian.for_budget(epsilon, delta, l2_squared=k, dimension=k)
    zeros = np.zeros(k, np.int64)
    runs = min(max(_DRAWS // k, 1), _MOST_RUNS)
    drawn = (np.concatenate([noise.sample(zeros) for _ in range(runs)]) for noise in (by_laplace, by_gauss))
    one, other = (float(np.sqrt((noise.astype(float) ** 2).mean())) for noise in drawn)
    return NoiseOfMany(k, *deviations(k, epsilon, delta), one, other)


def _draw(found: list[NoiseOfMany], epsilon: float, delta: float) -> Figure:
    with style():
        last = found[-1]
        figure, (axes,) = new_figure(
            f"Many counts at once: for {last.k:,} of them Laplace noise is "
            f"{short(last.laplace / last.gaussian)} times as large as Gaussian noise",
            f"Noise of each of k counts that one person may all change by 1. All k together cost "
            f"ε = {short(epsilon)} (Gaussian: and δ = {short(delta)}). Lines: from the mechanisms. "
            "Dots: drawn.",
            right=0.76,
        )
        sizes = [one.k for one in found]
        error_axes(axes)
        axes.yaxis.set_major_formatter(lambda value, _: cell_text(value))
        axes.plot(sizes, [one.laplace for one in found], color=BLUE)
        axes.plot(sizes, [one.gaussian for one in found], color=ORANGE)
        axes.plot(sizes, [one.laplace_drawn for one in found], color=BLUE, **DOTS)
        axes.plot(sizes, [one.gaussian_drawn for one in found], color=ORANGE, **DOTS)
        axes.set(xlabel="number of counts, k", ylabel="deviation of the noise of each count")
        axes.set_xlim(1, last.k)
        label_ends(
            axes,
            [
                EndLabel(last.laplace, "Laplace:\ngrows like k", BLUE),
                EndLabel(last.gaussian, "Gaussian:\ngrows like √k", ORANGE),
            ],
        )
        return figure
