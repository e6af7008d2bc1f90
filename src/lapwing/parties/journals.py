"""What a member has drawn, posted and heard, on disk before anybody can know of it.

Claim    a member that crashes at any moment either goes on with the very bytes that it sent, or ends; noise
         is never drawn twice, and no two different posts of one round ever leave.
Because  a mark is durable before noise is drawn: found without a value, the run is over. The value, the
         coins and the post that was made of them are one transaction, durable before the post is sent. A
         round that was heard is durable together with the first thing that depends on it.
Test     tests/parties/running/test_journal.py, tests/faults/test_parties_crashes.py

What a relay remembers, so that a host that restarts goes on with the run, or shows its end again.

It holds no secrets, but sealed boxes, which a member's box key would open: they are gone after the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from lapwing.errors import Aborted, Unavailable
from lapwing.parties.messages import ReadyMessage
from lapwing.parties.posts import Delivery, Parcel
from lapwing.parties.protocols.protocol import Ints, OpenedSum
from lapwing.parties.protocols.secret_sharing import Elements, FreshCoins, ProtocolCoins
from lapwing.parties.run_configuration import RunConfiguration
from lapwing.storage.private_file import PrivateDatabase, RunStatement

RoundKey = tuple[int, int]  # stage, round
_LOST = "this member crashed while it drew noise, and noise is never drawn twice"


@dataclass(frozen=True, slots=True)
class RunEnding:
    """The sums that were opened, and why no more were."""

    opened: Sequence[OpenedSum]
    stopped: str | None = None


class RecordedCoins(ProtocolCoins):
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


class MemberJournal(PrivateDatabase):
    """Of one member in one run. Only its owner can read it, and one process at a time can use it."""

    _called = "the journal"
    _if_locked = "Is the same member running twice?"
    _pragmas = ("synchronous = FULL", "fullfsync = ON")
    _tables = (
        "CREATE TABLE IF NOT EXISTS run (id BLOB PRIMARY KEY, member INTEGER NOT NULL) STRICT",
        "CREATE TABLE IF NOT EXISTS stages (stage INTEGER PRIMARY KEY, value BLOB) STRICT",
        "CREATE TABLE IF NOT EXISTS coins (number INTEGER PRIMARY KEY, stage INTEGER, drawn BLOB) STRICT",
        "CREATE TABLE IF NOT EXISTS posts (place INTEGER PRIMARY KEY, parcel BLOB) STRICT",
        "CREATE TABLE IF NOT EXISTS heard (place INTEGER PRIMARY KEY, delivery BLOB) STRICT",
        "CREATE TABLE IF NOT EXISTS opened (stage INTEGER PRIMARY KEY, contributors BLOB, sums BLOB) "
        "STRICT",
        "CREATE TABLE IF NOT EXISTS outcome (one INTEGER PRIMARY KEY CHECK (one = 1), stopped TEXT) STRICT",
    )

    def __init__(self, path: Path, table: RunConfiguration, me: int) -> None:
        self._whose = table.run_id, me
        super().__init__(path)

    def _begin(self, run: RunStatement) -> None:
        super()._begin(run)
        run("INSERT OR IGNORE INTO run VALUES (?, ?)", self._whose)
        if run("SELECT id, member FROM run").fetchall() != [self._whose]:
            raise Unavailable(f"{self.path} is the journal of another run or member")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def drawing(self, stage: int, heard: Delivery | None) -> None:
        """Before noise is drawn. Raises `Aborted` if it was begun before: what was drawn then is lost."""
        with self._transaction() as run:
            self._store_heard(run, heard)
            if run("SELECT 1 FROM stages WHERE stage = ?", (stage,)).fetchone():
                raise Aborted(_LOST)
            run("INSERT INTO stages VALUES (?, NULL)", (stage,))

    def has_begun(self) -> bool:
        """Whether the lobby was over: noise was drawn, or about to be."""
        return bool(self._rows("SELECT 1 FROM stages"))

    def value(self, stage: int) -> Ints | None:
        """What the member noised in this stage. Raises `Aborted` if a crash lost it."""
        rows = self._rows("SELECT value FROM stages WHERE stage = ?", stage)
        if not rows:
            return None
        [(value,)] = rows
        if value is None:
            raise Aborted(_LOST)
        return np.frombuffer(value, dtype="<i8").astype(np.int64)

    def coins(self, stage: int) -> RecordedCoins:
        """Those that were drawn in this stage, and fresh ones from then on."""
        rows = self._rows("SELECT drawn FROM coins WHERE stage = ? ORDER BY number", stage)
        return RecordedCoins([drawn for (drawn,) in rows])

    def posting(
        self,
        place: RoundKey,
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

    def parcel(self, place: RoundKey) -> Parcel | None:
        """What was posted there, if anything was."""
        rows = self._rows("SELECT parcel FROM posts WHERE place = ?", _number(place))
        return Parcel.from_bytes(rows[0][0]) if rows else None

    def heard(self) -> list[Delivery]:
        """All rounds that were heard, in order."""
        rows = self._rows("SELECT delivery FROM heard ORDER BY place")
        return [Delivery.from_bytes(raw) for (raw,) in rows]

    def _store_heard(self, run: RunStatement, heard: Delivery | None) -> None:
        if heard is not None:
            place = _number((heard.stage, heard.round))
            run("INSERT INTO heard VALUES (?, ?)", (place, heard.to_bytes()))

    def outcome(self) -> RunEnding | None:
        """How the run ended for this member, if it did."""
        outcome = self._rows("SELECT stopped FROM outcome")
        if not outcome:
            return None
        opened = [
            OpenedSum(
                np.frombuffer(sums, "<i8").astype(np.int64), tuple(np.frombuffer(who, "<u4").tolist())
            )
            for who, sums in self._rows("SELECT contributors, sums FROM opened ORDER BY stage")
        ]
        return RunEnding(opened, outcome[0][0])

    def finish(self, heard: Sequence[Delivery], ending: RunEnding) -> None:
        """The run is over for this member. What only it knew is no longer needed, and is overwritten.

        `heard` are its last rounds; some may be stored. Overwritten is what is in these files: a disk that
        never writes in place may keep what they held before.
        """
        self._rows("PRAGMA synchronous = NORMAL")  # what forgets the log waits for the disk, once
        with self._transaction() as run:
            for one in heard:
                place = _number((one.stage, one.round))
                run("INSERT OR IGNORE INTO heard VALUES (?, ?)", (place, one.to_bytes()))
            run("INSERT INTO outcome VALUES (1, ?)", (ending.stopped,))
            for stage, opened in enumerate(ending.opened):
                who = np.array(opened.contributors, "<u4").tobytes()
                run(
                    "INSERT INTO opened VALUES (?, ?, ?)",
                    (stage, who, opened.values.astype("<i8").tobytes()),
                )
            run("DELETE FROM coins")
            run("UPDATE stages SET value = NULL")
        self._forget_log()


def _number(place: RoundKey) -> int:
    stage, round_ = place
    return stage << 16 | round_


@dataclass(frozen=True, slots=True)
class ClosedRound:
    """A closed round: who was in time with what, and what is said of those who were not."""

    stage: int
    round: int
    parcels: Mapping[int, Parcel]
    missing: Mapping[int, str]


class RelayJournal(PrivateDatabase):
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

    def __init__(self, folder: Path, table: RunConfiguration) -> None:
        self._run = table.run_id
        super().__init__(folder / f"{table.label}.relay")

    def begun(self) -> dict[int, ReadyMessage] | None:
        """The greetings of those who began, if the run has."""
        rows = self._rows("SELECT members FROM begun")
        if not rows:
            return None
        greetings = [ReadyMessage.from_json(self._run, each) for each in json.loads(rows[0][0])]
        return {greeting.sender: greeting for greeting in greetings}

    def begin(self, greetings: Mapping[int, ReadyMessage]) -> None:
        """The lobby is over."""
        said = json.dumps([greeting.to_json() for greeting in greetings.values()])
        with self._transaction() as run:
            run("INSERT INTO begun VALUES (1, ?)", (said,))

    def rounds(self) -> list[ClosedRound]:
        """All that were closed, in order."""
        closed = []
        for place, missing in self._rows("SELECT * FROM closed ORDER BY place"):
            rows = self._rows("SELECT member, parcel FROM posts WHERE place = ? ORDER BY member", place)
            parcels = {member: Parcel.from_bytes(raw) for member, raw in rows}
            said = {int(member): why for member, why in json.loads(missing).items()}
            closed.append(ClosedRound(place >> 16, place & 0xFFFF, parcels, said))
        return closed

    def close_round(self, closed: ClosedRound) -> None:
        """Before anybody is shown it."""
        place = _number_memory(closed)
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

    def end(self, served: Iterable[int], heard: Sequence[ClosedRound]) -> None:
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
                            (Parcel(parcel.envelope, {}).to_bytes(), _number_memory(closed), member),
                        )
        self._forget_log()


def _number_memory(closed: ClosedRound) -> int:
    return closed.stage << 16 | closed.round
