"""Whole numbers between bounds with given sums: the totals of nodes, and the cells of a root.

Claim    if the bounds of a group admit its sum, the numbers lie within the bounds and have the sum,
         whatever the values are.
Because  the nearest real numbers are `clip(value − shift)` with one shift for each group, which falls
         monotonically in the sum: bisection finds it. Each is rounded down, and those with the largest
         remainders that have room go up. Rounding of floats may leave a rest; it is filled in integers.
Test     tests/publish/census/test_whole_sums.py
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Wholes = NDArray[np.int64]

NEAR_A_WHOLE = 1e-6
MOST_HALVINGS = 128
NARROW = 1e-10  # how exact a shift is


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
    found = np.clip(np.floor(values + NEAR_A_WHOLE).astype(np.int64), low, high)
    missing = _missing(found, groups, sums)
    has_room = found < high
    order = np.lexsort((found - values, ~has_room, groups))
    sizes = np.bincount(groups, minlength=len(sums))
    first = np.cumsum(sizes) - sizes
    rank = np.arange(len(values)) - first[groups[order]]
    found[order[(rank < missing[groups[order]]) & has_room[order]]] += 1
    missing = _missing(found, groups, sums)
    for group in np.flatnonzero(missing):
        own = order[first[group] : first[group] + sizes[group]]
        found[own] += _filled(int(missing[group]), found[own] - low[own], high[own] - found[own])
    return found


def _missing(found: Wholes, groups: Wholes, sums: Wholes) -> Wholes:
    total = np.zeros(len(sums), np.int64)
    np.add.at(total, groups, found)
    return sums - total


def _filled(missing: int, below: Wholes, above: Wholes) -> Wholes:
    """Return whole numbers that sum to `missing`, from `-below` to `above`."""
    sign, wanted = (1, missing) if missing > 0 else (-1, -missing)
    room = np.minimum(above if sign > 0 else below, wanted)
    taken: Wholes = np.clip(wanted - (np.cumsum(room) - room), 0, room)
    if taken.sum() != wanted:
        raise AssertionError("the bounds of a group admit its sum")
    return sign * taken
