"""The least ε that follows from a loss is that of the conversions that set prices, and never less."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lapwing.audit.stages.claimed_loss import follows, least_epsilon
from lapwing.core.conversions import largest_rho, zcdp_to_epsilon
from lapwing.core.fixed_run import FixedRun
from lapwing.core.gaussian import Gaussian
from lapwing.core.losses import Approximate, Concentrated, GaussianNoise, Pure, SequentialComposition

ONE, DELTA = Fraction(1), Fraction(1, 10**6)
NINTH = Fraction(1, 10**9)


@pytest.mark.parametrize("rho", [Fraction(1, 1000), Fraction(1, 50), Fraction(1), Fraction(30)])
def test_zcdp_is_converted_as_prices_are(rho: Fraction) -> None:
    found = least_epsilon(Concentrated(rho), DELTA)
    assert found is not None
    assert abs(found - zcdp_to_epsilon(rho, DELTA)) < NINTH


@pytest.mark.parametrize("epsilon", ["0.01", "0.5", "1", "7"])
def test_the_largest_rho_of_a_claim_follows_and_more_does_not(epsilon: str) -> None:
    claimed = Fraction(epsilon)
    rho = largest_rho(claimed, DELTA)
    assert follows(Concentrated(rho), claimed, DELTA)
    assert not follows(Concentrated(rho * Fraction(10_001, 10_000)), claimed, DELTA)


def test_pairs_and_their_delta() -> None:
    assert follows(Pure(ONE), ONE, Fraction(0))
    assert not follows(Pure(ONE + NINTH), ONE, Fraction(0))
    both = SequentialComposition((Approximate(ONE, DELTA), Pure(ONE)))
    assert follows(both, Fraction(2), DELTA)
    assert not follows(both, Fraction(2), DELTA / 2)
    assert least_epsilon(both, DELTA / 2) is None


def test_one_gaussian_vector_and_a_fixed_run() -> None:
    noise = Gaussian.for_budget(1, DELTA, l2_squared=9, dimension=1).loss
    assert follows(noise, ONE, DELTA)
    assert not follows(noise, ONE, Fraction(0))
    assert not follows(GaussianNoise(noise.sigma * Fraction(99, 100), noise.l2_squared, 1), ONE, DELTA)
    run = FixedRun.of((noise, 3), delta=DELTA)
    assert follows(run, run.pair[0], DELTA)
    assert not follows(run, run.pair[0] - Fraction(1, 100), DELTA)
