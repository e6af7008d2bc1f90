"""New and replaced files are whole and private, or they are not there."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Barrier, Thread
from typing import BinaryIO

import pytest

from lapwing.errors import BadParameter
from lapwing.storage.private_file import (
    new_private_file,
    read_key_file,
    replaced_private_file,
    touch_private_file,
    write_key_file,
)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_is_its_owners_alone_while_it_is_written_and_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with new_private_file(path) as file:
        assert mode_of(path) == 0o600
        file.write(b"content")
    assert (path.read_bytes(), mode_of(path)) == (b"content", 0o600)


def test_nothing_that_is_there_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"before")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "link"):
        with pytest.raises(FileExistsError), new_private_file(tmp_path / name):
            raise AssertionError("the block must not begin")
    assert (tmp_path / "file").read_bytes() == b"before"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("make", [new_private_file, replaced_private_file])
def test_a_failure_leaves_nothing_behind(
    make: Callable[[Path], AbstractContextManager[BinaryIO]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(KeyError), make(tmp_path / "file"):
        raise KeyError
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"), make(tmp_path / "file") as file:
        file.write(b"half")
    assert os.listdir(tmp_path) == []


def test_a_file_is_replaced_at_the_end_of_the_block(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with replaced_private_file(path) as file:
        file.write(b"after")
        file.flush()
        assert path.read_bytes() == b"before"
    assert (path.read_bytes(), mode_of(path)) == (b"after", 0o600)
    assert os.listdir(tmp_path) == ["file"]


def test_touching_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    touch_private_file(path)
    assert mode_of(path) == 0o600
    path.write_bytes(b"content")
    touch_private_file(path)
    assert path.read_bytes() == b"content"


def test_threads_that_replace_one_file_leave_one_of_their_contents(tmp_path: Path) -> None:
    path, together = tmp_path / "file", Barrier(8)
    contents = [bytes([65 + k]) * 100_000 for k in range(8)]

    def write(content: bytes) -> None:
        with replaced_private_file(path) as file:
            together.wait()
            file.write(content)

    threads = [Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert os.listdir(tmp_path) == ["file"]


def test_key_files_are_written_once_and_read_only_if_nobody_else_can(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_key_file(path, b"secret", "key")
    assert (read_key_file(path, "key"), mode_of(path)) == (b"secret", 0o600)
    with pytest.raises(BadParameter, match="never overwritten"):
        write_key_file(path, b"other", "key")
    path.chmod(0o640)
    with pytest.raises(BadParameter, match="chmod 600"):
        read_key_file(path, "key")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(BadParameter, match="not a plain file"):
        read_key_file(tmp_path / "pipe", "key")
    assert path.read_bytes() == b"secret"
