"""Events of dp-accounting: what they say as losses, beside its own accountants; what is refused by name."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from lapwing.core.losses import Repeated
from lapwing.errors import BadParameter
from lapwing.losses import Pure, Relation, StatedLoss, compose, from_dp_event, poisson_sampled
from support.cases import each

ADD_REMOVE, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE
GAUSSIAN, LAPLACE = dp.GaussianDpEvent(4.0), dp.LaplaceDpEvent(8.0)


def read(event: Any, relation: Relation = ADD_REMOVE) -> StatedLoss:
    return from_dp_event(event, relation=relation)


@each(
    "event",
    [
        GAUSSIAN,
        LAPLACE,
        dp.SelfComposedDpEvent(GAUSSIAN, 10),
        dp.ComposedDpEvent([GAUSSIAN, dp.SelfComposedDpEvent(LAPLACE, 3), dp.NoOpDpEvent()]),
        dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(1.0)), 200),
        dp.PoissonSampledDpEvent(0.1, dp.ComposedDpEvent([GAUSSIAN, GAUSSIAN])),
    ],
)
@each("delta", [1e-6, 1e-2])
def test_epsilon_is_not_below_the_tight_one_nor_above_that_of_renyi_orders(
    event: Any, delta: float
) -> None:
    found = float(read(event).epsilon(delta=delta))
    assert found <= RdpAccountant().compose(event).get_epsilon(delta) * 1.05
    if not isinstance(event, dp.PoissonSampledDpEvent):  # that of compositions: its PLD accountant has none
        assert found >= PLDAccountant().compose(event).get_epsilon(delta) * (1 - 1e-4)


def test_the_distribution_of_a_gaussian_event_is_that_of_continuous_noise() -> None:
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(1.0)), 100)
    tight = PLDAccountant().compose(event).get_epsilon(1e-6)
    found = float(read(event).epsilon_by_distribution(delta="1e-6"))
    assert found == pytest.approx(tight, rel=1e-3)
    assert found >= tight * (1 - 1e-5)


def test_numbers_of_numpy_are_numbers_and_do_not_overflow() -> None:
    assert read(dp.GaussianDpEvent(np.float32(4))) == read(GAUSSIAN)
    assert read(dp.GaussianDpEvent(np.int64(2**45))) == read(dp.GaussianDpEvent(2**45))
    assert read(dp.SelfComposedDpEvent(LAPLACE, np.int8(100))) == read(dp.SelfComposedDpEvent(LAPLACE, 100))


def test_each_kind_has_the_loss_that_its_definition_gives() -> None:
    assert read(dp.LaplaceDpEvent(10)).epsilon(delta=0) == Fraction(1, 10)
    assert read(dp.DiscreteLaplaceDpEvent(0.25, 3)).epsilon(delta=0) == Fraction(3, 4)
    assert read(dp.GaussianDpEvent(0.5)).rho() == 2
    assert read(dp.GaussianDpEvent(2.0**-20)).rho() == 2**39
    assert read(dp.ZCDpEvent(0.125)).rho() == Fraction(1, 8)
    assert read(dp.NoOpDpEvent()).epsilon(delta=0) == 0
    assert read(dp.SelfComposedDpEvent(LAPLACE, 0)).epsilon(delta=0) == 0
    assert read(dp.PoissonSampledDpEvent(0, LAPLACE)).epsilon(delta=0) == 0
    sampled = poisson_sampled(Pure("0.125"), rate="0.5", relation=ADD_REMOVE)
    assert read(dp.PoissonSampledDpEvent(0.5, LAPLACE)) == compose(sampled)


def test_repeated_randomized_response_counts_each_time() -> None:
    """The PLD accountant of dp-accounting 0.6 ignores the count, and reports one report for a hundred."""
    event = dp.RandomizedResponseDpEvent(noise_parameter=0.5, num_buckets=2)
    one = read(event, REPLACE)
    assert 0 <= float(one.epsilon(delta=0)) - math.log(3) < 1e-15
    many = read(dp.SelfComposedDpEvent(event, 100), REPLACE)
    assert many.epsilon(delta=0) == 100 * one.epsilon(delta=0)
    assert many.loss == compose(Repeated(one.loss.parts[0], 100)).loss  # type: ignore[attr-defined]
    assert many.epsilon_by_distribution(delta="1e-6") > 33


def test_an_event_is_about_the_relation_that_it_holds_for() -> None:
    response = dp.RandomizedResponseDpEvent(0.5, 2)
    sampled = dp.PoissonSampledDpEvent(0.1, GAUSSIAN)
    for event, relation in (
        (response, ADD_REMOVE),
        (sampled, REPLACE),
        (dp.ComposedDpEvent([response, sampled]), ADD_REMOVE),
        (dp.ComposedDpEvent([response, sampled]), REPLACE),
        (GAUSSIAN, None),
        (GAUSSIAN, "replace"),
    ):
        with pytest.raises(BadParameter) as caught:
            from_dp_event(event, relation=relation)  # type: ignore[arg-type]
        assert caught.value.name == "relation"


class LouderGaussian(dp.GaussianDpEvent):  # type: ignore[misc]
    """A subclass may say anything."""


UNKNOWN = [
    dp.NonPrivateDpEvent(),
    dp.UnsupportedDpEvent(),
    dp.SampledWithReplacementDpEvent(100, 10, GAUSSIAN),
    dp.SampledWithoutReplacementDpEvent(100, 10, GAUSSIAN),
    dp.SingleEpochTreeAggregationDpEvent(1.0, 4),
    dp.RepeatAndSelectDpEvent(GAUSSIAN, 2.0, 1.0),
    dp.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5]),
    LouderGaussian(1.0),
    Pure(1),
    "GaussianDpEvent",
    None,
]


@each("which", range(len(UNKNOWN)))
def test_an_unknown_event_is_refused_by_name_also_inside_others(which: int) -> None:
    event: Any = UNKNOWN[which]
    for wrapped in (event, dp.ComposedDpEvent([LAPLACE, event]), dp.SelfComposedDpEvent(event, 2)):
        with pytest.raises(BadParameter) as caught:
            read(wrapped)
        assert type(event).__name__ in caught.value.why


@each(
    "event",
    [
        dp.GaussianDpEvent(0),
        dp.GaussianDpEvent(-1),
        dp.GaussianDpEvent(math.nan),
        dp.GaussianDpEvent(math.inf),
        dp.GaussianDpEvent("loud"),
        dp.LaplaceDpEvent(0),
        dp.DiscreteLaplaceDpEvent(0.5, 1.5),
        dp.DiscreteLaplaceDpEvent(math.nan, 1),
        dp.ZCDpEvent(-1),
        dp.ZCDpEvent(1, xi=0.1),
        dp.SelfComposedDpEvent(LAPLACE, -1),
        dp.SelfComposedDpEvent(LAPLACE, 1.5),
        dp.SelfComposedDpEvent(LAPLACE, math.inf),
        dp.PoissonSampledDpEvent(1.5, LAPLACE),
        dp.PoissonSampledDpEvent(-0.1, LAPLACE),
    ],
)
def test_parameters_that_promise_nothing_are_refused(event: Any) -> None:
    with pytest.raises(BadParameter):
        read(event)


@each(("noise", "buckets"), [(0, 2), (1.1, 2), (math.nan, 2), (0.5, 0)])
def test_a_response_that_hides_nothing_is_refused(noise: float, buckets: int) -> None:
    with pytest.raises(BadParameter):
        read(dp.RandomizedResponseDpEvent(noise, buckets), REPLACE)


def test_events_that_are_nested_too_deep_are_refused() -> None:
    event: Any = LAPLACE
    for _ in range(60):
        event = dp.SelfComposedDpEvent(event, 1)
    with pytest.raises(BadParameter):
        read(event)
