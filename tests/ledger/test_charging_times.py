"""Entries that follow work on rows repeat the time of their charge: they are no clock (C14)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest

from lapwing.core.losses import Pure, Repeated
from lapwing.errors import WorkEnded
from lapwing.ledger import Ledger, append, entry, register
from lapwing.ledger.budget_history import BudgetHistory
from lapwing.ledger.gate import ChargedRelease, Gate
from support.clocks import Clock
from support.ledgers import Home, open_account, release, spending

STEP = Pure(Fraction(1, 10))


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "time_ns", Clock.time_ns)
    monkeypatch.setattr(Clock, "told", datetime(2026, 11, 15, 12, tzinfo=UTC))


def pass_time() -> bytes:
    Clock.told += timedelta(seconds=7)
    return b"42"


def fail() -> bytes:
    pass_time()
    raise ValueError


def records(ledger: Ledger) -> list[dict[str, Any]]:
    rows = ledger.store.rows("SELECT body FROM entries ORDER BY seq")
    return [json.loads(bytes(body)) for (body,) in rows]


def test_all_outcomes_have_the_time_of_their_charge(home: Home) -> None:
    ledger = home.create()
    open_account(ledger, epsilon=10)
    gate = Gate(ledger, principal="analyst")
    gate.release(ChargedRelease(spending(), pass_time))
    with pytest.raises(WorkEnded):
        gate.release(ChargedRelease(spending(), fail))
    work = gate.reserve(spending(Repeated(STEP, 4)))
    for _ in range(2):
        pass_time()
        work.step(STEP)
    work.finish(pass_time)
    pass_time()
    work.settle(stopping_was_decided_from_released_values=True)
    found = [(one["kind"], one["at"]) for one in records(ledger)[-9:]]
    kinds = ["charge", "answer", "charge", "failed", "reserve", "step", "step", "answer", "settle"]
    seconds = [0, 0, 7, 7, 14, 14, 14, 14, 14]
    assert found == [
        (kind, f"2026-11-15T12:00:{second:02d}.000000Z")
        for kind, second in zip(kinds, seconds, strict=True)
    ]
    home.close()
    again = home.open()
    again.verify()
    assert len(BudgetHistory.of(again, "visits").times) > 0


def test_a_version_has_the_time_before_its_people_were_read(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)

    def units() -> Iterator[str]:
        yield "ann"
        pass_time()

    register(ledger, "visits", origin="hospital", account="visits", units=units())
    pass_time()
    append(ledger, "visits", units=units())
    assert [one["at"][17:19] for one in records(ledger)[-2:]] == ["00", "14"]


def test_the_next_charge_has_its_own_time(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    release(ledger)
    pass_time()
    release(ledger)
    assert [one["at"][17:19] for one in records(ledger)[-4:]] == ["00", "00", "07", "07"]
