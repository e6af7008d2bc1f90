"""The meaning of ε and δ, in words and odds: what they promise, and what they cost in accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from lapwing.core.beliefs import Belief, BeliefBounds, belief_bounds, beliefs_under
from lapwing.core.budget import DELTA_UNIT, Terms
from lapwing.core.chances import odds_up, percent_up, posterior_text
from lapwing.core.exact import Number, exact, short, short_up
from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.core.losses import Loss, Relation, checked_delta, checked_epsilon
from lapwing.errors import BadParameter

CONFIDENCE = Fraction(95, 100)
PRIORS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))
LIFETIMES = (1, 3, 10)
MOST_PEOPLE = 10**15

PROMISED = (
    "Taking part adds no harm beyond the factor e^ε: whatever is published would have been about as likely "
    "without you.",
    "This holds against everybody: whatever they know already, whatever they can compute, now or later.",
    "It holds for everything that is made of the answer afterwards.",
)
NOT_PROMISED = (
    'A finding about everybody applies to you even if you stayed out: if a study shows "smoking causes '
    'cancer", a smoker is affected whether or not they took part.',
    "A secret that many others' data also give away, such as a family's or a team's, is not hidden.",
    "One answer is not all answers: the ε of everything ever asked about you adds up.",
)


@dataclass(frozen=True, slots=True)
class Guess:
    """Somebody's belief about you, before and after. Bounds are rounded outwards."""

    before: float
    at_least: float
    at_most: float


@dataclass(frozen=True, slots=True)
class MovedBelief:
    """The change of one kind of belief by the answer, for somebody who knows the data of all others."""

    belief: str  # "that you took part"
    steps: int  # neighbouring steps between the two cases that the belief tells apart
    odds_factor: float | None  # e^(steps ε), rounded up; None where it is beyond floats
    delta: float  # of that many steps, rounded up
    odds: str
    guesses: tuple[Guess, ...]


@dataclass(frozen=True, slots=True)
class NoisyCount:
    """The noise of a count of people."""

    mechanism: str
    parameter: str  # the name of `size`: "scale" or "sigma"
    size: float
    within: int  # with 95 % confidence
    share: float  # the same as a share of n


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The number of such counts that a lifetime budget (ε, δ) admits, however they are chosen."""

    epsilon: float
    delta: float
    laplace: int
    gaussian: int | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that `lapwing explain` says. Its fields are the JSON that `--json` prints."""

    epsilon: float
    delta: float
    n: int
    relation: str
    beliefs: tuple[MovedBelief, ...]
    delta_means: str
    promised: tuple[str, ...]
    not_promised: tuple[str, ...]
    counts: tuple[NoisyCount, ...]
    lifetimes: tuple[Lifetime, ...]
    advice: str
    warnings: tuple[str, ...]


def explain(
    epsilon: Number, delta: Number, n: int, *, relation: Relation = Relation.ADD_REMOVE
) -> Explanation:
    """Explain what (ε, δ) promises to each of n people, and what it costs in accuracy.

    Args:
        epsilon: The ε of one answer.
        delta: The δ of one answer; 0, or at least 1e-18.
        n: The number of people, from 1 to 1e15.
        relation: The neighbour relation that ε and δ are about. Surveys replace a unit.

    Returns:
        The explanation, in words and numbers.

    Raises:
        BadParameter: One of the three is out of range.

    Example:
        >>> explain("0.5", "1e-6", 10_000).counts[0].within
        6
    """
    e, d = checked_epsilon(epsilon), checked_delta(delta)
    if 0 < d < Fraction(1, DELTA_UNIT):
        raise BadParameter("delta", "must be 0, or at least 1e-18 (one ledger unit)")
    people = exact(n, "n")
    if people.denominator != 1 or not 1 <= people <= MOST_PEOPLE:
        raise BadParameter("n", "must be a whole number between 1 and 1e15")
    bounds = {
        belief: belief_bounds(e, d, belief=belief, relation=relation) for belief in beliefs_under(relation)
    }
    laplace = Laplace.for_epsilon(e, l1=1)
    gaussian = Gaussian.for_budget(e, d, l2_squared=1, dimension=1) if d else None
    counts = _counts(laplace, gaussian, int(people))
    return Explanation(
        epsilon=float(e),
        delta=float(d),
        n=int(people),
        relation=relation.value,
        beliefs=tuple(_moved(belief, bound) for belief, bound in bounds.items()),
        delta_means=_delta_means(bounds, int(people)),
        promised=PROMISED,
        not_promised=NOT_PROMISED,
        counts=counts,
        lifetimes=tuple(_lifetime(total, d, laplace.loss, gaussian) for total in LIFETIMES),
        advice=advice(e),
        warnings=tuple(_warnings(e, d, int(people), counts)),
    )


def _float_up(value: Fraction) -> float:
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def _moved(belief: Belief, bounds: BeliefBounds) -> MovedBelief:
    return MovedBelief(
        belief.value,
        bounds.steps,
        _float_up(bounds.factor) if bounds.epsilon <= 700 else None,
        _float_up(bounds.delta),
        even_odds(belief.value, bounds),
        tuple(_guess(prior, bounds) for prior in PRIORS),
    )


def _guess(prior: Fraction, bounds: BeliefBounds) -> Guess:
    bottom, top = bounds.after(prior)
    return Guess(float(prior), -_float_up(-bottom), min(_float_up(top), 1.0))


def even_odds(belief: str, bounds: BeliefBounds) -> str:
    """Return what can become of a guess at even odds, as a sentence without capital and full stop."""
    if bounds.epsilon > 50:
        return f"a guess at even odds {belief} may become certainty: such an ε promises next to nothing"
    return (
        f"a guess at even odds (1 : 1) {belief} can rise to at most {odds_up(bounds.factor)} : 1, "
        f"that is from 50 % to at most {posterior_text(bounds.factor)}"
    )


def _delta_means(bounds: dict[Belief, BeliefBounds], n: int) -> str:
    given, *further = bounds.values()
    if not given.delta:
        return "With δ 0 the promise holds for every outcome, without exception."
    most = max(bound.delta for bound in bounds.values())
    two_steps = (
        f" For a fact about you these are at most 1 in {math.floor(1 / further[0].delta):,} cases, "
        "(1 + e^ε) δ."
        if further
        else ""
    )
    exposed = min(most * n, Fraction(n))
    return (
        f"With δ {short(float(given.delta))} the release is no worse than one that in at most 1 in "
        f"{math.floor(1 / given.delta):,} cases tells anything at all, and keeps the promise in all others."
        f"{two_steps} Over {n:,} people that allows {short_up(exposed, 3)} of them to be "
        "exposed on average."
    )


def _counts(laplace: Laplace, gaussian: Gaussian | None, n: int) -> tuple[NoisyCount, ...]:
    within = laplace.spread(CONFIDENCE)
    counts = [NoisyCount("Laplace", "scale", float(laplace.scale), within, within / n)]
    if gaussian is not None:
        within = gaussian.spread(CONFIDENCE)
        counts.append(NoisyCount("Gaussian", "sigma", float(gaussian.sigma), within, within / n))
    return tuple(counts)


def _lifetime(total: int, delta: Fraction, laplace: Loss, gaussian: Gaussian | None) -> Lifetime:
    terms = Terms.of(total, delta)
    by_gauss = None if gaussian is None else terms.how_many(terms.price(gaussian.loss))
    return Lifetime(float(total), float(delta), terms.how_many(terms.price(laplace)), by_gauss)


def advice(epsilon: Fraction) -> str:
    """Return whether an ε is a sensible one."""
    sensible = "Sensible values lie between 0.1 and a few."
    if epsilon < Fraction(1, 100):
        return (
            f"{sensible} This ε is so small that answers drown in noise. ε is not like the length of a "
            "key: 2^-80 is not very safe but useless, since no number of people could teach anything."
        )
    if epsilon < Fraction(1, 10):
        return f"{sensible} This ε is below that: a strong promise, useful where n is large."
    if epsilon <= 1:
        return f"{sensible} This ε is a strong promise."
    if epsilon <= 5:
        return f"{sensible} This ε is a moderate promise: better the total of many answers than of one."
    if epsilon <= 10:
        return f"{sensible} This ε is above that: odds may change beyond recognition. Take a smaller one."
    return f"{sensible} This ε promises next to nothing; 100 would be an empty word. Take a smaller one."


def _warnings(epsilon: Fraction, delta: Fraction, n: int, counts: tuple[NoisyCount, ...]) -> list[str]:
    warnings = []
    if delta * 10 * n > 1:
        warnings.append(
            f"δ {short(float(delta))} is above 1/(10 n), which is {short(1 / (10 * n))}: publishing a few "
            "people's rows would keep this promise. Take δ far below 1/n."
        )
    if epsilon > 10:
        warnings.append(f"ε {short(float(epsilon))} promises next to nothing.")
    worst = min(count.share for count in counts)
    if worst > 0.1:
        warnings.append(
            f"the noise on a count is up to {percent_up(worst)} of n: the answer says little. "
            "Take a larger ε, or ask about more people."
        )
    return warnings
