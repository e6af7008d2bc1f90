"""Small ε: the factor e^ε is nearly 1 + ε."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from lapwing.audit.laws.distances import log_ratio
from lapwing.audit.laws.noise_laws import laplace
from lapwing.core.exact import exp_up, short, short_up
from lapwing.mechanisms import Laplace
from lapwing.plots.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    EndLabel,
    label_ends,
    new_figure,
    note_beside,
    style,
)
from lapwing.show.topic import NumberTable, Progress, Shown, cell_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OTHERS = ("0.01", "0.05", "0.1", "0.2", "0.5", "1", "2", "3")
_SMALL = 0.3  # up to here e^ε is less than 4 % above 1 + ε
_CHANCES = (Fraction(1, 1000), Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))


def small_epsilon(values: Mapping[str, Fraction], _full: bool, _progress: Progress) -> Shown:
    """Compare the greatest ratio of a noisy count's exact law with 1 + ε."""
    epsilon = values["epsilon"]
    every = sorted({epsilon, *map(Fraction, _OTHERS)})
    rows = [(float(e), ratio_of_count(e), float(1 + e)) for e in every]
    factor = ratio_of_count(epsilon)
    most = short_up(exp_up(epsilon), 6)
    off = 100 * (factor / float(1 + epsilon) - 1)
    return Shown(
        headline=f"At ε = {short(float(epsilon))} an answer is at most {most} times as likely with you as "
        f"without you; 1 + ε is {float(1 + epsilon):.4g}",
        sentences=(
            f"For a small ε the factor e^ε is nearly 1 + ε. Here it is {cell_text(off)} % above it.",
            "So a small ε can be read as a relative change: at ε = 0.01, every event is at most about 1 % "
            "likelier than without your data.",
            "That is 1 % of the event's own probability, not a risk of 1 %: 1 in 1,000 becomes at most "
            "1.0101 in 1,000.",
            "For larger ε this reading is wrong. At ε = 3 the factor is 20.1, not 4.",
        ),
        tables=(
            NumberTable(
                "The factor of a noisy count, and 1 + ε",
                ("ε", "greatest ratio: e^ε", "1 + ε", "difference, in %"),
                tuple((e, true, near, 100 * (true / near - 1)) for e, true, near in rows),
                bars=1,
            ),
            NumberTable(
                f"What ε = {short(float(epsilon))} allows",
                ("probability without you, in %", "with you at least, in %", "with you at most, in %"),
                tuple((100 * float(p), *_bounds(float(p), factor)) for p in _CHANCES),
            ),
        ),
        picture=partial(_draw, float(epsilon), factor),
    )


def ratio_of_count(epsilon: Fraction) -> float:
    """Return the greatest ratio of a noisy count's probabilities, with and without one person."""
    scale = Laplace.for_epsilon(epsilon, l1=1).scale
    return float(log_ratio(laplace(scale, 1, -3, 4), laplace(scale, 0, -3, 4)).exp())


def _bounds(p: float, factor: float) -> tuple[float, float]:
    """Return the least and the greatest probability, in %: the event and its opposite are both bounded."""
    return 100 * max(p / factor, 1 - (1 - p) * factor), 100 * min(p * factor, 1 - (1 - p) / factor)


def _draw(epsilon: float, factor: float) -> Figure:
    near = "is nearly" if epsilon <= _SMALL else "is far above"
    with style():
        most = max(1.5, 1.3 * epsilon)
        figure, (axes,) = new_figure(
            f"At ε = {short(epsilon)} the factor eᵋ {near} 1 + ε: {factor:.4g} and {1 + epsilon:.4g}",
            "How much likelier your data can make an answer, against ε.",
            right=0.8,
        )
        grid = [most * k / 200 for k in range(201)]
        axes.plot(grid, [math.exp(e) for e in grid], color=BLUE)
        axes.plot(grid, [1 + e for e in grid], color=ORANGE, linestyle=(0, (5, 3)))
        axes.set_xlim(0, most)
        axes.set_ylim(bottom=0)
        axes.axhline(1, color=GREY, linewidth=0.8)
        axes.plot([epsilon], [factor], "o", color=INK)
        note_beside(axes, f"ε = {short(epsilon)}", (epsilon, factor), (5, -8), va="top", color=INK)
        if most < 3:  # else there is no room below 1
            at = (most, 1)
            note_beside(axes, "1: your data change nothing", at, (-4, -5), ha="right", va="top", color=GREY)
        axes.set(xlabel="ε", ylabel="times likelier with you, at most")
        label_ends(
            axes, [EndLabel(math.exp(most), "eᵋ: the promise", BLUE), EndLabel(1 + most, "1 + ε", ORANGE)]
        )
        return figure
