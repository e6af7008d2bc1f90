"""Exact laws: the probability of each outcome of a mechanism, from its description alone; and distances.

A law maps outcomes to probabilities with 60 digits. No mechanism is imported here, so that a mechanism and
its law cannot share a mistake. Decimal numbers of the standard library are used: they share no code with
the balls that price losses. Laws are made by brute force. Endless outcomes are cut where less than 1e-30 is
left, or gathered into one outcome where their probabilities on both inputs have one ratio.

Claim    `Direction.excess` is the least δ at ε, and `epsilon_at` the least ε at δ, of two laws in one
         direction.
Because  P(S) <= e^ε Q(S) + δ must hold for each event S, and the event {p > e^ε q} needs the most δ:
         Σ max(0, p - e^ε q). Solved for ε, the best event has all outcomes above some ratio p / q.
Test     tests/audit/test_laws_distances.py
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache, lru_cache, wraps
from itertools import accumulate, permutations, product
from operator import mul
from typing import Any, ParamSpec, TypeVar

from flint import arb

from lapwing.errors import BadParameter

Law = Mapping[Any, Decimal]
Rational = Fraction | int

# Far below every difference that is looked for, far above what 60 digits lose.
SLACK = Decimal("1e-25")
# The most probability that a law may leave out. It counts as δ.
LARGEST_TAIL = Decimal("1e-30")
CONTEXT = Context(prec=60, Emin=-(10**9), Emax=10**9)
_NARROW_BITS = 120
ZERO = Decimal(0)
INFINITY = Decimal("Infinity")
# Shares of Laplace noise are listed up to e^-74, as sums of products down to e^-140.
_SHARE_NATS = 74
_SHARE_TERM_NATS = 70
_NATS = 90  # e^-90 is below 1e-39
P = ParamSpec("P")
R = TypeVar("R")


def precise(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that it computes with 60 digits."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with localcontext(CONTEXT):
            return function(*args, **kwargs)

    return wrapped


@precise
def dec(value: Rational) -> Decimal:
    """Return a rational with 60 digits."""
    fraction = Fraction(value)
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


@precise
def exp(value: Rational) -> Decimal:
    """Return e to the power of a rational, with 60 digits."""
    return dec(value).exp()


@precise
def ln(value: Rational) -> Decimal:
    """Return the natural logarithm of a rational, with 60 digits."""
    return dec(value).ln()


def middle(ball: arb) -> Decimal:
    """Return the middle of a narrow ball. Raise BadParameter if the ball is wide."""
    if not ball.rel_accuracy_bits() > _NARROW_BITS:
        raise BadParameter("ball", f"must be known to more than {_NARROW_BITS} bits")
    return Decimal(ball.str(60, radius=False))


def certain(ball: arb) -> Decimal:
    """Return the middle of a narrow ball, or of one that is exactly 0 or 1."""
    for whole in (0, 1):
        if ball.is_exact() and ball == whole:
            return Decimal(whole)
    return middle(ball)


# Discrete Laplace noise


@cache
@precise
def laplace_at_least(scale: Rational, k: int) -> Decimal:
    """Return P[noise >= k], from the sum of a geometric series."""
    q = exp(Fraction(-1) / scale)
    return q**k / (1 + q) if k >= 1 else 1 - q ** (1 - k) / (1 + q)


@precise
def laplace(scale: Rational, centre: int, low: int, high: int) -> Law:
    """Return the law of centre + noise on low .. high. Each end stands for all that lies beyond it."""
    q = exp(Fraction(-1) / scale)
    law: dict[Hashable, Decimal] = {
        k: q ** abs(k - centre) * (1 - q) / (1 + q) for k in range(low, high + 1)
    }
    law[low], law[high] = laplace_at_least(scale, centre - low), laplace_at_least(scale, high - centre)
    return law


@precise
def independent(*laws: Law) -> Law:
    """Return the joint law of independent outcomes."""
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
    """Return the law of centre + noise on low .. high. The rest, which must be small, is left out."""
    whole = _gaussian_total(sigma)
    return {k: _gaussian_weight(sigma, abs(k - centre)) / whole for k in range(low, high + 1)}


@precise
def summed(law: Law, count: int) -> Law:
    """Return the law of the sum of `count` independent whole numbers with this law."""
    total: dict[int, Decimal] = {0: Decimal(1)}
    for _ in range(count):
        longer: dict[int, Decimal] = {}
        for so_far, p in total.items():
            for drawn, q in law.items():
                longer[so_far + drawn] = longer.get(so_far + drawn, Decimal(0)) + p * q
        total = longer
    return total


def moved(law: Law, distance: int) -> Law:
    """Return the law of an outcome plus `distance`."""
    return {outcome + distance: probability for outcome, probability in law.items()}


def shifted_pair(law: Law, distance: int) -> tuple[Law, Law]:
    """Return the laws of noise, and of noise plus `distance`, on the outcomes that both list.

    The ends that only one of them lists are left out: they must be small.
    """
    other = moved(law, distance)
    both = [outcome for outcome in law if outcome in other]
    return {outcome: law[outcome] for outcome in both}, {outcome: other[outcome] for outcome in both}


# Shares of noise


@cache
@precise
def _polya(scale: Rational, part: Fraction, terms: int) -> list[Decimal]:
    """Return P[0], P[1], ... of a Polya variable: binomial(k + part - 1, k) (1 - q)^part q^k."""
    q = exp(Fraction(-1) / scale)
    law = [((1 - q).ln() * dec(part)).exp()]
    for k in range(1, terms):
        law.append(law[-1] * q * dec((k + part - 1) / k))
    return law


@cache
@precise
def laplace_shares(scale: Rational, of: int, present: int) -> Law:
    """Return the law of a sum of `present` shares, of which `of` make one discrete Laplace noise.

    A share is the difference of two Polya variables with 1/of. Less than 1e-30 is left out.
    """
    part = Fraction(present, of)
    reach = math.ceil(scale * (_SHARE_NATS + 8 * math.ceil(part))) + 2
    terms = math.ceil(scale * _SHARE_TERM_NATS) + 2
    one_side = _polya(scale, part, terms + reach)
    half = [sum(map(mul, one_side[k : k + terms], one_side), Decimal(0)) for k in range(reach + 1)]
    return {k: half[abs(k)] for k in range(-reach, reach + 1)}


@cache
@precise
def gaussian_shares(sigma: Rational, present: int, reach: int) -> Law:
    """Return the law of a sum of `present` discrete Gaussian noises, each of them within `reach` of 0."""
    return summed(gaussian(sigma, 0, -reach, reach), present)


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
    tails = _laplace_tails(scale, reach + max(scores) - min(scores) + 1)
    law: dict[Hashable, Decimal] = {}
    for i, score in enumerate(scores):
        law[i] = Decimal(0)
        for value in range(min(scores) - reach, max(scores) + reach + 1):
            noise = value - score
            wins = tails[noise] - tails[noise + 1]
            for j, other in enumerate(scores):
                if j != i:  # those before i must stay below, those after may tie
                    wins *= 1 - tails[value - other + (j > i)]
            law[i] += wins
    return law


@precise
def randomized_response(answer: int, options: int, truth: Decimal) -> Law:
    """Return the law of a report: the answer with probability `truth`, else one of the other options."""
    other = (1 - truth) / (options - 1)
    return {option: truth if option == answer else other for option in range(options)}


# Above-threshold


def courses(questions: int, positives: int) -> list[tuple[bool, ...]]:
    """Return all courses of answers. A course ends with the last question or the last yes."""
    answered: set[tuple[bool, ...]] = {()}
    for _ in range(questions):
        going_on = {c for c in answered if sum(c) < positives}
        answered = (answered - going_on) | {(*c, answer) for c in going_on for answer in (False, True)}
    return sorted(answered)


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


# The best of a random number of independent runs
#
# If F is the probability that a run's output is at most y, and f the generating function of the number of
# runs, then the best output is at most y with probability f(F). No run at all is the outcome None.


@precise
def best_of_negative_binomial(run: Law, eta: Rational, gamma: Rational) -> Law:
    """Return the law of the best of K runs, where P[K = k] ~ (1-γ)^k Π (l + η)/(l + 1), from K = 1 on."""
    kept, shape = 1 - dec(gamma), dec(eta)

    def generating(x: Decimal) -> Decimal:
        if not shape:
            return (1 - kept * x).ln() / ln(gamma)
        return ((1 - kept * x) ** -shape - 1) / (dec(gamma) ** -shape - 1)

    return _best(run, generating)


@precise
def best_of_poisson(run: Law, mean: Rational) -> Law:
    """Return the law of the best of a Poisson number of runs."""
    return _best(run, lambda x: (dec(mean) * (x - 1)).exp())


def _best(run: Law, generating: Callable[[Decimal], Decimal]) -> Law:
    """Return the law of the greatest output. Outputs are compared by their own order."""
    below, at_most = generating(Decimal(0)), Decimal(0)
    law: dict[Hashable, Decimal] = {None: below} if below else {}
    for output in sorted(run):
        at_most += run[output]
        reached = generating(at_most)
        law[output], below = reached - below, reached
    return law


# Distances of two laws


@precise
def total(law: Law) -> Decimal:
    """Return the sum of all probabilities: 1, if no outcome is left out."""
    return sum(law.values(), ZERO)


@precise
def log_ratio(first: Law, second: Law) -> Decimal:
    """Return the greatest |ln(one / other)| over the outcomes: the least ε that is purely private."""
    if first.keys() != second.keys():
        raise BadParameter("other", "must have the same outcomes as one")
    return max(max(first[o] / second[o], second[o] / first[o]) for o in first).ln()


class Direction:
    """All distances of one law from another, in this direction; quick for many ε and orders.

    Outcomes are sorted by their ratio one / other, greatest first. So each best event is a first part.
    """

    @precise
    def __init__(self, first: Law, second: Law) -> None:
        cells = [(_ratio(p, second.get(o, ZERO)), p, second.get(o, ZERO), o) for o, p in first.items() if p]
        cells.sort(key=lambda cell: cell[0], reverse=True)
        self._cells = cells
        self._falling = [-cell[0] for cell in cells]
        self._one = [ZERO, *accumulate(cell[1] for cell in cells)]
        self._other = [ZERO, *accumulate(cell[2] for cell in cells)]

    @precise
    def excess(self, epsilon: Rational) -> Decimal:
        """Return the least δ at ε."""
        factor, size = exp(epsilon), self._event_size(epsilon)
        return self._one[size] - factor * self._other[size]

    @precise
    def epsilon_at(self, delta: Decimal) -> Decimal:
        """Return the least ε >= 0 at δ. It may be infinite."""
        best = Decimal(1)
        for p, q in zip(self._one, self._other, strict=True):
            if p > delta:
                best = max(best, _ratio(p - delta, q))
        return best.ln() if best.is_finite() else INFINITY

    @precise
    def renyi(self, order: Rational) -> Decimal:
        """Return the Rényi divergence. It may be infinite."""
        if not self._cells or self._cells[0][0] == INFINITY:
            return INFINITY
        power = Decimal(order.numerator - 1) if order.denominator == 1 else dec(order - 1)
        moment = sum((p * ratio**power for ratio, p, _, _ in self._cells), ZERO)
        return moment.ln() / power

    @precise
    def event(self, epsilon: Rational) -> tuple[list[Any], Decimal, Decimal]:
        """Return the outcomes with one > e^ε other, and the probabilities of this event under both."""
        size = self._event_size(epsilon)
        return [cell[3] for cell in self._cells[:size]], self._one[size], self._other[size]

    def _event_size(self, epsilon: Rational) -> int:
        return bisect_left(self._falling, -exp(epsilon))


def _ratio(p: Decimal, q: Decimal) -> Decimal:
    return p / q if q else INFINITY


# δ that follows from other bounds


@precise
def delta_of_pure(pure: Rational, delta: Rational, epsilon: Rational) -> Decimal:
    """Return the δ at ε that (pure, δ)-privacy implies: that of randomized response, beside δ."""
    d = dec(delta)
    if epsilon >= pure:
        return d
    top = exp(pure)
    return d + (1 - d) * (top - exp(epsilon)) / (1 + top)


@lru_cache(maxsize=1024)
@precise
def _renyi_factor(order: Rational) -> Decimal:
    a = dec(order)
    return ((a - 1) * (1 - 1 / a).ln()).exp() / a


@precise
def delta_of_renyi(order: Rational, value: Rational, epsilon: Rational) -> Decimal:
    """Return the δ at ε that a Rényi divergence implies: exp((a-1)(value-ε)) (1 - 1/a)^(a-1) / a."""
    return min(Decimal(1), exp((order - 1) * (value - epsilon)) * _renyi_factor(order))
