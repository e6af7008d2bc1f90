"""The registered version: a note beside the policy about the source that the ledger knows.

Claim    queries read only units that the ledger was told of.
Because  a registration notes the ledger's version, the source's files, the columns of units, and the copy,
         if units were read from it. If anything differs, or the note cannot be read, the data must be
         registered again. A version is kept, and charged for, only while nobody writes to the files.
Test     tests/sql/reading/test_registration.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.sql.reading.prepared_copy import (
    Files,
    Identities,
    exclusive_lock,
    files_of,
    identities_of,
    last_copy,
    prepared_folder,
    read_files,
    read_identities,
)
from lapwing.storage.private_file import replaced_private_file

FILE = "registered.json"
LOOKED = "looked.json"  # receipts of failed queries that the curator has cleared
READ = "read.json"  # the versions whose rows could all be read


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """A version in the ledger, with the source's files, unit columns and copy of that time (0: no copy)."""

    version: int
    files: Mapping[str, Files]
    people: Mapping[str, list[str]]
    copy: int
    seen: Mapping[str, Identities] | None = field(default=None, compare=False)  # None: unknown


def last_registration(policy: CheckedPolicy) -> RegisteredVersion | None:
    """Return the last registration, or None if there is none that can be read."""
    stored = _read_json(policy, FILE)
    try:
        files, seen = read_files(stored["files"]), read_identities(stored.get("seen"))
        return RegisteredVersion(stored["version"], files, stored["people"], stored["copy"], seen)
    except (ValueError, KeyError, TypeError):
        return None


def _read_json(policy: CheckedPolicy, name: str) -> Any:
    """Return the contents of a note, or None if it is missing or damaged."""
    try:
        return json.loads((prepared_folder(policy) / name).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def unit_locations(policy: CheckedPolicy) -> dict[str, list[str]]:
    """Return the columns that hold the units of each private table, and how they are read."""
    return {
        table.name: [table.source.place, unit.in_source, unit.through, unit.key, *table.source.reading]
        for table in policy.private_tables
        if (unit := table.unit) is not None
    }


def save_registration(
    policy: CheckedPolicy,
    version: int,
    files: Mapping[str, Files],
    seen: Mapping[str, Identities] | None = None,
) -> None:
    """Note a registration, atomically and durably."""
    noted = replace(_now(policy, version, files), seen=seen)
    replace_file(prepared_folder(policy) / FILE, json.dumps(asdict(noted)))


def is_untouched(policy: CheckedPolicy, version: int) -> bool:
    """Return whether nobody has written to the source's files since this version was registered.

    Contents are not compared: only that the curator wrote, and when.
    """
    registered = last_registration(policy)
    seen = None if registered is None else registered.seen
    return seen is not None and seen == identities_of(policy) and is_current(policy, version)


def has_same_files(policy: CheckedPolicy, version: int) -> bool:
    """Return whether the files are the very ones of this version, as far as was noted and can be seen.

    A file that was replaced, with its size and time put back, is another one.
    """
    registered = last_registration(policy)
    if registered is None or not is_current(policy, version):
        return False
    return registered.seen is None or registered.seen == identities_of(policy)


def is_current(policy: CheckedPolicy, version: int) -> bool:
    """Return whether the source is the registered one, as far as its files show."""
    return last_registration(policy) == _now(policy, version, files_of(policy))


def is_behind(policy: CheckedPolicy, version: int) -> bool:
    """Return whether the note is older than the ledger: a process is writing it, or crashed."""
    registered = last_registration(policy)
    return prepared_folder(policy).exists() and (registered is None or registered.version < version)


def _now(policy: CheckedPolicy, version: int, files: Mapping[str, Files]) -> RegisteredVersion:
    copy = last_copy(policy)
    return RegisteredVersion(version, files, unit_locations(policy), 0 if copy is None else copy.version)


def cleared_holds(policy: CheckedPolicy) -> set[int]:
    """Return the receipts of failed queries that the curator has cleared."""
    return set(_read_json(policy, LOOKED) or ())


def clear_holds(policy: CheckedPolicy, *positions: int) -> None:
    """Clear failed queries, so that they no longer hold their analysts."""
    with exclusive_lock(prepared_folder(policy)):  # else one of two changes at the same time could be lost
        cleared = sorted(cleared_holds(policy) | {*positions})
        replace_file(prepared_folder(policy) / LOOKED, json.dumps(cleared))


def was_read(policy: CheckedPolicy, version: int, digest: str) -> bool:
    """Return whether all rows of a version could be read, coded as the policy with this digest says."""
    return digest in _read(policy, version)


def note_read(policy: CheckedPolicy, version: int, digest: str) -> None:
    """Note that all rows of a version could be read."""
    replace_file(prepared_folder(policy) / READ, json.dumps([version, [*_read(policy, version), digest]]))


def _read(policy: CheckedPolicy, version: int) -> list[str]:
    """Return the digests of policies for which all rows of a version could be read."""
    match _read_json(policy, READ):
        case [noted, [*digests]] if noted == version:
            return digests
        case _:
            return []


def make_folder(policy: CheckedPolicy) -> None:
    """Make the folder of copies and notes, for its owner only."""
    prepared_folder(policy).mkdir(mode=0o700, exist_ok=True)


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically and durably."""
    with replaced_private_file(path) as file:
        file.write(text.encode())
