"""The error bound of marginals that were not chosen holds as often as it says."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from lapwing.core.gaussian import Gaussian
from lapwing.core.selection import Exponential
from lapwing.publish.last_choice import LastChoice
from lapwing.publish.methods import rounded_to_grid
from lapwing.publish.models.domain import Domain
from lapwing.publish.models.fitting import NoisyMarginal, fit
from lapwing.publish.models.marginal_source import GRID, Candidate

DOMAIN = Domain(("a", "b", "c"), (2, 3, 4))
SIGMA, EPSILON = Fraction(5), Fraction(1, 2)


def test_all_bounds_hold_at_once() -> None:
    """Truths far from the model and near to it; σ and ε at which both noises matter."""
    random = np.random.default_rng(3)
    missed = 0
    for _ in range(100):
        truth = random.multinomial(400, random.dirichlet(np.full(24, 0.3))).reshape(2, 3, 4)
        start = fit(DOMAIN, [NoisyMarginal(("a",), truth.sum(axis=(1, 2)).astype(float), 1.0)], steps=50)
        cliques = [("a", "b"), ("a", "c"), ("b", "c"), ("c",)]
        exact = {
            clique: truth.sum(axis=tuple(k for k, name in enumerate("abc") if name not in clique))
            for clique in cliques
        }
        candidates = [
            Candidate(clique, rounded_to_grid(start.marginal(clique)), len(clique), 7 * len(clique))
            for clique in cliques
        ]
        scores = [
            one.weight * (int(np.abs(GRID * exact[one.clique] - one.expected).sum()) - one.penalty)
            for one in candidates
        ]
        chosen = candidates[Exponential(EPSILON, Fraction(GRID * 2)).sample(scores)]
        counts = exact[chosen.clique]
        noisy = Gaussian(SIGMA, Fraction(1), counts.size).sample(counts.ravel()).reshape(counts.shape)
        measured = NoisyMarginal(chosen.clique, noisy.astype(float), float(SIGMA))
        final = fit(DOMAIN, [measured], steps=50)
        bounds = LastChoice(tuple(candidates), measured, EPSILON, 1).bounds(final)
        assert set(bounds) == set(cliques) - {chosen.clique}
        missed += any(
            np.abs(final.marginal(clique) - exact[clique]).sum() > bound for clique, bound in bounds.items()
        )
    assert missed <= 12  # 5 expected at most; P[more than 12] is below 0.001


def test_the_bound_is_the_sum_of_its_parts() -> None:
    """Without noise and with a sure choice, only the rounding of the model is left."""
    measured = NoisyMarginal(("a",), np.array([30.0, 10.0]), 1e-9)
    final = fit(DOMAIN, [NoisyMarginal(("a", "b"), np.full((2, 3), 20 / 3), 1.0)], steps=200)
    candidates = (
        Candidate(("a",), np.array([30 * GRID, 10 * GRID])),
        Candidate(("b",), rounded_to_grid(final.marginal(("b",)))),
    )
    [(clique, bound)] = LastChoice(candidates, measured, Fraction(10**9), 1).bounds(final).items()
    assert clique == ("b",)
    assert 0 <= bound < 3 / GRID  # the model's rounding to the grid
