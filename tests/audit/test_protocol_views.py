"""Protocols whose noise is sized wrongly are shown by exact views."""

from __future__ import annotations

from lapwing.audit.case import StageBudget
from lapwing.audit.protocol_views import ViewedSetting, view_stage
from lapwing.parties.protocols.share_dealing import AdditiveSharing


def test_noise_sized_for_all_members_is_shown() -> None:
    planned, wrong = (ViewedSetting(AdditiveSharing, 3, 1, 0, 5, shares=shares) for shares in (2, 3))
    quick = StageBudget(is_thorough=False)
    assert view_stage(lambda _: [planned])(quick).holds
    found = view_stage(lambda _: [wrong])(quick)
    assert found.witness is not None
    assert found.witness.at_least is not None
    assert 1.38 < found.witness.at_least < 1.4
