"""What was lost is counted as everything; nothing comes back by recovering."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, OverBudget, Tampered
from lapwing.ledger import CuratorKey
from lapwing.ledger.recovery import recover
from lapwing.ledger.spending import Target
from support.attackers import somebody_at
from support.ledgers import Home, open_account, open_sliced, release
from support.raised import named


def restore_an_older_copy(home: Home, tmp_path: Path) -> None:
    """A ledger that was charged after the copy was made, and then replaced by it."""
    ledger = home.create()
    open_sliced(ledger, 3)
    open_account(ledger, "survey")
    release(ledger, "0.5", Target("visits", ["b1"]))
    ledger.close()
    shutil.copy(home.where, tmp_path / "copy")
    ledger = home.open()
    release(ledger, "0.5", Target("visits", ["b1"]))
    ledger.close()
    for leftover in (f"{home.where}-wal", f"{home.where}-shm"):
        Path(leftover).unlink(missing_ok=True)
    shutil.copy(tmp_path / "copy", home.where)


def recovered(home: Home) -> int:
    return recover(home.where, curator=home.curator, keys=home.keys, anchor=home.anchor)


def test_everything_is_spent_then_and_raising_goes_on(file_home: Home, tmp_path: Path) -> None:
    home = file_home
    restore_an_older_copy(home, tmp_path)
    with pytest.raises(Tampered, match="older copy"):
        home.open()
    assert recovered(home) == 5  # three blocks, and everyone in two accounts
    ledger = home.open()
    for target in (Target("visits", ["b2"]), Target("survey")):
        with pytest.raises(OverBudget, match="recovered"):
            release(ledger, "0.001", target)
    with pytest.raises(BadParameter, match="raise"):
        ledger.open_blocks("visits", ["later"])
    ledger.raise_budget("visits", epsilon="0.2", delta=0, curator=home.curator)
    release(ledger, "0.2", Target("visits", ["b2"]))
    ledger.open_blocks("visits", ["later"])
    with pytest.raises(OverBudget):
        release(ledger, "0.3", Target("visits", ["later"]))
    release(ledger, "0.2", Target("visits", ["later"]))
    assert not ledger.verify().findings
    ledger.close()
    assert not home.open().verify().findings


def test_lost_numbers_are_never_used_again(file_home: Home, tmp_path: Path) -> None:
    restore_an_older_copy(file_home, tmp_path)
    known = max(
        int(line.split()[1]) for line in file_home.anchor.read_text().splitlines() if line[0] == "m"
    )
    recovered(file_home)
    numbers = file_home.open().store.read(lambda tx: tx.rows("SELECT max(seq) FROM entries"))
    assert numbers[0][0] > known


def test_only_the_curator_recovers(file_home: Home, tmp_path: Path) -> None:
    restore_an_older_copy(file_home, tmp_path)
    stranger = CuratorKey.create(tmp_path / "stranger")
    with pytest.raises(BadParameter, check=named("curator")):
        recover(file_home.where, curator=stranger, keys=file_home.keys, anchor=file_home.anchor)
    with pytest.raises(Tampered):
        file_home.open()


def test_a_lost_anchor_costs_everything_though_a_witness_agrees(file_home: Home) -> None:
    """The witness knows seals: charges after the last one may have been lost with the anchor."""
    ledger = file_home.create()
    open_account(ledger)
    release(ledger, "0.5")
    ledger.close()
    file_home.anchor.unlink()
    with pytest.raises(Tampered, match="missing"):
        file_home.open()
    assert recovered(file_home) == 1
    with pytest.raises(OverBudget):
        release(file_home.open(), "0.5")


def test_a_lost_anchor_without_a_witness_costs_everything(file_home: Home) -> None:
    ledger = file_home.create()
    open_account(ledger)
    ledger.close()
    file_home.anchor.unlink()
    for witness in Path(os.environ["LAPWING_STATE"]).glob("*.anchor"):
        witness.unlink()
    assert recovered(file_home) == 1
    with pytest.raises(OverBudget):
        release(file_home.open(), "0.1")


def test_a_sound_ledger_needs_no_recovery(file_home: Home) -> None:
    ledger = file_home.create()
    open_account(ledger)
    ledger.close()
    with pytest.raises(BadParameter, match="nothing is lost"):
        recovered(file_home)


def test_an_edited_ledger_is_not_recovered(file_home: Home, tmp_path: Path) -> None:
    restore_an_older_copy(file_home, tmp_path)
    attacker = somebody_at(file_home)
    attacker.disarm()
    attacker.edit("budgets", "UPDATE budgets SET left_1 = left_1 + 1")
    attacker.leave()
    with pytest.raises(Tampered, match="not as the entries say"):
        recovered(file_home)


def test_a_copy_that_lacks_only_a_seal_has_lost_nothing(file_home: Home, tmp_path: Path) -> None:
    """Made while the ledger was open; then it was closed, which seals, and nothing else happened."""
    ledger = file_home.create()
    open_account(ledger)
    release(ledger, "0.5")
    connection = sqlite3.connect(file_home.where)
    connection.execute("VACUUM INTO ?", (str(tmp_path / "copy"),))
    connection.close()
    ledger.close()
    shutil.copy(tmp_path / "copy", file_home.where)
    ledger = file_home.open()
    release(ledger, "0.5")
    assert not ledger.verify().findings
