"""Laws of choices and answers: selection mechanisms, above-threshold, keys, randomized response.

By brute force, from the descriptions alone.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import permutations

from lapwing.audit.laws.decimals import Law, Rational, dec, exp, precise
from lapwing.audit.laws.noise_laws import laplace_at_least

_NATS = 70  # e^-70 is below 1e-30

# Choices among candidates


@precise
def exponential(scores: Sequence[Rational], rate: Rational) -> Law:
    """Return the law of the exponential mechanism: probabilities proportional to exp(rate * score)."""
    weights = [exp(rate * (score - max(scores))) for score in scores]
    return {i: weight / sum(weights) for i, weight in enumerate(weights)}


@precise
def permute_and_flip(scores: Sequence[Rational], rate: Rational) -> Law:
    """Return the law of the first candidate whose coin is true, over all orders of the candidates.

    The coin of a candidate is true with probability exp(rate (score - best)).
    """
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
    """Return the law of the greatest score after Laplace noise on each. Of equal ones, the first wins."""
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
    """Return the law of a quantile: y has weight exp(-rate * distance).

    The distance is that from the wanted rank to the ranks that y holds.
    """
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
    """Return all courses of answers. A course ends with the last question or the last yes."""
    found: set[tuple[bool, ...]] = {()}
    for _ in range(questions):
        going_on = {c for c in found if sum(c) < positives}
        found = (found - going_on) | {(*c, answer) for c in going_on for answer in (False, True)}
    return sorted(found)


@cache
@precise
def _laplace_tails(scale: Rational, reach: int) -> dict[int, Decimal]:
    """Return `laplace_at_least` of all whole numbers up to `reach` from 0. Its keys are quick to hash."""
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
    """Return the law of the answers to `values` for threshold 0: all courses, or one of them."""
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
    """Return the greatest p(n) that (ε, δ) allows between n - 1 and n units, from p(0) = 0 on."""
    e, d = exp(epsilon), dec(delta)
    keep = [Decimal(0)]
    for _ in range(up_to):
        before = keep[-1]
        keep.append(min(e * before + d, 1 - (1 - before - d) / e, Decimal(1)))
    return keep
