"""Whole numbers for every node: not negative, and a node's table is exactly the sum of its children's.

Claim    the tables are whole, not negative, respect the facts, and add up, checked in integers. Facts that
         can be true together never fail, whatever the noise.
Because  facts bound the total of every node, from below and from above, by what they say about the nodes
         below it. Totals are fixed first, from the top, within these bounds: so the children's bounds admit
         every parent's total. Then follow the nearest cells with these totals that add up to the
         parent's table (a projection); then each cell is rounded up or down. Cells of one parent's children
         with fixed sums of rows and columns are a transportation problem: its constraints are totally
         unimodular, so a vertex of the feasible set is whole. The simplex method gives a vertex. A
         transportation problem with equal sums always has a solution, and filling cell by cell finds
         one if the solver does not.
Test     tests/publish/census/test_whole_tables.py

`whole_numbers_with_sums` finds the totals of nodes, and the cells of a root:

Claim    if the bounds of a group admit its sum, the numbers lie within the bounds and have the sum,
         whatever the values are.
Because  the nearest real numbers are `clip(value − shift)` with one shift for each group, which falls
         monotonically in the sum: bisection finds it. Each is rounded down, and those with the largest
         remainders that have room go up. Rounding of floats may leave a rest; it is filled in integers.
Test     tests/publish/census/test_whole_tables_sums.py

This is post-processing of released numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter, MissingExtra
from lapwing.publish.census.least_squares import Floats, Spine, Wholes, add_by_parent

Truths = NDArray[np.bool_]

NEAR_A_WHOLE = 1e-6
MOST_HALVINGS = 128
NARROW = 1e-10  # how exact a shift is
PROJECTION_STEPS = 1000
MOST_UNITS = 100_000  # variables of a transportation problem in which every cell may move anywhere
MOST_ROWS = 2**53 - 1  # of a node: floats hold all whole numbers up to here


def whole_numbers_with_sums(
    values: Floats, groups: Wholes, sums: Wholes, low: Wholes, high: Wholes
) -> Wholes:
    """Return whole numbers near the values, from `low` to `high`, with the given sum in each group.

    `groups` has the position in `sums` of each value's group. The sum of a group must lie between the sums
    of its bounds.
    """
    # No number is above the sum of its group: lower bounds are at least 0.
    high = np.minimum(high, sums[groups])
    nearest = nearest_with_sums(values, groups, sums, low, high)
    return _largest_remainders(nearest, groups, sums, low, high)


def nearest_with_sums(values: Floats, groups: Wholes, sums: Wholes, low: Wholes, high: Wholes) -> Floats:
    """Return the nearest numbers between the bounds that have the given sum in each group."""
    count = len(sums)
    least, most = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(least, groups, values - high)  # with this shift all are at their upper bounds
    np.maximum.at(most, groups, values - low)  # and with this one at their lower bounds
    has_members = np.isfinite(least)
    least, most = np.where(has_members, least, 0.0), np.where(has_members, most, 0.0)

    def shifted(shift: Floats) -> Floats:
        return np.clip(values - shift[groups], low, high)

    for _ in range(MOST_HALVINGS):
        if not (most - least > NARROW).any():
            break
        middle = least + (most - least) / 2
        is_more = np.bincount(groups, shifted(middle), count) > sums
        least, most = np.where(is_more, middle, least), np.where(is_more, most, middle)
    return shifted(least + (most - least) / 2)


def _largest_remainders(values: Floats, groups: Wholes, sums: Wholes, low: Wholes, high: Wholes) -> Wholes:
    """Round values down or up so that each group has its sum: those with the largest remainders go up."""
    wholes = np.clip(np.floor(values + NEAR_A_WHOLE).astype(np.int64), low, high)
    missing = sums - add_by_parent(wholes, groups, len(sums))
    has_room = wholes < high
    order = np.lexsort((wholes - values, ~has_room, groups))
    sizes = np.bincount(groups, minlength=len(sums))
    first = np.cumsum(sizes) - sizes
    rank = np.arange(len(values)) - first[groups[order]]
    wholes[order[(rank < missing[groups[order]]) & has_room[order]]] += 1
    missing = sums - add_by_parent(wholes, groups, len(sums))
    for group in np.flatnonzero(missing):
        own = order[first[group] : first[group] + sizes[group]]
        wholes[own] += _filled(int(missing[group]), wholes[own] - low[own], high[own] - wholes[own])
    return wholes


def _filled(missing: int, below: Wholes, above: Wholes) -> Wholes:
    """Return whole numbers that sum to `missing`, from `-below` to `above`."""
    sign, wanted = (1, missing) if missing > 0 else (-1, -missing)
    room = np.minimum(above if sign > 0 else below, wanted)
    taken: Wholes = np.clip(wanted - (np.cumsum(room) - room), 0, room)
    if taken.sum() != wanted:
        raise AssertionError("the bounds of a group admit its sum")
    return sign * taken


@dataclass(frozen=True, slots=True, eq=False)
class SpineFacts:
    """Public facts, by level: `empty` nodes without rows, and `totals`, −1 where a total is not public.

    `impossible` cells are empty in every node.
    """

    empty: tuple[Truths, ...]
    totals: tuple[Wholes, ...]
    impossible: Truths = field(default_factory=lambda: np.zeros(0, np.bool_))


@dataclass(frozen=True, slots=True, eq=False)
class TotalBounds:
    """The least and the greatest total that facts leave to each node of a level."""

    low: Wholes
    high: Wholes


def total_bounds(spine: Spine, facts: SpineFacts) -> list[TotalBounds]:
    """Return the bounds of all totals, by level.

    Claim    every total of a node within its bounds can be divided among its children within theirs.
    Because  a node's lower bound is at least the sum of its children's, and its upper bound at most.
    Test     tests/publish/census/test_whole_tables.py::test_facts_that_are_true_hold_whatever_the_noise

    Raises BadParameter if facts contradict each other, or have too many rows together.
    """
    bounds: list[TotalBounds] = []
    for level in reversed(range(len(spine.levels))):
        known, names = facts.totals[level], spine.nodes[level]
        low = np.maximum(known, 0).astype(float)
        high = np.where(known >= 0, known, float(MOST_ROWS))
        high[facts.empty[level]] = 0
        if bounds:
            parents, below = spine.parents[level + 1], bounds[-1]
            low = np.maximum(low, np.bincount(parents, below.low, len(names)))
            high = np.minimum(high, np.bincount(parents, below.high, len(names)))
        key = f"census.totals.{spine.levels[level]}"
        if len(many := np.flatnonzero(low > MOST_ROWS)):
            raise BadParameter(key, f'"{names[many[0]]}" has more rows than 2^53 by the totals below it')
        if len(wrong := np.flatnonzero(low > high)):
            raise BadParameter(
                key, f'the total of "{names[wrong[0]]}" contradicts the facts below it. Correct one of them'
            )
        bounds.append(TotalBounds(low.astype(np.int64), high.astype(np.int64)))
    return bounds[::-1]


def whole_tables(spine: Spine, estimates: Sequence[Floats], facts: SpineFacts) -> list[Wholes]:
    """Return whole tables of all levels, one row of cells for each node.

    `estimates` has the estimated cells of all nodes, by level, each in two dimensions. Raises BadParameter
    if facts contradict each other.
    """
    open_cells = np.flatnonzero(~facts.impossible)
    result: list[Wholes] = []
    for level, bounds in enumerate(total_bounds(spine, facts)):
        real = estimates[level]
        if level == 0:
            result.append(_root_tables(real, bounds, open_cells))
        else:
            result.append(_child_tables(real, spine.parents[level], result[-1], bounds, open_cells))
    return result


def _root_tables(real: Floats, bounds: TotalBounds, open_cells: Wholes) -> Wholes:
    totals = np.rint(np.clip(real.sum(axis=1), bounds.low, bounds.high)).astype(np.int64)
    nodes, width = len(real), len(open_cells)
    groups = np.repeat(np.arange(nodes), width)
    cells = np.zeros(real.shape, np.int64)
    cells[:, open_cells] = whole_numbers_with_sums(
        real[:, open_cells].ravel(), groups, totals, np.zeros(nodes * width, np.int64), totals[groups]
    ).reshape(nodes, width)
    return cells


def _child_tables(
    real: Floats, parents: Wholes, above: Wholes, bounds: TotalBounds, open_cells: Wholes
) -> Wholes:
    totals = whole_numbers_with_sums(real.sum(axis=1), parents, above.sum(axis=1), bounds.low, bounds.high)
    cells = np.zeros(real.shape, np.int64)
    busy = totals > 0
    if busy.any():
        inside = np.ix_(busy, open_cells)
        nearest = project_cells(real[inside], parents[busy], totals[busy], above[:, open_cells])
        cells[inside] = round_cells(nearest, parents[busy], totals[busy], above[:, open_cells])
    return cells


def project_cells(real: Floats, parents: Wholes, totals: Wholes, above: Wholes) -> Floats:
    """Return the nearest cells, not negative, with the given sums of nodes and of each parent's cells.

    Alternating directions (ADMM), for all parents at once.
    """
    children = np.bincount(parents, minlength=len(above)).astype(float)
    width = real.shape[1]

    def with_sums(values: Floats) -> Floats:
        rows = totals - values.sum(axis=1)
        columns = above - add_by_parent(values, parents, len(above))
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
    anything = int(limit.max()) + 1
    for slack in (0, 1, 2, anything):  # the projection is not exact: cells may have to move more
        low = np.clip(np.floor(real + NEAR_A_WHOLE) - slack, 0, limit).astype(np.int64)
        high = np.clip(np.ceil(real - NEAR_A_WHOLE) + slack, 0, limit).astype(np.int64)
        if slack == anything and limit.sum() > MOST_UNITS:
            break
        wholes = _transport(real, low, high, rows, columns)
        if wholes is not None:
            return wholes
    return _filled_cells(np.clip(np.rint(real), 0, limit).astype(np.int64), rows, columns)


def _filled_cells(cells: Wholes, rows: Wholes, columns: Wholes) -> Wholes:
    """Return whole cells with the given sums, from cells that may have others: cut, then filled."""
    cells = _cut(_cut(cells, rows).T, columns).T
    rows_left, columns_left = rows - cells.sum(axis=1), columns - cells.sum(axis=0)
    row = column = 0
    while row < len(rows) and column < len(columns):
        moved = min(rows_left[row], columns_left[column])
        cells[row, column] += moved
        rows_left[row] -= moved
        columns_left[column] -= moved
        if not rows_left[row]:
            row += 1
        else:
            column += 1
    return cells


def _cut(cells: Wholes, sums: Wholes) -> Wholes:
    """Return the cells, with less in the last ones where a row has more than its sum."""
    reached = np.minimum(np.cumsum(cells, axis=1), sums[:, None])
    return np.diff(reached, axis=1, prepend=0)


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
