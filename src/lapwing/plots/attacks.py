"""How often attacks succeed: without protection, against Lapwing, and at most."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lapwing.core.chances import percent_up
from lapwing.core.exact import short
from lapwing.errors import BadParameter
from lapwing.plots.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    PALE,
    EndLabel,
    label_ends,
    new_figure,
    note_beside,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class SuccessRate(Protocol):
    """A share of right guesses, and its interval of 95 %."""

    @property
    def rate(self) -> float:
        """The share."""

    @property
    def low(self) -> float:
        """The lower end of the interval."""

    @property
    def high(self) -> float:
        """The upper end of the interval."""

    @property
    def right(self) -> int:
        """The number of right guesses."""

    @property
    def trials(self) -> int:
        """The number of guesses."""


class DrawnSuccess(Protocol):
    """The success of an attack on both releases."""

    @property
    def unprotected(self) -> SuccessRate:
        """The success without protection."""

    @property
    def protected(self) -> SuccessRate:
        """The success against Lapwing."""


class DrawnSuccessAfter(DrawnSuccess, Protocol):
    """The success of an attack after some answers or days."""

    @property
    def after(self) -> int:
        """The number of answers or days."""


class DrawnAttack(DrawnSuccess, Protocol):
    """The result of an attack, as far as it is drawn."""

    @property
    def title(self) -> str:
        """The subject of the attack."""

    @property
    def guesses(self) -> str:
        """The object of the guesses."""

    @property
    def without(self) -> str:
        """The unprotected release."""

    @property
    def through(self) -> str:
        """Lapwing's release."""

    @property
    def epsilon(self) -> Any:
        """The budget of a person's life."""

    @property
    def chance(self) -> Any:
        """The success of a blind guess."""

    @property
    def limit_up(self) -> float:
        """The greatest success of any attack."""

    @property
    def steps(self) -> str:
        """The unit of time, such as "days"."""

    @property
    def over_time(self) -> Sequence[DrawnSuccessAfter]:
        """The success over time."""


_PANEL = 1.5  # inches for one attack
_LETTERS = 42  # of a row's label, in one line
_PERCENT_TICKS = [0, 25, 50, 75, 100], ["0 %", "25 %", "50 %", "75 %", "100 %"]


def attack_success(headline: str, attacks: Sequence[DrawnAttack]) -> Figure:
    """Draw, for each attack, its success without protection and against Lapwing, chance and limit.

    Args:
        headline: The title of the picture.
        attacks: The results, at least one.
    """
    if not attacks:
        raise BadParameter("attacks", "must have at least one result")
    guess = f"{attacks[0].guesses} " if len(attacks) == 1 else ""
    with style():
        figure, [axes] = new_figure(
            headline,
            f"{guess}How often the attacker's guess is right. Each person has "
            f"ε {short(float(attacks[0].epsilon))} for life. Thin lines are intervals of 95 %. In the long "
            "run, no attack on Lapwing is right more often than its limit (grey).",
            size=(9.5, 1.9 + _PANEL * len(attacks)),
            left=3.9,
            right=0.88,
        )
        for number, attack in enumerate(attacks):
            _one_attack(axes, attack, -3.0 * number)
        axes.set(xlim=(0, 100), ylim=(-3.0 * (len(attacks) - 1) - 1.9, 1.3), yticks=[])
        axes.spines["left"].set_visible(False)
        axes.set_xticks(*_PERCENT_TICKS)
        axes.set_xlabel("right guesses")
    return figure


def _one_attack(axes: Axes, attack: DrawnAttack, top: float) -> None:
    """Draw the two rows of an attack, at heights `top` and `top - 1`."""
    limit, chance = 100 * attack.limit_up, 100 * float(attack.chance)
    beside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "center"}
    title = attack.title[0].upper() + attack.title[1:]
    note_beside(axes, title, (0, top + 0.95), (-10, 0), weight="bold", **beside)
    axes.axhspan(top - 1.4, top - 0.6, limit / 100, 1, color=PALE, alpha=0.6, linewidth=0)
    for height, label, success, colour in (
        (top, f"no protection:\n{attack.without}", attack.unprotected, ORANGE),
        (top - 1, f"Lapwing:\n{attack.through}", attack.protected, BLUE),
    ):
        note_beside(axes, _folded(label, _LETTERS), (0, height), (-10, 0), color=colour, **beside)
        axes.barh(height, 100 * success.rate, height=0.56, color=colour, alpha=0.85)
        counted = f"{success.right:,} of {success.trials:,}"
        at_the_edge: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "annotation_clip": False}
        note_beside(axes, counted, (1, height), (8, 0), color=colour, size=9, va="center", **at_the_edge)
        ends = [100 * success.low, 100 * success.high]
        axes.plot(ends, [height, height], color=INK, linewidth=1.3, marker="|", markersize=7)
    axes.plot([chance, chance], [top - 1.4, top + 0.4], color=GREY, linewidth=1.3, linestyle=":")
    axes.plot([limit, limit], [top - 1.4, top + 0.4], color=INK, linewidth=1.6, linestyle="--")
    look: dict[str, Any] = {"size": 9.5, "annotation_clip": False}
    side = "left" if limit < 80 else "right"
    above, below = f"limit {percent_up(attack.limit_up)}", f"blind guess {chance:g} %"
    note_beside(axes, above, (limit, top + 0.4), (0, 2), ha=side, va="bottom", **look)
    note_beside(axes, below, (chance, top - 1.4), (0, -2), ha="center", va="top", color=GREY, **look)


def attack_over_time(headline: str, attack: DrawnAttack) -> Figure:
    """Draw the success of an attack over time.

    Args:
        headline: The title of the picture.
        attack: A result with success over time, at two points or more.
    """
    if len(attack.over_time) < 2:
        raise BadParameter("attack", "must have success over time, at two points or more")
    from matplotlib.ticker import FuncFormatter, NullLocator  # noqa: PLC0415 (an extra)

    limit, chance = 100 * attack.limit_up, 100 * float(attack.chance)
    after = [point.after for point in attack.over_time]
    with style():
        figure, [axes] = new_figure(
            headline,
            f"{attack.guesses} How often the attacker's guess is right. Each person has "
            f"ε {short(float(attack.epsilon))} for life. Pale bands are intervals of 95 %. In the long "
            "run, no attack on Lapwing is right more often than its limit (grey).",
            right=0.7,
        )
        axes.axhspan(limit, 104, color=PALE, alpha=0.35, linewidth=0)
        ends = []
        shown = [point.unprotected for point in attack.over_time]
        safe = [point.protected for point in attack.over_time]
        for label, colour, points in (
            (f"no protection:\n{attack.without}", ORANGE, shown),
            (f"Lapwing:\n{attack.through}", BLUE, safe),
        ):
            rates = [100 * point.rate for point in points]
            axes.fill_between(
                after, [100 * point.low for point in points], [100 * point.high for point in points],
                color=colour, alpha=0.15, linewidth=0,
            )  # fmt: skip
            axes.plot(after, rates, color=colour, marker="o", markersize=4, clip_on=False)
            ends.append(EndLabel(rates[-1], _folded(label), colour))
        axes.axhline(limit, color=INK, linewidth=1.6, linestyle="--")
        axes.axhline(chance, color=GREY, linewidth=1.3, linestyle=":")
        most = f"limit of all attacks\non Lapwing: {percent_up(attack.limit_up)}"
        ends += [EndLabel(limit, most, INK), EndLabel(chance, f"blind guess: {chance:g} %", GREY)]
        axes.set(xscale="log", xlim=(after[0], after[-1]), ylim=(0, 104))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(_ticks(after))
        axes.set_yticks(*_PERCENT_TICKS)
        axes.set(xlabel=attack.steps, ylabel="right guesses")
        label_ends(axes, ends)
    return figure


def _ticks(after: Sequence[int]) -> list[int]:
    """Return at most six of the points, with the first and the last."""
    stride = -(-(len(after) - 1) // 5)
    return [*after[:-1:stride], after[-1]]


def _folded(label: str, letters: int = 26) -> str:
    """Return a label with lines of at most this many letters."""
    return "\n".join(textwrap.fill(line, letters) for line in label.split("\n"))
