"""Anchors lose no line, believe no half of one, and say so when they cannot be written."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lapwing.errors import Tampered, Unavailable
from lapwing.ledger import anchors as anchor_file
from lapwing.ledger.anchors import FileAnchor, Mark, newest
from lapwing.ledger.remote_anchors import SqliteAnchor
from support.marks import head, mark


def run(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process, with the same makers of marks and heads."""
    start = f"""
import json, os, signal, sys, threading, time
from lapwing.ledger import anchors as anchor_file
from lapwing.ledger.anchors import FileAnchor, Head, Mark
from lapwing.ledger.remote_anchors import SqliteAnchor
def mark(seq): return Mark(seq, seq.to_bytes(32, "big"))
def head(number, last=0): return Head(number, last, last, bytes(32), bytes(32), bytes(64))
arguments = json.loads(sys.argv[1])
{script}
"""
    command = [sys.executable, "-W", "error", "-c", start, json.dumps([str(given) for given in arguments])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "visits.ledger.anchor"


class TestFile:
    def test_what_is_written_is_read_by_everybody(self, path: Path) -> None:
        anchor = FileAnchor(path)
        assert not anchor.exists()
        assert anchor.read() == ()
        assert not path.exists()  # reading makes no file
        anchor.write([mark(1), mark(2)])
        anchor.write([], head(1, 2))
        anchor.write([])
        FileAnchor(path).write([mark(3)], head(2, 3))
        expected = (mark(1), mark(2), head(1, 2), mark(3), head(2, 3))
        assert anchor.read() == FileAnchor(str(path)).read() == expected
        assert anchor.exists()
        anchor.close()
        anchor.close()
        anchor.write([mark(4)])
        assert anchor.read() == (*expected, mark(4))

    @pytest.mark.parametrize(
        "torn", ["m", "m 12", f"m 12 {'a' * 64}", "h 1 2 3 ", "\0" * 9000, "m 7 ab\0\0"], ids=ascii
    )
    def test_a_torn_line_is_healed_before_the_next_one(self, torn: str, path: Path) -> None:
        anchor = FileAnchor(path)
        anchor.write([mark(1)])
        with path.open("a") as other:
            other.write(torn)
        assert anchor.read() == (mark(1),)
        anchor.write([mark(2)])
        assert anchor.read() == (mark(1), mark(2))
        assert path.read_text() == f"{mark(1).line}\n{mark(2).line}\n"

    @pytest.mark.parametrize(
        "letter", ["Dear Anna,\nI hope", "m" * 5000, "m 1 abc but"], ids=["letter", "long", "text"]
    )
    def test_somebody_elses_file_is_not_cut(self, letter: str, path: Path) -> None:
        path.write_text(letter)
        with pytest.raises(Tampered, match="is no anchor"):
            FileAnchor(path).write([mark(1)])
        assert path.read_text() == letter

    def test_a_full_disk_raises_and_leaves_whole_lines(self, path: Path) -> None:
        anchor = FileAnchor(path)
        anchor.write([mark(1)])
        size = path.stat().st_size
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (size + 100, before[1])
        )  # room for a part: a real short write
        try:
            with pytest.raises(Unavailable, match="cannot be written"):
                anchor.write([mark(2), mark(3), mark(4)])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert path.stat().st_size == size
        anchor.write([mark(5)])
        assert anchor.read() == (mark(1), mark(5))

    def test_a_head_that_does_not_reach_the_disk_raises(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        anchor = FileAnchor(path)
        anchor.write([mark(1)])

        def broken(file: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "fsync", broken)
        anchor.write([mark(2)])  # marks do not wait for the disk
        with pytest.raises(Unavailable, match="Input/output error"):
            anchor.write([], head(1, 2))

    def test_a_missing_folder_is_unavailable(self, tmp_path: Path) -> None:
        anchor = FileAnchor(tmp_path / "missing" / "anchor")
        assert anchor.read() == ()
        with pytest.raises(Unavailable, match="folder does not exist"):
            anchor.write([mark(1)])

    def test_what_is_no_plain_file_is_unavailable(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for place in (tmp_path, tmp_path / "pipe", tmp_path / "file" / "in a file"):
            (tmp_path / "file").write_text("")
            with pytest.raises(Unavailable):
                FileAnchor(place).read()
            with pytest.raises(Unavailable):
                FileAnchor(place).write([mark(1)])

    def test_without_leave_it_is_unavailable(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        FileAnchor(path).write([mark(1)])
        opened = os.open

        def only_to_read(name: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            if flags & os.O_RDWR:
                raise PermissionError(13, "Permission denied")
            return opened(name, flags, mode, dir_fd=dir_fd)

        monkeypatch.setattr(os, "open", only_to_read)
        assert FileAnchor(path).read() == (mark(1),)
        with pytest.raises(Unavailable, match="Permission denied"):
            FileAnchor(path).write([mark(1)])

    def test_a_file_that_is_gone_is_not_made_anew(self, path: Path) -> None:
        """It would look as if nothing had ever been marked."""
        wrote, saw = FileAnchor(path), FileAnchor(path)
        wrote.write([mark(1)])
        saw.read()
        path.unlink()
        for anchor in (wrote, saw):
            for _ in range(2):
                with pytest.raises(Unavailable, match="removed while in use"):
                    anchor.write([mark(2)])
                with pytest.raises(Unavailable, match="removed while in use"):
                    anchor.read()
        assert not path.exists()

    def test_that_a_guarded_file_is_gone_is_noticed_with_the_next_head(self, path: Path) -> None:
        anchor = FileAnchor(path)
        anchor.write([mark(1)])
        anchor.is_guarded = True
        path.unlink()
        anchor.write([mark(2)])
        with pytest.raises(Unavailable, match="removed while in use"):
            anchor.write([mark(3)], head(1, 2))
        assert not path.exists()

    def test_a_guarded_one_sees_that_another_replaced_the_file(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = FileAnchor(path), FileAnchor(path)
        one.is_guarded = other.is_guarded = True
        one.write([mark(1)])
        other.write([mark(2)])
        monkeypatch.setattr(anchor_file, "COMPACT_ABOVE", 10)
        other.write([mark(3)], head(1, 2))
        one.write([mark(4)])
        assert FileAnchor(path).read() == (head(1, 2), mark(3), mark(4))

    def test_a_large_file_becomes_its_newest_head_and_the_marks_after_it(self, path: Path) -> None:
        anchor, other = FileAnchor(path), FileAnchor(path)
        other.write([mark(0)])
        path.chmod(0o640)
        inode = path.stat().st_ino
        seq = 0
        while path.stat().st_size <= anchor_file.COMPACT_ABOVE:
            anchor.write([mark(seq + step) for step in range(1, 101)])
            seq += 100
        assert path.stat().st_ino == inode  # marks alone replace nothing
        anchor.write([mark(seq + 1)], head(1, seq - 1))
        assert anchor.read() == (head(1, seq - 1), mark(seq), mark(seq + 1))
        assert path.stat().st_ino != inode
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        other.write([mark(seq + 2)])  # had the old file open
        assert anchor.read()[-1] == mark(seq + 2)
        assert os.listdir(path.parent) == [path.name]

    def test_a_folder_that_takes_no_new_file_costs_only_space(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(anchor_file, "COMPACT_ABOVE", 100)
        anchor = FileAnchor(path)
        (path.parent / f"{path.name}.new").mkdir()
        anchor.write([mark(1)], head(1, 1))
        anchor.write([mark(2)], head(2, 2))
        assert anchor.read() == (mark(1), head(1, 1), mark(2), head(2, 2))

    def test_a_rename_that_fails_changes_nothing(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(old: str, new: str) -> None:
            raise OSError(13, "Permission denied")

        anchor = FileAnchor(path)
        with monkeypatch.context() as patch:
            patch.setattr(anchor_file, "COMPACT_ABOVE", 100)
            patch.setattr(os, "rename", refused)
            anchor.write([mark(1)], head(1, 1))
        FileAnchor(path).write([mark(2)])  # and nothing stays locked
        assert anchor.read() == (mark(1), head(1, 1), mark(2))
        assert os.listdir(path.parent) == [path.name]

    def test_a_damaged_file_is_not_tidied_away(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(anchor_file, "COMPACT_ABOVE", 100)
        path.write_text(f"m 1 damaged\n{mark(2).line}\n")
        with pytest.raises(Tampered, match="line 1 of"):
            FileAnchor(path).write([], head(1, 2))
        assert path.read_text().startswith("m 1 damaged\n")
        with pytest.raises(Tampered):
            FileAnchor(path).read()

    def test_a_link_stays_a_link(self, tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(anchor_file, "COMPACT_ABOVE", 100)
        (tmp_path / "link").symlink_to(path)
        FileAnchor(tmp_path / "link").write([mark(1), mark(2)], head(1, 1))
        assert (tmp_path / "link").is_symlink()
        assert FileAnchor(path).read() == (head(1, 1), mark(2))

    def test_threads_lose_nothing(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(anchor_file, "COMPACT_ABOVE", 2000)
        anchor = FileAnchor(path)

        def work(thread: int) -> None:
            for step in range(100):
                anchor.write([mark(1 + thread + 4 * step)], head(step, 0) if step % 20 == 19 else None)

        threads = [threading.Thread(target=work, args=[thread]) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {line for line in anchor.read() if isinstance(line, Mark)} == {
            mark(seq) for seq in range(1, 401)
        }


class TestProcesses:
    def test_four_processes_lose_nothing_while_the_file_is_replaced_again_and_again(
        self, path: Path
    ) -> None:
        """The heads cover nothing, so every mark must survive every replacement."""
        script = """
path, worker = arguments[0], int(arguments[1])
anchor_file.COMPACT_ABOVE = 3000
replaced, compact = 0, FileAnchor._compact
def counted(self):
    global replaced
    before = self._file
    compact(self)
    replaced += self._file != before
FileAnchor._compact = counted
anchors = [FileAnchor(path), FileAnchor(path)]
for step in range(300):
    seq = 1 + worker + 4 * step
    anchors[step % 2].write([mark(seq)], head(step, 0) if step % 15 == worker else None)
print(replaced)
"""
        replaced = [int(finish(process)) for process in [run(script, path, worker) for worker in range(4)]]
        lines = FileAnchor(path).read()
        marks = [line for line in lines if isinstance(line, Mark)]
        assert sorted(marks, key=lambda found: found.seq) == [mark(seq) for seq in range(1, 1201)]
        assert sum(replaced) >= 40
        assert os.listdir(path.parent) == [path.name]

    @pytest.mark.parametrize("step", ["writing", "fsync", "lock", "rename", "renamed"])
    def test_a_process_killed_while_it_replaces_the_file_loses_nothing(self, step: str, path: Path) -> None:
        script = """
path, step = arguments
anchor = FileAnchor(path)
anchor.write([mark(seq) for seq in range(1, 41)])
anchor_file.COMPACT_ABOVE = 1000
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
compact, write_all, rename = FileAnchor._compact, anchor_file._write_all, os.rename
def half(file, content):
    os.write(file, content[: len(content) // 2 + 3])
    die()
def renamed(*names):
    rename(*names)
    die()
def dying(self):
    if step == "writing": anchor_file._write_all = half
    if step == "fsync": os.fsync = die
    if step == "lock": anchor_file.fcntl.flock = die
    if step == "rename": os.rename = die
    if step == "renamed": os.rename = renamed
    compact(self)
FileAnchor._compact = dying
anchor.write([], head(1, 10))
"""
        process = run(script, path, step)
        process.communicate(timeout=60)
        assert process.returncode == -9
        anchor = FileAnchor(path)
        assert newest(anchor.read()) == (head(1, 10), *map(mark, range(11, 41)))
        anchor.write([mark(41)])
        before, anchor_file.COMPACT_ABOVE = anchor_file.COMPACT_ABOVE, 1000
        try:
            anchor.write([], head(2, 39))
        finally:
            anchor_file.COMPACT_ABOVE = before
        assert anchor.read() == (head(2, 39), mark(40), mark(41))
        assert os.listdir(path.parent) == [path.name]

    def test_processes_killed_at_any_moment_lose_nothing_that_was_confirmed(self, path: Path) -> None:
        script = """
path, start = arguments[0], int(arguments[1])
anchor_file.COMPACT_ABOVE = 2000
anchor = FileAnchor(path)
for seq in range(start, start + 100000):
    anchor.write([mark(seq)], head(seq, 0) if seq % 3 == 0 else None)
    os.write(1, b"%d\\n" % seq)
"""
        confirmed: set[int] = set()
        for attempt in range(3):
            process = run(script, path, 1 + attempt * 1_000_000)
            assert process.stdout is not None
            for _ in range(30 + 17 * attempt):
                confirmed.add(int(process.stdout.readline()))
            process.kill()
            confirmed.update(int(line) for line in process.communicate()[0].split("\n")[:-1])
            FileAnchor(path).write([mark(500_000_000 + attempt)])  # and nobody is locked out
        seen = {line.seq for line in FileAnchor(path).read() if isinstance(line, Mark)}
        assert confirmed <= seen
        assert len(confirmed) >= 120

    @pytest.mark.parametrize("kind", ["FileAnchor", "SqliteAnchor"])
    def test_a_forked_child_uses_the_same_object_safely(self, kind: str, path: Path) -> None:
        """While a thread of the parent writes, so that the fork meets locks in every state."""
        script = """
path, kind = arguments
anchor_file.COMPACT_ABOVE = 1000
anchor = globals()[kind](path)
anchor.write([mark(1)])
written, over = [1], False
def work():
    seq = 2
    while not over:
        anchor.write([mark(seq)], head(seq, 0) if seq % 5 == 0 else None)
        written.append(seq)
        seq += 1
thread = threading.Thread(target=work)
import warnings; warnings.simplefilter("ignore")
thread.start()
try:
    for child in range(12):
        pid = os.fork()
        if not pid:
            try:
                for step in range(10):
                    anchor.write([mark(1_000_000 + 10 * child + step)])
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        time.sleep(0.003)
finally:
    over = True
    thread.join()
anchor.write([mark(999_999)])
anchor.close()
print(json.dumps(written))
"""
        written = json.loads(finish(run(script, path, kind)))
        anchor = FileAnchor(path) if kind == "FileAnchor" else SqliteAnchor(path)
        seen = {line.seq for line in anchor.read() if isinstance(line, Mark)}
        anchor.close()
        assert seen >= {*written, 999_999, *range(1_000_000, 1_000_120)}
