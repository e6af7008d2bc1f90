"""Conversions of losses: closed forms, dp-accounting, and the ends of each range."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from dp_accounting import (
    DpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.core.losses import Loss, SampledGaussian
from lapwing.errors import BadParameter
from lapwing.losses import (
    Approximate,
    BoundedRange,
    Concentrated,
    GaussianNoise,
    LaplaceNoise,
    Pure,
    Relation,
    StatedLoss,
    compose,
    poisson_sampled,
    repeated,
)
from support.cases import each

ONE, TENTH = Fraction(1), Fraction(1, 10)
FINE = 10**6  # a grid so fine that discrete noise is continuous noise, to twelve digits


def gaussian(sigma: Fraction | int) -> GaussianNoise:
    return GaussianNoise(sigma * FINE, FINE**2, 1)


def sampled(sigma: int, rate: str) -> StatedLoss:
    return poisson_sampled(gaussian(sigma), rate=rate, relation=Relation.ADD_REMOVE)


# Beside dp-accounting.

RUNS: list[tuple[StatedLoss, DpEvent]] = [
    (repeated(gaussian(10), 20), SelfComposedDpEvent(GaussianDpEvent(10), 20)),
    (repeated(Pure("0.1"), 100), SelfComposedDpEvent(LaplaceDpEvent(10), 100)),
    (
        repeated(sampled(2, "0.01"), 500),
        SelfComposedDpEvent(PoissonSampledDpEvent(0.01, GaussianDpEvent(2)), 500),
    ),
]


@each("run", range(len(RUNS)))
@each("delta", ["1e-6", "1e-3"])
def test_epsilon_lies_between_the_two_accountants_of_dp_accounting(run: int, delta: str) -> None:
    """Not below distributions (which are tight), not above Rényi orders of a fixed list."""
    loss, event = RUNS[run]
    tight = PLDAccountant().compose(event).get_epsilon(float(delta))
    by_orders = RdpAccountant().compose(event).get_epsilon(float(delta))
    assert tight * (1 - 1e-4) <= loss.epsilon(delta=delta) <= by_orders * 1.02
    back = PLDAccountant().compose(event).get_delta(float(loss.epsilon(delta=delta)))
    assert back <= float(delta) * (1 + 1e-6)


@each("run", range(len(RUNS)))
def test_epsilon_by_distribution_is_that_of_dp_accounting(run: int) -> None:
    loss, event = RUNS[run]
    tight = PLDAccountant().compose(event).get_epsilon(1e-6)
    found = loss.epsilon_by_distribution(delta="1e-6")
    # Pure losses are those of randomized response, which is worse than Laplace noise.
    assert tight * (1 - 1e-4) <= found <= tight * (1.3 if run == 1 else 1.001)
    assert found <= loss.epsilon(delta="1e-6")


def test_a_loss_without_a_distribution_is_told() -> None:
    with pytest.raises(BadParameter):
        compose(Concentrated(TENTH)).epsilon_by_distribution(delta="1e-6")
    with pytest.raises(BadParameter):
        compose(gaussian(1)).epsilon_by_distribution(delta=0)


def test_a_failure_is_paid_before_the_distribution() -> None:
    loss = repeated(Approximate(TENTH, "1e-8"), 50)
    found = loss.epsilon_by_distribution(delta="1e-6")
    assert repeated(Pure(TENTH), 50).epsilon_by_distribution(delta="1e-6") <= found
    assert found <= loss.epsilon(delta="1e-6")
    with pytest.raises(BadParameter):
        loss.epsilon_by_distribution(delta="1e-9")


# Closed forms.


@each("epsilon", ["1e-9", "0.001", "0.5", "3", "30", "1000", "9999"])
@each("delta", ["1e-12", "1e-6", "0.1", "0.9", "0.999"])
def test_epsilon_of_a_pure_loss_is_never_rounded_down(epsilon: str, delta: str) -> None:
    with mpmath.workdps(60):
        e, d = mpmath.mpf(epsilon), mpmath.mpf(delta)
        inside = mpmath.exp(e) - d * (1 + mpmath.exp(e))
        true = mpmath.log(inside) if inside > 1 else mpmath.mpf(0)
        found = compose(Pure(epsilon)).epsilon(delta=delta)
        above = mpmath.mpf(found.numerator) / found.denominator - true
        assert 0 <= above <= mpmath.mpf("1.01e-9")


@each("epsilon", ["0", "0.25", "0.4999", "0.5", "0.6"])
def test_delta_of_a_pair_is_that_of_its_worst_law(epsilon: str) -> None:
    loss = compose(Approximate("0.5", "0.01"))
    with mpmath.workdps(60):
        rest = (mpmath.exp("0.5") - mpmath.exp(epsilon)) / (1 + mpmath.exp("0.5"))
        rest = max(rest, mpmath.mpf(0))
        true = mpmath.mpf("0.01") + rest
        found = loss.delta(epsilon=epsilon)
        above = mpmath.mpf(found.numerator) / found.denominator - true
        assert -mpmath.mpf("1e-55") < above < 0.01 * rest + mpmath.mpf("1e-50")


def test_rho_of_each_kind() -> None:
    assert compose(Pure(ONE)).rho() == Fraction(1, 2)
    assert compose(LaplaceNoise(2, 1)).rho() == Fraction(1, 8)
    assert compose(BoundedRange(ONE)).rho() == Fraction(1, 8)
    assert repeated(GaussianNoise(2, 1, 1), 8).rho() == ONE
    assert sampled(1, "0.1").rho() == Fraction(1, 2)
    assert compose(Pure(ONE), Concentrated(TENTH)).rho() == Fraction(6, 10)


@given(st.fractions(Fraction(1, 1000), 3), st.fractions(Fraction(1001, 1000), 200))
@settings(max_examples=100, deadline=None)
def test_rho_is_above_each_renyi_value(epsilon: Fraction, order: Fraction) -> None:
    for loss in (Pure(epsilon), BoundedRange(epsilon), LaplaceNoise(1 / epsilon, 1), Concentrated(epsilon)):
        stated = compose(loss)
        assert stated.renyi(order) <= stated.rho() * order + Fraction(1, 10**60)


@each("mu", ["0.1", "1", "3"])
@each("alpha", ["0.001", "0.05", "0.5", "0.95"])
def test_the_trade_off_of_gaussian_noise_is_below_that_of_its_normal_laws(mu: str, alpha: str) -> None:
    """G_μ(α) = Φ(Φ⁻¹(1 - α) - μ) is the truth. What follows from Rényi values is less."""
    loss = compose(gaussian(1 / Fraction(mu)))
    level = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(alpha))
    true = mpmath.ncdf(level - mpmath.mpf(mu))
    assert 0 <= float(loss.tradeoff(alpha)) <= float(true)
    if mu == "0.1":
        assert float(loss.tradeoff(alpha)) >= 0.6 * float(true)


@each("alpha", ["0", "0.01", "0.2689414213699951", "0.6", "1"])
def test_the_trade_off_of_a_pure_loss_is_exact(alpha: str) -> None:
    a, e = float(alpha), math.e
    true = max(0.0, 1 - e * a, (1 - a) / e)
    assert float(compose(Pure(ONE)).tradeoff(alpha)) == pytest.approx(true, abs=1e-15)


def test_a_loss_of_nothing_reveals_nothing() -> None:
    nothing = compose(Pure(0))
    assert nothing.epsilon(delta=0) == nothing.delta(epsilon=0) == nothing.rho() == 0
    assert nothing.tradeoff("0.3") == pytest.approx(0.7)


# Consistency.

KINDS = [Pure(ONE), Approximate(ONE, "1e-10"), BoundedRange(ONE), Concentrated(TENTH), gaussian(5)]


@each("kind", range(len(KINDS)))
@each("delta", ["1e-7", "1e-3", "0.3"])
def test_delta_at_the_epsilon_of_a_delta_is_no_larger(kind: int, delta: str) -> None:
    loss = repeated(KINDS[kind], 50)
    assert float(loss.delta(epsilon=loss.epsilon(delta=delta))) <= float(delta) * (1 + 1e-3)


# The ends.


@each("delta", [1, 2, -1, "-1e-9", math.nan, math.inf, None, True, "x"])
def test_a_delta_out_of_range_is_refused(delta: Any) -> None:
    for loss in map(compose, KINDS):
        with pytest.raises(BadParameter) as caught:
            loss.epsilon(delta=delta)
        assert caught.value.name == "delta"


@each("epsilon", [-1, math.nan, math.inf, None, True, "x"])
def test_an_epsilon_out_of_range_is_refused(epsilon: Any) -> None:
    with pytest.raises(BadParameter):
        compose(Pure(ONE)).delta(epsilon=epsilon)


@each("loss", [Concentrated(1), SampledGaussian(Fraction(1, 2), GaussianNoise(2, 1, 1))])
def test_delta_at_an_epsilon_beyond_all_floats_is_tiny(loss: Loss) -> None:
    assert compose(loss).delta(epsilon="1e400") < Fraction(1, 10**300)
    assert compose(loss).delta(epsilon=10**5000) < Fraction(1, 10**300)


@each("order", [1, 0, -2, "0.5", 100_001, 1e300, math.nan, math.inf, None])
def test_an_order_out_of_range_is_refused(order: Any) -> None:
    with pytest.raises(BadParameter):
        compose(Pure(ONE)).renyi(order)


@each("alpha", [-1, "1.1", math.nan, None])
def test_an_error_rate_out_of_range_is_refused(alpha: Any) -> None:
    with pytest.raises(BadParameter):
        compose(Pure(ONE)).tradeoff(alpha)


def test_what_does_not_follow_is_told() -> None:
    for loss, delta in ((compose(gaussian(1)), 0), (compose(Approximate(ONE, "0.01")), "0.001")):
        with pytest.raises(BadParameter):
            loss.epsilon(delta=delta)
    for ask in (StatedLoss.rho, lambda loss: loss.renyi(2)):
        with pytest.raises(BadParameter):
            ask(compose(Approximate(ONE, "0.01")))
    assert compose(Approximate(ONE, "0.01")).epsilon(delta="0.01") == 1


def test_tiny_and_huge_deltas_have_an_epsilon() -> None:
    assert compose(gaussian(1)).epsilon(delta="1e-300") > 30
    assert compose(gaussian(1)).epsilon(delta=Fraction(10**30 - 1, 10**30)) == 0
    assert compose(Approximate(ONE, 1)).delta(epsilon=0) == 1


def test_huge_losses_are_not_small() -> None:
    for loss in (
        Pure(10**13),
        Pure(10**300),
        Concentrated(10**300),
        BoundedRange(10**20),
        gaussian(ONE / 10**9),
    ):
        stated = compose(loss)
        assert stated.epsilon(delta="1e-6") > 10**8
        assert stated.delta(epsilon=1) == 1
        assert 0 <= stated.tradeoff("0.01") < Fraction(1, 10**6)
    assert 0.99 < compose(Pure(50)).delta(epsilon=1) < 1


def test_a_sample_under_huge_noise_is_quick() -> None:
    assert repeated(sampled(10**9, "0.01"), 1000).epsilon(delta="1e-6") < Fraction(1, 1000)
