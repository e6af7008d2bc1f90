"""The Laplace law and its scale: the exact probabilities of the noise, and fresh draws beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lapwing.audit.laws.noise_laws import laplace_at_least
from lapwing.core.exact import short
from lapwing.mechanisms import Laplace
from lapwing.plots.style import BLUE, GREY, INK, ORANGE, new_figure, note_beside, style
from lapwing.show.topic import NumberTable, Progress, Shown, cell_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWS = 20_000
_SIDE = 6  # cells on each side of the middle one
_OTHERS = tuple(Fraction(text) for text in ("0.01", "0.1", "0.5", "1", "2", "5"))


def laplace(values: Mapping[str, Fraction], _full: bool, _progress: Progress) -> Shown:
    """Compute the noise of one count: its exact law, in cells of equal width, and draws."""
    epsilon, distance = values["epsilon"], int(values["sensitivity"])
    noise = Laplace.for_epsilon(epsilon, l1=distance)
    width = 2 * math.floor(noise.scale / 4) + 1  # odd, so that the middle cell has its middle at 0
    exact = cell_chances(noise.scale, width)
    cells = np.clip(np.round(noise.sample(np.zeros(DRAWS, np.int64)) / width), -_SIDE, _SIDE)
    drawn = [float((cells == place).mean()) for place in range(-_SIDE, _SIDE + 1)]
    names = [_name(place, width) for place in range(-_SIDE, _SIDE + 1)]
    others = [Laplace.for_epsilon(other, l1=distance) for other in _OTHERS]
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
                    (float(other), float(one.scale), one.spread("0.95"))
                    for other, one in zip(_OTHERS, others, strict=True)
                ),
            ),
        ),
        picture=partial(_draw, noise, width, exact, drawn),
    )


def cell_chances(scale: Fraction, width: int) -> list[float]:
    """Return the probability of each cell of this width around 0. The outer cells are endless."""
    half = width // 2
    ends = [float(laplace_at_least(scale, place * width - half)) for place in range(1 - _SIDE, _SIDE + 1)]
    falling = [1.0, *ends, 0.0]
    return [one - other for one, other in pairwise(falling)]


def _near(within: int) -> str:
    return f"within ± {within:,} of the truth" if within else "exactly the truth"


def _name(place: int, width: int) -> str:
    low, high = place * width - width // 2, place * width + width // 2
    if abs(place) == _SIDE:
        return f"{low:,} or more" if place > 0 else f"{high:,} or less"
    return f"{low:,}" if width == 1 else f"{low:,} to {high:,}"


def _draw(noise: Laplace, width: int, exact: list[float], drawn: list[float]) -> Figure:
    epsilon, scale = short(float(noise.l1 / noise.scale)), float(noise.scale)
    with style():
        figure, (axes,) = new_figure(
            f"Laplace noise at ε = {epsilon} has scale {cell_text(scale)}, and is as likely up as down",
            f"Bars: the exact probability of the noise{_of_cells(width)}. Dots: {DRAWS:,} fresh draws. The "
            "outer bars also hold everything beyond them.",
        )
        places, half = [place * width for place in range(-_SIDE, _SIDE + 1)], width // 2
        axes.bar(places, [100 * chance for chance in exact], width=0.8 * width, color=BLUE, alpha=0.75)
        axes.plot(places, [100 * share for share in drawn], "o", color=ORANGE, markeredgecolor="white")
        top = 100 * max(exact)
        axes.set_ylim(0, 1.25 * top)
        axes.annotate(
            "",
            xy=(scale, 1.12 * top),
            xytext=(0, 1.12 * top),
            arrowprops={"arrowstyle": "<->", "color": INK},
        )
        note_beside(
            axes,
            f"the scale: sensitivity {noise.l1:,} / ε",
            (max(scale, 0), 1.12 * top),
            (8, 0),
            va="center",
            color=INK,
        )
        axes.axvline(0, color=GREY, linewidth=0.8)
        ends = [f"≤ {half - places[-1]:,}", f"≥ {places[-1] - half:,}"]
        inner = [f"{place:+,}" if place else "0" for place in places[1:-1]]
        names = [ends[0], *inner, ends[1]]
        every = 1 if max(map(len, names)) <= 6 else 3  # long names would overlap
        axes.set_xticks(places[::every], names[::every])
        axes.set(xlabel="noise: answer minus truth", ylabel="probability, in %")
        return figure


def _of_cells(width: int) -> str:
    return "" if width == 1 else f" (cells of {width:,} values)"
