"""Rows as bounded whole vectors, sums that no order of adding can change, and errors of class scores.

Claim    the result of `shorten` has squared length at most limit², in whole numbers, and depends on its own
         row alone. `exact_cross_sum` is the exact sum.
Because  squared lengths of whole vectors are whole; floats propose the vector, and a vector that is too
         long becomes 0. Products and sums of whole numbers below 2^53 are exact in floats, in any order.
Test     tests/learn/trainers/test_whole_vectors.py

Claim    a row's error (probability minus truth) has length at most REACH, in whole numbers, and depends on
         its own scores and class alone.
Because  exponentials come from one table (a vectorised `exp` may round by an element's position), the
         rest is single rounded operations in a fixed order, and `shorten` bounds the length.
Test     tests/learn/trainers/test_whole_vectors.py
"""

from __future__ import annotations

import math

import numpy as np

from lapwing.learn.table_input import Floats, Wholes
from lapwing.learn.trainers.columns import UNKNOWN

EXACT = 1 << 53


def whole_squared_lengths(rows: Wholes) -> Wholes:
    """Return the squared length of each row, exactly."""
    lengths: Wholes = np.einsum("ij,ij->i", rows, rows)
    return lengths


def shorten(rows: Wholes, radius: int, limit: int) -> Wholes:
    """Scale rows by limit / radius; rows longer than `radius` get length `limit`. Round towards 0."""
    length = np.maximum(np.sqrt(whole_squared_lengths(rows).astype(np.float64)), float(radius))
    placed = np.trunc(rows * (limit / length)[:, None]).astype(np.int64)
    too_long = whole_squared_lengths(placed) > limit * limit
    placed[too_long] = 0
    return placed


def exact_cross_sum(left: Floats, right: Floats, largest: int) -> Wholes:
    """Return leftᵀ · right exactly, where every product of entries is whole and at most `largest`."""
    at_once = EXACT // largest
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.int64)
    for start in range(0, len(left), at_once):
        part = left[start : start + at_once].T @ right[start : start + at_once]
        total += np.rint(part).astype(np.int64)
    return total


def exact_products(rows: Wholes, weights: Floats, largest: int) -> Floats:
    """Return rows · weights for whole rows with entries up to `largest`; a row's result ignores other rows.

    Weights are rounded to steps so coarse that no partial sum reaches 2^53 of them. So all sums are exact,
    in any order and for any number of rows. The rounding error is at most 2^-49 · `largest` · (number of
    weights) of the greatest sum that such rows could have.
    """
    greatest = math.frexp(float(np.abs(weights).max(initial=0.0)))[1]
    finest = 51 - greatest - largest.bit_length() - len(weights).bit_length()
    steps = np.rint(np.ldexp(weights, finest))
    products: Floats = np.ldexp(rows.astype(np.float64) @ steps, -finest)
    return products


REACH = 1 << 13  # length of an error, in steps
FINE = 1 << 12  # steps in a score of 1
FAR = 32  # scores beyond count as this

_EXP = np.exp(np.arange(-FAR * FINE, 1) / FINE)  # of scores up to 0
_FAR_EXP = np.exp(-FAR * np.arange(25.0))  # beyond, it is 0
_LOGISTIC = np.rint(REACH / (1 + np.exp(-np.arange(-FAR * FINE, FAR * FINE + 1) / FINE))).astype(np.int64)


def score_count(classes: int) -> int:
    """Return the number of scores: one is enough for two classes."""
    return 1 if classes == 2 else classes


def score_errors(scores: Wholes, truth: Wholes) -> Wholes:
    """Return probability minus truth in steps, at most REACH long. Rows of unknown class have no error.

    Each row is computed by itself: the sum over classes has a fixed order, and exponentials are from a
    table.
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
    """Return probabilities of the classes from real scores; a single score is that of the second class.

    Each row is computed by itself, as in `score_errors`.
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
    """Return exp of numbers up to 0, by tables and single operations, to about 15 digits."""
    far = np.minimum(np.floor(-below / FAR), len(_FAR_EXP) - 1)
    near = np.maximum(below + far * FAR, -FAR)
    step = np.rint(near * FINE)
    rest = near - step / FINE  # at most half a step: four terms are enough
    series = 1 + rest * (1 + rest / 2 * (1 + rest / 3 * (1 + rest / 4)))
    powers: Floats = _FAR_EXP[far.astype(np.int64)] * _EXP[step.astype(np.int64) + FAR * FINE] * series
    return powers
