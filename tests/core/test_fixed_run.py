"""Fixed runs: closed forms are never undercut and nearly met; the library's traps are avoided."""

from __future__ import annotations

import builtins
import math
import sys
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import NeighboringRelation, RandomizedResponseDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as library

from lapwing.core import fixed_run
from lapwing.core.conversions import gaussian_epsilon, loss_to_epsilon, rounded_gaussian
from lapwing.core.exact import upper
from lapwing.core.fixed_run import FLOAT_DELTA, FLOAT_DELTA_A_STEP, FixedRun
from lapwing.core.losses import (
    Approximate,
    BoundedRange,
    Concentrated,
    GaussianNoise,
    LaplaceNoise,
    Loss,
    Pure,
    SampledGaussian,
    SequentialComposition,
)
from lapwing.errors import BadParameter, MissingExtra
from support.cases import each
from support.losses import sampled
from support.raised import named

ONE = Fraction(1)
MILLIONTH = Fraction(1, 10**6)


def responses_delta(epsilon0: mpmath.mpf, count: int, epsilon: mpmath.mpf) -> mpmath.mpf:
    """δ at ε of `count` randomized responses at ε₀: the exact binomial sum."""
    p = 1 / (1 + mpmath.exp(-epsilon0))
    total, first = mpmath.mpf(0), max(math.floor((float(epsilon / epsilon0) + count) / 2) - 1, 0)
    term = mpmath.binomial(count, first) * p**first * (1 - p) ** (count - first)
    for k in range(first, count + 1):
        loss = (2 * k - count) * epsilon0
        if loss > epsilon:
            total += term * (1 - mpmath.exp(epsilon - loss))
            if term < total * mpmath.mpf(10) ** -30:
                break
        term *= (p / (1 - p)) * (count - k) / (k + 1)
    return total


def responses_epsilon(epsilon0: float, count: int, delta: Fraction) -> float:
    """The least ε of `count` randomized responses at δ, by bisection on the exact sum."""
    with mpmath.workdps(40):
        e0, d = mpmath.mpf(epsilon0), mpmath.mpf(delta.numerator) / delta.denominator
        low, high = mpmath.mpf(0), count * e0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if responses_delta(e0, count, middle) <= d else (middle, high)
        return float(high)


# Closed forms.


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon0", "count"), [("0.1", 50), ("0.5", 100), ("1", 20), ("0.02", 2000)])
@pytest.mark.parametrize("delta", ["1e-3", "1e-6", "1e-10"])
def test_repeated_randomized_response_is_the_binomial_sum(epsilon0: str, count: int, delta: str) -> None:
    d = Fraction(delta)
    true = responses_epsilon(float(Fraction(epsilon0)), count, d)
    stated = float(FixedRun.of((Pure(Fraction(epsilon0)), count), delta=delta).pair[0])
    assert true <= stated
    assert stated <= true * 1.02


@each(("sigma", "count", "dimension"), [("50", 40, 5), ("200", 900, 1), ("12", 3, 2), ("1000", 1, 1)])
def test_repeated_gaussian_noise_is_one_use_of_narrower_noise(
    sigma: str, count: int, dimension: int
) -> None:
    """k uses at σ have the distributions of one continuous use at σ / √k."""
    s = Fraction(sigma)
    stated = float(FixedRun.of((GaussianNoise(s, ONE, dimension), count), delta="1e-6").pair[0])
    ratio = math.sqrt(count) / float(s)
    low, high = 0.0, 100.0
    for _ in range(80):
        middle = (low + high) / 2
        with mpmath.workdps(30):
            near = mpmath.ncdf(ratio / 2 - middle / ratio)
            true = near - mpmath.exp(middle) * mpmath.ncdf(-ratio / 2 - middle / ratio)
        low, high = (low, middle) if true <= 1e-6 else (middle, high)
    assert high <= stated <= high * 1.02


@pytest.mark.parametrize(("sigma", "count"), [("1/2", 3), ("3", 7), ("10", 1), ("20", 30)])
def test_repeated_discrete_noise_is_the_convolution_of_its_law(sigma: str, count: int) -> None:
    """One number: the losses add up to (2 Σy - k) / 2σ², with Σy from the exact convolution."""
    s = Fraction(sigma)
    reach = math.ceil(12 * s) + 2
    outputs = np.arange(-reach, reach + 1)
    law = np.exp(-((outputs - 1) ** 2) / (2 * float(s) ** 2))
    law /= law.sum()
    sums = np.array([1.0])
    for _ in range(count):
        sums = np.convolve(sums, law)
    losses = (2 * (np.arange(len(sums)) - count * reach) - count) / (2 * float(s) ** 2)

    def true(epsilon: float) -> float:
        return float(np.sum(sums * np.maximum(-np.expm1(np.minimum(epsilon - losses, 0)), 0)))

    run = FixedRun.of((GaussianNoise(s, ONE, 1), count), delta="1e-6")
    stated = float(run.pair[0])
    assert true(stated) <= 1e-6
    assert true(stated * 0.98) > 1e-6
    if count == 1:
        assert run.pair[0] >= gaussian_epsilon(MILLIONTH, s, ONE, 1)


def test_one_laplace_release_has_its_closed_form() -> None:
    """δ at ε for integers d apart, by the direct sum."""
    scale, distance, delta = Fraction(10), 7, Fraction(1, 100)
    stated = FixedRun.of((LaplaceNoise(scale, distance), 1), delta=delta).pair[0]

    def true(epsilon: float) -> float:
        q = math.exp(-1 / float(scale))
        law = [(1 - q) / (1 + q) * q ** abs(k) for k in range(-800, 801)]
        moved = [(1 - q) / (1 + q) * q ** abs(k - distance) for k in range(-800, 801)]
        return sum(max(a - math.exp(epsilon) * b, 0) for a, b in zip(law, moved, strict=True))

    assert true(float(stated)) <= float(delta)
    assert true(float(stated) * 0.98) > float(delta)


@each("split", [(3, 4), (1, 6), (2, 2, 3)])
def test_laplace_noise_on_several_numbers_is_covered_by_one(split: tuple[int, ...]) -> None:
    """The whole distance in one coordinate has the largest δ at every ε (docs/arguments)."""
    q = math.exp(-1 / 4)
    one = [(1 - q) / (1 + q) * q ** abs(k) for k in range(-200, 201)]

    def pairs(distance: int) -> dict[int, float]:
        """The law of the loss, in units of 1/4: |k - d| - |k|."""
        found: dict[int, float] = {}
        for k, p in zip(range(-200, 201), one, strict=True):
            found[abs(k - distance) - abs(k)] = found.get(abs(k - distance) - abs(k), 0.0) + p
        return found

    apart = {0: 1.0}
    for part in split:
        apart_next: dict[int, float] = {}
        for (x, p), (y, r) in ((a, b) for a in apart.items() for b in pairs(part).items()):
            apart_next[x + y] = apart_next.get(x + y, 0.0) + p * r
        apart = apart_next
    together = pairs(sum(split))
    for k in range(40):
        epsilon = sum(split) / 4 * k / 40

        def delta(law: dict[int, float], epsilon: float = epsilon) -> float:
            return sum(p * max(1 - math.exp(epsilon - x / 4), 0) for x, p in law.items())

        assert delta(apart) <= delta(together) + 1e-12


def test_a_sampled_run_beats_every_order() -> None:
    stated = FixedRun.of((sampled(Fraction(1, 100), ONE), 500), delta="1e-6").pair[0]
    by_order = loss_to_epsilon(sampled(Fraction(1, 100), ONE, 500), MILLIONTH)
    assert by_order is not None
    assert by_order * Fraction(7, 10) < stated < by_order


@each(("sigma", "rate"), [("0.5", "0.5"), ("0.6", "0.1"), ("0.8", "0.1"), ("3", "0.25")])
def test_a_sampled_step_on_whole_numbers_is_priced_for_discrete_noise(sigma: str, rate: str) -> None:
    """δ at the stated ε, summed over all outputs in both directions, is at most what was stated."""
    s, q, delta = float(sigma), float(rate), 1e-5
    step = SampledGaussian(Fraction(rate), GaussianNoise(Fraction(sigma), ONE, 1))
    epsilon = float(FixedRun.of((step, 1), delta=str(delta)).pair[0])
    reach = range(-200, 202)
    law = {y: math.exp(-y * y / (2 * s * s)) for y in range(-201, 203)}
    total = sum(law.values())
    without = [law[y] / total for y in reach]
    with_unit = [(1 - q) * law[y] / total + q * law[y - 1] / total for y in reach]
    for one, other in ((without, with_unit), (with_unit, without)):
        found = sum(max(p - math.exp(epsilon) * r, 0) for p, r in zip(one, other, strict=True))
        assert found <= delta * (1 + 1e-9)


def test_what_rounding_to_whole_numbers_costs_is_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a coarse κ the cost is visible: n steps pay n times, in ε and in δ."""
    noise = GaussianNoise(Fraction(100), Fraction(100), 3)
    fine = FixedRun.of((noise, 10), delta="1e-6").pair[0]
    monkeypatch.setattr("lapwing.core.conversions._KAPPA_EXPONENT", 8)
    for name in ("_composed", "_epsilon_at"):  # they remember what they computed with the finer κ
        monkeypatch.setattr(fixed_run, name, getattr(fixed_run, name).__wrapped__)
    paid = upper(rounded_gaussian(noise.sigma, noise.l2_squared, noise.dimension).paid)
    coarse = FixedRun.of((noise, 10), delta="1e-6").pair[0]
    assert paid > Fraction(1, 1000)
    assert coarse > fine + 9 * paid


def test_mixed_steps_cost_more_than_each_and_less_than_their_sum() -> None:
    noise, response = GaussianNoise(Fraction(50), ONE, 1), Pure(Fraction(1, 20))
    both = FixedRun.of((noise, 30), (response, 60), delta="1e-6").pair[0]
    one = FixedRun.of((noise, 30), delta="1e-6").pair[0]
    two = FixedRun.of((response, 60), delta="1e-6").pair[0]
    assert max(one, two) < both < one + two


# What a run is made of.


def test_a_bounded_range_is_priced_as_any_pure_loss() -> None:
    a = FixedRun.of((BoundedRange(Fraction(1, 10)), 46), delta="1e-6")
    b = FixedRun.of((Pure(Fraction(1, 10)), 46), delta="1e-6")
    assert a.pair == b.pair
    assert float(a.renyi(Fraction(9)) or 0) < float(b.renyi(Fraction(9)) or 0)


def test_delta0_is_kept_apart() -> None:
    run = FixedRun.of((Approximate(Fraction(1, 10), MILLIONTH), 46), delta="1e-6")
    assert run.delta0 == 46 * MILLIONTH
    assert run.pair == FixedRun.of((Pure(Fraction(1, 10)), 46), delta="1e-6").pair


def test_the_pure_sum_is_used_where_it_is_better() -> None:
    run = FixedRun.of((Pure(ONE), 2), delta="1e-9")
    assert run.pure == 2
    assert run.pair[0] <= 2
    assert FixedRun.of((Pure(Fraction(1, 10)), 1), delta="1e-9").pair == (Fraction(1, 10), Fraction(0))


def test_renyi_values_add_up_and_need_all_steps() -> None:
    noise = GaussianNoise(Fraction(50), ONE, 1)
    run = FixedRun.of((noise, 30), delta="1e-6")
    assert float(run.renyi(Fraction(5)) or 0) == pytest.approx(30 * 5 / 5000, rel=1e-12)
    assert run.pure is None


def test_a_group_is_a_run_of_group_losses() -> None:
    run = FixedRun.of((GaussianNoise(Fraction(50), ONE, 1), 4), (Pure(Fraction(1, 100)), 3), delta="1e-6")
    group = run.for_group(2)
    assert group.steps[0][0] == GaussianNoise(Fraction(50), Fraction(4), 1)
    assert group.steps[1][0] == Pure(Fraction(1, 50))
    assert group.pair[0] > run.pair[0]


@each("free", [Pure(Fraction(0)), GaussianNoise(Fraction(3), Fraction(0), 1), LaplaceNoise(Fraction(3), 0)])
def test_a_step_that_reveals_nothing_costs_nothing(free: Loss) -> None:
    noise = GaussianNoise(Fraction(50), ONE, 1)
    alone = FixedRun.of((noise, 5), delta="1e-6").pair[0]
    with_free = FixedRun.of((noise, 5), (free, 5), delta="1e-6").pair[0]
    assert abs(with_free - alone) < Fraction(1, 10**6)


# What is refused.


@each("delta", ["0", "1", "1e-11", "-1"])
def test_delta_must_be_reachable_by_floats(delta: str) -> None:
    with pytest.raises(BadParameter, check=named("delta")):
        FixedRun.of((Pure(ONE), 2), delta=delta)


def test_so_many_steps_need_a_larger_delta() -> None:
    with pytest.raises(BadParameter, match="this number of steps"):
        FixedRun.of((Pure(Fraction(1, 1000)), 100_000), delta="1e-10")


@each("count", [0, -1, True])
def test_counts_are_whole_and_positive(count: int) -> None:
    with pytest.raises(BadParameter, check=named("count")):
        FixedRun.of((Pure(ONE), count), delta="1e-6")


def test_a_run_has_steps() -> None:
    with pytest.raises(BadParameter, check=named("steps")):
        FixedRun.of(delta="1e-6")


@each("loss", [Concentrated(ONE), SequentialComposition((Pure(ONE),))])
def test_losses_without_a_distribution_are_refused(loss: Loss) -> None:
    with pytest.raises(BadParameter, match="no privacy loss distribution"):
        FixedRun.of((loss, 2), delta="1e-6")


def test_noise_too_narrow_for_several_dimensions_is_refused() -> None:
    with pytest.raises(BadParameter, check=named("sigma")):
        FixedRun.of((GaussianNoise(ONE, ONE, 2), 2), delta="1e-6")


def test_a_missing_extra_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("dp_accounting"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.delitem(sys.modules, "dp_accounting.pld", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install 'lapwing\[pld\]'") as caught:
        FixedRun.of((Pure(ONE), 2), delta="1e-6")
    assert caught.value.extra == "pld"


# The library's traps.


def test_the_librarys_accountant_miscounts_randomized_response_and_we_do_not() -> None:
    """100 x randomized response at 0.5: about 33, not 0.5. If this fails the bug may be mended."""
    flip = 2 / (1 + math.exp(0.5))  # replaced by a fair coin with this probability
    accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE)
    accountant.compose(RandomizedResponseDpEvent(noise_parameter=flip, num_buckets=2), 100)
    theirs = accountant.get_epsilon(1e-6)
    true = responses_epsilon(0.5, 100, MILLIONTH)
    ours = float(FixedRun.of((Pure(Fraction(1, 2)), 100), delta="1e-6").pair[0])
    assert theirs == pytest.approx(0.5, abs=0.01)
    assert true == pytest.approx(33, abs=1)
    assert true <= ours <= 1.02 * true


@pytest.mark.parametrize(("epsilon0", "count"), [("0.01", 1000), ("0.1", 1000), ("0.01", 20_000)])
def test_float_errors_stay_within_what_is_paid_for_them(epsilon0: str, count: int) -> None:
    """On the grid a response has no discretisation error: what is left is floating point."""
    e0 = float(epsilon0)
    found = library.from_discrete_laplace_mechanism(
        e0, 1, value_discretization_interval=1e-4, use_connect_dots=True
    ).self_compose(count)
    paid = float(FLOAT_DELTA + count * FLOAT_DELTA_A_STEP)
    for z in (2, 4, 6):
        epsilon = count * math.tanh(e0 / 2) * e0 + z * e0 * math.sqrt(count)
        with mpmath.workdps(40):
            true = responses_delta(mpmath.mpf(epsilon0), count, mpmath.mpf(epsilon))
            assert found.get_delta_for_epsilon(epsilon) + paid >= true


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon0", "count"), [("0.01", 100_000), ("0.001", 1_000_000), ("1", 2000)])
def test_float_errors_of_very_long_runs_stay_within_what_is_paid_for_them(
    epsilon0: str, count: int
) -> None:
    test_float_errors_stay_within_what_is_paid_for_them(epsilon0, count)
