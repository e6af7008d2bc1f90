"""A budget that refills every day."""

from __future__ import annotations

import pytest

from lapwing.audit.attacks.attack_result import AttackSettings
from lapwing.audit.attacks.refill import refill
from lapwing.errors import OverBudget


def test_the_attack_succeeds_without_protection_and_stays_below_the_limit_with_it() -> None:
    for found in refill(AttackSettings.of(1, 50)):
        assert found.unprotected.rate >= 0.9
        assert found.protected.rate < 0.97
        assert not found.is_violation, found.sentence


def test_a_device_sends_one_report_and_success_rises_over_time_without_a_lifetime() -> None:
    [found] = refill(AttackSettings.of(1, 50))
    assert "sent 1 report" in found.notes[0]
    assert found.over_time[0].unprotected.right < found.over_time[-1].unprotected.right


def test_a_device_that_forgets_its_account_is_called_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.survey.respondent._afford", lambda state, survey: None)
    [found] = refill(AttackSettings.of(1, 3))
    assert found.is_violation
    assert "30 reports" in found.sentence


def test_a_device_that_sends_nothing_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(state: object, survey: object) -> None:
        raise OverBudget("1", "0", "Stop.")

    monkeypatch.setattr("lapwing.survey.respondent._afford", refuse)
    [found] = refill(AttackSettings.of(1, 3))
    assert found.is_violation
    assert "nothing was attacked" in found.sentence
