"""Reports in one SQLite file: write-ahead log, synced at every commit.

What shows the order before the survey is closed: the write-ahead log holds the latest pages in the order
of writing, and pages were given out as the tables grew. `close_survey` rewrites the file and empties the
log. A backup or a file system that keeps old versions still has them, and so has who watches the server.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TypeVar

from lapwing.errors import Unavailable
from lapwing.survey.collecting.store import (
    Reports,
    Rule,
    Signatures,
    State,
    Store,
    Verdict,
    invitation_hash,
    require_same,
)

WAIT_AT_MOST = 60.0  # seconds, for another process that writes
FEW = 500
T = TypeVar("T")
Run = Callable[..., sqlite3.Cursor]
# Tables without rowid lie in the order of their keys: there is no number that tells when a row came.
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS survey (one INTEGER PRIMARY KEY CHECK (one = 1), digest TEXT NOT NULL, "
    "report_size INTEGER NOT NULL, reports INTEGER NOT NULL, without_credential INTEGER NOT NULL, "
    "closed INTEGER NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS invitations (invitation BLOB PRIMARY KEY CHECK (length(invitation) = 32), "
    "blinded BLOB, signature BLOB, CHECK ((blinded IS NULL) = (signature IS NULL))) STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS people (person TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS reports (token BLOB PRIMARY KEY CHECK (length(token) = 32), "
    "report BLOB NOT NULL) STRICT, WITHOUT ROWID",
)


class SqliteStore(Store):
    """One file, which only its owner can read."""

    def __init__(self, path: Path, *, digest: str, report_size: int) -> None:
        self.where = str(path)
        self._lock = threading.Lock()  # one connection for all threads: whoever writes waits anyway
        with self._translated():
            _touch(path)
            self._connection = sqlite3.connect(
                path, timeout=WAIT_AT_MOST, isolation_level=None, check_same_thread=False
            )
            try:
                for pragma in (
                    "journal_mode = WAL",
                    "synchronous = FULL",  # NORMAL loses acknowledged reports when the power fails
                    "fullfsync = ON",
                    "secure_delete = ON",  # what was moved is overwritten, not only forgotten
                    "trusted_schema = OFF",
                ):
                    self._connection.execute(f"PRAGMA {pragma}")
                with self._transaction() as run:
                    for statement in _SCHEMA:
                        run(statement)
                    run("INSERT OR IGNORE INTO survey VALUES (1, ?, ?, 0, 0, 0)", (digest, report_size))
                require_same(self.state(), digest, report_size, self.where)
            except BaseException:
                self._connection.close()
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """What callers see of an error of the database: no statement and no parameter."""
        try:
            yield
        except sqlite3.Error as error:
            raise Unavailable(f"the reports in {self.where} cannot be used: {error}") from None
        except OSError as error:
            raise Unavailable(f"the reports in {self.where} cannot be used: {error.strerror}") from None

    @contextmanager
    def _transaction(self) -> Iterator[Run]:
        with self._translated(), self._lock:
            run = self._connection.execute
            run("BEGIN IMMEDIATE")
            try:
                yield run
                run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    run("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[Run]:
        with self._translated(), self._lock:
            yield self._connection.execute

    def state(self) -> State:
        with self._reading() as run:
            return _state(run)

    # Invitations

    def admit(self, invitations: Sequence[str], people: Sequence[str] = ()) -> None:
        hashes = [(invitation_hash(invitation),) for invitation in invitations]
        with self._transaction():
            many = self._connection.executemany
            many("INSERT INTO invitations (invitation) VALUES (?)", hashes)
            many("INSERT OR IGNORE INTO people VALUES (?)", [(person,) for person in people])

    def known_people(self, people: Sequence[str]) -> set[str]:
        return self._among("SELECT person FROM people WHERE person IN", people)

    def stored(self, tokens: Sequence[bytes]) -> set[bytes]:
        return self._among("SELECT token FROM reports WHERE token IN", tokens)

    def _among(self, query: str, keys: Sequence[T]) -> set[T]:
        found: set[T] = set()
        with self._reading() as run:
            for start in range(0, len(keys), FEW):
                some = keys[start : start + FEW]
                found.update(key for (key,) in run(f"{query} ({', '.join('?' * len(some))})", tuple(some)))
        return found

    def invitations(self) -> tuple[int, int]:
        with self._reading() as run:
            [(admitted, used)] = run("SELECT count(*), count(signature) FROM invitations")
        return admitted, used

    def signed(self, invitation: bytes) -> tuple[bytes, bytes] | Verdict:
        with self._reading() as run:
            return _signed(run, invitation)

    def keep(self, signatures: Signatures, rule: Rule, today: date) -> list[Verdict]:
        verdicts = []
        with self._transaction() as run:
            state = _state(run)
            is_over = state.is_closed or rule.is_over(state.reports, today)
            for invitation, blinded, signature in signatures:
                found = _signed(run, invitation)
                if isinstance(found, tuple):
                    verdicts.append(Verdict.AGAIN if found[0] == blinded else Verdict.OTHER)
                elif found is Verdict.UNKNOWN or is_over:
                    verdicts.append(found if found is Verdict.UNKNOWN else Verdict.CLOSED)
                else:
                    run(_KEEP, (blinded, signature, invitation))
                    verdicts.append(Verdict.NEW)
        return verdicts

    # Reports

    def accept(
        self, reports: Reports, rule: Rule, today: date, *, has_credential: bool = True
    ) -> list[Verdict]:
        verdicts = []
        with self._transaction() as run:
            state = _state(run)
            count = state.reports
            for token, report in reports:
                if state.is_closed or rule.is_over(count, today):
                    verdict = _compared(run, token, report) or Verdict.CLOSED
                elif run("INSERT OR IGNORE INTO reports VALUES (?, ?)", (token, report)).rowcount:
                    verdict = Verdict.NEW
                    count += 1
                else:
                    verdict = _compared(run, token, report) or Verdict.OTHER
                verdicts.append(verdict)
            new = count - state.reports
            if new:
                run(_COUNT, (new, 0 if has_credential else new))
        return verdicts

    def close_survey(self) -> None:
        with self._transaction() as run:
            run("UPDATE survey SET closed = 1")
        with self._reading() as run:
            run("VACUUM")
            [(is_busy, _, _)] = run("PRAGMA wal_checkpoint(TRUNCATE)")
        if is_busy:
            raise Unavailable(
                "the survey is closed, but another process reads its reports, so the log still shows their "
                "order. Stop the server, and close the survey again"
            )

    def rows(self) -> bytes:
        with self._reading() as run:
            return b"".join([report for (report,) in run("SELECT report FROM reports ORDER BY token")])

    def close(self) -> None:
        with self._lock:
            self._connection.close()


_STATE = "SELECT digest, report_size, reports, without_credential, closed FROM survey"
_KEEP = "UPDATE invitations SET blinded = ?, signature = ? WHERE invitation = ? AND blinded IS NULL"
_COUNT = "UPDATE survey SET reports = reports + ?, without_credential = without_credential + ?"


def _touch(path: Path) -> None:
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


def _state(run: Run) -> State:
    digest, size, reports, without, closed = run(_STATE).fetchone()
    return State(digest, size, reports, without, bool(closed))


def _signed(run: Run, invitation: bytes) -> tuple[bytes, bytes] | Verdict:
    row = run("SELECT blinded, signature FROM invitations WHERE invitation = ?", (invitation,)).fetchone()
    if row is None:
        return Verdict.UNKNOWN
    return Verdict.NEW if row[0] is None else (row[0], row[1])


def _compared(run: Run, token: bytes, report: bytes) -> Verdict | None:
    """Against what is stored under the token, if something is."""
    row = run("SELECT report FROM reports WHERE token = ?", (token,)).fetchone()
    if row is None:
        return None
    return Verdict.AGAIN if row[0] == report else Verdict.OTHER
