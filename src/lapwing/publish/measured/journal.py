"""The journal of a synthesis: every step, and its noisy result once it is drawn, on disk before it is used.

Claim    a result that was drawn is never drawn again: after a crash it is read from here, or it is lost.
Because  a step is written and synced before it is charged, its result before it is returned; a step without
         a result counts as spent and is passed over.
Test     tests/publish/measured/test_private_marginals.py, tests/publish/test_synthetic_release.py

The results are paid for, so the journal holds nothing private. A journal that was cut or edited changes the
synthetic rows, never the privacy: charges are in the ledger.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from lapwing.errors import BadParameter, Unavailable

FORM = "lapwing synthesis 1"


@dataclass(frozen=True, slots=True)
class JournalStep:
    """A step, its ρ, and its result; None if it was lost."""

    step: dict[str, Any]
    rho: Fraction
    result: dict[str, Any] | None


class Journal:
    """The steps of one run, in a file of one line for each step and each result."""

    def __init__(self, path: Path, run: str) -> None:
        self._path = path
        self.steps: list[JournalStep] = []
        if path.exists():
            self._read(run)
        else:
            self._append({"form": FORM, "run": run})

    def begin(self, step: dict[str, Any], rho: Fraction) -> None:
        """Write a step that is about to be charged."""
        self._append({"step": step, "rho": str(rho)})
        self.steps.append(JournalStep(step, rho, None))

    def end(self, result: dict[str, Any]) -> None:
        """Write the result of the last step."""
        self._append({"result": result})
        last = self.steps[-1]
        self.steps[-1] = JournalStep(last.step, last.rho, result)

    def _append(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with open(descriptor, "ab", buffering=0) as file:
                written = file.write(line)
                os.fsync(file.fileno())
        except OSError as error:
            raise Unavailable(f"the journal {self._path} cannot be written ({error.strerror})") from None
        if written != len(line):
            raise Unavailable(f"the journal {self._path} cannot be written whole: the disk may be full")

    def _read(self, run: str) -> None:
        records = self._records()
        if not records or records[0] != {"form": FORM, "run": run}:
            raise BadParameter(
                "journal",
                f"{self._path} is of another release, or of another version. Name an empty folder",
            )
        for record in records[1:]:
            match record:
                case {"step": dict() as step, "rho": str() as rho}:
                    self.steps.append(JournalStep(step, Fraction(rho), None))
                case {"result": dict() as result} if self.steps and self.steps[-1].result is None:
                    last = self.steps[-1]
                    self.steps[-1] = JournalStep(last.step, last.rho, result)
                case _:
                    raise BadParameter("journal", f"{self._path} was changed. Put it back from a backup")

    def _records(self) -> list[Any]:
        """Return the whole lines. A last line without an end was being written when the process died."""
        raw = self._path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) != len(raw):
            with open(self._path, "r+b") as file:
                file.truncate(len(whole))
                os.fsync(file.fileno())
        try:
            return [json.loads(line) for line in whole.splitlines()]
        except ValueError:
            raise BadParameter("journal", f"{self._path} was changed. Put it back from a backup") from None
