"""Conversions: never below the truth, and close to it. The truth comes from elsewhere.

Elsewhere is dp-accounting, a closed form, or an exhaustive search in mpmath.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import compute_delta, compute_epsilon
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from lapwing.core.conversions import (
    loss_to_epsilon,
    renyi_cap,
    renyi_to_epsilon,
    zcdp_to_delta,
    zcdp_to_epsilon,
)
from lapwing.core.exact import ball, precision, upper
from lapwing.core.losses import (
    Approximate,
    BoundedRange,
    Concentrated,
    GaussianNoise,
    LaplaceNoise,
    Loss,
    Pure,
    SequentialComposition,
)
from lapwing.core.renyi_curves import randomized_response
from lapwing.errors import BadParameter
from support.cases import each
from support.losses import sampled
from support.raised import named
from support.zcdp import pure_to_zcdp, zcdp_cap

DELTAS = [Fraction(1, 10), Fraction(1, 10**6), Fraction(1, 10**12)]
RHOS = [Fraction(1, 10**9), Fraction(1, 10**4), Fraction(1, 10), Fraction(2), Fraction(50)]


def best_epsilon(rho: float, delta: float) -> float:
    """min over orders a of ρ a + ln(1 - 1/a) - (ln δ + ln a) / (a - 1), by another optimiser."""

    def at(x: float) -> float:
        a = 1 + math.exp(x)
        return rho * a + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1)

    starts = np.linspace(-12, 30, 85)
    near = min(starts, key=at)
    found = minimize_scalar(at, bounds=(near - 1, near + 1), method="bounded", options={"xatol": 1e-12})
    return max(float(found.fun), 0.0)


def gaussian_truth(rho: float, epsilon: float) -> float:
    """The exact δ at ε of the Gaussian with this ρ (sensitivity / σ = √2ρ)."""
    r = math.sqrt(2 * rho)
    near, far = norm.cdf(r / 2 - epsilon / r), norm.logcdf(-r / 2 - epsilon / r)
    return float(near - math.exp(epsilon + far))


# zCDP.


@each("delta", DELTAS)
@each("rho", RHOS)
def test_zcdp_to_epsilon_uses_the_best_order(rho: Fraction, delta: Fraction) -> None:
    stated = zcdp_to_epsilon(rho, delta)
    assert float(stated) == pytest.approx(best_epsilon(float(rho), float(delta)), rel=1e-6, abs=1e-9)


@each("delta", DELTAS)
@each("rho", RHOS)
def test_zcdp_to_epsilon_is_true_of_the_gaussian_that_has_this_rho(rho: Fraction, delta: Fraction) -> None:
    stated = float(zcdp_to_epsilon(rho, delta))
    assert gaussian_truth(float(rho), stated) <= float(delta) * (1 + 1e-9)


@each("rho", RHOS[1:])
def test_zcdp_to_epsilon_agrees_with_another_accountant(rho: Fraction) -> None:
    delta = Fraction(1, 10**6)
    orders = np.concatenate([1 + np.logspace(-3, 4, 20_000)])
    theirs, _ = compute_epsilon(orders, float(rho) * orders, float(delta))
    ours = float(zcdp_to_epsilon(rho, delta))
    assert ours <= theirs * (1 + 1e-9)
    assert ours == pytest.approx(theirs, rel=1e-4)


@each("epsilon", [Fraction(1, 100), Fraction(1), Fraction(8)])
@each("rho", RHOS[:4])
def test_zcdp_to_delta_agrees_with_another_accountant(rho: Fraction, epsilon: Fraction) -> None:
    orders = 1 + np.logspace(-3, 6, 20_000)
    theirs, _ = compute_delta(orders, float(rho) * orders, float(epsilon))
    ours = float(zcdp_to_delta(rho, epsilon))
    assert ours >= gaussian_truth(float(rho), float(epsilon)) * (1 - 1e-9)
    # theirs also knows δ² <= 1 - e^-ρ, which matters only where δ is large.
    if theirs < 0.05:
        assert ours <= theirs * (1 + 1e-3) + 2.0**-1000
        assert ours >= theirs * 0.98
    assert ours <= 1


@given(st.sampled_from(RHOS[1:4]), st.sampled_from(DELTAS))
def test_the_two_directions_undo_each_other(rho: Fraction, delta: Fraction) -> None:
    epsilon = zcdp_to_epsilon(rho, delta)
    if epsilon:
        assert float(zcdp_to_delta(rho, epsilon)) == pytest.approx(float(delta), rel=1e-6)


@each(
    ("epsilon", "delta"),
    [("1", "1e-6"), ("0.01", "1e-9"), ("10", "1e-6"), ("1e-9", "1e-18"), ("1000", "1e-6"), ("1", "0.9")],
)
def test_zcdp_cap_is_the_greatest_that_fits(epsilon: str, delta: str) -> None:
    e, d = Fraction(epsilon), Fraction(delta)
    cap = zcdp_cap(e, d)
    assert cap > 0
    assert zcdp_to_epsilon(cap, d) <= e
    assert zcdp_to_epsilon(cap * (1 + Fraction(1, 10**6)), d) > e


def test_a_delta_of_billions_of_digits_is_rounded_up_to_a_short_one() -> None:
    assert zcdp_to_delta(Fraction(1, 10**15), Fraction(1000)) == Fraction(1, 2**1000)


def test_more_loss_means_more_epsilon() -> None:
    values = [zcdp_to_epsilon(Fraction(k, 1000), Fraction(1, 10**6)) for k in range(1, 60)]
    assert values == sorted(values)


# Rényi.


@each("delta", DELTAS)
@each("order", [Fraction(11, 10), Fraction(2), Fraction(20)])
@each("value", [Fraction(1, 1000), Fraction(1), Fraction(30)])
def test_renyi_to_epsilon_agrees_with_another_accountant(
    value: Fraction, order: Fraction, delta: Fraction
) -> None:
    theirs, _ = compute_epsilon([float(order)], [float(value)], float(delta))
    with precision(256):
        ours = float(renyi_to_epsilon(order, ball(value), delta))
    # theirs is 0 if δ² > 1 - e^-value, which ours does not use.
    if theirs > 0:
        assert ours == pytest.approx(theirs, rel=1e-9)
    assert ours >= theirs - 1e-12


@settings(max_examples=100)
@given(
    st.fractions(Fraction(1, 1000), 5, max_denominator=1000).filter(bool),
    st.integers(2, 60),
    st.fractions(Fraction(1, 10**9), Fraction(1, 2), max_denominator=10**9).filter(bool),
)
def test_renyi_to_epsilon_is_true_of_randomized_response(
    epsilon0: Fraction, order: int, delta: Fraction
) -> None:
    """δ of randomized response is known: (e^ε₀ - e^ε) / (1 + e^ε₀)."""
    stated = float(renyi_to_epsilon(Fraction(order), randomized_response(Fraction(order), epsilon0), delta))
    e0 = float(epsilon0)
    true = max(math.exp(e0) - math.exp(stated), 0) / (1 + math.exp(e0))
    assert true <= float(delta) * (1 + 1e-9)


@each(("epsilon", "delta"), [("1", "1e-6"), ("0.001", "1e-9"), ("30", "0.01")])
@each("order", [2, 9, 200, 10**5])
def test_the_cap_is_where_the_conversion_gives_epsilon(epsilon: str, delta: str, order: int) -> None:
    e, d = Fraction(epsilon), Fraction(delta)
    cap = renyi_cap(order, e, d)
    if cap >= 0:
        with precision(256):
            assert renyi_to_epsilon(Fraction(order), ball(cap), d) <= e + Fraction(1, 10**60)
            assert renyi_to_epsilon(Fraction(order), ball(cap + Fraction(1, 10**9)), d) > e
            # The safe side: with all the rounding, ε is not exceeded by a ledger's unit.
            below = Fraction(int(cap * 10**9), 10**9)
            assert renyi_to_epsilon(Fraction(order), ball(below), d) <= e + Fraction(1, 10**60)


@each("delta", [Fraction(0), Fraction(1), Fraction(-1), Fraction(3, 2)])
@each(
    "convert",
    [
        lambda delta: renyi_to_epsilon(Fraction(2), arb(1), delta),
        lambda delta: renyi_cap(2, Fraction(1), delta),
        lambda delta: zcdp_to_epsilon(Fraction(1), delta),
    ],
)
def test_delta_must_lie_between_0_and_1(convert: Callable[[Fraction], Fraction], delta: Fraction) -> None:
    with pytest.raises(BadParameter, check=named("delta")):
        convert(delta)


# Pure losses.


@given(st.fractions(Fraction(1, 100), 5, max_denominator=100), st.sampled_from([2, 3, 10, 100]))
def test_pure_to_zcdp_covers_randomized_response(epsilon: Fraction, order: int) -> None:
    rho = pure_to_zcdp(epsilon)
    assert upper(randomized_response(Fraction(order), epsilon)) <= rho * order
    assert rho == epsilon * epsilon / 2


def test_pure_to_zcdp_is_tight_for_small_epsilon() -> None:
    epsilon = Fraction(1, 100)
    value = randomized_response(Fraction(2), epsilon)
    assert float(value) == pytest.approx(float(2 * pure_to_zcdp(epsilon)), rel=1e-4)


# Any loss.


def rdp_epsilon(event: object, count: int, delta: float) -> float:
    orders = [1 + 1.02**k / 20 for k in range(600)]
    accountant = RdpAccountant(orders)
    accountant.compose(event, count)
    return float(accountant.get_epsilon(delta))


@pytest.mark.slow
@pytest.mark.parametrize("delta", ["1e-6", "1e-3"])
def test_loss_to_epsilon_agrees_with_another_accountant(delta: str) -> None:
    d = Fraction(delta)
    cases: list[tuple[Loss, float]] = [
        (GaussianNoise(Fraction(5), Fraction(1), 1), rdp_epsilon(GaussianDpEvent(5), 1, float(d))),
        (Concentrated(Fraction(1, 50)), rdp_epsilon(GaussianDpEvent(5), 1, float(d))),
        (
            SequentialComposition((GaussianNoise(Fraction(5), Fraction(1), 1),) * 9),
            rdp_epsilon(GaussianDpEvent(5), 9, float(d)),
        ),
    ]
    for loss, theirs in cases:
        ours = loss_to_epsilon(loss, d)
        assert ours is not None
        assert float(ours) == pytest.approx(theirs, rel=1e-3)
    # Continuous Laplace noise is less than 1 % off discrete noise at this scale.
    many = SequentialComposition((LaplaceNoise(Fraction(100), 1),) * 400)
    ours = loss_to_epsilon(many, d)
    assert ours is not None
    assert float(ours) == pytest.approx(rdp_epsilon(LaplaceDpEvent(100), 400, float(d)), rel=0.01)


def test_loss_to_epsilon_of_a_sampled_run_is_quick_and_close() -> None:
    """High orders of a sampled run are dear; the search must not go there."""
    d = Fraction(1, 10**6)
    ours = loss_to_epsilon(sampled(Fraction(1, 100), Fraction(1), 1000), d)
    event = PoissonSampledDpEvent(0.01, GaussianDpEvent(1))
    accountant = RdpAccountant(list(range(2, 64)))
    accountant.compose(event, 1000)
    assert ours is not None
    assert float(ours) == pytest.approx(float(accountant.get_epsilon(1e-6)), rel=1e-3)


@each("sigma", [10**4, 10**6])
def test_loss_to_epsilon_reaches_the_orders_of_very_small_losses(sigma: int) -> None:
    d = Fraction(1, 10**9)
    ours = loss_to_epsilon(GaussianNoise(Fraction(sigma), Fraction(1), 1), d)
    assert ours is not None
    direct = zcdp_to_epsilon(Fraction(1, 2 * sigma * sigma), d)
    assert direct * Fraction(999, 1000) <= ours <= direct * Fraction(1001, 1000)


@pytest.mark.slow
def test_loss_to_epsilon_takes_the_best_part_it_may() -> None:
    d = Fraction(1, 10**6)
    assert loss_to_epsilon(Pure(Fraction(1, 10)), Fraction(0)) == Fraction(1, 10)
    assert loss_to_epsilon(Approximate(Fraction(1, 10), d), Fraction(0)) is None
    assert loss_to_epsilon(Approximate(Fraction(1, 10), d), d) == Fraction(1, 10)
    assert loss_to_epsilon(GaussianNoise(Fraction(5), Fraction(1), 1), Fraction(0)) is None
    many = loss_to_epsilon(SequentialComposition((BoundedRange(Fraction(1, 100)),) * 1000), d)
    assert many is not None
    assert many < 2  # Σε is 10
    with_delta0 = loss_to_epsilon(
        SequentialComposition((Approximate(Fraction(1, 100), d / 4000),) * 1000), d
    )
    without = loss_to_epsilon(SequentialComposition((Pure(Fraction(1, 100)),) * 1000), d)
    assert with_delta0 is not None
    assert without is not None
    assert without < with_delta0 < without * Fraction(11, 10)


# Groups.


@given(st.fractions(0, 2, max_denominator=20), st.integers(1, 8))
def test_a_group_pays_the_geometric_sum(epsilon: Fraction, size: int) -> None:
    delta = Fraction(1, 10**9)
    group = Approximate(epsilon, delta).for_group(size)
    e, d = group.epsilon, group.delta
    assert e == size * epsilon
    with mpmath.workdps(60):
        step = mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator)
        true = mpmath.fsum(step**i for i in range(size)) / 10**9
        small, stated = mpmath.mpf(10) ** -25, mpmath.mpf(d.numerator) / d.denominator
        assert true * (1 - small * small) <= stated <= true * (1 + small)


@each("size", [2, 3, 5])
def test_a_group_is_true_of_gaussian_noise(size: int) -> None:
    """The Gaussian at `size` times the distance has at most the δ that the group bound states."""
    rho, epsilon = 0.02, Fraction(1, 2)
    delta = Fraction(gaussian_truth(rho, 0.5))
    group = Approximate(epsilon, delta).for_group(size)
    e, d = group.epsilon, group.delta
    assert gaussian_truth(rho * size * size, float(e)) <= float(d)
