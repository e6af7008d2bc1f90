"""Which state of the source the ledger knows: written beside the policy after each registration.

Claim    questions are asked only of people whom the ledger was told of.
Because  a registration notes the ledger's version, the source's files, where the policy finds people, and
         the copy, if they were read from it; whoever finds something else, or nothing that can be read,
         must register again. A version stays only while nobody has written to the files.
Test     tests/query/test_registered.py
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from lapwing.sql.policy import Policy
from lapwing.sql.truncated.open_sources import private_tables
from lapwing.sql.truncated.prepared_copy import (
    Files,
    Identities,
    exclusive_lock,
    files_of,
    identities_of,
    last_copy,
    prepared_folder,
    read_identities,
    sync_to_disk,
)

FILE = "registered.json"
LOOKED = "looked.json"
READ = "read.json"


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """A version of the ledger's data set; and at that time, the source's files, where people were found,
    and the number of the copy (0: there was none)."""

    version: int
    files: Mapping[str, Files]
    people: Mapping[str, list[str]]
    copy: int
    seen: Mapping[str, Identities] | None = field(default=None, compare=False)  # None: not known


def last_registration(policy: Policy) -> RegisteredVersion | None:
    """The last registration, if there is one that can be read."""
    try:
        found = json.loads((prepared_folder(policy) / FILE).read_text(encoding="utf-8"))
        files = {name: tuple((p, s, t) for p, s, t in rows) for name, rows in found["files"].items()}
        seen = read_identities(found.get("seen"))
        return RegisteredVersion(found["version"], files, found["people"], found["copy"], seen)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def unit_locations(policy: Policy) -> dict[str, list[str]]:
    """Where each private table finds its people, and how their ids are read."""
    return {
        table.name: [
            table.source.place,
            table.unit.in_source,
            table.unit.through,
            table.unit.key,
            *table.source.reading,
        ]
        for table in private_tables(policy)
        if table.unit is not None
    }


def save_registration(
    policy: Policy,
    version: int,
    files: Mapping[str, Files],
    seen: Mapping[str, Identities] | None = None,
) -> None:
    """Note a registration, in one step that survives a crash."""
    noted = replace(_now(policy, version, files), seen=seen)
    replace_file(prepared_folder(policy) / FILE, json.dumps(asdict(noted)))


def is_untouched(policy: Policy, version: int) -> bool:
    """Tell whether nobody has written to the source's files since the ledger was told of this version.

    Not a word of what they hold is compared: who wrote, and when, is what the curator did.
    """
    found = last_registration(policy)
    return (
        found is not None
        and found.seen is not None
        and found.seen == identities_of(policy)
        and is_current(policy, version)
    )


def is_current(policy: Policy, version: int) -> bool:
    """Whether the source is, as far as can be seen from outside, the one that the ledger knows."""
    found = last_registration(policy)
    return found == _now(policy, version, files_of(policy))


def is_behind(policy: Policy, version: int) -> bool:
    """Tell whether the note is older than the ledger or the copy: one is being written now, or its writer
    is gone."""
    if not prepared_folder(policy).exists():
        return False
    found, copy = last_registration(policy), last_copy(policy)
    return found is None or found.version < version or (copy is not None and found.copy < copy.version)


def _now(policy: Policy, version: int, files: Mapping[str, Files]) -> RegisteredVersion:
    copy = last_copy(policy)
    return RegisteredVersion(version, files, unit_locations(policy), 0 if copy is None else copy.version)


def cleared_holds(policy: Policy) -> set[int]:
    """Receipts of failed questions that the curator has looked at."""
    path: Path = prepared_folder(policy) / LOOKED
    try:
        return set(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return set()


def clear_holds(policy: Policy, *positions: int) -> None:
    """Let questions that failed be asked again."""
    with exclusive_lock(prepared_folder(policy)):  # or one of two who look at once would be forgotten
        replace_file(
            prepared_folder(policy) / LOOKED, json.dumps(sorted(cleared_holds(policy) | {*positions}))
        )


def was_read(policy: Policy, version: int, digest: str) -> bool:
    """Tell whether all rows of a version could be read, coded as the policy (by its digest) says."""
    return digest in _read(policy, version)


def note_read(policy: Policy, version: int, digest: str) -> None:
    """Note that they could."""
    replace_file(prepared_folder(policy) / READ, json.dumps([version, [*_read(policy, version), digest]]))


def _read(policy: Policy, version: int) -> list[str]:
    try:
        of, digests = json.loads((prepared_folder(policy) / READ).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, TypeError):
        return []
    return list(digests) if of == version else []


def make_folder(policy: Policy) -> None:
    """The folder of copies and notes, for its owner only."""
    prepared_folder(policy).mkdir(mode=0o700, exist_ok=True)


def replace_file(path: Path, text: str) -> None:
    """A file is there whole, or as it was."""
    handle, new = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)  # each process its own
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync_to_disk(path.parent)
