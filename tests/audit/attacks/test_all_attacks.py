"""Attacks by name."""

from __future__ import annotations

import pytest

from lapwing.audit.attacks import ATTACKS, attacks_named
from lapwing.errors import BadParameter


def test_attacks_are_found_by_name() -> None:
    assert [each.name for each in attacks_named("all")] == list(ATTACKS)
    assert attacks_named("refill") == [ATTACKS["refill"]]
    with pytest.raises(BadParameter, match='Did you mean "refill"'):
        attacks_named("refil")
