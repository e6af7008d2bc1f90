"""Methods of synthesis spend at most their budget, and find what is in the data."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from lapwing.errors import BadParameter
from lapwing.publish import methods
from lapwing.publish.methods import (
    Impossible,
    Measured,
    fit_measured,
    largest_epsilon,
    smallest_sigma,
    workload_weights,
)
from lapwing.publish.models.domain import Clique, Domain
from lapwing.publish.models.fitting import NoisyMarginal
from lapwing.publish.models.marginal_source import Candidate, choosing_cost, measuring_cost

DOMAIN = Domain(("a", "b", "c", "d"), (3, 4, 3, 2))
METHODS = ["independent", "tree", "adaptive"]


class NoisySource:
    """Marginals with plain float noise: methods see nothing else, so they cannot tell the difference."""

    def __init__(self, rows: np.ndarray, budget: Fraction, rows_per_unit: int = 1) -> None:
        self.domain, self.rows_per_unit = DOMAIN, rows_per_unit
        self.budget = self.left = budget
        self.rows = rows
        self.draws = np.random.default_rng(1)
        self.asked: list[str] = []

    def counts(self, clique: Clique) -> np.ndarray:
        shape = DOMAIN.shape(clique)
        cells = np.ravel_multi_index([self.rows[:, DOMAIN.place(c)] for c in clique], shape)
        return np.bincount(cells, minlength=DOMAIN.cells(clique)).reshape(shape)

    def measure(self, clique: Clique, sigma: Fraction) -> NoisyMarginal:
        self.left -= measuring_cost(sigma, self.rows_per_unit)
        assert self.left >= 0
        self.asked.append(f"measure {'-'.join(clique)}")
        counts = self.counts(clique) + self.draws.normal(0, float(sigma), DOMAIN.shape(clique))
        return NoisyMarginal(clique, counts, float(sigma))

    def choose(self, candidates: Sequence[Candidate], epsilon: Fraction) -> Clique:
        self.left -= choosing_cost(epsilon)
        assert self.left >= 0
        scores = [
            one.weight * (np.abs(self.counts(one.clique) * 16 - one.expected).sum() - one.penalty)
            for one in candidates
        ]
        self.asked.append("choose")
        return candidates[int(np.argmax(scores))].clique


def made_rows(count: int = 5000) -> np.ndarray:
    draws = np.random.default_rng(2)
    a = draws.integers(0, 3, count)
    b = (a + draws.integers(0, 2, count)) % 4
    c = np.where(draws.random(count) < 0.9, b % 3, draws.integers(0, 3, count))
    return np.column_stack((a, b, c, (a == 1) ^ (c == 1)))


def run(method: str, budget: Fraction, rows_per_unit: int = 1) -> tuple[NoisySource, Measured]:
    source = NoisySource(made_rows(), budget, rows_per_unit)
    return source, getattr(methods, method)(source)


@pytest.mark.parametrize("rows_per_unit", [1, 5])
@pytest.mark.parametrize("budget", [Fraction(1, 10_000), Fraction(1, 7), Fraction(40)])
@pytest.mark.parametrize("method", METHODS)
def test_a_method_spends_its_budget_and_not_more(method: str, budget: Fraction, rows_per_unit: int) -> None:
    source, done = run(method, budget, rows_per_unit)
    assert 0 <= source.left <= budget / 100
    assert fit_measured(DOMAIN, done, {}).total >= 1


def test_a_tree_measures_one_pair_less_than_there_are_columns() -> None:
    source, done = run("tree", Fraction(5))
    pairs = [one.clique for one in done.marginals if len(one.clique) == 2]
    assert len(pairs) == 3
    assert ("a", "b") in pairs
    assert source.asked[:4] == [f"measure {name}" for name in "abcd"]


def test_better_methods_are_nearer_to_the_data() -> None:
    misses = []
    for method in METHODS:
        source, done = run(method, Fraction(5))
        truth = source.counts(DOMAIN.columns)
        misses.append(
            np.abs(fit_measured(DOMAIN, done, {}).marginal(DOMAIN.columns) - truth).sum() / 2 / truth.sum()
        )
    assert misses[0] > 0.3
    assert misses[2] < misses[1] < misses[0]
    assert misses[2] < 0.03


def test_impossible_cells_stay_empty() -> None:
    mask = np.zeros((3, 2), np.bool_)
    mask[0, 1] = True
    source = NoisySource(made_rows(), Fraction(1))
    rules: Impossible = {("c", "d"): mask}
    model = fit_measured(DOMAIN, methods.adaptive(source, impossible=rules), rules)
    assert model.marginal(("c", "d"))[0, 1] == 0


def test_a_workload_gives_weights_to_all_marginals_inside_it() -> None:
    weights = workload_weights(DOMAIN, [("b", "a"), ("c",)])
    assert weights == {("a",): 1, ("b",): 1, ("a", "b"): 2, ("c",): 1}
    with pytest.raises(BadParameter, match="workload"):
        workload_weights(DOMAIN, [])


def test_the_model_stays_small() -> None:
    source = NoisySource(made_rows(), Fraction(5))
    done = methods.adaptive(source, model_bytes=8 * 20)
    assert all(DOMAIN.cells(clique) <= 20 for clique in fit_measured(DOMAIN, done, {}).tree.cliques)


def test_noise_is_never_smaller_than_its_price() -> None:
    for rho in (Fraction(1, 10**7), Fraction(1, 3), Fraction(100)):
        assert measuring_cost(smallest_sigma(rho, 3), 3) <= rho
        assert choosing_cost(largest_epsilon(rho)) <= rho
