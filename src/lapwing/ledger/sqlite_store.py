"""A ledger in one SQLite file: write-ahead log, synced to disk at every commit.

Threads share commits (storage.group_commit), and processes take turns (storage.lock_file).
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from lapwing.errors import Unavailable
from lapwing.ledger.anchors import Mark
from lapwing.ledger.entry import digest_of, numbers_in
from lapwing.ledger.schema import COSTS, OPEN, SQLITE, holds, left_after
from lapwing.ledger.seals import Seal
from lapwing.ledger.store import (
    SEAL_EVERY,
    Catalogue,
    DoesNotFit,
    KeyTaken,
    Posting,
    Row,
    Store,
    Transaction,
    Watch,
    nobody_watches,
)
from lapwing.storage.group_commit import GroupCommit, PendingCommit
from lapwing.storage.lock_file import LockFile, SinglePath
from lapwing.storage.private_file import new_private_file
from lapwing.storage.sqlite import DURABLE, connect_sqlite, sqlite_errors

T = TypeVar("T")
_new = tuple.__new__  # of named tuples, without a call of Python
OLDEST_SQLITE = (3, 37)  # STRICT tables
WAIT_AT_MOST = 60.0  # seconds, for readers that hold up a checkpoint or another program
_PRAGMAS = ("journal_mode = WAL", *DURABLE, "cache_size = -16384")  # KiB


def _debit_sql(which: str) -> str:
    """Return the UPDATE of a debit. Parameters: the costs (1 to 8), the account (9), and the blocks.

    The account is compared as `+account`, so that SQLite does not use its index.
    """
    sums = ", ".join(f"left_{k} = {left_after(f'?{k + 1}', k)}" for k in COSTS)
    fits = holds(lambda k: f"left_{k} - held_{k} >= ?{k + 1}")
    return f"UPDATE budgets SET {sums} WHERE {which} AND +account = ?9 AND state = {OPEN} AND {fits}"  # noqa: S608


_DEBIT_ONE = _debit_sql("block = ?10")  # SQLite makes no list of one row before it changes it
_DEBIT_RANGE = _debit_sql("block BETWEEN ?10 AND ?11")
_DEBIT_MANY = _debit_sql("block IN (SELECT value FROM json_each(?10))")
_BY_KEY = "SELECT 1 FROM entries WHERE key = ?"
_APPEND = "INSERT INTO entries (seq, key, body, digest) VALUES (?, ?, ?, ?)"  # without seq: the next


def _post(run: Callable[..., Any], posting: Posting, seq: int | None = None) -> int:
    """Debit the blocks and append the entry. The number of rows that pass the filter decides."""
    body, digest, key, debits = posting
    for account, ranges, costs in debits:
        blocks: tuple[Any, ...]
        first, last = ranges[0]
        if len(ranges) > 1:
            numbers = list(numbers_in(ranges))
            sql, blocks, wanted = _DEBIT_MANY, (json.dumps(numbers),), len(numbers)
        elif first < last:
            sql, blocks, wanted = _DEBIT_RANGE, (first, last), last - first + 1
        else:
            sql, blocks, wanted = _DEBIT_ONE, (first,), 1
        if run(sql, (*costs, account, *blocks)).rowcount != wanted:
            raise KeyTaken if _has(run, key) else DoesNotFit
    try:
        number: int = run(_APPEND, (seq, key, body, digest)).lastrowid
    except sqlite3.IntegrityError:
        if _has(run, key):
            raise KeyTaken from None
        raise
    return number


def _has(run: Callable[..., Any], key: bytes | None) -> bool:
    return key is not None and run(_BY_KEY, (key,)).fetchone() is not None


_MASTER = "SELECT tbl_name, type, name, sql FROM sqlite_master"


def _catalogue(rows: Sequence[Row]) -> Catalogue:
    return {(table, f"{kind} {name}"): sql or "" for table, kind, name, sql in rows}


@lru_cache(maxsize=2)
def _made_by(statements: tuple[str, ...]) -> Catalogue:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        for statement in statements:
            empty.execute(statement)
        return _catalogue(empty.execute(_MASTER).fetchall())


class _Transaction(Transaction):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._run = connection.execute
        self._many = connection.executemany
        self.marks: list[Mark] = []
        self._next: int | None = None

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        return self._run(sql, parameters).fetchall()

    def stream(self, sql: str) -> Iterator[Row]:
        return self._run(sql)

    def run(self, sql: str, *parameters: Any) -> int:
        return self._run(sql, parameters).rowcount

    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        self._many(sql, rows)

    def append(self, body: bytes, key: bytes | None = None) -> int:
        digest = digest_of(body)
        done = self._run(_APPEND, (self._next, key, body, digest))
        return self._marked(cast(int, done.lastrowid), digest)

    def skip(self, last: int) -> None:
        self._next = last + 1

    def lock(self, blocks: Sequence[int]) -> None:
        pass  # there is one writer

    def debit(self, posting: Posting) -> int:
        return self._marked(_post(self._run, posting, self._next), posting.digest)

    def _marked(self, seq: int, digest: bytes) -> int:
        self._next = None
        self.marks.append(Mark(seq, digest))
        return seq


class _FilesOpenAtFork:
    """A record of the files that were open when this process was forked off.

    SQLite keeps its locks in memory. A child that opened such a file would believe that it holds its
    parent's locks.
    """

    def __init__(self) -> None:
        self.open: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
        self.files: set[Path] = set()
        os.register_at_fork(after_in_child=self._inherit)

    def _inherit(self) -> None:
        self.files |= {store.path for store in self.open}
        self.open = weakref.WeakSet()


_FORKED = _FilesOpenAtFork()


class SqliteStore(Store):
    """A ledger in one SQLite file. `watch` is told each step of a commit, so that tests can crash there."""

    dialect = SQLITE
    marks_in_turn = True
    session = 0  # until the lock file is open

    def __init__(self, path: Path, *, create: bool, watch: Watch = nobody_watches) -> None:
        super().__init__()
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise Unavailable("the ledger needs SQLite 3.37 or newer")
        if not create and not path.is_file():
            raise Unavailable(f"there is no ledger at {path}")
        self.where = str(path)
        self.path = path.resolve()
        if self.path in _FORKED.files:
            raise Unavailable(
                f"{path} was open when this process was forked off. Start a new process, or fork first"
            )
        self._watch, self._is_closed = watch, False
        self._commits = GroupCommit(self._commit)
        self._turn = threading.Lock()  # threads share the file lock: one must not end another's turn
        self._of_thread = threading.local()
        self._readers: list[sqlite3.Connection] = []
        with self._translated(), ExitStack() as undone:
            if create:  # stored answers and hashes of unit ids are private
                with new_private_file(path):
                    pass
            self._lock = LockFile(Path(f"{self.path}.lock"))  # one lock file for all symbolic links
            undone.callback(self._lock.close)
            self._one_path = SinglePath(self.path, self._lock)
            undone.callback(self._one_path.close)
            self._writer = self._connect()
            undone.pop_all()
            self.session = self._lock.session
        _FORKED.open.add(self)

    def _connect(self) -> sqlite3.Connection:
        return connect_sqlite(self.path, _PRAGMAS, wait=WAIT_AT_MOST)

    def _translated(self) -> AbstractContextManager[None]:
        return sqlite_errors(f"the ledger {self.where}")

    def is_alive(self, session: int) -> bool:
        """Return whether the process with this session number still has the ledger open."""
        return self._lock.is_alive(session)

    # Writing

    def write(self, work: Callable[[Transaction], T], *, alone: bool = True) -> T:
        """Run `work` in a durable transaction, which threads may share.

        There is one writer at a time anyway.
        """
        return cast(T, self._commits.do(work))

    def charge(self, posting: Posting) -> int:
        """Post a charge durably and return the entry's number."""
        return cast(int, self._commits.do(posting))

    def _commit(self, group: list[PendingCommit]) -> None:
        """Commit the work of all waiting threads while nobody else writes.

        It is one function, because calls cost time after the wait for the disk.
        """
        writer, run, work = self._writer, self._writer.execute, group[0].work
        try:
            with self._turn:
                self._lock.take_turn()
                try:
                    if writer.in_transaction:  # an interrupt may have kept its rollback from being made
                        run("ROLLBACK")
                    try:
                        run("BEGIN IMMEDIATE")
                        if len(group) == 1 and type(work) is Posting:
                            seq = group[0].result = _post(run, work)
                            marks = [_new(Mark, (seq, work.digest))]
                        else:
                            marks = self._do_all(group)
                        watch = self._watch if marks else nobody_watches
                        watch("written")
                        crossed = marks and (marks[0].seq - 1) // SEAL_EVERY != marks[-1].seq // SEAL_EVERY
                        seal = self.next_seal(_Transaction(writer), with_state=False) if crossed else None
                        # Before the commit: afterwards the processor comes from elsewhere, and is slow.
                        keep = self.prepare(marks, seal.head if seal else None) if marks else None
                        run("COMMIT")
                    except BaseException:
                        if writer.in_transaction:
                            run("ROLLBACK")
                        raise
                    watch("committed")
                    if keep is not None:
                        keep()
                    watch("marked")
                finally:
                    self._lock.end_turn()
        except (sqlite3.Error, OSError):
            with self._translated():  # here, and not around everything: each charge would pay for it
                raise

    def _do_all(self, group: list[PendingCommit]) -> list[Mark]:
        tx = _Transaction(self._writer)
        if len(group) == 1:
            group[0].result = group[0].work(tx)  # an error rolls back the whole transaction
        else:
            for waiting in group:
                self._try(waiting, tx)
        return tx.marks

    def _try(self, waiting: PendingCommit, tx: _Transaction) -> None:
        """Run one piece of work. If it raises, the others of its group still commit."""
        run, work, before = self._writer.execute, waiting.work, len(tx.marks)
        run("SAVEPOINT work")
        try:
            waiting.result = tx.debit(work) if type(work) is Posting else work(tx)
        except sqlite3.IntegrityError as error:  # a guard of the schema said no to this one
            waiting.error = Unavailable(f"the ledger {self.where} refused: {error}")
        except sqlite3.Error:
            raise
        except Exception as error:
            waiting.error = error
        if waiting.error is not None:
            del tx.marks[before:]
            run("ROLLBACK TO work")
        run("RELEASE work")

    def seal(self) -> Seal | None:
        """Seal all entries so far, write the seal to the anchors, and return the newest seal."""
        seal = self.write(lambda tx: self.next_seal(tx, with_state=True))
        with self._turn:
            self._lock.take_turn()
            try:
                self.anchor(seal)
            finally:
                self._lock.end_turn()
        return seal

    # Reading

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one consistent snapshot of the ledger."""
        with self._translated():
            reader: sqlite3.Connection | None = getattr(self._of_thread, "reader", None)
            if reader is None:
                reader = self._of_thread.reader = self._connect()
                self._readers.append(reader)
            try:
                reader.execute("BEGIN")  # within: an interrupt just after it must not leave it open
                return work(_Transaction(reader))
            finally:
                if reader.in_transaction:
                    reader.execute("COMMIT")

    def copy_to(self, target: Path) -> None:
        """Copy one consistent snapshot into an empty file. Writers go on meanwhile."""
        with (
            self._translated(),
            closing(self._connect()) as source,
            closing(connect_sqlite(target, DURABLE, wait=WAIT_AT_MOST)) as copy,
        ):
            source.backup(copy)  # in one step: with several, each commit of others would begin it anew

    def copy_id(self) -> str:
        """Return the device and the inode of the file."""
        about = os.stat(self.where)
        return f"{about.st_dev}:{about.st_ino}"

    def catalogue(self, tx: Transaction) -> Catalogue:
        """Return the definitions of tables, indexes and triggers."""
        return _catalogue(tx.rows(_MASTER))

    def catalogue_as_made(self) -> Catalogue:
        """Return the definitions of a new empty ledger."""
        return _made_by(self.statements)

    def close(self) -> None:
        """Seal the entries and close the file."""
        if self._is_closed:
            return
        if self.signing is not None:
            self.seal()
        self._is_closed = True
        _FORKED.open.discard(self)
        for connection in (self._writer, *self._readers):
            connection.close()
        self._one_path.close()
        self._lock.close()
        self.close_anchors()
