"""The spine of a census: levels of nodes, from the whole down to the smallest areas. It is public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter

Wholes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Spine:
    """Levels of nodes. `parents[k]` are the positions, in level k − 1, of the parents of level k's nodes.

    The first level has one node or more, and `parents[0]` is empty.
    """

    levels: tuple[str, ...]
    nodes: tuple[tuple[str, ...], ...]
    parents: tuple[Wholes, ...]

    @property
    def leaves(self) -> tuple[str, ...]:
        """The nodes of the last level."""
        return self.nodes[-1]

    def ancestors(self, level: int) -> Wholes:
        """Return for each leaf the position of its ancestor in a level."""
        found = np.arange(len(self.leaves), dtype=np.int64)
        for number in range(len(self.levels) - 1, level, -1):
            found = self.parents[number][found]
        return found


def spine_of(table: Mapping[str, Sequence[str]]) -> Spine:
    """Return the spine of a public table: a column for each level, from the top, a row for each leaf.

    Raises BadParameter if a node has two parents, a leaf stands in two rows, or a node has no name.
    """
    levels = tuple(table)
    if not levels:
        raise BadParameter("spine", "must have a column for each level")
    rows = list(zip(*table.values(), strict=True))
    if not rows:
        raise BadParameter("spine", "has no nodes")
    nodes: list[tuple[str, ...]] = []
    parents: list[Wholes] = []
    above: dict[str, int] = {}
    for number, level in enumerate(levels):
        seen: dict[str, str] = {}
        for row in rows:
            if not isinstance(row[number], str) or not row[number]:
                raise BadParameter("spine", f'a node of level "{level}" has no name')
            parent = row[number - 1] if number else ""
            if seen.setdefault(row[number], parent) != parent:
                raise BadParameter("spine", f'node "{row[number][:60]}" of level "{level}" has two parents')
        names = tuple(sorted(seen))
        nodes.append(names)
        parents.append(np.array([above[seen[name]] for name in names] if number else [], np.int64))
        above = {name: k for k, name in enumerate(names)}
    if len(nodes[-1]) != len(rows):
        raise BadParameter("spine", f'a node of level "{levels[-1]}" stands in two rows')
    return Spine(levels, tuple(nodes), tuple(parents))
