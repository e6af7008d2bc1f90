"""The exponential mechanism on a choice: one price for all, where noise on the price is useless."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.laws.choice_laws import exponential as exponential_law
from lapwing.audit.laws.noise_laws import laplace as laplace_law
from lapwing.core.chances import percent
from lapwing.core.exact import short
from lapwing.mechanisms import Exponential, Laplace
from lapwing.plots.style import BLUE, GREY, INK, ORANGE, new_figure, note_beside, style
from lapwing.show.topic import NumberTable, Progress, Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        picture=partial(_draw, earned, chances, noisy_chances, short(float(epsilon)), n),
    )


def _percent(share: float) -> str:
    return percent(Fraction(share))


def _draw(
    earned: Sequence[int], chances: Sequence[float], noisy: Sequence[float], epsilon: str, n: int
) -> Figure:
    best = int(np.argmax(earned))
    by_choice, by_noise = (float(np.dot(earned, law)) / earned[best] for law in (chances, noisy))
    with style():
        figure, (left, right) = new_figure(
            f"A price for {n:,} people at ε = {epsilon}: a private choice earns {_percent(by_choice)} of "
            f"the best, noise on the best price {_percent(by_noise)}",
            "Grey: the income at each price, as a share of the best. Colour: the probability that this "
            "price is released.",
            panels=2,
            size=(11.0, 5.2),
        )
        shares = [100 * income / earned[best] for income in earned]
        for axes, law, colour, title in (
            (left, chances, BLUE, "Exponential mechanism"),
            (right, noisy, ORANGE, "Best price plus Laplace noise"),
        ):
            axes.bar(PRICES, shares, width=0.86, color=GREY, alpha=0.3)
            axes.bar(PRICES, [100 * chance for chance in law], width=0.5, color=colour)
            axes.set_title(title, color=colour)
            axes.set(xlabel="price", xlim=(0.3, HIGHEST + 0.7), ylim=(0, 118))
            axes.set_xticks([1, 5, 10, 15, 20])
        note_beside(left, "best price", (PRICES[best], 100), (0, 5), ha="center", color=INK)
        left.set_ylabel("in %")
        ends = f"prices below 1 and above {HIGHEST}\nare set to the nearest one"
        right.annotate(
            ends, xy=(0.98, 0.98), xycoords="axes fraction", ha="right", va="top", color=ORANGE, size=9
        )
        return figure
