"""Relations: the meaning of FROM, JOIN, WHERE and sub-queries, and the contribution bound of each.

Claim    no unit has more than `rows` rows in a relation, and removing a unit leaves the rows of all other
         units as they are. (Where blocks are periods of rows, a unit is a person in one period.)
Because  a scan keeps the `rows` rows of each unit with the smallest ranks, and a rank depends on the
         unit's own rows alone. Filters and computed columns work row by row. A join to a public table
         repeats a row at most as often as its key occurs there. A join of private tables joins rows of one
         unit only, so the bounds multiply. In a union they add. Aggregation per unit uses the unit's rows.
Test     tests/sql/reading/test_reader_neighbours.py

Usually truncation comes first: the K rows of a unit are chosen once for all queries, and WHERE keeps some
of them. With `where_first`, WHERE comes first and the K rows are chosen among the rows that pass it. No row
of the bound is then wasted on rows that the query does not ask for, but every query must compute new ranks.

Claim    a scan with a predicate keeps at most `rows` rows of a unit, and removing a unit leaves the rows of
         all other units as they are.
Because  the row alone decides whether it passes, and its rank is found among the passing rows of its unit.
Test     tests/sql/question/test_relation_where_first.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lapwing.errors import BadParameter
from lapwing.sql.policy.kinds import Kind, Truth
from lapwing.sql.question.expression import Apply, Expression, Op

UNIT, RANK, BLOCK = "lapwing_unit", "lapwing_rank", "lapwing_block"
Columns = tuple[tuple[str, Kind], ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows of a private table: at most `rows` of each unit (per block, where blocks are periods of rows).

    `blocks` are the codes of the blocks that may be read; None means all. With `where`, only the rows for
    which it is true are ranked and counted (see `where_first`).
    """

    table: str
    columns: Columns
    rows: int
    blocks: tuple[int, ...] | None = None
    where: Expression | None = None


@dataclass(frozen=True, slots=True)
class PublicScan:
    """Rows of a public table. `sources` are the table's own column names, in the order of `columns`.

    Lapwing reads and codes these rows itself, as the kind of each column says (`binding.public_tables`).
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
        """The columns of the source."""
        return self.source.columns


@dataclass(frozen=True, slots=True)
class Project:
    """Computed columns. The unit is always kept."""

    source: Relation
    outputs: tuple[tuple[str, Expression], ...]

    @property
    def columns(self) -> Columns:
        """The computed columns."""
        return tuple((name, expression.kind) for name, expression in self.outputs)


@dataclass(frozen=True, slots=True)
class Join:
    """Rows of two relations with equal keys, and with `keeps_left` also the left rows without a match.

    The left relation is private. If the right one is private too, the unit is an implicit key. `most` is
    the greatest number of times that a public key occurs in the right relation. Column names are distinct.
    """

    left: Relation
    right: Relation
    on: tuple[tuple[str, str], ...]
    keeps_left: bool
    most: int

    @property
    def columns(self) -> Columns:
        """The columns of both sides."""
        return self.left.columns + self.right.columns


@dataclass(frozen=True, slots=True)
class UnionAll:
    """All rows of private relations with the same columns."""

    sources: tuple[Relation, ...]

    @property
    def columns(self) -> Columns:
        """The columns of the first relation."""
        return self.sources[0].columns


@dataclass(frozen=True, slots=True)
class PerUnit:
    """One row for each unit and key: aggregates of the unit's rows.

    Aggregates are (name, function, argument, kind). The functions are "rows", "count", "sum", "min", "max"
    and "distinct". "rows" has no argument. "sum" of no values is NULL.
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
    """Return whether the rows belong to privacy units."""
    if isinstance(relation, Filter | Project):
        return is_private(relation.source)
    return not isinstance(relation, PublicScan)


def contribution_bound(relation: Relation) -> int:
    """Return the greatest number of rows of one unit."""
    match relation:
        case Scan(rows=rows):
            return rows
        case Filter(source) | Project(source):
            return contribution_bound(source)
        case Join(left, right, most=most):
            times = contribution_bound(right) if is_private(right) else most
            return contribution_bound(left) * max(times, 1)
        case UnionAll(sources):
            return sum(map(contribution_bound, sources))
        case PerUnit(source, keys):
            return contribution_bound(source) if keys else 1
        case PublicScan():
            raise AssertionError("a public table has no units")


def blocks_of(relation: Relation) -> frozenset[int] | None:
    """Return the codes of the blocks that may be read, or None for all."""
    blocks: set[int] = set()
    for scan in scans_of(relation):
        if scan.blocks is None:
            return None
        blocks.update(scan.blocks)
    return frozenset(blocks)


def _inputs(relation: Relation) -> tuple[Relation, ...]:
    """Return the relations that this one is computed from."""
    match relation:
        case Filter(source) | Project(source) | PerUnit(source):
            return (source,)
        case Join(left, right):
            return (left, right)
        case UnionAll(sources):
            return sources
        case _:
            return ()


def _with_inputs(relation: Relation, change: Callable[[Relation], Relation]) -> Relation:
    """Return the relation computed from changed inputs."""
    match relation:
        case Filter(source) | Project(source) | PerUnit(source):
            return replace(relation, source=change(source))
        case Join(left, right):
            return replace(relation, left=change(left), right=change(right))
        case UnionAll(sources):
            return replace(relation, sources=tuple(map(change, sources)))
        case _:
            return relation


def scans_of(relation: Relation) -> list[Scan]:
    """Return the scans of all private tables that are read, from left to right."""
    if isinstance(relation, Scan):
        return [relation]
    return [scan for source in _inputs(relation) for scan in scans_of(source)]


def replace_scans(relation: Relation, change: Callable[[Scan], Relation]) -> Relation:
    """Return the relation with every private scan replaced by `change(scan)`."""
    if isinstance(relation, Scan):
        return change(relation)
    return _with_inputs(relation, lambda source: replace_scans(source, change))


def public_scans_of(relation: Relation) -> list[PublicScan]:
    """Return the scans of all public tables that are read, from left to right."""
    if isinstance(relation, PublicScan):
        return [relation]
    return [scan for source in _inputs(relation) for scan in public_scans_of(source)]


def expressions_of(relation: Relation) -> list[Expression]:
    """Return all expressions that are computed in the relation."""
    expressions = [expression for source in _inputs(relation) for expression in expressions_of(source)]
    match relation:
        case Scan(where=where) if where is not None:
            expressions.append(where)
        case Filter(predicate=predicate):
            expressions.append(predicate)
        case Project(outputs=outputs):
            expressions += [expression for _, expression in outputs]
        case PerUnit(keys=keys, aggregates=aggregates):
            expressions += [key for _, key in keys]
            expressions += [argument for _, _, argument, _ in aggregates if argument is not None]
    return expressions


def joined_on(relation: Relation) -> set[str]:
    """Return the columns that joins in the relation are on."""
    own = {name for pair in relation.on for name in pair} if isinstance(relation, Join) else set[str]()
    return own.union(*map(joined_on, _inputs(relation)))


def filters_rows(relation: Relation) -> bool:
    """Return whether a condition is on rows of a table, and not only on aggregates of people's rows."""
    if isinstance(relation, Filter) and not isinstance(relation.source, PerUnit):
        return True
    return any(map(filters_rows, _inputs(relation)))


def pruned(relation: Relation, names: frozenset[str]) -> Relation:
    """Return the relation with only these columns in its scans, ordered by name."""

    def kept(scan: Scan) -> Scan:
        columns = sorted(
            (column for column in scan.columns if column[0] in names), key=lambda column: column[0]
        )
        return replace(scan, columns=tuple(columns))

    return replace_scans(relation, kept)


def only_blocks(relation: Relation, codes: frozenset[int]) -> Relation:
    """Return the relation with scans that read no other blocks than these."""

    def kept(scan: Scan) -> Scan:
        both = codes if scan.blocks is None else codes & frozenset(scan.blocks)
        return replace(scan, blocks=tuple(sorted(both)))

    return replace_scans(relation, kept)


def where_first(relation: Relation) -> Relation:
    """Move every WHERE that stands directly on a private table before the truncation of that table.

    Raises BadParameter if there is no such WHERE.
    """
    moved = _where_into_scans(relation)
    if moved == relation:
        raise BadParameter(
            "where_first", "needs a WHERE directly on a private table, and this query has none"
        )
    return moved


def _where_into_scans(relation: Relation) -> Relation:
    relation = _with_inputs(relation, _where_into_scans)
    match relation:
        case Filter(Scan(where=where) as scan, predicate):
            both = predicate if where is None else Apply(Op.AND, (where, predicate), Truth())
            return replace(scan, where=both)
        case _:
            return relation


def needs_new_ranks(relation: Relation) -> bool:
    """Return whether a scan has its own WHERE, so that the stored ranks cannot be used."""
    return any(scan.where is not None for scan in scans_of(relation))


def undo_where_first(relation: Relation) -> Relation:
    """Move the WHERE of every scan behind its truncation again."""

    def after(scan: Scan) -> Relation:
        return scan if scan.where is None else Filter(replace(scan, where=None), scan.where)

    return replace_scans(relation, after)
