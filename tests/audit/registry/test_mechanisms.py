"""Wrong numbers of a mechanism that a quick audit must find."""

from __future__ import annotations

import pytest

from lapwing.audit.case import Stage, StageBudget
from lapwing.audit.registry import mechanism_case, mechanisms
from lapwing.core import order_statistics


def test_a_quantile_below_one_half_moves_by_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sensitivity of f instead of max(f, 1 − f) is right for f ≥ 1/2 only."""
    (case,) = [one for one in mechanisms.mechanism_cases() if one.name == "quantile"]
    quick = StageBudget(is_thorough=False)
    assert case.stages[Stage.EXACT](quick).holds
    audited = mechanism_case.forced(order_statistics).Quantile
    monkeypatch.setattr(audited, "sensitivity", property(lambda self: self.rows * (self.fraction or 1)))
    witness = case.stages[Stage.EXACT](quick).witness
    assert witness is not None
    assert "quantile 1/10" in witness.pair
