"""Two counts differ by one person."""

from __future__ import annotations

from lapwing.audit.attacks.attack_result import AttackSettings
from lapwing.audit.attacks.differencing import differencing


def test_the_attack_succeeds_without_protection_and_stays_below_the_limit_with_it() -> None:
    for found in differencing(AttackSettings.of(1, 100)):
        assert found.unprotected.rate >= 0.9
        assert found.protected.rate < 0.97
        assert not found.is_violation, found.sentence
