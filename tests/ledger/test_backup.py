"""A backup is whole at every moment, and gives nothing back."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, OverBudget, Tampered
from lapwing.ledger.backup import back_up
from lapwing.ledger.check import check
from lapwing.ledger.keys import LedgerKeys
from lapwing.ledger.recovery import recover
from lapwing.ledger.spending import Target
from lapwing.ledger.sqlite_store import SqliteStore
from support.clients import Place, nursery
from support.ledgers import Home, open_account, open_sliced, release
from support.raised import named
from support.spenders import BLOCKS


def put_back(home: Home, copy: Path) -> None:
    """Restore a backup as a person does: the file, without the log of the file before."""
    for leftover in (f"{home.where}-wal", f"{home.where}-shm"):
        Path(leftover).unlink(missing_ok=True)
    shutil.copy(copy, home.where)


def findings(home: Home, copy: Path) -> tuple[str, ...]:
    """What a full check of a copy finds, apart from anchors."""
    with closing(SqliteStore(copy, create=False)) as store:
        return check(store, LedgerKeys.load(home.keys).signing.public, (), thorough=True).findings


def entries(path: Path) -> list[tuple[int, bytes]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT seq, digest FROM entries ORDER BY seq").fetchall()


def test_a_backup_is_sound_at_every_moment_while_another_process_charges(
    file_home: Home, tmp_path: Path
) -> None:
    with file_home.create() as ledger:
        open_sliced(ledger, BLOCKS)
        open_account(ledger, "staff", epsilon=2, delta=0)
    client = nursery().start(
        "spenders:spend", Place.of(file_home), name="a", diary=str(tmp_path / "diary"), count=150, keys=900
    )
    ledger, copies, newest = file_home.open(), [], []
    acknowledged = []
    for number in range(8):
        receipt = release(ledger, "0.001", Target("staff")).receipt
        copy = tmp_path / f"copy {number}"
        newest.append(back_up(ledger, copy))
        copies.append(copy)
        acknowledged.append(receipt.position)
    assert client.last("finished", 600)
    ledger.close()
    final = entries(Path(file_home.where))
    for copy, last, position in zip(copies, newest, acknowledged, strict=True):
        assert findings(file_home, copy) == ()
        copied = entries(copy)
        assert copied == final[: len(copied)]  # whole entries, from the first on
        assert copied[-1][0] == last >= position  # what was acknowledged before is in it
    others = {position for copy in copies for position, _ in entries(copy)}
    assert newest == sorted(newest)
    assert len(others) > 2 * len(copies) + BLOCKS, "the other process charged nothing meanwhile"


def test_a_backup_put_back_after_a_charge_is_refused_and_recovered_as_wholly_spent(
    file_home: Home, tmp_path: Path
) -> None:
    home, copy = file_home, tmp_path / "copy"
    ledger = home.create()
    open_account(ledger)
    release(ledger, "0.5")
    back_up(ledger, copy)
    release(ledger, "0.4")
    ledger.close()
    put_back(home, copy)
    with pytest.raises(Tampered, match="older copy"):
        home.open()
    assert recover(home.where, curator=home.curator, keys=home.keys, anchor=home.anchor) == 1
    with pytest.raises(OverBudget):
        release(home.open(), "0.001")


def test_a_backup_put_back_without_a_charge_between_goes_on(file_home: Home, tmp_path: Path) -> None:
    home, copy = file_home, tmp_path / "copy"
    ledger = home.create()
    open_account(ledger)
    release(ledger, "0.5", key="a", answer=b"7")
    back_up(ledger, copy)
    ledger.close()
    put_back(home, copy)
    ledger = home.open()
    assert release(ledger, "0.5", key="a").answer == b"7"
    with pytest.raises(OverBudget):
        release(ledger, "0.6")


def test_a_copy_cannot_be_used_beside_the_ledger(file_home: Home, tmp_path: Path) -> None:
    home, copy = file_home, tmp_path / "copy"
    ledger = home.create()
    open_account(ledger)
    back_up(ledger, copy)
    beside = Home(str(copy), home.keys, home.anchor, home.curator_path)
    with pytest.raises(BadParameter, check=named("ledger")):
        beside.open()


def test_a_copy_is_private_and_alone(file_home: Home, tmp_path: Path) -> None:
    ledger = file_home.create()
    folder = tmp_path / "copies"
    folder.mkdir()
    before = os.umask(0)
    try:
        back_up(ledger, folder / "copy")
    finally:
        os.umask(before)
    assert [path.name for path in folder.iterdir()] == ["copy"]  # no log, lock or key beside it
    assert stat.S_IMODE((folder / "copy").stat().st_mode) == 0o600


def test_nothing_is_written_over_and_half_a_copy_is_removed(
    file_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = file_home.create()
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with pytest.raises(BadParameter, check=named("copy")):
        back_up(ledger, taken)
    assert taken.read_text() == "mine"

    whole = SqliteStore.copy_to

    def spoiled(store: SqliteStore, target: Path) -> None:
        whole(store, target)
        with closing(sqlite3.connect(target)) as copy:
            [(name,)] = copy.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' LIMIT 1")
            copy.execute(f"DROP TRIGGER {name}")

    monkeypatch.setattr(SqliteStore, "copy_to", spoiled)
    with pytest.raises(Tampered, match="was removed"):
        back_up(ledger, tmp_path / "copy")
    assert {path.name for path in tmp_path.iterdir()} & {"copy", "copy.lock"} == set()


def test_postgres_is_told_its_own_means(home: Home, tmp_path: Path) -> None:
    ledger = home.create()
    if isinstance(ledger.store, SqliteStore):
        assert back_up(ledger, tmp_path / "copy") == 1
        return
    with pytest.raises(BadParameter, match="pg_dump", check=named("ledger")):
        back_up(ledger, tmp_path / "copy")
