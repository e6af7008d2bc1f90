"""Report stores: one report for each credential, in the order of a hash, and nothing beside it.

Claim    an accepted report is on disk, once, whatever crashes; a token has one report; and no table says
         when or in which order reports came or invitations were used, or which invitation belongs to
         which report: in a file at any time, in PostgreSQL once `forget_order` ran.
Because  a transaction is synced before anybody hears of it; the key of a report is the hash of its token,
         and nothing else is stored with it; invitations and reports have no column in common; a file is
         made of `HistoryIndependentTable`; and in PostgreSQL `forget_order` writes the tables anew by
         their keys.
Test     tests/survey/, tests/faults/test_survey_ingest.py

Offline reports came on paper, by mail or in a file. They are stored on the owner's word, without a
credential.

A b-tree keeps the entries of a page in the order of their arrival, so its raw pages show that order. In a
`HistoryIndependentTable` an entry lies in a bucket that its key selects, sorted by key. All buckets have
one size and exist from the start, and storing overwrites a bucket in place.

Claim    the content of a file of reports is a function of the set of entries and the table's secret alone.
Because  a bucket's content is its entries, sorted, and zeros; a bucket is overwritten in place, since
         its size never changes; and the number of buckets doubles as soon as one is too small, which
         depends on the set. (At a doubling the pages move; which were free before may show that
         other tables doubled earlier or later.)
Test     tests/survey/test_report_store_order.py

A commit saves the pages that it changes in a second file, which is cut to nothing when it is done. After a
crash it shows which reports came in the last commit, not more. What still shows an order: a file system
that keeps old versions, a backup of each day, blocks that the disk gave up but did not erase, and anybody
who watches the server while it runs.
"""

from __future__ import annotations

import hashlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter, Unavailable
from lapwing.storage.private_file import touch_private_file
from lapwing.storage.sqlite import (
    DURABLE,
    RunStatement,
    connect_sqlite,
    sqlite_errors,
    sqlite_transaction,
)
from lapwing.survey.credentials import INVITATION_FORM

# ruff: noqa: S608 (the names of tables are our own)

HASH_BYTES = 32
ReportEntries = Sequence[tuple[bytes, bytes]]  # hash of the token, report
# Each entry: hash of the invitation, hash of the blinded value that it signs.
SignatureEntries = Sequence[tuple[bytes, bytes]]


class IntakeResult(Enum):
    """The result of storing a report, or of a request for a signature."""

    NEW = "new"  # stored now
    AGAIN = "again"  # the same was stored before
    OTHER = "other"  # the token, or the invitation, was used for something else
    CLOSED = "closed"  # the survey takes no more
    UNKNOWN = "unknown"  # there is no such invitation


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """The end of a survey. It counts reports and days, and never looks at an answer."""

    stop_after: int | None = None
    until: date | None = None  # the last day, UTC

    def is_over(self, reports: int, today: date) -> bool:
        """Return whether this many reports are enough, or the last day has passed."""
        if self.stop_after is not None and reports >= self.stop_after:
            return True
        return self.until is not None and today > self.until


@dataclass(frozen=True, slots=True)
class CollectionState:
    """The one row about the survey itself."""

    digest: str
    report_size: int
    reports: int
    without_credential: int  # of these reports: offline ones
    is_closed: bool


def token_hash(prepared: bytes) -> bytes:
    """Return the key under which a token's report is stored."""
    return hashlib.sha256(b"lapwing survey token\n" + prepared).digest()


def blinded_hash(blinded: bytes) -> bytes:
    """Return the hash of a blinded value. Only the hash is stored."""
    return hashlib.sha256(b"lapwing survey blinded\n" + blinded).digest()


def invitation_hash(invitation: str) -> bytes:
    """Return the hash of an invitation, to be stored. Raise `BadParameter` if it is malformed."""
    if not isinstance(invitation, str) or not INVITATION_FORM.fullmatch(invitation):
        raise BadParameter("invitation", "must be the 24 characters after # of an invitation's link")
    return hashlib.sha256(b"lapwing survey invitation\n" + invitation.encode()).digest()


_STATE = "SELECT digest, report_size, reports, without_credential, closed FROM survey"


class ReportStore(ABC):
    """A survey's database. Threads and processes may share it; every method that writes is durable."""

    where: str  # for messages, without a password

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Any]:
        """Run one transaction, while no other process writes. Gives a function that runs a statement."""

    def _reading(self) -> AbstractContextManager[Any]:
        """Give a function that runs a statement, for reading only."""
        return self._transaction()

    @abstractmethod
    def _locked_state(self, run: Any) -> CollectionState:
        """Return the state. It stays as it is until the transaction ends."""

    def _state(self, run: Any, lock: str = "") -> CollectionState:
        digest, size, reports, without, closed = run(_STATE + lock).fetchone()
        return CollectionState(digest, size, reports, without, bool(closed))

    def _require_survey(self, digest: str, report_size: int) -> None:
        """Raise `BadParameter` unless the database is of this survey, as it was when first used."""
        state = self.state()
        if (state.digest, state.report_size) != (digest, report_size):
            raise BadParameter(
                "survey",
                f"{self.where} belongs to another survey, or to this one before its file was changed. "
                "Respondents agreed to what stood there: give the changed survey a new name, and invite "
                "again",
            )

    @abstractmethod
    def _used(self, run: Any, invitations: Sequence[bytes]) -> dict[bytes, bytes | IntakeResult]:
        """Return for each known invitation the hash of its blinded value, or NEW if it is unused."""

    @abstractmethod
    def _bind(self, run: Any, blinded: dict[bytes, bytes]) -> None:
        """Bind unused invitations to these hashes of blinded values."""

    @abstractmethod
    def _stored_reports(self, run: Any, tokens: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the stored reports of these hashes of tokens."""

    @abstractmethod
    def _add(self, run: Any, reports: dict[bytes, bytes], *, has_credential: bool, is_last: bool) -> None:
        """Store new reports and count them. `is_last`: the survey is over with them."""

    def state(self) -> CollectionState:
        """Return which survey it is, and how many reports it has."""
        with self._reading() as run:
            return self._state(run)

    @abstractmethod
    def admit(self, invitations: Sequence[str], people: Sequence[str] = ()) -> None:
        """Register these invitations. `people` are the marks of the people that they were made for."""

    @abstractmethod
    def known_people(self, people: Sequence[str]) -> set[str]:
        """Return those of these people who were invited before."""

    @abstractmethod
    def invitations(self) -> tuple[int, int]:
        """Return the number of registered invitations, and of those used for a signature."""

    def signed(self, invitation: bytes) -> bytes | IntakeResult:
        """Return the hash of the blinded value that an invitation signed, NEW if none, or UNKNOWN."""
        with self._reading() as run:
            return self._used(run, [invitation]).get(invitation, IntakeResult.UNKNOWN)

    def keep(self, signatures: SignatureEntries, rule: StoppingRule, today: date) -> list[IntakeResult]:
        """Bind each invitation to its blinded value, unless it is bound already."""
        results: list[IntakeResult] = []
        new: dict[bytes, bytes] = {}
        with self._transaction() as run:
            state = self._locked_state(run)
            is_over = state.is_closed or rule.is_over(state.reports, today)
            used = self._used(run, [invitation for invitation, _ in signatures])
            for invitation, blinded in signatures:
                result = used.get(invitation, IntakeResult.UNKNOWN)
                if isinstance(result, bytes):
                    result = IntakeResult.AGAIN if result == blinded else IntakeResult.OTHER
                elif result is IntakeResult.NEW and is_over:
                    result = IntakeResult.CLOSED
                elif result is IntakeResult.NEW:
                    used[invitation] = new[invitation] = blinded
                results.append(result)
            if new:
                self._bind(run, new)
        return results

    def accept(
        self, reports: ReportEntries, rule: StoppingRule, today: date, *, has_credential: bool = True
    ) -> list[IntakeResult]:
        """Store each report under its token, as far as the stopping rule allows."""
        results: list[IntakeResult] = []
        new: dict[bytes, bytes] = {}
        with self._transaction() as run:
            state = self._locked_state(run)
            stored = self._stored_reports(run, [token for token, _ in reports])
            for token, report in reports:
                before = stored.get(token)
                if before is not None:
                    results.append(IntakeResult.AGAIN if before == report else IntakeResult.OTHER)
                elif state.is_closed or rule.is_over(state.reports + len(new), today):
                    results.append(IntakeResult.CLOSED)
                else:
                    stored[token] = new[token] = report
                    results.append(IntakeResult.NEW)
            if new:
                is_last = rule.is_over(state.reports + len(new), today)
                self._add(run, new, has_credential=has_credential, is_last=is_last)
        return results

    def stored(self, tokens: Sequence[bytes]) -> set[bytes]:
        """Return those of these hashes of tokens that have a report."""
        with self._reading() as run:
            return set(self._stored_reports(run, tokens))

    @abstractmethod
    def forget_order(self) -> None:
        """Remove every trace of the order in which reports came."""

    @abstractmethod
    def close_survey(self) -> None:
        """Accept nothing more, for ever, and remove every trace of an order."""

    @abstractmethod
    def rows(self) -> bytes:
        """Return all reports, one after the other, in the order of their hashes."""

    @abstractmethod
    def close(self) -> None:
        """Close the database."""


KEY_BYTES = 32
_PAGE = 4030  # of 4096 bytes, with room for what the database says about a row
_LEAST = 24  # entries to a bucket: with fewer, most of the file would be empty
_COUNT_BYTES = 2


@dataclass(frozen=True, slots=True)
class HistoryIndependentTable:
    """A table of values of one size under keys of 32 bytes, whose content shows no order of arrival.

    `secret` decides which keys share a bucket. Anybody who knew it could choose keys that all share one.
    """

    table: str
    size: int
    secret: bytes

    @property
    def _entry(self) -> int:
        return KEY_BYTES + self.size

    @property
    def capacity(self) -> int:
        """The number of entries that fit a bucket."""
        return max(_LEAST, (_PAGE - _COUNT_BYTES) // self._entry)

    def create(self, run: RunStatement) -> None:
        """Create an empty table, unless there is one."""
        self._make(run, self.table, "IF NOT EXISTS ")
        run(f"INSERT OR IGNORE INTO {self.table} VALUES (0, ?)", (self._packed({}),))

    def _make(self, run: RunStatement, table: str, unless: str = "") -> None:
        run(f"CREATE TABLE {unless}{table} (bucket INTEGER PRIMARY KEY, content BLOB NOT NULL) STRICT")

    def find(self, run: RunStatement, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of those keys that are stored."""
        bits = self._bits(run)
        values: dict[bytes, bytes] = {}
        for bucket, wanted in self._grouped(keys, bits).items():
            entries = self._entries(run, bucket)
            values.update((key, entries[key]) for key in wanted if key in entries)
        return values

    def put(self, run: RunStatement, values: Mapping[bytes, bytes]) -> None:
        """Store each value under its key. A value that is there already is replaced."""
        while not self._fits(run, values):
            self._double(run)

    def all(self, run: RunStatement) -> Iterator[tuple[bytes, bytes]]:
        """Return every entry, by key."""
        rows = run(f"SELECT content FROM {self.table}")
        return iter(sorted(entry for (content,) in rows for entry in self._unpacked(content)))

    def _fits(self, run: RunStatement, values: Mapping[bytes, bytes]) -> bool:
        """Store the values and return True, or return False if a bucket is too small.

        Values that were stored before that bucket are stored again by the next try.
        """
        for bucket, keys in sorted(self._grouped(list(values), self._bits(run)).items()):
            entries = self._entries(run, bucket)
            entries.update((key, values[key]) for key in keys)
            if len(entries) > self.capacity:
                return False
            run(f"UPDATE {self.table} SET content = ? WHERE bucket = ?", (self._packed(entries), bucket))
        return True

    def _double(self, run: RunStatement) -> None:
        """Double the buckets, in a new table: each bucket becomes two neighbours."""
        bits, new = self._bits(run) + 1, f"{self.table}_doubled"
        self._make(run, new)
        for bucket in range(1 << (bits - 1)):
            entries = self._entries(run, bucket)
            halves = self._grouped(list(entries), bits)
            for half in (2 * bucket, 2 * bucket + 1):
                content = self._packed({key: entries[key] for key in halves.get(half, ())})
                run(f"INSERT INTO {new} VALUES (?, ?)", (half, content))
        run(f"DROP TABLE {self.table}")
        run(f"ALTER TABLE {new} RENAME TO {self.table}")

    def _bits(self, run: RunStatement) -> int:
        """Return log2 of the number of buckets."""
        [last] = run(f"SELECT max(bucket) FROM {self.table}").fetchone()
        return int(last).bit_length()

    def _grouped(self, keys: Sequence[bytes], bits: int) -> dict[int, list[bytes]]:
        groups: dict[int, list[bytes]] = {}
        for key in keys:
            place = hashlib.blake2b(key, key=self.secret, digest_size=8).digest()
            groups.setdefault(int.from_bytes(place, "big") >> (64 - bits), []).append(key)
        return groups

    def _entries(self, run: RunStatement, bucket: int) -> dict[bytes, bytes]:
        [content] = run(f"SELECT content FROM {self.table} WHERE bucket = ?", (bucket,)).fetchone()
        return dict(self._unpacked(content))

    def _packed(self, entries: Mapping[bytes, bytes]) -> bytes:
        laid = b"".join(key + entries[key] for key in sorted(entries))
        assert len(laid) == len(entries) * self._entry, "entries have one size"
        room = _COUNT_BYTES + self.capacity * self._entry
        return (len(entries).to_bytes(_COUNT_BYTES, "big") + laid).ljust(room, b"\0")

    def _unpacked(self, content: bytes) -> Iterator[tuple[bytes, bytes]]:
        count, entry = int.from_bytes(content[:_COUNT_BYTES], "big"), self._entry
        for start in range(_COUNT_BYTES, _COUNT_BYTES + count * entry, entry):
            yield content[start : start + KEY_BYTES], content[start + KEY_BYTES : start + entry]


WAIT_AT_MOST = 60.0  # seconds, for another process that writes
_PRAGMAS = (
    "journal_mode = TRUNCATE",  # a write-ahead log would keep commits one after the other
    "secure_delete = ON",  # moved pages are overwritten, not only freed
    *DURABLE,
)
_COUNT = "UPDATE survey SET reports = reports + ?, without_credential = without_credential + ?"
_UNUSED = bytes(HASH_BYTES)  # the blinded hash of an unused invitation
_SURVEY = (
    "CREATE TABLE IF NOT EXISTS survey (one INTEGER PRIMARY KEY CHECK (one = 1), digest TEXT NOT NULL, "
    "report_size INTEGER NOT NULL, reports INTEGER NOT NULL, without_credential INTEGER NOT NULL, "
    "closed INTEGER NOT NULL, secret BLOB NOT NULL) STRICT"
)


class SqliteReportStore(ReportStore):
    """A report store in one file, which only its owner can read."""

    def __init__(self, path: Path, *, digest: str, report_size: int) -> None:
        self.where = str(path)
        self._lock = threading.Lock()  # one connection for all threads: writers wait for each other anyway
        with self._translated():
            touch_private_file(path)
            self._connection = connect_sqlite(path, _PRAGMAS, wait=WAIT_AT_MOST)
            try:
                with self._transaction() as run:
                    run(_SURVEY)
                    new = digest, report_size, random_bytes(KEY_BYTES)
                    run("INSERT OR IGNORE INTO survey VALUES (1, ?, ?, 0, 0, 0, ?)", new)
                    [secret] = run("SELECT secret FROM survey").fetchone()
                    self._invitations = HistoryIndependentTable("invitations", HASH_BYTES, secret)
                    self._people = HistoryIndependentTable("people", 0, secret)
                    self._reports = HistoryIndependentTable("reports", self._state(run).report_size, secret)
                    for table in (self._invitations, self._people, self._reports):
                        table.create(run)
                self._require_survey(digest, report_size)
            except BaseException:
                self._connection.close()
                raise

    def _translated(self) -> AbstractContextManager[None]:
        return sqlite_errors(f"the reports in {self.where}")

    @contextmanager
    def _transaction(self) -> Iterator[RunStatement]:
        with self._translated(), self._lock, sqlite_transaction(self._connection) as run:
            yield run

    def _locked_state(self, run: Any) -> CollectionState:
        return self._state(run)  # the transaction has the file's lock from its beginning

    @contextmanager
    def _reading(self) -> Iterator[RunStatement]:
        with self._translated(), self._lock:
            yield self._connection.execute

    def admit(self, invitations: Sequence[str], people: Sequence[str] = ()) -> None:
        """Register these invitations. `people` are the marks of the people that they were made for."""
        hashes = [invitation_hash(invitation) for invitation in invitations]
        with self._transaction() as run:
            if len(set(hashes)) < len(hashes) or self._invitations.find(run, hashes):
                raise Unavailable("an invitation is admitted once")
            self._invitations.put(run, dict.fromkeys(hashes, _UNUSED))
            self._people.put(run, dict.fromkeys(map(_person_key, people), b""))

    def known_people(self, people: Sequence[str]) -> set[str]:
        """Return those of these people who were invited before."""
        marks = {_person_key(person): person for person in people}
        with self._reading() as run:
            return {marks[key] for key in self._people.find(run, list(marks))}

    def invitations(self) -> tuple[int, int]:
        """Return the number of registered invitations, and of those used for a signature."""
        with self._reading() as run:
            used = [blinded != _UNUSED for _, blinded in self._invitations.all(run)]
        return len(used), sum(used)

    def _used(self, run: RunStatement, invitations: Sequence[bytes]) -> dict[bytes, bytes | IntakeResult]:
        stored = self._invitations.find(run, invitations)
        return {key: IntakeResult.NEW if blinded == _UNUSED else blinded for key, blinded in stored.items()}

    def _bind(self, run: RunStatement, blinded: dict[bytes, bytes]) -> None:
        self._invitations.put(run, blinded)

    def _stored_reports(self, run: RunStatement, tokens: Sequence[bytes]) -> dict[bytes, bytes]:
        return self._reports.find(run, tokens)

    def _add(
        self, run: RunStatement, reports: dict[bytes, bytes], *, has_credential: bool, is_last: bool
    ) -> None:
        self._reports.put(run, reports)
        run(_COUNT, (len(reports), 0 if has_credential else len(reports)))

    def forget_order(self) -> None:
        """Do nothing: the file has no order."""

    def close_survey(self) -> None:
        """Accept nothing more, for ever, and return the pages that doublings left empty."""
        with self._transaction() as run:
            run("UPDATE survey SET closed = 1")
        with self._reading() as run:
            run("VACUUM")

    def rows(self) -> bytes:
        """Return all reports, one after the other, in the order of their hashes."""
        with self._reading() as run:
            return b"".join([report for _, report in self._reports.all(run)])

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


def _person_key(mark: str) -> bytes:
    return hashlib.sha256(b"lapwing survey person\n" + mark.encode()).digest()


def read_all_reports(store: ReportStore) -> NDArray[np.uint8]:
    """Return all reports, of shape (n, report_size), in the order of their tokens' hashes."""
    size = store.state().report_size
    return np.frombuffer(store.rows(), np.uint8).reshape(-1, size)


def pile_digest(path: Path) -> bytes:
    """Return the name of a pile: the hash of its whole file. Devices write a random mark into theirs."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise BadParameter("reports", f"{path} cannot be read ({error.strerror})") from None


def offline_entries(reports: NDArray[np.uint8], pile: bytes, *, again: bool = False) -> ReportEntries:
    """Return entries: each report under a hash of its place in the pile. The same pile counts once.

    With `again`, a second pile of the very same content gets hashes of its own.
    """
    named = hashlib.sha256(b"lapwing survey pile\n" + pile)
    if again:
        named.update(random_bytes(HASH_BYTES))
    begun = named.digest()
    return [
        (hashlib.sha256(begun + place.to_bytes(8, "big")).digest(), row.tobytes())
        for place, row in enumerate(reports)
    ]


def not_yet_stored(store: ReportStore, reports: ReportEntries) -> ReportEntries:
    """Return the entries that are not stored yet."""
    known = store.stored([token for token, _ in reports])
    return [(token, report) for token, report in reports if token not in known]
