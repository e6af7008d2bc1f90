"""Sensitivity: how far one person can move a statistic, by the theorem and on data that reach it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import short, short_up
from lapwing.mechanisms import sensitivity as theorem
from lapwing.plots.style import BLUE, GREEN, GREY, ORANGE, new_figure, note_beside, style
from lapwing.show.topic import NumberTable, Progress, Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Values = NDArray[np.float64]


def sensitivity(values: Mapping[str, Fraction], _full: bool, _progress: Progress) -> Shown:
    """Compute sensitivities, and the change of each statistic on the worst data."""
    n, rows, epsilon = int(values["n"]), int(values["rows"]), values["epsilon"]
    zeros = np.zeros(n)
    one = np.append(np.zeros(n - 1), 1.0)  # the last person's value is 1 instead of 0
    filed = np.full(n, rows)  # complaints of each person; then one person leaves
    others = filed[:-1]
    found: list[tuple[str, float, float]] = [
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
        ("mean of values from 0 to 1", _moved(np.mean, zeros, one), _mean(n)),
        ("standard deviation of them", _moved(np.std, zeros, one), _deviation(n)),
        ("maximum of them", _moved(np.max, zeros, one), 1.0),
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
                tuple((name, most, change, most / float(epsilon)) for name, change, most in found),
            ),
        ),
        picture=partial(_draw, n),
    )


def _up(value: float) -> str:
    return short_up(Fraction(repr(value)), 4)


def _mean(n: int) -> float:
    return float(theorem.mean(low=0, high=1, n=n, rows=1).l1)


def _deviation(n: int) -> float:
    return float(theorem.deviation(low=0, high=1, n=n, rows=1).l1)


def _moved(statistic: Callable[[Values], np.float64], before: Values, after: Values) -> float:
    return abs(float(statistic(after)) - float(statistic(before)))


def _draw(n: int) -> Figure:
    panels: tuple[tuple[str, str, Callable[[Values], np.float64], float], ...] = (
        ("Insensitive: the mean", BLUE, np.mean, _mean(n)),
        ("In between: the deviation", GREEN, np.std, _deviation(n)),
        ("Sensitive: the maximum", ORANGE, np.max, 1.0),
    )
    with style():
        figure, drawn = new_figure(
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
            note_beside(axes, short(most), (1, line[-1]), (-6, 9), ha="right", color=colour, size=11.5)
            axes.axhline(1, color=GREY, linewidth=0.8, linestyle=(0, (2, 3)))
        drawn[0].set_ylabel("value of the statistic")
        return figure
