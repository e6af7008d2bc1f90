"""The note of a run: with which blocks it began, and in which order others came. Public, and on disk first.

A schedule is made of it, so that what came in later changes no attempt of a run that has begun.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from lapwing.errors import BadParameter

NOTE = "run.json"
_FORM = "lapwing run 1"


@dataclass(frozen=True, slots=True)
class RunNote:
    """`start`: how many of the blocks in `order` had come in when the run began.

    `ledger` and `analyst`: where and by whom attempts are charged; elsewhere they would not be found.
    """

    ledger: str
    analyst: str
    run: int
    series: int
    pipeline: str  # its digest
    start: int
    order: tuple[str, ...]

    def with_new(self, arrived: Sequence[str]) -> Self:
        """The same, with blocks that have come in since at the end."""
        new = [label for label in arrived if label not in set(self.order)]
        return replace(self, order=(*self.order, *new)) if new else self

    def write(self, folder: Path) -> None:
        """Durably, or not at all."""
        said = {
            "form": _FORM,
            "ledger": self.ledger,
            "analyst": self.analyst,
            "run": self.run,
            "series": self.series,
            "pipeline": self.pipeline,
            "start": self.start,
            "order": list(self.order),
        }
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / NOTE, json.dumps(said, indent=1, ensure_ascii=False))

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The note in a folder, if there is one."""
        try:
            found = json.loads((folder / NOTE).read_text(encoding="utf-8"))
            if found["form"] != _FORM:
                raise BadParameter("run", f"{folder / NOTE} is of another form")
            order = tuple(str(label) for label in found["order"])
            note = cls(
                ledger=str(found["ledger"]),
                analyst=str(found["analyst"]),
                run=int(found["run"]),
                series=int(found["series"]),
                pipeline=str(found["pipeline"]),
                start=int(found["start"]),
                order=order,
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise BadParameter("run", f"{folder / NOTE} cannot be read: it was changed") from None
        if note.run < 1 or note.series < 1 or not 0 <= note.start <= len(order):
            raise BadParameter("run", f"{folder / NOTE} cannot be read: it was changed")
        return note


def write_file(path: Path, text: str) -> None:
    """All of it or nothing, also through a crash."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
