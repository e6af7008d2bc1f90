"""The simulated sharing of blocks keeps every block's ε, and waits are as computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lapwing.show.release_load import (
    LEAST,
    WAYS,
    BlocksNeeded,
    ReleaseWaits,
    SharedBlocks,
    release_times,
    simulated_waits,
)

NEED = BlocksNeeded(2.0, 0.5)


@pytest.mark.parametrize("way", ["conserve", "aggressive"])
def test_no_block_loses_more_than_its_epsilon(way: str) -> None:
    draw = np.random.default_rng(1)
    shared = SharedBlocks(way, NEED, epsilon=0.7)
    for _ in range(80):
        shared.hour((1 / 3 + draw.pareto(1.5, draw.poisson(0.4))).tolist())
        left = shared.free + sum((one.own for one in shared.waiting), np.zeros(shared.hours))
        assert left.min() >= -1e-9
        assert left.max() <= 0.7 + 1e-9


def test_the_budget_of_all_data_is_spent_once() -> None:
    shared = SharedBlocks("whole data", NEED)
    for _ in range(60):
        shared.hour([1.0])
        assert shared.whole >= 0
    assert shared.whole < 0.5
    assert len(shared.waiting) > 10, "later pipelines wait in vain"


def test_one_pipeline_that_uses_rows_once_waits_as_long_as_its_attempts_double() -> None:
    """It needs 2.5 blocks at ε 1. It tries 1 after an hour, then 2 after three, then 4 after seven."""
    shared = SharedBlocks("streaming", NEED)
    waits = [shared.hour([1.0] if not k else []) for k in range(8)]
    assert waits == [[], [], [], [], [], [], [7], []]


def test_one_pipeline_alone_spares_its_blocks() -> None:
    """A pipeline of size 1 on three blocks is accepted once 3 >= 2 + 0.5 / ε, so with ε at least 1/2."""
    shared = SharedBlocks("conserve", NEED)
    for _ in range(2):
        assert shared.hour([]) == []
    assert shared.hour([1.0]) == [1]
    spent = 1 - shared.free
    # Uses double from 1/64: with ε 1/64, 1/32, … on all three blocks until one attempt is at least 1/2.
    assert spent == pytest.approx(np.full(3, spent[0]))
    assert 0.5 <= spent[0] <= 1


def test_nobody_waits_if_nobody_comes() -> None:
    assert simulated_waits("conserve", 0.0, NEED, hours=10, seed=1) == []
    assert (ReleaseWaits((), 5).median, ReleaseWaits((), 5).not_released) == (0.0, 0.0)


def test_who_never_releases_has_no_hours_however_long_it_is_simulated() -> None:
    """With one ε for all data, most wait in vain: the former mean was half of the simulated hours."""
    shares = []
    for hours in (100, 200, 400):
        waits = ReleaseWaits(
            tuple(
                wait
                for seed in range(4)
                for wait in simulated_waits("whole data", 0.4, NEED, hours=hours, seed=seed)
            ),
            hours // 2,
        )
        assert waits.median == math.inf
        assert all(wait <= hours / 2 or wait == math.inf for wait in waits.hours)
        shares.append(waits.not_released)
    assert max(shares) - min(shares) < 0.15


def test_only_pipelines_that_are_followed_to_the_end_count() -> None:
    """One arrives each hour, and none can ever be accepted: those of the last half are not counted."""
    never = BlocksNeeded(1e9, 1e9)
    waits = simulated_waits("streaming", 3.0, never, hours=40, seed=3)
    everybody = simulated_waits("conserve", 3.0, BlocksNeeded(0.0, 0.0), hours=40, seed=3)
    assert len(waits) == len(everybody)
    assert set(waits) == {math.inf}
    assert set(everybody) == {1}


def test_all_ways_and_loads_are_told() -> None:
    steps: list[tuple[int, int]] = []
    found = release_times(NEED, [0.1, 0.3], hours=30, runs=1, tell=lambda a, b: steps.append((a, b)))
    assert list(found) == list(WAYS)
    assert all(len(one) == 2 for one in found.values())
    assert steps[-1] == (8, 8)
    assert LEAST < 1
