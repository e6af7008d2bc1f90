"""Two counts differ by one person."""

from __future__ import annotations

import pytest

from lapwing.audit.attacks import differencing as module
from lapwing.audit.attacks.attack_result import AttackSettings
from lapwing.audit.attacks.differencing import differencing
from lapwing.errors import OverBudget


def test_the_attack_succeeds_without_protection_and_stays_below_the_limit_with_it() -> None:
    for found in differencing(AttackSettings.of(1, 100)):
        assert found.unprotected.rate >= 0.9
        assert found.protected.rate < 0.97
        assert not found.is_violation, found.sentence


@pytest.mark.parametrize("answered", [0, 1])
def test_a_third_answer_in_any_batch_is_a_violation(monkeypatch: pytest.MonkeyPatch, answered: int) -> None:
    refusals: list[OverBudget | None] = [OverBudget("1", "0", "Stop."), OverBudget("1", "0", "Stop.")]
    refusals[answered] = None
    monkeypatch.setattr(module, "AT_ONCE", 1)
    monkeypatch.setattr(module, "_third", lambda patients, price: refusals.pop(0))
    [found] = differencing(AttackSettings.of(1, 2))
    assert found.is_violation
    assert "a third question was answered" in found.sentence
