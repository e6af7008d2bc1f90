"""The prepared copy of a policy's private tables: what it is of, and whether it may still be used.

Claim    a copy is used only for the policy, key and source that it was made from.
Because  its manifest holds a keyed digest of all that codes and ranks depend on, and the name, size and
         time of change of every source file, and is replaced in one step after the copy is on disk.
Test     tests/query/test_prepare.py

A manifest holds no count and no value of private rows. Where the source is a server, nothing tells from
outside whether rows changed: the copy is what is asked, at its own version.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import DEFAULT_LIMITS, Engine, EngineLimits
from lapwing.errors import Unavailable
from lapwing.sql.policy import Policy, Source
from lapwing.sql.source_location import files_in
from lapwing.sql.truncated.column_codes import UnitIds
from lapwing.sql.truncated.open_sources import dialect_of, private_tables

FORMAT = 4  # of the copy: one more whenever codes, ranks or the hash change
MANIFEST = "manifest.json"
LONGEST_IN_SERVER = 50  # of 63 bytes: a version follows
SETTLED = 20_000_000  # ns: file systems count time in steps of up to 10 ms
Files = tuple[tuple[str, int, int], ...]  # path, size, time of change in ns
Identities = tuple[
    tuple[str, int, int, int, int], ...
]  # path, inode, size, times of change: of rows, of all


@dataclass(frozen=True, slots=True)
class PreparedCopy:
    """A copy. `place` is a DuckDB file or a folder (of Spark) in ours, or a schema of the server.

    `files` and `types` (of the source's columns) are by table. `follows` is the version that the ledger had
    when the copy was made (0: none), and so one less than the one that it was registered as.
    """

    folder: Path
    version: int
    digest: str
    place: str
    engine: str
    has_whole_units: bool
    has_arrivals: bool
    files: Mapping[str, Files]
    types: Mapping[str, Mapping[str, str]]
    follows: int | None = None  # None: of a copy that was made before it was noted
    noted_folds: bool | None = None  # None: of a copy that was made before it was noted
    seen: Mapping[str, Identities] | None = None  # the files while they were read; None: not known

    @property
    def folds(self) -> bool:
        """Tell whether ids that differ in spaces around and in ASCII capitals only are one in it."""
        return self.noted_folds is not False

    @property
    def repeats_rows(self) -> bool:
        """True if the copy holds rows several times.

        The first version joined units of one table to their arrivals as often as the unit has rows.
        """
        return self.noted_folds is None and self.has_arrivals and len(self.types) == 1

    @property
    def file(self) -> Path:
        """The DuckDB file, or the folder."""
        return self.folder / self.place

    def open(self, limits: EngineLimits = DEFAULT_LIMITS) -> DuckDbEngine:
        """An engine that can read the copy and nothing else. (A server is opened as the source is.)"""
        return DuckDbEngine.open(databases={"prepared": self.file}, limits=limits)

    def scans(self, engine: Engine) -> dict[str, str]:
        """FROM items of the bounded tables, for `render`."""
        return self.relations(engine, self.types)

    def relations(self, engine: Engine, tables: Iterable[str]) -> dict[str, str]:
        """FROM items of tables in the copy."""
        name = engine.dialect.name
        if self.engine == "duckdb":
            return {table: f"prepared.main.{name(table)}" for table in tables}
        if self.engine == "spark":
            spark: Any = engine
            path = self.folder / self.place
            return {table: spark.relation_of("spark-parquet", str(path / table)) for table in tables}
        return {table: f"{name(self.place)}.{name(self._in_server(table))}" for table in tables}

    def _in_server(self, table: str) -> str:
        """PostgreSQL cuts names off, and would take two tables for one."""
        if len(table) > LONGEST_IN_SERVER:
            table = hashlib.blake2b(table.encode(), digest_size=16).hexdigest()
        return f"{table}_{self.version}"

    def save(self) -> None:
        """Make this the current copy, in one step that survives a crash."""
        fields = asdict(self)
        del fields["folder"]
        new = self.folder / f"{MANIFEST}.new"
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(fields, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.folder / MANIFEST)
        sync_to_disk(self.folder)

    def remove_others(self) -> None:
        """Copies of other versions, and what crashes left. Whoever reads one now can read it to its end."""
        for path in self.folder.iterdir():
            if re.fullmatch(r"copy-\d+(\.duckdb(\.wal)?)?", path.name) and not path.name.startswith(
                self.place
            ):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def prepared_folder(policy: Policy) -> Path:
    """Where a policy's copies lie."""
    return policy.path.with_name(f"{policy.path.stem}.prepared")


def copy_digest(policy: Policy, key: bytes) -> str:
    """Of all that the copy depends on. Keyed: a source's location may hold a password."""
    tables = [
        (
            table.name, table.source, table.unit, table.primary_key, table.rows_per_unit,
            [(column.name, *column.coding) for column in table.columns.values()],
        )
        for table in sorted(private_tables(policy), key=lambda table: table.name)
    ]  # fmt: skip
    words = repr((FORMAT, policy.protects, policy.blocks, tables))
    return hashlib.blake2b(words.encode(), key=key, person=b"lapwing copy", digest_size=32).hexdigest()


def last_copy(policy: Policy) -> PreparedCopy | None:
    """The newest copy, of whatever it is."""
    folder = prepared_folder(policy)
    try:
        found: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise Unavailable(f"{folder / MANIFEST} is damaged. Restore it from a backup") from None
    files = {
        name: tuple((path, size, time) for path, size, time in rows)
        for name, rows in found.pop("files").items()
    }
    return PreparedCopy(folder=folder, files=files, seen=read_identities(found.pop("seen", None)), **found)


def read_identities(found: Any) -> dict[str, Identities] | None:
    """What `identities_of` gave, from JSON."""
    if found is None:
        return None
    return {name: tuple((p, i, s, t, c) for p, i, s, t, c in rows) for name, rows in found.items()}


def has_current_units(policy: Policy, copy: PreparedCopy) -> bool:
    """Tell whether a copy tells people and rows apart as we do now. Whole numbers cannot be folded."""
    if copy.repeats_rows:
        return False
    if copy.folds == policy.folds_ids:
        return True
    return copy.has_whole_units and UnitIds.of(policy, dialect_of(policy), copy.types).whole


def current_copy(policy: Policy, key: bytes) -> PreparedCopy | None:
    """The copy, if it is of this policy, key and source as they are now."""
    found = last_copy(policy)
    if found is None or found.digest != copy_digest(policy, key) or files_of(policy) != found.files:
        return None
    if not has_current_units(policy, found):
        return None
    if found.engine != "postgres" and not found.file.exists():
        return None
    return found


def files_of(policy: Policy) -> dict[str, Files]:
    """The files that each private table lies in, as they are now."""
    return {table.name: _files(table.source) for table in private_tables(policy)}


def _files(source: Source) -> Files:
    found = ((path, os.stat(path)) for path in files_in(source))
    return tuple((path, about.st_size, about.st_mtime_ns) for path, about in found)


def identities_of(policy: Policy) -> dict[str, Identities] | None:
    """What tells from outside that somebody wrote to the private tables' files since; None if nothing does.

    The kernel sets the second time of change and the inode: who copies times along does not copy these.
    """
    found = {table.name: _identities(table.source) for table in private_tables(policy)}
    return found if all(found.values()) else None


def _identities(source: Source) -> Identities:
    found = ((path, os.stat(path)) for path in files_in(source))
    return tuple(
        (path, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns) for path, about in found
    )


def settled_identities(policy: Policy) -> dict[str, Identities] | None:
    """The same, once the clock has moved on since the last change: a later one has another time."""
    found = identities_of(policy)
    if found is None:
        return None
    youngest = max(changed for files in found.values() for *_, changed in files)
    wait = youngest + SETTLED - time.time_ns()
    if wait > SETTLED:  # of another clock
        return None
    if wait > 0:
        time.sleep(wait / 10**9)
    return identities_of(policy)


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """One process registers or prepares at a time; the kernel lets go if it dies."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def sync_to_disk(path: Path) -> None:
    """Have a file or folder on disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
