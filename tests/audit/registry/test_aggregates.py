"""Every aggregate that the binder knows has a case, and every case holds."""

from __future__ import annotations

import pytest

from lapwing.audit.case import AuditCase, Stage, StageBudget
from lapwing.audit.query_audit import batch_case
from lapwing.audit.registry.aggregates import QUERIES, aggregate_cases, batch_cases
from lapwing.audit.registry.clinic import FORMS, built_in_sources
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


def test_a_batch_costs_what_its_questions_lose_together() -> None:
    laplace, gaussian = batch_cases()
    assert laplace.epsilon == 1
    assert gaussian.epsilon < 1
    found = laplace.stages[Stage.REPLAY](StageBudget())
    assert found.holds, found.witness
    assert found.checks >= 20


@pytest.mark.slow
def test_a_batch_with_gaussian_noise_holds() -> None:
    found = batch_cases()[1].stages[Stage.REPLAY](StageBudget())
    assert found.holds, found.witness


def test_a_batch_that_were_charged_for_all_but_one_question_is_found() -> None:
    sources = built_in_sources("people")
    batch = sources.dataset().batch(
        ["SELECT COUNT(*) FROM visits", "SELECT SUM(stay) FROM visits"], epsilon=1
    )
    case = batch_case("one left out", batch.plans, batch.plans[1].shares.loss, batch.cost, sources)
    assert not case.stages[Stage.REPLAY](StageBudget()).holds
