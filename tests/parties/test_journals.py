"""The journal: what a crash cannot make a member forget, or do twice."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lapwing.errors import Aborted, Unavailable
from lapwing.parties.journals import MemberJournal, RecordedCoins, RunEnding
from lapwing.parties.posts import Delivery, Parcel
from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.protocols.secret_sharing import FIELD
from support.parties import Flock, flock

VALUE = np.array([5, -7, 1 << 50, 0], dtype=np.int64)
HEARD = Delivery(0, 0, [(b"envelope", b"box"), (b"other", None)], {2: "was late"})


@pytest.fixture
def three(tmp_path: Path) -> Flock:
    return flock(tmp_path)


def open_journal(three: Flock) -> MemberJournal:
    return MemberJournal(three.journal(1), three.table, 1)


def test_what_was_stored_is_there_after_a_crash(three: Flock) -> None:
    coins = RecordedCoins()
    drawn, secret = coins.elements(FIELD, 3), coins.secret()
    parcel = Parcel(b"envelope", {0: b"box"})
    with open_journal(three) as journal:
        journal.drawing(0, None)
        journal.posting((0, 0), parcel.to_bytes(), coins=coins, value=VALUE, heard=None)
        journal.posting((0, 1), parcel.to_bytes(), coins=coins, value=None, heard=HEARD)
    with open_journal(three) as journal:
        assert journal.outcome() is None
        assert journal.value(1) is None
        found = journal.value(0)
        assert found is not None
        assert found.tolist() == VALUE.tolist()
        again = journal.coins(0)
        assert again.elements(FIELD, 3).tolist() == drawn.tolist()
        assert again.secret() == secret
        assert again.take_unstored() == []
        assert len(again.secret()) == 32
        assert len(again.take_unstored()) == 1
        assert journal.parcel((0, 0)) == parcel
        assert journal.parcel((0, 2)) is None
        assert journal.heard() == [HEARD]


def test_a_crash_while_drawing_ends_the_run(three: Flock) -> None:
    with open_journal(three) as journal:
        journal.drawing(0, None)
    with open_journal(three) as journal:
        with pytest.raises(Aborted, match="never drawn twice"):
            journal.value(0)
        with pytest.raises(Aborted, match="never drawn twice"):
            journal.drawing(0, None)


def test_no_second_post_for_a_round(three: Flock) -> None:
    with open_journal(three) as journal:
        journal.drawing(0, None)
        journal.posting((0, 0), b"one", coins=RecordedCoins(), value=VALUE, heard=None)
        with pytest.raises(Unavailable):
            journal.posting((0, 0), b"two", coins=RecordedCoins(), value=VALUE, heard=None)


def test_one_process_at_a_time(three: Flock) -> None:
    with open_journal(three), pytest.raises(Unavailable, match="running twice"):
        open_journal(three)


def test_it_is_its_owners_alone(three: Flock) -> None:
    with open_journal(three):
        for path in three.folder(1).glob(f"{three.table.label}.journal*"):
            assert path.stat().st_mode & 0o777 == 0o600


def test_it_is_of_one_run_and_member(three: Flock) -> None:
    with open_journal(three):
        pass
    with pytest.raises(Unavailable, match="another run or member"):
        MemberJournal(three.journal(1), three.table, 2)
    with pytest.raises(Unavailable, match="another run or member"):
        MemberJournal(three.journal(1), replace(three.table, number=three.table.number + 1), 1)
    with open_journal(three) as journal:  # whoever was refused has left no mark
        assert not journal.has_begun()


def test_secrets_are_gone_when_the_run_is_over_and_the_sums_are_not(three: Flock) -> None:
    coins = RecordedCoins()
    secret = coins.secret()
    opened = OpenedSum(np.array([-4, 9, 1 << 60, 0], dtype=np.int64), (0, 2))
    with open_journal(three) as journal:
        journal.drawing(0, None)
        journal.posting((0, 0), b"parcel", coins=coins, value=VALUE, heard=None)
        journal.finish([HEARD], RunEnding([opened], "why"))
    stored = b"".join(path.read_bytes() for path in three.folder(1).glob("*.journal*"))
    assert secret not in stored
    assert VALUE.astype("<i8").tobytes() not in stored
    with open_journal(three) as journal:
        ending = journal.outcome()
    assert ending is not None
    assert ending.stopped == "why"
    assert ending.opened[0].contributors == (0, 2)
    assert ending.opened[0].values.tolist() == opened.values.tolist()


def test_secrets_are_overwritten_before_the_log_is_cut(
    three: Flock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut file gives its blocks back as they are: what they held must be gone before."""
    cut: list[bytes] = []
    fsync = os.fsync

    def seen(handle: int) -> None:
        fsync(handle)
        cut.append(Path(f"{three.journal(1)}-wal").read_bytes())

    coins = RecordedCoins()
    with open_journal(three) as journal:
        journal.drawing(0, None)
        journal.posting((0, 0), b"parcel", coins=coins, value=VALUE, heard=None)
        assert VALUE.astype("<i8").tobytes() in Path(f"{three.journal(1)}-wal").read_bytes()
        monkeypatch.setattr(os, "fsync", seen)
        journal.finish([HEARD], RunEnding([], "why"))
        assert cut
        assert len(cut[-1]) > 4096
        assert not any(cut[-1])
    with open_journal(three) as journal:
        ending = journal.outcome()
        assert ending is not None
        assert ending.stopped == "why"


def test_a_full_disk_is_not_taken_for_a_second_process(three: Flock) -> None:
    with open_journal(three) as journal:
        journal._connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(Unavailable, match="full") as failed:
            journal.posting((0, 0), bytes(1 << 20), coins=RecordedCoins(), value=None, heard=None)
    assert "twice" not in str(failed.value)


def test_coins_that_do_not_fit_end_the_run() -> None:
    with pytest.raises(Aborted, match="do not fit"):
        RecordedCoins([bytes(16)]).elements(FIELD, 3)
    with pytest.raises(Aborted, match="do not fit"):
        RecordedCoins([b"\xff" * 24]).elements(FIELD, 3)
    with pytest.raises(Aborted, match="do not fit"):
        RecordedCoins([bytes(16)]).secret()


def test_a_file_that_is_no_journal_is_refused(three: Flock) -> None:
    three.journal(1).write_bytes(b"x" * 5000)
    with pytest.raises(Unavailable):
        open_journal(three)


def test_commits_wait_for_the_disk(three: Flock) -> None:
    with open_journal(three) as journal:
        connection: sqlite3.Connection = journal._connection
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
