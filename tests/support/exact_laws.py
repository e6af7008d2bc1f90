"""What each mechanism answers, with which probability: by brute force, from its description alone.

Decimal arithmetic with 60 digits; nothing here comes from the code under test. A law is a mapping from
outcomes to probabilities. Endless outcomes are cut where less than 1e-30 is left, or gathered into one
outcome where their probabilities on both data sets have one ratio.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache, wraps
from itertools import permutations, product
from typing import Any, ParamSpec, TypeVar

from flint import arb

Law = Mapping[Any, Decimal]
Rational = Fraction | int

# Far below every difference that the tests look for, far above what 60 digits lose.
SLACK = Decimal("1e-25")
_CONTEXT = Context(prec=60, Emin=-(10**9), Emax=10**9)
_NATS = 70  # e^-70 is below 1e-30


P = ParamSpec("P")
R = TypeVar("R")


def precise(function: Callable[P, R]) -> Callable[P, R]:
    """Run with 60 digits."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with localcontext(_CONTEXT):
            return function(*args, **kwargs)

    return wrapped


@precise
def dec(value: Rational) -> Decimal:
    """A rational with 60 digits."""
    fraction = Fraction(value)
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


@precise
def exp(value: Rational) -> Decimal:
    """exp with 60 digits."""
    return dec(value).exp()


@precise
def ln(value: Rational) -> Decimal:
    """ln with 60 digits."""
    return dec(value).ln()


def middle(ball: arb) -> Decimal:
    """The middle of a narrow ball."""
    assert ball.rel_accuracy_bits() > 120
    return Decimal(ball.str(60, radius=False))


# Comparing laws


@precise
def log_ratio(one: Law, other: Law) -> Decimal:
    """The greatest |ln(one / other)| over the outcomes: the least ε that is purely private."""
    assert one.keys() == other.keys()
    return max(max(one[o] / other[o], other[o] / one[o]) for o in one).ln()


@precise
def renyi(one: Law, other: Law, order: Rational) -> Decimal:
    """The Rényi divergence of `one` from `other`."""
    power = Decimal(order.numerator - 1) if order.denominator == 1 else dec(order - 1)
    moment = sum((one[o] * (one[o] / other[o]) ** power for o in one), Decimal(0))
    return moment.ln() / power


@precise
def excess(one: Law, other: Law, epsilon: Rational) -> Decimal:
    """The least δ at ε: Σ max(0, one - e^ε other), the best event for an attacker."""
    e = exp(epsilon)
    return sum((max(one[o] - e * other.get(o, Decimal(0)), Decimal(0)) for o in one), Decimal(0))


@precise
def total(law: Law) -> Decimal:
    """Of all probabilities: 1, if the law is a law."""
    return sum(law.values(), Decimal(0))


def shifts(dimension: int, l1: int) -> Iterator[tuple[int, ...]]:
    """All whole vectors within this L1 distance of 0."""
    for vector in product(range(-l1, l1 + 1), repeat=dimension):
        if sum(map(abs, vector)) <= l1:
            yield vector


# Discrete Laplace noise


@cache
@precise
def laplace_at_least(scale: Rational, k: int) -> Decimal:
    """P[noise >= k], from the sum of a geometric series."""
    q = exp(Fraction(-1) / scale)
    return q**k / (1 + q) if k >= 1 else 1 - q ** (1 - k) / (1 + q)


@precise
def laplace(scale: Rational, centre: int, low: int, high: int) -> Law:
    """The law of centre + noise on low .. high; each end stands for all that lies beyond it."""
    q = exp(Fraction(-1) / scale)
    law: dict[Hashable, Decimal] = {
        k: q ** abs(k - centre) * (1 - q) / (1 + q) for k in range(low, high + 1)
    }
    law[low], law[high] = laplace_at_least(scale, centre - low), laplace_at_least(scale, high - centre)
    return law


@precise
def independent(*laws: Law) -> Law:
    """The joint law of independent outcomes."""
    joint: dict[Hashable, Decimal] = {}
    for outcomes in product(*laws):
        probability = Decimal(1)
        for law, outcome in zip(laws, outcomes, strict=True):
            probability *= law[outcome]
        joint[outcomes] = probability
    return joint


# Discrete Gaussian noise


@cache
@precise
def _gaussian_weight(sigma: Rational, k: int) -> Decimal:
    return exp(Fraction(-k * k) / (2 * sigma * sigma))


@cache
@precise
def _gaussian_total(sigma: Rational) -> Decimal:
    reach = math.ceil(sigma * 17) + 2
    return 1 + 2 * sum((_gaussian_weight(sigma, k) for k in range(1, reach)), Decimal(0))


@precise
def gaussian(sigma: Rational, centre: int, low: int, high: int) -> Law:
    """centre + noise on low .. high; the rest, which must be small, is left out."""
    whole = _gaussian_total(sigma)
    return {k: _gaussian_weight(sigma, abs(k - centre)) / whole for k in range(low, high + 1)}


# Choices among candidates


@precise
def exponential(scores: Sequence[Rational], rate: Rational) -> Law:
    """Probabilities proportional to exp(rate * score)."""
    weights = [exp(rate * (score - max(scores))) for score in scores]
    return {i: weight / sum(weights) for i, weight in enumerate(weights)}


@precise
def permute_and_flip(scores: Sequence[Rational], rate: Rational) -> Law:
    """Over all orders: the first whose coin, true with exp(rate (score - best)), comes up."""
    heads = [exp(rate * (score - max(scores))) for score in scores]
    orders = list(permutations(range(len(scores))))
    law: dict[Hashable, Decimal] = dict.fromkeys(range(len(scores)), Decimal(0))
    for order in orders:
        open_ = Decimal(1) / len(orders)
        for i in order:
            law[i] += open_ * heads[i]
            open_ *= 1 - heads[i]
    return law


@precise
def noisy_max(scores: Sequence[int], scale: Rational) -> Law:
    """Who has the greatest score after Laplace noise on each; the first of those that tie."""
    reach = math.ceil(scale * _NATS) + 2 * (max(scores) - min(scores))
    law: dict[Hashable, Decimal] = {}
    for i, score in enumerate(scores):
        law[i] = Decimal(0)
        for value in range(min(scores) - reach, max(scores) + reach + 1):
            noise = value - score
            wins = laplace_at_least(scale, noise) - laplace_at_least(scale, noise + 1)
            for j, other in enumerate(scores):
                if j != i:  # those before i must stay below, those after may tie
                    wins *= 1 - laplace_at_least(scale, value - other + (j > i))
            law[i] += wins
    return law


@precise
def quantile(values: Sequence[int], fraction: Rational, first: int, last: int, rate: Rational) -> Law:
    """y with probability proportional to exp(-rate * distance): from the rank wanted to those y holds."""
    inside = [min(max(value, first), last) for value in values]
    wanted = (1 - Fraction(fraction)) * len(inside)
    scores = []
    for y in range(first, last + 1):
        above, not_below = sum(x > y for x in inside), sum(x >= y for x in inside)
        scores.append(-max(above - wanted, wanted - not_below, Fraction(0)))
    law = exponential(scores, rate)
    return {first + i: law[i] for i in range(len(scores))}


# Above-threshold


def courses(questions: int, positives: int) -> list[tuple[bool, ...]]:
    """All courses of answers: they end with the last question or the last yes."""
    found: set[tuple[bool, ...]] = {()}
    for _ in range(questions):
        going_on = {c for c in found if sum(c) < positives}
        found = (found - going_on) | {(*c, answer) for c in going_on for answer in (False, True)}
    return sorted(found)


@cache
@precise
def _laplace_tails(scale: Rational, reach: int) -> dict[int, Decimal]:
    """`laplace_at_least` of all numbers up to `reach` from 0, to be found without a rational's hash."""
    return {k: laplace_at_least(scale, k) for k in range(-reach, reach + 1)}


@precise
def above_threshold(
    values: Sequence[int],
    positives: int,
    threshold_scale: Rational,
    question_scale: Rational,
    *,
    only: tuple[bool, ...] | None = None,
) -> Law:
    """Courses of answers to `values` (all, or one) for threshold 0, summed over its noise."""
    furthest = max(map(abs, values))
    reach = math.ceil(threshold_scale * _NATS) + 4 * furthest
    wanted = courses(len(values), positives) if only is None else [only]
    sums = dict.fromkeys(wanted, Decimal(0))
    thresholds = _laplace_tails(threshold_scale, reach + 1)
    questions = _laplace_tails(question_scale, reach + furthest)
    for t in range(-reach, reach + 1):
        here = thresholds[t] - thresholds[t + 1]
        odds = [(1 - questions[t - value], questions[t - value]) for value in values]  # of no, of yes
        for course in wanted:
            probability = here
            for answer, p in zip(course, odds, strict=False):
                probability *= p[answer]
            sums[course] += probability
    return dict(sums.items())


# Keys


@precise
def keep_probabilities(epsilon: Rational, delta: Rational, up_to: int) -> list[Decimal]:
    """The greatest p(n) that (ε, δ) allows between n - 1 and n units, step by step from p(0) = 0."""
    e, d = exp(epsilon), dec(delta)
    keep = [Decimal(0)]
    for _ in range(up_to):
        before = keep[-1]
        keep.append(min(e * before + d, 1 - (1 - before - d) / e, Decimal(1)))
    return keep
