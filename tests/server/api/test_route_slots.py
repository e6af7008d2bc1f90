"""The grid of time on which replies of releases leave: answers, repeats and errors alike."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.server.api import route
from support.served import Door, write_data

SLOT = Fraction(1, 5)


def test_the_next_slot_is_never_now() -> None:
    for now in (0.0, 0.1, 0.2, 1e9 + 0.05, 1795135995.348185):
        wait = route.until_next(0.5, now)
        assert 0 < wait <= 0.5
        assert (now + wait) % 0.5 == pytest.approx(0, abs=1e-6) or (now + wait) % 0.5 == pytest.approx(0.5)


def test_every_reply_of_a_release_waits_for_its_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_data(tmp_path)
    door, ends = Door(tmp_path, reply_slot=SLOT), []

    async def sleep(seconds: float) -> None:
        ends.append((now[0] + seconds) % float(SLOT))

    now = [1000.03]
    monkeypatch.setattr("lapwing.server.api.route.time.time", lambda: now[0])
    monkeypatch.setattr("lapwing.server.api.route.asyncio.sleep", sleep)
    ann = door.ann()
    plan, dear = door.plan(ann), door.plan(ann, epsilon="99")
    assert ends == []  # planning reads nothing
    for address, status in ((plan, 200), (plan, 200), (dear, 422), ("0" * 32, 404)):
        assert ann.post(f"/v1/plans/{address}/release").status_code == status
        now[0] += 0.07
    assert door.stranger().post(f"/v1/plans/{plan}/release").status_code in (401, 403)
    door.close()
    slot = float(SLOT)
    assert len(ends) >= 4
    assert all(min(end, slot - end) < 1e-6 for end in ends)
