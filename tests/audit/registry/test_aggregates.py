"""Every aggregate that the binder knows has a case, and every case holds."""

from __future__ import annotations

import pytest

from lapwing.audit.case import AuditCase, Stage, StageBudget
from lapwing.audit.registry.aggregates import QUERIES, aggregate_cases
from lapwing.audit.registry.clinic import FORMS
from lapwing.sql.question.aggregates import AGGREGATES

CASES = aggregate_cases()


def test_each_aggregate_has_a_case() -> None:
    assert set(AGGREGATES) == {aggregate for case in CASES for aggregate in case.covers}
    assert {query.policy for query in QUERIES} == set(FORMS)


def test_names_differ_and_claims_are_those_of_the_plan() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    by_name = {case.name: case for case in CASES}
    assert by_name["SQL: COUNT(*)"].epsilon == 1
    assert by_name["SQL: COUNT(*)"].delta == 0
    assert by_name["SQL: undeclared keys"].delta > 0


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_violation_is_found(case: AuditCase) -> None:
    found = case.stages[Stage.REPLAY](StageBudget())
    assert found.holds, found.witness
    assert found.checks >= 50
    assert "largest distance" in found.notes[1]
