"""Reports in one SQLite file, synced at every commit. It shows no order of arrival at any time.

A b-tree keeps the entries of a page in the order of their arrival, so its raw pages show that order. In a
`HistoryIndependentTable` an entry lies in a bucket that its key selects, sorted by key. All buckets have
one size and exist from the start, and storing overwrites a bucket in place.

Claim    the content of the file is a function of the set of entries and the table's secret alone.
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
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lapwing.core.noise import random_bytes
from lapwing.errors import Unavailable
from lapwing.storage.private_file import touch_private_file
from lapwing.storage.sqlite import DURABLE, connect_sqlite, sqlite_errors, sqlite_transaction
from lapwing.survey.report_store import (
    HASH_BYTES,
    CollectionState,
    IntakeResult,
    ReportStore,
    invitation_hash,
    require_same_survey,
)

# ruff: noqa: S608 (the names of tables are our own)


KEY_BYTES = 32
_PAGE = 4030  # of 4096 bytes, with room for what the database says about a row
_LEAST = 24  # entries to a bucket: with fewer, most of the file would be empty
_COUNT_BYTES = 2
Execute = Callable[..., sqlite3.Cursor]


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

    def create(self, run: Execute) -> None:
        """Create an empty table, unless there is one."""
        self._make(run, self.table, "IF NOT EXISTS ")
        run(f"INSERT OR IGNORE INTO {self.table} VALUES (0, ?)", (self._packed({}),))

    def _make(self, run: Execute, table: str, unless: str = "") -> None:
        run(f"CREATE TABLE {unless}{table} (bucket INTEGER PRIMARY KEY, content BLOB NOT NULL) STRICT")

    def find(self, run: Execute, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of those keys that are stored."""
        bits = self._bits(run)
        found: dict[bytes, bytes] = {}
        for bucket, wanted in self._grouped(keys, bits).items():
            entries = self._entries(run, bucket)
            found.update((key, entries[key]) for key in wanted if key in entries)
        return found

    def put(self, run: Execute, values: Mapping[bytes, bytes]) -> None:
        """Store each value under its key. A value that is there already is replaced."""
        while not self._fits(run, values):
            self._double(run)

    def all(self, run: Execute) -> Iterator[tuple[bytes, bytes]]:
        """Return every entry, by key."""
        rows = run(f"SELECT content FROM {self.table}")
        return iter(sorted(entry for (content,) in rows for entry in self._unpacked(content)))

    def _fits(self, run: Execute, values: Mapping[bytes, bytes]) -> bool:
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

    def _double(self, run: Execute) -> None:
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

    def _bits(self, run: Execute) -> int:
        """Return log2 of the number of buckets."""
        [last] = run(f"SELECT max(bucket) FROM {self.table}").fetchone()
        return int(last).bit_length()

    def _grouped(self, keys: Sequence[bytes], bits: int) -> dict[int, list[bytes]]:
        groups: dict[int, list[bytes]] = {}
        for key in keys:
            place = hashlib.blake2b(key, key=self.secret, digest_size=8).digest()
            groups.setdefault(int.from_bytes(place, "big") >> (64 - bits), []).append(key)
        return groups

    def _entries(self, run: Execute, bucket: int) -> dict[bytes, bytes]:
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
                    self._reports = HistoryIndependentTable(
                        "reports", self._locked_state(run).report_size, secret
                    )
                    for table in (self._invitations, self._people, self._reports):
                        table.create(run)
                require_same_survey(self.state(), digest, report_size, self.where)
            except BaseException:
                self._connection.close()
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        with sqlite_errors(f"the reports in {self.where}"):
            yield

    @contextmanager
    def _transaction(self) -> Iterator[Execute]:
        with self._translated(), self._lock, sqlite_transaction(self._connection) as run:
            yield run

    @contextmanager
    def _reading(self) -> Iterator[Execute]:
        with self._translated(), self._lock:
            yield self._connection.execute

    def state(self) -> CollectionState:
        """Return which survey it is, and how many reports it has."""
        with self._reading() as run:
            return self._locked_state(run)

    def _locked_state(self, run: Execute) -> CollectionState:
        digest, size, reports, without, closed = run(_STATE).fetchone()
        return CollectionState(digest, size, reports, without, bool(closed))

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

    def _used(self, run: Execute, invitations: Sequence[bytes]) -> dict[bytes, bytes | IntakeResult]:
        found = self._invitations.find(run, invitations)
        return {key: IntakeResult.NEW if blinded == _UNUSED else blinded for key, blinded in found.items()}

    def _bind(self, run: Execute, blinded: dict[bytes, bytes]) -> None:
        self._invitations.put(run, blinded)

    def _stored_reports(self, run: Execute, tokens: Sequence[bytes]) -> dict[bytes, bytes]:
        return self._reports.find(run, tokens)

    def _add(
        self, run: Execute, reports: dict[bytes, bytes], *, has_credential: bool, is_last: bool
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


_STATE = "SELECT digest, report_size, reports, without_credential, closed FROM survey"
_COUNT = "UPDATE survey SET reports = reports + ?, without_credential = without_credential + ?"


def _person_key(mark: str) -> bytes:
    return hashlib.sha256(b"lapwing survey person\n" + mark.encode()).digest()
