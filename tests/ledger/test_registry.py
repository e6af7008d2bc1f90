"""A ledger belongs to a registry, which knows its data and its people, and lets one copy be open."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, OverBudget, SessionOver, Tampered, Unavailable
from lapwing.ledger import CuratorKey, Ledger
from lapwing.ledger.publishing import export_statement
from lapwing.ledger.recovery import recover, register_anew
from lapwing.ledger.registry import KEY_FILE, REGISTRY_FILE, Registry, is_ledger_gone
from lapwing.ledger.spending import Target
from lapwing.ledger.statement import verify_statement
from lapwing.ledger.unit_ids import Id, Sketch
from support.ledgers import Home, open_account, release


class TestFolder:
    def test_it_lies_where_the_user_says(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.delenv("LAPWING_STATE", raising=False)
        for state in ("", "relative"):
            monkeypatch.setenv("XDG_STATE_HOME", state)
            assert Path(Registry.at().where) == tmp_path / "home" / ".local" / "state" / "lapwing"
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
        assert Path(Registry.at().where) == tmp_path / "xdg" / "lapwing"
        monkeypatch.setenv("LAPWING_STATE", str(tmp_path / "own"))
        assert Path(Registry.at().where) == tmp_path / "own"
        assert Path(Registry.at(tmp_path / "named").where) == tmp_path / "named"
        assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700

    # Case C15.
    def test_without_a_folder_there_is_no_ledger(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        for place in ("file/below", "file"):
            monkeypatch.setenv("LAPWING_STATE", str(tmp_path / place))
            with pytest.raises(Unavailable, match="LAPWING_STATE"):
                Ledger.create(tmp_path / "ledger")
        assert not (tmp_path / "ledger").exists()

    # Case C15.
    def test_an_empty_home_is_no_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("LAPWING_STATE", "XDG_STATE_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", "")
        with pytest.raises(Unavailable, match="no home folder"):
            Registry.at()

    def test_a_ledger_that_cannot_be_seen_is_not_gone(self, tmp_path: Path) -> None:
        assert is_ledger_gone(str(tmp_path / "none"))
        (tmp_path / "file").touch()
        assert is_ledger_gone(str(tmp_path / "file" / "below"))
        assert not is_ledger_gone(str(tmp_path / "file"))
        # No name may be that long: this error says nothing about the ledger either, and root gets it too.
        assert not is_ledger_gone(str(tmp_path / ("x" * 300)))

    def test_its_files_are_its_owner_s_or_its_group_s(self, tmp_path: Path) -> None:
        for mode, wanted in ((0o700, 0o600), (0o770, 0o660)):
            folder = tmp_path / f"{mode:o}"
            folder.mkdir()
            folder.chmod(mode)
            registry = Registry.at(folder)
            assert registry.id == Registry.at(folder).id
            for name in (KEY_FILE, REGISTRY_FILE):
                assert stat.S_IMODE((folder / name).stat().st_mode) == wanted
        (folder / KEY_FILE).chmod(0o664)
        with pytest.raises(BadParameter, match="chmod"):
            _ = registry.key

    def test_a_spoiled_key_is_an_error(self, tmp_path: Path) -> None:
        registry = Registry.at(tmp_path)
        _ = registry.key
        (tmp_path / KEY_FILE).write_bytes(b"short")
        with pytest.raises(BadParameter, match="not the key"):
            _ = registry.id


class TestKnownLedgers:
    # Case C15.
    def test_another_registry_is_refused_until_the_curator_signs(
        self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with home.create() as ledger:
            open_account(ledger, "visits")
        monkeypatch.setenv("LAPWING_STATE", str(tmp_path / "another"))
        with pytest.raises(BadParameter, match="ledger register") as refused:
            home.open()
        assert refused.value.name == "registry"
        stranger = CuratorKey.create(tmp_path / "stranger")
        with pytest.raises(BadParameter, match="curator"):
            register_anew(home.where, curator=stranger, keys=home.keys, anchor=home.anchor)
        register_anew(home.where, curator=home.curator, keys=home.keys, anchor=home.anchor)
        with home.open() as ledger:
            release(ledger, "0.1", Target("visits"))
            assert not ledger.verify().findings
            export_statement(ledger, tmp_path / "statement")
        found = verify_statement(tmp_path / "statement", key=None)
        assert not found.findings
        assert found.guarantee is not None
        assert any("which did not know it" in line for line in found.guarantee.lines())
        assert (tmp_path / "another" / f"{found.ledger}.anchor").exists()

    # Case C15.
    @pytest.mark.parametrize("is_emptied", [False, True])
    def test_a_registry_without_its_sources_is_refused(
        self, file_home: Home, tmp_path: Path, *, is_emptied: bool
    ) -> None:
        """Else copied data would get a second ledger, and the sources could be put back later."""
        file_home.create().close()
        state = Path(os.environ["LAPWING_STATE"])
        (state / REGISTRY_FILE).rename(tmp_path / "backup")
        if is_emptied:
            (state / REGISTRY_FILE).touch(0o600)
        for attempt in (file_home.open, lambda: Ledger.create(tmp_path / "second")):
            with pytest.raises(BadParameter, match="missing or empty"):
                attempt()
        assert not (tmp_path / "second.keys").exists()
        (tmp_path / "backup").rename(state / REGISTRY_FILE)
        file_home.open().close()

    # Case C15.
    def test_a_registry_that_forgot_a_ledger_is_refused(self, file_home: Home) -> None:
        with file_home.create() as ledger:
            registry = ledger.registry
        with registry.open() as known:
            known.run("DELETE FROM ledgers")
        with pytest.raises(BadParameter, match="does not know it any more"):
            file_home.open()

    def test_a_first_use_that_fails_leaves_a_whole_registry(self, tmp_path: Path) -> None:
        registry = Registry.at(tmp_path)
        with pytest.raises(Unavailable), registry.open() as known:
            known.run(f"SELECT '{len(registry.key)}' FROM none")  # the key is made, and then all is undone
        with registry.open() as known:
            assert known.place_of("1") is None

    # Case C15.
    @pytest.mark.parametrize("is_emptied", [False, True])
    def test_a_missing_witness_is_found(self, file_home: Home, *, is_emptied: bool) -> None:
        """Else whoever deletes it could restore the data's folder, with the first anchor."""
        home = file_home
        with home.create() as ledger:
            open_account(ledger, "visits")
            witness = Path(os.environ["LAPWING_STATE"], f"{ledger.id}.anchor")
        witness.unlink()
        if is_emptied:
            witness.touch(0o600)
        for _ in range(2):
            with pytest.raises(Tampered, match="second anchor"):
                home.open()
        assert recover(home.where, curator=home.curator, keys=home.keys, anchor=home.anchor) == 1
        with home.open() as ledger, pytest.raises(OverBudget):
            release(ledger, "0.1", Target("visits"))

    def test_a_policy_may_name_its_registry(self, tmp_path: Path) -> None:
        shared = str(tmp_path / "shared")
        Ledger.create(tmp_path / "ledger", registry=shared).close()
        with pytest.raises(BadParameter, match="another one"):
            Ledger.open(tmp_path / "ledger")
        with Ledger.open(tmp_path / "ledger", registry=shared) as ledger:
            assert (tmp_path / "shared" / f"{ledger.id}.anchor").exists()


class TestPeople:
    def test_people_are_known_by_ids_and_only_in_other_ledgers(self, tmp_path: Path) -> None:
        registry = Registry.at(tmp_path)
        key = registry.key
        with registry.open() as known:
            known.note(ledger="1", place="there")
            for some in ([1, 2, 3], [9]):
                known.note_people(Sketch.of(some, key), key, ledger="1", data="visits")
        with registry.open() as known:
            for ids, found in (([3, 4], {"1": "there"}), (["9 "], {"1": "there"}), ([4], {}), ([], {})):
                assert known.ledgers_with(Sketch.of(ids, key), key, besides="2") == found
            assert known.ledgers_with(Sketch.of([3], key), key, besides="1") == {}
            known.run("UPDATE people SET sketch = substr(sketch, 1, 64)")
            with pytest.raises(Tampered):
                known.ledgers_with(Sketch.of([3], key), key, besides="2")

    def test_two_sketches_of_one_pass_are_those_of_two_passes(self) -> None:
        keys = (bytes(32), b"k" * 32)
        ids: list[Id] = ["a", "7", 7, 8, None, "Ä "]
        both = Sketch.of_each(iter(ids), keys)
        assert [one.to_bytes() for one in both] == [Sketch.of(ids, key).to_bytes() for key in keys]


class TestCopies:
    # Case C15.
    def test_two_copies_are_never_open_at_once(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        Ledger.create(tmp_path / "a" / "ledger").close()
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        first = Ledger.open(tmp_path / "a" / "ledger")
        with pytest.raises(BadParameter, match="copy") as refused:
            Ledger.open(tmp_path / "b" / "ledger")
        assert str(tmp_path / "a" / "ledger") in str(refused.value)
        second = Ledger.open(tmp_path / "a" / "ledger")  # of the same copy, there may be many
        first.close()
        with pytest.raises(BadParameter, match="copy"):
            Ledger.open(tmp_path / "b" / "ledger")
        second.close()
        Ledger.open(tmp_path / "b" / "ledger").close()  # nobody spent anything meanwhile

    # Case C15.
    def test_a_removed_lock_ends_the_session_that_held_it(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        with Ledger.create(tmp_path / "a" / "ledger") as ledger:
            open_account(ledger, "visits")
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        first = Ledger.open(tmp_path / "a" / "ledger")
        Path(os.environ["LAPWING_STATE"], f"{first.id}.open").unlink()
        with pytest.raises(SessionOver, match="removed or replaced"):
            release(first, "0.1", Target("visits"))
        with Ledger.open(tmp_path / "b" / "ledger") as second:
            release(second, "0.1", Target("visits"))
            with pytest.raises(SessionOver, match="removed or replaced"):
                release(first, "0.1", Target("visits"))
        first.close()

    def test_another_process_counts_too(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        Ledger.create(tmp_path / "a" / "ledger").close()
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        script = "import sys; from lapwing.ledger import Ledger; [Ledger.open(one) for one in sys.argv[1:]]"

        def opened(copy: str) -> bool:
            command = [sys.executable, "-c", script, str(tmp_path / copy / "ledger")]
            return subprocess.run(command, capture_output=True, check=False).returncode == 0

        with Ledger.open(tmp_path / "a" / "ledger"):
            assert opened("a")
            assert not opened("b")
