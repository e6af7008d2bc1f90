"""The chapter "People": what ε means for somebody whom the data is about."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from lapwing.audit.laws import laplace_at_least, precise
from lapwing.core.beliefs import Belief, BeliefBounds, belief_bounds
from lapwing.core.chances import odds_up, percent, percent_down, percent_up, posterior
from lapwing.core.exact import exp_up, log_up, short
from lapwing.core.noise import bernoulli
from lapwing.mechanisms import Laplace, RandomizedResponse
from lapwing.plots.style import BLUE, GREY, INK, ORANGE, new_figure, note_beside, style
from lapwing.show.topic import NumberTable, Progress, Shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HALF = Fraction(1, 2)
_DRAWS = 20_000
_EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(5))
_LN_3 = log_up(3)
_PRIORS = tuple(Fraction(percent, 100) for percent in (1, 10, 25, 50, 75, 90, 99))
_NOT_CERTAIN = math.nextafter(1, 0)  # a chance below 1 that a float would round to it
_NATS = 75  # noise beyond this many scales has a probability below 1e-30


# Smoking and Mary


def finding_probability(epsilon: Fraction, ill: int, well: int) -> Decimal:
    """Return the probability that the released count of ill people is above that of well ones.

    Both counts get discrete Laplace noise of scale 1/ε. Exact, up to 1e-30.
    """

    @precise
    def summed() -> Decimal:
        scale, reach = 1 / epsilon, int(_NATS / epsilon) + 1
        total = Decimal(0)
        for noise in range(-reach, reach + 1):  # of the second count; then the first must be larger
            chance = laplace_at_least(scale, noise) - laplace_at_least(scale, noise + 1)
            total += chance * laplace_at_least(scale, well - ill + noise + 1)
        return total

    return summed()


def smoking(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `smoking`."""
    epsilon, n, risk, prior = values["epsilon"], int(values["n"]), values["risk"], values["prior"]
    ill_others = int(bernoulli(risk, n - 1).sum()) if 0 < risk < 1 else int(risk) * (n - 1)
    well = n - 1 - ill_others
    mechanism = Laplace.for_epsilon(epsilon, l1=1)
    rows, shares = [], []
    for name, ill in (("with Mary, who is ill", ill_others + 1), ("without Mary", ill_others)):
        released = mechanism.sample(np.tile([ill, well], _DRAWS)).reshape(_DRAWS, 2)
        totals = np.maximum(released.sum(axis=1), 1)
        shares.append(np.clip(released[:, 0] / totals, 0, 1))
        chance = finding_probability(epsilon, ill, well)
        rows.append((name, ill, well, int(released[0, 0]), int(released[0, 1]), chance))
    progress(1, 1)
    said = [percent(Fraction(row[5])) for row in rows]
    both = f"{said[0]} in both cases" if said[0] == said[1] else f"{said[0]} with Mary, {said[1]} without"
    learnt = float(shares[1][0])
    took_part, is_ill = (
        belief_bounds(epsilon, 0, belief=belief) for belief in (Belief.TOOK_PART, Belief.FACT)
    )
    return Shown(
        "What the study finds about smokers is applied to Mary, too, whether or not she took part",
        (
            f"A study counts ill and well smokers, {n:,} with Mary. Both counts are released together, "
            f"with ε {short(float(epsilon))} for adding or removing a person.",
            f'The probability that the study says "most smokers are ill" is {both}. ε limits the ratio of '
            f"the two probabilities to {odds_up(took_part.factor)}, in both directions, for this and every "
            "other conclusion.",
            f"Mary stays out, and by the release {100 * learnt:.1f} % of the smokers are ill. An insurer "
            f"who believed {percent(prior)} may now {'raise' if learnt > prior else 'lower'} the premium "
            "of all smokers, and so Mary's. That is learnt from the others. Privacy does not hide it, "
            "and staying out does not avoid it.",
            "What is limited is the additional harm of taking part. Somebody who knows the data of all "
            "others, and believes with 50 % that Mary took part, believes it with at most "
            f"{percent_up(_after(took_part, HALF)[1])} afterwards. If they know that she took part, and "
            f"believe with 50 % that she is ill, it is at most {percent_up(_after(is_ill, HALF)[1])}: from "
            "ill to well is two steps, e^2ε.",
            "The limit is the same in a large group and in a small one.",
        ),
        (
            NumberTable(
                f"The study, ε {short(float(epsilon))}",
                (
                    "study", "ill smokers", "well smokers", "released: ill", "released: well",
                    "probability of the finding",
                ),
                tuple((*row[:5], min(float(row[5]), _NOT_CERTAIN)) for row in rows),
            ),
            NumberTable(
                "Beliefs of somebody who knows the data of all others",
                ("belief", "before", "after, at least", "after, at most"),
                (
                    ("Mary took part", 0.5, *_after(took_part, HALF)),
                    ("Mary, who took part, is ill", 0.5, *_after(is_ill, HALF)),
                ),
            ),
        ),
        lambda: _draw_smoking(
            epsilon,
            [row[1] / (row[1] + row[2]) for row in rows],
            shares,
            is_same=said[0] == said[1],
        ),
    )  # fmt: skip


def _after(bounds: BeliefBounds, before: Fraction) -> tuple[float, float]:
    """Return the least and the greatest belief afterwards."""
    low, high = bounds.after(before)
    return float(low), float(high)


@style()
def _draw_smoking(
    epsilon: Fraction, truths: Sequence[float], shares: Sequence[Sequence[float]], *, is_same: bool
) -> Figure:
    figure, panels = new_figure(
        "The finding about smokers is the same with Mary and without her"
        if is_same
        else "The finding about smokers, with Mary and without her",
        f"Released share of ill smokers in {len(shares[0]):,} repetitions, each with fresh noise at ε "
        f"{short(float(epsilon))}. Dotted: half of the smokers.",
        panels=2,
    )
    percents = [100 * np.asarray(each) for each in shares]
    together = np.concatenate(percents)
    bins = np.linspace(min(float(together.min()), 48.0), max(float(together.max()), 52.0), 61)
    for axes, name, colour, truth, guesses in (
        (panels[0], "Mary takes part", ORANGE, truths[0], percents[0]),
        (panels[1], "Mary stays out", BLUE, truths[1], percents[1]),
    ):
        axes.hist(guesses, bins=list(bins), color=colour, alpha=0.85)
        axes.axvline(50, color=GREY, linewidth=1.3, linestyle=":")
        axes.set_title(f"{name}: truth {100 * truth:.1f} %", color=colour)
        axes.set_xlabel("released share of ill smokers, in %")
    panels[0].set_ylabel("repetitions")
    panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    top = panels[0].get_ylim()[1]
    panels[0].set_ylim(0, 1.14 * top)
    side, shift = ("left", 5.0) if truths[1] < 0.5 else ("right", -5.0)
    for axes in panels:
        axes.set_xlim(bins[0] - 3, bins[-1] + 3)
        note_beside(axes, "half", (50, 1.08 * top), (shift, 0), ha=side, va="center", color=GREY)
    return figure


# From prior to posterior odds


def odds(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `odds`."""
    epsilon, prior = values["epsilon"], values["prior"]
    one_step, two_steps = (
        {each: belief_bounds(each, 0, belief=belief) for each in {*_EPSILONS, epsilon, _LN_3}}
        for belief in (Belief.TOOK_PART, Belief.FACT)
    )
    by_epsilon = [
        (
            "ln 3" if each == _LN_3 else short(float(each)), float(one_step[each].factor),
            *_after(one_step[each], prior), *_after(two_steps[each], prior),
        )
        for each in sorted(one_step)
    ]  # fmt: skip
    moved, facts = one_step[epsilon], two_steps[epsilon]
    low, high = _after(moved, prior)
    by_prior = [
        (float(before), *_after(moved, before), *_after(facts, before))
        for before in sorted({*_PRIORS, prior})
    ]
    quarter, three_quarters = _after(one_step[_LN_3], HALF)
    progress(1, 1)
    return Shown(
        f"With ε {short(float(epsilon))}, a belief of {percent(prior)} that you took part ends between "
        f"{percent_down(low)} and {percent_up(high)}",
        (
            "Somebody who knows the data of all others has a belief that you took part: before a release "
            "one, after it another. The odds of the two differ at most by the factor e^ε, here "
            f"{odds_up(moved.factor)}.",
            "ε is not the probability of being identified: the belief after the release depends on the "
            f"belief before it. With ε = ln 3 and even odds, it ends between {percent(Fraction(quarter))} "
            f"and {percent(Fraction(three_quarters))}.",
            "ε 1 is not 1 %, and half of an ε is not half of the risk. It is the square root of the "
            f"factor: ε 1 is a factor of {short(float(exp_up(1)))}, ε 0.5 one of "
            f"{short(float(exp_up(HALF)))}.",
            'For a curator, one step adds or removes a person, so the bounds are for "you took part". Two '
            'values of a person who took part, such as "ill" and "well", are two steps apart: the factor '
            f"is e^2ε, here {odds_up(facts.factor)}. In a survey, one step replaces an answer.",
            "Somebody who knows less can learn about you from the others' data. ε does not limit that: "
            "see `lapwing show smoking`.",
            "The ε is that of all releases about you together, and the bounds hold for δ = 0. A δ above 0 "
            "allows more: a release that shows all your data with probability δ would keep the promise.",
        ),
        (
            NumberTable(
                f"A belief of {percent(prior)}, by ε",
                (
                    "ε", "factor e^ε", "one step: at least", "one step: at most", "two steps: at least",
                    "two steps: at most",
                ),
                tuple(by_epsilon),
            ),
            NumberTable(
                f"Beliefs at ε {short(float(epsilon))}",
                (
                    "before", "one step: at least", "one step: at most", "two steps: at least",
                    "two steps: at most",
                ),
                tuple(by_prior),
            ),
        ),
        lambda: _draw_odds(epsilon, prior, moved, one_step[_LN_3]),
    )  # fmt: skip


@style()
def _draw_odds(epsilon: Fraction, prior: Fraction, moved: BeliefBounds, ln_3: BeliefBounds) -> Figure:
    low, high = _after(moved, prior)
    figure, panels = new_figure(
        f"ε limits how far a belief can move: at ε = {short(float(epsilon))}, from "
        f"{100 * float(prior):.3g} % to between {percent_down(low)} and {percent_up(high)}",
        "How far somebody who knows the data of all others believes that you took part, before and after "
        "a release. It stays inside the band. On the diagonal, nothing was learnt. δ = 0.",
        panels=2,
    )
    before = np.linspace(0, 1, 401)
    for axes, title, colour, bounds, point in (
        (panels[0], f"ε = {short(float(epsilon))}", BLUE, moved, prior),
        (panels[1], "ε = ln 3: from ½ to ¼ or ¾", ORANGE, ln_3, HALF),
    ):
        r = float(bounds.factor)
        bottom, top = (
            100 * before / (before + r * (1 - before)),
            100 * r * before / (r * before + 1 - before),
        )
        axes.fill_between(100 * before, bottom, top, color=colour, alpha=0.2, linewidth=0)
        axes.plot(100 * before, bottom, color=colour, linewidth=1.6)
        axes.plot(100 * before, top, color=colour, linewidth=1.6)
        axes.plot([0, 100], [0, 100], color=GREY, linewidth=1.2, linestyle=":")
        ends = _after(bounds, point)
        at = 100 * float(point)
        axes.plot([at, at], [100 * end for end in ends], color=INK, linewidth=1.6, marker="o", markersize=5)
        axes.set_title(title, color=colour)
        axes.set(xlim=(0, 100), ylim=(0, 100), xlabel="belief before, in %", xticks=range(0, 101, 25))
        _name_ends(axes, at, ends)
    panels[0].set_yticks(range(0, 101, 25))
    panels[0].set_ylabel("belief after, in %")
    return figure


def _name_ends(axes: Axes, at: float, ends: tuple[float, float]) -> None:
    """Write the two ends of a range of beliefs outside the band, or inside if there is no room."""
    low, high = ends
    if high - low < 0.07:  # two texts would overlap
        side, shift = ("right", -7.0) if at > 50 else ("left", 7.0)
        text = f"{percent_down(low)} to {percent_up(high)}"
        up = 9.0 if high < 0.5 else -9.0
        note_beside(axes, text, (at, 100 * high), (shift, up), ha=side, va="center", size=9.5)
        return
    top_left, bottom_right = at > 25, at < 75
    for text, end, is_left, up in (
        (percent_up(high), high, top_left, 7.0),
        (percent_down(low), low, not bottom_right, -7.0),
    ):
        shift, side = (-7.0, "right") if is_left else (7.0, "left")
        height = min(max(up + 3.6 * end * 70, 8.0), 3.6 * 70 - 8) - 3.6 * end * 70  # within the axes
        note_beside(axes, text, (at, 100 * end), (shift, height), ha=side, va="center", size=9.5)


# Plausible deniability


def deniability(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `deniability`."""
    epsilon, prior, n = values["epsilon"], values["prior"], int(values["n"])
    mechanism = RandomizedResponse.for_epsilon(epsilon)
    factor = exp_up(epsilon)
    truth = factor / (1 + factor)
    truths = (np.arange(n) < round(prior * n)).astype(np.int64)
    reports = mechanism.sample(truths)
    counted = [[int(((reports == said) & (truths == true)).sum()) for true in (1, 0)] for said in (1, 0)]
    after = {1: posterior(prior, factor), 0: posterior(prior, 1 / factor)}  # true yes, by report
    fresh = [(reports_, float(posterior(prior, factor**reports_))) for reports_ in range(1, 9)]
    progress(1, 1)
    wrong = counted[0][1]
    said_yes = sum(counted[0])
    return Shown(
        f"Of the people who report yes, {percent(1 - after[1])} are expected to have the answer no",
        (
            f"Each of {n:,} people reports the truth with probability {percent(truth)}, else the opposite "
            f"(ε {short(float(epsilon))}). {percent(prior)} of them would truly say yes.",
            f"Here {said_yes:,} people report yes, and {wrong:,} of these would truly say no. So a report "
            f"of yes is no proof: with probability {percent(1 - truth)}, a report is not the truth.",
            "A report is still some evidence. A report of yes raises the belief in a true yes from "
            f"{percent(prior)} to {percent_up(float(after[1]))}; a report of no lowers it to "
            f"{percent(after[0])}. The odds change by the factor e^ε = {odds_up(factor)} and not by more.",
            "Deniability is not anonymity: it holds even if everybody knows who sent which report.",
            "It holds for one report. Fresh coins for the same question use it up: after 8 reports of "
            f"yes, the belief is {percent(posterior(prior, factor**8))}. So a device must keep its "
            "report, or count all of them against one budget for life.",
        ),
        (
            NumberTable(
                f"Reports of {n:,} people",
                ("report", "truly yes", "truly no", "share truly yes", "share truly yes, expected"),
                tuple(
                    (name, *counts, counts[0] / max(sum(counts), 1), float(after[said]))
                    for name, said, counts in (("yes", 1, counted[0]), ("no", 0, counted[1]))
                ),
            ),
            NumberTable(
                "Several reports of yes about one fact, each with fresh coins",
                ("reports", "belief in a true yes"),
                tuple(fresh),
            ),
        ),
        lambda: _draw_deniability(epsilon, counted),
    )


@style()
def _draw_deniability(epsilon: Fraction, counted: Sequence[Sequence[int]]) -> Figure:
    total = sum(map(sum, counted))
    figure, (axes,) = new_figure(
        f"Of {sum(counted[0]):,} people who report yes, {counted[0][1]:,} would truly say no",
        f"Reports of {total:,} people, each randomized at ε {short(float(epsilon))}. A report "
        "alone does not prove to which part of its bar a person belongs.",
        size=(9.0, 4.2),
        left=1.6,
    )
    for height, (yes, no) in zip((1, 0), counted, strict=True):
        axes.barh(height, yes, height=0.55, color=ORANGE, alpha=0.9)
        axes.barh(height, no, left=yes, height=0.55, color=BLUE, alpha=0.9)
        note_beside(axes, f"truly yes: {yes:,}", (0, height + 0.28), (5, 3), color=ORANGE, va="bottom")
        note_beside(axes, f"truly no: {no:,}", (0, height + 0.28), (130, 3), color=BLUE, va="bottom")
    axes.set_yticks([1, 0], ["report: yes", "report: no"])
    axes.set(ylim=(-0.5, 1.65), xlim=(0, max(map(sum, counted)) * 1.02))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("people")
    return figure
