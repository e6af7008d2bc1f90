"""Every way to publish has a case, and every case holds."""

from __future__ import annotations

import pytest

from lapwing.audit.case import AuditCase, Stage, StageBudget
from lapwing.audit.registry.publishing import publishing_cases
from lapwing.publish.release_file import METHODS

CASES = publishing_cases()


def test_each_method_has_a_case() -> None:
    covered = [covers for case in CASES for covers in case.covers]
    assert set(METHODS) <= set(covered)
    assert len({case.name for case in CASES}) == len(CASES)
    assert sum("with a check" in case.name for case in CASES) == 3


@pytest.mark.slow  # test_audit_run.py runs them, too
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_violation_is_found(case: AuditCase) -> None:
    found = case.stages[Stage.REPLAY](StageBudget(is_thorough=False))
    assert found.holds, found.witness
    assert found.notes[1] == "largest distance: 1 of the declared one"
