"""The closed form equals dense least squares over the whole spine."""

from __future__ import annotations

import numpy as np
import pytest

from lapwing.publish.census.least_squares import (
    Floats,
    LevelMeasurement,
    Query,
    Spine,
    cells_of,
    estimate_spine,
    spine_of,
    subsets,
)

SIZES = (3, 2)
EVERYTHING: Query = (0, 1)
SIGMAS: list[dict[Query, float]] = [
    {(): 3.0, (0, 1): 2.0},
    {(): 1.0, (0,): 4.0, (1,): 2.5},
    {(): 5.0, (0,): 2.0, (1,): 7.0, (0, 1): 3.0},
]


LEVELS_WITHOUT_QUERIES: list[list[dict[Query, float]]] = [
    [{}, {(): 1.0, (0,): 4.0}, {(0, 1): 3.0}],
    [{(): 3.0, (1,): 2.0}, {}, {(): 5.0, (0, 1): 3.0}],
    [{}, {}, {(0, 1): 3.0}],
]


def small_spine() -> Spine:
    leaves = [f"b{k}" for k in range(7)]
    return spine_of({"state": ["s"] * 7, "county": list("xxxyyyz"), "block": leaves})


def query_matrix(query: Query) -> Floats:
    rows = np.eye(cells_of(SIZES, EVERYTHING)).reshape(-1, *SIZES)
    axes = tuple(k + 1 for k in EVERYTHING if k not in query)
    matrix: Floats = rows.sum(axis=axes).reshape(len(rows), -1).T
    return matrix


def dense(
    spine: Spine, measured: list[LevelMeasurement], known: dict[int, dict[int, int]]
) -> tuple[list[Floats], Floats]:
    leaves, cells = len(spine.leaves), cells_of(SIZES, EVERYTHING)
    rows, seen, facts, totals = [], [], [], []
    for level, one in enumerate(measured):
        ancestors = spine.ancestors(level)
        for query, sigma in one.sigmas.items():
            for node in range(len(spine.nodes[level])):
                own = np.kron((ancestors == node).astype(float), query_matrix(query))
                rows.append(own.reshape(-1, leaves * cells) / sigma)
                seen.append(one.answers[query][node].ravel() / sigma)
        for node, total in known.get(level, {}).items():
            facts.append(np.kron((ancestors == node).astype(float), np.ones(cells)))
            totals.append(total)
    matrix, values = np.vstack(rows), np.concatenate(seen)
    fixed = np.array(facts).reshape(len(facts), leaves * cells)  # by Lagrange multipliers
    system = np.block([[matrix.T @ matrix, fixed.T], [fixed, np.zeros((len(fixed), len(fixed)))]])
    solved = np.linalg.solve(system, np.concatenate((matrix.T @ values, totals)))
    best = solved[: leaves * cells].reshape(leaves, cells)
    covariance = np.linalg.inv(system)[: leaves * cells, : leaves * cells]
    tables = []
    for level in range(len(spine.levels)):
        sums = np.zeros((len(spine.nodes[level]), cells))
        np.add.at(sums, spine.ancestors(level), best)
        tables.append(sums)
    return tables, covariance


@pytest.mark.parametrize("of_levels", [SIGMAS, *LEVELS_WITHOUT_QUERIES])
@pytest.mark.parametrize("known", [{}, {0: {0: 40}}, {1: {0: 11, 2: 5}}])
def test_estimates_and_variances_are_those_of_dense_least_squares(
    known: dict[int, dict[int, int]], of_levels: list[dict[Query, float]]
) -> None:
    spine, draws = small_spine(), np.random.default_rng(3)
    measured = []
    for level, sigmas in enumerate(of_levels):
        nodes = len(spine.nodes[level])
        answers = {query: draws.normal(20, 5, (nodes, *(SIZES[k] for k in query))) for query in sigmas}
        measured.append(LevelMeasurement(answers, sigmas))
    found = estimate_spine(spine, SIZES, measured, known)
    tables, covariance = dense(spine, measured, known)
    exact = 1e-9
    for level, table in enumerate(tables):
        np.testing.assert_allclose(found.tables[level].reshape(table.shape), table, rtol=exact, atol=exact)
        ancestors = spine.ancestors(level)
        for query in subsets(EVERYTHING):
            for node in range(len(table)):
                one = np.kron((ancestors == node).astype(float), query_matrix(query)[:1])
                expected = float((one @ covariance @ one.T)[0, 0])
                assert found.variance(level, query)[node] == pytest.approx(expected, rel=exact, abs=exact)
