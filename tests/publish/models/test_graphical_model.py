"""Models equal sums over all rows of small domains."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lapwing.publish.models.domain import Clique, Domain, summed_axes, widened_shape
from lapwing.publish.models.graphical_model import BeliefPropagation, Floats, GraphicalModel

DOMAIN = Domain(("a", "b", "c", "d", "e", "f"), (2, 3, 2, 4, 1, 3))
GRAPHS: list[list[Clique]] = [
    [("a",)],
    [("a", "b"), ("b", "c"), ("c", "d")],
    [("a", "b"), ("b", "c"), ("a", "c")],
    [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")],
    [("a", "b", "c"), ("c", "d"), ("d", "f"), ("a", "f")],
    [("a", "d"), ("b", "f")],
]


def brute_force(marginals: list[Clique], potentials: list[Floats]) -> Floats:
    joint = np.zeros(DOMAIN.sizes)
    for clique, potential in zip(marginals, potentials, strict=True):
        joint = joint + potential.reshape(widened_shape(DOMAIN, DOMAIN.columns, clique))
    weights: Floats = np.exp(joint)
    weights /= weights.sum()
    return weights


@pytest.mark.parametrize("marginals", GRAPHS)
def test_every_marginal_equals_the_sum_over_all_rows(marginals: list[Clique]) -> None:
    draws = np.random.default_rng(5)
    potentials = [draws.normal(0, 2, DOMAIN.shape(clique)) for clique in marginals]
    sums = BeliefPropagation(DOMAIN, marginals)
    tables = sums.probabilities(potentials)
    model = GraphicalModel(DOMAIN, sums.tree, tables, 100.0, {})
    joint = brute_force(marginals, potentials)
    for size in range(1, 5):
        for columns in itertools.combinations(DOMAIN.columns, size):
            expected = joint.sum(axis=summed_axes(DOMAIN.columns, columns)) * 100
            np.testing.assert_allclose(model.marginal(columns), expected, rtol=1e-9, atol=1e-12)
    for clique, table in zip(marginals, sums.project(tables), strict=True):
        expected = joint.sum(axis=summed_axes(DOMAIN.columns, clique))
        np.testing.assert_allclose(table, expected, rtol=1e-9)


def test_impossible_cells_have_no_probability() -> None:
    marginals: list[Clique] = [("a", "b"), ("b", "c")]
    mask = np.zeros((3, 3), np.bool_)  # b by f
    mask[0, :] = mask[2, 1] = True
    draws = np.random.default_rng(6)
    potentials = [draws.normal(0, 2, DOMAIN.shape(clique)) for clique in marginals]
    sums = BeliefPropagation(DOMAIN, marginals, {("b", "f"): mask})
    model = GraphicalModel(DOMAIN, sums.tree, sums.probabilities(potentials), 1.0, {})
    joint = brute_force(marginals, potentials)
    joint = joint * ~mask.reshape(widened_shape(DOMAIN, DOMAIN.columns, ("b", "f")))
    joint /= joint.sum()
    for columns in itertools.combinations(DOMAIN.columns, 3):
        expected = joint.sum(axis=summed_axes(DOMAIN.columns, columns))
        np.testing.assert_allclose(model.marginal(columns), expected, rtol=1e-9, atol=1e-15)


def test_impossible_cells_leave_a_row_or_not() -> None:
    draws, seen = np.random.default_rng(8), set[bool]()
    cliques: list[Clique] = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("f",)]
    for share in np.linspace(0.1, 0.95, 60):
        masks = {clique: draws.random(DOMAIN.shape(clique)) < share for clique in cliques}
        left = np.ones(DOMAIN.sizes, np.bool_)
        for clique, mask in masks.items():
            left &= ~mask.reshape(widened_shape(DOMAIN, DOMAIN.columns, clique))
        seen.add(bool(left.any()))
        assert BeliefPropagation(DOMAIN, [], masks).is_possible() == left.any()
    assert seen == {True, False}
