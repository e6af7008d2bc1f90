"""Replays of all validators hold."""

from __future__ import annotations

import pytest

from lapwing.audit.case import AuditCase, Stage, StageBudget
from lapwing.audit.registry.validating import validator_cases

CASES = {case.name: case for case in validator_cases()}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_reaches_the_noise_moves_within_the_declared_distance(case: AuditCase) -> None:
    result = case.stages[Stage.REPLAY](StageBudget(is_thorough=False))
    assert result.holds, result
    assert "largest distance: 1 of the declared one" in result.notes
