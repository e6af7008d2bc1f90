"""What a relay remembers, so that a host that restarts goes on with the run, or shows its end again.

It holds no secrets, but sealed boxes, which a member's box key would open: they are gone after the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lapwing.own_file import OwnFile
from lapwing.parties.messages.greeting import Greeting
from lapwing.parties.messages.parcel import Parcel
from lapwing.parties.messages.table import Table


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed round: who was in time with what, and what is said of those who were not."""

    stage: int
    round: int
    parcels: Mapping[int, Parcel]
    missing: Mapping[int, str]


class Memory(OwnFile):
    """In one file, which one process at a time can use. Raises `Unavailable` if it cannot be used."""

    _called = "the relay's file"
    _if_locked = "Is it running twice?"
    # A crash of the process loses nothing; after a power loss the last rounds may be gone, and members who
    # are further than their relay end the run: no reason to wait for the disk in every round.
    _pragmas = ("synchronous = NORMAL",)
    _tables = (
        "CREATE TABLE IF NOT EXISTS begun (one INTEGER PRIMARY KEY CHECK (one = 1), members TEXT) STRICT",
        "CREATE TABLE IF NOT EXISTS closed (place INTEGER PRIMARY KEY, missing TEXT) STRICT",
        "CREATE TABLE IF NOT EXISTS posts (place INTEGER, member INTEGER, parcel BLOB, "
        "PRIMARY KEY (place, member)) STRICT",
        "CREATE TABLE IF NOT EXISTS ended (one INTEGER PRIMARY KEY CHECK (one = 1)) STRICT",
        "CREATE TABLE IF NOT EXISTS served (member INTEGER PRIMARY KEY) STRICT",
    )

    def __init__(self, folder: Path, table: Table) -> None:
        self._run = table.run_id
        super().__init__(folder / f"{table.label}.relay")

    def begun(self) -> dict[int, Greeting] | None:
        """The greetings of those who began, if the run has."""
        rows = self._rows("SELECT members FROM begun")
        if not rows:
            return None
        greetings = [Greeting.from_json(self._run, each) for each in json.loads(rows[0][0])]
        return {greeting.sender: greeting for greeting in greetings}

    def begin(self, greetings: Mapping[int, Greeting]) -> None:
        """The lobby is over."""
        said = json.dumps([greeting.to_json() for greeting in greetings.values()])
        with self._transaction() as run:
            run("INSERT INTO begun VALUES (1, ?)", (said,))

    def rounds(self) -> list[Closed]:
        """All that were closed, in order."""
        closed = []
        for place, missing in self._rows("SELECT * FROM closed ORDER BY place"):
            rows = self._rows("SELECT member, parcel FROM posts WHERE place = ? ORDER BY member", place)
            parcels = {member: Parcel.from_bytes(raw) for member, raw in rows}
            said = {int(member): why for member, why in json.loads(missing).items()}
            closed.append(Closed(place >> 16, place & 0xFFFF, parcels, said))
        return closed

    def close_round(self, closed: Closed) -> None:
        """Before anybody is shown it."""
        place = _number(closed)
        with self._transaction() as run:
            run("INSERT INTO closed VALUES (?, ?)", (place, json.dumps(dict(closed.missing))))
            for member, parcel in closed.parcels.items():
                run("INSERT INTO posts VALUES (?, ?, ?)", (place, member, parcel.to_bytes()))

    def has_ended(self) -> bool:
        """Whether the run is over. Who missed the end may still come for it: see `served`."""
        return bool(self._rows("SELECT 1 FROM ended"))

    def served(self) -> set[int]:
        """Who has all that it needs, or left, as far as the relay knew when the run ended."""
        return {member for (member,) in self._rows("SELECT member FROM served")}

    def end(self, served: Iterable[int], heard: Sequence[Closed]) -> None:
        """The run is over. The sealed boxes of rounds that nobody needs to hear again are dropped."""
        with self._transaction() as run:
            run("INSERT OR IGNORE INTO ended VALUES (1)")
            for member in served:
                run("INSERT OR IGNORE INTO served VALUES (?)", (member,))
            for closed in heard:
                for member, parcel in closed.parcels.items():
                    if parcel.boxes:
                        run(
                            "UPDATE posts SET parcel = ? WHERE place = ? AND member = ?",
                            (Parcel(parcel.envelope, {}).to_bytes(), _number(closed), member),
                        )
        self._forget_log()


def _number(closed: Closed) -> int:
    return closed.stage << 16 | closed.round
