"""Questions that are built by hand: a sensitivity smaller than theirs is noticed.

That each keeps its own, and reaches it, `tests/audit/test_audit_run.py` shows with all other claims.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from lapwing.audit.case import Stage, StageBudget
from lapwing.audit.generated_sources import GeneratedSources
from lapwing.audit.query_audit import query_case
from lapwing.audit.registry.clinic import built_in_sources, planned_question
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.regression_sums import regression_sums, rows_below
from lapwing.sql.question.relation import Filter
from lapwing.sql.question.truncation_questions import truncated_people_question, truncated_rows_question

QUICK = StageBudget(is_thorough=False)
BUILDERS: dict[str, tuple[Callable[[GeneratedSources], BoundQuery], int]] = {
    "rows left out": (lambda own: truncated_rows_question(own.policy, "visits", 10), 0),
    "rows that count": (lambda own: truncated_rows_question(own.policy, "visits", 10), 1),
    "a sum of a regression": (lambda own: regression_sums(own.policy, "visits", ("stay",)).question, 1),
    "a product of a regression": (lambda own: regression_sums(own.policy, "visits", ("stay",)).question, 2),
    "ranks": (lambda own: rows_below(own.policy, "visits", "stay", 30), 0),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_a_smaller_sensitivity_is_a_violation(name: str) -> None:
    build, place = BUILDERS[name]
    sources = built_in_sources("people")

    def wrong(own: GeneratedSources) -> BoundQuery:
        question = build(own)
        parts = list(question.parts)
        parts[place] = replace(parts[place], l1=parts[place].l1 - 1, l2_squared=(parts[place].l1 - 1) ** 2)
        return replace(question, parts=tuple(parts))

    case = query_case(name, planned_question(sources, wrong(sources), name), sources)
    found = case.stages[Stage.REPLAY](QUICK).witness
    assert found is not None
    assert "farther apart than declared" in found.event


def test_a_person_counts_once_among_those_with_more_rows() -> None:
    sources = built_in_sources("people")

    def wrong(own: GeneratedSources) -> BoundQuery:
        question = truncated_people_question(own.policy, "visits")
        assert isinstance(question.source, Filter)
        return replace(question, source=question.source.source)

    case = query_case("planted", planned_question(sources, wrong(sources), "planted"), sources)
    assert case.stages[Stage.REPLAY](QUICK).witness is not None
