"""The prepared copy of a policy's private tables: what it was made from, and whether it may still be used.

Claim    a copy is used only for the policy, key and source that it was made from.
Because  its manifest holds a keyed digest of everything that codes and ranks depend on, and the name, size
         and time of change of every source file, and is replaced atomically after the copy is on disk.
Test     tests/sql/reading/test_prepare.py

A manifest holds no count and no value of private rows. If the source is a server, changes of its rows
cannot be seen from outside: queries then read the copy, at the version of the copy.
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

from lapwing.core.noise import random_bytes
from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import DEFAULT_LIMITS, Engine, EngineLimits
from lapwing.errors import Unavailable
from lapwing.sql.policy.policy import READ_BYTES, CheckedPolicy
from lapwing.sql.policy.source_location import files_in
from lapwing.sql.reading.column_codes import UnitIds
from lapwing.sql.reading.open_sources import dialect_of, limits_of, open_sources
from lapwing.storage.private_file import replaced_private_file

FORMAT = 5  # of the copy: increased whenever codes, ranks or the hash change
BEFORE_NUMBERS = 4  # the last format in which equal rows of a unit were kept or left out together
MANIFEST = "manifest.json"
LONGEST_IN_SERVER = 50  # bytes of a table's name, of PostgreSQL's 63: a version follows
SETTLED = 20_000_000  # ns: the clocks of file systems have steps of up to 10 ms
Files = tuple[tuple[str, int, int], ...]  # path, size, time of change in ns
# Path, inode, size, times of change: of rows, of all
Identities = tuple[tuple[str, int, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class PreparedCopy:
    """A copy. `place` is a DuckDB file or a (Spark) folder in `folder`, or a schema of the server.

    `files` and `types` (of the source's columns) are by table. `follows` is the version of the ledger when
    the copy was made (0: none), which is one less than the version that the copy was registered as.
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
    follows: int | None = None  # None: the copy is older than this field
    noted_folds: bool | None = None  # None: the copy is older than this field
    seen: Mapping[str, Identities] | None = None  # the files while they were read; None: unknown

    @property
    def folds(self) -> bool:
        """True if ids that differ only in outer spaces and ASCII case are equal in the copy."""
        return self.noted_folds is not False

    @property
    def repeats_rows(self) -> bool:
        """True if the copy holds rows several times.

        The first version joined units of one table to their arrivals as often as the unit has rows.
        """
        return self.noted_folds is None and self.has_arrivals and len(self.types) == 1

    @property
    def file(self) -> Path:
        """The DuckDB file, or the folder of Spark."""
        return self.folder / self.place

    def open(self, limits: EngineLimits = DEFAULT_LIMITS) -> DuckDbEngine:
        """Return an engine that can read the copy and nothing else.

        Copies in servers are opened as sources are.
        """
        return DuckDbEngine.open(databases={"prepared": self.file}, limits=limits)

    def relations(self, engine: Engine, tables: Iterable[str]) -> dict[str, str]:
        """Return FROM items of the given tables of the copy. The truncated tables are those of `types`."""
        name = engine.dialect.name
        if self.engine == "duckdb":
            return {table: f"prepared.main.{name(table)}" for table in tables}
        if self.engine == "spark":
            spark: Any = engine
            return {table: spark.relation_of("spark-parquet", str(self.file / table)) for table in tables}
        return {table: f"{name(self.place)}.{name(self._in_server(table))}" for table in tables}

    def _in_server(self, table: str) -> str:
        """Return a table's name in the server.

        PostgreSQL cuts long names, so that two could become equal.
        """
        if len(table) > LONGEST_IN_SERVER:
            table = hashlib.blake2b(table.encode(), digest_size=16).hexdigest()
        return f"{table}_{self.version}"

    def save(self) -> None:
        """Make this the current copy, atomically and durably."""
        fields = asdict(self)
        del fields["folder"]
        with replaced_private_file(self.folder / MANIFEST) as file:
            file.write(json.dumps(fields, indent=1).encode())

    def remove_others(self) -> None:
        """Remove the copies of other versions. Readers that have one open can read it to the end."""
        for path in self.folder.iterdir():
            is_copy = re.fullmatch(r"copy-\d+(\.duckdb(\.wal)?)?", path.name)
            if is_copy and not path.name.startswith(self.place):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def prepared_folder(policy: CheckedPolicy) -> Path:
    """Return the folder of a policy's copies."""
    return policy.path.with_name(f"{policy.path.stem}.prepared")


def copy_schema(policy: CheckedPolicy, before: PreparedCopy | None) -> str:
    """Return the name of a schema that no other policy writes to, not even one of the same name."""
    if before is not None and before.engine == "postgres":
        return before.place
    return f"lapwing_{policy.name[:12]}_{random_bytes(8).hex()}"


def copy_digest(policy: CheckedPolicy, key: bytes, *, earlier: bool = False) -> str:
    """Return a digest of everything that the copy depends on.

    It is keyed: a location can contain a password. With `earlier`, it is the digest of copies whose equal
    rows were not numbered, and whose texts without `longest` had up to a million bytes. If the policy has
    neither, nothing has changed.
    """
    tables = [
        (
            table.name, table.source, table.unit, table.primary_key, table.rows_per_unit,
            [(column.name, *column.coding) for column in table.columns.values()],
        )
        for table in sorted(policy.private_tables, key=lambda table: table.name)
    ]  # fmt: skip
    is_numbered = not earlier and any(table.numbers_equal_rows for table in policy.private_tables)
    cut = any(table.open_texts and table.coded_bytes == READ_BYTES for table in policy.private_tables)
    texts = (f"texts of {READ_BYTES} bytes",) if cut and not earlier else ()
    form = FORMAT if is_numbered else BEFORE_NUMBERS
    words = repr((form, policy.protects, policy.blocks, tables, *texts))
    return hashlib.blake2b(words.encode(), key=key, person=b"lapwing copy", digest_size=32).hexdigest()


def has_earlier_ranks(policy: CheckedPolicy, key: bytes, copy: PreparedCopy) -> bool:
    """Return whether a copy was made for this policy and key when equal rows were not yet numbered.

    It may be read, and its answers stay valid for it. It is never extended.
    """
    is_numbered = any(table.numbers_equal_rows for table in policy.private_tables)
    return is_numbered and copy.digest == copy_digest(policy, key, earlier=True)


def is_copy_of(policy: CheckedPolicy, key: bytes, copy: PreparedCopy) -> bool:
    """Return whether a copy was made for this policy and key, whatever its files.

    Copies of earlier versions hold longer texts. Reading cuts them (`Reader`), and they are not extended.
    """
    is_newest = copy.digest == copy_digest(policy, key)
    return is_newest or copy.digest == copy_digest(policy, key, earlier=True)


def last_copy(policy: CheckedPolicy) -> PreparedCopy | None:
    """Return the newest copy, current or not; None if there is none.

    Raises Unavailable if its manifest is damaged.
    """
    folder = prepared_folder(policy)
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise Unavailable(f"{folder / MANIFEST} is damaged. Restore it from a backup") from None
    files, seen = read_files(manifest.pop("files")), read_identities(manifest.pop("seen", None))
    return PreparedCopy(folder=folder, files=files, seen=seen, **manifest)


def read_files(stored: Any) -> dict[str, Files]:
    """Return the result of `files_of` from JSON."""
    return {name: tuple((path, size, time) for path, size, time in rows) for name, rows in stored.items()}


def read_identities(stored: Any) -> dict[str, Identities] | None:
    """Return the result of `identities_of` from JSON."""
    if stored is None:
        return None
    return {name: tuple((p, i, s, t, c) for p, i, s, t, c in rows) for name, rows in stored.items()}


def has_current_units(policy: CheckedPolicy, copy: PreparedCopy) -> bool:
    """Return whether a copy separates units and rows as the policy does now.

    Whole numbers cannot be folded.
    """
    if copy.repeats_rows:
        return False
    if copy.folds == policy.folds_ids:
        return True
    return copy.has_whole_units and UnitIds.of(policy, dialect_of(policy), copy.types).whole


def current_copy(policy: CheckedPolicy, key: bytes) -> PreparedCopy | None:
    """Return the copy if it was made from this policy, key and source as they are now, else None."""
    copy = last_copy(policy)
    if copy is None or files_of(policy) != copy.files or not is_copy_of(policy, key, copy):
        return None
    is_there = copy.engine == "postgres" or copy.file.exists()
    return copy if has_current_units(policy, copy) and is_there else None


def files_of(policy: CheckedPolicy) -> dict[str, Files]:
    """Return the files of each private table as they are now: path, size and time of change."""
    return {
        name: tuple((path, about.st_size, about.st_mtime_ns) for path, about in files)
        for name, files in _stats(policy).items()
    }


def _stats(policy: CheckedPolicy) -> dict[str, list[tuple[str, os.stat_result]]]:
    return {
        table.name: [(path, os.stat(path)) for path in files_in(table.source)]
        for table in policy.private_tables
    }


def identities_of(policy: CheckedPolicy) -> dict[str, Identities] | None:
    """Return what shows that somebody wrote to the private tables' files; None if a table has no files.

    The kernel sets the inode and the second time of change: copying a file's times does not copy them.
    """
    identities = {
        name: tuple((path, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for path, s in files)
        for name, files in _stats(policy).items()
    }
    return identities if all(identities.values()) else None


def settled_identities(policy: CheckedPolicy) -> dict[str, Identities] | None:
    """Return `identities_of` after a short wait, if needed, so that any later change has another time."""
    identities = identities_of(policy)
    if identities is None:
        return None
    youngest = max(changed for files in identities.values() for *_, changed in files)
    wait = youngest + SETTLED - time.time_ns()
    if wait > SETTLED:  # the file's time is from another clock
        return None
    if wait > 0:
        time.sleep(wait / 10**9)
    return identities_of(policy)


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Lock a folder: one process registers or prepares at a time.

    The kernel releases the lock of a dead process.
    """
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def open_copy(policy: CheckedPolicy, copy: PreparedCopy, *, threads: int | None = None) -> Engine:
    """Open the engine that holds a copy."""
    if copy.engine == "duckdb":
        return copy.open(limits_of(policy, threads))
    return open_sources(policy, threads=threads).engine
