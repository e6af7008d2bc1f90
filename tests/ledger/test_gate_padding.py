"""A gate that pads: what becomes of a charge is stored, and so seen, at a rung of a random ladder (C14)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from lapwing.core.losses import Pure, Repeated
from lapwing.errors import WorkEnded
from lapwing.ledger import Ledger, padding
from lapwing.ledger.gate import ChargedRelease, Gate, Release
from lapwing.ledger.request_status import RequestState
from support.clocks import PaddingClock
from support.ledgers import Home, open_account, release, spending

START = 1.25  # the first rung; the next ones are 2.5, 5 and 10
WORKED = {0.0: 1.25, 1.2: 1.25, 1.3: 2.5, 2.6: 5.0, 9.9: 10.0}
STEP = Pure(Fraction(1, 100))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, padding_clock: PaddingClock) -> PaddingClock:
    monkeypatch.setattr(padding, "random_start", lambda: START)
    padding_clock.stop()
    return padding_clock


def working(clock: PaddingClock, seconds: float, *, fails: bool = False) -> Callable[[], bytes]:
    def run() -> bytes:
        clock.work(seconds)
        if fails:
            raise ValueError
        return b"42"

    return run


def padded(ledger: Ledger, run: Callable[[], bytes], key: str | None = None) -> Release:
    gate = Gate(ledger, principal="analyst", pads=True)
    return gate.release(ChargedRelease(spending("0.01"), run), key=key)


def test_an_answer_or_a_failure_is_stored_at_the_next_rung(home: Home, clock: PaddingClock) -> None:
    ledger = home.create()
    open_account(ledger)
    for fails in (False, True):
        for worked, rung in WORKED.items():
            begun = clock.monotonic()
            run = working(clock, worked, fails=fails)
            if fails:
                with pytest.raises(WorkEnded):
                    padded(ledger, run)
            else:
                padded(ledger, run)
            assert clock.monotonic() - begun == pytest.approx(rung)


def test_whoever_looks_during_the_wait_sees_neither_answer_nor_failure(
    home: Home, clock: PaddingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = home.create()
    open_account(ledger)
    other, seen = home.open(), list[tuple[RequestState, int]]()

    def look(seconds: float) -> None:
        found = Gate(other, principal="analyst").find("k0" if not seen else "k1")
        [(entries,)] = other.store.rows("SELECT count(*) FROM entries")
        assert found is not None
        seen.append((found.state, entries))
        clock.work(seconds)

    monkeypatch.setattr(padding, "sleep", look)
    padded(ledger, working(clock, 0.3), "k0")
    with pytest.raises(WorkEnded):
        padded(ledger, working(clock, 0.3, fails=True), "k1")
    assert [state for state, _ in seen] == [RequestState.OPEN] * 2
    assert seen[1][1] == seen[0][1] + 2  # the answer, and the second charge


def test_positions_of_entries_depend_on_the_rung_alone(
    home: Home, clock: PaddingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second session asks eight times a second, and counts its entries between charge and answer."""
    ledger = home.create()
    open_account(ledger)
    other, between = home.open(), list[int]()

    def ask_meanwhile(seconds: float) -> None:
        for _ in range(round(8 * seconds)):
            clock.work(1 / 8)
            release(other, "0.000001", principal="other")

    monkeypatch.setattr(padding, "sleep", ask_meanwhile)

    def run(seconds: float) -> Callable[[], bytes]:
        def work() -> bytes:
            ask_meanwhile(seconds)
            return b"42"

        return work

    monkeypatch.setattr(padding, "random_start", lambda: 1.0)
    for worked in (0.0, 1 / 8, 7 / 8):
        position = padded(ledger, run(worked)).receipt.position
        [(answered,)] = ledger.store.rows("SELECT entry FROM answers WHERE charge = ?", position)
        between.append(answered - position)
    assert len(set(between)) == 1
    assert between[0] == 1 + 2 * 8


def test_a_stored_answer_comes_at_once(home: Home, clock: PaddingClock) -> None:
    ledger = home.create()
    open_account(ledger)
    padded(ledger, working(clock, 0.5), "k")
    begun = clock.monotonic()
    assert padded(ledger, working(clock, 0.5), "k").is_replay
    assert clock.monotonic() == begun


def test_who_interrupts_the_wait_gets_no_answer_and_stays_charged(
    home: Home, clock: PaddingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = home.create()
    open_account(ledger)

    def interrupt(seconds: float) -> None:
        clock.sleep(seconds)  # an interrupt is raised at the rung
        raise KeyboardInterrupt

    monkeypatch.setattr(padding, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        padded(ledger, working(clock, 0.5), "k")
    with pytest.raises(WorkEnded):
        padded(ledger, working(clock, 0.5), "k")
    assert ledger.blocks("visits")[0].spent[1] == 10_000_000


@pytest.mark.parametrize("fails", [False, True])
def test_long_work_ends_at_a_rung_after_its_reservation(
    home: Home, clock: PaddingClock, fails: bool
) -> None:
    ledger = home.create()
    open_account(ledger)
    begun = clock.monotonic()
    work = Gate(ledger, principal="analyst", pads=True).reserve(spending(Repeated(STEP, 3)))
    work.step(STEP)
    clock.work(2.6)
    if fails:
        work.fail()
    else:
        work.finish(lambda: b"42")
    assert clock.monotonic() - begun == pytest.approx(5)


def test_a_gate_that_does_not_pad_never_waits(home: Home, clock: PaddingClock) -> None:
    ledger = home.create()
    open_account(ledger)
    release(ledger)
    assert not clock.waits
