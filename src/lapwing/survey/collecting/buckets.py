"""A table of a file that looks the same whatever order its entries came in.

A b-tree keeps the entries of a page where they were put, one after the other, so its raw pages tell the
order of arrival. Here an entry lies in a bucket that its key names, sorted by key among the others; all
buckets have one size and are there from the start; and storing writes over a bucket where it lies.

Claim    what lies in the file is a function of the set of entries and the table's secret alone.
Because  a bucket's content is its entries, sorted, and zeros; a bucket is written over in place, since
         its size never changes; and there are twice as many buckets as soon as one is too small, which
         depends on the set. (At a doubling the pages move; which were free before may show that
         other tables doubled earlier or later.)
Test     tests/survey/collecting/test_order.py
"""

# ruff: noqa: S608 (the names of tables are our own)
from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

KEY_BYTES = 32
_PAGE = 4030  # of 4096 bytes, with room for what the database says about a row
_LEAST = 24  # entries to a bucket: with fewer, most of the file would be empty
_COUNT = 2
Run = Callable[..., sqlite3.Cursor]


@dataclass(frozen=True, slots=True)
class Buckets:
    """Values of one size under keys of 32 bytes.

    `secret` decides which keys share a bucket: who could know, could choose keys that all do.
    """

    table: str
    size: int
    secret: bytes

    @property
    def _entry(self) -> int:
        return KEY_BYTES + self.size

    @property
    def capacity(self) -> int:
        """Entries that a bucket has room for."""
        return max(_LEAST, (_PAGE - _COUNT) // self._entry)

    def create(self, run: Run) -> None:
        """An empty table, unless there is one."""
        self._make(run, self.table, "IF NOT EXISTS ")
        run(f"INSERT OR IGNORE INTO {self.table} VALUES (0, ?)", (self._packed({}),))

    def _make(self, run: Run, table: str, unless: str = "") -> None:
        run(f"CREATE TABLE {unless}{table} (bucket INTEGER PRIMARY KEY, content BLOB NOT NULL) STRICT")

    def find(self, run: Run, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """What is stored under those of the keys that are there."""
        bits = self._bits(run)
        found: dict[bytes, bytes] = {}
        for bucket, wanted in self._grouped(keys, bits).items():
            entries = self._entries(run, bucket)
            found.update((key, entries[key]) for key in wanted if key in entries)
        return found

    def put(self, run: Run, values: Mapping[bytes, bytes]) -> None:
        """Store each value under its key, over what was there."""
        while not self._fits(run, values):
            self._double(run)

    def all(self, run: Run) -> Iterator[tuple[bytes, bytes]]:
        """Every entry, by key."""
        rows = run(f"SELECT content FROM {self.table}")
        return iter(sorted(entry for (content,) in rows for entry in self._unpacked(content)))

    def _fits(self, run: Run, values: Mapping[bytes, bytes]) -> bool:
        """Store them, if no bucket is too small. What was stored before one is, is stored once more."""
        for bucket, keys in sorted(self._grouped(list(values), self._bits(run)).items()):
            entries = self._entries(run, bucket)
            entries.update((key, values[key]) for key in keys)
            if len(entries) > self.capacity:
                return False
            run(f"UPDATE {self.table} SET content = ? WHERE bucket = ?", (self._packed(entries), bucket))
        return True

    def _double(self, run: Run) -> None:
        """Twice as many buckets, in a new table: each bucket becomes two neighbours."""
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

    def _bits(self, run: Run) -> int:
        """There are 2^bits buckets."""
        [last] = run(f"SELECT max(bucket) FROM {self.table}").fetchone()
        return int(last).bit_length()

    def _grouped(self, keys: Sequence[bytes], bits: int) -> dict[int, list[bytes]]:
        groups: dict[int, list[bytes]] = {}
        for key in keys:
            place = hashlib.blake2b(key, key=self.secret, digest_size=8).digest()
            groups.setdefault(int.from_bytes(place, "big") >> (64 - bits), []).append(key)
        return groups

    def _entries(self, run: Run, bucket: int) -> dict[bytes, bytes]:
        [content] = run(f"SELECT content FROM {self.table} WHERE bucket = ?", (bucket,)).fetchone()
        return dict(self._unpacked(content))

    def _packed(self, entries: Mapping[bytes, bytes]) -> bytes:
        laid = b"".join(key + entries[key] for key in sorted(entries))
        assert len(laid) == len(entries) * self._entry, "entries have one size"
        room = _COUNT + self.capacity * self._entry
        return (len(entries).to_bytes(_COUNT, "big") + laid).ljust(room, b"\0")

    def _unpacked(self, content: bytes) -> Iterator[tuple[bytes, bytes]]:
        count, entry = int.from_bytes(content[:_COUNT], "big"), self._entry
        for start in range(_COUNT, _COUNT + count * entry, entry):
            yield content[start : start + KEY_BYTES], content[start + KEY_BYTES : start + entry]
