"""Extreme: every grid point within e^ε on all neighbouring small data sets, also over several groups."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import exp, log
from typing import Any

import numpy as np
import pytest

from lapwing.audit.laws import SLACK, Law, dec, exponential, log_ratio, middle
from lapwing.core.losses import Relation
from lapwing.core.order_statistics import STEEPNESS, Extreme, Quantile, RankRuns
from lapwing.errors import BadParameter, BadValue
from support.cases import each
from support.exact_laws import quantile, renyi
from support.laws import follows
from support.slowly import slow
from support.streams import SeededStream

FIRST, LAST = 0, 3
GRID = range(FIRST, LAST + 1)
Data = tuple[int, ...]


def data_sets(most: int) -> list[Data]:
    """All data sets on the grid and just outside of it, with up to `most` rows."""
    sides = (FIRST - 1, *GRID)
    return [d for n in range(most + 1) for d in combinations_with_replacement(sides, n)]


def differ_by(one: Data, other: Data) -> tuple[int, int]:
    """How many rows are gone, and how many are new."""
    return (Counter(one) - Counter(other)).total(), (Counter(other) - Counter(one)).total()


def neighbours(one: Data, other: Data, relation: Relation, rows: int) -> bool:
    gone, new = differ_by(one, other)
    if relation is Relation.REPLACE:
        return gone <= rows and new <= rows
    return not (gone and new) and gone + new <= rows


def score(
    data: Data, y: int, rank: int, greatest: bool, grid: range = GRID, *, steepness: int = STEEPNESS
) -> Fraction:
    """Minus the distance from the rank to the ranks that y holds; too far out counts more."""
    inside = [min(max(x, grid[0]), grid[-1]) for x in data]
    beyond = sum(x > y if greatest else x < y for x in inside)
    reached = beyond + sum(x == y for x in inside)
    return Fraction(-max(beyond - rank, steepness * (rank - reached), 0))


def law_of(
    data: Data, rank: int, greatest: bool, rate: Fraction, grid: range = GRID, *, steepness: int = STEEPNESS
) -> Law:
    law = exponential([score(data, y, rank, greatest, grid, steepness=steepness) for y in grid], rate)
    return {grid[0] + i: law[i] for i in range(len(grid))}


@each("relation", Relation)
@each("rows", [1, 2])
@each("greatest", [True, False])
@each("rank", [0, 1, 2, None])
@each("steepness", [1, STEEPNESS, 5])
def test_every_answer_is_within_the_claimed_ratio(
    steepness: int, rank: int | None, greatest: bool, rows: int, relation: Relation
) -> None:
    """Any public rank will do; None is the mechanism's own."""
    epsilon = Fraction(3, 2)
    mechanism = Extreme(epsilon, greatest, FIRST, LAST, rows, steepness=steepness)
    assert mechanism.loss.pure == epsilon
    wanted = mechanism.rank if rank is None else rank
    laws = {d: law_of(d, wanted, greatest, mechanism.rate, steepness=steepness) for d in data_sets(3)}
    pairs = [(a, b) for a, b in product(laws, repeat=2) if a < b and neighbours(a, b, relation, rows)]
    assert pairs
    for one, other in pairs:
        assert log_ratio(laws[one], laws[other]) <= dec(epsilon) + SLACK
    claimed = middle(mechanism.loss.renyi(Fraction(2)))
    for one, other in pairs[:: max(1, len(pairs) // 60)]:
        assert renyi(laws[one], laws[other], 2) <= claimed + SLACK


@each("greatest", [True, False])
@each("steepness", [1, STEEPNESS])
def test_scores_of_all_points_move_within_a_range_of_one_more_than_the_steepness(
    steepness: int, greatest: bool
) -> None:
    for relation in Relation:
        widest = Fraction(0)
        for one, other in product(data_sets(3), repeat=2):
            if neighbours(one, other, relation, 1):
                moves = [
                    score(one, y, 1, greatest, steepness=steepness)
                    - score(other, y, 1, greatest, steepness=steepness)
                    for y in GRID
                ]
                widest = max(widest, max(moves) - min(moves))
        assert widest == steepness + 1


@each("kind", ["max", "median", "decile"])
def test_all_groups_together_lose_what_one_may(kind: str) -> None:
    """One unit's two rows anywhere in two groups: the pair of choices stays within one loss of ε."""
    epsilon, rows = Fraction(3, 2), 2
    fraction = {"median": Fraction(1, 2), "decile": Fraction(1, 10)}.get(kind, Fraction(1))
    if kind == "max":
        rate = Extreme.for_epsilon(epsilon, greatest=True, first=FIRST, last=LAST, rows=rows).rate
        laws = {d: law_of(d, 2, True, rate) for d in data_sets(2)}
    else:
        rate = epsilon / (2 * rows * max(fraction, 1 - fraction))
        laws = {d: quantile(d, fraction, FIRST, LAST, rate) for d in data_sets(2)}
    moved = {
        (a, b): gone + new
        for a, b in product(laws, repeat=2)
        if min(gone_new := differ_by(a, b)) == 0 and sum(gone_new) <= rows
        for gone, new in [gone_new]
    }
    # The worst pair for each number of rows that one group gets.
    ratios = {
        r: max(log_ratio(laws[a], laws[b]) for (a, b), n in moved.items() if n == r) for r in range(3)
    }
    moments = {
        r: max(renyi(laws[a], laws[b], 2) for (a, b), n in moved.items() if n == r) for r in range(3)
    }
    loss = Extreme.for_epsilon(epsilon, greatest=True, first=FIRST, last=LAST, rows=rows).loss
    for here, there in [(0, 2), (1, 1), (2, 0), (1, 0)]:
        assert ratios[here] + ratios[there] <= dec(epsilon) + SLACK
        assert moments[here] + moments[there] <= middle(loss.renyi(Fraction(2))) + SLACK


@pytest.mark.parametrize(
    "values",
    [
        [],
        slow([1]),
        [0] * 30 + [2] * 30 + [7] * 7 + [12],
        slow([-5, 99, 3]),
    ],
)
@pytest.mark.parametrize("greatest", [True, slow(False)])
def test_the_sampler_follows_the_law_that_was_compared(
    values: list[int], greatest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """False alarm: 1e-9 for each case; the stream is seeded."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(71))
    mechanism = Extreme.for_epsilon(1, greatest=greatest, first=0, last=12, rows=2)
    drawn = np.array([mechanism.sample(values) for _ in range(5_000)])
    law = law_of(tuple(values), mechanism.rank, greatest, Fraction(1, 6), range(13))
    follows(drawn, [law[y] for y in range(13)])


def test_the_rank_is_the_least_that_leaves_unreached_points_little_weight() -> None:
    mechanism = Extreme.for_epsilon("0.5", greatest=True, first=0, last=99, rows=3)
    assert mechanism.rank == 69  # 9 ln 2000 = 68.4
    weight = 100 * exp(-mechanism.rank / 9)
    assert weight <= 1 / 20 < 100 * exp(-(mechanism.rank - 1) / 9)
    assert float(mechanism.spread("0.95")) == pytest.approx(18 * log(100 * 20))
    assert Extreme(Fraction(1, 2), True, 0, 99, 3, steepness=1).rank == 92, "12 ln 2000, as it once was"


@each("grid", [100, 10_000, 1_000_000])
@each("kind", ["spread out", "ties", "far below the bound"])
def test_answers_are_nearer_to_the_end_than_with_equal_slopes(grid: int, kind: str) -> None:
    """By the exact law: the mean number of rows beyond the answer falls by 12 to 30 % among many values."""
    values = {
        "spread out": np.linspace(0, grid - 1, 2_000).astype(int),
        "ties": np.linspace(0, 20, 2_000).astype(int) * (grid // 25),
        "far below the bound": np.linspace(0, grid // 50, 2_000).astype(int),
    }[kind]
    depth = []
    for steepness in (1, STEEPNESS):
        mechanism = Extreme(Fraction(1), True, 0, grid - 1, 1, steepness=steepness)
        points, counts = np.unique(values, return_counts=True)
        runs = RankRuns.of(points, counts, 0, grid - 1)
        miss = np.maximum(
            runs.above - mechanism.rank, steepness * (mechanism.rank - runs.above - runs.equal)
        )
        weights = runs.sizes * np.exp(-float(mechanism.rate) * np.maximum(miss, 0))
        chances = weights / weights.sum()
        assert chances[(runs.above == 0) & (runs.equal == 0)].sum() <= 1 / 20
        depth.append(float((chances * runs.above).sum()))
    assert depth[1] <= depth[0] + 0.01
    if len(points) > 200:  # with few values, one of them holds the wanted rank in any case
        assert 0.7 <= depth[1] / depth[0] <= 0.88


def test_terms_of_the_first_form_are_written_as_they_were() -> None:
    """Digests of stored answers are made of them."""
    old = Extreme(Fraction(1), True, 0, 9, 2, steepness=1)
    assert repr(old) == (
        "Extreme(epsilon=Fraction(1, 1), greatest=True, first=0, last=9, rows=2, miss=Fraction(1, 20))"
    )
    assert repr(replace(old, steepness=2)).endswith("miss=Fraction(1, 20), steepness=2)")


def test_the_answer_is_seldom_one_that_no_row_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 1 in 20 by the claim; 2,000 draws exceed 7 % with probability below 1e-4."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(72))
    mechanism = Extreme.for_epsilon(1, greatest=True, first=0, last=999, rows=1)
    values = np.arange(500)
    drawn = np.array([mechanism.sample(values) for _ in range(2_000)])
    assert np.mean(drawn > 499) <= 0.07
    assert np.median(drawn) > 450


@pytest.mark.parametrize("build", ["quantile", "extreme"])
def test_counted_values_give_the_same_answer_as_rows(build: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism: Quantile | Extreme = Extreme.for_epsilon(1, greatest=True, first=0, last=50, rows=2)
    if build == "quantile":
        mechanism = Quantile.for_epsilon(
            1, fraction="0.3", first=0, last=50, relation=Relation.ADD_REMOVE, rows=2
        )
    rows = [-7, 3, 3, 3, 9, 60, 60, 50, 20]
    points, counts = [60, 3, -7, 9, 50, 20, 4], [2, 3, 1, 1, 1, 1, 0]
    for seed in range(50):
        monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(seed))
        one = mechanism.sample(rows)
        monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(seed))
        assert mechanism.sample_counts(points, counts) == one


@each("counts", [[1], [1, -1], [1, 1 << 41], [1 << 40, 1 << 40], [0.5, 1]])
def test_counts_of_another_form_are_refused(counts: list[Any]) -> None:
    mechanism = Extreme.for_epsilon(1, greatest=True, first=0, last=9, rows=1)
    with pytest.raises(BadValue):
        mechanism.sample_counts([1, 2], counts)


@each(
    "change",
    [
        dict(first=5), dict(last=1 << 62), dict(rows=0), dict(miss=0), dict(miss=1), dict(epsilon=0),
        dict(epsilon=1e-9, rows=1 << 40), dict(greatest=1), dict(first="0"),
    ],
)  # fmt: skip
def test_terms_that_make_no_sense_are_refused(change: dict[str, Any]) -> None:
    given: dict[str, Any] = dict(epsilon=1, greatest=True, first=0, last=5, rows=1)
    with pytest.raises(BadParameter):
        Extreme.for_epsilon(**(given | change))
