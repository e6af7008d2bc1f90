"""Where what came out of a run lies, and whose it is. All of it can be made again: the ledger has it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from lapwing.errors import BadParameter

CARD = "card.json"


@dataclass(frozen=True, slots=True)
class Whose:
    """Where, of what and by whom a run is charged. Runs are counted apart for each of these."""

    ledger: str
    stream: str
    pipeline: str
    analyst: str


def folder_of(folder: Path, run: int) -> Path:
    """Where what came out of a run lies."""
    return folder / f"run-{run}"


def require_own(place: Path, whose: Whose) -> None:
    """Raises `BadParameter` if the card there is of another's run: it would be written over."""
    try:
        found = json.loads((place / CARD).read_text(encoding="utf-8"))["charged"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return  # there is none
    if found != asdict(whose):
        raise BadParameter(
            "folder",
            f"{place} holds a run of another stream, pipeline, ledger or analyst. Go on as before, or name"
            " another folder",
        )


def write_once(path: Path, text: str) -> None:
    """What was accepted is written once: a file of another receipt is left as it is, and refused."""
    try:
        before = json.loads(path.read_text(encoding="utf-8"))["receipt"]
    except FileNotFoundError:
        write_file(path, text)
        return
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        before = None
    if before != json.loads(text)["receipt"]:
        raise BadParameter("folder", f"{path} is there, and is not of this run. Move it away")


def write_file(path: Path, text: str) -> None:
    """All of it or nothing, also through a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
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
