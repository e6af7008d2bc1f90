"""The domain of a table: its columns, and how many values each column has."""

from __future__ import annotations

import math
from collections.abc import Iterable
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
