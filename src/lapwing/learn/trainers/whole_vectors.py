"""Rows as bounded whole vectors, and sums of them that no order of adding can change.

Claim    what `shorten` gives has squared length at most limit², in whole numbers; it depends on its own
         row alone. `exact_cross_sum` is the exact sum.
Because  squared lengths of whole vectors are whole; floats propose the vector, and what were too long
         would become 0. Products and sums of whole numbers below 2^53 are exact in floats, in any order.
Test     tests/learn/trainers/test_shape.py

How wrong scores are: probability minus truth, in whole steps, each row by itself.

Claim    a row's error has length at most REACH, in whole numbers, and depends on its own scores and class.
Because  exponentials come from one table (a vectorised `exp` may round by an element's position), the
         rest is single rounded operations in a fixed order, and `shorten` bounds the length.
Test     tests/learn/trainers/test_shape.py
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lapwing.core.noise import permutation
from lapwing.learn.trainers.columns import UNKNOWN, Wholes

EXACT = 1 << 53
Floats = NDArray[np.float64]


def one_row_of_each(units: Wholes | None, rows: int) -> Wholes:
    """Which rows are kept: one of each unit, all of its rows equally likely.

    In a random order, a unit's first row is uniform among its rows, whatever the other units have.
    """
    if units is None:
        return np.arange(rows, dtype=np.int64)
    order = permutation(rows)
    return order[np.unique(units[order], return_index=True)[1]]


def whole_squared_lengths(rows: Wholes) -> Wholes:
    """Squared lengths, exactly."""
    lengths: Wholes = np.einsum("ij,ij->i", rows, rows)
    return lengths


def shorten(rows: Wholes, radius: int, limit: int) -> Wholes:
    """Rows at scale limit / radius, those longer than `radius` at length `limit`; rounded towards 0."""
    length = np.maximum(np.sqrt(whole_squared_lengths(rows).astype(np.float64)), float(radius))
    placed = np.trunc(rows * (limit / length)[:, None]).astype(np.int64)
    too_long = whole_squared_lengths(placed) > limit * limit
    placed[too_long] = 0
    return placed


def exact_cross_sum(left: Floats, right: Floats, largest: int) -> Wholes:
    """leftᵀ · right exactly, where every product of entries is whole and at most `largest`."""
    at_once = EXACT // largest
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.int64)
    for start in range(0, len(left), at_once):
        part = left[start : start + at_once].T @ right[start : start + at_once]
        total += np.rint(part).astype(np.int64)
    return total


def exact_products(rows: Wholes, weights: Floats, largest: int) -> Floats:
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


REACH = 1 << 13  # length of an error, in steps
FINE = 1 << 12  # steps in a score of 1
FAR = 32  # scores beyond count as this

_EXP = np.exp(np.arange(-FAR * FINE, 1) / FINE)  # of scores up to 0
_FAR_EXP = np.exp(-FAR * np.arange(25.0))  # beyond, it is 0
_LOGISTIC = np.rint(REACH / (1 + np.exp(-np.arange(-FAR * FINE, FAR * FINE + 1) / FINE))).astype(np.int64)


def score_count(classes: int) -> int:
    """How many scores there are: one tells two classes apart."""
    return 1 if classes == 2 else classes


def score_errors(scores: Wholes, truth: Wholes) -> Wholes:
    """Probability minus truth in steps, at most REACH long. Rows of unknown class have none.

    Each row by itself: the sum over classes is in a fixed order, and exponentials are from a table.
    """
    scores = np.clip(scores, -FAR * FINE, FAR * FINE)
    if scores.shape[1] == 1:
        wrong = _LOGISTIC[scores + FAR * FINE] - np.where(truth == 1, REACH, 0)[:, None]
    else:
        below = np.maximum(scores - scores.max(axis=1, keepdims=True), -FAR * FINE)
        odds = _EXP[below + FAR * FINE]
        share = np.rint(odds / _added(odds)[:, None] * REACH).astype(np.int64)
        wanted = np.where(truth[:, None] == np.arange(scores.shape[1]), REACH, 0)
        wrong = shorten(share - wanted, REACH, REACH)
    wrong[truth == UNKNOWN] = 0
    return wrong


def class_probabilities(scores: Floats) -> Floats:
    """Probabilities of the classes from real scores, where a single one is that of the second class.

    Each row by itself, as above.
    """
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    odds = _exp(scores - scores.max(axis=1, keepdims=True))
    shares: Floats = odds / _added(odds)[:, None]
    return shares


def _added(odds: Floats) -> Floats:
    total = np.zeros(len(odds))
    for column in odds.T:
        total = total + column
    return total


def _exp(below: Floats) -> Floats:
    """exp of numbers up to 0, by tables and single operations: to about 15 digits."""
    far = np.minimum(np.floor(-below / FAR), len(_FAR_EXP) - 1)
    near = np.maximum(below + far * FAR, -FAR)
    step = np.rint(near * FINE)
    rest = near - step / FINE  # at most half a step: four terms are enough
    series = 1 + rest * (1 + rest / 2 * (1 + rest / 3 * (1 + rest / 4)))
    found: Floats = _FAR_EXP[far.astype(np.int64)] * _EXP[step.astype(np.int64) + FAR * FINE] * series
    return found
