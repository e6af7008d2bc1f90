"""Private search for bounds and categories that a policy does not declare.

Claim    the result is a released answer: using it costs nothing more.
Because  it is asked through the data set's own questions (a search for bounds; a count by key, whose keys
         are selected privately), and the policy is changed by released values alone.
Test     tests/learn/test_column_search.py

A policy with a found column differs from the prepared one, so rows are then read and ranked from the
source. To make this fast, write the found lines (`toml`) into the policy file and prepare it again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from lapwing.config.toml_text import quoted
from lapwing.core.exact import Number as AnyNumber
from lapwing.core.exact import positive
from lapwing.errors import BadParameter
from lapwing.sql.answering.answers import Answer
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.kinds import Choice, Numeric, Text
from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.sql.question.preliminary_questions import policy_with_column, private_table


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A policy that declares the found column, the answer it rests on, and the lines for its file."""

    policy: CheckedPolicy
    answer: Answer
    toml: str


def find_bounds(
    dataset: Dataset, table: str, column: str, *, epsilon: AnyNumber, step: AnyNumber
) -> FoundColumn:
    """Find bounds of a numeric column privately, as powers of two times its step."""
    size = positive(step, "step")
    low, high, answer = dataset.search_bounds(table, column, epsilon=epsilon, step=step)
    first, last = math.floor(Fraction(low) / size), math.ceil(Fraction(high) / size)
    policy = policy_with_column(dataset.policy, table, column, Numeric(size, first, max(last, first + 1)))
    ends = f"low = {_plain(first * size)}\nhigh = {_plain(max(last, first + 1) * size)}"
    return FoundColumn(
        policy, answer, f"[tables.{table}.columns.{column}]\n{ends}\nstep = {_plain(size)}\n"
    )


def find_values(
    dataset: Dataset, table: str, column: str, *, epsilon: AnyNumber, delta: AnyNumber
) -> FoundColumn:
    """Find the values of a text column that enough people have. All other values then count as missing."""
    own = private_table(dataset.policy, table)
    known = next(
        (declared for name, declared in own.columns.items() if name.lower() == column.lower()), None
    )
    if known is not None and not isinstance(known.kind, Text):
        raise BadParameter("column", "is declared with bounds or values already")
    sql = f'SELECT "{column}", COUNT(*) AS n FROM "{table}" GROUP BY "{column}"'  # noqa: S608
    with dataset.curator.with_policy(policy_with_column(dataset.policy, table, column, Text())) as curator:
        answer = Dataset(curator, analyst=dataset.analyst).ask(sql, epsilon=epsilon, delta=delta)
    values = tuple(sorted(str(value) for value in answer.columns[0].values))
    if not values:
        raise BadParameter("epsilon", "was too small to find any value. Ask with a larger ε or δ")
    listed = ", ".join(quoted(value) for value in values)
    toml = f"[tables.{table}.columns.{column}]\nvalues = [{listed}]\n"
    return FoundColumn(policy_with_column(dataset.policy, table, column, Choice(values)), answer, toml)


def _plain(number: Fraction) -> str:
    return str(number.numerator) if number.denominator == 1 else repr(float(number))
