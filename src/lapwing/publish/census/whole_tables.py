"""Whole numbers for every node: not negative, and a node's table is exactly the sum of its children's.

Claim    the tables are whole, not negative, respect the facts, and add up, checked in integers.
Because  totals are fixed first, from the top; then the nearest cells with these totals that add up to the
         parent's table (a projection); then each cell is rounded up or down. Cells of one parent's children
         with fixed sums of rows and columns are a transportation problem: its constraints are totally
         unimodular, so a vertex of the feasible set is whole. The simplex method gives a vertex.
Test     tests/publish/census/test_whole_tables.py

This is post-processing of released numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter, MissingExtra
from lapwing.publish.census.spine import Spine

Floats = NDArray[np.float64]
Wholes = NDArray[np.int64]
Truths = NDArray[np.bool_]

PROJECTION_STEPS = 1000
NEAR_A_WHOLE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class SpineFacts:
    """Public facts, by level: `empty` nodes without rows, and `totals`, −1 where a total is not public.

    `impossible` cells are empty in every node.
    """

    empty: tuple[Truths, ...]
    totals: tuple[Wholes, ...]
    impossible: Truths = field(default_factory=lambda: np.zeros(0, np.bool_))


def no_facts(spine: Spine, cells: int) -> SpineFacts:
    """Return facts that say nothing."""
    return SpineFacts(
        tuple(np.zeros(len(names), np.bool_) for names in spine.nodes),
        tuple(np.full(len(names), -1, np.int64) for names in spine.nodes),
        np.zeros(cells, np.bool_),
    )


def whole_tables(
    spine: Spine,
    estimates: Sequence[Floats],
    facts: SpineFacts,
    progress: Callable[[int], None] | None = None,
) -> list[Wholes]:
    """Return whole tables of all levels, one row of cells for each node.

    `estimates` has the estimated cells of all nodes, by level, each in two dimensions. Raises BadParameter
    if facts contradict each other.
    """
    result: list[Wholes] = []
    for level, real in enumerate(estimates):
        if level == 0:
            parents = np.zeros(len(real), np.int64)
            above = None
        else:
            parents, above = spine.parents[level], result[-1]
        result.append(_whole_level(real, parents, above, facts, level))
        if progress is not None:
            progress(level)
    return result


def _whole_level(
    real: Floats, parents: Wholes, above: Wholes | None, facts: SpineFacts, level: int
) -> Wholes:
    open_cells = np.flatnonzero(~facts.impossible)
    if above is None:
        totals = np.rint(np.maximum(real.sum(axis=1), 0)).astype(np.int64)
        known = facts.totals[level]
        totals = np.where(known >= 0, known, np.where(facts.empty[level], 0, totals))
        return _root_tables(real, totals, open_cells)
    totals = whole_totals(real.sum(axis=1), parents, above.sum(axis=1), facts, level)
    cells = np.zeros(real.shape, np.int64)
    busy = totals > 0
    if busy.any():
        inside = np.ix_(busy, open_cells)
        nearest = project_cells(real[inside], parents[busy], totals[busy], above[:, open_cells])
        cells[inside] = round_cells(nearest, parents[busy], totals[busy], above[:, open_cells])
    return cells


def _root_tables(real: Floats, totals: Wholes, open_cells: Wholes) -> Wholes:
    cells = np.zeros(real.shape, np.int64)
    for node, total in enumerate(totals):
        shares = _onto_sum(real[node, open_cells], np.zeros(len(open_cells), np.int64), np.array([total]))
        cells[node, open_cells] = _largest_remainders(
            shares, np.zeros(len(open_cells), np.int64), np.array([total])
        )
    return cells


def whole_totals(real: Floats, parents: Wholes, above: Wholes, facts: SpineFacts, level: int) -> Wholes:
    """Return whole totals of nodes that are not negative and add up to the parents' totals."""
    known = np.where(facts.empty[level], 0, facts.totals[level])
    is_known = known >= 0
    rest = above - np.bincount(parents[is_known], known[is_known], len(above)).astype(np.int64)
    has_open = np.bincount(parents[~is_known], minlength=len(above)) > 0
    if (rest < 0).any() or (rest[~has_open] != 0).any():
        raise BadParameter("facts", f"totals of level {level} contradict the totals above them")
    result = known.copy()
    if (~is_known).any():
        open_parents = parents[~is_known]
        shares = _onto_sum(real[~is_known], open_parents, rest)
        result[~is_known] = _largest_remainders(shares, open_parents, rest)
    return result


def _onto_sum(values: Floats, groups: Wholes, sums: Wholes) -> Floats:
    """Return the nearest values that are not negative and have the given sum in each group."""
    order = np.lexsort((-values, groups))
    ordered, own = values[order], groups[order]
    sizes = np.bincount(groups, minlength=len(sums))
    first = np.cumsum(sizes) - sizes
    running = np.cumsum(ordered)
    before = np.concatenate(([0.0], running))[first]
    rank = np.arange(len(values)) - first[own] + 1
    # The shift that gives the `rank` greatest values of a group the sum.
    shift = (running - before[own] - sums[own]) / rank
    keeps = ordered - shift > 0
    count = np.bincount(own[keeps], minlength=len(sums))
    last = np.maximum(first + count - 1, 0)
    chosen = np.where(count > 0, shift[np.minimum(last, len(shift) - 1)], np.inf)
    result: Floats = np.maximum(values - chosen[groups], 0.0)
    result[sums[groups] == 0] = 0.0
    return result


def _largest_remainders(values: Floats, groups: Wholes, sums: Wholes) -> Wholes:
    """Round values down or up so that each group has its sum: those with the largest remainders go up."""
    down = np.floor(values + NEAR_A_WHOLE).astype(np.int64)
    missing = sums - np.bincount(groups, down, len(sums)).astype(np.int64)
    order = np.lexsort((-(values - down), groups))
    sizes = np.bincount(groups, minlength=len(sums))
    first = np.cumsum(sizes) - sizes
    rank = np.arange(len(values)) - first[groups[order]]
    down[order[rank < missing[groups[order]]]] += 1
    return down


def project_cells(real: Floats, parents: Wholes, totals: Wholes, above: Wholes) -> Floats:
    """Return the nearest cells, not negative, with the given sums of nodes and of each parent's cells.

    Alternating directions (ADMM), for all parents at once.
    """
    children = np.bincount(parents, minlength=len(above)).astype(float)
    width = real.shape[1]

    def with_sums(values: Floats) -> Floats:
        rows = totals - values.sum(axis=1)
        columns = above - _by_parent(values, parents, len(above))
        several = np.maximum(children, 1)[:, None]
        shared = columns.sum(axis=1) / (np.maximum(children, 1) * width)
        moved: Floats = (rows / width)[:, None] + (columns / several - shared[:, None])[parents]
        return values + moved

    kept, gap = np.maximum(real, 0), np.zeros_like(real)
    for _ in range(PROJECTION_STEPS):
        summed = with_sums((real + kept - gap) / 2)
        before, kept = kept, np.maximum(summed + gap, 0)
        gap += summed - kept
        if max(np.abs(summed - kept).max(), np.abs(kept - before).max()) < NEAR_A_WHOLE / 10:
            break
    return kept


def _by_parent(values: Floats, parents: Wholes, count: int) -> Floats:
    total = np.zeros((count, values.shape[1]))
    np.add.at(total, parents, values)
    return total


def round_cells(real: Floats, parents: Wholes, totals: Wholes, above: Wholes) -> Wholes:
    """Return whole cells next to the given ones, with the same sums."""
    result = np.zeros(real.shape, np.int64)
    order = np.argsort(parents, kind="stable")
    starts = np.flatnonzero(np.diff(parents[order], prepend=-1))
    for members in np.split(order, starts[1:]):
        result[members] = _round_one(real[members], totals[members], above[parents[members[0]]])
    return result


def _round_one(real: Floats, rows: Wholes, columns: Wholes) -> Wholes:
    if len(rows) == 1:
        return columns[None, :]
    limit = np.minimum(rows[:, None], columns[None, :])
    for slack in (
        0,
        1,
        2,
        int(limit.max()) + 1,
    ):  # the projection is not exact: cells may have to move more
        low = np.clip(np.floor(real + NEAR_A_WHOLE) - slack, 0, limit)
        high = np.clip(np.ceil(real - NEAR_A_WHOLE) + slack, 0, limit)
        found = _transport(real, low.astype(np.int64), high.astype(np.int64), rows, columns)
        if found is not None:
            return found
    raise AssertionError("a transportation problem with equal sums has a solution")


def _transport(real: Floats, low: Wholes, high: Wholes, rows: Wholes, columns: Wholes) -> Wholes | None:
    """Return the nearest whole cells between two bounds with the given sums; None if there are none.

    Each unit above a cell's lower bound is a variable of its own, between 0 and 1. A unit costs what it
    adds to the distance, and the next unit of a cell never costs less.
    """
    wanted = np.concatenate((rows - low.sum(axis=1), columns - low.sum(axis=0)))
    units = (high - low).ravel()
    if not units.any():
        return low if not wanted.any() else None
    cell = np.repeat(np.arange(units.size), units)
    step = np.arange(len(cell)) - np.repeat(np.cumsum(units) - units, units)
    below = low.ravel()[cell] + step - real.ravel()[cell]
    cost = np.abs(below + 1) - np.abs(below)
    row, column = np.divmod(cell, len(columns))
    where = np.concatenate((row, len(rows) + column)), np.tile(np.arange(len(cell)), 2)
    try:
        from scipy import optimize, sparse  # noqa: PLC0415 (an extra)
    except ImportError:
        raise MissingExtra("publish", "Whole census tables") from None
    sums = sparse.csr_array((np.ones(2 * len(cell)), where), shape=(len(wanted), len(cell)))
    solved = optimize.linprog(cost, A_eq=sums, b_eq=wanted, bounds=(0, 1), method="highs-ds")
    if solved.status != 0:
        return None
    added = np.bincount(cell, np.rint(solved.x), minlength=units.size).astype(np.int64)
    cells = low + added.reshape(low.shape)
    fits = (cells >= 0).all() and (cells.sum(axis=1) == rows).all() and (cells.sum(axis=0) == columns).all()
    return cells if fits else None
