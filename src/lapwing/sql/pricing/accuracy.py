"""Accuracy or price: the error of each column before anything is released, and the ε for a wanted accuracy.

All follows from the question's text, the policy and the shares of the budget. If an error depends on the
number of rows, it is a formula in n; it is a number if n was declared or released.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from lapwing.core.budget import EPSILON_UNIT
from lapwing.core.exact import Number, grouped, positive
from lapwing.core.losses import LARGEST_EPSILON, SMALLEST_EPSILON
from lapwing.core.spread import checked_confidence
from lapwing.errors import BadParameter
from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.sql.pricing import combined_widths
from lapwing.sql.pricing.noise_shares import BudgetShares, divide_budget
from lapwing.sql.pricing.noise_widths import NoiseFamily, half_width, noise_scale
from lapwing.sql.pricing.weighted_noise import weighted_half, weighted_sum_of
from lapwing.sql.question.bound_query import (
    CHOICE_FUNCTIONS,
    BoundQuery,
    Computed,
    NoisyAggregate,
    Plain,
    Released,
    scale_of,
    step_of,
    wanted_of,
)
from lapwing.sql.question.relation import Scan

EPSILON_DIGITS = 10**4  # ε for a width is found to four digits, rounded up


@dataclass(frozen=True, slots=True)
class Spread:
    """The error of a column at a confidence: ± a number, a formula in n, or a distance in ranks.

    All are None if no statement is made: for a key, a comparison, or several uncertain numbers at once.
    """

    half: float | None = None
    formula: str | None = None
    ranks: float | None = None


NO_STATEMENT = Spread()


def spread(
    question: BoundQuery,
    shares: BudgetShares,
    confidence: Number,
    *,
    n: int | None = None,
    before: Sequence[BudgetShares] = (),
) -> dict[str, Spread]:
    """Return the spread of each output, the largest over all groupings. `n` is the rows of a group.

    `before` are the earlier releases of the question that will be combined with this one.
    """
    level = checked_confidence(confidence)
    spreads = {output.name: _of(output.value, shares, level, n) for output in question.outputs}
    if before:
        together = combined_widths.half_widths([*before, shares], level)
        spreads |= {name: Spread(half) for name, half in together.items()}
    return spreads


def shares_for_width(
    question: BoundQuery,
    *,
    within: Number,
    confidence: Number,
    delta: Number,
    noise: str,
    n: int | None = None,
    before: Sequence[BudgetShares] = (),
) -> BudgetShares:
    """Return the shares of the least ε (four digits, rounded up) that keeps every column within ±`within`.

    `within` is in each column's own unit. Averages and similar statistics need
    `n`. Quantiles have no width. `before` are the earlier releases of the question that will be combined
    with this one: if they suffice, the last of them is returned.
    """
    wish, level = positive(within, "within"), checked_confidence(confidence)

    def at(epsilon: Fraction) -> BudgetShares:
        return divide_budget(question, epsilon=epsilon, delta=delta, noise=noise)

    def fits(epsilon: Fraction) -> bool:
        try:
            shares = at(epsilon)
        except BadParameter:  # ε is so small that a share of it, or the noise, is out of bounds
            return False
        return all(half <= wish for half in _halves(question, shares, level, n, before))

    # A wrong δ, a wrong name of a noise or a missing n is wrong at every ε.
    if not _halves(question, at(LARGEST_EPSILON), level, n):
        raise BadParameter("within", "says nothing about these columns; ask with epsilon")
    if not fits(LARGEST_EPSILON):
        raise BadParameter("within", "cannot be reached with any ε up to 1000")
    if before and all(half <= wish for half in _halves(question, before[-1], level, n, before[:-1])):
        return before[-1]
    return at(_least(fits))


def _least(fits: Callable[[Fraction], bool]) -> Fraction:
    """Return the least ε that fits, from 1e-9 to 1000, by bisection of its logarithm, then of itself."""
    low, high = SMALLEST_EPSILON, LARGEST_EPSILON
    if fits(low):
        return low
    while high - low > max(high / EPSILON_DIGITS, Fraction(1, EPSILON_UNIT)):
        far = high > 4 * low
        middle = Fraction(math.sqrt(low * high)) if far else (low + high) / 2
        middle = Fraction(math.ceil(middle * EPSILON_UNIT), EPSILON_UNIT)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _halves(
    question: BoundQuery,
    shares: BudgetShares,
    level: Fraction,
    n: int | None,
    before: Sequence[BudgetShares] = (),
) -> list[float]:
    halves = []
    for name, width in spread(question, shares, level, n=n, before=before).items():
        if width.formula is not None:
            why = f'depends on the number of rows for "{name}" (±{width.formula}): '
            raise BadParameter("within", why + "give n, or ask with epsilon")
        if width.half is not None:
            halves.append(width.half)
    return halves


def _of(tree: Released, shares: BudgetShares, level: Fraction, n: int | None) -> Spread:
    if isinstance(tree, NoisyAggregate):
        spreads = [_statistic(tree, shares, s, level, n) for s in range(len(shares.question.sets))]
        return max(spreads, key=lambda x: (x.half or 0.0, x.ranks or 0.0))
    if isinstance(tree, Computed):
        return _computed(tree, shares, level, n)
    return NO_STATEMENT


def _computed(tree: Computed, shares: BudgetShares, level: Fraction, n: int | None) -> Spread:
    """Return the spread of a linear function of one uncertain number, or of several counts and sums."""
    weighted = weighted_sum_of(tree)
    half = None if weighted is None else weighted_half(shares, weighted, level)
    if half is not None:
        return Spread(float(half))
    uncertain = [i for i, arg in enumerate(tree.args) if not isinstance(arg, Plain)]
    constants = [arg.value for arg in tree.args if isinstance(arg, Plain)]
    if len(uncertain) != 1 or not all(isinstance(value, int | float) for value in constants):
        return NO_STATEMENT
    inner = _of(tree.args[uncertain[0]], shares, level, n)
    if tree.op in ("+", "-", "neg", "abs"):
        factor = 1.0
    elif tree.op == "*" or (tree.op == "/" and uncertain == [0] and constants[0]):
        value = abs(float(constants[0] or 0))
        factor = value if tree.op == "*" else 1 / value
    else:
        return NO_STATEMENT
    formula = inner.formula
    if formula is not None and factor != 1:
        formula = f"{grouped(factor, 4)} * {formula}"
    return Spread(None if inner.half is None else factor * inner.half, formula)


def _statistic(
    s: NoisyAggregate, shares: BudgetShares, grouping: int, level: Fraction, n: int | None
) -> Spread:
    if s.function in CHOICE_FUNCTIONS:
        return Spread(ranks=float(shares.choice(grouping, wanted_of(s)).spread(level)))
    mechanisms = [shares.mechanism(grouping, part) for part in s.parts]
    if s.function in ("count", "sum"):
        return Spread(float(step_of(s) * half_width(mechanisms[0], level)))
    noises = NoiseFamily(shares.noise == "gaussian", level)
    widths = [noise_scale(mechanism) for mechanism in mechanisms]
    scale = scale_of(s.number, s.centre)
    unit = float(scale.step)
    if s.function == "corr":
        return NO_STATEMENT  # it depends on both variances, and 1 is always enough
    if s.function == "avg":
        factors = [1.0, float(scale.reach)]
    elif s.function == "avg_of_pair":
        factors = [1.0]  # at an end of the range: between them, two noises share it and are narrower
    elif s.function.startswith("covar"):
        assert s.second is not None
        other = scale_of(s.second, s.second_centre)
        both = scale.half * other.half
        factors = [float(other.reach), max(scale.reach * other.reach, both), float(scale.reach), 1.0]
        unit *= float(other.step)
    else:
        factors = [2.0 * scale.reach, max(float(scale.reach) ** 2, scale.half**2), 1.0]
        unit **= 2
    top = unit * float(noises.width([f * w for f, w in zip(factors, widths, strict=True)]))
    is_root = s.function.startswith("stddev")  # |√a - √b| <= √|a - b|
    if n is None:
        formula = f"{grouped(top, 4)} / n"
        return Spread(formula=f"sqrt({formula})" if is_root else formula)
    return Spread(math.sqrt(top / max(n, 1)) if is_root else top / max(n, 1))


def not_one_given() -> BadParameter:
    """Return the error for a question with neither a price nor an accuracy, or with both."""
    return BadParameter("epsilon", "must be given, or else within, and not both")


def declared_size(policy: CheckedPolicy, question: BoundQuery) -> int | None:
    """Return the public number of rows, if the question is about one whole table."""
    scan = question.source
    return policy.tables[scan.table].rows if isinstance(scan, Scan) and not question.keys else None
