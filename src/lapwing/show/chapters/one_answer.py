"""The chapter "One answer": the noise, its size, and how far one person moves a statistic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.laws import laplace_at_least, precise
from lapwing.core.exact import short, short_up
from lapwing.mechanisms import Laplace
from lapwing.mechanisms import sensitivity as theorem
from lapwing.plots import style as plot
from lapwing.plots.accuracy import mean_size
from lapwing.show.topic import NumberTable, Progress, Shown, cell_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The Laplace law and its scale: exact probabilities of the noise, and fresh draws beside them

DRAWS = 20_000
_SIDE = 6  # cells on each side of the middle one
_EPSILONS = tuple(Fraction(text) for text in ("0.01", "0.1", "0.5", "1", "2", "5"))


def laplace(values: Mapping[str, Fraction], _full: bool, _progress: Progress) -> Shown:
    """Compute the noise of one count: its exact law, in cells of equal width, and draws."""
    epsilon, distance = values["epsilon"], int(values["sensitivity"])
    noise = Laplace.for_epsilon(epsilon, l1=distance)
    width = 2 * math.floor(noise.scale / 4) + 1  # odd, so that the middle cell has its middle at 0
    exact = cell_chances(noise.scale, width)
    cells = np.clip(np.round(noise.sample(np.zeros(DRAWS, np.int64)) / width), -_SIDE, _SIDE)
    drawn = [float((cells == place).mean()) for place in range(-_SIDE, _SIDE + 1)]
    names = [_name(place, width) for place in range(-_SIDE, _SIDE + 1)]
    others = [Laplace.for_epsilon(other, l1=distance) for other in _EPSILONS]
    scale, within = cell_text(float(noise.scale)), noise.spread("0.95")
    return Shown(
        headline=f"At ε = {short(float(epsilon))} the noise has scale {scale}: at least 95 % of all "
        f"answers are {_near(within)}",
        sentences=(
            f"One person changes this count by at most {distance:,} (its sensitivity).",
            f"The scale of the noise is the sensitivity divided by ε: {scale}.",
            "So half the ε means twice the scale, and ε = 0 would mean noise without limit, not no noise.",
            "The noise does not depend on the count: it protects a person in a group of 5 as it protects "
            "one in a group of a million. So it is a large share of a small count and a small share of a "
            "large one.",
            "ε is neither a probability nor a percentage; it limits how much one person can change the "
            "probability of any answer (`lapwing show ratio`).",
        ),
        tables=(
            NumberTable(
                "The noise that is added",
                ("noise", "probability", f"share of {DRAWS:,} draws"),
                tuple(zip(names, exact, drawn, strict=True)),
                bars=1,
            ),
            NumberTable(
                "Other values of ε",
                ("ε", "scale", "at least 95 % of answers within ±"),
                tuple(
                    (float(other), float(mechanism.scale), mechanism.spread("0.95"))
                    for other, mechanism in zip(_EPSILONS, others, strict=True)
                ),
            ),
        ),
        picture=partial(_draw_law, noise, width, exact, drawn),
    )


def cell_chances(scale: Fraction, width: int) -> list[float]:
    """Return the probability of each cell of this width around 0. The outer cells are endless."""
    half = width // 2
    ends = [float(laplace_at_least(scale, place * width - half)) for place in range(1 - _SIDE, _SIDE + 1)]
    falling = [1.0, *ends, 0.0]
    return [higher - lower for higher, lower in pairwise(falling)]


def _near(within: int) -> str:
    return f"within ± {within:,} of the truth" if within else "exactly the truth"


def _name(place: int, width: int) -> str:
    low, high = place * width - width // 2, place * width + width // 2
    if abs(place) == _SIDE:
        return f"{low:,} or more" if place > 0 else f"{high:,} or less"
    return f"{low:,}" if width == 1 else f"{low:,} to {high:,}"


@plot.style()
def _draw_law(noise: Laplace, width: int, exact: list[float], drawn: list[float]) -> Figure:
    epsilon, scale = short(float(noise.l1 / noise.scale)), float(noise.scale)
    figure, (axes,) = plot.new_figure(
        f"Laplace noise at ε = {epsilon} has scale {cell_text(scale)}, and is as likely up as down",
        f"Bars: the exact probability of the noise{_of_cells(width)}. Dots: {DRAWS:,} fresh draws. The "
        "outer bars also hold everything beyond them.",
    )
    places, half = [place * width for place in range(-_SIDE, _SIDE + 1)], width // 2
    axes.bar(places, [100 * chance for chance in exact], width=0.8 * width, color=plot.BLUE, alpha=0.75)
    axes.plot(places, [100 * share for share in drawn], "o", color=plot.ORANGE, markeredgecolor="white")
    top = 100 * max(exact)
    axes.set_ylim(0, 1.25 * top)
    axes.annotate(
        "",
        xy=(scale, 1.12 * top),
        xytext=(0, 1.12 * top),
        arrowprops={"arrowstyle": "<->", "color": plot.INK},
    )
    plot.note_beside(
        axes,
        f"the scale: sensitivity {noise.l1:,} / ε",
        (max(scale, 0), 1.12 * top),
        (8, 0),
        va="center",
        color=plot.INK,
    )
    axes.axvline(0, color=plot.GREY, linewidth=0.8)
    ends = [f"≤ {half - places[-1]:,}", f"≥ {places[-1] - half:,}"]
    inner = [f"{place:+,}" if place else "0" for place in places[1:-1]]
    names = [ends[0], *inner, ends[1]]
    every = 1 if max(map(len, names)) <= 6 else 3  # long names would overlap
    axes.set_xticks(places[::every], names[::every])
    axes.set(xlabel="noise: answer minus truth", ylabel="probability, in %")
    return figure


def _of_cells(width: int) -> str:
    return "" if width == 1 else f" (cells of {width:,} values)"


# The mean absolute noise is the scale: exactly by the law, and measured with fresh draws

_SMALL_EPSILONS = ("0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "2")
_STEPS = (1, 10, 100, 1000)
_SCALES = 60  # less than 1e-25 lies beyond


def mean_noise(values: Mapping[str, Fraction], _full: bool, progress: Progress) -> Shown:
    """Compute E|noise| from the law, and the mean of |noise| over n draws."""
    epsilon, draws = values["epsilon"], int(values["n"])
    every = sorted({epsilon, *map(Fraction, _SMALL_EPSILONS)})
    rows = []
    for place, other in enumerate(every):
        progress(place, len(every))
        rows.append((float(other), float(1 / other), mean_size(1 / other), _mean_drawn(1 / other, draws)))
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
        picture=partial(_draw_means, rows, draws),
    )


@precise
def expected_size(scale: Fraction) -> Decimal:
    """Return E|noise| = 2 Σ P[noise >= k] over k >= 1, from the exact law."""
    tails = (laplace_at_least(scale, k) for k in range(1, math.ceil(_SCALES * scale) + 2))
    return 2 * sum(tails, Decimal(0))


def _mean_drawn(scale: Fraction, draws: int) -> float:
    return float(np.abs(Laplace(scale, 1).sample(np.zeros(draws, np.int64))).mean())


def _on_grid(epsilon: Fraction, steps: int) -> tuple[int, float, float]:
    """Return the mean size of the noise on a sum in steps of 1/steps, of which one person changes 1."""
    size = mean_size(Laplace.for_epsilon(epsilon, l1=steps).scale) / steps
    return steps, size, size * float(epsilon)


@plot.style()
def _draw_means(rows: list[tuple[float, float, float, float]], draws: int) -> Figure:
    figure, (axes,) = plot.new_figure(
        "For a small ε the mean size of the noise is about its scale: half the ε, twice the noise",
        f"Noise of a count of people. Line: exact. Dots: {draws:,} fresh draws for each ε.",
        right=0.74,
    )
    epsilons = [row[0] for row in rows]
    plot.error_axes(axes)
    axes.plot(epsilons, [row[1] for row in rows], color=plot.GREY, linestyle=(0, (5, 3)), linewidth=1.2)
    axes.plot(epsilons, [row[2] for row in rows], color=plot.BLUE)
    axes.plot(epsilons, [row[3] or math.nan for row in rows], color=plot.ORANGE, **plot.DOTS)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: short(value))
    axes.set(xlabel="ε (smaller is more private)", ylabel="size of the noise, in people")
    axes.set_xlim(epsilons[0], epsilons[-1])
    labels = [
        plot.EndLabel(rows[-1][1], "the scale, 1/ε: noise\non all real numbers", plot.GREY),
        plot.EndLabel(rows[-1][2], "mean size on\nwhole numbers", plot.BLUE),
    ]
    plot.label_ends(axes, labels)
    return figure


# Sensitivity: how far one person can move a statistic, by the theorem and on data that reach it

Values = NDArray[np.float64]


def sensitivity(values: Mapping[str, Fraction], _full: bool, _progress: Progress) -> Shown:
    """Compute sensitivities, and the change of each statistic on the worst data."""
    n, rows, epsilon = int(values["n"]), int(values["rows"]), values["epsilon"]
    zeros = np.zeros(n)
    with_one = np.append(np.zeros(n - 1), 1.0)  # the last person's value is 1 instead of 0
    filed = np.full(n, rows)  # complaints of each person; then one person leaves
    others = filed[:-1]
    changes: list[tuple[str, float, float]] = [
        (
            "people who complained",
            float(np.count_nonzero(filed) - np.count_nonzero(others)),
            float(theorem.count(rows=1).l1),
        ),
        (
            f"complaints, at most {rows} each",
            float(filed.sum() - others.sum()),
            float(theorem.count(rows=rows).l1),
        ),
        ("mean of values from 0 to 1", _moved(np.mean, zeros, with_one), _mean(n)),
        ("standard deviation of them", _moved(np.std, zeros, with_one), _deviation(n)),
        ("maximum of them", _moved(np.max, zeros, with_one), 1.0),
    ]
    return Shown(
        headline=f"Among {n:,} people, one person moves a mean by at most {_up(_mean(n))}, a standard "
        f"deviation by at most {_up(_deviation(n))}, and a maximum by all of its range",
        sentences=(
            "The sensitivity of a statistic is the most that one person can change it, over all possible "
            "data, not only over yours.",
            f"A count of people changes by 1. If a person may file up to {rows} "
            f"complaint{'s' * (rows > 1)}, a count of complaints changes by {rows}.",
            "A mean of n values from 0 to 1 changes by at most 1/n, and a standard deviation by at most "
            "about 1/√n (n is public, and one person's value is replaced).",
            "A maximum can change from 0 to 1 by one person alone. Noise that covers this change also "
            "hides the maximum.",
            "The scale of Laplace noise is the sensitivity divided by ε. So ε alone does not say how large "
            "the noise is.",
        ),
        tables=(
            NumberTable(
                f"{n:,} people, ε = {short(float(epsilon))}",
                ("statistic", "sensitivity", "change on the worst data", "scale of the noise"),
                tuple((name, most, change, most / float(epsilon)) for name, change, most in changes),
            ),
        ),
        picture=partial(_draw_moves, n),
    )


def _up(value: float) -> str:
    return short_up(Fraction(repr(value)), 4)


def _mean(n: int) -> float:
    return float(theorem.mean(low=0, high=1, n=n, rows=1).l1)


def _deviation(n: int) -> float:
    return float(theorem.deviation(low=0, high=1, n=n, rows=1).l1)


def _moved(statistic: Callable[[Values], np.float64], before: Values, after: Values) -> float:
    return abs(float(statistic(after)) - float(statistic(before)))


@plot.style()
def _draw_moves(n: int) -> Figure:
    panels: tuple[tuple[str, str, Callable[[Values], np.float64], float], ...] = (
        ("Insensitive: the mean", plot.BLUE, np.mean, _mean(n)),
        ("In between: the deviation", plot.GREEN, np.std, _deviation(n)),
        ("Sensitive: the maximum", plot.ORANGE, np.max, 1.0),
    )
    figure, drawn = plot.new_figure(
        f"One of {n:,} people changes their value from 0 to 1: the mean moves by {short(_mean(n))}, "
        "the maximum by 1",
        "All others have the value 0: for these three statistics there are no worse data. The "
        "sensitivity is the height at the right end.",
        panels=3,
        size=(11.0, 5.0),
    )
    own = np.linspace(0, 1, 41)
    for axes, (title, colour, statistic, most) in zip(drawn, panels, strict=True):
        line = [float(statistic(np.append(np.zeros(n - 1), value))) for value in own]
        axes.plot(own, line, color=colour)
        axes.set_title(title, color=colour)
        axes.set(xlabel="value of this one person", xlim=(0, 1), ylim=(0, 1.12))
        axes.plot([1], [line[-1]], "o", color=colour, clip_on=False)
        plot.note_beside(axes, short(most), (1, line[-1]), (-6, 9), ha="right", color=colour, size=11.5)
        axes.axhline(1, color=plot.GREY, linewidth=0.8, linestyle=(0, (2, 3)))
    drawn[0].set_ylabel("value of the statistic")
    return figure
