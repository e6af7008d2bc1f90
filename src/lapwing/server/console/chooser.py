"""The chooser: error, price and odds of one plan, and a slider over round prices.

Claim    what the chooser says of a price is what a release at this price would have.
Because  each error is computed from the shares that the plan for that ε has, the odds are rounded up, and
         the ε for wanted odds is rounded down.
Test     tests/server/console/test_chooser.py
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from lapwing.core.beliefs import Belief, belief_bounds
from lapwing.core.exact import short_down, short_up
from lapwing.core.losses import Relation
from lapwing.errors import BadParameter
from lapwing.server.console.parts import share_text
from lapwing.server.console.words import SPACE, left_text, per_cent, price_text, rounded, within_text
from lapwing.sql.pricing import accuracy
from lapwing.sql.pricing.combined_widths import can_combine, half_widths
from lapwing.sql.pricing.noise_shares import divide_budget
from lapwing.sql.pricing.plan import Plan

MOST_STOPS = 16
_ROUND = (10, 15, 20, 30, 50, 70)
_LABELLED = (10, 20, 50)
_HALF = Fraction(1, 2)
_MOST_GUESS = Fraction(9999, 10000)
_LEAST_TEXT = 0.2  # of the slider's width between two labels


def odds_after(epsilon: Fraction, delta: Fraction = Fraction(0)) -> Fraction:
    """Return the most that a 50 : 50 guess becomes whether somebody is in the data, rounded up.

    δ is added: with at most this probability, the bound does not hold.
    """
    bounds = belief_bounds(epsilon, delta, belief=Belief.TOOK_PART, relation=Relation.ADD_REMOVE)
    return min(bounds.after(_HALF)[1] + delta, Fraction(1))


def epsilon_for_odds(share: Fraction) -> Fraction:
    """Return the largest ε, of four digits, whose odds are at most this share."""
    if not _HALF < share <= _MOST_GUESS:
        raise BadParameter(
            "odds", "must be above 50 % and at most 99.99 %: a guess is 50 % right before any answer"
        )
    near = Fraction(short_down(Fraction(math.log(share / (1 - share))), 4))
    while near > 0 and odds_after(near) > share:
        near -= Fraction(1, 10**6)
    return near


def round_stops(least: Fraction, left: Fraction, chosen: Fraction) -> tuple[Fraction, ...]:
    """Return round prices for a slider: up to the first that is more than what is left."""
    top = max(left, chosen)
    found = [Fraction(digit) * Fraction(10) ** power for power in range(-6, 4) for digit in _ROUND]
    allowed = [stop for stop in found if stop >= least]
    above = [stop for stop in allowed if stop > top][:1]
    below = [stop for stop in allowed if stop <= top]
    return tuple([*below, *above][-MOST_STOPS:])


def labelled_stops(least: Fraction, left: Fraction) -> tuple[Fraction, ...]:
    """Return the round prices 1, 2, 5 × 10^k up to what is left."""
    return tuple(stop for stop in round_stops(least, left, left) if _is_labelled(stop) and stop <= left)


def _is_labelled(stop: Fraction) -> bool:
    while stop < _LABELLED[0]:
        stop *= 10
    while stop >= _LABELLED[0] * 10:
        stop /= 10
    return stop in _LABELLED


@dataclass(frozen=True, slots=True)
class Tick:
    """A round price under the slider."""

    place: str
    price: str
    within: str
    anchor: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Slider:
    """A slider over round prices. What is beyond the budget that is left is hatched."""

    stops: str
    last: int
    at: int
    text: str
    fill: str
    beyond: str
    beyond_width: str
    beyond_words: str
    ticks: tuple[Tick, ...]


@dataclass(frozen=True, slots=True)
class Chooser:
    """Three fields that follow each other: the error, the price, and what a guess becomes.

    `leads` names the field that the person set: "within", "epsilon" or "odds".
    """

    leads: str
    within: str
    within_shown: str
    within_unit: str
    epsilon: str
    odds: str
    odds_words: str
    slider: Slider | None
    can_set_within: bool
    earlier: str = ""


def half_of(plan: Plan) -> float | None:
    """Return the largest half-width of a plan's columns; None if no column has one."""
    return _widest(plan.spread)


def half_alone(plan: Plan) -> float | None:
    """Return the largest half-width of a plan's columns, without any earlier release."""
    return _widest(accuracy.spread(plan.question, plan.shares, plan.confidence, n=plan.n))


def _widest(spread: dict[str, accuracy.Spread]) -> float | None:
    return max((one.half for one in spread.values() if one.half is not None), default=None)


def error_words(plan: Plan) -> tuple[str, str]:
    """Return the error of a plan in short words, and what it is about."""
    stated = {name: one for name, one in plan.spread.items() if one != accuracy.NO_STATEMENT}
    halves = {name: one.half for name, one in stated.items() if one.half is not None}
    if halves:
        unit = next(iter(halves)) if len(halves) == 1 else "at most"
        return within_text(max(halves.values())), unit
    for name, one in stated.items():
        if one.ranks is not None:
            return f"rank{SPACE}±{SPACE}{rounded(one.ranks)}", name
        if one.formula is not None:
            return f"±{SPACE}{one.formula}", f"{name}, n rows in a group"
    return "", ""


def odds_sentence(epsilon: Fraction, delta: Fraction) -> str:
    """Return what an answer at this price does to a guess, in a sentence."""
    return (
        "Whoever guesses 50 : 50 whether somebody is in the data is right with at most "
        f"{per_cent(odds_after(epsilon, delta))} after this answer."
    )


def chooser_of(plan: Plan, left: Fraction, least: Fraction, *, leads: str, typed: str = "") -> Chooser:
    """Return the chooser of a plan. `typed` is the text of the leading field, which is kept as it is."""
    epsilon, delta = Fraction(plan.cost.epsilon), Fraction(plan.cost.delta)
    half = half_of(plan)
    shown, unit = error_words(plan)
    guess = per_cent(odds_after(epsilon, delta)).removesuffix(f"{SPACE}%")
    fields = {
        "within": "" if half is None else rounded(half).replace(",", ""),
        "epsilon": short_up(epsilon),
        "odds": guess,
    }
    if typed:
        fields[leads] = typed
    return Chooser(
        leads=leads,
        within=fields["within"],
        within_shown=shown,
        within_unit=unit,
        epsilon=fields["epsilon"],
        odds=fields["odds"],
        odds_words=odds_sentence(epsilon, delta),
        slider=slider_of(plan, left, least),
        can_set_within=half is not None,
        earlier=_earlier(plan),
    )


def _earlier(plan: Plan) -> str:
    """Return what the earlier releases of a question give together, for nothing."""
    if not plan.before or plan.is_stored or not can_combine(plan.question):
        return ""
    half = max(half_widths(plan.before, plan.confidence).values(), default=None)
    if half is None:
        return ""
    return (
        f"You have {within_text(half)} already, which is free to look at. The errors here are those of all "
        "releases together."
    )


def slider_of(plan: Plan, left: Fraction, least: Fraction) -> Slider | None:
    """Return the slider of a plan; None if there are too few round prices."""
    chosen = Fraction(plan.cost.epsilon)
    stops = round_stops(least, left, chosen)
    if len(stops) < 3:
        return None
    at = min(range(len(stops)), key=lambda k: abs(math.log(stops[k] / chosen)))
    position = _position(stops, chosen)
    rest = _position(stops, left) if left > 0 else 0.0
    return Slider(
        stops=" ".join(short_up(stop) for stop in stops),
        last=len(stops) - 1,
        at=at,
        text=f"{price_text(chosen)}, {error_words(plan)[0]}".removesuffix(", "),
        fill=share_text(position),
        beyond=share_text(rest) if rest < 1 else "",
        beyond_width=share_text(1 - rest),
        beyond_words=f"all you have left, {left_text(left)}" if rest < 1 else "",
        ticks=tuple(_ticks(plan, stops, chosen)),
    )


def _position(stops: tuple[Fraction, ...], value: Fraction) -> float:
    """Return the place of a price on the slider: even steps from stop to stop, logarithmic between."""
    if value <= stops[0]:
        return 0.0
    for k, (low, high) in enumerate(itertools.pairwise(stops)):
        if value <= high:
            part = math.log(value / low) / math.log(high / low)
            return (k + part) / (len(stops) - 1)
    return 1.0


def _ticks(plan: Plan, stops: tuple[Fraction, ...], chosen: Fraction) -> Iterable[Tick]:
    last, before = len(stops) - 1, -1.0
    labelled = [k for k, stop in enumerate(stops) if _is_labelled(stop)]
    for k in labelled:
        place = k / last
        if place - before < _LEAST_TEXT and before >= 0:
            continue
        before = place
        anchor = "start" if place < 0.06 else "end" if place > 0.94 else "middle"
        yield Tick(
            share_text(place), price_text(stops[k]), error_at(plan, stops[k]), anchor, stops[k] == chosen
        )


def error_at(plan: Plan, epsilon: Fraction) -> str:
    """Return the error that a plan's question would have at another price; "" if it has no number."""
    try:
        shares = divide_budget(
            plan.question, epsilon=epsilon, delta=plan.shares.delta, noise=plan.shares.noise
        )
    except BadParameter:  # so little that a share of it, or the noise, is out of bounds
        return ""
    before = () if plan.is_stored else plan.before
    half = _widest(accuracy.spread(plan.question, shares, plan.confidence, n=plan.n, before=before))
    return "" if half is None else within_text(half)
