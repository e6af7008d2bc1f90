"""How what is left went over time, for pictures: rebuilt from the entries by the independent accountant."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.ledger.accounts import Account
from lapwing.ledger.balance import MOVED, OPEN
from lapwing.ledger.entry import Costs, Raw
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.left import nearly
from lapwing.ledger.log import name_of_block
from lapwing.ledger.replay import Replay
from lapwing.ledger.store import Transaction
from lapwing.privacy import Terms

Watch = Callable[[int], None]
MOST_MOMENTS = 400  # a picture has hardly more columns
FEWEST_MOMENTS = 40
MOST_NUMBERS = 1 << 22  # moments times blocks
HALVINGS = 20  # to a millionth
AT_ONCE = 1 << 14
_TIME = re.compile(rb'"at":"([^"]*)"')
# What makes a line jump: it is drawn where it happened, however long the history is.
_JUMP = re.compile(rb'\{"kind":"(?:account|recovered)"')


@dataclass(frozen=True, slots=True)
class Grant:
    """(ε, δ) that was given: when the account was opened, and whenever it was raised."""

    time: datetime
    epsilon: Fraction
    delta: Fraction


@dataclass(frozen=True, slots=True)
class Course:
    """What each block of an account and of those that raised it had left, from moment to moment."""

    label: str
    times: tuple[datetime, ...]  # never falling; at least one
    blocks: tuple[str, ...]
    left: NDArray[np.float64]  # a row per time, a column per block; NaN before the block was opened
    grants: tuple[Grant, ...]
    recovered: tuple[datetime, ...]

    @classmethod
    def of(cls, ledger: Ledger, label: str, *, watch: Watch = lambda _: None) -> Course:
        """The course until now. Long histories are looked at so often as a picture can show."""
        root = ledger.account(label)
        return ledger.store.read(lambda tx: _Reader(ledger, tx, root, watch).read())


class _Reader:
    """Feeds the accountant, and looks at the blocks of one family from time to time."""

    def __init__(self, ledger: Ledger, tx: Transaction, root: Account, watch: Watch) -> None:
        self._ledger, self._tx, self._root, self._watch = ledger, tx, root, watch
        self._replay = Replay()
        self._terms: dict[int, Terms] = {}
        self._columns: dict[int, int] = {}  # by block; a block that moved keeps its column
        self._known: dict[int, tuple[int, int, Costs, Costs]] = {}
        self._left = np.zeros(0)
        self._rows: list[tuple[datetime, NDArray[np.float64]]] = []
        self._grants: list[Grant] = []
        self._recovered: list[datetime] = []

    def read(self) -> Course:
        waiting: list[Raw] = []
        now = looked = datetime.min.replace(tzinfo=UTC)
        step = self._step()
        for count, (seq, body, digest) in enumerate(self._ledger.store.history(self._tx)):
            text = bytes(body)
            jumps = _JUMP.match(text) is not None
            time = max(now, _time_of(text))  # clocks may be set back; history is not
            if jumps or time - looked >= step:
                self._feed(waiting)
                self._look(now)
                looked = now
            now = time
            waiting.append((seq, text, bytes(digest)))
            if jumps:
                self._feed(waiting)
                self._jump(now, json.loads(text))
                self._look(now)
            elif len(waiting) >= AT_ONCE:
                self._feed(waiting)
                self._watch(count)
        self._feed(waiting)
        self._look(now, always=True)
        return self._course()

    def _step(self) -> timedelta:
        """How far apart to look: not at all, if each entry can be shown."""
        [(entries, first, last)] = self._tx.rows("SELECT count(*), min(seq), max(seq) FROM entries")
        [(blocks,)] = self._tx.rows("SELECT count(*) FROM blocks WHERE root = ?", self._root.number)
        moments = min(max(MOST_NUMBERS // blocks, FEWEST_MOMENTS), MOST_MOMENTS)
        if entries <= moments:
            return timedelta(0)
        start, end = (
            _time_of(bytes(self._tx.rows("SELECT body FROM entries WHERE seq = ?", seq)[0][0]))
            for seq in (first, last)
        )
        return max((end - start) / int(moments), timedelta(microseconds=1))

    def _feed(self, waiting: list[Raw]) -> None:
        self._replay.feed(waiting)
        waiting.clear()

    def _jump(self, now: datetime, record: dict[str, Any]) -> None:
        if record["kind"] == "recovered":
            self._recovered.extend([now] if self._grants else [])
            return
        account = self._ledger.numbered(record["account"])
        if account.root != self._root.number:
            return
        self._terms[account.number] = account.terms
        self._grants.append(Grant(now, account.terms.epsilon, account.terms.delta))
        self._columns[account.everyone] = 0
        for old, new in record.get("moved", ()):
            self._columns[new] = self._columns[old]

    def _look(self, now: datetime, *, always: bool = False) -> None:
        """Note what is left, if anything of it has changed."""
        if not self._terms:
            return
        changed: dict[int, list[tuple[int, int, Costs]]] = {}
        for number, account, state, spent, held in self._replay.blocks():
            if account not in self._terms or state == MOVED:
                continue
            column = self._columns.setdefault(number, len(self._known))
            state_now = (account, state, spent, held)
            if self._known.get(column) != state_now:
                self._known[column] = state_now
                taken = tuple([s + h for s, h in zip(spent, held, strict=True)])
                changed.setdefault(account, []).append((column, state, taken))
        if not changed and not always:
            return
        left = np.full(len(self._known), np.nan)
        left[: len(self._left)] = self._left
        for account, some in changed.items():
            sums = np.array([taken for _, _, taken in some], np.int64)
            found = nearly(self._terms[account], sums, halvings=HALVINGS)
            is_open = np.array([state == OPEN for _, state, _ in some])
            left[[column for column, _, _ in some]] = np.where(is_open, found, 0.0)
        self._left = left
        self._rows.append((now, left))

    def _course(self) -> Course:
        table = np.full((len(self._rows), len(self._known)), np.nan)
        for k, (_, left) in enumerate(self._rows):
            table[k, : len(left)] = left
        slices = self._root.slices
        names = [""] * len(self._known)
        found = self._tx.rows("SELECT block, label FROM blocks WHERE root = ?", self._root.number)
        for number, label in found:
            names[self._columns[number]] = name_of_block(label, slices)
        return Course(
            label=self._root.label,
            times=tuple([time for time, _ in self._rows]),
            blocks=tuple(names),
            left=table,
            grants=tuple(self._grants),
            recovered=tuple(self._recovered),
        )


def _time_of(body: bytes) -> datetime:
    found = _TIME.search(body)
    assert found is not None  # the ledger was checked when it was opened
    return datetime.fromisoformat(found[1].decode("ascii"))
