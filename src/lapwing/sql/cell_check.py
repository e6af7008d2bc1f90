"""A noisy check of how a policy reads its cells: how many are clamped, undeclared, unreadable or missing.

Claim    noisy counts are charged like all answers: one person changes all counts of a table with C columns
         by at most K·C in all.
Because  at most K rows of a person are kept, and each row has one state for each column: the counts by
         state of one column change by at most K, and columns add up, as GROUPING SETS do.
Test     tests/sql/test_cell_check.py

`lapwing.sql.exact_check` counts the same cells exactly, for the curator alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count
from typing import TypeVar

from lapwing.core.budget import EPSILON_UNIT
from lapwing.core.exact import Number, positive, round_down
from lapwing.errors import OverBudget
from lapwing.sql.answering.answers import Answer
from lapwing.sql.dataset import Dataset
from lapwing.sql.planning import plan_question, plan_truncation
from lapwing.sql.policy.kinds import Choice, Text, Truth
from lapwing.sql.policy.policy import CheckedPolicy, CheckedTable, Column
from lapwing.sql.question import bind, scope
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.reading.column_codes import STATES
from lapwing.sql.releasing import SessionPlan

STATE_COLUMN = "checked_{}"  # names of columns in the question
T = TypeVar("T")
COLUMNS_PER_QUESTION = 5  # totals are made consistent over all combinations of states, so these must be few


@dataclass(frozen=True, slots=True)
class NoisyCells:
    """Released counts of the cells of some columns, by state."""

    columns: tuple[str, ...]
    answer: Answer

    def listed(self, table: CheckedTable) -> Iterator[tuple[str, str, int]]:
        """Yield column, state and row in the answer, for all counts that can differ from 0."""
        *keys, _ = self.answer.columns
        for row in range(len(self.answer)):
            states = zip(self.columns, [key.values[row] for key in keys], strict=True)
            [(name, state)] = [pair for pair in states if pair[1] is not None]  # None, but for one column
            if state in possible_states(table.columns[name]):
                yield name, state, row


@dataclass(frozen=True, slots=True)
class NoisyCheck:
    """Released counts of one table: cells by state, and units that exceed the contribution bound."""

    table: str
    cells: tuple[NoisyCells, ...]
    beyond: Answer | None
    refused: str = ""  # why counts are missing, if others were paid for


def possible_states(column: Column) -> tuple[str, ...]:
    """Return the states that cells of a column can have."""
    match column.kind:
        case Choice():
            never = {"unreadable", "clamped"}
        case Truth():
            never = {"undeclared", "clamped"}
        case Text() if column.longest is None:
            never = {"undeclared", "clamped"}
        case _:
            never = {"undeclared"}
    return tuple(state for state in STATES if state not in never)


def policy_of_states(
    policy: CheckedPolicy, table: str, names: Iterable[str]
) -> tuple[CheckedPolicy, dict[str, str]]:
    """Return the policy with columns of cell states instead of a table's columns, and their origins.

    The column that slices rows stays: blocks are found from it.
    """
    own, blocks = policy.tables[table], policy.blocks
    taken = {each.unit.column.lower() for each in policy.tables.values() if each.unit is not None}
    taken |= {blocks.column.lower()} if blocks is not None else set()
    numbers = (number for number in count() if STATE_COLUMN.format(number) not in taken)
    columns = {STATE_COLUMN.format(n): own.columns[name] for n, name in zip(numbers, names, strict=False)}
    states = {
        name: Column(name, Choice(STATES), None, column.longest, column.in_source, column.kind)
        for name, column in columns.items()
    }
    kept = {blocks.column: own.columns[blocks.column]} if blocks is not None and blocks.by == "row" else {}
    changed = replace(own, columns={**kept, **states})
    named = {name: column.name for name, column in columns.items()}
    return replace(policy, tables={**policy.tables, table: changed}), named


def check_noisily(dataset: Dataset, epsilon: Number) -> list[NoisyCheck]:
    """Release noisy counts of the cells of every table by state, for ε in all.

    Tables share ε equally. Within a table, each column has one share, and so have the units that exceed the
    contribution bound.
    """
    tables = dataset.policy.private_tables
    each = _down(positive(epsilon, "epsilon") / len(tables))
    for table in tables:  # a share that is below the least price is refused before any is charged
        for columns, share in _shares(table, each):
            _plan(dataset, table, columns, share, lambda plan: plan)
    checks: list[NoisyCheck] = []
    for table in tables:
        try:
            checks.append(_noisy(dataset, table, each))
        except OverBudget as error:
            if not checks:
                raise
            checks.append(NoisyCheck(table.name, (), None, str(error)))  # the others are paid for
    return checks


def _down(epsilon: Fraction) -> Fraction:
    """Round ε down to whole units of the ledger, so that shares add up to no more than was asked."""
    return Fraction(round_down(epsilon, EPSILON_UNIT), EPSILON_UNIT)


def _shares(table: CheckedTable, epsilon: Fraction) -> list[tuple[tuple[str, ...], Fraction]]:
    """Return the columns of each question about a table with its ε; no columns: units beyond the bound."""
    rows_are_units = table.unit is not None and not table.unit.column
    names, parts = tuple(table.columns), len(table.columns) + (not rows_are_units)
    some = [names[n : n + COLUMNS_PER_QUESTION] for n in range(0, len(names), COLUMNS_PER_QUESTION)]
    some += [] if rows_are_units else [()]
    return [(columns, _down(epsilon * (len(columns) or 1) / parts)) for columns in some]


def _noisy(dataset: Dataset, table: CheckedTable, epsilon: Fraction) -> NoisyCheck:
    cells, beyond = [], None
    try:
        for columns, share in _shares(table, epsilon):
            answer = _plan(dataset, table, columns, share, SessionPlan.release)
            if columns:
                cells.append(NoisyCells(columns, answer))
            else:
                beyond = answer
    except OverBudget as error:
        if not cells:
            raise
        return NoisyCheck(table.name, tuple(cells), None, str(error))
    return NoisyCheck(table.name, tuple(cells), beyond)


def cells_question(catalog: scope.Catalog, table: str, names: Iterable[str]) -> BoundQuery:
    """Build the question how many cells have each state, from the names of the columns of states."""
    some = tuple(names)
    listed, sets = ", ".join(some), ", ".join(f"({name})" for name in some)
    sql = f'SELECT {listed}, COUNT(*) AS cells FROM "{table}" GROUP BY GROUPING SETS ({sets})'  # noqa: S608
    return bind.bind(sql, catalog)


def _plan(
    dataset: Dataset,
    table: CheckedTable,
    columns: Sequence[str],
    epsilon: Fraction,
    use: Callable[[SessionPlan], T],
) -> T:
    """Plan one question of a check, and return what `use` makes of the plan."""
    if not columns:
        return use(plan_truncation(dataset.session, table.name, epsilon, None, None))
    policy, names = policy_of_states(dataset.policy, table.name, columns)
    asked = f"check of {', '.join(columns)} in {table.name}"
    with dataset.session.with_policy(policy) as session:
        question = cells_question(session.curator.catalog(), table.name, names)
        return use(plan_question(session, question, asked, epsilon=epsilon))
