"""A graphical model: a probability for every row, as a product of potentials of marginals.

Claim    `probabilities` and `marginal` are those of the law p(x) ∝ exp(Σ potentials), up to float rounding.
Because  sums over a junction tree are exact (two passes); a marginal outside all cliques is a sum over the
         smallest subtree that has its columns, as p = Π cliques / Π separators.
Test     tests/publish/models/test_graphical_model.py: equal to sums over all rows of small domains

Nothing here is private: potentials are fitted to released numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.publish.models.domain import Clique, Domain, summed_axes, widened_shape
from lapwing.publish.models.junction_tree import JunctionTree, junction_tree

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Edge:
    """An edge of the tree, with the axes to sum and the shapes to broadcast, found once."""

    child: int
    parent: int
    up: tuple[int, ...]  # axes of the child that its separator does not have
    down: tuple[int, ...]
    in_child: tuple[int, ...]  # shape of the separator in the child's table
    in_parent: tuple[int, ...]


class BeliefPropagation:
    """Exact sums over a junction tree, for potentials of fixed marginals.

    Args:
        domain: The columns and their sizes.
        marginals: The cliques that have a potential.
        impossible: Cells that no row may have: for each clique, True in such cells.
    """

    def __init__(
        self,
        domain: Domain,
        marginals: Sequence[Clique],
        impossible: Mapping[Clique, NDArray[np.bool_]] | None = None,
    ) -> None:
        self.domain, self.marginals = domain, tuple(marginals)
        zeros = dict(impossible or {})
        self.tree: JunctionTree = junction_tree(domain, [*marginals, *zeros])
        self._base = [np.zeros(domain.shape(clique)) for clique in self.tree.cliques]
        for clique, mask in zeros.items():
            holder, shape, _ = self._placed(clique)
            self._base[holder] = np.where(mask.reshape(shape), -np.inf, self._base[holder])
        self._factors = [self._placed(marginal) for marginal in marginals]
        self._edges = [self._edge(k) for k in range(len(self.tree.edges))]

    def _placed(self, marginal: Clique) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        holder = self.tree.holder(marginal)
        assert holder is not None, "the tree was made for these marginals"
        clique = self.tree.cliques[holder]
        return holder, widened_shape(self.domain, clique, marginal), summed_axes(clique, marginal)

    def _edge(self, number: int) -> _Edge:
        edge = self.tree.edges[number]
        child, parent = self.tree.cliques[edge.child], self.tree.cliques[edge.parent]
        return _Edge(
            edge.child,
            edge.parent,
            summed_axes(child, edge.separator),
            summed_axes(parent, edge.separator),
            widened_shape(self.domain, child, edge.separator),
            widened_shape(self.domain, parent, edge.separator),
        )

    def probabilities(self, potentials: Sequence[Floats]) -> list[Floats]:
        """Return the probability of each cell of each clique."""
        beliefs = [base.copy() for base in self._base]
        for (holder, shape, _), potential in zip(self._factors, potentials, strict=True):
            beliefs[holder] += potential.reshape(shape)
        sent: list[Floats] = []
        for edge in self._edges:
            sent.append(_log_sums(beliefs[edge.child], edge.up))
            beliefs[edge.parent] += sent[-1].reshape(edge.in_parent)
        root = self.tree.root
        tables: list[Floats] = list(beliefs)
        tables[root] = _normalized(beliefs[root])
        for edge, message in zip(reversed(self._edges), reversed(sent), strict=True):
            above = tables[edge.parent].sum(axis=edge.down)
            with np.errstate(divide="ignore", invalid="ignore"):
                scale = np.where(above > 0, np.log(above) - message, -np.inf)
            tables[edge.child] = np.exp(beliefs[edge.child] + scale.reshape(edge.in_child))
        return tables

    def is_possible(self) -> bool:
        """Return whether some row has none of the impossible cells."""
        beliefs = [base.copy() for base in self._base]
        for edge in self._edges:
            beliefs[edge.parent] += _log_sums(beliefs[edge.child], edge.up).reshape(edge.in_parent)
        return bool(np.isfinite(beliefs[self.tree.root]).any())

    def project(self, tables: Sequence[Floats]) -> list[Floats]:
        """Return the table of each marginal that has a potential, from the tables of the cliques."""
        return [tables[holder].sum(axis=axes) for holder, _, axes in self._factors]


def _log_sums(values: Floats, axes: tuple[int, ...]) -> Floats:
    if not axes:
        return values
    most = values.max(axis=axes, keepdims=True)
    most = np.where(np.isfinite(most), most, 0.0)
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(np.exp(values - most).sum(axis=axes))
    return logs + most.reshape(logs.shape)


def _normalized(values: Floats) -> Floats:
    table: Floats = np.exp(values - values.max())
    table /= table.sum()
    return table


@dataclass(frozen=True, eq=False)
class GraphicalModel:
    """A fitted model of rows.

    `total` is the estimated number of rows, `tables` the probability tables of the tree's cliques, and
    `potentials` those of the fitted marginals, with which a later fit can begin.
    """

    domain: Domain
    tree: JunctionTree
    tables: Sequence[Floats]
    total: float
    potentials: Mapping[Clique, Floats]

    def marginal(self, columns: Iterable[str]) -> Floats:
        """Return the expected count of each cell of some columns, in the order of the domain."""
        wanted = self.domain.clique(columns)
        holder = self.tree.holder(wanted)
        if holder is not None:
            axes = summed_axes(self.tree.cliques[holder], wanted)
            inside: Floats = self.tables[holder].sum(axis=axes) * self.total
            return inside
        return self._across(wanted) * self.total

    @cached_property
    def _conditionals(self) -> list[Floats]:
        """For each edge, the child's table given the separator."""
        found = []
        for edge in self.tree.edges:
            clique = self.tree.cliques[edge.child]
            axes = summed_axes(clique, edge.separator)
            below = self.tables[edge.child].sum(axis=axes, keepdims=True)
            with np.errstate(divide="ignore", invalid="ignore"):
                found.append(np.where(below > 0, self.tables[edge.child] / below, 0.0))
        return found

    def _across(self, wanted: Clique) -> Floats:
        """Return the probabilities of columns that no clique has together.

        Branches send what they know of wanted columns towards the root, given the separator, up to the
        first clique below which all wanted columns lie.
        """
        carried: dict[int, list[tuple[Floats, Clique]]] = {}
        below: dict[int, set[str]] = {}
        for number, edge in enumerate(self.tree.edges):
            clique = self.tree.cliques[edge.child]
            own = (set(clique) & set(wanted)) | below.get(edge.child, set())
            if own <= set(edge.separator):
                continue  # this branch says nothing that its parent does not have
            known = carried.get(edge.child, [])
            if own == set(wanted):
                return _contract([(self.tables[edge.child], clique), *known], wanted)
            kept = self.domain.clique(own | set(edge.separator))
            sent = _contract([(self._conditionals[number], clique), *known], kept)
            carried.setdefault(edge.parent, []).append((sent, kept))
            below.setdefault(edge.parent, set()).update(own)
        root = self.tree.root
        parts = [(self.tables[root], self.tree.cliques[root]), *carried.get(root, [])]
        return _contract(parts, wanted)


def _contract(parts: list[tuple[Floats, Clique]], kept: Clique) -> Floats:
    """Return the sum of a product of tables over all columns that are not kept."""
    tables, columns = [], []
    for k, (table, clique) in enumerate(parts):
        others = set(kept).union(*(names for j, (_, names) in enumerate(parts) if j != k))
        needed = tuple(name for name in clique if name in others)  # sum the rest first: tables get small
        tables.append(table.sum(axis=summed_axes(clique, needed)))
        columns.append(needed)
    # einsum has 52 letters: they number the columns of this product, not those of the domain.
    letters = {name: k for k, name in enumerate(dict.fromkeys(chain(kept, *columns)))}
    operands: list[Any] = []
    for table, names in zip(tables, columns, strict=True):
        operands += [table, [letters[name] for name in names]]
    result: Floats = np.einsum(*operands, [letters[name] for name in kept], optimize=len(parts) > 1)
    return result
