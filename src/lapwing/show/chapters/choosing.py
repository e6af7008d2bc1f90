"""The chapter "Choosing": a private choice, where noise on the result would be useless."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.laws import exponential as exponential_law
from lapwing.audit.laws import laplace as laplace_law
from lapwing.core.chances import percent
from lapwing.core.exact import short
from lapwing.mechanisms import Exponential, Laplace
from lapwing.plots import style as plot
from lapwing.show.small_network import (
    LARGEST_WEIGHT,
    WEIGHT_COUNT,
    Floats,
    TownData,
    right_answers,
    trained,
)
from lapwing.show.topic import NumberTable, Progress, Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The exponential mechanism on a choice: one price for all

HIGHEST = 20
PRICES = tuple(range(1, HIGHEST + 1))
DRAWS = 1000
_ROUND_PRICES = ((0.25, 6), (0.70, 10), (0.90, 15))  # the share of people up to here, and what they pay


def highest_bids(n: int) -> NDArray[np.int64]:
    """Return what each of n invented people would pay at most: mostly a round price."""
    places = (np.arange(n) + 0.5) / n
    bids = 1 + np.arange(n) % HIGHEST
    for share, price in reversed(_ROUND_PRICES):
        bids[places < share] = price
    return bids


def exponential(values: Mapping[str, Fraction], _full: bool, _progress: Progress) -> Shown:
    """Compute the probability of each price, and what the choice earns on average."""
    epsilon, n = values["epsilon"], int(values["n"])
    bids = highest_bids(n)
    earned = [price * int((bids >= price).sum()) for price in PRICES]
    best = int(np.argmax(earned))
    chosen = Exponential.for_epsilon(epsilon, sensitivity=HIGHEST)
    law = exponential_law(earned, chosen.rate)
    chances = [float(law[place]) for place in range(HIGHEST)]
    draws = np.bincount([chosen.sample(earned) for _ in range(DRAWS)], minlength=HIGHEST) / DRAWS
    noisy = laplace_law(Laplace.for_epsilon(epsilon, l1=HIGHEST - 1).scale, PRICES[best], 1, HIGHEST)
    noisy_chances = [float(noisy[price]) for price in PRICES]
    by_choice, by_noise = (float(np.dot(earned, law)) for law in (chances, noisy_chances))
    most = earned[best]
    return Shown(
        headline=f"At ε = {short(float(epsilon))} a private choice among {HIGHEST} prices earns "
        f"{_percent(by_choice / most)} of the best price's income on average; the best price with noise "
        f"earns {_percent(by_noise / most)}",
        sentences=(
            f"A town sells a permit to {n:,} people (invented), at one price for all. Most would pay up "
            f"to a round price; {PRICES[best]} earns most, and {PRICES[best] + 1} much less, so a price "
            "that is nearly right is worth little.",
            "The exponential mechanism adds no noise to the result. It draws one of the prices, and a "
            "price that earns more is more probable: in proportion to e^(ε · income / 2Δ).",
            f"Δ = {HIGHEST} is the most that one person can change the income at any price.",
            "The promise is the same as that of noise: with your data or without, no price is more than "
            "e^ε times as probable.",
            "It may choose badly, and the fewer people there are, the more often it does: try --n 30.",
        ),
        tables=(
            NumberTable(
                "The prices",
                ("price", "income", "probability of being chosen", f"share of {DRAWS:,} choices"),
                tuple(zip(PRICES, earned, chances, draws.tolist(), strict=True)),
                bars=2,
            ),
            NumberTable(
                "Income on average",
                ("way", "income", "share of the best, in %"),
                tuple(
                    (way, income, 100 * income / most)
                    for way, income in (
                        ("the best price, not private", float(most)),
                        ("exponential mechanism", by_choice),
                        ("the best price plus Laplace noise", by_noise),
                        ("a price at random", float(np.mean(earned))),
                    )
                ),
            ),
        ),
        picture=partial(_draw_prices, earned, chances, noisy_chances, short(float(epsilon)), n),
    )


def _percent(share: float) -> str:
    return percent(Fraction(share))


@plot.style()
def _draw_prices(
    earned: Sequence[int], chances: Sequence[float], noisy: Sequence[float], epsilon: str, n: int
) -> Figure:
    best = int(np.argmax(earned))
    by_choice, by_noise = (float(np.dot(earned, law)) / earned[best] for law in (chances, noisy))
    figure, (left, right) = plot.new_figure(
        f"A price for {n:,} people at ε = {epsilon}: a private choice earns {_percent(by_choice)} of "
        f"the best, noise on the best price {_percent(by_noise)}",
        "Grey: the income at each price, as a share of the best. Colour: the probability that this "
        "price is released.",
        panels=2,
        size=(11.0, 5.2),
    )
    shares = [100 * income / earned[best] for income in earned]
    for axes, law, colour, title in (
        (left, chances, plot.BLUE, "Exponential mechanism"),
        (right, noisy, plot.ORANGE, "Best price plus Laplace noise"),
    ):
        axes.bar(PRICES, shares, width=0.86, color=plot.GREY, alpha=0.3)
        axes.bar(PRICES, [100 * chance for chance in law], width=0.5, color=colour)
        axes.set_title(title, color=colour)
        axes.set(xlabel="price", xlim=(0.3, HIGHEST + 0.7), ylim=(0, 118))
        axes.set_xticks([1, 5, 10, 15, 20])
    plot.note_beside(left, "best price", (PRICES[best], 100), (0, 5), ha="center", color=plot.INK)
    left.set_ylabel("in %")
    ends = f"prices below 1 and above {HIGHEST}\nare set to the nearest one"
    right.annotate(
        ends, xy=(0.98, 0.98), xycoords="axes fraction", ha="right", va="top", color=plot.ORANGE, size=9
    )
    return figure


# Noise ruins a network's weights; a private choice among networks does not

TOWNS = 12  # public networks
PRIVATE_ANGLE = 40.0
_PUBLIC_ROWS, _TEST_ROWS = 300, 2000
_STEPS = 1000  # a weight is a whole number of thousandths
_NOISY_NETWORKS = 60
_OTHERS = ("0.01", "0.1", "1", "10", "100")


@dataclass(frozen=True, slots=True)
class Accuracies:
    """Shares of right answers on new rows, at one ε."""

    epsilon: float
    noisy: float
    chosen: float


def network_choice(values: Mapping[str, Fraction], _full: bool, progress: Progress) -> Shown:
    """Train networks, then release one privately in both ways, for several ε."""
    epsilon, n = values["epsilon"], int(values["n"])
    private = TownData.of(PRIVATE_ANGLE, n, first=0)
    test = TownData.of(PRIVATE_ANGLE, _TEST_ROWS, first=1_000_000)
    angles = [360.0 * town / TOWNS for town in range(TOWNS)]
    public = []
    for town, angle in enumerate(angles):
        progress(town, TOWNS + 1)
        public.append(trained(TownData.of(angle, _PUBLIC_ROWS, first=2_000_000 + 1000 * town)))
    own = trained(private)
    scores = [right_answers(weights, private) for weights in public]
    shares = [right_answers(weights, test) / _TEST_ROWS for weights in public]
    epsilons = sorted({epsilon, *map(Fraction, _OTHERS)})
    accuracies = [
        Accuracies(float(each), noisy_accuracy(own, each, test), chosen_accuracy(scores, shares, each))
        for each in epsilons
    ]
    here = next(accuracy for accuracy in accuracies if accuracy.epsilon == float(epsilon))
    without = right_answers(own, test) / _TEST_ROWS
    law = exponential_law(scores, Exponential.for_epsilon(epsilon, sensitivity=1).rate)
    return Shown(
        headline=f"At ε = {short(float(epsilon))} a network with noisy weights is right in "
        f"{_percent(here.noisy)} of cases, a privately chosen one in {_percent(here.chosen)}",
        sentences=(
            f"A network with {WEIGHT_COUNT} weights is trained on {n:,} private rows (invented). Without "
            f"privacy it is right in {_percent(without)} of cases; guessing, in 50 %.",
            "One person might change every weight by its whole range. Noise that covers this is so large "
            "that the network only guesses, at every usual ε.",
            f"Instead, {TOWNS} networks were trained elsewhere, on public data of other towns. The "
            "private rows only say which of them to take: a network's score is the number of rows that "
            "it gets right, and one person changes it by 1.",
            "The exponential mechanism takes a better one with a higher probability, and the promise is "
            f"the same ε. No choice is better than the best network offered, {_percent(max(shares))}, and "
            "few rows or a small ε make it worse.",
            "Another way out is to add noise during training instead of afterwards (`lapwing train`).",
        ),
        tables=(
            NumberTable(
                "Right answers on new rows, in %",
                ("ε", f"noisy weights, mean of {_NOISY_NETWORKS}", "private choice, on average"),
                tuple(
                    (accuracy.epsilon, 100 * accuracy.noisy, 100 * accuracy.chosen)
                    for accuracy in accuracies
                ),
            ),
            NumberTable(
                f"The networks offered, at ε = {short(float(epsilon))}",
                ("network", "private rows that it gets right", "right on new rows, in %", "probability"),
                tuple(
                    (f"town {town + 1}", score, 100 * share, float(law[town]))
                    for town, (score, share) in enumerate(zip(scores, shares, strict=True))
                ),
                bars=3,
            ),
        ),
        picture=partial(_draw_networks, accuracies, without, max(shares), n),
    )


def noisy_accuracy(weights: Floats, epsilon: Fraction, test: TownData) -> float:
    """Return the mean share of right answers of networks with noise on all weights, ε together."""
    reach = math.ceil(2 * LARGEST_WEIGHT * _STEPS)
    noise = Laplace.for_epsilon(epsilon, l1=reach * len(weights))
    exact = np.round(weights * _STEPS).astype(np.int64)
    networks = [noise.sample(exact) / _STEPS for _ in range(_NOISY_NETWORKS)]
    return float(np.mean([right_answers(network, test) for network in networks])) / len(test.classes)


def chosen_accuracy(scores: list[int], shares: list[float], epsilon: Fraction) -> float:
    """Return the expected share of right answers of the network that the exponential mechanism chooses."""
    law = exponential_law(scores, Exponential.for_epsilon(epsilon, sensitivity=1).rate)
    return sum(float(law[place]) * share for place, share in enumerate(shares))


@plot.style()
def _draw_networks(accuracies: list[Accuracies], without: float, best: float, n: int) -> Figure:
    figure, (axes,) = plot.new_figure(
        "Noise on the weights ruins a network; a private choice works",
        f"Share of right answers on new rows, against ε, for {n:,} private rows.",
        right=0.74,
    )
    epsilons = [accuracy.epsilon for accuracy in accuracies]
    axes.plot(epsilons, [100 * accuracy.chosen for accuracy in accuracies], color=plot.BLUE, marker="o")
    axes.plot(epsilons, [100 * accuracy.noisy for accuracy in accuracies], color=plot.ORANGE, marker="o")
    axes.axhline(100 * without, color=plot.GREY, linewidth=1, linestyle=(0, (5, 3)))
    axes.axhline(50, color=plot.GREY, linewidth=0.8)
    axes.set(xscale="log", xlabel="ε (smaller is more private)", ylabel="right answers, in %")
    axes.xaxis.set_major_formatter(lambda value, _: short(value))
    axes.set_xlim(epsilons[0], epsilons[-1])
    axes.set_ylim(40, 103)
    plot.label_ends(
        axes,
        [
            plot.EndLabel(100 * without, "trained on the rows,\nnot private", plot.GREY),
            plot.EndLabel(100 * accuracies[-1].chosen, "private choice of\na public network", plot.BLUE),
            plot.EndLabel(100 * accuracies[-1].noisy, "noise on all weights", plot.ORANGE),
            plot.EndLabel(50, "guessing", plot.GREY),
        ],
    )
    return figure
