"""Bounds of float errors hold, and cost little."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from lapwing.errors import BadParameter
from lapwing.learn.sgd.randomness import CompensatedSum
from lapwing.learn.sgd.sensitivity import DOUBLE, SINGLE, GradientSensitivity, roundoff_bound
from support.raised import named


def test_floats_cost_less_than_two_percent_and_the_grid_next_to_nothing() -> None:
    for parameters, page, batch in ((1000, 64, 256), (400_000, 256, 256), (10**7, 64, 4096)):
        found = GradientSensitivity.of(1, parameters=parameters, page=page, expected_batch=batch)
        assert 0 < found.kappa < Fraction(2, 100)
        assert found.distance * found.step < 1 + found.kappa + Fraction(1, 10**4)
        assert found.distance * found.step > 1


def test_large_batches_are_summed_in_double_precision() -> None:
    assert GradientSensitivity.of(1, parameters=10, page=64, expected_batch=256).single_up_to > 256
    assert GradientSensitivity.of(1, parameters=10, page=64, expected_batch=10**5).single_up_to == 0


def test_the_step_is_a_power_of_two() -> None:
    step = GradientSensitivity.of("0.3", parameters=12345, page=8, expected_batch=10).step
    assert step.numerator == 1
    assert step.denominator & (step.denominator - 1) == 0


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_sums_in_any_order_err_by_at_most_gamma(kind: type) -> None:
    draws = np.random.default_rng(1)
    roundoff = SINGLE if kind is np.float32 else DOUBLE
    for count in (3, 30, 300):
        values: np.ndarray = (draws.random(count) ** 9).astype(kind)
        true = sum((Fraction(float(value)) for value in values), Fraction(0))
        for _ in range(20):
            total = kind(0)
            for value in draws.permutation(values):
                total = kind(total + value)
            assert abs(Fraction(float(total)) - true) <= roundoff_bound(count, roundoff) * true


@pytest.mark.parametrize("clip", [0, -1, 1e-9, 1e9, float("nan"), float("inf")])
def test_clips_out_of_reach_are_refused(clip: float) -> None:
    with pytest.raises(BadParameter, check=named("clip")):
        GradientSensitivity.of(clip, parameters=10, page=8, expected_batch=10)


def test_a_page_beyond_all_bounds_is_refused() -> None:
    with pytest.raises(BadParameter, check=named("page")):
        GradientSensitivity.of(1, parameters=10, page=2**53, expected_batch=10)


def test_noise_is_a_multiple_of_what_a_unit_moves() -> None:
    found = GradientSensitivity.of(1, parameters=10, page=8, expected_batch=10)
    mechanism = found.mechanism(Fraction(3, 2))
    assert mechanism.loss.concentrated.rho == Fraction(1, 2) / Fraction(9, 4)
    assert mechanism.dimension == 10


def test_sums_with_care_err_by_less_than_their_price_and_cut_sums_stay_whole() -> None:
    """2^22 and 2^34 units cost less than single precision does; beyond, coordinates are cut."""
    found = GradientSensitivity.of(1, parameters=1000, page=64, expected_batch=256)
    assert found.sum_error == 2 * found._off(found.single_up_to, SINGLE)
    many = GradientSensitivity(Fraction(1), 1000, 64, 0)
    assert 0 < many.sum_error < Fraction(1, 1000)
    total = CompensatedSum(torch.zeros(3, dtype=torch.float64))
    total.next().copy_(torch.tensor([1e30, -1e30, 3 * float(found.step)]))
    assert (total.sum(found) / float(found.step)).tolist() == [found.largest, -found.largest, 3]


def test_what_is_lost_in_adding_is_kept() -> None:
    total = CompensatedSum(torch.zeros(2, dtype=torch.float64))
    for _ in range(10):
        total.next().copy_(torch.tensor([1e16, 1.0]))
        total.next().copy_(torch.tensor([1.0, 2.0**-60]))
        total.next().copy_(torch.tensor([-1e16, 0.0]))
    assert total.sum(GradientSensitivity.of(1, parameters=2, page=64, expected_batch=256)).tolist() == [
        10.0,
        10.0 + 10 * 2.0**-60,
    ]
