"""The bound of the last choice holds for every marginal that was not chosen."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lapwing.core.gaussian import Gaussian
from lapwing.core.selection import Exponential
from lapwing.publish.measured.private_marginals import GRID, Candidate
from lapwing.publish.methods import LastChoice
from lapwing.publish.models.domain import Clique, Domain
from lapwing.publish.models.graphical_model import NoisyMarginal, fit
from support.slowly import slow
from support.streams import SeededStream

DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
CLIQUES: list[Clique] = [("a",), ("a", "b"), ("a", "c"), ("b", "c")]


def counts(table: np.ndarray, clique: Clique) -> np.ndarray:
    cells = np.ravel_multi_index([table[:, DOMAIN.place(name)] for name in clique], DOMAIN.shape(clique))
    return np.bincount(cells, minlength=DOMAIN.cells(clique)).reshape(DOMAIN.shape(clique))


@pytest.mark.parametrize(
    ("epsilon", "sigma"),
    [
        (Fraction(2), Fraction(5)),
        slow(Fraction(1000), Fraction(1, 100)),
        slow(Fraction(1, 5), Fraction(20)),
    ],
)
def test_every_marginal_that_was_not_chosen_is_within_its_bound(
    epsilon: Fraction, sigma: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In at most one of twenty runs the bound may fail; it is loose, so none of sixty fails."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(7))
    draws, tightest = np.random.default_rng(5), np.inf
    for _ in range(60):
        a = draws.integers(0, 2, 100)
        table = np.column_stack((a, (a + draws.integers(0, 2, 100)) % 3, draws.integers(0, 2, 100) * a))
        then = fit(DOMAIN, [NoisyMarginal(("b",), counts(table, ("b",)) + 3.0, 1.0)], steps=50)
        candidates = tuple(
            Candidate(one, np.rint(then.marginal(one) * GRID).astype(np.int64), len(one), 16 * len(one))
            for one in CLIQUES
        )
        scores = [
            one.weight * (int(np.abs(counts(table, one.clique) * GRID - one.expected).sum()) - one.penalty)
            for one in candidates
        ]
        chosen = CLIQUES[Exponential(epsilon, Fraction(GRID * 2)).sample(scores)]
        noisy = Gaussian(sigma, Fraction(1), DOMAIN.cells(chosen)).sample(counts(table, chosen).ravel())
        measured = NoisyMarginal(chosen, noisy.reshape(DOMAIN.shape(chosen)).astype(float), float(sigma))
        model = fit(DOMAIN, [measured], steps=50)
        bounds = LastChoice(candidates, measured, epsilon, 1).bounds(model.marginal)
        assert bounds.keys() == set(CLIQUES) - {chosen}
        for clique, bound in bounds.items():
            distance = np.abs(model.marginal(clique) - counts(table, clique)).sum()
            assert distance <= bound
            tightest = min(tightest, bound / max(distance, 1.0))
    if epsilon == 1000:  # almost without noise the bound says something
        assert tightest < 3
