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

from lapwing.ledger.accountant.balance import MOVED, OPEN
from lapwing.ledger.accountant.forms import WIDTH
from lapwing.ledger.accountant.replay import Replay
from lapwing.ledger.accounts import ACCOUNT_COLUMNS, Account, account_of
from lapwing.ledger.entry import Raw
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.stores.transaction import Transaction
from lapwing.ledger.views.left import nearly
from lapwing.ledger.views.log import name_of_block
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
    at_first: float  # the largest pure ε that fits while nothing is spent


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
        rows = tx.rows(f"SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE root = ?", root.number)  # noqa: S608
        self._accounts = {account.number: account for account in map(account_of, rows)}
        self._replay = Replay()
        self._terms: dict[int, Terms] = {}
        # By the accountant's row of a block: its column, which it keeps when it moves; -1 until it has one.
        self._columns = np.zeros(0, np.intp)
        # By column: account, state and sums, as last seen.
        self._seen = np.zeros((0, 2 + WIDTH), np.int64)
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
        account = self._accounts.get(record["account"])
        if account is None:
            return  # of another family
        self._terms[account.number] = account.terms
        self._grants.append(granted(account.terms, now))
        moved = np.array(record.get("moved", ()), np.int64).reshape(-1, 2)
        balances = self._replay.balances
        self._make_room()
        self._columns[balances.row(account.everyone)] = 0
        self._columns[balances.find(moved[:, 1])] = self._columns[balances.find(moved[:, 0])]

    def _make_room(self) -> None:
        more = self._replay.balances.numbers.count - len(self._columns)
        self._columns = np.append(self._columns, np.full(more, -1, np.intp))

    def _look(self, now: datetime, *, always: bool = False) -> None:
        """Note what is left, if anything of it has changed."""
        if not self._terms:
            return
        self._replay.blocks()  # which brings the books up to date
        balances = self._replay.balances
        terms = {self._replay.accounts[number].place: each for number, each in self._terms.items()}
        rows = np.flatnonzero(np.isin(balances.owners.rows, list(terms)) & (balances.states.rows < MOVED))
        columns = self._columns_of(rows)
        left = np.append(self._left, np.full(len(rows) - len(self._left), np.nan))
        seen = np.zeros((len(rows), self._seen.shape[1]), np.int64)
        seen[columns, 0], seen[columns, 1] = balances.owners.rows[rows], balances.states.rows[rows]
        seen[columns, 2:] = balances.taken(rows)
        known = len(self._seen)
        changed = np.append(np.any(seen[:known] != self._seen, axis=1), np.ones(len(rows) - known, bool))
        for place, each in terms.items():
            some = np.flatnonzero(changed & (seen[:, 0] == place))
            found = nearly(each, seen[some, 2:], halvings=HALVINGS)
            left[some] = np.where(seen[some, 1] == OPEN, found, 0.0)
        self._left, self._seen = left, seen
        if always or changed.any():
            self._rows.append((now, left))

    def _columns_of(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        self._make_room()
        fresh = rows[self._columns[rows] < 0]
        self._columns[fresh] = np.arange(len(rows) - len(fresh), len(rows))
        return self._columns[rows]

    def _course(self) -> Course:
        table = np.full((len(self._rows), len(self._left)), np.nan)
        for k, (_, left) in enumerate(self._rows):
            table[k, : len(left)] = left
        slices = self._root.slices
        names = [""] * len(self._left)
        found = self._tx.rows("SELECT block, label FROM blocks WHERE root = ?", self._root.number)
        places = self._replay.balances.find(np.array([number for number, _ in found], np.int64))
        for column, (_, label) in zip(self._columns[places], found, strict=True):
            names[column] = name_of_block(label, slices)
        return Course(
            label=self._root.label,
            times=tuple([time for time, _ in self._rows]),
            blocks=tuple(names),
            left=table,
            grants=tuple(self._grants),
            recovered=tuple(self._recovered),
        )


def granted(terms: Terms, time: datetime) -> Grant:
    """The grant of an account that was opened or raised with these terms."""
    nothing = np.array([terms.nothing_spent], np.int64)
    return Grant(time, terms.epsilon, terms.delta, float(nearly(terms, nothing, halvings=HALVINGS)[0]))


def _time_of(body: bytes) -> datetime:
    found = _TIME.search(body)
    assert found is not None  # the ledger was checked when it was opened
    return datetime.fromisoformat(found[1].decode("ascii"))
