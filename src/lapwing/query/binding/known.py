"""Which values are never missing: then counting them is counting rows, which is measured and paid once.

Claim    an expression that is called known here is never NULL in the relation's rows.
Because  the policy's `missing` fills a column, a condition that is true has known operands, and each
         operation says when it gives NULL; whatever is not listed counts as maybe missing.
Test     tests/query/test_known.py
"""

from __future__ import annotations

from lapwing.query.language.expression import Apply, Constant, Expression, Op, Reference
from lapwing.query.language.relation import (
    BLOCK,
    Filter,
    Join,
    PerUnit,
    Project,
    PublicScan,
    Relation,
    Scan,
    UnionAll,
)
from lapwing.query.policies.policy import Policy

Names = frozenset[str]
_NOTHING: Names = frozenset()
_COMPARISONS = (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.IN, Op.LIKE)
_KNOWN_IF_ALL_ARE = (
    *_COMPARISONS, Op.ADD, Op.SUBTRACT, Op.MULTIPLY, Op.SCALE, Op.ABS, Op.FLOOR_DIVIDE, Op.MODULO,
    Op.FROM_TRUTH, Op.AND, Op.OR, Op.NOT, Op.LOWER, Op.UPPER, Op.TRIM, Op.LENGTH,
)  # fmt: skip


def is_known(expression: Expression, known: Names) -> bool:
    """Whether it is never NULL, if the named columns never are."""
    match expression:
        case Constant(value):
            return value is not None
        case Reference(name):
            return name in known
        case Apply(Op.IS_NULL):
            return True
        case Apply(Op.COALESCE | Op.LEAST | Op.GREATEST, args):
            return any(is_known(arg, known) for arg in args)
        case Apply(Op.CASE, args):
            return all(is_known(arg, known) for arg in (*args[1:-1:2], args[-1]))
        case Apply(op, args):
            return op in _KNOWN_IF_ALL_ARE and all(is_known(arg, known) for arg in args)


def known_columns(relation: Relation, policy: Policy) -> Names:  # noqa: PLR0911 (a case for each relation)
    """The columns of a relation that are never NULL."""
    match relation:
        case Scan(table, columns):
            filled = policy.tables[table].columns
            return frozenset(
                name for name, _ in columns
                if name == BLOCK or (name in filled and filled[name].missing is not None)
            )  # fmt: skip
        case PublicScan():
            return _NOTHING
        case Filter(source, predicate):
            return known_columns(source, policy) | known_where(predicate)
        case Project(source, outputs):
            inner = known_columns(source, policy)
            return frozenset(name for name, expression in outputs if is_known(expression, inner))
        case Join(left, right, on, keeps_left):
            mine = known_columns(left, policy)
            if keeps_left:
                return mine
            keys = frozenset(name for pair in on for name in pair)  # equal, so neither is missing
            return mine | known_columns(right, policy) | keys
        case UnionAll(sources):
            return frozenset.intersection(*[known_columns(source, policy) for source in sources])
        case PerUnit(source):
            return _known_of_units(relation, known_columns(source, policy))


def _known_of_units(per: PerUnit, inner: Names) -> Names:
    keys = {name for name, expression in per.keys if is_known(expression, inner)}
    return frozenset(keys).union(
        name for name, function, argument, _ in per.aggregates
        if function in ("rows", "count", "distinct") or (argument is not None and is_known(argument, inner))
    )  # fmt: skip


def known_where(predicate: Expression) -> Names:
    """The columns that are known in every row for which the predicate is true."""
    match predicate:
        case Apply(Op.AND, args):
            return frozenset().union(*[known_where(arg) for arg in args])
        case Apply(Op.NOT, (Apply(Op.IS_NULL, (Reference(name),)),)):
            return frozenset({name})
        case Apply(op, args) if op in _COMPARISONS:
            return frozenset(arg.name for arg in args if isinstance(arg, Reference))
        case Reference(name):
            return frozenset({name})
        case _:
            return _NOTHING
