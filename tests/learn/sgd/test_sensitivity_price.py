"""A run costs its price, and ends within its ε."""

from __future__ import annotations

from fractions import Fraction

import pytest
from dp_accounting.pld import privacy_loss_distribution

from lapwing.core.conversions import best_renyi_epsilon
from lapwing.errors import BadParameter
from lapwing.learn.sgd import GradientSensitivity, step_schedule

GRID = GradientSensitivity.of(1, parameters=1000, page=64, expected_batch=100)
DELTA = Fraction(1, 10**5)


def test_the_noise_for_given_steps_is_about_the_least() -> None:
    found = step_schedule(GRID, epsilon="0.5", delta=DELTA, rate="0.05", steps=50, noise=None)
    assert Fraction(497, 1000) < found.epsilon() <= Fraction(1, 2)
    other = privacy_loss_distribution.from_gaussian_mechanism(
        float(found.noise), sampling_prob=0.05, use_connect_dots=True
    ).self_compose(50)
    assert float(found.epsilon()) == pytest.approx(other.get_epsilon_for_delta(1e-5), rel=1e-3)
    assert found.epsilon() <= best_renyi_epsilon(found.loss(), DELTA)


def test_the_steps_for_given_noise_stay_within_epsilon_and_one_more_lot_does_not() -> None:
    found = step_schedule(GRID, epsilon="0.2", delta=DELTA, rate="0.05", steps=None, noise=8)
    assert found.epsilon() <= Fraction(1, 5)
    more = step_schedule(GRID, epsilon="0.4", delta=DELTA, rate="0.05", steps=None, noise=8)
    assert more.steps > 2 * found.steps


def test_what_is_still_to_be_done_costs_less_than_all() -> None:
    found = step_schedule(GRID, epsilon="0.5", delta=DELTA, rate="0.05", steps=50, noise=None)
    assert found.loss(done=30).pair[0] < found.loss().pair[0]
    assert found.loss(done=30).steps[0][1] == 20


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 10, "noise": 1},
        {"steps": None, "noise": None},
        {"steps": 0},
        {"rate": 0},
        {"rate": 2},
        {"epsilon": 0},
        {"epsilon": float("nan")},
        {"delta": 0},
        {"steps": None, "noise": "0.01"},
        {"steps": None, "noise": 1, "epsilon": "1e-6"},
    ],
)
def test_bad_parameters_are_refused(wrong: dict[str, object]) -> None:
    right = {"epsilon": 1, "delta": DELTA, "rate": "0.1", "steps": 10, "noise": None}
    with pytest.raises(BadParameter):
        step_schedule(GRID, **{**right, **wrong})  # type: ignore[arg-type]
