"""Signed states: opening goes on from one, and comes to what a replay of everything comes to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from lapwing.errors import Tampered
from lapwing.ledger import Ledger
from lapwing.ledger import store as store_module
from lapwing.ledger.accountant import replay as books_module
from lapwing.ledger.accountant.replay import Replay, replay_from, state_bytes
from lapwing.ledger.entry import RawEntry, digest_of
from lapwing.ledger.gate import ChargedRelease, Gate
from lapwing.ledger.recovery import recover
from lapwing.ledger.spending import Target
from support.attackers import STEP, somebody_at, tell_a_story
from support.ledgers import Home, open_account, open_sliced, release, spending


def entries_of(ledger: Ledger) -> list[RawEntry]:
    return ledger.store.read(lambda tx: list(tx.history()))


def state_of(home: Home) -> int:
    """The seal at which there is a state; 0 if there is none."""
    program = somebody_at(home)
    rows = program.rows("states")
    program.leave()
    return int(rows[0]["number"]) if rows else 0


def newest_seal(home: Home) -> int:
    program = somebody_at(home)
    number = max(row["number"] for row in program.rows("seals"))
    program.leave()
    return int(number)


def seal_only(ledger: Ledger) -> None:
    """As a charge does now and then, and in PostgreSQL a process beside."""
    ledger.store.write(lambda tx: ledger.store.next_seal(tx, with_state=False))


def story(home: Home) -> list[RawEntry]:
    """Everything that can happen, a loss and a new beginning included."""
    ledger = tell_a_story(home)
    ledger.close()
    home.anchor.unlink()
    recover(home.where, curator=home.curator, keys=home.keys, anchor=home.anchor)
    ledger = home.open()
    ledger.raise_budget("Wolf Hospital", epsilon=1, delta="1e-6", curator=home.curator)
    release(ledger, "0.3", Target("Wolf Hospital", ["b0", "corridor"]))
    Gate(ledger, principal="Dr Owl").reserve(spending(STEP, Target("Wolf Hospital", everyone=True))).step(
        STEP
    )
    return entries_of(ledger)


def test_a_replay_goes_on_from_its_books_at_every_entry(file_home: Home) -> None:
    entries = story(file_home)
    whole = Replay()
    whole.feed(entries)
    assert whole.finish() == ()
    for count in range(1, len(entries) + 1):
        begun = Replay()
        begun.feed(entries[:count])
        books = state_bytes(begun)
        assert books is not None
        going_on = replay_from(books)
        assert state_bytes(going_on) == books
        going_on.feed(entries[count:])
        assert going_on.finish() == ()
        assert state_bytes(going_on) == state_bytes(whole)
        assert list(going_on.blocks()) == list(whole.blocks())


def test_books_see_what_does_not_follow(file_home: Home) -> None:
    """What a whole replay finds in later entries, one from books finds, too."""
    ledger = tell_a_story(file_home)
    entries = entries_of(ledger)
    begun = Replay()
    begun.feed(entries)
    books = state_bytes(begun)
    assert books is not None
    number = entries[-1][0]
    for body in (
        b'{"kind":"settle","at":"2026-11-15T12:00:00.123456Z","reservation":9,"spent":false}',
        b'{"kind":"blocks","at":"2026-11-15T12:00:00.123456Z","account":1,"first":2,"names":["%b"]}'
        % (b"0" * 32),
        b'{"kind":"genesis","at":"2026-11-15T12:00:00.123456Z","ledger":"","key":"","curator":"","format":1}',
    ):
        later = (number + 1, body, digest_of(body))
        going_on = replay_from(books)
        going_on.feed([later])
        assert going_on.finish()
    going_on = replay_from(books)
    going_on.feed([entries[-1]])
    assert going_on.finish() == (f"entry {number}: does not come after the entry before it",)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of all entries that are replayed from now on."""
    numbers: list[int] = []
    feed = Replay.feed

    def note(self: Replay, entries: Iterable[RawEntry]) -> None:
        some = list(entries)
        numbers.extend(seq for seq, _, _ in some)
        feed(self, some)

    monkeypatch.setattr(Replay, "feed", note)
    return numbers


def test_opening_reads_only_what_came_after_the_state(home: Home, read: list[int]) -> None:
    ledger = home.create()
    open_account(ledger, epsilon=10)
    for _ in range(20):
        release(ledger, "0.1")
    ledger.close()
    assert state_of(home) == newest_seal(home)
    read.clear()
    ledger = home.open()
    assert read == []
    release(ledger, "0.1")
    other = home.open()  # beside one that has not sealed yet: its two entries, to compare and to sign
    assert len(read) <= 4
    assert other.blocks("visits")[0].spent[1] == 2_100_000_000
    other.close()
    ledger.close()
    assert len(home.open().verify().findings) == 0


def test_a_ledger_without_a_state_is_replayed_once(home: Home, read: list[int]) -> None:
    """As ledgers of earlier versions are."""
    tell_a_story(home).close()
    program = somebody_at(home)
    program.run("DELETE FROM states")
    count = len(program.rows("entries"))
    program.leave()
    read.clear()
    home.open().close()
    assert len(read) == count
    assert state_of(home) == newest_seal(home)
    read.clear()
    home.open().close()
    assert read == []


def test_books_of_another_form_are_none(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(books_module, "STATE_FORMAT", 2)
        tell_a_story(home).close()
    with home.open() as ledger:
        assert ledger.verify().findings == ()
    assert state_of(home) == newest_seal(home)
    home.open().close()


def test_states_are_written_now_and_then_while_a_ledger_is_open(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "STATE_EVERY", 10)
    ledger = home.create()
    open_account(ledger, epsilon=100)
    seen = []
    for _ in range(20):
        release(ledger, "0.1")
        seal_only(ledger)
        seen.append(state_of(home))
    assert seen == sorted(seen)
    assert 2 < len(set(seen)) < 8
    assert ledger.verify().findings == ()


def test_two_that_have_it_open_go_on_from_each_others_states(home: Home) -> None:
    first = home.create()
    open_sliced(first, 3)
    second = home.open()
    for ledger in (first, second, first, second):
        release(ledger, "0.1", Target("visits", ["b0", "b2"]))
        ledger.store.seal()
        assert state_of(home) == newest_seal(home)
    first.close()
    release(second, "0.1", Target("visits", ["b1"]))
    second.close()
    ledger = home.open()
    assert [block.spent[1] // 10**8 for block in ledger.blocks("visits")] == [0, 4, 1, 4]
    assert ledger.verify().findings == ()


def test_tables_that_are_edited_while_it_is_open_are_not_signed(home: Home) -> None:
    """A state comes from entries alone, so that closing does not make an edit good."""
    ledger = home.create()
    open_account(ledger)
    release(ledger, "0.5")
    program = somebody_at(home)
    program.disarm()
    program.edit("budgets", "UPDATE budgets SET left_1 = 1000000000")
    program.leave()
    release(ledger, "0.1")
    ledger.close()
    with pytest.raises(Tampered, match="block 1 is not as the entries say"):
        home.open()


def test_sealed_entries_that_are_edited_while_it_is_open_are_not_signed(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    release(ledger, "0.5")
    seal_only(ledger)
    program = somebody_at(home)
    program.disarm()
    entry = next(row for row in program.rows("entries") if b'"charge","at"' in row["body"])
    body = entry["body"].replace(b"500000000", b"400000000")
    program.change("entries", entry["place"], body=body, digest=digest_of(body))
    program.edit("budgets", "UPDATE budgets SET left_1 = 600000000")
    program.leave()
    release(ledger, "0.1")
    ledger.close()
    assert not state_of(home)
    with pytest.raises(Tampered):
        home.open()


def test_a_large_ledger_has_no_state(home: Home, monkeypatch: pytest.MonkeyPatch, read: list[int]) -> None:
    monkeypatch.setattr(books_module, "LARGEST_STATE", 5)
    ledger = home.create()
    open_sliced(ledger, 4)
    ledger.close()
    assert state_of(home)
    ledger = home.open()
    ledger.open_blocks("visits", ["one more"])
    ledger.close()
    assert not state_of(home)
    read.clear()
    ledger = home.open()
    assert read
    assert ledger.verify().findings == ()


def test_another_first_entry_is_found(home: Home) -> None:
    """It says where the witnesses are, and is older than any state."""
    tell_a_story(home).close()
    program = somebody_at(home)
    program.disarm()
    first = program.rows("entries")[0]
    start = first["body"].index(b'"ledger":"') + 10
    body = first["body"][:start] + b"0" * 32 + first["body"][start + 32 :]
    program.change("entries", first["place"], body=body, digest=digest_of(body))
    home.anchor.write_text(home.anchor.read_text().splitlines()[-1] + "\n")
    program.leave()
    with pytest.raises(Tampered, match="first entry"):
        home.open()


def test_outcomes_that_come_after_the_state_are_compared(home: Home) -> None:
    """Of charges before it as well: those are asked for one by one."""
    ledger = home.create()
    open_account(ledger)
    during: list[Any] = []

    def run() -> bytes:
        ledger.store.seal()
        during.append(state_of(home))
        return b"42"

    Gate(ledger, principal="analyst").release(ChargedRelease(spending("0.1"), run), key="k")
    assert during
    program = somebody_at(home)
    program.disarm()
    state = program.rows("states")[0]
    ledger.close()
    program.edit("states", "DELETE FROM states")
    program.insert("states", **{name: state[name] for name in state if name != "place"})
    home.open().close()
    program.edit("states", "DELETE FROM states")
    program.insert("states", **{name: state[name] for name in state if name != "place"})
    answer = program.rows("answers")[0]
    program.change("answers", answer["place"], entry=answer["entry"] - 1)
    program.leave()
    with pytest.raises(Tampered, match="the outcome of charge 3 is not as the entries say"):
        home.open()
