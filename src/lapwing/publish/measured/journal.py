"""The journal of a synthesis: every step, and its noisy result once it is drawn, on disk before it is used.

Claim    a result that was drawn is never drawn again: after a crash it is read from here, or it is lost.
Because  a step is written and synced before it is charged, its result before it is returned; a charged step
         without a result counts as spent and is passed over. One run at a time has the journal (`held`).
Test     tests/publish/measured/test_journal.py, tests/publish/test_synthetic_release.py

The results are paid for, so the journal holds nothing private. A run compares the journal's steps with
those in the ledger before it continues (`synthetic_release`). It does not compare results: edited counts
change the synthetic rows, never the privacy.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from lapwing.canonical_json import canonical_json
from lapwing.errors import BadParameter, InProgress, Unavailable

FORM = "lapwing synthesis 1"


@dataclass(frozen=True, slots=True)
class JournalStep:
    """A step, its ρ, and its result; None if it was lost."""

    step: dict[str, Any]
    rho: Fraction
    result: dict[str, Any] | None


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a journal for one run, and make its file if there is none.

    Raises InProgress if another run has it. The kernel releases the lock when the process ends.
    """
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _not_written(path, error) from None
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InProgress from None
            if _is_at(file, path):
                yield
                return
            # The run that had it has finished, and its journal was removed meanwhile: take the new file.
        finally:
            os.close(file)


def _is_at(file: int, path: Path) -> bool:
    try:
        there, mine = os.stat(path), os.fstat(file)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


class Journal:
    """The steps of one run, in a file of one line for each step and each result."""

    def __init__(self, path: Path, run: str) -> None:
        self.path = path
        self.steps: list[JournalStep] = []
        records = self._records() if path.exists() else []
        if records:
            self._read(records, run)
        else:  # new, or the process died before the first line was whole
            self._append({"form": FORM, "run": run})
            self._sync_folder()

    def begin(self, step: dict[str, Any], rho: Fraction) -> None:
        """Write a step that is about to be charged."""
        self._append({"step": step, "rho": str(rho)})
        self.steps.append(JournalStep(step, rho, None))

    def end(self, result: dict[str, Any]) -> None:
        """Write the result of the last step."""
        self._append({"result": result})
        last = self.steps[-1]
        self.steps[-1] = JournalStep(last.step, last.rho, result)

    def drop(self) -> None:
        """Write that the last step was not charged, since the process died before. It costs nothing."""
        assert self.steps[-1].result is None
        self._append({"uncharged": True})
        self.steps.pop()

    def was_changed(self) -> BadParameter:
        """Return the refusal of a journal that this code did not write so."""
        return BadParameter(
            "journal",
            f"{self.path} does not agree with the ledger, or is not as it was written. Put it back from a "
            "backup, or publish under another name: what is reserved under this name stays reserved",
        )

    def _append(self, record: dict[str, Any]) -> None:
        line = canonical_json(record).encode() + b"\n"
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with open(descriptor, "ab", buffering=0) as file:
                written = file.write(line)
                os.fsync(file.fileno())
        except OSError as error:
            raise _not_written(self.path, error) from None
        if written != len(line):
            raise Unavailable(f"the journal {self.path} cannot be written whole: the disk may be full")

    def _sync_folder(self) -> None:
        folder = os.open(self.path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _read(self, records: list[Any], run: str) -> None:
        if records[0] != {"form": FORM, "run": run}:
            raise BadParameter(
                "journal",
                f"{self.path} is of another release, which can continue only with it. Keep it elsewhere, "
                "and run again",
            )
        for record in records[1:]:
            is_open = bool(self.steps) and self.steps[-1].result is None
            match record:
                case {"step": dict() as step, "rho": str() as rho}:
                    self.steps.append(JournalStep(step, self._fraction(rho), None))
                case {"result": dict() as result} if is_open:
                    last = self.steps[-1]
                    self.steps[-1] = JournalStep(last.step, last.rho, result)
                case {"uncharged": True} if is_open:
                    self.steps.pop()
                case _:
                    raise self.was_changed()

    def _fraction(self, text: str) -> Fraction:
        try:
            return Fraction(text)
        except (ValueError, ZeroDivisionError):
            raise self.was_changed() from None

    def _records(self) -> list[Any]:
        """Return the whole lines. A last line without an end was being written when the process died."""
        try:
            raw = self.path.read_bytes()
            whole = raw[: raw.rfind(b"\n") + 1]
            if len(whole) != len(raw):
                with open(self.path, "r+b") as file:
                    file.truncate(len(whole))
                    os.fsync(file.fileno())
        except OSError as error:
            raise _not_written(self.path, error) from None
        try:
            return [json.loads(line) for line in whole.splitlines()]
        except ValueError:
            raise self.was_changed() from None


def _not_written(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"the journal {path} cannot be read or written ({error.strerror})")
