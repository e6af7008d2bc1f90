"""Which blocks a question can reach, from a condition on the block column at the scan itself.

Claim    a scan that was narrowed reads no row of any other block.
Because  the blocks are a condition of the scan's own SQL; this module only finds which ones the analyst's
         condition allows, and leaves that condition where it was. Wherever a column is computed, renamed
         by an aggregate, unioned or on the optional side of a join, nothing is narrowed.
Test     tests/query/test_narrow.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from lapwing.query.language.expression import Apply, Constant, Expression, Op, Reference
from lapwing.query.language.kinds import SECONDS, Kind, Moment, codes_of
from lapwing.query.language.relation import BLOCK, Filter, Join, Project, Relation, Scan
from lapwing.query.policies import blocks as periods
from lapwing.query.policies.policy import Blocks

Codes = Sequence[int]  # a range, or a sorted list


def narrowed(relation: Relation, predicate: Expression, blocks: Blocks | None) -> Relation:
    """The relation with its scans narrowed to what the predicate's conjuncts allow."""
    if blocks is None:
        return relation
    for conjunct in _conjuncts(predicate):
        found = _allowed(conjunct)
        if found is not None:
            name, kind, codes = found
            relation = _at_scan(relation, name, lambda scan: _keep(scan, kind, codes, blocks), blocks)  # noqa: B023
    return relation


def _conjuncts(predicate: Expression) -> Iterable[Expression]:
    if isinstance(predicate, Apply) and predicate.op is Op.AND:
        for arg in predicate.args:
            yield from _conjuncts(arg)
    else:
        yield predicate


def _allowed(  # noqa: PLR0911 (what is not known narrows nothing)
    test: Expression,
) -> tuple[str, Kind, Codes] | None:
    """The column that a test is about, and the codes that pass it."""
    if not isinstance(test, Apply) or not test.args or not isinstance(test.args[0], Reference):
        return None
    column = test.args[0]
    codes = codes_of(column.kind)
    if codes is None:
        return None
    if test.op is Op.IN and isinstance(test.parameter, tuple):
        return column.name, column.kind, sorted({int(code) for code in test.parameter if code in codes})
    if len(test.args) < 2 or not isinstance(test.args[1], Constant):
        return None
    limit = test.args[1].value
    if type(test.args[1].kind) is not type(column.kind) or not isinstance(limit, int):
        return None
    first, last = codes.start, codes.stop - 1
    ends = {
        Op.EQ: (limit, limit), Op.LT: (first, limit - 1), Op.LE: (first, limit),
        Op.GT: (limit + 1, last), Op.GE: (limit, last),
    }.get(test.op)  # fmt: skip
    if ends is None:
        return None
    return column.name, column.kind, range(max(first, ends[0]), min(last, ends[1]) + 1)


def _at_scan(  # noqa: PLR0911 (a case for each relation)
    relation: Relation, name: str, change: Callable[[Scan], Relation], blocks: Blocks
) -> Relation:
    """Change the scan that a column comes from unaltered."""
    match relation:
        case Scan():
            own = BLOCK if blocks.by == "unit" else blocks.column
            return change(relation) if name.lower() == own.lower() else relation
        case Filter(source):
            return replace(relation, source=_at_scan(source, name, change, blocks))
        case Project(source, outputs):
            inner = dict(outputs).get(name)
            if isinstance(inner, Reference):
                return replace(relation, source=_at_scan(source, inner.name, change, blocks))
            return relation
        case Join(left, right, keeps_left=keeps_left):
            if any(name == column for column, _ in left.columns):
                return replace(relation, left=_at_scan(left, name, change, blocks))
            if not keeps_left:
                return replace(relation, right=_at_scan(right, name, change, blocks))
    return relation


def _keep(scan: Scan, kind: Kind, codes: Codes, blocks: Blocks) -> Scan:
    reached: Codes = codes
    if blocks.by == "row":
        assert isinstance(kind, Moment)
        if isinstance(codes, range) and codes:
            first, last = (period_of(kind, code, blocks.every) for code in (codes[0], codes[-1]))
            reached = range(first, last + 1)
        else:
            reached = sorted({period_of(kind, code, blocks.every) for code in codes})
    before = set(scan.blocks) if scan.blocks is not None else None
    return replace(scan, blocks=tuple(b for b in reached if before is None or b in before))


def period_of(kind: Moment, code: int, every: str) -> int:
    """The block of a row: the number of its period since 1970."""
    return periods.period_of(every, (kind.start + code * kind.seconds) // SECONDS["day"])
