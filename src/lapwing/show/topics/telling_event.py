"""The event that tells two data sets apart: rare under Gaussian noise, certain where noise ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from lapwing.audit.laws.decimals import precise
from lapwing.audit.laws.noise_laws import gaussian, laplace_at_least
from lapwing.core.chances import posterior_text
from lapwing.core.exact import exp_up, short
from lapwing.mechanisms import Gaussian, Laplace
from lapwing.plots.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    WHITE_BOX,
    EndLabel,
    label_ends,
    new_figure,
    note_beside,
    style,
)
from lapwing.show.topic import NumberTable, Progress, Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIGMAS = 17


@dataclass(frozen=True, slots=True)
class TailEvent:
    """The event "the answer is at least `least`", where the count is 1 with you and 0 without you."""

    least: int
    with_you: float
    without_you: float

    @property
    def belief(self) -> float:
        """The probability, after the event, that your data are in, if it was 1/2 before."""
        return self.with_you / (self.with_you + self.without_you)


def telling_event(values: Mapping[str, Fraction], _full: bool, _progress: Progress) -> Shown:
    """Compute, for three kinds of noise, events of the form "the answer is at least t"."""
    epsilon, delta = values["epsilon"], values["delta"]
    width = math.ceil((1 / delta - 1) / 2)
    sigma = Gaussian.for_budget(epsilon, delta, l2_squared=1, dimension=1).sigma
    scale = Laplace.for_epsilon(epsilon, l1=1).scale
    by_laplace = laplace_events(scale, delta)
    by_gauss = gaussian_events(sigma, delta)
    certain = TailEvent(width + 1, float(Fraction(1, 2 * width + 1)), 0.0)
    # The answers with a ratio above e^ε: under Gaussian noise it is exp((2k - 1) / 2σ²) at k.
    first = math.floor(epsilon * sigma**2 + Fraction(1, 2)) + 1
    best = next(event for event in by_gauss if event.least == first)
    rarest = by_gauss[-1]
    rows = [
        _row("Laplace", by_laplace[-1]),
        _row("Gaussian: the event that needs δ", best),
        _row("Gaussian: a rarer event", rarest),
        _row(f"noise that ends at ± {width:,}", certain),
    ]
    once = math.floor(1 / certain.with_you)
    return Shown(
        headline="If noise ends somewhere, an answer beyond its end proves that you are in the data; "
        f"with your data this happens once in {once:,} answers, on average",
        sentences=(
            "An event is a set of answers, here: all answers from some number on. The count is 1 with your "
            "data and 0 without them, and somebody who knows all other data wants to know which it is.",
            "Under Laplace noise no event tells more than e^ε allows: a belief of 50 % that your data "
            f"are in becomes at most {posterior_text(exp_up(epsilon))}.",
            f"Under Gaussian noise (σ = {short(float(sigma))}) rare events tell more, without a limit. "
            f"Those above e^ε are what δ = {short(float(delta))} pays for.",
            f"Noise that ends, here all numbers from -{width:,} to {width:,} with equal probability, "
            "has an "
            "event that happens only with your data. It is no likelier than δ, but it leaves no doubt.",
            "So δ says how much may go wrong, and not what happens then. Choose it so small that you would "
            "accept it for each of the n people: far below 1/n.",
        ),
        tables=(
            NumberTable(
                "Events that speak for your data",
                ("noise", "event: answer at least", "with you", "without you", "with / without"),
                tuple(rows),
            ),
        ),
        picture=partial(_draw, by_laplace, by_gauss, certain, float(delta)),
    )


def laplace_events(scale: Fraction, delta: Fraction) -> list[TailEvent]:
    """Return events of falling probability, down to a hundredth of δ."""
    events: list[TailEvent] = []
    least = 1 - math.ceil(6 * scale)
    step = max(1, round(scale / 4))
    while not events or events[-1].with_you > float(delta) / 100 or least <= 1:
        pair = (float(laplace_at_least(scale, least - shift)) for shift in (1, 0))
        events.append(TailEvent(least, *pair))
        least += step if least < 1 - step or least >= 1 else 1
    return events


@precise
def gaussian_events(sigma: Fraction, delta: Fraction) -> list[TailEvent]:
    """Return events of falling probability, down to a hundredth of δ, from all probabilities."""
    reach = math.ceil(_SIGMAS * sigma) + 2
    law = gaussian(sigma, 0, -reach, reach)
    at_least, tails = Decimal(0), {}
    for k in range(reach, -reach - 1, -1):
        at_least += law[k]
        tails[k] = at_least
    events = [
        TailEvent(k, float(tails[k - 1]), float(tails[k])) for k in range(math.floor(-4 * sigma), reach - 1)
    ]
    rare = next(place for place, one in enumerate(events) if one.with_you < float(delta) / 100)
    return events[: rare + 1]


def _row(name: str, event: TailEvent) -> tuple[str, int, float, float, float]:
    ratio = event.with_you / event.without_you if event.without_you else math.inf
    return name, event.least, event.with_you, event.without_you, ratio


def _draw(
    by_laplace: list[TailEvent], by_gauss: list[TailEvent], certain: TailEvent, delta: float
) -> Figure:
    with style():
        figure, (axes,) = new_figure(
            "The rarer the event, the more it tells: without a limit under Gaussian noise, and for "
            f"certain with noise that ends (1 in {1 / certain.with_you:,.0f})",
            'Events "the answer is at least t". Height: what somebody who gave even odds can believe '
            "afterwards.",
            right=0.76,
        )
        for events, colour in ((by_laplace, BLUE), (by_gauss, ORANGE)):
            axes.plot([one.with_you for one in events], [100 * one.belief for one in events], color=colour)
        steps = [1, 2, 3, 5, 10, 30, round(1 / certain.with_you)]  # answers that the event holds
        shares = [min(step * certain.with_you, 1.0) for step in steps]
        axes.plot(shares, [100 * step / (2 * step - 1) for step in steps], color=PURPLE)
        axes.plot(shares[:1], [100], "o", color=PURPLE, clip_on=False)
        at = (shares[0], 100)
        note_beside(axes, "noise that ends", at, (8, -9), va="top", color=PURPLE, bbox=WHITE_BOX)
        axes.set(xscale="log")
        axes.set_xlabel(
            f"probability of the event with you (rarer to the right; dotted: δ = {short(delta)})"
        )
        axes.set_xlim(1, delta / 100)
        axes.set_ylim(45, 103)
        axes.set_ylabel("belief that you are in the data, in %")
        axes.axhline(50, color=GREY, linewidth=0.8)
        at = (delta / 100, 50)
        note_beside(axes, "50 %: nothing is learned", at, (-4, -6), ha="right", va="top", color=GREY)
        axes.axvline(delta, color=INK, linewidth=0.8, linestyle=(0, (2, 3)))
        label_ends(
            axes,
            [
                EndLabel(100 * by_gauss[-1].belief, "Gaussian noise", ORANGE),
                EndLabel(100 * by_laplace[-1].belief, "Laplace noise:\nnever more", BLUE),
            ],
        )
        return figure
