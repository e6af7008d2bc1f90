"""Transactions in PostgreSQL: statements, entries and debits over one connection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, cast

from lapwing.ledger.anchors import Mark
from lapwing.ledger.entry import digest_of
from lapwing.ledger.stores.postgres_links import Link, new_number, psycopg
from lapwing.ledger.stores.schema import COSTS, OPEN, holds
from lapwing.ledger.stores.transaction import Debit, DoesNotFit, KeyTaken, Posting, Row, Transaction


def _charge_one() -> str:
    """One statement for one block. The number is drawn after the debit, since its row comes from there."""
    sums = ", ".join(f"left_{k} = greatest(left_{k} - %(cost_{k})s, -1)" for k in COSTS)
    fits = holds(lambda k: f"left_{k} - held_{k} >= %(cost_{k})s")
    return (
        f"WITH debited AS (UPDATE budgets SET {sums} WHERE block = %(block)s AND account = %(account)s "  # noqa: S608
        f"AND state = {OPEN} AND {fits} AND NOT EXISTS ({_BY_KEY}) RETURNING block) "
        "INSERT INTO entries (key, body, digest) "
        "SELECT %(key)b, %(body)b, %(digest)b FROM debited RETURNING seq"
    )


_BY_KEY = "SELECT 1 FROM entries WHERE key = %(key)b"
_CHARGE_ONE = _charge_one()
_COSTS = tuple(f"cost_{k}" for k in COSTS)
_CHARGE = "SELECT charge(%b, %b, %b, %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])"
_APPEND = "INSERT INTO entries (key, body, digest) VALUES (%b, %b, %b) RETURNING seq"
_SKIP = (
    "SELECT setval(sequence, %s) FROM pg_get_serial_sequence('entries', 'seq') AS sequence "
    "WHERE coalesce(pg_sequence_last_value(sequence::regclass), 0) < %s"
)
ROWS_AT_ONCE = 2000
_LOCK = "SELECT FROM budgets WHERE block = ANY(%s::bigint[]) ORDER BY block FOR UPDATE"


@lru_cache(maxsize=1024)
def _translated(sql: str) -> str:
    assert "%" not in sql
    assert not any("?" in literal for literal in sql.split("'")[1::2])
    return sql.replace("?", "%s")


def _array(numbers: Iterable[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def charge(link: Link, posting: Posting) -> int:
    """Debit and append, in one statement. Numbers travel as text: no plan hangs on their size."""
    debits = posting.debits
    if len(debits) == 1 and len(debits[0].ranges) == 1 and debits[0].ranges[0][0] == debits[0].ranges[0][1]:
        return _charge_block(link, posting, debits[0])
    # The function `charge` locks rows in the order of the ranges that it is given.
    ranges = sorted((first, last, k) for k, debit in enumerate(debits) for first, last in debit.ranges)
    arguments = (
        posting.key, posting.body, posting.digest,
        _array(first for first, _, _ in ranges), _array(last for _, last, _ in ranges),
        _array(k for _, _, k in ranges), _array(debit.account for debit in debits),
        _array(cost for debit in debits for cost in debit.costs),
    )  # fmt: skip
    row = link.run(_CHARGE, arguments, prepare=True).fetchone()
    assert row is not None
    if row[0] is None:
        raise KeyTaken
    return cast(int, row[0])


def _charge_block(link: Link, posting: Posting, debit: Debit) -> int:
    values: dict[str, Any] = dict(zip(_COSTS, map(str, debit.costs), strict=True))
    values["block"], values["account"] = str(debit.ranges[0][0]), str(debit.account)
    values["key"], values["body"], values["digest"] = posting.key, posting.body, posting.digest
    row = link.run(_CHARGE_ONE, values, prepare=True).fetchone()
    if row is None:
        raise KeyTaken if link.run(_BY_KEY, {"key": posting.key}).fetchone() else DoesNotFit
    return cast(int, row[0])


class Undone(psycopg.OperationalError):
    """The connection was lost, and what it had begun was undone."""

    sqlstate = "40000"


def was_refused(error: psycopg.Error) -> bool:
    """Whether the server answered with an error: then it undid the transaction, for certain."""
    return error.diag.severity_nonlocalized == "ERROR"


class PostgresTransaction(Transaction):
    """A transaction on one connection. Whoever made it ends it."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.marks: list[Mark] = []

    def _run(self, sql: str, parameters: Sequence[Any]) -> Any:
        # Without parameters nothing is translated: the schema has functions with a % in them.
        return self.link.run(_translated(sql), parameters) if parameters else self.link.run(sql)

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        return cast(list[Row], self._run(sql, parameters).fetchall())

    def stream(self, sql: str) -> Iterator[Row]:
        name = f"stream_{new_number()}"
        self.link.run(f"DECLARE {name} NO SCROLL CURSOR FOR {sql}")
        while rows := self.link.run(f"FETCH {ROWS_AT_ONCE} FROM {name}", binary=True).fetchall():
            yield from rows

    def run(self, sql: str, *parameters: Any) -> int:
        return cast(int, self._run(sql, parameters).rowcount)

    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        self.link.connection.cursor().executemany(_translated(sql), rows)

    def append(self, body: bytes, key: bytes | None = None) -> int:
        digest = digest_of(body)
        row = self.link.run(_APPEND, (key, body, digest), prepare=True).fetchone()
        assert row is not None
        self.marks.append(Mark(row[0], digest))
        return cast(int, row[0])

    def skip(self, last: int) -> None:
        # Nobody draws a number meanwhile: the sequence must not be set back behind one.
        self.link.run("LOCK TABLE entries IN SHARE ROW EXCLUSIVE MODE")
        self.link.run(_SKIP, (last, last))

    def debit(self, posting: Posting) -> int:
        seq = charge(self.link, posting)
        self.marks.append(Mark(seq, posting.digest))
        return seq

    def lock(self, blocks: Sequence[int]) -> None:
        self.link.run(_LOCK, (_array(blocks),))
