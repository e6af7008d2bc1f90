"""Gaussian shares: the least noise that keeps a budget, what a sum is off by, and what cannot be built."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb, arb_poly

from lapwing.core.exact import ball, lower, precision, upper
from lapwing.core.gaussian import Gaussian, GaussianShares, SummedGaussian
from lapwing.errors import BadParameter, BadValue
from support.cases import each


def cost(sigma: Fraction, dimension: int, of: int) -> Fraction:
    """ρ at Δ² = 2; without end for shares that are refused."""
    try:
        return GaussianShares(sigma, Fraction(2), dimension, of).loss.rho
    except BadParameter:
        return Fraction(10**9)


@each("rho", ["0.0001", "0.01", "0.2"])
@each(("dimension", "of"), [(1, 2), (10_000, 2), (1, 7), (50, 3)])
def test_noise_for_rho_costs_at_most_rho_and_a_little_less_would_not_do(
    rho: str, dimension: int, of: int
) -> None:
    shares = GaussianShares.for_rho(rho, l2_squared=2, dimension=dimension, of=of)
    assert shares.loss.rho <= Fraction(rho)
    assert cost(shares.sigma * (1 - Fraction(3, 10**6)), dimension, of) > Fraction(rho)


def test_wide_shares_cost_what_one_gaussian_costs() -> None:
    shares = GaussianShares(Fraction(10), Fraction(4), 1000, 4)
    alone = Gaussian(Fraction(20), Fraction(4), 1000).loss.concentrated.rho
    assert alone <= shares.loss.rho <= alone * (1 + Fraction(1, 10**30))


@each("of", [2, 5])
@each(("epsilon", "delta"), [("0.5", "1e-6"), ("1", "1e-9"), ("4", "0.01")])
@each("dimension", [1, 10_000])
def test_noise_for_a_budget_keeps_it_and_is_about_that_of_one_gaussian(
    of: int, epsilon: str, delta: str, dimension: int
) -> None:
    shares = GaussianShares.for_budget(epsilon, delta, l2_squared=1, dimension=dimension, of=of)
    assert shares.delta(epsilon) <= Fraction(delta)
    alone = Gaussian.for_budget(epsilon, delta, l2_squared=1, dimension=dimension)
    narrowest = GaussianShares.for_rho(10**6, l2_squared=1, dimension=dimension, of=of)
    if shares.sigma > narrowest.sigma * Fraction(12, 10):
        together = float(shares.sigma) * math.sqrt(of)
        assert 0.9999 < together / float(alone.sigma) < 1.06


def test_one_share_is_the_gaussian_mechanism() -> None:
    shares = GaussianShares.for_budget(1, "1e-6", l2_squared=1, dimension=3, of=1)
    alone = Gaussian.for_budget(1, "1e-6", l2_squared=1, dimension=3)
    assert shares.sigma == alone.sigma
    assert shares.loss == alone.loss.concentrated
    assert shares.delta("0.5") == alone.delta("0.5")
    assert shares.spread("0.95", answers=3) == alone.spread("0.95", answers=3)


@each("of", [2, 3, 40])
def test_shares_whose_sum_is_not_nearly_gaussian_are_refused(of: int) -> None:
    with pytest.raises(BadParameter, match="narrow"):
        GaussianShares(Fraction(2, 5), Fraction(1), 1, of)
    # However much may be lost: then there is more noise than was asked for, and less loss.
    least = GaussianShares.for_rho(100, l2_squared=1, dimension=1, of=of)
    assert least.sigma > Fraction(1, 2)
    assert least.loss.rho < 10
    assert GaussianShares(Fraction(2, 5), Fraction(1), 1, 1).loss.rho == Fraction(25, 8)


def test_longer_vectors_need_wider_shares() -> None:
    with pytest.raises(BadParameter, match="narrow"):
        GaussianShares(Fraction(3, 4), Fraction(1), 10**6, 2)
    assert GaussianShares(Fraction(3, 4), Fraction(1), 1, 2).loss.rho > 0
    assert GaussianShares(Fraction(2), Fraction(1), 10**6, 2).loss.rho > 0


def test_delta_falls_with_epsilon_and_is_never_zero() -> None:
    shares = GaussianShares.for_rho("0.1", l2_squared=1, dimension=100, of=3)
    deltas = [shares.delta(epsilon) for epsilon in ("0.1", "1", "3", "50")]
    assert deltas == sorted(deltas, reverse=True)
    assert deltas[-1] > 0


def held(sigma: Fraction, contributors: int, width: int) -> arb:
    """P[|X| <= width], by convolution."""
    far = math.ceil(17 * sigma) + 3
    weights = [ball(Fraction(-k * k) / (2 * sigma * sigma)).exp() for k in range(-far, far + 1)]
    whole = sum(weights, arb(0))
    power = arb_poly([weight / whole for weight in weights]) ** contributors
    middle = contributors * far
    return sum((power[middle + k] for k in range(-width, width + 1)), arb(0))


@each("sigma", [Fraction(3, 2), Fraction(4), Fraction(35, 3)])
@each("contributors", [1, 2, 3, 7])
@each("level", ["0.05", "0.95", "0.999999"])
def test_spread_of_a_sum_is_the_least_width_that_holds(
    sigma: Fraction, contributors: int, level: str
) -> None:
    width = SummedGaussian(sigma, contributors).spread(level)
    with precision(200):
        assert lower(held(sigma, contributors, width)) >= Fraction(level)
        assert width == 0 or upper(held(sigma, contributors, width - 1)) < Fraction(level)


@each(("sigma", "contributors"), [(Fraction(60), 2), (Fraction(50), 5)])
def test_spread_of_wide_sums_is_at_most_one_too_wide(sigma: Fraction, contributors: int) -> None:
    width = SummedGaussian(sigma, contributors).spread("0.95")
    with precision(200):
        assert lower(held(sigma, contributors, width)) >= Fraction("0.95")
        assert upper(held(sigma, contributors, width - 2)) < Fraction("0.95")


@each("sigma", [Fraction(1, 100), Fraction(1, 4), Fraction(1, 2), Fraction(4, 5)])
@each("contributors", [2, 10])
def test_spread_of_narrow_noises_still_holds(sigma: Fraction, contributors: int) -> None:
    for level in ("0.5", "0.95", "0.999999"):
        width = SummedGaussian(sigma, contributors).spread(level)
        with precision(200):
            assert lower(held(sigma, contributors, width)) >= Fraction(level) - Fraction(1, 10**40)
        assert width <= 2 + 6 * math.sqrt(contributors) * sigma


def test_spread_holds_all_answers_and_ends_at_many_nines() -> None:
    noise = SummedGaussian(Fraction(1 << 48), 3)
    assert noise.spread("0.95") == pytest.approx(1.959964 * noise.deviation, rel=1e-6)
    assert noise.spread("0.95", answers=10_000) > 2 * noise.spread("0.95")
    assert SummedGaussian(Fraction(2), 3).spread("0." + "9" * 300) > 36.9 * math.sqrt(12)


def test_deviation_adds_up_in_squares() -> None:
    assert GaussianShares(Fraction(3), Fraction(1), 1, 4).total(9).deviation == pytest.approx(9)


def test_a_vector_of_another_length_is_refused() -> None:
    shares = GaussianShares(Fraction(3), Fraction(1), 2, 4)
    with pytest.raises(BadValue, match="2 values"):
        shares.sample([1])
    assert shares.sample(np.array([1, 2])).shape == (2,)


@each(
    ("sigma", "l2_squared", "dimension", "of"),
    [
        (0, 1, 1, 2),
        ((1 << 48) + 1, 1, 1, 2),
        (3, "0.5", 1, 2),
        (3, 1, 0, 2),
        (3, 1, 1, 0),
        (3, 1, 1, 1.5),
        (math.inf, 1, 1, 2),
    ],
)
def test_shares_that_cannot_be_are_not_built(sigma: Any, l2_squared: Any, dimension: Any, of: Any) -> None:
    with pytest.raises(BadParameter):
        GaussianShares(sigma, l2_squared, dimension, of)


@each("rho", [0, -1, "1e-60", "1e-999", None])
def test_losses_that_no_noise_keeps_are_refused(rho: Any) -> None:
    with pytest.raises(BadParameter):
        GaussianShares.for_rho(rho, l2_squared=1, dimension=1, of=2)


@each(("l2_squared", "dimension", "of"), [(0, 1, 2), ("0.5", 1, 2), (1, 0, 2), (1, 1, 0)])
def test_shapes_that_cannot_be_are_refused_by_both_calibrations(
    l2_squared: Any, dimension: Any, of: Any
) -> None:
    with pytest.raises(BadParameter):
        GaussianShares.for_rho("0.1", l2_squared=l2_squared, dimension=dimension, of=of)
    with pytest.raises(BadParameter):
        GaussianShares.for_budget(1, "1e-6", l2_squared=l2_squared, dimension=dimension, of=of)


def test_a_budget_without_delta_is_refused() -> None:
    with pytest.raises(BadParameter, match="never purely"):
        GaussianShares.for_budget(1, 0, l2_squared=1, dimension=1, of=2)


@each(("sigma", "contributors"), [(0, 1), (-1, 1), (1, 0), (1, True), ((1 << 48) + 1, 1)])
def test_sums_that_cannot_be_are_not_built(sigma: Any, contributors: Any) -> None:
    with pytest.raises(BadParameter):
        SummedGaussian(sigma, contributors)
