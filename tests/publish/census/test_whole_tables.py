"""Whole tables add up, are not negative, respect facts, and stay near the estimates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.errors import BadParameter
from lapwing.publish.census.spine import Spine, spine_of
from lapwing.publish.census.whole_tables import Floats, SpineFacts, Wholes, no_facts, whole_tables


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


def test_facts_that_contradict_each_other_are_named() -> None:
    own = spine(4, 2)
    nothing = no_facts(own, 2)
    facts = SpineFacts(
        nothing.empty, (np.array([5]), np.array([9, -1]), nothing.totals[2]), nothing.impossible
    )
    with pytest.raises(BadParameter, match="level 1 contradict"):
        whole_tables(own, estimates(own, 2, 6, 1.0), facts)


def test_exact_estimates_come_back() -> None:
    own = spine(9, 2)
    exact = estimates(own, 5, 7, 0.0)
    for table, real in zip(whole_tables(own, exact, no_facts(own, 5)), exact, strict=True):
        np.testing.assert_array_equal(table, real)
