"""δ at small ε: never too small, and not far above."""

from __future__ import annotations

from fractions import Fraction

import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from lapwing.core.conversions import gaussian_delta
from lapwing.core.fixed_run import FixedRun
from lapwing.core.gaussian import Gaussian
from lapwing.core.losses import (
    GaussianNoise,
    ParallelComposition,
    Pure,
    Repeated,
    SampledGaussian,
    SequentialComposition,
)
from lapwing.errors import BadParameter
from lapwing.learn.repetition import PoissonRuns, Repetition, delta_at

MILLIONTH = Fraction(1, 10**6)
BASE = Gaussian.for_budget(1, MILLIONTH, l2_squared=1 << 40, dimension=1).loss
WIDE = GaussianNoise(Fraction(2 << 20), Fraction(1 << 40), 1)  # noise of twice what a unit moves
SAMPLED = FixedRun.of((SampledGaussian(Fraction(1, 10), WIDE), 30), delta=MILLIONTH)


def test_the_profile_of_gaussian_noise_is_at_least_the_exact_one_and_close() -> None:
    for epsilon in (Fraction(1, 100), Fraction(1, 10), Fraction(1)):
        exact = gaussian_delta(epsilon, BASE.sigma, BASE.l2_squared, 1)
        found = delta_at(BASE, epsilon)
        assert exact <= found <= exact * Fraction(1001, 1000) + Fraction(1, 10**15)


def test_profiles_of_several_noises_are_those_of_one_wider_apart() -> None:
    epsilon, four = Fraction(1, 10), GaussianNoise(BASE.sigma, 4 * BASE.l2_squared, 1)
    alone = delta_at(four, epsilon)
    for loss in (
        Repeated(BASE, 4),
        SequentialComposition((BASE, Repeated(BASE, 3))),
        FixedRun.of((BASE, 4), delta=MILLIONTH),
        ParallelComposition((BASE, Repeated(BASE, 4))),
    ):
        assert float(delta_at(loss, epsilon)) == pytest.approx(float(alone), rel=1e-6)


def test_a_profile_that_says_nothing_says_one() -> None:
    assert delta_at(GaussianNoise(Fraction(1, 2), Fraction(1), 1), Fraction(1)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.016, 0.07, 0.3, 0.6])
def test_the_profile_of_a_sampled_run_is_at_least_the_exact_one_and_close(epsilon: float) -> None:
    """Beside dp-accounting's own distribution."""
    law = from_gaussian_mechanism(2.0, sampling_prob=0.1, value_discretization_interval=1e-3)
    exact = law.self_compose(30).get_delta_for_epsilon(epsilon)
    found = float(delta_at(SAMPLED, Fraction(epsilon)))
    assert exact * 0.99 <= found <= 1.25 * exact + 0.002


@pytest.mark.slow
def test_far_out_the_last_known_delta_serves() -> None:
    assert delta_at(SAMPLED, Fraction(10)) == Fraction(1, 256)


@pytest.mark.slow
def test_poisson_runs_of_sampled_training_have_a_price() -> None:
    repetition = Repetition(SAMPLED, PoissonRuns(Fraction(5)), MILLIONTH, padded=True)
    assert SAMPLED.pair[0] < repetition.loss.epsilon < 2 * SAMPLED.pair[0]
    assert repetition.most is not None
    assert repetition.most < 30


def test_other_losses_have_no_profile() -> None:
    with pytest.raises(BadParameter):
        delta_at(Pure(Fraction(1)), Fraction(1))
