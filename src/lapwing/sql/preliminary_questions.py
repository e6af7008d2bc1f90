"""Questions to release before others: bounds of a column, and sizes of groups.

They are charged and answered like all questions. This module builds them and reads their answers.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from lapwing.config.values import why_bad_name
from lapwing.core.exact import Number, positive
from lapwing.core.laplace import Laplace
from lapwing.errors import BadParameter
from lapwing.sql.answers import Answer
from lapwing.sql.binding.typed_expressions import apply
from lapwing.sql.bound_query import BoundQuery, Key, count_question
from lapwing.sql.expression import Apply, Constant, Expression, Kind, Numeric, Op, Reference
from lapwing.sql.noising import BudgetShares
from lapwing.sql.policy import Column, Policy, Table
from lapwing.sql.relation import Scan

DOUBLINGS = 50  # a searched number has at most 2^50 steps
_WIDEST = 1 << DOUBLINGS
SIZES_PREFIX = "sizes of the groups of"


def policy_with_searched_column(policy: Policy, table: str, column: str, step: Number) -> Policy:
    """Return the policy with one more column, wide enough for any number."""
    return policy_with_column(policy, table, column, Numeric(positive(step, "step"), -_WIDEST, _WIDEST))


def policy_with_column(policy: Policy, table: str, column: str, kind: Kind) -> Policy:
    """Return the policy with a column of this kind. Hidden columns and units are refused."""
    own = private_table(policy, table)
    closed = {*own.hidden, *((own.unit.column, own.unit.in_source) if own.unit else ())}
    if column.lower() in map(str.lower, closed) or why_bad_name(column):
        raise BadParameter("column", "is hidden by the policy, tells people apart, or cannot be a column")
    others = {name: one for name, one in own.columns.items() if name.lower() != column.lower()}
    known = next((one for name, one in own.columns.items() if name not in others), None)
    columns = {**others, column: Column(column, kind, source=known.source if known else "")}
    return replace(policy, tables={**policy.tables, table: replace(own, columns=columns)})


def private_table(policy: Policy, table: str) -> Table:
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


def bounds_question(policy: Policy, table: str, column: str) -> BoundQuery:
    """Build the question how many rows have each magnitude."""
    own = private_table(policy, table)
    kind = own.columns[column].kind
    scan = Scan(table, tuple((name, one.kind) for name, one in own.columns.items()), own.rows_per_unit)
    codes = range(-DOUBLINGS - 1, DOUBLINGS + 2)
    key = Key("magnitude", magnitude(Reference(column, kind)), codes)
    return count_question(scan, "rows of each magnitude", own.rows_per_unit, key)


def read_bounds(
    answer: Answer, shares: BudgetShares, kind: Kind, *, miss: float = 0.001
) -> tuple[float, float]:
    """Return the smallest range outside of which counts are no larger than noise.

    With probability 1 - `miss` no empty magnitude is taken for one that has rows.
    """
    assert isinstance(kind, Numeric)
    mechanism = shares.mechanism(0, 0)
    assert isinstance(mechanism, Laplace)
    magnitudes, rows = (column.values for column in answer.columns)
    threshold = float(mechanism.scale) * math.log(len(rows) / miss)
    seen = [int(code) for code, count in zip(magnitudes, rows, strict=True) if count > threshold]
    if not seen:
        raise BadParameter("epsilon", "was too small to see any values. Ask with more of it")
    low, high = min(seen), max(seen)
    bottom = 0 if low >= 0 else -(1 << -low)
    top = 0 if high <= 0 else 1 << high
    return float(bottom * kind.step), float(top * kind.step)


def sizes_question(question: BoundQuery) -> BoundQuery:
    """Build the question how many rows the groups of a question have."""
    return replace(
        count_question(question.source, "rows", question.rows, *question.keys), sets=question.sets
    )


def least_size(answer: Answer) -> int:
    """Return a number of rows that every group with rows has, by the lower ends of the intervals."""
    low = answer.columns[-1].low
    sizes = [int(value) for value in ([] if low is None else low) if value > 0]
    if not sizes:
        raise BadParameter(
            "within", "cannot be planned: the first stage saw too few rows. Ask with epsilon"
        )
    return min(sizes)
