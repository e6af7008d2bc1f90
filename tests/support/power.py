"""A disk whose power can fail: which bytes would be left, had it failed at any moment of a run?

SQLite runs here on a file system layer that keeps a record of everything that was written and synced. A
moment is a place in that record. What is certainly left of a file then is what was synced before; what was
written since may be left in part, in any part.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import apsw

from lapwing.ledger.anchors import FileAnchor

APPENDED = ".anchor"


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes at a place in a file."""

    path: str
    offset: int
    content: bytes

    def on(self, files: dict[str, bytearray], part: float = 1.0) -> None:
        """Let the first part of it reach the disk."""
        file = files.setdefault(self.path, bytearray())
        content = self.content[: round(len(self.content) * part)]
        if len(file) < self.offset:
            file.extend(bytes(self.offset - len(file)))
        file[self.offset : self.offset + len(content)] = content


@dataclass(frozen=True, slots=True)
class Cut:
    """A file made shorter."""

    path: str
    size: int

    def on(self, files: dict[str, bytearray], part: float = 1.0) -> None:
        if part == 1 and self.path in files:
            del files[self.path][self.size :]


@dataclass(frozen=True, slots=True)
class Remove:
    """A file removed."""

    path: str

    def on(self, files: dict[str, bytearray], part: float = 1.0) -> None:
        if part == 1:
            files.pop(self.path, None)


Change = Write | Cut | Remove


@dataclass(frozen=True, slots=True)
class Sync:
    """What was written to a file is on disk for good; with its folder, what was removed there is, too."""

    path: str
    with_folder: bool = False

    def settles(self, change: Change) -> bool:
        return change.path == self.path or (self.with_folder and isinstance(change, Remove))


@dataclass(frozen=True, slots=True)
class Told:
    """Somebody was told something: from here on it must be true."""

    what: str


@dataclass
class Disk:
    """The record of a run."""

    record: list[Change | Sync | Told] = field(default_factory=list)

    def moments(self) -> range:
        """After each step of the record, and before the first."""
        return range(len(self.record) + 1)

    def told_by(self, moment: int) -> list[str]:
        return [step.what for step in self.record[:moment] if isinstance(step, Told)]

    def left(self, moment: int, keep: Keep) -> dict[str, bytes]:
        """The files after the power failed at a moment, if `keep` is what was lucky."""
        files: dict[str, bytearray] = {}
        pending: list[Change] = []
        for step in self.record[:moment]:
            if isinstance(step, Sync):
                for change in pending:
                    if step.settles(change):
                        change.on(files)
                pending = [change for change in pending if not step.settles(change)]
            elif not isinstance(step, Told):
                pending.append(step)
        for change, part in keep(pending):
            change.on(files, part)
        return {path: bytes(content) for path, content in files.items()}


class Keep:
    """Which changes that were not synced are left, each with the part of it that is."""

    name = "nothing"

    def __call__(self, pending: Sequence[Change]) -> Iterable[tuple[Change, float]]:
        return ()


class KeepAll(Keep):
    """As if only the process had died."""

    name = "all"

    def __call__(self, pending: Sequence[Change]) -> Iterable[tuple[Change, float]]:
        return [(change, 1.0) for change in pending]


class KeepBegun(Keep):
    """All but the last change, and half of that."""

    name = "all, and half of the last"

    def __call__(self, pending: Sequence[Change]) -> Iterable[tuple[Change, float]]:
        return [(change, 1.0 if change is not pending[-1] else 0.5) for change in pending]


class KeepSome(Keep):
    """Any of them, later ones without earlier ones, some only in part.

    Of a file that is only appended to, a beginning is left, perhaps with zeros up to its old length.
    """

    def __init__(self, seed: int) -> None:
        self.name = f"some {seed}"
        self._draw = Random(seed)

    def __call__(self, pending: Sequence[Change]) -> Iterable[tuple[Change, float]]:
        appended: dict[str, list[Write]] = {}
        for change in pending:
            if isinstance(change, Write) and change.path.endswith(APPENDED):
                appended.setdefault(change.path, []).append(change)
            elif self._draw.random() < 0.5:
                yield change, self._draw.choice((1.0, 1.0, 1.0, self._draw.random()))
        for path, changes in appended.items():
            content = b"".join(change.content for change in changes)
            begun = content[: self._draw.randrange(len(content) + 1)]
            zeros = bytes(self._draw.choice((0, len(content) - len(begun))))
            yield Write(path, changes[0].offset, begun + zeros), 1.0


# SQLite on such a disk


class _File(apsw.VFSFile):
    def __init__(
        self, disk: Disk, path: str, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        is_new = not Path(path).exists()
        super().__init__("unix", name, flags)
        self._disk = disk
        self._path = path
        # As `unix` does: the first sync of a new journal or log syncs the folder that it is in.
        logs = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL
        self._with_folder = is_new and bool(flags[0] & logs)

    def xWrite(self, data: Any, offset: int) -> None:
        super().xWrite(data, offset)
        self._disk.record.append(Write(self._path, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._disk.record.append(Cut(self._path, newsize))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._disk.record.append(Sync(self._path, self._with_folder))
        self._with_folder = False


class _FileSystem(apsw.VFS):
    def __init__(self, name: str, disk: Disk) -> None:
        super().__init__(name, "unix")
        self._disk = disk

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        return _File(self._disk, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self._disk.record.append(Remove(filename))
        if syncdir:
            self._disk.record.append(Sync(filename))


class _Rows:
    """A cursor as the standard library has it."""

    def __init__(self, cursor: apsw.Cursor, connection: apsw.Connection) -> None:
        self._cursor = cursor
        self.rowcount = connection.changes()
        self.lastrowid = connection.last_insert_rowid()

    def fetchone(self) -> Any:
        return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)

    def __next__(self) -> Any:
        return next(self._cursor)


class _Connection:
    """As much of `sqlite3.Connection` as the store uses, on another file system layer."""

    def __init__(self, path: Path, file_system: str) -> None:
        self._connection = apsw.Connection(str(path), vfs=file_system)
        self.close = self._connection.close

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> _Rows:
        with _translated():
            return _Rows(self._connection.execute(sql, tuple(parameters)), self._connection)

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> _Rows:
        with _translated():
            return _Rows(self._connection.executemany(sql, [tuple(row) for row in rows]), self._connection)

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except apsw.ConstraintError as error:
        raise sqlite3.IntegrityError(str(error)) from None
    except apsw.Error as error:
        raise sqlite3.OperationalError(str(error)) from None


@contextmanager
def recorded(monkeypatch: Any, *, instead: dict[str, str], checkpoint_after: int) -> Iterator[Disk]:
    """All ledgers in SQLite files run on a disk whose power can fail.

    The store's own settings apply, but for those that are to be something else `instead`.
    """
    disk = Disk()
    name = f"power {uuid4().hex}"
    file_system = _FileSystem(name, disk)

    class Adapted(_Connection):
        """What `sqlite3.connect` gives."""

        def __init__(self, path: Path, **_: Any) -> None:
            super().__init__(path, name)
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {checkpoint_after}")

        def execute(self, sql: str, parameters: Sequence[Any] = ()) -> _Rows:
            return super().execute(instead.get(sql, sql), parameters)

    keep = FileAnchor._keep

    def recorded_keep(anchor: FileAnchor, content: bytes, *, to_disk: bool = False) -> None:
        keep(anchor, content, to_disk=to_disk)
        _record_anchor(disk, Path(anchor.where), is_synced=to_disk)

    with monkeypatch.context() as patch:
        patch.setattr("lapwing.ledger.sqlite_store.sqlite3.connect", Adapted)
        patch.setattr(FileAnchor, "_keep", recorded_keep)
        yield disk
    del file_system


def _record_anchor(disk: Disk, path: Path, *, is_synced: bool) -> None:
    """Anchors are plain files, appended to, and synced with each head."""
    content = path.read_bytes() if path.exists() else b""
    before = sum(
        len(step.content) for step in disk.record if isinstance(step, Write) and step.path == str(path)
    )
    disk.record.append(Write(str(path), before, content[before:]))
    if is_synced:
        disk.record.append(Sync(str(path)))


def lay_out(files: dict[str, bytes], old: Path, new: Path) -> None:
    """Put what was left into another folder."""
    for path, content in files.items():
        there = new / Path(path).relative_to(old)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(content)
