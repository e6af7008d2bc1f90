"""Two laws of a noisy count, with you and without you: their ratio never passes e^ε."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from lapwing.audit.laws.decimals import Law
from lapwing.audit.laws.distances import log_ratio
from lapwing.audit.laws.noise_laws import laplace
from lapwing.core.chances import odds_up, posterior_text
from lapwing.core.exact import exp_up, short, short_down, short_up
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

WITHOUT = 100
_REACH = 4  # scales on each side
_ROWS = 12
_OTHERS = tuple(Fraction(text) for text in ("0.01", "0.1", "0.5", "1", "2", "3", "5"))


def ratio(values: Mapping[str, Fraction], _full: bool, _progress: Progress) -> Shown:
    """Compute the probabilities of all answers with you and without you, and their ratios."""
    epsilon, distance = values["epsilon"], int(values["sensitivity"])
    noise = Laplace.for_epsilon(epsilon, l1=distance)
    reach = math.ceil(_REACH * noise.scale) + 1
    low, high = WITHOUT - reach, WITHOUT + distance + reach
    without, with_you = (laplace(noise.scale, WITHOUT + more, low, high) for more in (0, distance))
    greatest = log_ratio(without, with_you)
    most, least = short_up(exp_up(epsilon), 5), short_down(1 / exp_up(epsilon), 5)
    step = max(1, (high - low) // _ROWS)
    shown = [k for k in range(low + 1, high) if (k - WITHOUT) % step == 0]
    return Shown(
        headline=f"Whatever the answer is, with your data it is at most {most} times as likely as without "
        f"them, and at least {least} times",
        sentences=(
            f"Without your data the count is {WITHOUT}, and with your data it is {WITHOUT + distance}.",
            "Each answer has one probability in the first case and another one in the second. Their ratio "
            f"lies between 1/e^ε = {least} and e^ε = {most} for all answers, without exception. The "
            f"greatest logarithm of it, computed with 60 digits, is {greatest:.10f}.",
            "So if somebody knows all other data and would bet 1 : 1 that yours are in, the answer can "
            f"raise these odds to at most {odds_up(exp_up(epsilon))} : 1, that is from 50 % to at most "
            f"{posterior_text(exp_up(epsilon))}.",
            "ε itself is not the probability that you are identified: a belief about you also depends on "
            "what was known before.",
            "This is the loss of one answer. The ε of all answers about you adds up "
            "(`lapwing show adding-up`).",
        ),
        tables=(
            NumberTable(
                "Some answers",
                ("answer", "probability without you", "probability with you", "with / without"),
                tuple(
                    (k, float(without[k]), float(with_you[k]), float(with_you[k] / without[k]))
                    for k in shown
                ),
                bars=3,
            ),
            NumberTable(
                "Other values of ε",
                ("ε", "e^ε", "a belief of 50 % becomes at most, in %"),
                tuple((float(other), math.exp(other), 100 / (1 + math.exp(-other))) for other in _OTHERS),
            ),
        ),
        picture=partial(_draw, noise, without, with_you),
    )


def _draw(noise: Laplace, without: Law, with_you: Law) -> Figure:
    epsilon = float(noise.l1 / noise.scale)
    factor = cell_text(math.exp(epsilon))
    with style():
        from matplotlib.ticker import MaxNLocator

        figure, (axes,) = new_figure(
            f"Two data sets that differ by you: no answer is more than eᵋ = {factor} times as likely with "
            "one as with the other",
            "The exact probability of each answer, on a scale where equal heights are equal factors: the "
            "two curves are nowhere farther apart than eᵋ.",
            right=0.78,
        )
        answers = sorted(without)[1:-1]  # the ends stand for all that lies beyond
        lines = [[100 * float(law[k]) for k in answers] for law in (without, with_you)]
        look: dict[str, Any] = {"marker": "o", "markersize": 4} if len(answers) < 60 else {}
        for line, colour in zip(lines, (BLUE, ORANGE), strict=True):
            axes.plot(answers, line, color=colour, **look)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{short(value)} %")
        axes.yaxis.set_minor_formatter(lambda _, __: "")
        axes.set(xlabel="published answer", ylabel="probability of this answer")
        axes.set_xlim(answers[0], answers[-1])
        for k in (WITHOUT, WITHOUT + noise.l1):
            axes.axvline(k, color=GREY, linewidth=0.8, linestyle=(0, (2, 3)))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        at = len(answers) - 1 - max(len(answers) // 6, 1)
        ends = (answers[at], lines[0][at]), (answers[at], lines[1][at])
        axes.annotate("", xy=ends[1], xytext=ends[0], arrowprops={"arrowstyle": "<->", "color": INK})
        note_beside(axes, f"× eᵋ = {factor}", ends[1], (4, 6), color=INK)
        labels = [
            EndLabel(lines[0][-1], f"without you\n(true count {WITHOUT})", BLUE),
            EndLabel(lines[1][-1], f"with you\n(true count {WITHOUT + noise.l1})", ORANGE),
        ]
        label_ends(axes, labels)
        return figure
