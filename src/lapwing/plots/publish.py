"""The expected error of a release against ε, before anything is spent."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from lapwing.core.conversions import largest_rho, zcdp_to_epsilon
from lapwing.core.exact import short
from lapwing.errors import BadParameter
from lapwing.plots.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    EndLabel,
    label_ends,
    new_figure,
    note_beside,
    shortened,
    style,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, GREY)
_EPSILONS = tuple(Fraction(round(10 ** (k / 10) * 1000), 1000) for k in range(-10, 13))


def release_error(
    name: str, errors: Sequence[tuple[str, float]], rho: Fraction, delta: Fraction, fits: Fraction
) -> Figure:
    """Draw the expected error of one total of each level against ε.

    Args:
        name: The release.
        errors: For each level, its name and the expected error at `rho`. Errors fall like 1/√ρ.
        rho: The ρ of the release.
        delta: The δ at which ε is shown.
        fits: The largest ρ that the budget admits.
    """
    if not errors:
        raise BadParameter("plot", "there is nothing to draw: no budget is left")
    with style():
        epsilon = float(zcdp_to_epsilon(rho, delta))
        figure, [axes] = new_figure(
            f"{shortened(name)}: half the error costs four times the ρ",
            f"Expected error of one count, before anything is measured. δ {short(float(delta))}. The "
            "line is this release; beyond the dashed one the budget refuses.",
            right=0.8,
        )
        rhos = np.array([float(largest_rho(one, delta)) for one in _EPSILONS])
        xs = np.array([float(one) for one in _EPSILONS])
        ends = []
        for number, (level, error) in enumerate(errors):
            colour = _COLOURS[number % len(_COLOURS)]
            ys = error * np.sqrt(float(rho) / rhos)
            axes.plot(xs, ys, color=colour)
            ends.append(EndLabel(float(ys[-1]), shortened(level), colour))
            axes.plot([epsilon], [error], "o", color=colour, markersize=7)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("ε for the whole release")
        axes.set_ylabel("expected error of one count (rows)")
        axes.axvline(epsilon, color=GREY, linewidth=1)
        note_beside(axes, f"ε {short(epsilon)}", (epsilon, axes.get_ylim()[0]), (4, 6), color=GREY)
        if fits:
            axes.axvline(float(zcdp_to_epsilon(fits, delta)), color=GREY, linewidth=1, linestyle="--")
        axes.set_xlim(xs[0], xs[-1])
        ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10]
        axes.set_xticks(ticks, [short(one) for one in ticks])
        axes.minorticks_off()
        label_ends(axes, ends)
    return figure
