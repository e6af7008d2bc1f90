"""The cost of many answers together: ε against δ, by every valid way of accounting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from lapwing.core.budget import NEVER, Charge, Terms
from lapwing.core.conversions import best_renyi_epsilon, gaussian_epsilon, loss_to_epsilon
from lapwing.core.exact import short, whole
from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import LARGEST_EPSILON, GaussianNoise, Loss, Repeated, SequentialComposition
from lapwing.errors import BadParameter
from lapwing.plots.style import BLUE, GREEN, ORANGE, PURPLE, EndLabel, label_ends, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Steps = Sequence[tuple[Loss, int]]
_DELTAS = tuple(Fraction(1, 10**k) for k in range(9, 2, -1))
_SHOWN = Fraction(1, 10**6)


def basic(steps: Steps, delta: Fraction) -> float:
    """Return Σε: each answer's ε, where Gaussian answers get equal parts of δ."""
    total = Fraction(0)
    parts = sum(count for loss, count in steps if loss.pure is None)
    for loss, count in steps:
        each: Fraction | None = loss.pure
        if isinstance(loss, GaussianNoise):
            each = gaussian_epsilon(delta / parts, loss.sigma, loss.l2_squared, loss.dimension)
        elif each is None:
            each = loss_to_epsilon(loss, delta / parts)
        if each is None:
            return math.nan
        total += count * each
    return float(total)


def by_renyi(steps: Steps, delta: Fraction) -> float:
    """Return ε by the best Rényi order for the sum of the curves."""
    together = SequentialComposition(tuple(Repeated(loss, count) for loss, count in steps))
    left = delta - together.delta0
    return float(best_renyi_epsilon(together, left)) if left > 0 else math.nan


def by_distribution(steps: Steps, delta: Fraction) -> float:
    """Return ε by the privacy loss distribution: the tightest, only for steps that are fixed beforehand."""
    return float(FixedRun(tuple(steps), delta).pair[0])


def by_portfolio(steps: Steps, delta: Fraction) -> float:
    """Return the least lifetime ε under which an adaptive ledger would admit all the steps."""

    def fits(epsilon: float) -> bool:
        terms = Terms.of(epsilon, delta)
        costs = [0] * len(terms.caps)
        for loss, count in steps:
            for k, cost in enumerate(terms.price(loss).costs):
                costs[k] = min(costs[k] + count * cost, NEVER)
        # Sums only grow, so all steps at once fit exactly if they fit one after another.
        return terms.after(terms.nothing_spent, Charge(terms.orders, tuple(costs))) is not None

    low = high = by_distribution(steps, delta) / 2
    while not fits(high):
        low, high = high, 2 * high
        if high > LARGEST_EPSILON:
            return math.nan
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


_WAYS: tuple[tuple[str, str, str, Callable[[Steps, Fraction], float]], ...] = (
    ("basic", "adding up ε", PURPLE, basic),
    ("portfolio", "our ledger: the next question\nmay depend on every answer", ORANGE, by_portfolio),
    ("renyi", "best Rényi order:\nprices fixed beforehand", BLUE, by_renyi),
    ("distribution", "loss distribution:\nsteps fixed beforehand", GREEN, by_distribution),
)


def epsilon_delta_curve(*steps: tuple[Loss, int]) -> Figure:
    """Draw ε at δ for `count` uses of each loss: added up, by Rényi, by distribution, by our ledger.

    Needs the extra `pld`, too. Each line is a valid statement, and the lowest is the strongest. But only
    the ledger's and the added-up one hold for an analyst who chooses questions by earlier answers.
    """
    if not steps:
        raise BadParameter("steps", "must name at least one (loss, count)")
    for _, count in steps:
        whole(count, "count", at_least=1)
    with style():
        lines = {name: [way(steps, delta) for delta in _DELTAS] for name, _, _, way in _WAYS}
        at = _DELTAS.index(_SHOWN)
        many = sum(count for _, count in steps)
        figure, (axes,) = new_figure(
            f"{many:,} answers cost ε = {short(lines['basic'][at])} when simply added up, and "
            f"{short(lines['portfolio'][at])} in a ledger that may be asked anything next",
            f"Total ε for each total δ, by four ways of counting. The title reads them at "
            f"δ = {short(float(_SHOWN))}. All four hold; lower is a stronger promise.",
            right=0.68,
        )
        deltas = np.array([float(delta) for delta in _DELTAS])
        axes.set(xscale="log", xlim=(deltas[0], deltas[-1]), xlabel="total δ", ylabel="total ε")
        axes.set_ylim(0, 1.08 * max(np.nanmax(values) for values in lines.values()))
        labels = []
        for name, text, colour, _ in _WAYS:
            axes.plot(deltas, lines[name], color=colour, gid=name)
            end = lines[name][-1]
            if math.isfinite(end):
                labels.append(EndLabel(end, text, colour))
        label_ends(axes, labels)
        return figure
