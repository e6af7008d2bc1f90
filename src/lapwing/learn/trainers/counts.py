"""How many rows have which value, in whole steps.

Claim    without one unit, counts of F columns move by at most √F · COUNT in L2.
Because  a unit has one row, which is in at most one cell of each column's table.
Test     tests/learn/trainers/test_neighbours.py::test_a_bound_that_is_too_small_would_be_seen
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lapwing.learn.trainers.columns import UNKNOWN, Column, Wholes
from lapwing.learn.trainers.shape import Floats

COUNT = 64  # steps in a count of 1, so that noise on whole numbers is as good as on real ones


def starts(columns: Sequence[Column]) -> list[int]:
    """Where each column's values begin among all."""
    widths = [column.width for column in columns]
    return [sum(widths[:at]) for at in range(len(widths))]


def counted(rows: Wholes, first: Sequence[int], truth: Wholes, shape: tuple[int, int]) -> Wholes:
    """How many rows have each value and class."""
    cells, groups = shape
    total = np.zeros(cells, dtype=np.int64)
    for column, at in zip(rows.T, first, strict=True):
        known = (column != UNKNOWN) & (truth != UNKNOWN)
        total += np.bincount((at + column[known]) * groups + truth[known], minlength=cells)
    return total


def looked_up(rows: Wholes, first: Sequence[int], values: Floats) -> Floats:
    """For each row, the sum of what its values have, in the order of columns. Unknown ones have 0."""
    total = np.zeros((len(rows), values.shape[1]))
    for column, at in zip(rows.T, first, strict=True):
        total += np.where(column[:, None] == UNKNOWN, 0.0, values[at + np.maximum(column, 0)])
    return total
