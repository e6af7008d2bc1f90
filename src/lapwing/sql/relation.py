"""Relations: what an analyst's FROM, JOIN, WHERE and sub-queries come to, and how many rows of one unit.

Claim    no unit has more than `rows` rows in a relation, and removing a unit leaves all rows of the
         others as they are. (Where blocks are slices of rows, a unit is a person in one period.)
Because  a scan keeps the `rows` rows of each unit with the smallest ranks, and a rank is found from the
         unit's own rows alone; filters and computed columns work row by row; a join to a public table
         repeats a row at most as often as its key stands there; a private join keeps to one unit, so
         bounds multiply; a union adds; rows of a unit are aggregated among themselves.
Test     tests/query/test_neighbours.py

WHERE before the bound: of each unit's rows those that a question asks about are counted, up to K.

Usually the K rows of a unit are chosen first, once and for all questions; then WHERE keeps some of them.
The other way round none is wasted on rows that are not asked about, and every question must rank anew.

Claim    a scan with a predicate of its own keeps at most `rows` rows of a unit, and removing a unit leaves
         those of the others.
Because  whether a row passes is decided by the row alone, and its rank among those that pass is found from
         the rows of its unit.
Test     tests/query/test_where_first.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lapwing.errors import BadParameter
from lapwing.sql.expression import Apply, Expression, Kind, Op, Truth

UNIT, RANK, BLOCK = "lapwing_unit", "lapwing_rank", "lapwing_block"
Columns = tuple[tuple[str, Kind], ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows of a private table: at most `rows` of each unit (within a block, where rows are sliced).

    `blocks` are the codes of the blocks that may be read, None for all. Rows for which `where` is not true
    do not count and have no rank (lapwing.sql.relation).
    """

    table: str
    columns: Columns
    rows: int
    blocks: tuple[int, ...] | None = None
    where: Expression | None = None


@dataclass(frozen=True, slots=True)
class PublicScan:
    """Rows of a public table. `sources` are the table's own names of the columns, in the same order.

    The rows were read and coded by us (lapwing.sql.binding.public_tables), as each column's kind says.
    """

    table: str
    columns: Columns
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which the predicate is true."""

    source: Relation
    predicate: Expression

    @property
    def columns(self) -> Columns:
        """As in the source."""
        return self.source.columns


@dataclass(frozen=True, slots=True)
class Project:
    """Computed columns. The unit is always carried along."""

    source: Relation
    outputs: tuple[tuple[str, Expression], ...]

    @property
    def columns(self) -> Columns:
        """Named by the analyst, or by us."""
        return tuple((name, expression.kind) for name, expression in self.outputs)


@dataclass(frozen=True, slots=True)
class Join:
    """Rows of two relations with equal keys; with `keeps_left` also those of the left without a match.

    The left is private. If the right is private too, the unit is one of the keys without being named.
    `most` is how often a public key stands in the right at most. Names of both sides are distinct.
    """

    left: Relation
    right: Relation
    on: tuple[tuple[str, str], ...]
    keeps_left: bool
    most: int

    @property
    def columns(self) -> Columns:
        """Those of both sides."""
        return self.left.columns + self.right.columns


@dataclass(frozen=True, slots=True)
class UnionAll:
    """All rows of private relations with the same columns."""

    sources: tuple[Relation, ...]

    @property
    def columns(self) -> Columns:
        """As in the first."""
        return self.sources[0].columns


@dataclass(frozen=True, slots=True)
class PerUnit:
    """One row for each unit (and keys): what its rows come to.

    Aggregates are (name, function, argument, kind); functions are "rows", "count", "sum", "min", "max"
    and "distinct"; "rows" has no argument. "sum" of nothing is NULL.
    """

    source: Relation
    keys: tuple[tuple[str, Expression], ...]
    aggregates: tuple[tuple[str, str, Expression | None, Kind], ...]

    @property
    def columns(self) -> Columns:
        """The keys, then the aggregates."""
        keys = tuple((name, expression.kind) for name, expression in self.keys)
        return keys + tuple((name, kind) for name, _, _, kind in self.aggregates)


Relation = Scan | PublicScan | Filter | Project | Join | UnionAll | PerUnit


def is_private(relation: Relation) -> bool:
    """Whether its rows are about units."""
    match relation:
        case PublicScan():
            return False
        case Scan() | Join() | PerUnit() | UnionAll():
            return True
        case Filter(source) | Project(source):
            return is_private(source)


def contribution_bound(relation: Relation) -> int:
    """The most rows that one unit has in it."""
    match relation:
        case Scan(rows=rows):
            return rows
        case Filter(source) | Project(source):
            return contribution_bound(source)
        case Join(left, right, most=most):
            return contribution_bound(left) * (
                max(contribution_bound(right), 1) if is_private(right) else max(most, 1)
            )
        case UnionAll(sources):
            return sum(map(contribution_bound, sources))
        case PerUnit(source, keys):
            return contribution_bound(source) if keys else 1
        case PublicScan():
            raise AssertionError("a public table has no units")


def blocks_of(relation: Relation) -> frozenset[int] | None:
    """The blocks whose units it can reach, None for all."""
    match relation:
        case Scan(blocks=blocks):
            return None if blocks is None else frozenset(blocks)
        case PublicScan():
            return frozenset()
        case Filter(source) | Project(source) | PerUnit(source):
            return blocks_of(source)
        case Join(left, right):
            return _together([blocks_of(left), blocks_of(right)])
        case UnionAll(sources):
            return _together([blocks_of(source) for source in sources])


def _together(parts: list[frozenset[int] | None]) -> frozenset[int] | None:
    found: frozenset[int] = frozenset()
    for part in parts:
        if part is None:
            return None
        found |= part
    return found


def scans_of(relation: Relation) -> list[Scan]:
    """All private tables that it reads."""
    match relation:
        case Scan():
            return [relation]
        case PublicScan():
            return []
        case Filter(source) | Project(source) | PerUnit(source):
            return scans_of(source)
        case Join(left, right):
            return scans_of(left) + scans_of(right)
        case UnionAll(sources):
            return [scan for source in sources for scan in scans_of(source)]


def replace_scans(relation: Relation, change: Callable[[Scan], Relation]) -> Relation:
    """The same, made of changed scans."""

    def changed(inner: Relation) -> Relation:
        return replace_scans(inner, change)

    match relation:
        case Scan():
            return change(relation)
        case PublicScan():
            return relation
        case Filter(source) | Project(source) | PerUnit(source):
            return replace(relation, source=changed(source))
        case Join(left, right):
            return replace(relation, left=changed(left), right=changed(right))
        case UnionAll(sources):
            return replace(relation, sources=tuple(map(changed, sources)))


def public_scans_of(relation: Relation) -> list[PublicScan]:
    """All public tables that it reads."""
    match relation:
        case Scan():
            return []
        case PublicScan():
            return [relation]
        case Filter(source) | Project(source) | PerUnit(source):
            return public_scans_of(source)
        case Join(left, right):
            return public_scans_of(left) + public_scans_of(right)
        case UnionAll(sources):
            return [scan for source in sources for scan in public_scans_of(source)]


def expressions_of(relation: Relation) -> list[Expression]:  # noqa: PLR0911 (a case for each)
    """All that is computed in it."""
    match relation:
        case Scan(where=where):
            return [] if where is None else [where]
        case PublicScan():
            return []
        case Filter(source, predicate):
            return [*expressions_of(source), predicate]
        case Project(source, outputs):
            return [*expressions_of(source), *(expression for _, expression in outputs)]
        case PerUnit(source, keys, aggregates):
            computed = [key for _, key in keys] + [one for _, _, one, _ in aggregates if one is not None]
            return [*expressions_of(source), *computed]
        case Join(left, right):
            return expressions_of(left) + expressions_of(right)
        case UnionAll(sources):
            return [expression for source in sources for expression in expressions_of(source)]


def where_first(relation: Relation) -> Relation:
    """The same, but every WHERE that stands right at a private table comes before its bound."""
    moved = _moved(relation)
    if moved == relation:
        raise BadParameter("where_first", "needs a WHERE right at a private table: here is none")
    return moved


def _moved(relation: Relation) -> Relation:
    match relation:
        case Filter(source, predicate):
            inner = _moved(source)
            if not isinstance(inner, Scan):
                return replace(relation, source=inner)
            both = predicate if inner.where is None else Apply(Op.AND, (inner.where, predicate), Truth())
            return replace(inner, where=both)
        case Project(source) | PerUnit(source):
            return replace(relation, source=_moved(source))
        case Join(left, right):
            return replace(relation, left=_moved(left), right=_moved(right))
        case UnionAll(sources):
            return replace(relation, sources=tuple(map(_moved, sources)))
        case _:
            return relation


def needs_new_ranks(relation: Relation) -> bool:
    """Whether some scan has a WHERE of its own, so that stored ranks are of no use."""
    return any(scan.where is not None for scan in scans_of(relation))


def undo_where_first(relation: Relation) -> Relation:
    """The other way round again: for rows that are not ranked."""

    def after(scan: Scan) -> Relation:
        return scan if scan.where is None else Filter(replace(scan, where=None), scan.where)

    return replace_scans(relation, after)
