"""What a relay remembers, so that a host that restarts goes on with the run. It holds no secrets."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lapwing.errors import Unavailable
from lapwing.parties.journal import connect, touch
from lapwing.parties.messages.parcel import Parcel
from lapwing.parties.messages.table import Table

_TABLES = (
    "CREATE TABLE IF NOT EXISTS begun (one INTEGER PRIMARY KEY CHECK (one = 1), members TEXT) STRICT",
    "CREATE TABLE IF NOT EXISTS closed (place INTEGER PRIMARY KEY, missing TEXT) STRICT",
    "CREATE TABLE IF NOT EXISTS posts (place INTEGER, member INTEGER, parcel BLOB, "
    "PRIMARY KEY (place, member)) STRICT",
    "CREATE TABLE IF NOT EXISTS ended (one INTEGER PRIMARY KEY CHECK (one = 1)) STRICT",
)
# A crash of the process loses nothing; after a power loss the last rounds may be gone, and members who
# are further than their relay end the run: no reason to wait for the disk in every round.
_PRAGMAS = (
    "locking_mode = EXCLUSIVE",
    "journal_mode = WAL",
    "synchronous = NORMAL",
    "trusted_schema = OFF",
)


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed round: who was in time with what, and what is said of those who were not."""

    stage: int
    round: int
    parcels: Mapping[int, Parcel]
    missing: Mapping[int, str]


class Memory:
    """In one file, which one process at a time can use."""

    def __init__(self, folder: Path, table: Table) -> None:
        path = folder / f"{table.label}.relay"
        try:
            touch(path)
            self._connection = connect(path, *_PRAGMAS)
        except (sqlite3.Error, OSError) as error:
            raise Unavailable(f"the relay's file {path} cannot be used. Is it running twice?") from error
        try:
            for statement in _TABLES:
                self._connection.execute(statement)
        except sqlite3.Error as error:
            self._connection.close()
            raise Unavailable(f"the relay's file {path} cannot be used. Is it running twice?") from error

    def close(self) -> None:
        """Nothing is lost."""
        self._connection.close()

    def begun(self) -> list[int] | None:
        """Who began, if the run has."""
        row = self._connection.execute("SELECT members FROM begun").fetchone()
        return None if row is None else list(json.loads(row[0]))

    def begin(self, members: list[int]) -> None:
        """The lobby is over."""
        self._connection.execute("INSERT INTO begun VALUES (1, ?)", (json.dumps(members),))

    def rounds(self) -> list[Closed]:
        """All that were closed, in order."""
        closed = []
        for place, missing in self._connection.execute("SELECT * FROM closed ORDER BY place").fetchall():
            rows = self._connection.execute(
                "SELECT member, parcel FROM posts WHERE place = ? ORDER BY member", (place,)
            )
            parcels = {member: Parcel.from_bytes(raw) for member, raw in rows}
            said = {int(member): why for member, why in json.loads(missing).items()}
            closed.append(Closed(place >> 16, place & 0xFFFF, parcels, said))
        return closed

    def close_round(self, closed: Closed) -> None:
        """Before anybody is shown it."""
        place = closed.stage << 16 | closed.round
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        run("INSERT INTO closed VALUES (?, ?)", (place, json.dumps(dict(closed.missing))))
        self._connection.executemany(
            "INSERT INTO posts VALUES (?, ?, ?)",
            [(place, member, parcel.to_bytes()) for member, parcel in closed.parcels.items()],
        )
        run("COMMIT")

    def has_ended(self) -> bool:
        """Whether everybody has what it needs."""
        return self._connection.execute("SELECT 1 FROM ended").fetchone() is not None

    def end(self) -> None:
        """Everybody has what it needs."""
        self._connection.execute("INSERT OR IGNORE INTO ended VALUES (1)")
