"""Gaussian: Rényi divergence of the continuous law, δ at ε never more than said, never purely private."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from lapwing.audit.laws import SLACK, Law, dec, gaussian, independent, log_ratio, middle
from lapwing.core.gaussian import Gaussian
from support.cases import each
from support.exact_laws import excess, renyi
from support.laws import follows
from support.streams import SeededStream

SIGMAS = [Fraction(1, 2), Fraction(1), Fraction(23, 10), Fraction(6)]


def shifted(sigma: Fraction, centre: int) -> Law:
    reach = int(sigma * 14) + 8
    return gaussian(sigma, centre, -reach, reach)


@each("sigma", SIGMAS)
@each("distance", [1, 2, 3])
def test_divergence_is_that_of_the_continuous_law(sigma: Fraction, distance: int) -> None:
    loss = Gaussian(sigma, Fraction(distance**2), 1).loss
    reach = int(sigma * 17) + 60
    one, other = gaussian(sigma, distance, -reach, reach), gaussian(sigma, 0, -reach, reach)
    for order in (Fraction(101, 100), Fraction(3, 2), Fraction(2), Fraction(5), Fraction(17)):
        claimed = middle(loss.renyi(order))
        assert abs(claimed - dec(order * distance**2 / (2 * sigma * sigma))) < SLACK
        found = renyi(one, other, order)
        assert found <= claimed + SLACK
        if order.denominator == 1:
            assert found >= claimed - SLACK, "for whole orders the normaliser cancels exactly"


@each("sigma", [Fraction(1), Fraction(23, 10)])
@each("shift", [(1, 1), (2, 1), (-2, 2)])
def test_divergence_of_vectors_depends_on_the_l2_distance_only(
    sigma: Fraction, shift: tuple[int, int]
) -> None:
    squared = sum(x * x for x in shift)
    loss = Gaussian(sigma, Fraction(squared), 2).loss
    apart = [renyi(shifted(sigma, x), shifted(sigma, 0), 2) for x in shift]
    assert abs(sum(apart) - middle(loss.renyi(Fraction(2)))) < Decimal("1e-20")


@each("sigma", SIGMAS)
@each("distance", [1, 2])
def test_delta_of_scalars_is_the_exact_sum_over_outputs(sigma: Fraction, distance: int) -> None:
    mechanism = Gaussian(sigma, Fraction(distance**2), 1)
    for epsilon in ("0.01", "0.5", "1", "3"):
        claimed = dec(mechanism.delta(epsilon))
        found = [
            excess(shifted(sigma, 0), shifted(sigma, d), Fraction(epsilon)) for d in range(distance + 1)
        ]
        assert max(found) <= claimed + SLACK
        assert max(found) >= claimed - SLACK, "for scalars the claim is exact"


@each(
    ("sigma", "shift"),
    [
        (Fraction(3, 2), (1, 1)),
        (Fraction(2), (1, 0)),
        (Fraction(2), (2, 1)),
        (Fraction(3), (1, 1)),
        (Fraction(3), (2, 2)),
    ],
)
def test_delta_of_vectors_covers_the_double_sum_over_outputs(
    sigma: Fraction, shift: tuple[int, int]
) -> None:
    squared = sum(x * x for x in shift)
    mechanism = Gaussian(sigma, Fraction(squared), 2)
    reach = int(sigma * 9) + 2
    sides = [(gaussian(sigma, 0, -reach, reach), gaussian(sigma, x, -reach, reach)) for x in shift]
    at_home, away = (independent(sides[0][k], sides[1][k]) for k in (0, 1))
    for epsilon in ("0.2", "1", "2"):
        found = excess(at_home, away, Fraction(epsilon))
        claimed = dec(mechanism.delta(epsilon))
        assert found <= claimed
        assert claimed < Decimal(1)


@each("delta", ["1e-3", "1e-9"])
@each("epsilon", ["0.5", "2"])
def test_noise_for_a_budget_keeps_it_and_a_little_less_noise_would_not(epsilon: str, delta: str) -> None:
    mechanism = Gaussian.for_budget(epsilon, delta, l2_squared=1, dimension=1)
    kept = excess(shifted(mechanism.sigma, 0), shifted(mechanism.sigma, 1), Fraction(epsilon))
    assert kept <= dec(Fraction(delta))
    less = mechanism.sigma * Fraction(9999, 10000)
    assert excess(shifted(less, 0), shifted(less, 1), Fraction(epsilon)) > dec(Fraction(delta))


@each("rho", ["0.001", "0.5", "3"])
def test_noise_for_rho_costs_at_most_rho(rho: str) -> None:
    mechanism = Gaussian.for_rho(rho, l2_squared=2, dimension=3)
    assert mechanism.loss.concentrated.rho <= Fraction(rho)
    assert 1 / (mechanism.sigma - Fraction(1, 10**6)) ** 2 > Fraction(rho)


def test_epsilon_and_delta_are_inverse_and_rounded_to_the_safe_side() -> None:
    mechanism = Gaussian(Fraction(4), Fraction(1), 1)
    epsilon = mechanism.epsilon("1e-6")
    assert mechanism.delta(epsilon) <= Fraction(1, 10**6)
    assert mechanism.delta(epsilon - Fraction(1, 10**9)) > Fraction(1, 10**6)


def test_no_epsilon_is_large_enough_for_gaussian_noise_to_be_purely_private() -> None:
    sigma = Fraction(1)
    ratios = [log_ratio(gaussian(sigma, 0, k, k), gaussian(sigma, 1, k, k)) for k in (10, 100, 1000)]
    assert [round(ratio, 6) for ratio in ratios] == [Decimal("9.5"), Decimal("99.5"), Decimal("999.5")]
    assert Gaussian(sigma, Fraction(1), 1).loss.pure is None


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_sampler_follows_the_law_that_was_compared(
    sigma: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(62))
    drawn = Gaussian(sigma, Fraction(1), 200_000).sample(np.full(200_000, -3))
    reach = int(sigma * 10) + 3
    law = gaussian(sigma, -3, -3 - reach, -3 + reach)
    follows(drawn, [law[k] for k in law], first=-3 - reach)
