"""The registry: the ledgers of a user or a team, the data and people that each knows, and its open copy.

It is a folder away from the data: $LAPWING_STATE, else $XDG_STATE_HOME/lapwing, else
~/.local/state/lapwing; or the folder that a policy names in `[ledger] registry`. It also keeps the second
anchors of all ledgers, the *witnesses*.

Claim    data that a ledger of this registry knows gets no second ledger because its policy, file, folder,
         view or table has another name now, or because the first ledger is gone.
Because  before a ledger is opened or made for data, the registry is asked which ledger knows one of its
         sources. When data is registered, keyed hashes of its unit ids are compared with those of all data
         in other ledgers. One common id is refused, unless the curator signed that the people are others,
         which every statement shows. Asking and noting are one transaction, and a ledger is made within it.
Test     tests/sql/test_policy_ledger_registry.py, tests/ledger/test_registry.py

Claim    a ledger is not opened with a registry that does not know it. There is none without a registry.
Because  the first entry names the registry by a digest of its key. Another one is accepted only with an
         entry that the curator signs.
Test     tests/ledger/test_registry.py

Claim    of one ledger, two copies are never open at once.
Because  whoever opens a ledger holds a shared lock of a file named after it, which says which copy is open.
         To write another copy into it, the lock must be held alone. Before each charge, the locked file is
         compared with the one of that name: a file that was removed locks nobody out.
Test     tests/ledger/test_registry.py, tests/faults/test_ledger_identity.py

Other machines and other users have registries of their own unless they share a folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from lapwing.config.values import is_postgres
from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter, SessionOver, Unavailable
from lapwing.ledger.anchors import FileAnchor
from lapwing.ledger.unit_ids import Sketch, tagged, untagged
from lapwing.storage.private_file import sync_to_disk
from lapwing.storage.sqlite import connect_sqlite, sqlite_errors

REGISTRY_FILE = "sources"
KEY_FILE = "registry.key"
KEY_BYTES = 32
PATIENCE = 60  # seconds that others may take to make a ledger
HOW = (
    "Set LAPWING_STATE to a folder that is kept, away from the data, or name it in the policy: "
    '[ledger] and below it registry = "/path/of/the/folder"'
)
_TABLES = (
    "CREATE TABLE IF NOT EXISTS ledgers (ledger TEXT PRIMARY KEY, place TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS sources (source TEXT PRIMARY KEY, ledger TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS accounts (source TEXT PRIMARY KEY, account TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS people (ledger TEXT NOT NULL, data TEXT NOT NULL, sketch BLOB NOT NULL, "
    "PRIMARY KEY (ledger, data)) STRICT",
)


@dataclass(frozen=True, slots=True)
class Registry:
    """The folder of a registry.

    Args:
        folder: the folder. If its group may write into it, the group shares the registry.
    """

    folder: Path

    @classmethod
    def at(cls, where: str | Path = "") -> Registry:
        """Return the registry in a folder; without one, the user's own. The folder is made if needed.

        Raises:
            BadParameter: if it is the address of a server, or a part of the registry is missing.
            Unavailable: if there is no such folder and none can be made.
        """
        if is_postgres(str(where)):
            raise BadParameter("registry", "must be a folder. A team shares one on a common disk")
        try:
            folder = Path(where).absolute() if str(where) else _own_folder()
        except RuntimeError:  # no home
            raise _no_registry("this user has no home folder") from None
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _no_registry(f"{folder} cannot be made: {error.strerror}") from None
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise _no_registry(f"{folder} cannot be written")
        found = cls(folder)
        found._require_whole()
        return found

    @property
    def id(self) -> str:
        """The id of the registry, which ledgers name. It reveals nothing of the key."""
        return hashlib.blake2b(key=self.key, digest_size=16, person=b"lapwing registry").hexdigest()

    @property
    def key(self) -> bytes:
        """The key of the sketches of people. It is made at its first use and never leaves the folder."""
        with suppress(FileNotFoundError):
            return self._read_key()
        with self.open():  # one process makes it
            with suppress(FileNotFoundError):
                return self._read_key()
            made = self.folder / f"{KEY_FILE}.new"
            with suppress(FileNotFoundError):
                made.unlink()
            try:
                file = self._private(made)
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

    def _private(self, path: Path) -> int:
        """Open a file for reading and writing; a new one only for those who share the registry."""
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self._mode)
            with suppress(PermissionError):  # another member of the group made it just now
                os.fchmod(file, self._mode)  # whatever the umask is
            return file

    def witness(self, ledger_id: str) -> FileAnchor:
        """Return the second anchor of a ledger. Restoring the data's folder does not restore it."""
        mode = self._mode if self._mode & stat.S_IWGRP else None
        return FileAnchor(self.folder / f"{ledger_id}.anchor", mode=mode)

    @contextmanager
    def open(self) -> Iterator[OpenRegistry]:
        """Open the registry for one transaction. A thread that has it open gets the same one."""
        path = self.folder / REGISTRY_FILE
        held = _HELD.__dict__.setdefault("registries", {})
        if path in held:
            yield held[path]
            return
        self._require_whole()
        with sqlite_errors(f"the registry {path}"):
            os.close(self._private(path))
            # EXTRA: else a power loss could bring back the journal, and undo what a ledger relies on.
            connection = connect_sqlite(path, ("synchronous = EXTRA",), wait=PATIENCE)
        with closing(connection):  # this rolls back an open transaction
            own = held[path] = OpenRegistry(connection, str(path))
            try:
                own.begin()
                yield own
                own.run("COMMIT")
            finally:
                del held[path]

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
            f"the ledger {where} belongs to a registry, {why}: {self.folder}. {HOW}, where the ledger was "
            "made. If that is gone, the curator signs that the ledger goes on in this one, and every "
            f"statement says so: `lapwing ledger register {quote(where)} --curator KEY`",
        )


_HELD = threading.local()


def _own_folder() -> Path:
    own, state = os.environ.get("LAPWING_STATE"), os.environ.get("XDG_STATE_HOME", "")
    if own:
        return Path(own).absolute()
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


class OpenRegistry:
    """A registry in one transaction, locked against other processes."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection, self._path = connection, path

    def begin(self) -> None:
        """Begin the transaction. The tables are made in one of their own, so that they stay."""
        self.run("BEGIN IMMEDIATE")
        for statement in _TABLES:
            self.run(statement)
        self.run("COMMIT")
        self.run("BEGIN IMMEDIATE")

    def run(self, sql: str, *values: str | bytes) -> list[tuple[Any, ...]]:
        """Run a statement and return all rows."""
        what, hint = f"the registry {self._path}", "Another process makes a ledger: try again"
        with sqlite_errors(what, if_locked=hint):
            return self._connection.execute(sql, values).fetchall()

    def place_of(self, ledger: str) -> str | None:
        """Return the last known location of a ledger; None if the ledger is not known."""
        found = self.run("SELECT place FROM ledgers WHERE ledger = ?", ledger)
        return found[0][0] if found else None

    def id_of(self, named: str) -> str:
        """Return the id of a ledger that is named by its id, or by its location. Raises BadParameter."""
        place = named if is_postgres(named) else os.path.realpath(named)
        found = self.run("SELECT ledger FROM ledgers WHERE ledger = ? OR place = ?", named, place)
        if len(found) != 1:
            which = "no ledger" if not found else "several ledgers: give an id"
            raise BadParameter("ledger", f"the registry {self._path} knows {which} of the name {named}")
        return str(found[0][0])

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
        moved = "ON CONFLICT (ledger) DO UPDATE SET place = excluded.place WHERE place <> excluded.place"
        self.run(f"INSERT INTO ledgers (ledger, place) VALUES (?, ?) {moved}", ledger, place)  # noqa: S608
        for source in sources:
            self.run("INSERT OR IGNORE INTO sources (source, ledger) VALUES (?, ?)", source, ledger)
            if account:
                self.run("INSERT OR IGNORE INTO accounts (source, account) VALUES (?, ?)", source, account)

    def ledgers_with(self, people: Sketch, key: bytes, *, besides: str) -> dict[str, str]:
        """Return the other ledgers that know one of these people: the location of each, by its id."""
        found: dict[str, str] = {}
        every = "SELECT ledger, data, place FROM people JOIN ledgers USING (ledger) WHERE ledger <> ?"
        for ledger, data, place in self.run(every, besides):
            if ledger not in found and self._people(ledger, data, key).overlaps(people):
                found[ledger] = place
        return found

    def has_people(self, *, ledger: str, data: str) -> bool:
        """Return whether people of a data set were noted."""
        return bool(self.run("SELECT 1 FROM people WHERE ledger = ? AND data = ?", ledger, data))

    def note_people(self, people: Sketch, key: bytes, *, ledger: str, data: str) -> None:
        """Note people of a data set, besides those who were ever in it."""
        if self.has_people(ledger=ledger, data=data):
            people = people.merged(self._people(ledger, data, key))
        content = tagged(people, key, f"{ledger} {data}", 0)
        self.run(
            "INSERT OR REPLACE INTO people (ledger, data, sketch) VALUES (?, ?, ?)", ledger, data, content
        )

    def _people(self, ledger: str, data: str, key: bytes) -> Sketch:
        one = "SELECT sketch FROM people WHERE ledger = ? AND data = ?"
        [(content,)] = self.run(one, ledger, data)
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
            "WHERE source = ? OR substr(source, 1, length(?) + 1) = ? || '#'"
        )
        for name in map(source_of_file, files):
            for source, place in self.run(known, name, name, name):
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
    released by the system.

    Args:
        registry: the registry.
        ledger_id: the id of the ledger.
        copy: the identity of the copy: the device and inode of a file, or the database of a server.
        where: the location of the copy, for messages.

    Raises:
        BadParameter: if another copy is open.
    """

    def __init__(self, registry: Registry, ledger_id: str, copy: str, where: str) -> None:
        path = self._path = registry.folder / f"{ledger_id}.open"
        self._file = -1
        with registry.open():  # only one process changes the file or its own lock at a time
            try:
                self._file = registry._private(path)
                fcntl.flock(self._file, fcntl.LOCK_SH)
                content = os.pread(self._file, 1 << 16, 0)
                if self._said(content).get("copy") == copy:
                    return
                try:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self.close()
                    raise BadParameter(
                        "ledger",
                        f"{where} is a copy of the ledger {self._said(content).get('where')}, which is "
                        "open now. Two copies of one ledger would spend its budget twice. Use that one, "
                        "or close it first",
                    ) from None
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, json.dumps({"copy": copy, "where": where}).encode(), 0)
                fcntl.flock(self._file, fcntl.LOCK_SH)
            except OSError as error:
                self.close()
                raise Unavailable(f"{path} cannot be used: {error.strerror}") from None

    def require_held(self) -> None:
        """Raise SessionOver if the locked file is no longer that of the registry: it locks nobody out."""
        if self._file == -1:  # the ledger is closed, and its database says so
            return
        with suppress(OSError):
            if os.path.samestat(os.stat(self._path), os.fstat(self._file)):
                return
        raise SessionOver(
            f"{self._path} was removed or replaced while this ledger was open, so another copy of it may "
            "be open now. No more is charged here: close the ledger and open it again"
        )

    @staticmethod
    def _said(content: bytes) -> dict[str, Any]:
        try:
            said = json.loads(content)
        except ValueError:  # new, or unfinished
            return {}
        return said if isinstance(said, dict) else {}

    def close(self) -> None:
        """Release the lock."""
        file, self._file = self._file, -1
        if file != -1:
            os.close(file)

    def __del__(self) -> None:
        self.close()
