"""Files that only their owner can read, and SQLite files that one process at a time can use."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from lapwing.errors import Unavailable

RunStatement = Callable[..., sqlite3.Cursor]
PRIVATE = 0o600
_NEW = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_PRAGMAS = (
    "locking_mode = EXCLUSIVE",
    "journal_mode = WAL",  # at most one wait for the disk per commit
    "secure_delete = ON",
    "trusted_schema = OFF",
)


@contextmanager
def new_private_file(path: str | Path, *, mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """Open a new file to write, which is durable when the block ends, or removed if the block raises.

    An existing file or link is never replaced, and other users can never read the file, not even for a
    moment.

    Args:
        path: the new file, in a folder that exists.
        mode: the permissions of the file, less the umask, if it may be public.

    Yields:
        The open file.

    Raises:
        FileExistsError: if there is a file or link.
        OSError: if it cannot be written.
    """
    handle = os.open(path, _NEW | os.O_EXCL, mode)
    try:
        with open(handle, "wb") as file:
            yield file
            _sync(file)
        sync_folder(Path(path).parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


@contextmanager
def replaced_private_file(path: Path, *, mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """Open a file to write that replaces `path` when the block ends: all of it or nothing, durably.

    Processes that replace the same file at once do not disturb each other: the last one wins.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(os.open(beside, _NEW | os.O_TRUNC, mode), "wb") as file:
            yield file
            _sync(file)
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    sync_folder(path.parent)


def touch_private_file(path: Path) -> None:
    """Create an empty file that only its owner can read, unless there is a file."""
    with suppress(FileExistsError), new_private_file(path):
        pass


def sync_folder(folder: str | Path) -> None:
    """Make names that were created or replaced in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def sqlite_errors(what: str, *, if_locked: str = "") -> Iterator[None]:
    """Raise Unavailable for errors of SQLite or of the file, without statement and parameters.

    Args:
        what: names the file, to begin the message.
        if_locked: added to the message if another process uses the file.
    """
    try:
        yield
    except sqlite3.Error as error:
        hint = f". {if_locked}" if if_locked and is_locked(error) else ""
        raise Unavailable(f"{what} cannot be used: {error}{hint}") from None
    except OSError as error:
        raise Unavailable(f"{what} cannot be used: {error.strerror}") from None


def is_locked(error: sqlite3.Error) -> bool:
    """Return whether the error says that another connection uses the file."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextmanager
def sqlite_transaction(connection: sqlite3.Connection) -> Iterator[RunStatement]:
    """Begin a transaction, and commit it at the end of the block; roll it back if the block raises."""
    run = connection.execute
    run("BEGIN IMMEDIATE")
    try:
        yield run
        run("COMMIT")
    except BaseException:
        if connection.in_transaction:
            run("ROLLBACK")
        raise


class PrivateDatabase:
    """An SQLite file that only its owner can read, and that one process at a time can use.

    Raises Unavailable if it cannot be used.
    """

    _called: ClassVar[str]  # names the file in messages
    _if_locked: ClassVar[str]
    _pragmas: ClassVar[tuple[str, ...]]  # how durable a commit is
    _tables: ClassVar[tuple[str, ...]]

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._translated():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            touch_private_file(path)
            # Without isolation_level, SQLite begins transactions only when told to.
            self._connection = sqlite3.connect(
                path, timeout=0.5, isolation_level=None, check_same_thread=False
            )
            try:
                for pragma in (*_PRAGMAS, *self._pragmas):
                    self._connection.execute(f"PRAGMA {pragma}")
                with self._transaction() as run:
                    self._begin(run)
            except BaseException:
                self._connection.close()
                raise

    def _begin(self, run: RunStatement) -> None:
        for statement in self._tables:
            run(statement)

    def close(self) -> None:
        """Close the file. Everything that was committed stays."""
        self._connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        with sqlite_errors(f"{self._called} {self.path}", if_locked=self._if_locked):
            yield

    @contextmanager
    def _transaction(self) -> Iterator[RunStatement]:
        with self._translated(), sqlite_transaction(self._connection) as run:
            yield run

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._translated():
            return self._connection.execute(query, values).fetchall()

    def _forget_log(self) -> None:
        """Move all commits into the file, and overwrite the log, with deleted rows in it, by zeros."""
        with self._translated():
            self._connection.execute("PRAGMA wal_checkpoint(FULL)")  # durable: a log of zeros is no log
            log = self.path.with_name(self.path.name + "-wal")
            with suppress(FileNotFoundError), log.open("r+b") as file:
                left = log.stat().st_size
                while left > 0:
                    left -= file.write(bytes(min(left, 1 << 20)))
                _sync(file)
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
