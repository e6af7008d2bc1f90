"""Files that are their owner's alone, and SQLite files that one process at a time can use."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from lapwing.errors import Unavailable

RunStatement = Callable[..., sqlite3.Cursor]
_PRAGMAS = (
    "locking_mode = EXCLUSIVE",
    "journal_mode = WAL",  # at most one wait for the disk per commit
    "secure_delete = ON",
    "trusted_schema = OFF",
)


def touch_private_file(path: Path) -> None:
    """A new file is its owner's alone, from its first moment, and its name survives a power loss."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def sqlite_errors(what: str, *, if_locked: str = "") -> Iterator[None]:
    """What is wrong with a file, in words: no statement and no parameter.

    `if_locked` is added if another process uses it; else something is wrong with it, or with its disk.
    """
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        is_locked = code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        hint = f". {if_locked}" if is_locked and if_locked else ""
        raise Unavailable(f"{what} cannot be used: {error}{hint}") from None
    except OSError as error:
        raise Unavailable(f"{what} cannot be used: {error.strerror}") from None


@contextmanager
def sqlite_transaction(connection: sqlite3.Connection) -> Iterator[RunStatement]:
    """All of it, or nothing."""
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
    """An SQLite file that only its owner can read, and one process at a time can use.

    Raises `Unavailable` if it cannot be used.
    """

    _called: ClassVar[str]
    _if_locked: ClassVar[str]
    _pragmas: ClassVar[tuple[str, ...]]  # how durable a commit is
    _tables: ClassVar[tuple[str, ...]]

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._translated():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            touch_private_file(path)
            # It begins transactions only when told to.
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
        """Nothing is lost."""
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
        """All that was committed goes to the file itself; the log, with what was deleted, becomes zeros."""
        with self._translated():
            self._connection.execute("PRAGMA wal_checkpoint(FULL)")  # durable: a log of zeros is no log
            log = self.path.with_name(self.path.name + "-wal")
            with suppress(FileNotFoundError), log.open("r+b") as file:
                left = log.stat().st_size
                while left > 0:
                    left -= file.write(bytes(min(left, 1 << 20)))
                file.flush()
                os.fsync(file.fileno())
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
