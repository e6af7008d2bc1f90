"""Rows as bounded whole vectors, and sums of them that no order of adding can change.

Claim    what `shortened` gives has squared length at most limit², in whole numbers; it depends on its own
         row alone. `summed` is the exact sum.
Because  squared lengths of whole vectors are whole; floats propose the vector, and what were too long
         would become 0. Products and sums of whole numbers below 2^53 are exact in floats, in any order.
Test     tests/learn/trainers/test_shape.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadValue
from lapwing.learn.trainers.columns import Wholes
from lapwing.noise import permutation

EXACT = 1 << 53
Floats = NDArray[np.float64]


def units_of(units: Any, rows: int) -> Wholes | None:
    """Whose row each is. None: each row is somebody's only one. Only the form is looked at."""
    if units is None:
        return None
    given = np.asarray(units)
    if given.shape != (rows,) or given.dtype.kind not in "iu":
        raise BadValue("units must be whole numbers, one for each row of X")
    return given


def one_row_each(units: Wholes | None, rows: int) -> Wholes:
    """Which rows are kept: one of each unit, all of its rows equally likely.

    In a random order, a unit's first row is uniform among its rows, whatever the other units have.
    """
    if units is None:
        return np.arange(rows, dtype=np.int64)
    order = permutation(rows)
    return order[np.unique(units[order], return_index=True)[1]]


def squared(rows: Wholes) -> Wholes:
    """Squared lengths, exactly."""
    lengths: Wholes = np.einsum("ij,ij->i", rows, rows)
    return lengths


def shortened(rows: Wholes, radius: int, limit: int) -> Wholes:
    """Rows at scale limit / radius, those longer than `radius` at length `limit`; rounded towards 0."""
    length = np.maximum(np.sqrt(squared(rows).astype(np.float64)), float(radius))
    placed = np.trunc(rows * (limit / length)[:, None]).astype(np.int64)
    too_long = squared(placed) > limit * limit
    placed[too_long] = 0
    return placed


def summed(left: Floats, right: Floats, largest: int) -> Wholes:
    """leftᵀ · right exactly, where every product of entries is whole and at most `largest`."""
    at_once = EXACT // largest
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.int64)
    for start in range(0, len(left), at_once):
        part = left[start : start + at_once].T @ right[start : start + at_once]
        total += np.rint(part).astype(np.int64)
    return total
