"""Invented rows follow the model in every clique, and never enter impossible cells."""

from __future__ import annotations

import numpy as np

from lapwing.publish.models.domain import Clique, Domain
from lapwing.publish.models.graphical_model import (
    BeliefPropagation,
    Floats,
    GraphicalModel,
    Wholes,
    sample_rows,
)

DOMAIN = Domain(("a", "b", "c", "d"), (3, 4, 5, 2))
MARGINALS: list[Clique] = [("a", "b"), ("b", "c")]


def model(seed: int) -> GraphicalModel:
    draws = np.random.default_rng(seed)
    mask = draws.random((3, 4)) < 0.3
    mask[0, :] = False
    sums = BeliefPropagation(DOMAIN, MARGINALS, {("a", "b"): mask})
    potentials = [draws.normal(0, 1.5, DOMAIN.shape(clique)) for clique in MARGINALS]
    return GraphicalModel(DOMAIN, sums.tree, sums.probabilities(potentials), 1.0, {})


def shares(rows: Wholes, clique: Clique) -> Floats:
    columns = [rows[:, DOMAIN.place(name)] for name in clique]
    shape = DOMAIN.shape(clique)
    counted = np.bincount(np.ravel_multi_index(columns, shape), minlength=DOMAIN.cells(clique))
    return counted.reshape(shape) / len(rows)


def test_rows_follow_the_model_in_every_clique() -> None:
    fitted, count = model(1), 20_000
    rows = sample_rows(fitted, count)
    assert rows.shape == (count, 4)
    for clique in fitted.tree.cliques:
        wanted = fitted.marginal(clique)
        found = shares(rows, clique)
        # Systematic: each cell is off by less than one row for each value of the separator above it.
        assert np.abs(found - wanted).sum() / 2 < DOMAIN.cells(clique) / count
        assert (found[wanted == 0] == 0).all()


def test_counts_of_the_root_are_those_of_the_model_rounded() -> None:
    fitted, count = model(2), 137
    root = fitted.tree.cliques[fitted.tree.root]
    found = shares(sample_rows(fitted, count), root) * count
    assert (np.abs(found - fitted.marginal(root) * count) < 1 + 1e-9).all()


def test_the_expectation_is_the_model() -> None:
    fitted = model(3)
    draws = 4000
    mean = np.mean([shares(sample_rows(fitted, 3), ("a", "c")) for _ in range(draws)], axis=0)
    # Each cell is a mean of 4,000 draws in [0, 1]: off by 0.07 with probability below 2 exp(-39).
    assert np.abs(mean - fitted.marginal(("a", "c"))).max() < 0.07


def test_no_rows_and_one_row() -> None:
    assert sample_rows(model(4), 0).shape == (0, 4)
    assert sample_rows(model(4), 1).shape == (1, 4)
