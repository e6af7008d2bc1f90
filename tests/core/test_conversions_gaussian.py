"""The three (ε, δ) bounds of discrete Gaussian noise: safe against brute force, close to the best."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent
from dp_accounting.gaussian_mechanism import get_sigma_gaussian
from dp_accounting.mechanism_calibration import LowerEndpointAndGuess, calibrate_dp_mechanism
from dp_accounting.pld import pld_privacy_accountant, privacy_loss_mechanism
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from lapwing.core import conversions
from lapwing.core.conversions import (
    SCALAR_UP_TO,
    SUMMED_UP_TO,
    _vector_delta,
    continuous_delta,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    gaussian_tail,
    rounded_gaussian,
    zcdp_to_delta,
)
from lapwing.core.exact import ball, lower, precision, upper
from lapwing.errors import BadParameter
from support.cases import each

ONE = Fraction(1)
MILLIONTH = Fraction(1, 10**6)


def law(sigma: Fraction, shift: int, reach: int) -> list[mpmath.mpf]:
    s = mpmath.mpf(sigma.numerator) / sigma.denominator
    weights = [mpmath.exp(-((k - shift) ** 2) / (2 * s * s)) for k in range(-reach, reach + 1)]
    total = mpmath.fsum(weights)
    return [weight / total for weight in weights]


def direct_delta(epsilon: Fraction, sigma: Fraction, shift: int) -> mpmath.mpf:
    """Σ max(P - e^ε Q, 0) over all outputs."""
    reach = math.ceil(sigma * 16 + epsilon * sigma * sigma) + 2 * shift
    factor = mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator)
    pairs = zip(law(sigma, shift, reach), law(sigma, 0, reach), strict=True)
    return mpmath.fsum(max(p - factor * q, mpmath.mpf(0)) for p, q in pairs)


def mp(value: Fraction) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / value.denominator


# One number.


@each("epsilon", ["1/100", "1/2", "1", "4"])
@each(("sigma", "shift"), [("1/3", 1), ("1", 1), ("5/2", 1), ("5/2", 4), ("12", 3)])
def test_scalar_delta_is_the_sum_over_all_outputs(sigma: str, shift: int, epsilon: str) -> None:
    s, e = Fraction(sigma), Fraction(epsilon)
    with mpmath.workdps(60):
        true = direct_delta(e, s, shift)
        stated = mp(gaussian_delta(e, s, Fraction(shift * shift), 1))
        assert stated >= true * (1 - mpmath.mpf(10) ** -40)
        assert stated <= true * (1 + mpmath.mpf(10) ** -30) + mpmath.mpf(10) ** -50


@each("sigma", ["1/2", "3", "20"])
def test_a_smaller_distance_is_never_worse(sigma: str) -> None:
    """Hence the greatest whole distance within √l2_squared decides."""
    s = Fraction(sigma)
    for epsilon in (Fraction(1, 10), ONE):
        deltas = [gaussian_delta(epsilon, s, Fraction(d * d), 1) for d in range(1, 9)]
        assert deltas == sorted(deltas)
    assert gaussian_delta(ONE, s, Fraction(15), 1) == gaussian_delta(ONE, s, Fraction(9), 1)


def test_equal_numbers_reveal_nothing() -> None:
    assert gaussian_delta(ONE, Fraction(3), Fraction(1, 2), 1) == 0


@each("sigma", ["1/5", "2", "31/3"])
def test_tails_are_the_sums_of_the_law(sigma: str) -> None:
    s = Fraction(sigma)
    reach = math.ceil(14 * s) + 2
    with mpmath.workdps(60):
        weights = law(s, 0, reach)
        for above in [
            Fraction(-reach // 2),
            Fraction(-3, 2),
            Fraction(-1),
            Fraction(0),
            Fraction(1, 2),
            Fraction(4),
        ]:
            true = mpmath.fsum(
                p for k, p in zip(range(-reach, reach + 1), weights, strict=True) if k > above
            )
            with precision(256):
                found = gaussian_tail(s, above)
                low, high = lower(found), upper(found)
            slack = mpmath.mpf(10) ** -35
            assert mp(low) - slack <= true <= mp(high) + slack
            assert high - low < Fraction(1, 10**35)


def test_tails_of_wide_noise_need_no_sum() -> None:
    """Just above the limit both ways must agree; far above, the sum would never end."""
    sigma = Fraction(SUMMED_UP_TO)
    beyond = sigma + Fraction(1, 10**12)
    for above in (-2000, -1, 0, 10, 1000, 1500, 6000, 12_000):
        with precision(256):
            summed, integrated = (
                gaussian_tail(sigma, Fraction(above)),
                gaussian_tail(beyond, Fraction(above)),
            )
            assert lower(integrated) <= upper(summed) * (1 + MILLIONTH)
            assert upper(integrated) >= lower(summed) * (1 - MILLIONTH)
            assert upper(integrated) - lower(integrated) <= upper(integrated) * Fraction(1, 10**4)
    with precision(256):
        wide = gaussian_tail(Fraction(2**48), Fraction(3 * 2**48))
    assert float(wide) == pytest.approx(float(norm.sf(3)), rel=1e-12)


def test_a_far_tail_is_quick() -> None:
    """ε = 1000 puts the threshold at four million: no sum starts at 1."""
    assert gaussian_delta(Fraction(1000), Fraction(SCALAR_UP_TO), ONE, 1) == Fraction(1, 2**1000)


# Several numbers, by brute force over all outputs of two and three dimensions.


def brute_delta(epsilon: float, sigma: float, shift: tuple[int, ...]) -> float:
    """δ by summing over every output; logs keep the far ones exact enough. Error below 1e-14."""
    reach = math.ceil(9 * sigma) + max(map(abs, shift)) + 1
    axis = np.arange(-reach, reach + 1, dtype=float)
    weights = np.exp(-(axis**2) / (2 * sigma**2))
    log_norm = math.log(float(weights.sum()))
    one = np.zeros((1,) * len(shift))
    two = np.zeros((1,) * len(shift))
    for i, d in enumerate(shift):
        shape = [1] * len(shift)
        shape[i] = len(axis)
        one = one + (-((axis - d) ** 2) / (2 * sigma**2) - log_norm).reshape(shape)
        two = two + (-(axis**2) / (2 * sigma**2) - log_norm).reshape(shape)
    return float(np.maximum(np.exp(one) - np.exp(epsilon + two), 0).sum())


def shifts(squared: int, dimension: int) -> list[tuple[int, ...]]:
    most = math.isqrt(squared)
    found = itertools.product(range(most + 1), repeat=dimension)
    return [
        shift
        for shift in found
        if 0 < sum(d * d for d in shift) <= squared and list(shift) == sorted(shift)
    ]


@each("dimension", [2, 3])
@each("squared", [1, 2, 3, 6])
@each("sigma", ["1/2", "1", "3/2", "2", "4"])
def test_vectors_never_have_more_than_the_stated_delta(sigma: str, squared: int, dimension: int) -> None:
    s = Fraction(sigma)
    if dimension == 3 and s > 2:
        s = Fraction(5, 2)
    for epsilon in (Fraction(1, 5), ONE, Fraction(3)):
        worst = max(brute_delta(float(epsilon), float(s), shift) for shift in shifts(squared, dimension))
        stated = float(gaussian_delta(epsilon, s, Fraction(squared), dimension))
        assert worst <= stated + 1e-13


def test_the_vector_bound_is_close_for_wide_noise() -> None:
    """At σ = 10 the rounding costs under 1 % of σ: δ stays within 2 % at one of the worst shifts."""
    stated = float(_vector_delta(Fraction(1, 2), Fraction(30), Fraction(50), 2))
    worst = brute_delta(0.5, 30.0, (5, 5))
    assert worst <= stated <= worst * 1.02


# What the continuous formula must pay.


@each("epsilon", ["1/10", "1", "5"])
@each("sigma", ["1/2", "1", "10"])
def test_the_continuous_formula_is_that_of_another_library(sigma: str, epsilon: str) -> None:
    s, e = Fraction(sigma), Fraction(epsilon)
    mechanism = privacy_loss_mechanism.GaussianPrivacyLoss(float(s))
    with precision(256):
        ours = float(continuous_delta(ball(e), 1 / ball(s)))
    assert ours == pytest.approx(mechanism.get_delta_for_epsilon(float(e)), rel=1e-9, abs=1e-300)


@each("dimension", [1, 2, 1000, 10**9])
def test_rounding_costs_next_to_nothing(dimension: int) -> None:
    law = rounded_gaussian(Fraction(10), ONE, dimension)
    assert 0 < upper(law.paid) < Fraction(1, 10**12)
    assert law.ratio > Fraction(1, 10).__float__()


@pytest.mark.parametrize("exponent", [2, 5, 30])
@pytest.mark.parametrize("sigma", [1.5, 2.0, 3.5])
def test_rounded_continuous_noise_agrees_within_the_factors(
    sigma: float, exponent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """m(y) = ∫ N(z; 0, σ² - s²) r(y | z) dz, against P(y), in both directions.

    The factors are 1 + κ and (1 + κ)/(1 - κ); the logarithm of their product is `paid`. With a
    small exponent κ is large, and the factors are put to the test. The trapezoid sum below has an
    error under 1e-14 for such smooth functions.
    """
    monkeypatch.setattr(conversions, "_KAPPA_EXPONENT", exponent)
    small = exponent / (2 * math.pi**2)
    decay = math.exp(-exponent)
    kappa = 2 * decay / (1 - decay)
    outputs = np.arange(-60, 61, dtype=float)
    plain = np.exp(-(outputs**2) / (2 * sigma**2))
    plain /= plain.sum()
    step = 1 / 64
    z = np.arange(-40, 40, step)[:, None]
    weights = np.exp(-((outputs - z) ** 2) / (2 * small))
    variance = sigma**2 - small
    density = np.exp(-(z**2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
    rounded = (density * weights / weights.sum(axis=1, keepdims=True)).sum(axis=0) * step
    assert rounded.sum() == pytest.approx(1, abs=1e-13)
    inner = slice(45, 76)
    ratio = plain[inner] / rounded[inner]
    assert ratio.max() <= (1 + kappa) * (1 + 1e-14)
    assert 1 / ratio.min() <= (1 + kappa) / (1 - kappa) * (1 + 1e-14)
    if exponent < 30:
        assert abs(ratio - 1).max() > kappa / 1000  # the two laws do differ
    paid = float(rounded_gaussian(Fraction(sigma), ONE, 1).paid)
    assert paid == pytest.approx(math.log1p(kappa) * 2 - math.log1p(-kappa), rel=1e-9)


def test_noise_that_is_too_narrow_to_be_rounded_falls_back_to_renyi() -> None:
    narrow = Fraction(1)
    assert not rounded_gaussian(narrow, ONE, 2).ratio.is_finite()
    assert gaussian_delta(ONE, narrow, ONE, 2) == zcdp_to_delta(Fraction(1, 2), ONE)


# Calibration.


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["0.05", "0.3", "1", "2.5", "9"]),
    st.sampled_from(["1e-3", "1e-6", "1e-11"]),
    st.sampled_from([(1, 1), (4, 1), (1, 2), (30, 7), (2, 1000)]),
)
def test_sigma_and_epsilon_undo_each_other(epsilon: str, delta: str, shape: tuple[int, int]) -> None:
    e, d, squared, dimension = Fraction(epsilon), Fraction(delta), Fraction(shape[0]), shape[1]
    sigma = gaussian_sigma(e, d, squared, dimension)
    assert gaussian_delta(e, sigma, squared, dimension) <= d
    back = gaussian_epsilon(d, sigma, squared, dimension)
    assert back <= e
    assert back >= e * Fraction(999, 1000)
    assert gaussian_delta(back, sigma, squared, dimension) <= d
    assert gaussian_delta(back - Fraction(1, 10**9), sigma, squared, dimension) > d


@each(("epsilon", "delta"), [("0.3", "1e-6"), ("0.1", "1e-3"), ("1", "1e-40"), ("0.01", "1e-9")])
@each("dimension", [1, 50])
def test_sigma_is_that_of_the_analytic_gaussian(epsilon: str, delta: str, dimension: int) -> None:
    """Safe (not below the continuous one by more than lattice effects), and within 2 %."""
    e, d = Fraction(epsilon), Fraction(delta)
    ours = float(gaussian_sigma(e, d, ONE, dimension))
    theirs = get_sigma_gaussian(float(e), float(d))
    assert ours >= 10
    assert ours == pytest.approx(theirs, rel=0.02)
    if dimension > 1:
        assert ours >= theirs


def test_sigma_agrees_with_a_calibrated_accountant() -> None:
    ours = float(gaussian_sigma(Fraction(1, 4), MILLIONTH, ONE, 3))
    theirs = calibrate_dp_mechanism(
        pld_privacy_accountant.PLDAccountant,
        GaussianDpEvent,
        0.25,
        1e-6,
        LowerEndpointAndGuess(1, 20),
        tol=1e-3,
    )
    assert ours == pytest.approx(theirs, rel=0.02)


def test_sigma_has_six_digits() -> None:
    sigma = gaussian_sigma(Fraction(1, 3), MILLIONTH, ONE, 1)
    assert sigma * 10**4 == int(sigma * 10**4)


@each("epsilon", [Fraction(0), Fraction(-1), Fraction(1001), Fraction(1, 10**10)])
def test_sigma_refuses_epsilon_out_of_range(epsilon: Fraction) -> None:
    with pytest.raises(BadParameter):
        gaussian_sigma(epsilon, MILLIONTH, ONE, 1)


@each("delta", [Fraction(0), Fraction(-1), Fraction(1)])
def test_sigma_refuses_delta_out_of_range(delta: Fraction) -> None:
    with pytest.raises(BadParameter):
        gaussian_sigma(ONE, delta, ONE, 1)


def test_sigma_must_fit_64_bit_integers() -> None:
    with pytest.raises(BadParameter, match="64-bit"):
        gaussian_sigma(Fraction(1, 10**9), MILLIONTH, Fraction(10**18), 2)


def test_epsilon_of_tiny_noise_is_refused() -> None:
    with pytest.raises(BadParameter, match="above 1000"):
        gaussian_epsilon(MILLIONTH, Fraction(1, 1000), ONE, 1)


@each("sigma", ["0.6", "3", "63.9", "64.1", "5000"])
def test_epsilon_is_the_least_that_is_shown(sigma: str) -> None:
    s = Fraction(sigma)
    epsilon = gaussian_epsilon(MILLIONTH, s, ONE, 1)
    assert gaussian_delta(epsilon, s, ONE, 1) <= MILLIONTH
    assert gaussian_delta(epsilon - Fraction(1, 10**9), s, ONE, 1) > MILLIONTH
