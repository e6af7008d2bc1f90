"""Attempts of pipelines and searches of columns hold."""

from __future__ import annotations

import pytest

from lapwing.audit.case import AuditCase, Stage, StageBudget
from lapwing.audit.registry.pipelines import pipeline_cases
from lapwing.audit.registry.preliminary import column_search_cases

CASES = {
    case.name: case
    for case in (*pipeline_cases(), *column_search_cases())
    if case.name != "attempt: network"  # slow; the registry runs it
}


@pytest.mark.slow  # test_audit_run.py runs them, too
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_replay_holds(case: AuditCase) -> None:
    result = case.stages[Stage.REPLAY](StageBudget(is_thorough=False))
    assert result.holds, result
    assert result.checks > 10
