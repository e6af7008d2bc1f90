"""The auditor finds what is broken, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import beta

from lapwing.audit import Case, attack
from lapwing.audit.attack import proportion_at_least, proportion_at_most
from lapwing.core.laplace import Laplace
from lapwing.core.noise import discrete_laplace, uniform_int
from lapwing.core.randomized_response import RandomizedResponse

ERROR = 1e-9  # false-alarm rate of every verdict below
ONE, NONE = Fraction(1), Fraction(0)


def test_the_attack_is_sharp_where_the_claim_is_tight() -> None:
    """Randomized response and the Laplace count reach their ε; 200,000 draws must show 95 % of it."""
    coins, count = RandomizedResponse.two_coins(), Laplace.for_epsilon(1, l1=1)
    for case in (
        Case("two coins", RandomizedResponse, coins.loss.epsilon, NONE,
             lambda size: coins.sample([0] * size), lambda size: coins.sample([1] * size)),
        Case("Laplace count", Laplace, ONE, NONE,
             lambda size: count.sample([0] * size), lambda size: count.sample([1] * size)),
    ):  # fmt: skip
        verdict = attack(case, draws=200_000, error=1e-6)
        assert verdict.holds
        assert verdict.at_least > 0.95 * verdict.claimed


def _shifted(noise: Callable[[int], NDArray[np.int64]]) -> Case:
    return Case("broken", Laplace, ONE, NONE, noise, lambda size: noise(size) + 1)


def test_noise_at_half_the_scale_is_caught() -> None:
    assert not attack(_shifted(lambda size: discrete_laplace("0.5", size)), draws=20_000, error=ERROR).holds


def test_noise_a_tenth_too_small_is_caught() -> None:
    """A true ε of 1.1: 46,000 draws are needed at error 1e-6 with the best event known."""
    assert not attack(_shifted(lambda size: discrete_laplace("0.909", size)),
                      draws=400_000, error=1e-6).holds  # fmt: skip


def test_bounded_noise_is_caught() -> None:
    assert not attack(_shifted(lambda size: uniform_int(-5, 6, size)), draws=20_000, error=ERROR).holds


def test_float_noise_is_caught_by_its_low_bits() -> None:
    """N1: whether y · 2⁵³ is whole tells 0 from 1 under naive float noise at a claimed ε = 1."""
    generator = np.random.default_rng(1)

    def low_bits(value: float) -> Callable[[int], NDArray[np.int64]]:
        def draw(size: int) -> NDArray[np.int64]:
            noisy = value + generator.laplace(0, 1, size)
            told: NDArray[np.int64] = (noisy * 2.0**53 % 1 != 0).astype(np.int64)
            return told

        return draw

    assert not attack(
        Case("naive", Laplace, ONE, NONE, low_bits(0), low_bits(1)), draws=40_000, error=ERROR
    ).holds


def test_bounds_on_proportions_are_those_of_clopper_and_pearson() -> None:
    for hits, trials in ((0, 10), (3, 10), (10, 10), (250, 1000)):
        for error in (0.05, 1e-6):
            upper = 1.0 if hits == trials else beta.ppf(1 - error, hits + 1, trials - hits)
            low = 0.0 if hits == 0 else beta.ppf(error, hits, trials - hits + 1)
            assert proportion_at_most(hits, trials, error) == pytest.approx(upper, rel=1e-6)
            assert proportion_at_least(hits, trials, error) == pytest.approx(low, abs=1e-8)


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_is_said() -> None:
    """At error 0.2 on a tight claim: of 150 attacks, 55 or more would alarm with probability 1e-6."""
    coins = RandomizedResponse.two_coins()

    def report(answer: int) -> Callable[[int], NDArray[np.int64]]:
        return lambda size: coins.sample(np.full(size, answer))

    case = Case("tight", RandomizedResponse, coins.loss.epsilon, NONE, report(0), report(1))
    alarms = sum(not attack(case, draws=200, error=0.2).holds for _ in range(150))
    assert alarms < 55


def test_an_event_is_never_counted_on_the_draws_that_chose_it() -> None:
    """Outputs that are all different tell nothing; counted where they were chosen, they would."""
    case = Case(
        "noise",
        Laplace,
        ONE,
        NONE,
        lambda n: uniform_int(0, 1 << 60, n),
        lambda n: uniform_int(0, 1 << 60, n),
    )
    assert attack(case, draws=4_000, error=1e-3).at_least == 0
