"""The registry: the ledgers of a user or a team, the data and people that each knows, and its open copy.

It is a folder away from the data: $LAPWING_STATE, else $XDG_STATE_HOME/lapwing, else
~/.local/state/lapwing; or what a policy names in `[ledger] registry`. Both may also name a schema of a
PostgreSQL server (`server_registry`). `RegistryHome` is all that the two differ in. The registry also keeps
the second anchors of all ledgers, the *witnesses*.

Claim    data that a ledger of this registry knows gets no second ledger because its policy, file, folder,
         view or table has another name now, or because the first ledger is gone.
Because  before a ledger is opened or made for data, the registry is asked which ledger knows one of its
         sources. When data is registered, keyed hashes of its unit ids are compared with those of all data
         in other ledgers. One common id is refused, unless the curator signed that the people are others,
         which every statement shows. Asking and noting are one transaction, and a ledger is made within it.
Test     tests/sql/test_policy_ledger_registry.py, tests/ledger/test_registry.py,
         tests/ledger/test_server_registry.py

Claim    a ledger is not opened with a registry that does not know it. There is none without a registry.
Because  the first entry names the registry by a digest of its key. Another one is accepted only with an
         entry that the curator signs.
Test     tests/ledger/test_registry.py, tests/ledger/test_server_registry.py

Claim    of one ledger, two copies are never open at once.
Because  whoever opens a ledger holds a shared lock of a file named after it, which says which copy is open.
         To write another copy into it, the lock must be held alone. Before each charge, the locked file is
         compared with the one of that name: a file that was removed locks nobody out. On a server, the lock
         is one of a session, and before each charge the same session must answer.
Test     tests/ledger/test_registry.py, tests/ledger/test_server_registry.py,
         tests/faults/test_ledger_identity.py

Other machines and other users have registries of their own unless they share a folder or a server.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Protocol

from lapwing.config.values import is_postgres
from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter, SessionOver, Unavailable
from lapwing.ledger.anchors import Anchor, FileAnchor
from lapwing.ledger.unit_ids import Sketch, tagged, untagged
from lapwing.storage.private_file import sync_to_disk
from lapwing.storage.sqlite import connect_sqlite, sqlite_errors

REGISTRY_FILE = "sources"
KEY_FILE = "registry.key"
KEY_BYTES = 32
PATIENCE = 60  # seconds that others may take to make a ledger
HOW = (
    "Set LAPWING_STATE to a folder that is kept, away from the data, or to the postgresql:// URL of a "
    'team; or name it in the policy: [ledger] and below it registry = "/path/of/the/folder"'
)
_TABLES = (
    "CREATE TABLE IF NOT EXISTS ledgers (ledger TEXT PRIMARY KEY, place TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS sources (source TEXT PRIMARY KEY, ledger TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS accounts (source TEXT PRIMARY KEY, account TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS people (ledger TEXT NOT NULL, data TEXT NOT NULL, sketch BLOB NOT NULL, "
    "PRIMARY KEY (ledger, data)) STRICT",
)


class StatementRunner(Protocol):
    """A function that runs a statement with ? for each value, and returns all rows."""

    def __call__(self, sql: str, *values: str | bytes | int) -> list[tuple[Any, ...]]:
        """Run the statement."""


class CopyLock(Protocol):
    """A lock of a ledger, shared by all who have the same copy open, with the name of that copy."""

    def said(self) -> tuple[str, str]:
        """Return the copy that was open last, and its location; empty texts if there was none."""

    def change(self, copy: str, where: str) -> bool:
        """Name another copy while the lock is held alone. Return False if others share it."""

    def why_lost(self) -> str:
        """Return why the lock is not held any more; empty if it is held, or was closed."""

    def close(self) -> None:
        """Release the lock."""


class RegistryHome(Protocol):
    """The place of a registry: a folder, or a schema of a server. Equal homes are the same registry."""

    @property
    def where(self) -> str:
        """The location, without a password."""

    @property
    def key(self) -> bytes:
        """The key of the sketches of people. It is made at its first use, and never made again."""

    def witness(self, ledger_id: str) -> Anchor:
        """Return the second anchor of a ledger."""

    def transaction(self) -> AbstractContextManager[StatementRunner]:
        """Begin a transaction that excludes all others, and commit it at the end of the block."""

    def lock(self, ledger_id: str) -> CopyLock:
        """Return the lock of a ledger's open copy, held by this process together with others."""

    def copy_name(self, copy: str) -> str:
        """Return the name of a copy among all that may use this registry."""


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry of ledgers.

    Args:
        home: where it is.
    """

    home: RegistryHome

    @classmethod
    def at(cls, where: str | Path = "") -> Registry:
        """Return the registry in a folder or at a PostgreSQL URL; without one, the user's own.

        A folder is made if needed; the tables of a server are made at their first use.

        Raises:
            BadParameter: if the URL is wrong, or a part of the registry is missing.
            Unavailable: if there is no such folder and none can be made.
        """
        named = str(where) or os.environ.get("LAPWING_STATE", "")
        if is_postgres(named):
            # psycopg is an extra: only registries in PostgreSQL need it.
            from lapwing.ledger.server_registry import ServerHome  # noqa: PLC0415

            return cls(ServerHome.of(named))
        return cls(FolderHome.at(named))

    @property
    def where(self) -> str:
        """The location of the registry, without a password."""
        return self.home.where

    @property
    def id(self) -> str:
        """The id of the registry, which ledgers name. It reveals nothing of the key."""
        return hashlib.blake2b(key=self.key, digest_size=16, person=b"lapwing registry").hexdigest()

    @property
    def key(self) -> bytes:
        """The key of the sketches of people."""
        return self.home.key

    def witness(self, ledger_id: str) -> Anchor:
        """Return the second anchor of a ledger. Restoring the data's folder does not restore it."""
        return self.home.witness(ledger_id)

    @contextmanager
    def open(self) -> Iterator[OpenRegistry]:
        """Open the registry for one transaction. A thread that has it open gets the same one."""
        held = _HELD.__dict__.setdefault("registries", {})
        if self.home in held:
            yield held[self.home]
            return
        with self.home.transaction() as run:
            own = held[self.home] = OpenRegistry(run, self.where)
            try:
                yield own
            finally:
                del held[self.home]

    def require_known(self, ledger_id: str, registered: str, where: str) -> None:
        """Raise BadParameter unless a ledger that names a registry names this one, which knows it."""
        if not registered:  # made before ledgers named one
            return
        is_here = registered == self.id
        if is_here:
            with self.open() as known:
                if known.place_of(ledger_id) is not None:
                    return
        why = "which does not know it any more" if is_here else "and this is another one"
        raise BadParameter(
            "registry",
            f"the ledger {where} belongs to a registry, {why}: {self.where}. {HOW}, where the ledger was "
            "made. If that is gone, the curator signs that the ledger goes on in this one, and every "
            f"statement says so: `lapwing ledger register {quote(where)} --curator KEY`",
        )


_HELD = threading.local()


@dataclass(frozen=True, slots=True)
class FolderHome:
    """The folder of a registry.

    Args:
        folder: the folder. If its group may write into it, the group shares the registry.
    """

    folder: Path

    @classmethod
    def at(cls, where: str) -> FolderHome:
        """Return a folder, which is made if needed; without a name, the user's own."""
        try:
            folder = Path(where).absolute() if where else _own_folder()
        except RuntimeError:  # no home
            raise _no_registry("this user has no home folder") from None
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _no_registry(f"{folder} cannot be made: {error.strerror}") from None
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise _no_registry(f"{folder} cannot be written")
        registry = cls(folder)
        registry._require_whole()
        return registry

    @property
    def where(self) -> str:
        """The path of the folder."""
        return str(self.folder)

    @property
    def key(self) -> bytes:
        """The key. It is made at its first use and never leaves the folder."""
        with suppress(FileNotFoundError):
            return self._read_key()
        with Registry(self).open():  # one process makes it
            with suppress(FileNotFoundError):
                return self._read_key()
            made = self.folder / f"{KEY_FILE}.new"
            with suppress(FileNotFoundError):
                made.unlink()
            try:
                file = self.private_file(made)
                os.write(file, random_bytes(KEY_BYTES))
                os.fsync(file)
                os.close(file)
                os.rename(made, self.folder / KEY_FILE)
                sync_to_disk(self.folder)
            except OSError as error:
                raise Unavailable(f"{made} cannot be written: {error.strerror}") from None
            return self._read_key()

    def _read_key(self) -> bytes:
        path = self.folder / KEY_FILE
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o7777 & ~self._mode:
                    raise BadParameter("registry", f"others can use the key {path}: chmod 600 {path}")
                content = file.read(KEY_BYTES + 1)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Unavailable(f"{path} cannot be read: {error.strerror}") from None
        if len(content) != KEY_BYTES:
            raise BadParameter("registry", f"{path} is not the key of a registry. {HOW}")
        return content

    @property
    def _mode(self) -> int:
        return 0o660 if self.folder.stat().st_mode & stat.S_IWGRP else 0o600

    def private_file(self, path: Path) -> int:
        """Open a file for reading and writing; a new one only for those who share the registry."""
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self._mode)
            with suppress(PermissionError):  # another member of the group made it just now
                os.fchmod(file, self._mode)  # whatever the umask is
            return file

    def witness(self, ledger_id: str) -> FileAnchor:
        """Return the second anchor of a ledger, a file."""
        mode = self._mode if self._mode & stat.S_IWGRP else None
        return FileAnchor(self.folder / f"{ledger_id}.anchor", mode=mode)

    @contextmanager
    def transaction(self) -> Iterator[StatementRunner]:
        """Begin a transaction. The tables are made in one of their own, so that they stay."""
        path = self.folder / REGISTRY_FILE
        self._require_whole()
        what, hint = f"the registry {path}", "Another process makes a ledger: try again"
        with sqlite_errors(what):
            os.close(self.private_file(path))
            # EXTRA: else a power loss could bring back the journal, and undo what a ledger relies on.
            connection = connect_sqlite(path, ("synchronous = EXTRA",), wait=PATIENCE)

        def run(sql: str, *values: str | bytes | int) -> list[tuple[Any, ...]]:
            with sqlite_errors(what, if_locked=hint):
                return connection.execute(sql, values).fetchall()

        with closing(connection):  # this rolls back an open transaction
            for statement in ("BEGIN IMMEDIATE", *_TABLES, "COMMIT", "BEGIN IMMEDIATE"):
                run(statement)
            yield run
            run("COMMIT")

    def _require_whole(self) -> None:
        """Require the file of sources if there is a key, which is made after it: no part is made anew."""
        path = self.folder / REGISTRY_FILE
        if not (self.folder / KEY_FILE).exists():
            return
        with suppress(FileNotFoundError):
            if path.stat().st_size:
                return
        raise BadParameter(
            "registry",
            f"{path} is missing or empty, though the registry was used: it said which data and people "
            "have a ledger. Put it back from a backup. If it is gone for good, move the whole folder "
            "away; the curator then signs for each ledger that it goes on in a new registry: `lapwing "
            "ledger register LEDGER --curator KEY`",
        )

    def lock(self, ledger_id: str) -> CopyLock:
        """Return the shared lock of a file that is named after the ledger."""
        return _FileLock(self, self.folder / f"{ledger_id}.open")

    def copy_name(self, copy: str) -> str:
        """Return the copy's own name: all who share the folder see the same disks."""
        return copy


def _own_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):  # the XDG rules ignore a relative one
        return Path(state, "lapwing")
    if os.environ.get("HOME") == "":  # Path.home() would be the working folder, or /
        raise RuntimeError
    return Path.home() / ".local" / "state" / "lapwing"


def _no_registry(why: str) -> Unavailable:
    return Unavailable(
        f"there is no folder for the registry of ledgers: {why}. Without it, nobody would notice a second "
        f"ledger for the same data or a restored one. {HOW}"
    )


class _FileLock:
    """A file that is locked (flock). Locks of a process that ends are released by the system."""

    def __init__(self, home: FolderHome, path: Path) -> None:
        self._path, self._file = path, -1
        with self._usable():
            self._file = home.private_file(path)
            fcntl.flock(self._file, fcntl.LOCK_SH)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.close()
            raise Unavailable(f"{self._path} cannot be used: {error.strerror}") from None

    def said(self) -> tuple[str, str]:
        with self._usable():
            content = os.pread(self._file, 1 << 16, 0)
        try:
            said = json.loads(content)
        except ValueError:  # new, or unfinished
            said = None
        return (str(said.get("copy")), str(said.get("where"))) if isinstance(said, dict) else ("", "")

    def change(self, copy: str, where: str) -> bool:
        with self._usable():
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, json.dumps({"copy": copy, "where": where}).encode(), 0)
            fcntl.flock(self._file, fcntl.LOCK_SH)
        return True

    def why_lost(self) -> str:
        if self._file == -1:
            return ""
        with suppress(OSError):
            if os.path.samestat(os.stat(self._path), os.fstat(self._file)):
                return ""
        return f"{self._path} was removed or replaced while this ledger was open"

    def close(self) -> None:
        file, self._file = self._file, -1
        if file != -1:
            os.close(file)


class OpenRegistry:
    """A registry in one transaction, locked against other processes."""

    def __init__(self, run: StatementRunner, where: str) -> None:
        self.run, self._where = run, where

    def place_of(self, ledger: str) -> str | None:
        """Return the last known location of a ledger; None if the ledger is not known."""
        rows = self.run("SELECT place FROM ledgers WHERE ledger = ?", ledger)
        return rows[0][0] if rows else None

    def id_of(self, named: str) -> str:
        """Return the id of a ledger that is named by its id, or by its location. Raises BadParameter."""
        place = named if is_postgres(named) else os.path.realpath(named)
        rows = self.run("SELECT ledger FROM ledgers WHERE ledger = ? OR place = ?", named, place)
        if len(rows) != 1:
            which = "no ledger" if not rows else "several ledgers: give an id"
            raise BadParameter("ledger", f"the registry {self._where} knows {which} of the name {named}")
        return str(rows[0][0])

    def ledgers_of(self, sources: Iterable[str]) -> dict[str, str]:
        """Return the ledgers that know one of these sources: the last known location of each, by its id."""
        of_one = "SELECT ledger, place FROM sources JOIN ledgers USING (ledger) WHERE source = ?"
        return {ledger: place for source in sources for ledger, place in self.run(of_one, source)}

    def accounts_of(self, sources: Iterable[str]) -> set[str]:
        """Return the accounts that were noted for one of these sources."""
        of_one = "SELECT account FROM accounts WHERE source = ?"
        return {row[0] for source in sources for row in self.run(of_one, source)}

    def note(self, sources: Sequence[str] = (), *, ledger: str, place: str, account: str = "") -> None:
        """Note the sources and the location of a ledger; and the account, if rows have no ids."""
        self.run(
            "INSERT INTO ledgers (ledger, place) VALUES (?, ?) ON CONFLICT (ledger) "
            "DO UPDATE SET place = excluded.place WHERE ledgers.place <> excluded.place",
            ledger, place,
        )  # fmt: skip
        for source in sources:
            self.run(
                "INSERT INTO sources (source, ledger) VALUES (?, ?) ON CONFLICT DO NOTHING", source, ledger
            )
            if account:
                self.run(
                    "INSERT INTO accounts (source, account) VALUES (?, ?) ON CONFLICT DO NOTHING",
                    source, account,
                )  # fmt: skip

    def ledgers_with(self, people: Sketch, key: bytes, *, besides: str) -> dict[str, str]:
        """Return the other ledgers that know one of these people: the location of each, by its id."""
        places: dict[str, str] = {}
        every = "SELECT ledger, data, place FROM people JOIN ledgers USING (ledger) WHERE ledger <> ?"
        for ledger, data, place in self.run(every, besides):
            if ledger not in places and self._people(ledger, data, key).overlaps(people):
                places[ledger] = place
        return places

    def has_people(self, *, ledger: str, data: str) -> bool:
        """Return whether people of a data set were noted."""
        return bool(self.run("SELECT 1 FROM people WHERE ledger = ? AND data = ?", ledger, data))

    def note_people(self, people: Sketch, key: bytes, *, ledger: str, data: str) -> None:
        """Note people of a data set, besides those who were ever in it."""
        if self.has_people(ledger=ledger, data=data):
            people = people.merged(self._people(ledger, data, key))
        content = tagged(people, key, f"{ledger} {data}", 0)
        self.run(
            "INSERT INTO people (ledger, data, sketch) VALUES (?, ?, ?) ON CONFLICT (ledger, data) "
            "DO UPDATE SET sketch = excluded.sketch",
            ledger, data, content,
        )  # fmt: skip

    def _people(self, ledger: str, data: str, key: bytes) -> Sketch:
        sql = "SELECT sketch FROM people WHERE ledger = ? AND data = ?"
        [(content,)] = self.run(sql, ledger, data)
        return untagged(content, key, f"{ledger} {data}", 0)

    def forget_sources(self, ledger: str) -> None:
        """Forget the sources of a ledger that was never charged, so that they may join another one."""
        self.run(
            "DELETE FROM accounts WHERE source IN (SELECT source FROM sources WHERE ledger = ?)", ledger
        )
        self.run("DELETE FROM sources WHERE ledger = ?", ledger)

    def forget_gone(self, files: Iterable[Path]) -> None:
        """Forget files whose ledger is gone. This is for invented data, which may begin anew."""
        known = (
            "SELECT source, place FROM sources JOIN ledgers USING (ledger) "
            "WHERE source = ? OR substr(source, 1, ?) = ?"
        )
        for name in map(source_of_file, files):
            for source, place in self.run(known, name, len(name) + 1, f"{name}#"):
                if is_ledger_gone(place):
                    self.run("DELETE FROM sources WHERE source = ?", source)
                    self.run("DELETE FROM accounts WHERE source = ?", source)


def source_of_file(path: str | Path) -> str:
    """Return the registry's name of a file: its path without links. `#table` may follow it."""
    return f"file:{os.path.realpath(path)}"


def is_ledger_gone(place: str) -> bool:
    """Return whether a ledger's file is gone.

    For a server, or a folder that this user may not enter, it returns False: nothing can be seen from here.
    """
    if is_postgres(place):
        return False
    try:
        Path(place).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


class OpenCopy:
    """A sign in the registry that this process has one copy of a ledger open.

    Several processes may have the same copy open, but nobody another one. Locks of a process that ends are
    released by the system, or by the server.

    Args:
        registry: the registry.
        ledger_id: the id of the ledger.
        copy: the identity of the copy: the device and inode of a file, or the database of a server.
        where: the location of the copy, for messages.

    Raises:
        BadParameter: if another copy is open.
    """

    def __init__(self, registry: Registry, ledger_id: str, copy: str, where: str) -> None:
        self._lock: CopyLock | None = None
        copy = registry.home.copy_name(copy)
        with registry.open():  # only one process changes the name of the copy or its own lock at a time
            self._lock = registry.home.lock(ledger_id)
            try:
                said, open_now = self._lock.said()
                if said == copy or self._lock.change(copy, where):
                    return
            except BaseException:
                self.close()
                raise
            self.close()
        raise BadParameter(
            "ledger",
            f"{where} is a copy of the ledger {open_now}, which is open now. Two copies of one ledger "
            "would spend its budget twice. Use that one, or close it first",
        )

    def require_held(self) -> None:
        """Raise SessionOver if the lock is lost: it locks nobody out."""
        if self._lock is None:  # the ledger is closed, and its database says so
            return
        if why := self._lock.why_lost():
            raise SessionOver(
                f"{why}, so another copy of it may be open now. No more is charged here: close the ledger "
                "and open it again"
            )

    def close(self) -> None:
        """Release the lock."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def __del__(self) -> None:
        self.close()
