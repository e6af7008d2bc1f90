"""A bare store in PostgreSQL: blocks without a ledger around them, and an anchor in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lapwing.errors import Unavailable
from lapwing.ledger.anchors import Anchor, Head, Mark
from lapwing.ledger.keys import SigningKey
from lapwing.ledger.postgres_store import PostgresStore
from lapwing.ledger.schema import COSTS, columns
from lapwing.ledger.store import Debit, Posting
from support.postgres import sql

CAP = 100
ONE = (1,) * len(COSTS)
LEDGER_ID = b"0123456789abcdef"
SIGNING = SigningKey(b"k" * 32)
BLOCK = "INSERT INTO blocks (block, account, root, name, label, salt) VALUES (?, ?, ?, ?, ?, ?)"
BUDGET = (
    f"INSERT INTO budgets (block, account, state, {columns('left')}, {columns('held')}) "
    f"VALUES ({', '.join('?' * (3 + 2 * len(COSTS)))})"
)


class MemoryAnchor(Anchor):
    """Remembers what it is told, and fails when it is asked to."""

    where = "memory"

    def __init__(self) -> None:
        self.lines: list[Mark | Head] = []
        self.fails = False

    def exists(self) -> bool:
        return True

    def read(self) -> tuple[Mark | Head, ...]:
        return tuple(self.lines)

    def write(self, marks: Sequence[Mark], head: Head | None = None) -> None:
        if self.fails:
            raise Unavailable("the anchor is away")
        self.lines += [*marks, *([head] if head else [])]

    def close(self) -> None:
        pass

    @property
    def marks(self) -> dict[int, bytes]:
        return {line.seq: line.digest for line in self.lines if isinstance(line, Mark)}

    @property
    def heads(self) -> list[Head]:
        return [line for line in self.lines if isinstance(line, Head)]


def block_row(block: int, account: int) -> tuple[Any, ...]:
    return (block, account, account, f"n{block}", f"b{block}", b"salt")


def budget_row(block: int, account: int) -> tuple[int, ...]:
    return (block, account, 0, *[CAP] * len(COSTS), *[0] * len(COSTS))


@contextmanager
def opened(
    url: str, *, create: bool = False, anchor: MemoryAnchor | None = None
) -> Iterator[PostgresStore]:
    """A store that marks and seals; if new, with blocks 1 to 9 of account 1 and 11 to 19 of account 2."""
    store = PostgresStore(url, create=create)
    try:
        if create:
            store.migrate()
            numbers = [(10 * k + b, k + 1) for k in range(2) for b in range(1, 10)]
            store.write(lambda tx: tx.run_many(BLOCK, [block_row(*each) for each in numbers]))
            store.write(lambda tx: tx.run_many(BUDGET, [budget_row(*each) for each in numbers]))
        store.start_sealing(LEDGER_ID, SIGNING, anchor or MemoryAnchor(), [])
        yield store
    finally:
        store.close()


def posting(key: str, *blocks: int, costs: Sequence[int] = ONE) -> Posting:
    """A charge on blocks, each a range of its own, under a key."""
    debits = [
        Debit(account, [[b, b] for b in blocks if (b > 10) == (account == 2)], tuple(costs))
        for account in (1, 2)
        if any((b > 10) == (account == 2) for b in blocks)
    ]
    return Posting.of(
        f'{{"kind":"charge","key":"{key}"}}'.encode(), hashlib.sha256(key.encode()).digest(), tuple(debits)
    )


def spent(url: str, block: int) -> int:
    """The first sum of a block; all eight are alike in these tests."""
    [row] = sql(url, f"SELECT {columns('left')} FROM budgets WHERE block = {block}")
    assert len(set(row)) == 1
    return CAP - int(row[0])


def entries(url: str) -> list[bytes]:
    """All bodies, in order."""
    return [bytes(body) for (body,) in sql(url, "SELECT body FROM entries ORDER BY seq")]
