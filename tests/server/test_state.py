"""The state file: private, durable, shared by processes, and refused if another version wrote it."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest

from lapwing.errors import Unavailable
from lapwing.server.state import MIGRATIONS, STATE_FILE, ServerState


def test_only_the_owner_can_read_the_state(tmp_path: Path) -> None:
    state = ServerState.open(tmp_path / "inside")
    with state.transaction() as run:
        run("INSERT INTO accounts VALUES ('ann', 'ann', 'ann', NULL, 0, '', 0)")
    assert stat.S_IMODE((tmp_path / "inside").stat().st_mode) == 0o700
    files = list((tmp_path / "inside").iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert len(files) == 3  # with the log and its index
    state.close()


def test_two_open_states_see_each_others_commits_at_once(tmp_path: Path) -> None:
    one, two = ServerState.open(tmp_path), ServerState.open(tmp_path)
    for number in range(3):
        with one.transaction() as run:
            run("INSERT INTO links VALUES (?, 'start', 'ann', 0, 0)", (bytes([number]),))
        assert two.rows("SELECT count(*) FROM links") == [(number + 1,)]
    with pytest.raises(ZeroDivisionError):
        _delete_and_fail(two)
    assert one.rows("SELECT count(*) FROM links") == [(3,)]
    one.close()
    two.close()


def _delete_and_fail(state: ServerState) -> None:
    with state.transaction() as run:
        run("DELETE FROM links")
        raise ZeroDivisionError


def test_a_commit_waits_for_the_disk_and_readers_do_not_write(tmp_path: Path) -> None:
    state = ServerState.open(tmp_path)
    with state.transaction() as run:
        assert run("PRAGMA synchronous").fetchone() == (2,)
        assert run("PRAGMA journal_mode").fetchone() == ("wal",)
        assert run("PRAGMA foreign_keys").fetchone() == (1,)
    with pytest.raises(Unavailable):
        state.rows("DELETE FROM links")
    state.close()


def test_a_state_is_opened_again_and_a_newer_or_foreign_file_is_refused(tmp_path: Path) -> None:
    ServerState.open(tmp_path).close()
    ServerState.open(tmp_path).close()
    file = sqlite3.connect(tmp_path / STATE_FILE)
    file.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    file.close()
    with pytest.raises(Unavailable, match="Install the newer Lapwing"):
        ServerState.open(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    file = sqlite3.connect(other / STATE_FILE)
    file.execute("CREATE TABLE something (a)")
    file.close()
    with pytest.raises(Unavailable, match="something else"):
        ServerState.open(other)


def test_errors_show_no_value(tmp_path: Path) -> None:
    state = ServerState.open(tmp_path)
    with pytest.raises(Unavailable) as caught, state.transaction() as run:
        run("INSERT INTO roles VALUES ('canary', 'canary', 'canary'), ('canary', 'canary', 'canary')")
    assert "canary" not in str(caught.value)
    state.close()
