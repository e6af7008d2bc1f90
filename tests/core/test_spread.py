"""Spreads: what is said about accuracy holds, and for the noises no smaller width would do."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from lapwing.audit.laws import (
    SLACK,
    above_threshold,
    exponential,
    gaussian,
    laplace_at_least,
    noisy_max,
    permute_and_flip,
)
from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.core.losses import Relation
from lapwing.core.order_statistics import Quantile
from lapwing.core.partition_selection import PartitionSelection
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.core.selection import AboveThreshold, Exponential, NoisyMax, PermuteAndFlip
from lapwing.errors import BadParameter
from support.cases import each
from support.exact_laws import keep_probabilities, quantile
from support.slowly import slow

LEVELS = ["0.05", "0.5", "0.95", "0.999999"]
MANY = [1, 2, 10, 1000]


def laplace_within(scale: Fraction, width: int) -> Decimal:
    return 1 - 2 * laplace_at_least(scale, width + 1)


def gaussian_within(sigma: Fraction, width: int) -> Decimal:
    return sum(gaussian(sigma, 0, -width, width).values(), Decimal(0))


@each("scale", [Fraction(1, 5), Fraction(1), Fraction(37, 3), Fraction(5000)])
@each("level", LEVELS)
@each("answers", MANY)
def test_laplace_spread_is_the_least_width_that_holds_all_answers(
    scale: Fraction, level: str, answers: int
) -> None:
    width = Laplace(scale, 1).spread(level, answers=answers)
    assert laplace_within(scale, width) ** answers >= Decimal(level) - SLACK
    assert width == 0 or laplace_within(scale, width - 1) ** answers < Decimal(level)


@each("sigma", [Fraction(1, 3), Fraction(2), Fraction(77, 5), Fraction(150)])
@each("level", LEVELS)
@each("answers", MANY)
def test_gaussian_spread_is_the_least_width_that_holds_all_answers(
    sigma: Fraction, level: str, answers: int
) -> None:
    width = Gaussian(sigma, Fraction(1), 1).spread(level, answers=answers)
    assert gaussian_within(sigma, width) ** answers >= Decimal(level) - SLACK
    assert width == 0 or gaussian_within(sigma, width - 1) ** answers < Decimal(level)


@each("sigma", [Fraction(1030)])
@each("level", ["0.05", "0.95"])
def test_gaussian_spread_for_wide_noise_holds_and_is_at_most_one_too_wide(
    sigma: Fraction, level: str
) -> None:
    width = Gaussian(sigma, Fraction(1), 1).spread(level)
    assert gaussian_within(sigma, width) >= Decimal(level)
    assert gaussian_within(sigma, width - 2) < Decimal(level)


@each("sigma", [Fraction(10**6), Fraction(1 << 48)])
def test_gaussian_spread_is_quick_for_the_widest_noise(sigma: Fraction) -> None:
    width = Gaussian(sigma, Fraction(1), 1).spread("0.95")
    assert width == pytest.approx(1.959964 * float(sigma), rel=1e-6)


@each("answers", [1, 2, 10**6])
def test_a_confidence_of_many_nines_ends_and_holds(answers: int) -> None:
    level = "0." + "9" * 300
    width = Laplace(Fraction(1), 1).spread(level, answers=answers)
    missed = 2 * laplace_at_least(Fraction(1), width + 1)
    assert missed * answers <= Decimal("1e-300") * (1 + SLACK)
    assert Gaussian(Fraction(2), Fraction(1), 1).spread(level, answers=answers) > 0
    assert NoisyMax.for_epsilon(1, sensitivity=1).spread(level, candidates=answers + 1) > 0
    assert RandomizedResponse.two_coins().spread(level, n=5) > 0


@each("width", [0, 1, 17, 4000])
@each("l1", [1, 3])
def test_laplace_for_a_width_is_the_least_epsilon_that_keeps_it(width: int, l1: int) -> None:
    mechanism = Laplace.for_width(width, confidence="0.95", l1=l1)
    epsilon = l1 / mechanism.scale
    assert mechanism.spread("0.95") <= width
    less = Laplace.for_epsilon(epsilon - Fraction(1, 10**9), l1=l1)
    assert less.spread("0.95") > width


@pytest.mark.parametrize("width", [0, 1, 17, slow(4000)])
@pytest.mark.parametrize("answers", [1, 10])
def test_gaussian_for_a_width_is_the_most_noise_that_keeps_it(width: int, answers: int) -> None:
    mechanism = Gaussian.for_width(width, confidence="0.95", l2_squared=1, dimension=1, answers=answers)
    assert mechanism.spread("0.95", answers=answers) <= width
    more = Gaussian(mechanism.sigma * (1 + Fraction(1, 10**5)), Fraction(1), 1)
    assert more.spread("0.95", answers=answers) > width


def test_gaussian_noise_is_never_pure() -> None:
    with pytest.raises(BadParameter, match="never purely"):
        Gaussian(Fraction(5), Fraction(1), 1).epsilon(0)


def test_a_width_that_no_epsilon_keeps_is_refused() -> None:
    with pytest.raises(BadParameter):
        Laplace.for_width(0, confidence="0.999999", l1=10**6)


SCORES = [s for s in product((0, -1, -4, -30), repeat=3) if max(s) == 0]


@each("level", LEVELS)
@each("epsilon", [Fraction(1, 2), Fraction(3)])
def test_the_chosen_score_is_within_the_spread_of_the_best(level: str, epsilon: Fraction) -> None:
    for law_of, gap in (
        (exponential, Exponential.for_epsilon(epsilon, sensitivity=1).spread(level, candidates=3)),
        (permute_and_flip, PermuteAndFlip.for_epsilon(epsilon, sensitivity=1).spread(level, candidates=3)),
    ):
        for scores in SCORES:
            law = law_of(scores, epsilon / 2)
            assert sum(p for i, p in law.items() if -scores[i] <= gap) >= Decimal(level)


@each("level", ["0.5", "0.95"])
def test_the_winner_of_noisy_max_is_within_the_spread_of_the_best(level: str) -> None:
    gap = NoisyMax.for_epsilon(2, sensitivity=1).spread(level, candidates=3)
    for scores in product((0, -gap, -gap - 1), repeat=2):
        law = noisy_max((0, *scores), Fraction(1))
        assert sum(p for i, p in law.items() if -(0, *scores)[i] <= gap) >= Decimal(level)


def test_the_spread_of_noisy_max_is_least_for_two_candidates() -> None:
    """With one rival the union over rivals is no loss, so one less would not hold."""
    for level in ("0.5", "0.95", "0.999"):
        gap = NoisyMax.for_epsilon("1/2", sensitivity=1).spread(level, candidates=2)
        # The rival has the lower index and wins ties: the worst case.
        assert noisy_max((-gap - 1, 0), Fraction(4))[0] <= 1 - Decimal(level)
        assert noisy_max((-gap, 0), Fraction(4))[0] > 1 - Decimal(level)


def test_one_candidate_always_wins() -> None:
    assert NoisyMax.for_epsilon(1, sensitivity=1).spread("0.95", candidates=1) == 0


def test_half_of_the_spread_of_above_threshold_would_not_hold() -> None:
    terms = AboveThreshold.for_epsilon(3, sensitivity=1, positives=1)
    near = terms.spread("0.95", questions=1) // 2
    law = above_threshold([-near], 1, terms.threshold_scale, terms.question_scale)
    assert law[(True,)] > Decimal("0.05")


@each("level", ["0.5", "0.95"])
@each("positives", [1, 2])
def test_values_beyond_the_spread_are_told_rightly(level: str, positives: int) -> None:
    terms = AboveThreshold.for_epsilon(3, sensitivity=1, positives=positives)
    far = terms.spread(level, questions=3) + 1
    for signs in product((-1, 1), repeat=3):
        right: list[bool] = []
        for sign in signs:
            right.append(sign > 0)
            if sum(right) == positives:
                break
        law = above_threshold(
            [sign * far for sign in signs], positives, terms.threshold_scale, terms.question_scale
        )
        assert law[tuple(right)] >= Decimal(level)


@each("level", LEVELS)
@each("fraction", [Fraction(0), Fraction(1, 2), Fraction(9, 10)])
def test_the_rank_of_a_quantile_is_within_the_spread(level: str, fraction: Fraction) -> None:
    mechanism = Quantile.for_epsilon(
        2, fraction=fraction, first=0, last=9, relation=Relation.ADD_REMOVE, rows=1
    )
    off = mechanism.spread(level)
    for values in ([], [3] * 40, list(range(10)) * 4, [0] * 20 + [9] * 20, [-5, 50]):
        law = quantile(values, fraction, 0, 9, 1 / mechanism.sensitivity)
        inside = [min(max(x, 0), 9) for x in values]
        wanted = (1 - fraction) * len(values)
        near = Decimal(0)
        for y, p in law.items():
            above, not_below = sum(x > y for x in inside), sum(x >= y for x in inside)
            if max(above - wanted, wanted - not_below, Fraction(0)) <= off:
                near += p
        assert near >= Decimal(level)


@each("level", LEVELS)
@each(("epsilon", "delta"), [("1", "1e-6"), ("0.1", "0.01")])
def test_the_spread_of_a_selection_is_the_least_count_that_is_shown(
    level: str, epsilon: str, delta: str
) -> None:
    count = PartitionSelection.for_budget(epsilon, delta, keys=1).spread(level)
    keep = keep_probabilities(Fraction(epsilon), Fraction(delta), count)
    assert keep[count] >= Decimal(level) > keep[count - 1]


@each("n", [1, 5, 12])
@each("level", ["0.5", "0.95"])
def test_estimates_are_within_the_spread_of_the_true_share(n: int, level: str) -> None:
    """All reports of n respondents, for every number of yeses: an exact binomial sum."""
    mechanism = RandomizedResponse.two_coins()
    off = mechanism.spread(level, n=n)
    yes, no = np.array([0.25, 0.75]), np.array([0.75, 0.25])
    for k in range(n + 1):
        law = np.ones(1)
        for i in range(n):
            law = np.convolve(law, yes if i < k else no)
        estimates = 2 * np.arange(n + 1) / n - 0.5
        assert law[np.abs(estimates - k / n) <= off].sum() >= float(level)


@each("level", [0, 1, -1, 2, "nan", math.nan, "1e999", True, None])
def test_levels_outside_of_zero_to_one_are_refused(level: float | str | None) -> None:
    wrong: Any = level
    spreads: list[Callable[[], object]] = [
        lambda: Laplace(Fraction(1), 1).spread(wrong),
        lambda: Gaussian(Fraction(1), Fraction(1), 1).spread(wrong),
        lambda: Exponential.for_epsilon(1, sensitivity=1).spread(wrong, candidates=2),
        lambda: PermuteAndFlip.for_epsilon(1, sensitivity=1).spread(wrong, candidates=2),
        lambda: NoisyMax.for_epsilon(1, sensitivity=1).spread(wrong, candidates=2),
        lambda: AboveThreshold.for_epsilon(1, sensitivity=1, positives=1).spread(wrong, questions=2),
        lambda: RandomizedResponse.two_coins().spread(wrong, n=2),
        lambda: PartitionSelection.for_budget(1, "1e-6", keys=1).spread(wrong),
    ]
    for spread in spreads:
        with pytest.raises(BadParameter):
            spread()


@each("answers", [0, -1, 1.5, True])
def test_a_number_of_answers_below_one_is_refused(answers: int) -> None:
    with pytest.raises(BadParameter):
        Laplace(Fraction(1), 1).spread("0.9", answers=answers)
    with pytest.raises(BadParameter):
        Exponential.for_epsilon(1, sensitivity=1).spread("0.9", candidates=answers)
    with pytest.raises(BadParameter):
        AboveThreshold.for_epsilon(1, sensitivity=1, positives=1).spread("0.9", questions=answers)
