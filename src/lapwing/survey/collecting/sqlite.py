"""Reports in one SQLite file, synced at every commit, which shows no order at any time.

Tables are `Buckets`: what lies in the file depends on which reports came, not on when. So it is
with invitations that were used. A commit saves the pages that it changes in a second file, which is cut
to nothing when it is done: after a crash it shows which reports came in the last commit, not more.

What still shows an order: a file system that keeps old versions, a backup of each day, blocks that
the disk gave up but did not erase, and whoever watches the server while it runs.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from lapwing.errors import Unavailable
from lapwing.noise import random_bytes
from lapwing.own_file import touch, transaction, translated
from lapwing.survey.collecting.buckets import KEY_BYTES, Buckets, Run
from lapwing.survey.collecting.store import (
    HASH_BYTES,
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
_UNUSED = bytes(HASH_BYTES)  # in the place of the hash that an invitation will be used for
_SURVEY = (
    "CREATE TABLE IF NOT EXISTS survey (one INTEGER PRIMARY KEY CHECK (one = 1), digest TEXT NOT NULL, "
    "report_size INTEGER NOT NULL, reports INTEGER NOT NULL, without_credential INTEGER NOT NULL, "
    "closed INTEGER NOT NULL, secret BLOB NOT NULL) STRICT"
)


class SqliteStore(Store):
    """One file, which only its owner can read."""

    def __init__(self, path: Path, *, digest: str, report_size: int) -> None:
        self.where = str(path)
        self._lock = threading.Lock()  # one connection for all threads: whoever writes waits anyway
        with self._translated():
            touch(path)
            self._connection = sqlite3.connect(
                path, timeout=WAIT_AT_MOST, isolation_level=None, check_same_thread=False
            )
            try:
                for pragma in (
                    "journal_mode = TRUNCATE",  # a write-ahead log would keep commits one after the other
                    "synchronous = FULL",  # NORMAL loses acknowledged reports when the power fails
                    "fullfsync = ON",
                    "secure_delete = ON",  # what was moved is overwritten, not only forgotten
                    "trusted_schema = OFF",
                ):
                    self._connection.execute(f"PRAGMA {pragma}")
                with self._transaction() as run:
                    run(_SURVEY)
                    new = digest, report_size, random_bytes(KEY_BYTES)
                    run("INSERT OR IGNORE INTO survey VALUES (1, ?, ?, 0, 0, 0, ?)", new)
                    [secret] = run("SELECT secret FROM survey").fetchone()
                    self._invitations = Buckets("invitations", HASH_BYTES, secret)
                    self._people = Buckets("people", 0, secret)
                    self._reports = Buckets("reports", _state(run).report_size, secret)
                    for table in (self._invitations, self._people, self._reports):
                        table.create(run)
                require_same(self.state(), digest, report_size, self.where)
            except BaseException:
                self._connection.close()
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        with translated(f"the reports in {self.where}"):
            yield

    @contextmanager
    def _transaction(self) -> Iterator[Run]:
        with self._translated(), self._lock, transaction(self._connection) as run:
            yield run

    @contextmanager
    def _reading(self) -> Iterator[Run]:
        with self._translated(), self._lock:
            yield self._connection.execute

    def state(self) -> State:
        with self._reading() as run:
            return _state(run)

    # Invitations

    def admit(self, invitations: Sequence[str], people: Sequence[str] = ()) -> None:
        hashes = [invitation_hash(invitation) for invitation in invitations]
        with self._transaction() as run:
            if len(set(hashes)) < len(hashes) or self._invitations.find(run, hashes):
                raise Unavailable("an invitation is admitted once")
            self._invitations.put(run, dict.fromkeys(hashes, _UNUSED))
            self._people.put(run, dict.fromkeys(map(_person, people), b""))

    def known_people(self, people: Sequence[str]) -> set[str]:
        marks = {_person(person): person for person in people}
        with self._reading() as run:
            return {marks[key] for key in self._people.find(run, list(marks))}

    def stored(self, tokens: Sequence[bytes]) -> set[bytes]:
        with self._reading() as run:
            return set(self._reports.find(run, tokens))

    def invitations(self) -> tuple[int, int]:
        with self._reading() as run:
            used = [blinded != _UNUSED for _, blinded in self._invitations.all(run)]
        return len(used), sum(used)

    def signed(self, invitation: bytes) -> bytes | Verdict:
        with self._reading() as run:
            return _signed(self._invitations.find(run, [invitation]), invitation)

    def keep(self, signatures: Signatures, rule: Rule, today: date) -> list[Verdict]:
        verdicts = []
        with self._transaction() as run:
            state = _state(run)
            is_over = state.is_closed or rule.is_over(state.reports, today)
            known = self._invitations.find(run, [invitation for invitation, _ in signatures])
            new: dict[bytes, bytes] = {}
            for invitation, blinded in signatures:
                found = _signed(known, invitation)
                if isinstance(found, bytes):
                    found = Verdict.AGAIN if found == blinded else Verdict.OTHER
                elif found is Verdict.NEW and is_over:
                    found = Verdict.CLOSED
                elif found is Verdict.NEW:
                    known[invitation] = new[invitation] = blinded
                verdicts.append(found)
            self._invitations.put(run, new)
        return verdicts

    # Reports

    def accept(
        self, reports: Reports, rule: Rule, today: date, *, has_credential: bool = True
    ) -> list[Verdict]:
        verdicts = []
        with self._transaction() as run:
            state = _state(run)
            stored = self._reports.find(run, [token for token, _ in reports])
            new: dict[bytes, bytes] = {}
            for token, report in reports:
                before = stored.get(token)
                if before is not None:
                    verdicts.append(Verdict.AGAIN if before == report else Verdict.OTHER)
                elif state.is_closed or rule.is_over(state.reports + len(new), today):
                    verdicts.append(Verdict.CLOSED)
                else:
                    stored[token] = new[token] = report
                    verdicts.append(Verdict.NEW)
            if new:
                self._reports.put(run, new)
                run(_COUNT, (len(new), 0 if has_credential else len(new)))
        return verdicts

    def forget_order(self) -> None:
        """Nothing is to be done: there is none."""

    def close_survey(self) -> None:
        with self._transaction() as run:
            run("UPDATE survey SET closed = 1")
        with self._reading() as run:
            run("VACUUM")  # gives back pages that doublings left empty

    def rows(self) -> bytes:
        with self._reading() as run:
            return b"".join([report for _, report in self._reports.all(run)])

    def close(self) -> None:
        with self._lock:
            self._connection.close()


_STATE = "SELECT digest, report_size, reports, without_credential, closed FROM survey"
_COUNT = "UPDATE survey SET reports = reports + ?, without_credential = without_credential + ?"


def _state(run: Run) -> State:
    digest, size, reports, without, closed = run(_STATE).fetchone()
    return State(digest, size, reports, without, bool(closed))


def _signed(known: dict[bytes, bytes], invitation: bytes) -> bytes | Verdict:
    found = known.get(invitation)
    if found is None:
        return Verdict.UNKNOWN
    return Verdict.NEW if found == _UNUSED else found


def _person(mark: str) -> bytes:
    return hashlib.sha256(b"lapwing survey person\n" + mark.encode()).digest()
