"""Questions to release before others: bounds of a column, and sizes of groups.

They are charged and answered like all questions.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from lapwing.config.values import why_bad_name
from lapwing.core.exact import Number, positive
from lapwing.errors import BadParameter
from lapwing.sql.policy.kinds import Kind, Numeric
from lapwing.sql.policy.policy import CheckedPolicy, CheckedTable, Column
from lapwing.sql.question.bound_query import BoundQuery, Key, count_question
from lapwing.sql.question.expression import Apply, Constant, Expression, Op, Reference
from lapwing.sql.question.relation import Scan
from lapwing.sql.question.typed_expressions import apply

DOUBLINGS = 50  # a searched number has at most 2^50 steps
_WIDEST = 1 << DOUBLINGS
SIZES_PREFIX = "sizes of the groups of"


def policy_with_searched_column(
    policy: CheckedPolicy, table: str, column: str, step: Number
) -> CheckedPolicy:
    """Return the policy with one more column, wide enough for any number."""
    return policy_with_column(policy, table, column, Numeric(positive(step, "step"), -_WIDEST, _WIDEST))


def policy_with_column(policy: CheckedPolicy, table: str, column: str, kind: Kind) -> CheckedPolicy:
    """Return the policy with a column of this kind. Hidden columns and units are refused."""
    own = private_table(policy, table)
    closed = {*own.hidden, *((own.unit.column, own.unit.in_source) if own.unit else ())}
    if column.lower() in map(str.lower, closed) or why_bad_name(column):
        raise BadParameter("column", "is hidden by the policy, tells people apart, or cannot be a column")
    others = {name: declared for name, declared in own.columns.items() if name.lower() != column.lower()}
    known = next((declared for name, declared in own.columns.items() if name not in others), None)
    columns = {**others, column: Column(column, kind, source=known.source if known else "")}
    return replace(policy, tables={**policy.tables, table: replace(own, columns=columns)})


def private_table(policy: CheckedPolicy, table: str) -> CheckedTable:
    """Return a private table by its exact name."""
    own = policy.tables.get(table)
    if own is None or own.is_public:
        raise BadParameter("table", f"there is no private table {table!r}"[:80])
    return own


def magnitude(column: Expression) -> Apply:
    """Return 0 for 0, and ±k for numbers of 2^(k-1) to 2^k - 1 steps above or below 0."""
    kind = Numeric(Fraction(1), -DOUBLINGS - 1, DOUBLINGS + 1)
    args: list[Expression] = []
    for power in range(DOUBLINGS, -1, -1):
        args += [apply(Op.LE, column, Constant(-(1 << power), column.kind)), Constant(-power - 1, kind)]
    args += [apply(Op.LT, column, Constant(1, column.kind)), Constant(0, kind)]
    for power in range(DOUBLINGS):
        args += [apply(Op.LT, column, Constant(1 << (power + 1), column.kind)), Constant(power + 1, kind)]
    known = Constant(DOUBLINGS + 1, kind)
    return apply(Op.CASE, apply(Op.IS_NULL, column), Constant(None, kind), *args, known, kind=kind)


def bounds_question(policy: CheckedPolicy, table: str, column: str) -> BoundQuery:
    """Build the question how many rows have each magnitude."""
    own = private_table(policy, table)
    kind = own.columns[column].kind
    scan = Scan(
        table, tuple((name, declared.kind) for name, declared in own.columns.items()), own.rows_per_unit
    )
    codes = range(-DOUBLINGS - 1, DOUBLINGS + 2)
    key = Key("magnitude", magnitude(Reference(column, kind)), codes)
    return count_question(scan, "rows of each magnitude", own.rows_per_unit, key)


def sizes_question(question: BoundQuery) -> BoundQuery:
    """Build the question how many rows the groups of a question have."""
    return replace(
        count_question(question.source, "rows", question.rows, *question.keys), sets=question.sets
    )
