"""Fitted models are the nearest ones to the noisy counts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from lapwing.publish.models.domain import Clique, Domain, summed_axes
from lapwing.publish.models.graphical_model import Floats, NoisyMarginal, combined, estimated_total, fit

DOMAIN = Domain(("a", "b", "c"), (2, 3, 4))
MEASURED: list[tuple[Clique, float]] = [(("a", "b"), 2.0), (("b", "c"), 5.0), (("a", "c"), 3.0)]


def noisy(seed: int) -> list[NoisyMarginal]:
    draws = np.random.default_rng(seed)
    joint = draws.dirichlet(np.full(24, 0.5)).reshape(DOMAIN.sizes) * 500
    return [
        NoisyMarginal(
            clique,
            joint.sum(axis=summed_axes(DOMAIN.columns, clique))
            + draws.normal(0, sigma, DOMAIN.shape(clique)),
            sigma,
        )
        for clique, sigma in MEASURED
    ]


def distance(joint: Floats, measured: list[NoisyMarginal]) -> float:
    tables = joint.reshape(DOMAIN.sizes)
    return sum(
        float(((tables.sum(axis=summed_axes(DOMAIN.columns, m.clique)) - m.counts) ** 2).sum()) / m.sigma**2
        for m in measured
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_fit_is_as_near_as_the_best_table_of_all(seed: int) -> None:
    measured = noisy(seed)
    total = estimated_total(measured)
    model = fit(DOMAIN, measured, steps=20_000, total=total)
    best = optimize.minimize(  # over all tables of that total, whether or not they are graphical models
        lambda x: distance(total * np.exp(x) / np.exp(x).sum(), measured), np.zeros(24), tol=1e-12
    )
    found = distance(model.marginal(DOMAIN.columns), measured)
    assert found <= best.fun + 1e-3 * abs(best.fun)


def test_a_fit_goes_on_from_earlier_potentials() -> None:
    measured = noisy(7)
    first = fit(DOMAIN, measured[:2], steps=300)
    warm = fit(DOMAIN, measured, steps=1, start=first.potentials)
    cold = fit(DOMAIN, measured, steps=1)
    assert distance(warm.marginal(DOMAIN.columns), measured) < distance(
        cold.marginal(DOMAIN.columns), measured
    )


def test_every_step_lowers_the_distance() -> None:
    measured = noisy(8)
    seen = [
        distance(fit(DOMAIN, measured, steps=steps, total=500).marginal(DOMAIN.columns), measured)
        for steps in range(12)
    ]
    assert seen == sorted(seen, reverse=True)


def test_repeated_marginals_are_averaged_by_inverse_variance() -> None:
    one = NoisyMarginal(("a",), np.array([10.0, 20.0]), 1.0)
    other = NoisyMarginal(("a",), np.array([20.0, 10.0]), 2.0)
    [both] = combined([one, other])
    np.testing.assert_allclose(both.counts, [12.0, 18.0])
    assert both.sigma == pytest.approx((1 + 1 / 4) ** -0.5)


def test_a_total_is_at_least_one() -> None:
    assert estimated_total([NoisyMarginal(("a",), np.array([-10.0, 2.0]), 1.0)]) == 1.0
