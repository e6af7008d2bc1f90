"""Rows as bounded whole vectors, and sums of them that no order of adding can change.

Claim    what `shortened` gives has squared length at most limit², in whole numbers; it depends on its own
         row alone. `summed` is the exact sum.
Because  squared lengths of whole vectors are whole; floats propose the vector, and what were too long
         would become 0. Products and sums of whole numbers below 2^53 are exact in floats, in any order.
Test     tests/learn/trainers/test_shape.py
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lapwing.learn.trainers.columns import Wholes
from lapwing.noise import permutation

EXACT = 1 << 53
Floats = NDArray[np.float64]


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


def products(rows: Wholes, weights: Floats, largest: int) -> Floats:
    """rows · weights, of whole rows with entries up to `largest`: for a row the same, whoever is beside it.

    Weights are rounded to steps so coarse that no partial sum reaches 2^53 of them. So all sums are exact,
    and it does not matter in which order, or how many at once. What is lost is at most 2^-49 · `largest` ·
    (number of weights) of the greatest sum that such rows could have.
    """
    greatest = math.frexp(float(np.abs(weights).max(initial=0.0)))[1]
    finest = 51 - greatest - largest.bit_length() - len(weights).bit_length()
    steps = np.rint(np.ldexp(weights, finest))
    found: Floats = np.ldexp(rows.astype(np.float64) @ steps, -finest)
    return found
