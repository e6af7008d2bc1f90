"""A graphical model: a probability for every row, as a product of potentials of marginals.

Claim    `probabilities` and `marginal` are those of the law p(x) ∝ exp(Σ potentials), up to float rounding.
Because  sums over a junction tree are exact (two passes); a marginal outside all cliques is a sum over the
         smallest subtree that has its columns, as p = Π cliques / Π separators.
Test     tests/publish/models/test_graphical_model.py: equal to sums over all rows of small domains

`fit` returns the model whose marginals are nearest to noisy ones, by mirror descent (McKenna, Sheldon and
Miklau 2019).

Claim    each step lowers the weighted squared distance to the noisy counts, and the result of many steps is
         the nearest model that has a potential for every measured marginal.
Because  the distance is convex in the marginals; a step is kept only if it lowers the distance by half of
         what its slope promises, else it is halved.
Test     tests/publish/models/test_graphical_model_fitting.py: equal to the least squares of small domains

`sample_rows` invents rows that follow a model as closely as whole rows can.

Claim    the rows' count of each cell of the root clique differs from the model's by less than one, and
         within the rows of one separator value the count of each cell of a child clique differs from its
         conditional share by less than one, with the right expectation.
Because  rows are placed at equal distances along the cumulative shares, from a random start (systematic
         sampling), and dealt to the rows of the group in random order.
Test     tests/publish/models/test_graphical_model_rows.py

Nothing here is private: models are fitted to released numbers, and rows are drawn from a model alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.noise import permutation, uniform_int
from lapwing.publish.models.domain import (
    Clique,
    Domain,
    JunctionTree,
    junction_tree,
    summed_axes,
    widened_shape,
)

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
        conditionals = []
        for edge in self.tree.edges:
            clique = self.tree.cliques[edge.child]
            axes = summed_axes(clique, edge.separator)
            below = self.tables[edge.child].sum(axis=axes, keepdims=True)
            with np.errstate(divide="ignore", invalid="ignore"):
                conditionals.append(np.where(below > 0, self.tables[edge.child] / below, 0.0))
        return conditionals

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


Progress = Callable[[int, int], None]  # steps done, steps in all


@dataclass(frozen=True, slots=True, eq=False)
class NoisyMarginal:
    """Noisy counts of a marginal, and the standard deviation of their noise."""

    clique: Clique
    counts: Floats
    sigma: float


def estimated_total(marginals: Sequence[NoisyMarginal]) -> float:
    """Return the number of rows, as the mean of the marginals' sums by inverse variance; at least 1."""
    variances = [marginal.sigma**2 * marginal.counts.size for marginal in marginals]
    weights = np.array([1 / max(variance, 1e-12) for variance in variances])
    sums = np.array([marginal.counts.sum() for marginal in marginals])
    return max(1.0, float(weights @ sums / weights.sum()))


def combined(marginals: Sequence[NoisyMarginal]) -> list[NoisyMarginal]:
    """Return one noisy marginal for each clique: repeated ones are averaged by inverse variance."""
    by_clique: dict[Clique, NoisyMarginal] = {}
    for marginal in marginals:
        if marginal.clique not in by_clique:
            by_clique[marginal.clique] = marginal
            continue
        before = by_clique[marginal.clique]
        old, new = before.sigma**-2, marginal.sigma**-2
        counts = (before.counts * old + marginal.counts * new) / (old + new)
        by_clique[marginal.clique] = NoisyMarginal(marginal.clique, counts, (old + new) ** -0.5)
    return list(by_clique.values())


def fit(
    domain: Domain,
    marginals: Sequence[NoisyMarginal],
    *,
    steps: int,
    total: float | None = None,
    start: Mapping[Clique, Floats] | None = None,
    impossible: Mapping[Clique, NDArray[np.bool_]] | None = None,
    progress: Progress | None = None,
) -> GraphicalModel:
    """Fit a model to noisy marginals.

    Args:
        domain: The columns and their sizes.
        marginals: The noisy counts. There must be at least one.
        steps: The number of steps of mirror descent.
        total: The number of rows. None: estimated from the marginals.
        start: Potentials of an earlier fit, by clique.
        impossible: Cells that no row may have, by clique.
        progress: Called after each step.
    """
    measured = combined(marginals)
    rows = estimated_total(marginals) if total is None else total
    sums = BeliefPropagation(domain, [marginal.clique for marginal in measured], impossible)
    known = start or {}
    potentials = [known.get(marginal.clique, np.zeros(marginal.counts.shape)) for marginal in measured]
    descent = _Descent(sums, measured, rows, potentials)
    for step in range(steps):
        if not descent.step():
            break
        if progress is not None:
            progress(step + 1, steps)
    by_clique = {
        marginal.clique: potential for marginal, potential in zip(measured, descent.potentials, strict=True)
    }
    return GraphicalModel(domain, sums.tree, descent.tables, rows, by_clique)


class _Descent:
    """The current point of mirror descent, and the length of its next step."""

    def __init__(
        self,
        sums: BeliefPropagation,
        measured: Sequence[NoisyMarginal],
        rows: float,
        potentials: list[Floats],
    ) -> None:
        self._sums, self._measured, self._rows = sums, measured, rows
        scale = max(
            marginal.sigma**-2 for marginal in measured
        )  # the distance is relative to the best measurement
        self._weights = [marginal.sigma**-2 / scale for marginal in measured]
        self._length = 2.0 / (rows * sum(self._weights))
        self.potentials = potentials
        self.tables, self._counts, self._distance = self._at(potentials)

    def _at(self, potentials: list[Floats]) -> tuple[list[Floats], list[Floats], float]:
        tables = self._sums.probabilities(potentials)
        counts = [table * self._rows for table in self._sums.project(tables)]
        misses = zip(self._weights, counts, self._measured, strict=True)
        return tables, counts, sum(w * float(((c - m.counts) ** 2).sum()) / 2 for w, c, m in misses)

    def step(self) -> bool:
        """Take one step. Return False if no step lowers the distance any more."""
        slopes = [
            w * (c - m.counts) for w, c, m in zip(self._weights, self._counts, self._measured, strict=True)
        ]
        for _ in range(30):
            tried = [p - self._length * s for p, s in zip(self.potentials, slopes, strict=True)]
            tables, counts, distance = self._at(tried)
            promised = sum(
                float((s * (c - n)).sum()) for s, c, n in zip(slopes, self._counts, counts, strict=True)
            )
            if self._distance - distance >= promised / 2 and promised > 0:
                self.potentials, self.tables, self._counts, self._distance = tried, tables, counts, distance
                self._length *= 1.5
                return True
            self._length /= 2
        return False


Wholes = NDArray[np.int64]
_FINE = 1 << 53
MOST_ROWS = 20_000_000
MOST_VALUES = 200_000_000  # rows times columns; making them takes about four times their 8 bytes


def row_count(total: float, columns: int) -> int:
    """Return the number of rows to invent: the estimated total, at least 1, within the limits of memory."""
    return min(max(1, round(total)), MOST_ROWS, MOST_VALUES // columns)


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
    drawn = np.searchsorted(edges, own + places, side="right") - own * shares.shape[1]
    chosen = np.empty(len(groups), np.int64)
    last = shares.shape[1] - 1 - (shares > 0)[:, ::-1].argmax(axis=1)  # rounding must not reach beyond it
    chosen[by_group] = np.minimum(drawn, last[own])
    return chosen
