"""Whole tables add up, are not negative, respect facts, and stay near the estimates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.errors import BadParameter
from lapwing.publish.census.least_squares import Floats, Spine, Wholes, spine_of
from lapwing.publish.census.whole_tables import (
    MOST_ROWS,
    SpineFacts,
    round_cells,
    total_bounds,
    whole_tables,
)


def no_facts(spine: Spine, cells: int) -> SpineFacts:
    """Return facts that say nothing."""
    return SpineFacts(
        tuple(np.zeros(len(names), np.bool_) for names in spine.nodes),
        tuple(np.full(len(names), -1, np.int64) for names in spine.nodes),
        np.zeros(cells, np.bool_),
    )


def spine(leaves: int, groups: int) -> Spine:
    return spine_of(
        {
            "state": ["s"] * leaves,
            "county": [f"c{k % groups}" for k in range(leaves)],
            "block": [f"b{k:03}" for k in range(leaves)],
        }
    )


def estimates(own: Spine, cells: int, seed: int, noise: float) -> list[Floats]:
    draws = np.random.default_rng(seed)
    truth = draws.poisson(draws.gamma(0.5, 4, (len(own.leaves), cells)))
    return [
        np.stack([truth[own.ancestors(level) == node].sum(axis=0) for node in range(len(own.nodes[level]))])
        + draws.normal(0, noise, (len(own.nodes[level]), cells))
        for level in range(3)
    ]


def check(own: Spine, tables: list[Wholes], facts: SpineFacts) -> None:
    for level, table in enumerate(tables):
        assert table.dtype == np.int64
        assert (table >= 0).all()
        assert (table[:, facts.impossible] == 0).all()
        assert (table[facts.empty[level]] == 0).all()
        known = facts.totals[level] >= 0
        assert (table.sum(axis=1)[known] == facts.totals[level][known]).all()
        if level:
            for node, total in enumerate(tables[level - 1]):
                assert (table[own.parents[level] == node].sum(axis=0) == total).all()


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 6), st.integers(0, 10**6), st.floats(0, 20))
def test_tables_add_up_whatever_the_noise(
    leaves: int, groups: int, cells: int, seed: int, noise: float
) -> None:
    own = spine(leaves, min(groups, leaves))
    facts = no_facts(own, cells)
    check(own, whole_tables(own, estimates(own, cells, seed, noise), facts), facts)


def test_facts_hold() -> None:
    own = spine(10, 3)
    nothing = no_facts(own, 4)
    empty = (*nothing.empty[:2], np.arange(10) < 4)
    totals = (np.array([70]), np.array([-1, 25, -1]), nothing.totals[2])
    facts = SpineFacts(empty, totals, np.array([False, True, False, False]))
    check(own, whole_tables(own, estimates(own, 4, 5, 3.0), facts), facts)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e6, 1e15])
@settings(max_examples=40)
@given(
    leaves=st.integers(1, 12), depth=st.integers(1, 4), cells=st.integers(1, 5), seed=st.integers(0, 10**6)
)
def test_facts_that_are_true_hold_whatever_the_noise(
    scale: float, leaves: int, depth: int, cells: int, seed: int
) -> None:
    draws = np.random.default_rng(seed)
    own = random_spine(draws, leaves, depth)
    impossible = draws.random(cells) < 0.3
    impossible[draws.integers(cells)] = False
    truth = draws.poisson(draws.gamma(0.3, 10.0 ** draws.integers(0, 4), (leaves, cells)))
    truth[draws.random(leaves) < 0.3] = 0
    truth[:, impossible] = 0
    tables = summed(own, truth)
    totals = [np.where(draws.random(len(one)) < draws.random(), one.sum(axis=1), -1) for one in tables]
    empty = [
        (one.sum(axis=1) == 0) & (draws.random(len(one)) < draws.choice([0, 0.5, 1])) for one in tables
    ]
    facts = SpineFacts(tuple(empty), tuple(totals), impossible)
    noisy = [one + draws.normal(0, scale, one.shape) for one in tables]
    check(own, whole_tables(own, noisy, facts), facts)


def random_spine(draws: np.random.Generator, leaves: int, depth: int) -> Spine:
    """Return a spine with any number of roots, in which each node has a random parent."""
    names = np.arange(leaves)
    columns = [names]
    for _ in range(depth - 1):
        parents = draws.integers(0, draws.integers(1, leaves + 1), leaves)
        columns.insert(0, parents[columns[0]])
    return spine_of({f"level{k}": [f"n{one:02}" for one in column] for k, column in enumerate(columns)})


def summed(own: Spine, leaves: Wholes) -> list[Wholes]:
    found = []
    for level, names in enumerate(own.nodes):
        table = np.zeros((len(names), leaves.shape[1]), np.int64)
        np.add.at(table, own.ancestors(level), leaves)
        found.append(table)
    return found


def test_true_facts_below_hold_a_total_up_and_down() -> None:
    """Blocks of the first county are known to have 60 people; nobody lives in the second county."""
    own = spine(4, 2)
    nothing = no_facts(own, 2)
    known, empty = np.array([20, -1, 40, -1]), np.array([False, True, False, True])
    facts = SpineFacts((*nothing.empty[:2], empty), (*nothing.totals[:2], known), nothing.impossible)
    for noise in (-50.0, 50.0):
        far = [np.full((len(names), 2), noise) for names in own.nodes]
        found = whole_tables(own, far, facts)
        check(own, found, facts)
        assert found[0].sum() == 60
        assert found[1].sum(axis=1).tolist() == [60, 0]


@pytest.mark.parametrize(
    ("state", "counties", "block", "node"),
    [
        (5, [9, -1], -1, "s"),  # more below
        (9, [3, 5], -1, "s"),  # less below
        (-1, [4, -1], 5, "c0"),
    ],
)
def test_facts_that_contradict_each_other_are_named(
    state: int, counties: list[int], block: int, node: str
) -> None:
    own = spine(4, 2)
    nothing = no_facts(own, 2)
    totals = (np.array([state]), np.array(counties), np.array([block, -1, -1, -1]))
    facts = SpineFacts(nothing.empty, totals, nothing.impossible)
    with pytest.raises(BadParameter, match=f'the total of "{node}" contradicts'):
        whole_tables(own, estimates(own, 2, 6, 1.0), facts)


def test_a_known_total_of_an_empty_node_is_refused() -> None:
    own = spine(2, 1)
    nothing = no_facts(own, 2)
    facts = SpineFacts(
        (*nothing.empty[:2], np.array([True, False])),
        (*nothing.totals[:2], np.array([1, -1])),
        nothing.impossible,
    )
    with pytest.raises(BadParameter, match='the total of "b000" contradicts'):
        total_bounds(own, facts)


def test_totals_whose_sum_no_float_holds_are_refused() -> None:
    own = spine(4, 2)
    nothing = no_facts(own, 2)
    many = np.array([MOST_ROWS, 1, -1, -1])
    within = SpineFacts(nothing.empty, (*nothing.totals[:2], many - [1, 0, 0, 0]), nothing.impossible)
    check(own, whole_tables(own, estimates(own, 2, 6, 1.0), within), within)
    facts = SpineFacts(nothing.empty, (*nothing.totals[:2], many), nothing.impossible)
    with pytest.raises(BadParameter, match=r"2\^53"):
        total_bounds(own, facts)


def test_cells_far_from_their_sums_are_rounded_nevertheless() -> None:
    """Sums that no solver in floats reaches, and too many units for variables of their own."""
    rows, columns = np.array([3, 2**52 - 3, 10**9]), np.array([[2**51, 2**51 - 1, 1, 10**9]])
    found = round_cells(np.full((3, 4), 0.5), np.zeros(3, np.int64), rows, columns)
    assert (found >= 0).all()
    assert (found.sum(axis=1) == rows).all()
    assert (found.sum(axis=0) == columns[0]).all()


def test_exact_estimates_come_back() -> None:
    own = spine(9, 2)
    exact = estimates(own, 5, 7, 0.0)
    for table, real in zip(whole_tables(own, exact, no_facts(own, 5)), exact, strict=True):
        np.testing.assert_array_equal(table, real)
