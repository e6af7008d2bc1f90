"""Who was in the data of a model or a table."""

from __future__ import annotations

from lapwing.audit.attacks.attack_result import AttackSettings
from lapwing.audit.attacks.membership import membership


def test_the_attack_succeeds_without_protection_and_stays_below_the_limit_with_it() -> None:
    for found in membership(AttackSettings.of(1, 4)):
        assert found.unprotected.rate >= 0.9
        assert not found.is_violation, found.sentence
