"""The cases of questions that are built by hand, not by the binder: their sensitivities are written down.

They ask for truncated rows, magnitudes, sizes of groups, states of cells, sums for a regression, and ranks.
A test fails if a function of `lapwing.sql` builds a question and no case here has it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from lapwing.audit.case import AuditCase
from lapwing.audit.generated_sources import GeneratedSources
from lapwing.audit.query_audit import AUDITOR, query_case
from lapwing.audit.registry.aggregates import DELTA, EPSILON, built_in_policy, built_in_sources
from lapwing.sql.binding.bind import bind
from lapwing.sql.binding.scope import Catalog
from lapwing.sql.bound_query import BoundQuery
from lapwing.sql.cell_check import cells_question, policy_of_states
from lapwing.sql.dataset import Dataset
from lapwing.sql.plan import Plan, plan_question
from lapwing.sql.policy import Policy
from lapwing.sql.preliminary_questions import bounds_question, policy_with_searched_column, sizes_question
from lapwing.sql.regression_sums import regression_sums, rows_below
from lapwing.sql.truncation import (
    ROWS_BEYOND,
    truncated_people_question,
    truncated_rows_question,
    truncation_question,
)

_TABLE, _SEARCHED = "visits", "cost"
_CHECKED = ("ward", "stay", "name")
_MIDDLE = 30  # a code of the column "stay"
Build = Callable[[GeneratedSources], BoundQuery]


def preliminary_cases() -> list[AuditCase]:
    """Return the cases of questions that are not bound from SQL."""
    plain = built_in_sources("people")
    return [
        _case("truncated people", (truncated_people_question, truncation_question), plain,
            lambda own: truncation_question(own.policy, _TABLE, None, None)[0]),
        _case("truncated people, at a lower contribution bound", (truncated_people_question,), plain,
            lambda own: truncated_people_question(own.policy, _TABLE, 1)),
        _case("truncated rows", (truncated_rows_question, truncation_question), plain,
            lambda own: truncation_question(own.policy, _TABLE, None, ROWS_BEYOND[0])[0]),
        _case("truncated rows, at a lower contribution bound", (truncated_rows_question,), plain,
            lambda own: truncated_rows_question(own.policy, _TABLE, ROWS_BEYOND[0], 1)),
        _case("truncated rows, with Gaussian noise", (truncated_rows_question,), plain,
            lambda own: truncated_rows_question(own.policy, _TABLE, ROWS_BEYOND[0]), noise="gaussian"),
        _case("magnitudes of a column", (bounds_question,), _searched(),
            lambda own: bounds_question(own.policy, _TABLE, _SEARCHED)),
        _case("sizes of groups", (sizes_question,), plain,
            lambda own: sizes_question(_bound(own, "SELECT ward, AVG(stay) FROM visits GROUP BY ward"))),
        _case("sizes of groups of undeclared keys", (sizes_question,), plain,
            lambda own: sizes_question(_bound(own, "SELECT name, MEDIAN(stay) FROM visits GROUP BY name"))),
        _case("states of cells", (cells_question,), _states(), _cells),
        _case("sums for a regression", (regression_sums,), plain,
            lambda own: regression_sums(own.policy, _TABLE, ("stay", "urgent", "cost")).question),
        _case("sums for a regression, with Gaussian noise", (regression_sums,), plain,
            lambda own: regression_sums(own.policy, _TABLE, ("stay", "cost")).question, noise="gaussian"),
        _case("rows at or below a value", (rows_below,), plain,
            lambda own: rows_below(own.policy, _TABLE, "stay", _MIDDLE)),
    ]  # fmt: skip


def _case(
    name: str, covers: tuple[Any, ...], sources: GeneratedSources, build: Build, *, noise: str = "auto"
) -> AuditCase:
    return query_case(
        f"SQL: {name}", planned_question(sources, build, name, noise=noise), sources, covers=covers
    )


def planned_question(sources: GeneratedSources, build: Build, name: str, *, noise: str = "auto") -> Plan:
    """Return the plan of a question that `build` makes for the policy of these sources."""
    session = Dataset(sources.policy, analyst=AUDITOR).session
    return plan_question(session, build(sources), name, epsilon=EPSILON, delta=DELTA, noise=noise)


def _bound(own: GeneratedSources, sql: str) -> BoundQuery:
    return bind(sql, Catalog(own.policy, own.public))


def _of_states(policy: Policy) -> Policy:
    return policy_of_states(policy, _TABLE, _CHECKED)[0]


def _cells(own: GeneratedSources) -> BoundQuery:
    policy, names = policy_of_states(own.policy, _TABLE, _CHECKED)
    return cells_question(Catalog(policy, own.public), _TABLE, names)


@lru_cache(maxsize=1)
def _states() -> GeneratedSources:
    """Return generated people whose cells are read as their states."""
    return GeneratedSources(built_in_policy("people"), {}, read_as=_of_states)


@lru_cache(maxsize=1)
def _searched() -> GeneratedSources:
    """Return generated people with a column whose bounds are not known. Some of its numbers are huge."""
    policy = policy_with_searched_column(built_in_policy("people"), _TABLE, _SEARCHED, Fraction(1, 100))
    return GeneratedSources(policy, {})
