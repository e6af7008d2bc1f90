"""Rows without names are joined with names."""

from __future__ import annotations

from lapwing.audit.attacks.attack_result import AttackSettings
from lapwing.audit.attacks.linkage import linkage
from lapwing.core.observed import observing


def test_the_attack_succeeds_without_protection_and_stays_below_the_limit_with_it() -> None:
    for found in linkage(AttackSettings.of(1, 50)):
        assert found.unprotected.rate >= 0.9
        assert found.protected.rate < 0.97
        assert not found.is_violation, found.sentence


def test_a_release_without_noise_is_called_a_violation() -> None:
    with observing(lambda mechanism, inputs, draw: inputs["values"], during_charges=True):
        for found in linkage(AttackSettings.of(1, 50)):
            assert found.is_violation
            assert "VIOLATION" in found.sentence
