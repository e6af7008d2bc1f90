"""The cases of questions that are built by hand, not by the binder: their sensitivities are written down.

They ask for truncated rows, magnitudes, sizes of groups, states of cells, sums for a regression, and ranks.
A test fails if a function of `lapwing.sql` builds a question and no case here has it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

from lapwing.audit.case import AuditCase, Family, Stage, StageBudget, StageResult
from lapwing.audit.generated_sources import GeneratedSources
from lapwing.audit.query_audit import query_case, query_replay
from lapwing.audit.registry.clinic import (
    DELTA,
    EPSILON,
    WARDS,
    built_in_policy,
    built_in_sources,
    planned_question,
    with_other_noise,
)
from lapwing.sql.cell_check import cells_question, policy_of_states
from lapwing.sql.policy.kinds import Text
from lapwing.sql.question.bind import bind
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.preliminary_questions import (
    bounds_question,
    policy_with_column,
    policy_with_searched_column,
    sizes_question,
)
from lapwing.sql.question.regression_sums import regression_sums, rows_below
from lapwing.sql.question.scope import Catalog
from lapwing.sql.question.truncation_questions import (
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
    plan = planned_question(sources, build(sources), name, noise=noise)
    others = with_other_noise(sources, plan)
    return query_case(f"SQL: {name}", plan, sources, covers=covers, others=others)


def _bound(own: GeneratedSources, sql: str) -> BoundQuery:
    return bind(sql, Catalog(own.policy, own.public))


def _cells(own: GeneratedSources) -> BoundQuery:
    policy, names = policy_of_states(own.policy, _TABLE, _CHECKED)
    return cells_question(Catalog(policy, own.public), _TABLE, names)


@lru_cache(maxsize=1)
def _states() -> GeneratedSources:
    """Return generated people whose cells are read as their states."""
    people = built_in_policy("people")
    return GeneratedSources(
        people, {}, read_as=lambda policy: policy_of_states(policy, _TABLE, _CHECKED)[0]
    )


@lru_cache(maxsize=1)
def _searched() -> GeneratedSources:
    """Return generated people with a column whose bounds are not known. Some of its numbers are huge."""
    policy = policy_with_searched_column(built_in_policy("people"), _TABLE, _SEARCHED, Fraction(1, 100))
    return GeneratedSources(policy, {})


# Columns that a policy does not declare: the searches of `lapwing.learn`


def column_search_cases() -> tuple[AuditCase, ...]:
    """Return a case for the search of bounds, and one for the search of values."""

    def case(
        name: str, function: str, delta: Fraction, people: Callable[[], GeneratedSources], build: Build
    ) -> AuditCase:
        stages = {Stage.REPLAY: partial(_replay_search, people, build)}
        covers = (f"lapwing.learn.column_search.{function}",)
        return AuditCase(name, Family.SELECTION, covers, EPSILON, delta, stages)

    return (
        case("search for bounds", "find_bounds", Fraction(0), _undeclared_bounds,
            lambda own: bounds_question(own.policy, _TABLE, "stay")),
        case("search for values", "find_values", DELTA, _undeclared_values,
            lambda own: _bound(own, "SELECT name, COUNT(*) AS n FROM visits GROUP BY name")),
    )  # fmt: skip


def _undeclared_bounds() -> GeneratedSources:
    policy = policy_with_searched_column(built_in_policy("people"), _TABLE, "stay", 1)
    return GeneratedSources(policy, {"wards": WARDS})


def _undeclared_values() -> GeneratedSources:
    policy = policy_with_column(built_in_policy("people"), _TABLE, "name", Text())
    return GeneratedSources(policy, {"wards": WARDS})


def _replay_search(
    people: Callable[[], GeneratedSources], build: Build, budget: StageBudget
) -> StageResult:
    """Replay a search on generated people, whose files are removed afterwards."""
    sources = people()
    try:
        return query_replay(planned_question(sources, build(sources), "a search"), sources)(budget)
    finally:
        sources.close()
