"""Questions about truncated rows: how many rows, and of how many people, exceed the contribution bound."""

from __future__ import annotations

from fractions import Fraction

from lapwing.config.values import checked_count
from lapwing.errors import BadParameter
from lapwing.sql.policy.kinds import Numeric, Truth
from lapwing.sql.policy.policy import CheckedPolicy, has_blocks_by_arrival
from lapwing.sql.question.bound_query import (
    BoundQuery,
    NoisyAggregate,
    NoisySum,
    Output,
    Sum,
    count_question,
)
from lapwing.sql.question.expression import Constant, Op, Reference
from lapwing.sql.question.preliminary_questions import private_table
from lapwing.sql.question.relation import (
    RANK,
    Filter,
    Scan,
)
from lapwing.sql.question.typed_expressions import apply, as_number

ROWS_BEYOND = (10, 100, 1_000, 10_000, 100_000)  # the most rows of a person beyond the bound to count
_SIDE = Fraction(1, 8)  # the weight of the two other numbers: each gets about a sixth of ε


# Questions


def checked_beyond(beyond: int) -> int:
    """Require one of the numbers `ROWS_BEYOND`: few, so that stored answers can be found again."""
    if isinstance(beyond, bool) or beyond not in ROWS_BEYOND:
        raise BadParameter("beyond", f"must be one of {', '.join(map(str, ROWS_BEYOND))}")
    return beyond


def truncated_people_question(policy: CheckedPolicy, table: str, rows: int | None = None) -> BoundQuery:
    """Build the question how many people exceed the bound K: each has one row of rank K + 1."""
    own = private_table(policy, table)
    over = (rows or own.rows_per_unit) + 1
    rank = Numeric(Fraction(1), 1, over)
    scan = Scan(table, ((RANK, rank),), over)
    source = Filter(scan, apply(Op.EQ, Reference(RANK, rank), Constant(over, rank)))
    return count_question(source, "people with more rows", 1, name="people_with_more_rows")


def truncated_rows_question(
    policy: CheckedPolicy, table: str, beyond: int, rows: int | None = None
) -> BoundQuery:
    """Build the question how many rows the bound K truncates, how many it keeps, and of how many people.

    Claim    removing a person moves these by at most `beyond`, K and 1.
    Because  rows are ranked within their person. At most K rows have ranks up to K; at most `beyond` have
             ranks from K + 1 to K + `beyond`, and no others are read; one has rank K + 1.
    Test     tests/sql/question/test_truncation_questions.py
    """
    own = private_table(policy, table)
    if own.unit is not None and not own.unit.column:
        raise BadParameter("table", "has no person with several rows: each row is protected by itself")
    bound = rows or own.rows_per_unit
    last = bound + beyond
    rank = Numeric(Fraction(1), 1, last)
    # This WHERE is always true. It makes the reader rank the source again: a copy has too few rows.
    scan = Scan(table, ((RANK, rank),), last, where=Constant(True, Truth()))

    def counted(op: Op, over: int) -> Sum:
        is_so = apply(op, Reference(RANK, rank), Constant(over, rank))
        return Sum("sum", as_number(is_so))

    sums = (Sum("rows"), counted(Op.GT, bound), counted(Op.EQ, bound + 1))
    parts = (
        NoisySum("rows left out", ((1, 1),), beyond, beyond * beyond),
        NoisySum("rows that count", ((1, 0), (-1, 1)), bound, bound * bound, _SIDE),
        NoisySum("people with more rows", ((1, 2),), 1, 1, _SIDE),
    )
    names = ("rows_left_out", "rows_that_count", "people_with_more_rows")
    outputs = tuple(Output(name, NoisyAggregate("count", (place,))) for place, name in enumerate(names))
    return BoundQuery(scan, (), ((),), sums, parts, (), outputs, last)


def truncation_question(
    policy: CheckedPolicy, table: str, rows: int | None, beyond: int | None
) -> tuple[BoundQuery, str, int | None]:
    """Return the question about truncated people (or rows, with `beyond`), its name and lower bound."""
    own = policy.tables.get(table)
    is_lower = rows is not None and checked_count(rows, "rows") < (own.rows_per_unit if own else 0)
    lowered = rows if is_lower else None
    if beyond is None:
        question = truncated_people_question(policy, table, lowered)
        return question, f"people with more rows in {table}", lowered
    if has_blocks_by_arrival(policy):
        raise BadParameter("beyond", "reads the source, and only the copy knows who arrived when")
    question = truncated_rows_question(policy, table, checked_beyond(beyond), lowered)
    return question, f"rows left out of {table}, at most {beyond} of a person", lowered


def possible_beyond(policy: CheckedPolicy) -> tuple[int, ...]:
    """Return the numbers of truncated rows of a person that can be counted under a policy."""
    return () if has_blocks_by_arrival(policy) else ROWS_BEYOND
