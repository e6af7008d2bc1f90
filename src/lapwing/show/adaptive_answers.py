"""The topic `adaptive`: a budget for an analyst who chooses each question after the earlier answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from lapwing.core.budget import PrivacyFilter, Terms
from lapwing.core.exact import short
from lapwing.core.losses import Loss
from lapwing.core.noise import uniform_int
from lapwing.errors import OverBudget
from lapwing.mechanisms import Laplace
from lapwing.plots.style import BLUE, GREY, INK, ORANGE, WHITE_BOX, new_figure, note_beside, style
from lapwing.show.guessing import counts_up_to
from lapwing.show.topic import NumberTable, Progress, Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POINTS = 30  # of a drawn line


def least_lifetime(loss: Loss, answers: int, delta: Fraction) -> float:
    """Return the least lifetime ε, up to 0.1 %, in which a ledger admits this many answers one by one."""

    def fits(epsilon: float) -> bool:
        terms = Terms.of(epsilon, delta)
        return terms.how_many(terms.price(loss)) >= answers

    low, high = 0.0, float(answers * (loss.pure or 1)) * 1.001  # adding up always fits
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def fixed_epsilon(price: Fraction, answers: int, delta: Fraction) -> float:
    """Return the exact ε at δ of this many answers with Laplace noise, if all prices are fixed.

    One answer's loss is +price or -price: the law of their sum is binomial, and
    δ(ε) = Σ C(k, i) p^i (1 - p)^(k - i) (1 - e^(ε - (2i - k) price)) over the terms above 0.
    """
    each, k = float(price), answers
    heads = np.arange(k + 1)
    ways = np.array(
        [math.lgamma(k + 1) - math.lgamma(i + 1) - math.lgamma(k - i + 1) for i in heads.tolist()]
    )
    chances = np.exp(ways - heads * math.log1p(math.exp(-each)) - (k - heads) * math.log1p(math.exp(each)))
    losses = (2 * heads - k) * each
    low, high = 0.0, k * each
    for _ in range(60):
        middle = (low + high) / 2
        above = -np.expm1(np.minimum(middle - losses, 0.0))
        low, high = (low, middle) if float((chances * above).sum()) <= float(delta) else (middle, high)
    return high


@dataclass(frozen=True, slots=True)
class AdaptiveAnswers:
    """The answers that an analyst got: question, price and answer of each, and why the next was refused."""

    rows: tuple[tuple[int, str, float, int], ...]
    refusal: str


def ask_adaptively(epsilon: Fraction, delta: Fraction, price: Fraction) -> AdaptiveAnswers:
    """Ask a budget in memory for noisy counts until it refuses. Each price depends on the answer before.

    The analyst looks for the ages above which fewer than 500 of 1,000 people are. An answer near 500 is
    asked for again, at four times the price.
    """
    ages = uniform_int(18, 90, 1_000)
    budget = PrivacyFilter(Terms.of(epsilon, delta))
    rows: list[tuple[int, str, float, int]] = []
    age, now = 40, price
    while True:
        mechanism = Laplace.for_epsilon(now, l1=1)
        try:
            budget.admit(budget.terms.price(mechanism.loss))
        except OverBudget as refused:
            reason = f"ε {short(float(now))} was asked, {refused.left} is left"
            return AdaptiveAnswers(tuple(rows), reason)
        answer = int(mechanism.sample([int((ages > age).sum())])[0])
        rows.append((len(rows) + 1, f"people older than {age}", float(now), answer))
        is_near = abs(answer - 500) < 3 * mechanism.scale
        if is_near and now == price:
            now = 4 * price
        else:
            age, now = 40 + (age - 39) % 30, price


def show_adaptive(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `adaptive`."""
    epsilon, delta, price = values["epsilon"], values["delta"], values["price"]
    loss = Laplace.for_epsilon(price, l1=1).loss
    terms = Terms.of(epsilon, delta)
    admitted = terms.how_many(terms.price(loss))
    added_up = int(epsilon / price)
    counts = counts_up_to(max(admitted * 3 // 2, 2), _POINTS)
    lines = []
    for done, k in enumerate(counts):
        progress(done, len(counts))
        fixed = fixed_epsilon(price, k, delta)
        lines.append((k, float(k * price), least_lifetime(loss, k, delta), fixed))
    many = max(admitted, 1)
    deltas = [
        delta * Fraction(10) ** k for k in range(-3, 4) if delta * Fraction(10) ** k <= Fraction(1, 100)
    ]
    curve = [(float(d), float(many * price), least_lifetime(loss, many, d)) for d in deltas]
    asked = ask_adaptively(epsilon, delta, price)
    spent = sum(row[2] for row in asked.rows)
    progress(1, 1)
    return Shown(
        f"A lifetime budget of ε {short(float(epsilon))} and δ {short(float(delta))} gives {admitted:,} "
        f"answers at ε {short(float(price))}; adding up ε alone gives {added_up:,}",
        (
            "An analyst reads an answer, then decides what to ask next, and at which price. This is "
            "adaptive composition: the promise must hold for every such analyst.",
            "Adding up ε is always valid. With a δ above 0, a ledger may also count more tightly, because "
            "the losses of many answers rarely all point in the same direction. The ledger runs several "
            "such filters side by side, and refuses when none of them holds any more.",
            f"After {many:,} answer{'s' * (many != 1)}, the plain sum is ε {short(float(many * price))}. "
            f"The ledger needs a lifetime ε of {short(curve[deltas.index(delta)][2])} at δ "
            f"{short(float(delta))}. A smaller δ never needs less.",
            "Here an analyst chose each price after reading the earlier answers: the ε of "
            f"{len(asked.rows):,} answered questions adds up to {short(spent)}. Then the ledger refused: "
            f"{asked.refusal}.",
            "Time gives nothing back. The budget is not for a day, a question or an analyst. δ is part "
            f"of the promise: a release that shows all data with probability {short(float(delta))} would "
            "keep it.",
        ),
        (
            NumberTable(
                f"Total ε at δ {short(float(delta))}",
                (
                    "answers",
                    "added up",
                    "ledger, for any analyst",
                    "only if all prices are fixed beforehand",
                ),
                tuple(lines[:: max(len(lines) // 10, 1)]),
            ),
            NumberTable(
                f"Total ε of {many:,} answers by δ",
                ("δ", "added up", "ledger, for any analyst"),
                tuple(curve),
            ),
            NumberTable(
                "An adaptive analyst: the last answers",
                ("number", "question", "ε", "answer"),
                asked.rows[-12:],
            ),
        ),
        lambda: _draw_adaptive(epsilon, delta, lines, curve, many),
    )


@style()
def _draw_adaptive(
    epsilon: Fraction,
    delta: Fraction,
    lines: Sequence[tuple[int, float, float, float]],
    curve: Sequence[tuple[float, float, float]],
    many: int,
) -> Figure:
    from matplotlib.ticker import MaxNLocator, NullLocator

    figure, (left, right) = new_figure(
        f"A ledger that counts with δ gives {many:,} answers at ε {short(lines[0][1])} for a total ε "
        f"of {short(float(epsilon))}",
        "Total ε: added up (orange), by the ledger for any adaptive analyst (blue), and if all prices "
        "were fixed beforehand (grey). Dashed: the lifetime budget.",
        panels=2,
        one_scale=False,
        size=(10.0, 5.4),
    )
    answers = [line[0] for line in lines]
    for place, colour, width in ((3, GREY, 1.4), (1, ORANGE, 2.2), (2, BLUE, 2.2)):
        left.plot(answers, [line[place] for line in lines], color=colour, linewidth=width)
    left.set_xlim(0, answers[-1])
    top = min(1.05 * lines[-1][1], 4 * float(epsilon))
    left.set_ylim(0, top)
    left.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    left.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    left.set_title(f"At δ = {short(float(delta))}")
    left.set(xlabel="answers", ylabel="total ε")
    deltas = [point[0] for point in curve]
    right.plot(deltas, [point[1] for point in curve], color=ORANGE)
    right.plot(deltas, [point[2] for point in curve], color=BLUE, marker="o", markersize=4)
    right.set_xscale("log")
    is_clear = min(curve[0][1], top) - curve[0][2] > 0.15 * top  # room between the two lines
    beside = (5, "bottom") if is_clear else (-6, "top")
    for place, name, shift, edge, colour in (
        (1, "added up", 4, "bottom", ORANGE),
        (2, "ledger, for any analyst", *beside, BLUE),
    ):
        text, up, side = name, shift, edge
        above = curve[0][place] > top
        at = (deltas[0], top if above else curve[0][place])
        if above:
            text, up, side = f"{text}: ε {short(curve[0][place])}, above this picture", -2, "top"
        note_beside(right, text, at, (0, up), va=side, color=colour, bbox=WHITE_BOX)
    right.xaxis.set_minor_locator(NullLocator())
    right.set_title(f"After {many:,} answer{'s' * (many != 1)}")
    right.set_xlabel("δ of the promise")
    for axes in (left, right):
        axes.axhline(float(epsilon), color=INK, linewidth=1.2, linestyle="--")
    budget = f"budget {short(float(epsilon))}"
    at = (answers[-1], float(epsilon))
    note_beside(left, budget, at, (-3, -4), ha="right", va="top", size=9.5)
    return figure
