"""Coins and quorums of protocols: pieces that are not uniform, and two sets without an honest member."""

from __future__ import annotations

from typing import Any

import pytest

from lapwing.audit.case import StageBudget, Witness
from lapwing.audit.protocol_views import ViewedSetting, view_stage
from lapwing.audit.registry.protocols import _coin_laws
from lapwing.audit.stages.known_law import law_violation
from lapwing.core import noise
from lapwing.parties.protocols import secret_sharing
from lapwing.parties.protocols.protocol import Setting
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.protocols.secret_sharing import FreshCoins

QUICK = StageBudget(is_thorough=False)
ERROR = 1e-10  # of a law; there are eight


def wrong_coins() -> Witness | None:
    """Return what is wrong with the coins of members; None if they follow their laws."""
    return next((found for known in _coin_laws() if (found := law_violation(known, ERROR))), None)


def test_coins_that_are_not_uniform_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong_coins() is None
    right = noise.uniform_int
    for wrong in (
        lambda low, high, size: right(low, 1 << (int(high).bit_length() - 1), size),
        lambda low, high, size: right(low, high, size) & ~1,
        lambda low, high, size: right(low, high, (size + 1) // 2).repeat(2)[:size],
    ):
        monkeypatch.setattr(secret_sharing, "uniform_int", wrong)
        witness = wrong_coins()
        assert witness is not None
        assert "coins" in witness.pair


def test_secrets_that_are_always_the_same_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FreshCoins, "secret", lambda _self: bytes(32))
    witness = wrong_coins()
    assert witness is not None
    assert "secrets" in witness.pair


@pytest.mark.parametrize("letter", ["C", "D"])
def test_a_quorum_that_is_one_member_too_small_is_found(
    monkeypatch: pytest.MonkeyPatch, letter: str
) -> None:
    viewed = ViewedSetting(PROTOCOLS[letter], 5, 1, 1, 7, honest_quorum=True, signs_twice=True)
    stage: Any = view_stage(lambda _: [viewed])
    assert stage(QUICK).holds

    def too_small(setting: Setting) -> int:
        return (setting.members + setting.coalition + 1) // 2

    monkeypatch.setattr(Setting, "quorum", property(too_small))
    witness = stage(QUICK).witness
    assert witness is not None
    assert "shown" in witness.event
