"""Invented rows that follow a model as closely as whole rows can.

Claim    the rows' count of each cell of the root clique differs from the model's by less than one, and
         within the rows of one separator value the count of each cell of a child clique differs from its
         conditional share by less than one, with the right expectation.
Because  rows are placed at equal distances along the cumulative shares, from a random start (systematic
         sampling), and dealt to the rows of the group in random order.
Test     tests/publish/models/test_row_sampler.py

Rows are drawn from a fitted model alone: post-processing. Randomness comes from `lapwing.noise`.
"""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from lapwing.core.noise import permutation, uniform_int
from lapwing.publish.models.domain import Clique, Domain
from lapwing.publish.models.graphical_model import Floats, GraphicalModel

Wholes = NDArray[np.int64]
_FINE = 1 << 53


def sample_rows(model: GraphicalModel, count: int) -> Wholes:
    """Return `count` rows in random order, one column of value numbers for each column of the domain."""
    domain, tree = model.domain, model.tree
    rows = np.zeros((count, len(domain.columns)), np.int64)
    order = [(tree.root, ()), *((edge.child, edge.separator) for edge in reversed(tree.edges))]
    for number, separator in order:
        _fill(rows, domain, tree.cliques[number], separator, model.tables[number])
    return rows[permutation(count)] if count else rows


def _fill(rows: Wholes, domain: Domain, clique: Clique, separator: Clique, table: Floats) -> None:
    """Choose the columns of a clique that the rows do not have yet, given those that they have."""
    new = tuple(name for name in clique if name not in separator)
    if not new or not len(rows):
        return
    axes = [clique.index(name) for name in chain(separator, new)]
    shares = table.transpose(axes).reshape(domain.cells(separator), domain.cells(new))
    groups = np.zeros(len(rows), np.int64)
    for name in separator:
        groups = groups * domain.cells((name,)) + rows[:, domain.place(name)]
    chosen = _systematic(shares, groups)
    for name in reversed(new):
        chosen, rows[:, domain.place(name)] = np.divmod(chosen, domain.cells((name,)))


def _systematic(shares: Floats, groups: Wholes) -> Wholes:
    """Return a cell for each row, by systematic sampling among the rows of each group."""
    cumulative = np.cumsum(shares, axis=1)
    ends = cumulative[:, -1:]
    # Rows come only where the model has some probability; rounding may leave a separator value without.
    flat = np.arange(1, shares.shape[1] + 1) / shares.shape[1]
    cumulative = np.where(ends > 0, cumulative / np.where(ends > 0, ends, 1), flat)
    mixed = permutation(len(groups))
    by_group = mixed[np.argsort(groups[mixed], kind="stable")]
    sizes = np.bincount(groups, minlength=len(shares))
    first = np.cumsum(sizes) - sizes
    own = groups[by_group]
    starts = uniform_int(0, _FINE - 1, len(shares)) / _FINE
    places = (np.arange(len(groups)) - first[own] + starts[own]) / sizes[own]
    edges = (cumulative + np.arange(len(shares))[:, None]).ravel()
    found = np.searchsorted(edges, own + places, side="right") - own * shares.shape[1]
    chosen = np.empty(len(groups), np.int64)
    last = shares.shape[1] - 1 - (shares > 0)[:, ::-1].argmax(axis=1)  # rounding must not reach beyond it
    chosen[by_group] = np.minimum(found, last[own])
    return chosen
