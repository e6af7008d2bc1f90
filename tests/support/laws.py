"""The laws by brute force, in decimal arithmetic: nothing here comes from the code under test.

Also the chi-square test that all samplers face. Its false-alarm probability is `FALSE_ALARM` for each
call. (The law of the statistic is the limit law; cells expect at least `LEAST_EXPECTED` draws, so that
it is close.) Where the stream is seeded, a test that passed once passes always.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, chi2

FALSE_ALARM = 1e-9
LEAST_EXPECTED = 100
DIGITS = 90
CONTEXT = Context(prec=DIGITS, Emin=-(10**9), Emax=10**9)


def decimal(value: Fraction | int) -> Decimal:
    """A rational with `DIGITS` digits."""
    fraction = Fraction(value)
    with localcontext(CONTEXT):
        return Decimal(fraction.numerator) / Decimal(fraction.denominator)


def exp(value: Fraction | int) -> Decimal:
    """exp(value) with `DIGITS` digits, by the decimal module of the standard library."""
    with localcontext(CONTEXT):
        return decimal(value).exp()


def geometric_law(t: Fraction, count: int) -> list[Decimal]:
    """P[G = 0], ..., P[G = count - 1] by repeated multiplication."""
    with localcontext(CONTEXT):
        q = exp(-1 / t)
        law = [1 - q]
        for _ in range(count - 1):
            law.append(law[-1] * q)
        return law


def laplace_law(t: Fraction, reach: int) -> list[Decimal]:
    """P[X = -reach], ..., P[X = reach]."""
    with localcontext(CONTEXT):
        q = exp(-1 / t)
        half = [(1 - q) / (1 + q)]
        for _ in range(reach):
            half.append(half[-1] * q)
        return half[:0:-1] + half


def gaussian_law(sigma: Fraction, reach: int) -> list[Decimal]:
    """P[X = -reach], ..., P[X = reach], normalised over the reach (which must hold nearly all)."""
    with localcontext(CONTEXT):
        rate = 1 / (2 * sigma * sigma)
        ratio, fall = exp(-rate), exp(-2 * rate)
        half = [Decimal(1)]
        for _ in range(reach):
            half.append(half[-1] * ratio)
            ratio *= fall
        total = half[0] + 2 * sum(half[1:])
        half = [weight / total for weight in half]
        return half[:0:-1] + half


def polya_law(r: Fraction, t: Fraction, count: int) -> list[Decimal]:
    """P[k] = binomial(k + r - 1, k) (1 - q)^r q^k for k < count."""
    with localcontext(CONTEXT):
        q = exp(-1 / t)
        law = [((1 - q).ln() * decimal(r)).exp()]
        for k in range(1, count):
            law.append(law[-1] * q * decimal((k + r - 1) / k))
        return law


def difference_law(law: Sequence[Decimal], reach: int) -> list[Decimal]:
    """The law of A - B for independent A, B with `law`, on -reach .. reach."""
    one = np.array([float(p) for p in law])
    both = np.convolve(one, one[::-1])
    middle = len(one) - 1
    return [Decimal(float(p)) for p in both[middle - reach : middle + reach + 1]]


def choice_law(
    scores: Sequence[Fraction | int], rate: Fraction, counts: Sequence[int] | None = None
) -> list[Decimal]:
    """counts * exp(rate * scores), normalised."""
    with localcontext(CONTEXT):
        top = max(scores)
        weights = [exp(rate * (score - top)) for score in scores]
        if counts is not None:
            weights = [weight * count for weight, count in zip(weights, counts, strict=True)]
        total = sum(weights)
        return [weight / total for weight in weights]


def cumulative(law: Sequence[Decimal]) -> list[Decimal]:
    """Partial sums."""
    with localcontext(CONTEXT):
        sums, total = [], Decimal(0)
        for p in law:
            total += p
            sums.append(total)
        return sums


def fraction(value: Decimal) -> Fraction:
    """The decimal as a rational."""
    return Fraction(value)


def chi_square(drawn: NDArray[np.generic], law: Sequence[Decimal], first: int = 0) -> tuple[float, float]:
    """The statistic of `drawn` against `law` on first, first + 1, ..., and its 1e-9 bound.

    Neighbouring values are pooled until a cell expects `LEAST_EXPECTED` draws; whatever lies outside
    the law's range counts into the last cell, with all the probability that is left.
    """
    values = drawn.astype(np.int64) - first
    inside = values[(values >= 0) & (values < len(law))]
    counts = np.bincount(inside, minlength=len(law))
    size = len(values)
    observed, expected = [0.0], [0.0]
    for count, p in zip(counts.tolist(), law, strict=True):
        if expected[-1] >= LEAST_EXPECTED:
            observed.append(0.0)
            expected.append(0.0)
        observed[-1] += count
        expected[-1] += float(p) * size
    observed[-1] += size - len(inside)
    expected[-1] += max(size - sum(expected), 0.0)
    if len(expected) > 1 and expected[-1] < LEAST_EXPECTED:
        observed[-2:] = [observed[-2] + observed[-1]]
        expected[-2:] = [expected[-2] + expected[-1]]
    assert len(expected) > 1, "one cell tests nothing"
    seen, due = np.array(observed), np.array(expected)
    statistic = float(np.sum((seen - due) ** 2 / due))
    return statistic, float(chi2.isf(FALSE_ALARM, len(due) - 1))


def follows(drawn: NDArray[np.generic], law: Sequence[Decimal], first: int = 0) -> None:
    """Assert that the draws pass the chi-square test (false alarm 1e-9)."""
    statistic, bound = chi_square(drawn, law, first)
    assert statistic < bound, f"chi-square {statistic:.1f}, where {bound:.1f} has probability 1e-9"


def between(count: int, size: int, error: float = FALSE_ALARM) -> tuple[float, float]:
    """The Clopper-Pearson interval of a probability: wrong with probability at most `error`."""
    low = 0.0 if count == 0 else float(beta.ppf(error / 2, count, size - count + 1))
    high = 1.0 if count == size else float(beta.isf(error / 2, count + 1, size - count))
    return low, high
