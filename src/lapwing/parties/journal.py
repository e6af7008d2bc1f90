"""What a member has drawn, posted and heard, on disk before anybody can know of it.

Claim    a member that crashes at any moment either goes on with the very bytes that it sent, or ends; noise
         is never drawn twice, and no two different posts of one round ever leave.
Because  a mark is durable before noise is drawn: found without a value, the run is over. The value, the
         coins and the post that was made of them are one transaction, durable before the post is sent. A
         round that was heard is durable together with the first thing that depends on it.
Test     tests/parties/running/test_journal.py, tests/faults/test_parties_crashes.py
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from lapwing.errors import Aborted, Unavailable
from lapwing.parties.messages.parcel import Delivery, Parcel
from lapwing.parties.messages.table import Table
from lapwing.parties.protocols.coins import Coins, Elements, FreshCoins
from lapwing.parties.protocols.protocol import Ints, Opened

_TABLES = (
    "CREATE TABLE IF NOT EXISTS run (id BLOB PRIMARY KEY, member INTEGER NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS stages (stage INTEGER PRIMARY KEY, value BLOB) STRICT",
    "CREATE TABLE IF NOT EXISTS coins (number INTEGER PRIMARY KEY, stage INTEGER, drawn BLOB) STRICT",
    "CREATE TABLE IF NOT EXISTS posts (place INTEGER PRIMARY KEY, parcel BLOB) STRICT",
    "CREATE TABLE IF NOT EXISTS heard (place INTEGER PRIMARY KEY, delivery BLOB) STRICT",
    "CREATE TABLE IF NOT EXISTS opened (stage INTEGER PRIMARY KEY, contributors BLOB, sums BLOB) STRICT",
    "CREATE TABLE IF NOT EXISTS outcome (one INTEGER PRIMARY KEY CHECK (one = 1), stopped TEXT) STRICT",
)
_PRAGMAS = (
    "locking_mode = EXCLUSIVE",  # one process plays one member's part in a run
    "journal_mode = WAL",  # one fsync per commit
    "synchronous = FULL",
    "fullfsync = ON",
    "secure_delete = ON",
    "trusted_schema = OFF",
)
Place = tuple[int, int]  # stage, round
Run = Callable[..., sqlite3.Cursor]


@dataclass(frozen=True, slots=True)
class Ending:
    """The sums that were opened, and why no more were."""

    opened: Sequence[Opened]
    stopped: str | None = None


class RecordedCoins(Coins):
    """Gives again what was drawn before; then draws, and remembers until it is stored."""

    def __init__(self, before: Sequence[bytes] = ()) -> None:
        self._before = list(before)[::-1]
        self._fresh = FreshCoins()
        self._unstored: list[bytes] = []

    def elements(self, modulus: int, count: int) -> Elements:
        if self._before:
            stored = np.frombuffer(self._before.pop(), dtype="<u8").astype(np.uint64)
            if stored.shape != (count,) or (count and int(stored.max()) >= modulus):
                raise Aborted("the journal's coins do not fit the protocol")
            return stored
        drawn = self._fresh.elements(modulus, count)
        self._unstored.append(drawn.astype("<u8").tobytes())
        return drawn

    def secret(self) -> bytes:
        if self._before:
            stored = self._before.pop()
            if len(stored) != 32:
                raise Aborted("the journal's coins do not fit the protocol")
            return stored
        drawn = self._fresh.secret()
        self._unstored.append(drawn)
        return drawn

    def take_unstored(self) -> list[bytes]:
        """What was drawn since this was last called."""
        drawn, self._unstored = self._unstored, []
        return drawn


class Journal:
    """Of one member in one run. Only its owner can read it, and one process at a time can use it."""

    def __init__(self, path: Path, table: Table, me: int) -> None:
        self.path = path
        with self._translated():
            touch(path)
            self._connection = connect(path, *_PRAGMAS)
            try:
                with self._transaction() as run:
                    for statement in _TABLES:
                        run(statement)
                    run("INSERT OR IGNORE INTO run VALUES (?, ?)", (table.run_id, me))
                    found = run("SELECT id, member FROM run").fetchall()
                if found != [(table.run_id, me)]:
                    raise Unavailable(f"{path} is the journal of another run or member")
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            hint = ". Is the same member running twice?" if is_locked(error) else ""
            raise Unavailable(f"the journal {self.path} cannot be used: {error}{hint}") from None
        except OSError as error:
            raise Unavailable(f"the journal {self.path} cannot be used: {error.strerror}") from None

    @contextmanager
    def _transaction(self) -> Iterator[Run]:
        with self._translated():
            run = self._connection.execute
            run("BEGIN IMMEDIATE")
            try:
                yield run
                run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    run("ROLLBACK")
                raise

    def drawing(self, stage: int, heard: Delivery | None) -> None:
        """Before noise is drawn. Raises `Aborted` if it was begun before: what was drawn then is lost."""
        with self._transaction() as run:
            self._store_heard(run, heard)
            if run("SELECT 1 FROM stages WHERE stage = ?", (stage,)).fetchone():
                raise Aborted("this member crashed while it drew noise, and noise is never drawn twice")
            run("INSERT INTO stages VALUES (?, NULL)", (stage,))

    def has_begun(self) -> bool:
        """Whether the lobby was over: noise was drawn, or about to be."""
        with self._translated():
            return self._connection.execute("SELECT 1 FROM stages").fetchone() is not None

    def value(self, stage: int) -> Ints | None:
        """What the member noised in this stage. Raises `Aborted` if a crash lost it."""
        with self._translated():
            row = self._connection.execute("SELECT value FROM stages WHERE stage = ?", (stage,)).fetchone()
        if row is None:
            return None
        if row[0] is None:
            raise Aborted("this member crashed while it drew noise, and noise is never drawn twice")
        return np.frombuffer(row[0], dtype="<i8").astype(np.int64)

    def coins(self, stage: int) -> RecordedCoins:
        """Those that were drawn in this stage, and fresh ones from then on."""
        with self._translated():
            rows = self._connection.execute(
                "SELECT drawn FROM coins WHERE stage = ? ORDER BY number", (stage,)
            ).fetchall()
        return RecordedCoins([drawn for (drawn,) in rows])

    def posting(
        self,
        place: Place,
        parcel: bytes,
        *,
        coins: RecordedCoins,
        value: Ints | None,
        heard: Delivery | None,
    ) -> None:
        """Before a post is sent: all that it was made of. `value` comes with a stage's first post."""
        stage, _ = place
        with self._transaction() as run:
            self._store_heard(run, heard)
            if value is not None:
                run("UPDATE stages SET value = ? WHERE stage = ?", (value.astype("<i8").tobytes(), stage))
            for drawn in coins.take_unstored():
                run("INSERT INTO coins (stage, drawn) VALUES (?, ?)", (stage, drawn))
            run("INSERT INTO posts VALUES (?, ?)", (_number(place), parcel))

    def parcel(self, place: Place) -> Parcel | None:
        """What was posted there, if anything was."""
        with self._translated():
            row = self._connection.execute(
                "SELECT parcel FROM posts WHERE place = ?", (_number(place),)
            ).fetchone()
        return None if row is None else Parcel.from_bytes(row[0])

    def heard(self) -> list[Delivery]:
        """All rounds that were heard, in order."""
        with self._translated():
            rows = self._connection.execute("SELECT delivery FROM heard ORDER BY place").fetchall()
        return [Delivery.from_bytes(raw) for (raw,) in rows]

    def _store_heard(self, run: Run, heard: Delivery | None) -> None:
        if heard is not None:
            place = _number((heard.stage, heard.round))
            run("INSERT INTO heard VALUES (?, ?)", (place, heard.to_bytes()))

    def outcome(self) -> Ending | None:
        """How the run ended for this member, if it did."""
        with self._translated():
            row = self._connection.execute("SELECT stopped FROM outcome").fetchone()
            rows = self._connection.execute(
                "SELECT contributors, sums FROM opened ORDER BY stage"
            ).fetchall()
        if row is None:
            return None
        opened = [
            Opened(np.frombuffer(sums, "<i8").astype(np.int64), tuple(np.frombuffer(who, "<u4").tolist()))
            for who, sums in rows
        ]
        return Ending(opened, row[0])

    def finish(self, heard: Delivery | None, ending: Ending) -> None:
        """The run is over for this member. What only it knew is no longer needed, and is overwritten.

        That is in these files: a disk that never writes in place may keep what they held before.
        """
        with self._translated():  # the checkpoint below waits for the disk, once for all of this
            self._connection.execute("PRAGMA synchronous = NORMAL")
        with self._transaction() as run:
            self._store_heard(run, heard)
            run("INSERT INTO outcome VALUES (1, ?)", (ending.stopped,))
            for stage, opened in enumerate(ending.opened):
                who = np.array(opened.contributors, "<u4").tobytes()
                run(
                    "INSERT INTO opened VALUES (?, ?, ?)",
                    (stage, who, opened.values.astype("<i8").tobytes()),
                )
            run("DELETE FROM coins")
            run("UPDATE stages SET value = NULL")
        with self._translated():
            forget_log(self._connection, self.path)


def forget_log(connection: sqlite3.Connection, path: Path) -> None:
    """All that was committed goes to the file itself; the log, with what was deleted, becomes zeros."""
    connection.execute("PRAGMA wal_checkpoint(FULL)")  # durable: a log of zeros is no log
    log = path.with_name(path.name + "-wal")
    with suppress(FileNotFoundError), log.open("r+b") as file:
        left = log.stat().st_size
        while left > 0:
            left -= file.write(bytes(min(left, 1 << 20)))
        file.flush()
        os.fsync(file.fileno())
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def is_locked(error: sqlite3.Error) -> bool:
    """Whether another process uses the file; else something is wrong with it, or with its disk."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def connect(path: Path, *pragmas: str) -> sqlite3.Connection:
    """One connection, which begins transactions only when told to."""
    connection = sqlite3.connect(path, timeout=0.5, isolation_level=None, check_same_thread=False)
    try:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def touch(path: Path) -> None:
    """A new file is its owner's alone, from its first moment, and its name survives a power loss."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _number(place: Place) -> int:
    stage, round_ = place
    return stage << 16 | round_
