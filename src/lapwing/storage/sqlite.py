"""SQLite files: connections, errors, transactions, and files that one process at a time can use."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from lapwing.errors import Unavailable
from lapwing.storage.private_file import sync_file, touch_private_file

RunStatement = Callable[..., sqlite3.Cursor]
DURABLE = ("synchronous = FULL", "fullfsync = ON")  # NORMAL loses commits when the power fails
_PRAGMAS = (
    "locking_mode = EXCLUSIVE",
    "journal_mode = WAL",  # at most one wait for the disk per commit
    "secure_delete = ON",
)


def connect_sqlite(path: str | Path, pragmas: Iterable[str] = (), *, wait: float) -> sqlite3.Connection:
    """Open an SQLite file. SQLite begins transactions only when told to, and threads may share it.

    Args:
        path: the file.
        pragmas: settings of the connection, such as `journal_mode = WAL`.
        wait: the seconds to wait for another connection that writes.
    """
    connection = sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False)
    try:
        for pragma in ("trusted_schema = OFF", *pragmas):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


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
            self._connection = connect_sqlite(path, (*_PRAGMAS, *self._pragmas), wait=0.5)
            try:
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

    def _translated(self) -> AbstractContextManager[None]:
        return sqlite_errors(f"{self._called} {self.path}", if_locked=self._if_locked)

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
                sync_file(file)
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
