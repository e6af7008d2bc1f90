"""Which state of the source the ledger knows: written beside the policy after each registration."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from lapwing.query.bounded.prepared import Files, files_of, folder_of, sync
from lapwing.query.policies.policy import Policy

FILE = "registered.json"
LOOKED = "looked.json"


@dataclass(frozen=True, slots=True)
class Registered:
    """A version of the ledger's data set, and the source's files at that time."""

    version: int
    files: dict[str, Files]


def registered(policy: Policy) -> Registered | None:
    """The last registration."""
    try:
        found = json.loads((folder_of(policy) / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    files = {name: tuple((p, s, t) for p, s, t in rows) for name, rows in found["files"].items()}
    return Registered(found["version"], files)


def remember(policy: Policy, version: int, files: dict[str, Files]) -> None:
    """Note a registration, in one step that survives a crash."""
    replace_file(folder_of(policy) / FILE, json.dumps({"version": version, "files": files}))


def is_current(policy: Policy, version: int) -> bool:
    """Whether the source is, as far as can be seen from outside, the one that the ledger knows."""
    found = registered(policy)
    return found is not None and found.version == version and found.files == files_of(policy)


def looked_at(policy: Policy) -> set[int]:
    """Receipts of failed questions that the curator has looked at."""
    path: Path = folder_of(policy) / LOOKED
    try:
        return set(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return set()


def look_at(policy: Policy, position: int) -> None:
    """Let a question that failed be asked again."""
    replace_file(folder_of(policy) / LOOKED, json.dumps(sorted(looked_at(policy) | {position})))


def make_folder(policy: Policy) -> None:
    """The folder of copies and notes, for its owner only."""
    folder_of(policy).mkdir(mode=0o700, exist_ok=True)


def replace_file(path: Path, text: str) -> None:
    """A file is there whole, or as it was."""
    new = path.with_name(f"{path.name}.new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync(path.parent)
