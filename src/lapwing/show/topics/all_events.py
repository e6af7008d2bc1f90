"""Pointwise ratios suffice: every event of a small law is checked, beside its single answers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from lapwing.audit.laws.decimals import precise
from lapwing.audit.laws.noise_laws import laplace
from lapwing.core.exact import short, short_down, short_up
from lapwing.mechanisms import Laplace
from lapwing.plots.style import BLUE, INK, ORANGE, new_figure, note_beside, style
from lapwing.show.topic import NumberTable, Progress, Shown, cell_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    for mask, (one, other) in enumerate(events):
        if mask:
            by_size[mask.bit_count()].append(one / other)
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
        picture=partial(_draw, float(epsilon), [(float(one), float(other)) for one, other in events[1:]]),
    )


@precise
def all_events(cells: list[_PAIR]) -> list[_PAIR]:
    """Return both probabilities of each set of cells. Bit i of a set's place says whether cell i is in."""
    events: list[_PAIR] = [(Decimal(0), Decimal(0))]
    for one, other in cells:
        events += [(p + one, q + other) for p, q in events]
    return events


def _draw(epsilon: float, events: list[tuple[float, float]]) -> Figure:
    bound = math.exp(epsilon)
    singles = [events[2**place - 1] for place in range(len(events).bit_length())]
    with style():
        figure, (axes,) = new_figure(
            f"All {len(events):,} events lie between the same two lines as the single answers do",
            "One dot for each set of possible answers of a noisy count. Height: how much likelier the "
            "event is with your data than without them.",
            left=1.55,
        )
        for data, colour, size in ((events, BLUE, 9), (singles, ORANGE, 42)):
            axes.scatter(
                [100 * q for _, q in data],
                [p / q for p, q in data],
                s=size,
                color=colour,
                alpha=0.35 if colour == BLUE else 1,
                linewidth=0,
                rasterized=len(data) > 1000,
            )
        axes.set(xlabel="probability of the event without you, in %", yscale="log", xlim=(-2, 104))
        axes.set_ylim(math.exp(-1.3 * epsilon), math.exp(1.3 * epsilon))
        axes.set_ylabel("times likelier with you")
        axes.set_yticks(
            [1 / bound, 1.0, bound], [f"1/eᵋ = {short(1 / bound)}", "1", f"eᵋ = {cell_text(bound)}"]
        )
        axes.minorticks_off()
        for line in (1 / bound, bound):
            axes.axhline(line, color=INK, linewidth=1, linestyle=(0, (5, 3)))
        at = (101, bound)
        note_beside(axes, "no event passes this line", at, (0, 6), ha="right", color=INK)
        note_beside(axes, "single answers: orange", (101, 1 / bound), (0, -14), ha="right", color=ORANGE)
        return figure
