"""Topics of "One answer" that compare the laws of a noisy count with you and without you."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from lapwing.audit.laws import Law, laplace, log_ratio, precise
from lapwing.core.beliefs import Belief, belief_bounds
from lapwing.core.chances import odds_up, posterior_text
from lapwing.core.exact import exp_up, short, short_down, short_up
from lapwing.mechanisms import Laplace
from lapwing.plots import style as plot
from lapwing.show.topic import NumberTable, Progress, Shown, cell_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The ratio of the two laws never passes e^ε

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
    factor = belief_bounds(epsilon, 0, belief=Belief.TOOK_PART).factor
    most, least = short_up(factor, 5), short_down(1 / factor, 5)
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
            f"raise these odds to at most {odds_up(factor)} : 1, that is from 50 % to at most "
            f"{posterior_text(factor)}.",
            "Two facts of yours, such as two ages, are two steps apart: there the factor is e^2ε.",
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
                ("ε", "e^ε", "50 % that yours are in becomes at most, in %"),
                tuple((float(other), math.exp(other), 100 / (1 + math.exp(-other))) for other in _OTHERS),
            ),
        ),
        picture=partial(_draw_ratio, noise, without, with_you),
    )


@plot.style()
def _draw_ratio(noise: Laplace, without: Law, with_you: Law) -> Figure:
    epsilon = float(noise.l1 / noise.scale)
    factor = cell_text(math.exp(epsilon))
    from matplotlib.ticker import MaxNLocator

    figure, (axes,) = plot.new_figure(
        f"Two data sets that differ by you: no answer is more than eᵋ = {factor} times as likely with "
        "one as with the other",
        "The exact probability of each answer, on a scale where equal heights are equal factors: the "
        "two curves are nowhere farther apart than eᵋ.",
        right=0.78,
    )
    answers = sorted(without)[1:-1]  # the ends stand for all that lies beyond
    lines = [[100 * float(law[k]) for k in answers] for law in (without, with_you)]
    look: dict[str, Any] = {"marker": "o", "markersize": 4} if len(answers) < 60 else {}
    for line, colour in zip(lines, (plot.BLUE, plot.ORANGE), strict=True):
        axes.plot(answers, line, color=colour, **look)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{short(value)} %")
    axes.yaxis.set_minor_formatter(lambda _, __: "")
    axes.set(xlabel="published answer", ylabel="probability of this answer", xlim=(answers[0], answers[-1]))
    for k in (WITHOUT, WITHOUT + noise.l1):
        axes.axvline(k, color=plot.GREY, linewidth=0.8, linestyle=(0, (2, 3)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    at = len(answers) - 1 - max(len(answers) // 6, 1)
    ends = (answers[at], lines[0][at]), (answers[at], lines[1][at])
    axes.annotate("", xy=ends[1], xytext=ends[0], arrowprops={"arrowstyle": "<->", "color": plot.INK})
    plot.note_beside(axes, f"× eᵋ = {factor}", ends[1], (4, 6), color=plot.INK)
    labels = [
        plot.EndLabel(lines[0][-1], f"without you\n(true count {WITHOUT})", plot.BLUE),
        plot.EndLabel(lines[1][-1], f"with you\n(true count {WITHOUT + noise.l1})", plot.ORANGE),
    ]
    plot.label_ends(axes, labels)
    return figure


# Pointwise ratios suffice: every event of a small law is checked, beside its single answers

DISTANCE = 4
_PAIR = tuple[Decimal, Decimal]


def pointwise(values: Mapping[str, Fraction], _full: bool, _progress: Progress) -> Shown:
    """Compute the ratio of both probabilities for each event of a law with k answers."""
    epsilon, answers = values["epsilon"], int(values["k"])
    noise = Laplace.for_epsilon(epsilon, l1=DISTANCE)
    low = DISTANCE // 2 - answers // 2
    without, with_you = (laplace(noise.scale, count, low, low + answers - 1) for count in (0, DISTANCE))
    events = all_events([(with_you[k], without[k]) for k in without])
    single = [with_you[k] / without[k] for k in without]
    by_size: dict[int, list[Decimal]] = defaultdict(list)
    for mask, (first, second) in enumerate(events):
        if mask:
            by_size[mask.bit_count()].append(first / second)
    least = min(min(ratios) for ratios in by_size.values())
    greatest = max(max(ratios) for ratios in by_size.values())
    same = "the limits" if (least, greatest) == (min(single), max(single)) else "NOT the limits"
    return Shown(
        headline=f"Of {len(events) - 1:,} events, each is between {short_down(Fraction(least), 5)} and "
        f"{short_up(Fraction(greatest), 5)} times as likely with you as without you: {same} of single "
        "answers",
        sentences=(
            'An event is a set of answers, such as "the answer is above 3" or "the answer is even". '
            "ε-privacy is a promise about all events.",
            f"Here a noisy count has {answers} possible answers, so there are 2^{answers} - 1 events. All "
            "of them were checked now, with 60 digits.",
            "It is enough to check single answers: if each probability is at most e^ε times the other, so "
            "is each sum of them.",
            "This is so because δ is 0. With a δ above 0 single answers are not enough (`lapwing show "
            "delta-area`).",
        ),
        tables=(
            NumberTable(
                "Events by the number of answers that they hold",
                ("answers in the event", "events", "least ratio", "greatest ratio"),
                tuple(
                    (size, len(ratios), float(min(ratios)), float(max(ratios)))
                    for size, ratios in sorted(by_size.items())
                ),
                bars=3,
            ),
        ),
        picture=partial(
            _draw_events, float(epsilon), [(float(first), float(second)) for first, second in events[1:]]
        ),
    )


@precise
def all_events(cells: list[_PAIR]) -> list[_PAIR]:
    """Return both probabilities of each set of cells. Bit i of a set's place says whether cell i is in."""
    events: list[_PAIR] = [(Decimal(0), Decimal(0))]
    for first, second in cells:
        events += [(p + first, q + second) for p, q in events]
    return events


@plot.style()
def _draw_events(epsilon: float, events: list[tuple[float, float]]) -> Figure:
    bound = math.exp(epsilon)
    singles = [events[2**place - 1] for place in range(len(events).bit_length())]
    figure, (axes,) = plot.new_figure(
        f"All {len(events):,} events lie between the same two lines as the single answers do",
        "One dot for each set of possible answers of a noisy count. Height: how much likelier the "
        "event is with your data than without them.",
        left=1.55,
    )
    for data, colour, size in ((events, plot.BLUE, 9), (singles, plot.ORANGE, 42)):
        axes.scatter(
            [100 * q for _, q in data],
            [p / q for p, q in data],
            s=size,
            color=colour,
            alpha=0.35 if colour == plot.BLUE else 1,
            linewidth=0,
            rasterized=len(data) > 1000,
        )
    axes.set(xlabel="probability of the event without you, in %", yscale="log", xlim=(-2, 104))
    axes.set(ylim=(math.exp(-1.3 * epsilon), math.exp(1.3 * epsilon)), ylabel="times likelier with you")
    axes.set_yticks(
        [1 / bound, 1.0, bound], [f"1/eᵋ = {short(1 / bound)}", "1", f"eᵋ = {cell_text(bound)}"]
    )
    axes.minorticks_off()
    for line in (1 / bound, bound):
        axes.axhline(line, color=plot.INK, linewidth=1, linestyle=(0, (5, 3)))
    at = (101, bound)
    plot.note_beside(axes, "no event passes this line", at, (0, 6), ha="right", color=plot.INK)
    plot.note_beside(
        axes, "single answers: orange", (101, 1 / bound), (0, -14), ha="right", color=plot.ORANGE
    )
    return figure


# Small ε: the factor e^ε is nearly 1 + ε

_COMPARED = ("0.01", "0.05", "0.1", "0.2", "0.5", "1", "2", "3")
_SMALL = 0.3  # up to here e^ε is less than 4 % above 1 + ε
_CHANCES = (Fraction(1, 1000), Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))


def small_epsilon(values: Mapping[str, Fraction], _full: bool, _progress: Progress) -> Shown:
    """Compare the greatest ratio of a noisy count's exact law with 1 + ε."""
    epsilon = values["epsilon"]
    every = sorted({epsilon, *map(Fraction, _COMPARED)})
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
        picture=partial(_draw_factor, float(epsilon), factor),
    )


def ratio_of_count(epsilon: Fraction) -> float:
    """Return the greatest ratio of a noisy count's probabilities, with and without one person."""
    scale = Laplace.for_epsilon(epsilon, l1=1).scale
    return float(log_ratio(laplace(scale, 1, -3, 4), laplace(scale, 0, -3, 4)).exp())


def _bounds(p: float, factor: float) -> tuple[float, float]:
    """Return the least and the greatest probability, in %: the event and its opposite are both bounded."""
    return 100 * max(p / factor, 1 - (1 - p) * factor), 100 * min(p * factor, 1 - (1 - p) / factor)


@plot.style()
def _draw_factor(epsilon: float, factor: float) -> Figure:
    near = "is nearly" if epsilon <= _SMALL else "is far above"
    most = max(1.5, 1.3 * epsilon)
    figure, (axes,) = plot.new_figure(
        f"At ε = {short(epsilon)} the factor eᵋ {near} 1 + ε: {factor:.4g} and {1 + epsilon:.4g}",
        "How much likelier your data can make an answer, against ε.",
        right=0.8,
    )
    grid = [most * k / 200 for k in range(201)]
    axes.plot(grid, [math.exp(e) for e in grid], color=plot.BLUE)
    axes.plot(grid, [1 + e for e in grid], color=plot.ORANGE, linestyle=(0, (5, 3)))
    axes.set_xlim(0, most)
    axes.set_ylim(bottom=0)
    axes.axhline(1, color=plot.GREY, linewidth=0.8)
    axes.plot([epsilon], [factor], "o", color=plot.INK)
    plot.note_beside(axes, f"ε = {short(epsilon)}", (epsilon, factor), (5, -8), va="top", color=plot.INK)
    if most < 3:  # else there is no room below 1
        at = (most, 1)
        plot.note_beside(
            axes, "1: your data change nothing", at, (-4, -5), ha="right", va="top", color=plot.GREY
        )
    axes.set(xlabel="ε", ylabel="times likelier with you, at most")
    ends = [
        plot.EndLabel(math.exp(most), "eᵋ: the promise", plot.BLUE),
        plot.EndLabel(1 + most, "1 + ε", plot.ORANGE),
    ]
    plot.label_ends(axes, ends)
    return figure
