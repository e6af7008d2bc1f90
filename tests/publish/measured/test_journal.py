"""Journals are on disk before they are relied on, and one run has them at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, InProgress, Unavailable
from lapwing.publish.measured.journal import Journal, held

STEP = {"measure": ["a"], "sigma": "20"}
HEADER = b'{"form":"lapwing synthesis 1","run":"run 1"}\n'


def test_each_line_is_synced_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = 0  # bytes of the journal that are on disk
    real = os.fsync

    def fsync(file: int) -> None:
        nonlocal synced
        real(file)
        status = os.fstat(file)
        if (tmp_path / "j").exists() and status.st_ino == (tmp_path / "j").stat().st_ino:
            synced = status.st_size

    monkeypatch.setattr(os, "fsync", fsync)
    journal = Journal(tmp_path / "j", "run 1")
    steps: list[Callable[[], None]] = [
        lambda: journal.begin(STEP, Fraction(1, 100)),
        lambda: journal.end({"counts": [1, 2]}),
        lambda: journal.begin(STEP, Fraction(1, 100)),
        journal.drop,
    ]
    for write in steps:
        before = (tmp_path / "j").stat().st_size
        assert synced == before
        write()
        assert synced == (tmp_path / "j").stat().st_size > before


def test_a_line_that_was_being_written_is_left_out(tmp_path: Path) -> None:
    Journal(tmp_path / "j", "run 1").begin(STEP, Fraction(1, 100))
    with open(tmp_path / "j", "ab") as file:
        file.write(b'{"step": {"meas')
    again = Journal(tmp_path / "j", "run 1")
    assert len(again.steps) == 1
    again.begin(STEP, Fraction(1, 100))
    assert len(Journal(tmp_path / "j", "run 1").steps) == 2


@pytest.mark.parametrize("content", [b"", HEADER[:20]])
def test_a_journal_without_a_whole_line_begins_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "j").write_bytes(content)
    assert Journal(tmp_path / "j", "run 1").steps == []
    assert (tmp_path / "j").read_bytes() == HEADER


def test_a_step_that_was_not_charged_is_dropped_for_good(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", "run 1")
    journal.begin(STEP, Fraction(1, 100))
    journal.end({"counts": [1, 2]})
    journal.begin(STEP, Fraction(1, 50))
    journal.drop()
    assert [step.rho for step in Journal(tmp_path / "j", "run 1").steps] == [Fraction(1, 100)]


@pytest.mark.parametrize(
    "content",
    [
        b"{}\n",
        HEADER.replace(b"run 1", b"run 2"),
        b"no\n",
        HEADER + b'{"result":{}}\n',
        HEADER + b'{"step":{},"rho":"x"}\n',
        HEADER + b'{"step":{},"rho":"1/0"}\n',
        HEADER + b'{"step":{},"rho":"1"}\n{"result":{}}\n{"uncharged":true}\n',
    ],
)
def test_a_journal_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "j").write_bytes(content)
    with pytest.raises(BadParameter, match="journal"):
        Journal(tmp_path / "j", "run 1")


def test_one_run_has_a_journal(tmp_path: Path) -> None:
    with held(tmp_path / "j"):
        with pytest.raises(InProgress), held(tmp_path / "j"):
            pytest.fail("two runs have it")
        assert Journal(tmp_path / "j", "run 1").steps == []
    with held(tmp_path / "j"):
        pass


def test_a_journal_that_was_removed_meanwhile_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking the file, the run that had it may have finished."""
    real, opened = os.open, list[int]()

    def removing(path: Path, flags: int, mode: int = 0o777) -> int:
        opened.append(real(path, flags, mode))
        if len(opened) == 1:
            Path(path).unlink()
        return opened[-1]

    monkeypatch.setattr(os, "open", removing)
    with held(tmp_path / "j"):
        assert (tmp_path / "j").exists()
    assert len(opened) == 2


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="nowhere"), held(tmp_path / "nowhere" / "j"):
        pass
