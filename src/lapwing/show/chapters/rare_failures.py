"""The chapter "Rare failures": δ as an area, telling events, and many numbers at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lapwing.audit.laws import SLACK, Direction, gaussian, laplace, laplace_at_least, precise
from lapwing.core.beliefs import Belief, belief_bounds
from lapwing.core.chances import posterior_text
from lapwing.core.exact import short
from lapwing.mechanisms import Gaussian, Laplace
from lapwing.plots import style as plot
from lapwing.plots.loss import gaussian_curve, privacy_loss
from lapwing.show.topic import NumberTable, Progress, Shown, cell_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# δ as an area: what lies above e^ε, for Laplace and for Gaussian noise

_PARTS = tuple(Fraction(k, 4) for k in (0, 1, 2, 3, 4, 5, 6, 8))
_SIGMAS = 17  # less than 1e-60 of the outcomes lies beyond


def delta_area(values: Mapping[str, Fraction], _full: bool, _progress: Progress) -> Shown:
    """Compute the area above e^ε of both noises, for several ε, from all probabilities."""
    epsilon, delta = values["epsilon"], values["delta"]
    noise = Gaussian.for_budget(epsilon, delta, l2_squared=1, dimension=1)
    by_laplace, by_gauss = laplace_pair(epsilon), gaussian_pair(noise.sigma)
    area = float(by_gauss.excess(epsilon))
    drawn = gaussian_curve(float(noise.sigma)).mass_above(math.exp(epsilon))
    every = [part * epsilon for part in _PARTS]
    rows = [(float(e), _area(by_laplace, e), float(by_gauss.excess(e))) for e in every]
    return Shown(
        headline=f"Gaussian noise with σ = {short(float(noise.sigma))} passes e^ε = "
        f"{short(math.exp(epsilon))} in rare outcomes; what lies above it adds up to δ = {short(area)}",
        sentences=(
            "Take each possible answer of a noisy count: how much likelier it is with your data, and how "
            "probable it is without them. Drawn as steps, all of them have area 1.",
            "The area above the line e^ε is the δ that the noise needs. For Laplace noise at this ε it "
            f"is 0; for Gaussian noise it is never 0, and here {short(area)}, as computed from all "
            f"probabilities (and {short(drawn)} in the picture).",
            "δ is not the probability that your data become known. It limits everything that may lie above "
            "e^ε. Under Gaussian noise, most of that lies only a little above it.",
            "But δ alone allows very bad releases: to publish one row, chosen at random among n, needs "
            "only δ = 1/n. So δ should be far below 1/n.",
            "One noise has many pairs (ε, δ): the table shows them.",
        ),
        tables=(
            NumberTable(
                "The area above e^ε: the least δ at each ε",
                ("ε", "Laplace noise", "Gaussian noise"),
                tuple(rows),
            ),
        ),
        picture=partial(privacy_loss, epsilon, delta),
    )


def _area(pair: Direction, epsilon: Fraction) -> float:
    """Return the area above e^ε, without what 60 digits leave of an area of 0."""
    area = pair.excess(epsilon)
    return float(area) if area > SLACK else 0.0


def laplace_pair(epsilon: Fraction) -> Direction:
    """Return the distances between the laws of a count with you and without you, under Laplace noise."""
    scale = Laplace.for_epsilon(epsilon, l1=1).scale
    return Direction(laplace(scale, 1, 0, 1), laplace(scale, 0, 0, 1))


def gaussian_pair(sigma: Fraction) -> Direction:
    """Return the same distances under Gaussian noise."""
    reach = math.ceil(_SIGMAS * sigma) + 2
    return Direction(gaussian(sigma, 1, -reach, reach), gaussian(sigma, 0, -reach, reach))


# The event that tells two data sets apart: rare under Gaussian noise, certain where noise ends

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
    within = belief_bounds(epsilon, 0, belief=Belief.TOOK_PART)
    return Shown(
        headline="If noise ends somewhere, an answer beyond its end proves that you are in the data; "
        f"with your data this happens once in {once:,} answers, on average",
        sentences=(
            "An event is a set of answers, here: all answers from some number on. The count is 1 with your "
            "data and 0 without them, and somebody who knows all other data wants to know which it is.",
            "Under Laplace noise no event tells more than e^ε allows: a belief of 50 % that your data "
            f"are in becomes at most {posterior_text(within.factor)}.",
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
        picture=partial(_draw_events, by_laplace, by_gauss, certain, float(delta)),
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
    rare = next(place for place, event in enumerate(events) if event.with_you < float(delta) / 100)
    return events[: rare + 1]


def _row(name: str, event: TailEvent) -> tuple[str, int, float, float, float]:
    ratio = event.with_you / event.without_you if event.without_you else math.inf
    return name, event.least, event.with_you, event.without_you, ratio


@plot.style()
def _draw_events(
    by_laplace: list[TailEvent], by_gauss: list[TailEvent], certain: TailEvent, delta: float
) -> Figure:
    figure, (axes,) = plot.new_figure(
        "The rarer the event, the more it tells: without a limit under Gaussian noise, and for "
        f"certain with noise that ends (1 in {1 / certain.with_you:,.0f})",
        'Events "the answer is at least t". Height: what somebody who gave even odds can believe '
        "afterwards.",
        right=0.76,
    )
    for events, colour in ((by_laplace, plot.BLUE), (by_gauss, plot.ORANGE)):
        axes.plot(
            [event.with_you for event in events], [100 * event.belief for event in events], color=colour
        )
    steps = [1, 2, 3, 5, 10, 30, round(1 / certain.with_you)]  # answers that the event holds
    shares = [min(step * certain.with_you, 1.0) for step in steps]
    axes.plot(shares, [100 * step / (2 * step - 1) for step in steps], color=plot.PURPLE)
    axes.plot(shares[:1], [100], "o", color=plot.PURPLE, clip_on=False)
    at = (shares[0], 100)
    plot.note_beside(axes, "noise that ends", at, (8, -9), va="top", color=plot.PURPLE, bbox=plot.WHITE_BOX)
    axes.set(xscale="log")
    axes.set_xlabel(f"probability of the event with you (rarer to the right; dotted: δ = {short(delta)})")
    axes.set(xlim=(1, delta / 100), ylim=(45, 103), ylabel="belief that you are in the data, in %")
    axes.axhline(50, color=plot.GREY, linewidth=0.8)
    at = (delta / 100, 50)
    plot.note_beside(axes, "50 %: nothing is learned", at, (-4, -6), ha="right", va="top", color=plot.GREY)
    axes.axvline(delta, color=plot.INK, linewidth=0.8, linestyle=(0, (2, 3)))
    ends = [
        plot.EndLabel(100 * by_gauss[-1].belief, "Gaussian noise", plot.ORANGE),
        plot.EndLabel(100 * by_laplace[-1].belief, "Laplace noise:\nnever more", plot.BLUE),
    ]
    plot.label_ends(axes, ends)
    return figure


# Many answers at once: noise grows with √k under Gaussian noise, and with k under Laplace

_DRAWS, _MOST_RUNS = 20_000, 2_000
_WIDE = 3  # from here on, the deviation of discrete Gaussian noise is σ to 15 digits


@dataclass(frozen=True, slots=True)
class NoiseOfMany:
    """The noise of each of k numbers: its exact deviation, and a measured one."""

    k: int
    laplace: float
    gaussian: float
    laplace_drawn: float
    gaussian_drawn: float


def many_numbers(values: Mapping[str, Fraction], _full: bool, progress: Progress) -> Shown:
    """Compute the noise of k counts that one person may all change by 1, for growing k."""
    epsilon, delta, most = values["epsilon"], values["delta"], int(values["k"])
    sizes = sorted({1, most, *(size for size in _grown(most))})
    noises = []
    for place, k in enumerate(sizes):
        progress(place, len(sizes))
        noises.append(noise_of(k, epsilon, delta))
    last = noises[-1]
    better, worse = sorted(
        (("Laplace", last.laplace), ("Gaussian", last.gaussian)), key=lambda noise: noise[1]
    )
    above = [noise.k for noise in noises if noise.laplace <= noise.gaussian]
    below = [noise.k for noise in noises if noise.laplace > noise.gaussian]
    first = first_gaussian(epsilon, delta, (max(above, default=0), below[0])) if below else None
    turn = (
        f"Here Gaussian noise is the smaller one from {first:,} number{'s' * (first > 1)} on."
        if first is not None
        else f"Here Laplace noise is the smaller one for all sizes up to {most:,}."
    )
    return Shown(
        headline=f"For {most:,} counts under the same ε = {short(float(epsilon))}, {better[0]} noise has a "
        f"deviation of {cell_text(better[1])} for each count, {worse[0]} noise {cell_text(worse[1])}",
        sentences=(
            f"Up to {most:,} counts are released together, and one person may change every one of them "
            "by 1.",
            "The total ε is the same for all k: it covers all counts together, not each of them.",
            "Laplace noise must cover the sum of all changes, which is k. Gaussian noise must cover their "
            "Euclidean length, which is √k.",
            f"Gaussian noise needs a δ, here {short(float(delta))}. Laplace noise needs none.",
            turn,
        ),
        tables=(
            NumberTable(
                "Deviation of the noise of each count",
                ("counts, k", "Laplace", "Gaussian", "Laplace, measured", "Gaussian, measured"),
                tuple(
                    (noise.k, noise.laplace, noise.gaussian, noise.laplace_drawn, noise.gaussian_drawn)
                    for noise in noises
                ),
            ),
        ),
        picture=partial(_draw_deviations, noises, float(epsilon), float(delta)),
    )


def first_gaussian(epsilon: Fraction, delta: Fraction, between: tuple[int, int]) -> int:
    """Return the least k at which Gaussian noise is the smaller one.

    It is so at the second of the two k, and not at the first. The ratio of both deviations rises with k.
    """
    not_yet, already = between
    while already - not_yet > 1:
        middle = (not_yet + already) // 2
        by_laplace, by_gauss = deviations(middle, epsilon, delta)
        not_yet, already = (not_yet, middle) if by_gauss < by_laplace else (middle, already)
    return already


def deviations(k: int, epsilon: Fraction, delta: Fraction) -> tuple[float, float]:
    """Return the deviations of Laplace and of Gaussian noise of each of k counts."""
    q = math.exp(-1 / Laplace.for_epsilon(epsilon, l1=k).scale)
    sigma = float(Gaussian.for_budget(epsilon, delta, l2_squared=k, dimension=k).sigma)
    return math.sqrt(2 * q) / (1 - q), _on_whole_numbers(sigma)


def _on_whole_numbers(sigma: float) -> float:
    """Return the deviation of discrete Gaussian noise. It is below σ where σ is small."""
    if sigma > _WIDE:
        return sigma
    noise = np.arange(-50, 51)
    chances = np.exp(-(noise**2) / (2 * sigma**2))
    return math.sqrt(float((chances * noise**2).sum() / chances.sum()))


def _grown(most: int) -> list[int]:
    """Return 1, 3, 10, 30, … below `most`."""
    return [size for power in range(6) for size in (10**power, 3 * 10**power) if size < most]


def noise_of(k: int, epsilon: Fraction, delta: Fraction) -> NoiseOfMany:
    """Return the noise of each of k counts, from the mechanisms and from draws."""
    by_laplace = Laplace.for_epsilon(epsilon, l1=k)
    by_gauss = Gaussian.for_budget(epsilon, delta, l2_squared=k, dimension=k)
    zeros = np.zeros(k, np.int64)
    runs = min(max(_DRAWS // k, 1), _MOST_RUNS)
    drawn = (np.concatenate([noise.sample(zeros) for _ in range(runs)]) for noise in (by_laplace, by_gauss))
    laplace, gaussian = (float(np.sqrt((noise.astype(float) ** 2).mean())) for noise in drawn)
    return NoiseOfMany(k, *deviations(k, epsilon, delta), laplace, gaussian)


@plot.style()
def _draw_deviations(noises: list[NoiseOfMany], epsilon: float, delta: float) -> Figure:
    last = noises[-1]
    figure, (axes,) = plot.new_figure(
        f"Many counts at once: for {last.k:,} of them Laplace noise is "
        f"{short(last.laplace / last.gaussian)} times as large as Gaussian noise",
        f"Noise of each of k counts that one person may all change by 1. All k together cost "
        f"ε = {short(epsilon)} (Gaussian: and δ = {short(delta)}). Lines: from the mechanisms. "
        "Dots: drawn.",
        right=0.76,
    )
    sizes = [noise.k for noise in noises]
    plot.error_axes(axes)
    axes.yaxis.set_major_formatter(lambda value, _: cell_text(value))
    axes.plot(sizes, [noise.laplace for noise in noises], color=plot.BLUE)
    axes.plot(sizes, [noise.gaussian for noise in noises], color=plot.ORANGE)
    axes.plot(sizes, [noise.laplace_drawn for noise in noises], color=plot.BLUE, **plot.DOTS)
    axes.plot(sizes, [noise.gaussian_drawn for noise in noises], color=plot.ORANGE, **plot.DOTS)
    axes.set(xlabel="number of counts, k", ylabel="deviation of the noise of each count", xlim=(1, last.k))
    ends = [
        plot.EndLabel(last.laplace, "Laplace:\ngrows like k", plot.BLUE),
        plot.EndLabel(last.gaussian, "Gaussian:\ngrows like √k", plot.ORANGE),
    ]
    plot.label_ends(axes, ends)
    return figure
