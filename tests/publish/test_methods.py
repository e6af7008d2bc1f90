"""Methods of synthesis spend at most their budget, and find what is in the data."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from lapwing.core.losses import Loss
from lapwing.errors import BadParameter
from lapwing.publish import methods
from lapwing.publish.measured.journal import Journal
from lapwing.publish.measured.private_marginals import (
    Candidate,
    PrivateMarginals,
    choosing_cost,
    measuring_cost,
)
from lapwing.publish.methods import (
    Impossible,
    Measured,
    fit_measured,
    largest_epsilon,
    require_small_candidates,
    rounded_to_grid,
    smallest_sigma,
    workload_weights,
)
from lapwing.publish.models.domain import Clique, Domain
from lapwing.publish.models.graphical_model import NoisyMarginal, fit
from lapwing.publish.synthetic_release import check_marginals

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


class Killed(BaseException):
    pass


def killed_source(path: Path, table: np.ndarray, at: int, budget: Fraction) -> PrivateMarginals:
    """A source whose process dies right after the charge of a step: nothing is drawn."""
    charged = 0

    def charge(_: Loss) -> None:
        nonlocal charged
        charged += 1
        if charged == at:
            raise Killed

    return PrivateMarginals(
        Domain(("a", "b"), (3, 4)), lambda: table, rows_per_unit=1, budget=budget, charge=charge,
        fail=lambda: pytest.fail("a step failed"), journal=Journal(path, "run"),
    )  # fmt: skip


@pytest.mark.parametrize("method", [*METHODS, "check"])
def test_a_run_that_was_killed_at_any_step_finishes(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It measures what it would have measured, and all steps together cost at most the budget."""
    monkeypatch.setattr(methods, "STEPS_OF_A_ROUND", 3)
    monkeypatch.setattr(methods, "ROUNDS_PER_COLUMN", 5)
    table, budget = made_rows(200)[:, :2], Fraction(1, 2)
    run = check_marginals if method == "check" else getattr(methods, method)
    run(killed_source(tmp_path / "whole", table, 0, budget))
    whole = Journal(tmp_path / "whole", "run").steps
    for at in range(1, len(whole) + 1):
        path = tmp_path / f"{at}"
        with pytest.raises(Killed):
            run(killed_source(path, table, at, budget))
        run(killed_source(path, table, 0, budget))
        steps = Journal(path, "run").steps
        assert [step.result is None for step in steps].count(True) == 1
        assert sum(step.rho for step in steps) <= budget
        measured = [step.step["measure"] for step in steps if step.result and "measure" in step.step]
        if method == "adaptive":
            assert measured[:2] == [["a"], ["b"]]
            assert len(measured) > 2
        else:
            assert len(measured) == len([step for step in whole if "measure" in step.step])


@pytest.mark.parametrize("method", [*METHODS, "check"])
def test_a_run_that_was_killed_many_times_finishes(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "STEPS_OF_A_ROUND", 3)
    table, budget = made_rows(200)[:, :2], Fraction(1, 2)
    run = check_marginals if method == "check" else getattr(methods, method)
    for _ in range(25):
        with pytest.raises(Killed):
            run(killed_source(tmp_path / "j", table, 1, budget))
    run(killed_source(tmp_path / "j", table, 0, budget))
    steps = Journal(tmp_path / "j", "run").steps
    assert steps[-1].result is not None
    assert sum(step.rho for step in steps) <= budget


def test_a_model_without_numbers_is_refused_and_large_counts_are_cut() -> None:
    for wrong in (np.nan, np.inf):
        with pytest.raises(ArithmeticError, match="no numbers"):
            rounded_to_grid(np.array([1.0, wrong]))
    assert rounded_to_grid(np.array([1.03125, -2.0, 1e30])).tolist() == [16, -32, 16 << 40]


def test_an_epsilon_stays_within_what_a_choice_can_have() -> None:
    assert largest_epsilon(Fraction(10**6)) == 1000


@pytest.mark.parametrize(
    ("columns", "cells", "method", "workload", "why"),
    [
        (4, 3, "adaptive", [("c0", "z")], '"z" is not a published column'),
        (9, 2, "adaptive", [tuple(f"c{k}" for k in range(7))], "a marginal of 7 columns"),
        (60, 2, "adaptive", None, "workload: is needed: 60 columns have 34,220"),
        (60, 2, "adaptive", [tuple(f"c{k + j}" for j in range(6)) for k in range(54)], None),
        (100, 2, "adaptive", list(combinations([f"c{k}" for k in range(30)], 3)), None),
        (100, 2, "adaptive", list(combinations([f"c{k}" for k in range(40)], 4)), "at most 10,000 can be"),
        (40, 1000, "tree", None, "780,000,000 cells in all marginals"),
        (100, 100, "tree", None, None),
        (100, 1000, "independent", None, None),
    ],
)
def test_work_that_would_not_end_is_refused_by_its_declarations(
    columns: int, cells: int, method: str, workload: list[Clique] | None, why: str | None
) -> None:
    domain = Domain(tuple(f"c{k}" for k in range(columns)), (cells,) * columns)
    if why is None:
        require_small_candidates(domain, method, workload, 4 << 20)
    else:
        with pytest.raises(BadParameter, match=why):
            require_small_candidates(domain, method, workload, 4 << 20)


def test_a_tree_has_sixty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """einsum has 52 letters: marginals of far columns must not need one for each column."""
    monkeypatch.setattr(methods, "STEPS_OF_A_ROUND", 1)
    domain = Domain(tuple(f"c{k}" for k in range(60)), (2,) * 60)
    cliques = [(f"c{k}", f"c{k + 1}") for k in range(59)]
    model = fit(domain, [NoisyMarginal(one, np.full((2, 2), 25.0), 1.0) for one in cliques], steps=1)
    np.testing.assert_allclose(model.marginal(("c0", "c59")), 25.0)


def test_a_tree_leaves_pairs_out_that_would_make_the_model_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Impossible cells join a, b and c in a chain; the pair of a and c would join all of them."""
    rules: dict[Clique, np.ndarray] = {}
    for pair in (("a", "b"), ("b", "c")):
        rules[pair] = np.zeros(DOMAIN.shape(pair), np.bool_)
        rules[pair][0, 0] = True
    monkeypatch.setattr(methods, "MOST_CANDIDATE_CELLS", 35)  # a × b × c has 36
    source = NoisySource(made_rows(), Fraction(5))
    done = methods.tree(source, impossible=rules)
    pairs = [one.clique for one in done.marginals if len(one.clique) == 2]
    assert len(pairs) == 3
    assert ("a", "c") not in pairs
    assert max(map(DOMAIN.cells, fit_measured(DOMAIN, done, rules).tree.cliques)) < 36
    monkeypatch.setattr(methods, "MOST_LINKED", 2)
    done = methods.tree(NoisySource(made_rows(), Fraction(5)), impossible=rules)
    assert ("a", "c") not in [one.clique for one in done.marginals]
