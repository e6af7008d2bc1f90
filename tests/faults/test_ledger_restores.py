"""Case L6: an older copy put back, an anchor or keys that are not the ledger's own, and starting over."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, LapwingError, OverBudget, Tampered
from lapwing.ledger import CuratorKey, Ledger
from lapwing.ledger.gate import ChargedRelease, Gate, ReleaseStep
from lapwing.ledger.recovery import recover
from lapwing.ledger.spending import Target
from support.attackers import Crime, committed
from support.ledgers import SQLITE, Home, open_account, release, spending


@pytest.fixture
def crime(home: Home) -> Iterator[Crime]:
    with committed(home) as ready:
        yield ready


def spend_more(home: Home) -> None:
    ledger = home.open()
    release(ledger, "0.1", Target("Wolf Hospital", ["b2"]), principal="Dr Grey")
    ledger.close()


def test_case_L6_an_older_copy_of_the_database_is_found(crime: Crime) -> None:
    """Consistent in itself: every table as it was then."""
    then = crime.snapshot()
    spend_more(crime.home)
    now = crime.snapshot()
    crime.restore(then)
    assert any("this is an older copy, or entries were removed" in text for text in crime.found())
    crime.restore(now)
    assert crime.found() == ()
    spend_more(crime.home)


def test_case_L6_the_newest_entry_alone_missing_is_found(crime: Crime) -> None:
    """One charge without its answer, not sealed: only the mark knows."""
    then = crime.snapshot()
    ledger = crime.home.open()
    with suppress(KeyboardInterrupt):
        plan = ChargedRelease(spending("0.1", Target("Wolf Hospital", ["b2"])), lambda: b"42")
        Gate(ledger, principal="Dr Grey", watch=_interrupt).release(plan)
    anchor = crime.home.anchor.read_bytes()
    ledger.close()
    crime.home.anchor.write_bytes(anchor)
    crime.restore(then)
    assert any("older copy" in text for text in crime.found())


def _interrupt(point: ReleaseStep) -> None:
    if point is ReleaseStep.CHARGED:
        raise KeyboardInterrupt


class Folder:
    """Copies of everything that lies beside an SQLite ledger."""

    def __init__(self, home: Home, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.path, self.copy = Path(home.where).parent, tmp_path_factory.mktemp("backup") / "copy"
        shutil.copytree(self.path, self.copy)

    def restore(self) -> None:
        shutil.rmtree(self.path)
        shutil.copytree(self.copy, self.path)


@pytest.fixture
def backup(file_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    ledger = file_home.create()
    open_account(ledger)
    release(ledger, "0.1")
    ledger.close()
    return Folder(file_home, tmp_path_factory)


def use_up(home: Home) -> None:
    ledger = home.open()
    release(ledger, "0.9")
    ledger.close()


def test_case_L6_an_older_copy_of_the_whole_folder_is_found_by_the_witness(
    file_home: Home, backup: Folder
) -> None:
    use_up(file_home)
    backup.restore()
    with pytest.raises(Tampered, match=r"knows entry .* older copy") as found:
        file_home.open()
    assert os.environ["LAPWING_STATE"] in str(found.value)


def test_case_L6_an_older_copy_of_everything_on_the_machine_cannot_be_found_there(
    file_home: Home, backup: Folder, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The machine is then in every bit what it was. Only what lies elsewhere can know: see below."""
    state = Path(os.environ["LAPWING_STATE"])
    copy = tmp_path_factory.mktemp("backup") / "state"
    shutil.copytree(state, copy)
    use_up(file_home)
    backup.restore()
    shutil.rmtree(state)
    shutil.copytree(copy, state)
    release(file_home.open(), "0.9")


def test_case_L6_an_anchor_elsewhere_finds_it(
    file_home: Home, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = f"sqlite:///{tmp_path_factory.mktemp('elsewhere')}/anchor"
    ledger = Ledger.create(file_home.where, anchor=elsewhere)
    open_account(ledger)
    ledger.close()
    backup = Folder(file_home, tmp_path_factory)
    with Ledger.open(file_home.where, anchor=elsewhere) as ledger:
        release(ledger, "1")
    backup.restore()
    monkeypatch.setenv("LAPWING_STATE", str(tmp_path_factory.mktemp("new home")))
    with pytest.raises(Tampered, match="older copy"):
        Ledger.open(file_home.where, anchor=elsewhere)


# Anchors, keys, and starting over


def test_a_missing_anchor_is_found(crime: Crime) -> None:
    crime.home.anchor.unlink()
    assert crime.found() == (f"the anchor {crime.home.anchor} is missing",)


def test_an_empty_anchor_is_found_and_does_not_vouch(crime: Crime) -> None:
    home = crime.home
    home.anchor.write_bytes(b"")
    assert crime.found() == (f"the anchor {home.anchor} is empty",)
    assert recover(home.where, curator=home.curator, keys=home.keys, anchor=home.anchor) > 0
    ledger = home.open()
    with pytest.raises(OverBudget, match="recovered"):
        release(ledger, "0.001", Target("night shift"))


@pytest.mark.parametrize("content", [b"\0" * 100, b"m 1 x\n", "m ١ ü\n".encode(), b"h 1 1 1\n"])
def test_an_anchor_of_nonsense_is_found(crime: Crime, content: bytes) -> None:
    crime.home.anchor.write_bytes(content)
    assert crime.found()


def another(home: Home) -> Home:
    place = Path(home.anchor).parent / "another"
    place.mkdir()
    other = Home.of(SQLITE, place)
    ledger = other.create()
    open_account(ledger)
    ledger.close()
    return other


def test_the_anchor_of_another_ledger_is_found(crime: Crime) -> None:
    other = another(crime.home)
    shutil.copy(other.anchor, crime.home.anchor)
    assert any("knows another entry" in text for text in crime.found())


def test_the_keys_of_another_ledger_are_found(crime: Crime) -> None:
    other = another(crime.home)
    shutil.copy(other.keys, crime.home.keys)
    assert crime.found() == ("the ledger belongs to other keys",)


def test_a_ledger_under_the_name_of_another_is_found(file_home: Home) -> None:
    """All of another one's files in the place of this one, but for the keys."""
    mine = file_home.create()
    mine.close()
    other = another(file_home)
    shutil.copy(other.where, file_home.where)
    shutil.copy(other.anchor, file_home.anchor)
    with pytest.raises(Tampered, match="other keys"):
        file_home.open()


@pytest.mark.parametrize("left", ["keys", "anchor", "curator"])
def test_starting_over_is_refused_while_anything_is_left(file_home: Home, left: str) -> None:
    ledger = file_home.create()
    open_account(ledger)
    release(ledger, "1")
    ledger.close()
    kept = Path(f"{file_home.where}.{left}")
    for path in Path(file_home.where).parent.iterdir():
        if path != kept:
            path.unlink()
    with pytest.raises(BadParameter, match="never replaced"):
        file_home.create()
    assert kept.exists()
    assert not Path(file_home.where).exists()


def test_where_the_curators_key_cannot_be_made_nothing_is_made(home: Home, tmp_path: Path) -> None:
    elsewhere = tmp_path / "curator of another ledger"
    CuratorKey.create(elsewhere)
    with pytest.raises(BadParameter, match="never replaced"):
        Ledger.create(home.where, keys=home.keys, anchor=home.anchor, curator=elsewhere)
    home.create()


def test_a_database_that_is_there_is_never_replaced(home: Home) -> None:
    home.create().close()
    for path in (home.keys, home.anchor, home.curator_path):
        path.unlink()
    with pytest.raises(BadParameter, match="never replaced"):
        home.create()


@pytest.mark.parametrize("content", [b"", b"nothing", b"SQLite format 3\0" + bytes(4080)])
def test_a_file_that_is_no_ledger_is_not_opened(file_home: Home, content: bytes) -> None:
    file_home.create().close()
    Path(file_home.where).write_bytes(content)
    with pytest.raises(LapwingError):
        file_home.open()


def test_flipped_bits_in_the_file_are_found_or_harmless(backup: Folder, file_home: Home) -> None:
    """A failing disk, or an editor of bytes: whatever opens says what it said before."""
    path = Path(file_home.where)
    content = path.read_bytes()
    with file_home.open() as ledger:
        truth = (ledger.accounts(), ledger.blocks("visits"))
    content = path.read_bytes()
    opened = 0
    for at in range(17, len(content), len(content) // 150):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        try:
            with file_home.open() as ledger:
                assert (ledger.accounts(), ledger.blocks("visits")) == truth
                opened += 1
        except LapwingError:
            pass
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        path.write_bytes(content)
    assert opened < 150
