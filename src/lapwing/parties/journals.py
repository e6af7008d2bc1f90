"""Files that a member and a relay keep of a run, so that each can continue after a crash.

Claim    a member that crashes at any moment either continues with exactly the bytes that it sent, or ends;
         noise is never drawn twice, and no two different posts of one round ever leave.
Because  a mark is durable before noise is drawn: a mark without a value ends the run. The value, the coins
         and the post made from them are one transaction, durable before the post is sent. A received round
         is durable together with the first thing that depends on it.
Test     tests/parties/test_journals.py, tests/faults/test_parties_crashes.py

The relay's file lets a host that restarts continue the run, or show its end again. It holds no secrets
except sealed boxes, which a member's box key would open. They are deleted after the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from lapwing.errors import Aborted, Unavailable
from lapwing.parties.messages import ReadyMessage
from lapwing.parties.posts import Delivery, Envelope, Parcel
from lapwing.parties.protocols.protocol import Ints, OpenedSum
from lapwing.parties.protocols.secret_sharing import Elements, FreshCoins, ProtocolCoins
from lapwing.parties.run_configuration import RoundKey, RunConfiguration
from lapwing.storage.sqlite import DURABLE, PrivateDatabase, RunStatement

_LOST = "this member crashed while it drew noise, and noise is never drawn twice"


class _RunFile(PrivateDatabase):
    """A private file that closes at the end of a `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# A member's journal


@dataclass(frozen=True, slots=True)
class RunEnding:
    """The opened sums, and why no more were opened. `stopped` is None if all were."""

    opened: Sequence[OpenedSum]
    stopped: str | None = None


class RecordedCoins(ProtocolCoins):
    """Coins that first repeat recorded draws, then draw afresh and remember until they are stored."""

    def __init__(self, before: Sequence[bytes] = ()) -> None:
        self._before = list(before)[::-1]
        self._fresh = FreshCoins()
        self._unstored: list[bytes] = []

    def elements(self, modulus: int, count: int) -> Elements:
        """Return `count` recorded or fresh numbers below `modulus`. Raises `Aborted`."""
        raw = self._next(lambda: self._fresh.elements(modulus, count).astype("<u8").tobytes())
        drawn = np.frombuffer(raw, dtype="<u8").astype(np.uint64)
        if drawn.shape != (count,) or (count and int(drawn.max()) >= modulus):
            raise Aborted("the journal's coins do not fit the protocol")
        return drawn

    def secret(self) -> bytes:
        """Return 32 recorded or fresh bytes. Raises `Aborted`."""
        drawn = self._next(self._fresh.secret)
        if len(drawn) != 32:
            raise Aborted("the journal's coins do not fit the protocol")
        return drawn

    def _next(self, draw: Callable[[], bytes]) -> bytes:
        """Return the next recorded draw, or a fresh one."""
        if self._before:
            return self._before.pop()
        self._unstored.append(draw())
        return self._unstored[-1]

    def take_unstored(self) -> list[bytes]:
        """Return the draws since the last call."""
        drawn, self._unstored = self._unstored, []
        return drawn


class MemberJournal(_RunFile):
    """The journal of one member in one run. Only its owner can read it, and one process can use it."""

    _called = "the journal"
    _if_locked = "Is the same member running twice?"
    _pragmas = DURABLE
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

    def __init__(self, path: Path, config: RunConfiguration, me: int) -> None:
        self._whose = config.run_id, me
        super().__init__(path)

    @staticmethod
    def path_of(folder: Path, config: RunConfiguration) -> Path:
        """Return the path of a run's journal in a member's folder of runs."""
        return folder / f"{config.label}.journal"

    def _begin(self, run: RunStatement) -> None:
        super()._begin(run)
        run("INSERT OR IGNORE INTO run VALUES (?, ?)", self._whose)
        if run("SELECT id, member FROM run").fetchall() != [self._whose]:
            raise Unavailable(f"{self.path} is the journal of another run or member")

    def drawing(self, stage: int, heard: Delivery | None) -> None:
        """Mark that noise is about to be drawn. Raises `Aborted` if it was: that draw is lost."""
        with self._transaction() as run:
            self._store_heard(run, heard)
            if run("SELECT 1 FROM stages WHERE stage = ?", (stage,)).fetchone():
                raise Aborted(_LOST)
            run("INSERT INTO stages VALUES (?, NULL)", (stage,))

    def has_begun(self) -> bool:
        """Return whether the run has begun: noise was drawn, or was about to be drawn."""
        return bool(self._rows("SELECT 1 FROM stages"))

    def value(self, stage: int) -> Ints | None:
        """Return the noised value of a stage, or None before it. Raises `Aborted` if a crash lost it."""
        rows = self._rows("SELECT value FROM stages WHERE stage = ?", stage)
        if not rows:
            return None
        [(value,)] = rows
        if value is None:
            raise Aborted(_LOST)
        return np.frombuffer(value, dtype="<i8").astype(np.int64)

    def coins(self, stage: int) -> RecordedCoins:
        """Return coins that repeat the draws of this stage."""
        rows = self._rows("SELECT drawn FROM coins WHERE stage = ? ORDER BY number", stage)
        return RecordedCoins([drawn for (drawn,) in rows])

    def posting(
        self,
        key: RoundKey,
        parcel: bytes,
        *,
        coins: RecordedCoins,
        value: Ints | None,
        heard: Delivery | None,
    ) -> None:
        """Store a post before it is sent, with all that it was made from.

        `value` comes with a stage's first post, and is None after that. `heard` is the last received round
        if it is not stored yet.
        """
        stage, _ = key
        with self._transaction() as run:
            self._store_heard(run, heard)
            if value is not None:
                run("UPDATE stages SET value = ? WHERE stage = ?", (value.astype("<i8").tobytes(), stage))
            for drawn in coins.take_unstored():
                run("INSERT INTO coins (stage, drawn) VALUES (?, ?)", (stage, drawn))
            run("INSERT INTO posts VALUES (?, ?)", (_stored(key), parcel))

    def parcel(self, key: RoundKey) -> Parcel | None:
        """Return this member's post of a round, or None."""
        rows = self._rows("SELECT parcel FROM posts WHERE place = ?", _stored(key))
        return Parcel.from_bytes(rows[0][0]) if rows else None

    def heard(self) -> list[Delivery]:
        """Return all received rounds, in order."""
        rows = self._rows("SELECT delivery FROM heard ORDER BY place")
        return [Delivery.from_bytes(raw) for (raw,) in rows]

    def _store_heard(self, run: RunStatement, heard: Delivery | None) -> None:
        if heard is not None:
            run("INSERT INTO heard VALUES (?, ?)", (_stored(heard.key), heard.to_bytes()))

    def outcome(self) -> RunEnding | None:
        """Return how the run ended for this member, or None before its end."""
        outcome = self._rows("SELECT stopped FROM outcome")
        if not outcome:
            return None
        rows = self._rows("SELECT contributors, sums FROM opened ORDER BY stage")
        opened = [
            OpenedSum(
                np.frombuffer(sums, "<i8").astype(np.int64), tuple(np.frombuffer(who, "<u4").tolist())
            )
            for who, sums in rows
        ]
        return RunEnding(opened, outcome[0][0])

    def finish(self, heard: Sequence[Delivery], ending: RunEnding) -> None:
        """Store how the run ended, and overwrite this member's secrets, which nobody needs any more.

        `heard` are its last rounds; some may be stored already. These files are overwritten in place: a
        disk that never writes in place may keep what they held before.
        """
        self._rows("PRAGMA synchronous = NORMAL")  # `_forget_log` waits for the disk, once
        with self._transaction() as run:
            for delivery in heard:
                row = _stored(delivery.key), delivery.to_bytes()
                run("INSERT OR IGNORE INTO heard VALUES (?, ?)", row)
            run("INSERT INTO outcome VALUES (1, ?)", (ending.stopped,))
            for stage, opened in enumerate(ending.opened):
                who = np.array(opened.contributors, "<u4").tobytes()
                sums = opened.values.astype("<i8").tobytes()
                run("INSERT INTO opened VALUES (?, ?, ?)", (stage, who, sums))
            run("DELETE FROM coins")
            run("UPDATE stages SET value = NULL")
        self._forget_log()


# The relay's journal


@dataclass(frozen=True, slots=True)
class ClosedRound:
    """A closed round at the relay: parcels in time by member, and reasons for the missing members."""

    stage: int
    round: int
    parcels: Mapping[int, Parcel]
    missing: Mapping[int, str]

    @property
    def key(self) -> RoundKey:
        """Stage and round."""
        return self.stage, self.round

    @property
    def envelopes(self) -> tuple[Envelope, ...]:
        """The envelopes of all parcels."""
        return tuple(Envelope.from_bytes(parcel.envelope) for parcel in self.parcels.values())

    def delivery(self, to: int | None) -> Delivery:
        """Return the round as one member receives it. None stands for a reader without private parts."""
        items = [
            (parcel.envelope, None if to is None else parcel.boxes.get(to))
            for parcel in self.parcels.values()
        ]
        return Delivery(self.stage, self.round, items, self.missing)


class RelayJournal(_RunFile):
    """The relay's memory of one run, in one file. One process can use it."""

    _called = "the relay's file"
    _if_locked = "Is it running twice?"
    # A crash of the process loses nothing. After a power loss the last rounds may be gone, and members who
    # are further than their relay end the run: that is no reason to wait for the disk in every round.
    _pragmas = ("synchronous = NORMAL",)
    _tables = (
        "CREATE TABLE IF NOT EXISTS begun (one INTEGER PRIMARY KEY CHECK (one = 1), members TEXT) STRICT",
        "CREATE TABLE IF NOT EXISTS closed (place INTEGER PRIMARY KEY, missing TEXT) STRICT",
        "CREATE TABLE IF NOT EXISTS posts (place INTEGER, member INTEGER, parcel BLOB, "
        "PRIMARY KEY (place, member)) STRICT",
        "CREATE TABLE IF NOT EXISTS ended (one INTEGER PRIMARY KEY CHECK (one = 1)) STRICT",
        "CREATE TABLE IF NOT EXISTS served (member INTEGER PRIMARY KEY) STRICT",
    )

    def __init__(self, folder: Path, config: RunConfiguration) -> None:
        self._run = config.run_id
        super().__init__(self.path_of(folder, config))

    @staticmethod
    def path_of(folder: Path, config: RunConfiguration) -> Path:
        """Return the path of a run's file in a relay's folder of runs."""
        return folder / f"{config.label}.relay"

    def begun(self) -> dict[int, ReadyMessage] | None:
        """Return the ready messages of the members that began, or None before the beginning."""
        rows = self._rows("SELECT members FROM begun")
        if not rows:
            return None
        messages = [ReadyMessage.from_json(self._run, each) for each in json.loads(rows[0][0])]
        return {message.sender: message for message in messages}

    def begin(self, messages: Mapping[int, ReadyMessage]) -> None:
        """Store that the run has begun with these members."""
        text = json.dumps([message.to_json() for message in messages.values()])
        with self._transaction() as run:
            run("INSERT INTO begun VALUES (1, ?)", (text,))

    def rounds(self) -> list[ClosedRound]:
        """Return all closed rounds, in order."""
        closed = []
        for place, missing in self._rows("SELECT * FROM closed ORDER BY place"):
            rows = self._rows("SELECT member, parcel FROM posts WHERE place = ? ORDER BY member", place)
            parcels = {member: Parcel.from_bytes(raw) for member, raw in rows}
            reasons = {int(member): why for member, why in json.loads(missing).items()}
            closed.append(ClosedRound(place >> 16, place & 0xFFFF, parcels, reasons))
        return closed

    def close_round(self, closed: ClosedRound) -> None:
        """Store a closed round, before any member is shown it."""
        place = _stored(closed.key)
        with self._transaction() as run:
            run("INSERT INTO closed VALUES (?, ?)", (place, json.dumps(dict(closed.missing))))
            for member, parcel in closed.parcels.items():
                run("INSERT INTO posts VALUES (?, ?, ?)", (place, member, parcel.to_bytes()))

    def has_ended(self) -> bool:
        """Return whether the run is over. Members that missed the end may still come: see `served`."""
        return bool(self._rows("SELECT 1 FROM ended"))

    def served(self) -> set[int]:
        """Return the members that needed nothing more, or had left, when the run ended."""
        return {member for (member,) in self._rows("SELECT member FROM served")}

    def end(self, served: Iterable[int], heard: Sequence[ClosedRound]) -> None:
        """Store that the run is over, and delete the sealed boxes of rounds that nobody needs again."""
        with self._transaction() as run:
            run("INSERT OR IGNORE INTO ended VALUES (1)")
            for member in served:
                run("INSERT OR IGNORE INTO served VALUES (?)", (member,))
            for closed in heard:
                for member, parcel in closed.parcels.items():
                    if parcel.boxes:
                        without = Parcel(parcel.envelope, {}).to_bytes()
                        row = without, _stored(closed.key), member
                        run("UPDATE posts SET parcel = ? WHERE place = ? AND member = ?", row)
        self._forget_log()


def _stored(key: RoundKey) -> int:
    """Return stage and round as one number, as both journals store them."""
    stage, round_ = key
    return stage << 16 | round_
