"""The domain of a table: its columns, the number of values of each, and junction trees over its columns.

In a junction tree, every measured marginal lies in one clique.

Claim    the cliques of a tree cover all given marginals, and the cliques that hold a column are connected
         (the running intersection property), so belief propagation on the tree is exact.
Because  columns are eliminated one by one; eliminating a column joins its neighbours, so the maximal
         cliques of all eliminations are those of a triangulated graph, and a spanning tree of greatest
         separators of such cliques has the property (Jensen and Jensen 1994).
Test     tests/publish/models/test_domain_junction_tree.py
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lapwing.errors import BadParameter

Clique = tuple[str, ...]  # columns, in the order of the domain


@dataclass(frozen=True, slots=True)
class Domain:
    """Columns in a fixed order, with the number of values of each. Values are numbered from 0."""

    columns: tuple[str, ...]
    sizes: tuple[int, ...]
    _place: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise BadParameter("columns", "must be different names, at least one")
        if len(self.sizes) != len(self.columns) or min(self.sizes) < 1:
            raise BadParameter("sizes", "must be one positive number for each column")
        object.__setattr__(self, "_place", {name: k for k, name in enumerate(self.columns)})

    def clique(self, columns: Iterable[str]) -> Clique:
        """Return different columns in the order of the domain."""
        wanted = set(columns)
        if not wanted <= self._place.keys():
            raise BadParameter("columns", "must be columns of the domain")
        return tuple(sorted(wanted, key=self._place.__getitem__))

    def shape(self, clique: Clique) -> tuple[int, ...]:
        """Return the number of values of each column of a clique."""
        return tuple(self.sizes[self._place[name]] for name in clique)

    def cells(self, clique: Iterable[str]) -> int:
        """Return the number of cells of a clique's table."""
        return math.prod(self.sizes[self._place[name]] for name in clique)

    def place(self, column: str) -> int:
        """Return the position of a column."""
        return self._place[column]


def summed_axes(clique: Clique, kept: Clique) -> tuple[int, ...]:
    """Return the axes of a clique's table that are summed to get the table of `kept`."""
    return tuple(k for k, name in enumerate(clique) if name not in kept)


def widened_shape(domain: Domain, clique: Clique, inner: Clique) -> tuple[int, ...]:
    """Return the shape in which the table of `inner` broadcasts against the table of `clique`."""
    return tuple(domain.cells((name,)) if name in inner else 1 for name in clique)


@dataclass(frozen=True, slots=True)
class TreeEdge:
    """An edge from a clique to the clique above it. Both are positions in the tree's list of cliques."""

    child: int
    parent: int
    separator: Clique


@dataclass(frozen=True, slots=True)
class JunctionTree:
    """Maximal cliques, and the edges of a forest over them, children before their parents.

    Parts without a common column are joined by an empty separator, so that there is one root: the last
    clique of the last edge, or the only clique.
    """

    cliques: tuple[Clique, ...]
    edges: tuple[TreeEdge, ...]

    @property
    def root(self) -> int:
        """The clique without a parent."""
        return self.edges[-1].parent if self.edges else 0

    def holder(self, columns: Iterable[str]) -> int | None:
        """Return the smallest clique that has all these columns, or None."""
        wanted = set(columns)
        holders = [k for k, clique in enumerate(self.cliques) if wanted <= set(clique)]
        return min(holders, key=lambda k: len(self.cliques[k]), default=None)


def junction_tree(domain: Domain, marginals: Iterable[Clique]) -> JunctionTree:
    """Return a junction tree in which each marginal, and each column of the domain, lies in a clique."""
    masks = maximal_cliques(domain, [*marginals, *((name,) for name in domain.columns)])
    cliques = tuple(_names(domain, mask) for mask in masks)
    return JunctionTree(cliques, _spanning_edges(domain, masks))


def tree_cells(domain: Domain, marginals: Iterable[Clique]) -> int:
    """Return the number of cells of all cliques of the marginals' junction tree.

    A column of one value counts as two, so that a small number means few columns in each clique, too.
    """
    masks = maximal_cliques(domain, [*marginals, *((name,) for name in domain.columns)])
    return sum(math.prod(max(2, domain.sizes[k]) for k in _bits(mask)) for mask in masks)


def neighbours(domain: Domain, marginals: Iterable[Clique]) -> list[int]:
    """Return for each column the set, as bits, of the columns that share a marginal with it."""
    joined = [0] * len(domain.columns)
    for marginal in marginals:
        mask = _mask(domain, marginal)
        for name in marginal:
            joined[domain.place(name)] |= mask
    return [mask & ~(1 << k) for k, mask in enumerate(joined)]


def maximal_cliques(domain: Domain, marginals: Iterable[Clique]) -> list[int]:
    """Return the maximal cliques, as bits, after columns are eliminated, the cheapest one first."""
    joined = neighbours(domain, marginals)
    remaining = set(range(len(joined)))
    cliques: list[int] = []
    while remaining:
        column = min(remaining, key=lambda k: (_cells(domain, joined[k] | 1 << k), k))
        clique = joined[column] | 1 << column
        if not any(clique & other == clique for other in cliques):
            cliques.append(clique)
        remaining.remove(column)
        for other in _bits(joined[column]):
            joined[other] = (joined[other] | joined[column]) & ~(1 << other) & ~(1 << column)
    return cliques


def _spanning_edges(domain: Domain, masks: list[int]) -> tuple[TreeEdge, ...]:
    """Return a spanning tree with the most columns in separators, by Prim's rule."""
    root = max(range(len(masks)), key=lambda k: _cells(domain, masks[k]))
    outside = {k: (root, (masks[k] & masks[root]).bit_count()) for k in range(len(masks)) if k != root}
    edges = []
    while outside:
        child = max(outside, key=lambda k: (outside[k][1], -k))
        parent, _ = outside.pop(child)
        edges.append(TreeEdge(child, parent, _names(domain, masks[child] & masks[parent])))
        for other, (_, shared) in outside.items():
            more = (masks[other] & masks[child]).bit_count()
            if more > shared:
                outside[other] = child, more
    return tuple(reversed(edges))  # a child is added after its parent


def _mask(domain: Domain, columns: Iterable[str]) -> int:
    return sum(1 << domain.place(name) for name in columns)


def _names(domain: Domain, mask: int) -> Clique:
    return tuple(domain.columns[k] for k in _bits(mask))


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _cells(domain: Domain, mask: int) -> int:
    cells = 1
    for k in _bits(mask):
        cells *= domain.sizes[k]
    return cells
