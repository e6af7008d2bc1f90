"""WHERE before the bound: of each unit's rows those that a question asks about are counted, up to K.

Usually the K rows of a unit are chosen first, once and for all questions; then WHERE keeps some of them.
The other way round none is wasted on rows that are not asked about, and every question must rank anew.

Claim    a scan with a predicate of its own keeps at most `rows` rows of a unit, and removing a unit leaves
         those of the others.
Because  whether a row passes is decided by the row alone, and its rank among those that pass is found from
         the rows of its unit.
Test     tests/query/test_where_first.py
"""

from __future__ import annotations

from dataclasses import replace

from lapwing.errors import BadParameter
from lapwing.query.language.expression import Apply, Op
from lapwing.query.language.kinds import Truth
from lapwing.query.language.relation import (
    Filter,
    Join,
    PerUnit,
    Project,
    Relation,
    Scan,
    UnionAll,
    scans_of,
    with_scans,
)


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


def ranks_anew(relation: Relation) -> bool:
    """Whether some scan has a WHERE of its own, so that stored ranks are of no use."""
    return any(scan.where is not None for scan in scans_of(relation))


def where_after(relation: Relation) -> Relation:
    """The other way round again: for rows that are not ranked."""

    def after(scan: Scan) -> Relation:
        return scan if scan.where is None else Filter(replace(scan, where=None), scan.where)

    return with_scans(relation, after)
