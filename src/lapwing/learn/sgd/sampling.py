"""Poisson samples of units: each is in a step with the same probability, on its own coin.

Claim    each unit is sampled independently with probability exactly `rate`; which of its rows count is
         drawn from its own rows alone; the kind of its place is drawn for it alone.
Because  coins come from `lapwing.noise`; rows are ranked within their unit by random keys. Who else is
         there decides the page of a unit, and its place within its kind: nothing else.
Test     tests/learn/sgd/test_sampling.py

A sample may be empty: the step then releases noise alone. Batches of a fixed size, from shuffled data, have
another price, and are not drawn here.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadValue
from lapwing.noise import bernoulli, uniform_int

ABSENT = -1
Rows = NDArray[np.int64]
Kinds = NDArray[np.int64]


class Units:
    """The units of a data set, and where their rows are."""

    def __init__(self, rows: int, units: NDArray[np.int64] | None) -> None:
        if units is None:
            self._order = np.arange(rows, dtype=np.int64)
            self._ends = self._order + 1
        else:
            units = np.asarray(units)  # else a table's column is looked up by its own labels
            if units.shape != (rows,) or units.dtype.kind not in "iu":
                raise BadValue("units must be whole numbers, one for each row")
            self._order = np.argsort(units, kind="stable").astype(np.int64)
            ordered = units[self._order]
            last = np.append(ordered[1:] != ordered[:-1], True) if rows else np.zeros(0, dtype=bool)
            self._ends = np.flatnonzero(last).astype(np.int64) + 1

    def __len__(self) -> int:
        return len(self._ends)

    def sample(self, rate: Fraction, unit_rows: int) -> Rows:
        """A line for each sampled unit: the places of up to `unit_rows` of its rows, then `ABSENT`."""
        if not len(self):
            return np.zeros((0, unit_rows), dtype=np.int64)
        return self.rows_of(np.flatnonzero(bernoulli(rate, len(self))), unit_rows)

    def rows_of(self, chosen: NDArray[np.intp], unit_rows: int) -> Rows:
        """Up to `unit_rows` rows of each unit, drawn without putting back."""
        ends = self._ends[chosen]
        starts = np.where(chosen > 0, self._ends[chosen - 1], 0)
        counts = ends - starts
        found = np.full((len(chosen), unit_rows), ABSENT, dtype=np.int64)
        if not len(chosen):
            return found
        if counts.max() == 1:
            found[:, 0] = self._order[starts]
            return found
        line = np.repeat(np.arange(len(chosen)), counts)
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        keys = uniform_int(0, 1 << 62, len(line))
        # Sorted by key within each line, a row's new offset is its rank.
        ranked = np.lexsort((keys, line))
        kept = offsets < unit_rows
        places = self._order[np.repeat(starts, counts) + offsets][ranked]
        found[line[kept], offsets[kept]] = places[kept]
        return found


def drawn_kinds(count: int, page: int, kinds: int) -> Kinds:
    """Draw each unit's kind of place on its own coin: a kind comes as often as a page has places of it."""
    if kinds == 1 or not count:
        return np.zeros(count, dtype=np.int64)
    return uniform_int(0, page, count) % kinds


def laid_out(sampled: Rows, kind: Kinds, page: int, kinds: int) -> Rows:
    """The sample in pages of `page` places (page, place, row), each unit at a place of its kind.

    Place p is of kind p % kinds. Places where nobody is are `ABSENT`.
    """
    in_page = np.bincount(np.arange(page) % kinds, minlength=kinds)
    order = np.argsort(kind, kind="stable")
    counts = np.bincount(kind, minlength=kinds)
    rank = np.empty(len(kind), dtype=np.int64)  # of a unit among those of its kind
    rank[order] = np.arange(len(kind)) - np.repeat(np.cumsum(counts) - counts, counts)
    pages = -int((-counts // in_page).min())
    found = np.full((pages, page, sampled.shape[1]), ABSENT, dtype=np.int64)
    found[rank // in_page[kind], rank % in_page[kind] * kinds + kind] = sampled
    return found
