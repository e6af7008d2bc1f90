"""How accounts and blocks are written: each step is one transaction with its entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lapwing.errors import BadParameter
from lapwing.ledger.accounts import ACCOUNT_COLUMNS, EVERYONE, Account, Slices, Unit, in_numbers, row_of
from lapwing.ledger.entry import Costs, Name, encode, now
from lapwing.ledger.keys import CuratorKey
from lapwing.ledger.stores.schema import COSTS, LOST, MOVED, OPEN, columns
from lapwing.ledger.stores.store import Row, Transaction
from lapwing.privacy import Charge, Relation, Terms

_INSERT_BLOCK = (
    "INSERT INTO blocks (block, account, root, name, label, salt, state, "  # noqa: S608 (names of columns)
    f"{columns('cap')}, {columns('spent')}, {columns('held')}) "
    f"VALUES ({', '.join('?' * (7 + 3 * len(COSTS)))})"
)


def _next(tx: Transaction, column: str, table: str) -> int:
    return int(tx.rows(f"SELECT coalesce(max({column}), 0) + 1 FROM {table}")[0][0])  # noqa: S608


def _block_row(number: int, account: Account, name: Name, spent: Costs) -> Row:
    nothing = account.terms.nothing_spent
    return (
        number, account.number, account.root, name.id, name.label, name.salt, OPEN,
        *account.terms.caps, *spent, *nothing,
    )  # fmt: skip


def new_account(
    tx: Transaction,
    name: Name,
    terms: Terms,
    *,
    unit: Unit,
    relation: Relation,
    slices: Slices,
    rule: str,
) -> Account:
    """A family's first account."""
    number = _next(tx, "account", "accounts")
    account = Account(
        number=number,
        root=number,
        name=name,
        unit=unit,
        relation=relation,
        terms=terms,
        slices=slices,
        rule=rule,
        everyone=_next(tx, "block", "blocks"),
        raises=None,
    )
    _insert(tx, account)
    tx.append(encode(_body(account)))
    return account


def _insert(tx: Transaction, account: Account) -> None:
    marks = ", ".join("?" * len(ACCOUNT_COLUMNS.split(",")))
    tx.run(f"INSERT INTO accounts ({ACCOUNT_COLUMNS}) VALUES ({marks})", *row_of(account))  # noqa: S608
    everyone = Name.new(EVERYONE)
    tx.run(_INSERT_BLOCK, *_block_row(account.everyone, account, everyone, account.terms.nothing_spent))


def _body(account: Account, **more: Any) -> dict[str, Any]:
    terms = account.terms
    return {
        "kind": "account",
        "at": now(),
        "account": account.number,
        "name": account.name.id,
        "unit": account.unit.value,
        "relation": account.relation.value,
        "epsilon": str(terms.epsilon),
        "delta": str(terms.delta),
        "orders": terms.orders,
        "caps": terms.caps,
        "slices": account.slices.value,
        "rule": account.rule,
        "everyone": account.everyone,
        "raises": account.raises,
        "signature": None,
        **more,
    }


def raised_account(
    tx: Transaction, family: Sequence[Account], terms: Terms, curator: CuratorKey
) -> Account:
    """A further account of a family. All blocks move into it, and the old ones are closed for ever.

    One account after the other, never both: what each of them admits is (ε, δ)-private on its own, so
    together they are so for the sums, by composition one after the other.
    """
    root = family[0]
    numbers = in_numbers([account.number for account in family])
    if tx.rows(f"SELECT 1 FROM reservations WHERE ended = 0 AND account IN ({numbers}) LIMIT 1"):  # noqa: S608
        raise BadParameter("account", "has open reservations: settle them before raising")
    number, block = _next(tx, "account", "accounts"), _next(tx, "block", "blocks")
    account = Account(
        number=number,
        root=root.number,
        name=root.name,
        unit=root.unit,
        relation=root.relation,
        terms=terms,
        slices=root.slices,
        rule=root.rule,
        everyone=block,
        raises=root.number,
    )
    old = tx.rows(
        f"SELECT block, name, label, salt FROM blocks WHERE root = ? AND state < {MOVED} ORDER BY block",  # noqa: S608
        root.number,
    )
    tx.lock([row[0] for row in old])
    tx.run(f"UPDATE blocks SET state = {MOVED} WHERE root = ? AND state < {MOVED}", root.number)  # noqa: S608
    _insert(tx, account)
    moved = [row for row in old if row[2] != EVERYONE]
    pairs = [[row[0], block + 1 + k] for k, row in enumerate(moved)]
    rows = [
        _block_row(new, account, Name(label, bytes(salt), name), terms.nothing_spent)
        for (_, new), (_, name, label, salt) in zip(pairs, moved, strict=True)
    ]
    tx.run_many(_INSERT_BLOCK, rows)
    body = _body(account, moved=pairs)
    body["signature"] = curator.sign(encode(body)).hex()
    tx.append(encode(body))
    return account


def insert_blocks(tx: Transaction, family: Sequence[Account], labels: Sequence[str]) -> None:
    """New blocks. Whoever is in one may have been charged as part of everyone, and stays so."""
    newest = family[-1]
    tx.lock([newest.everyone])
    if any(_sums(tx, newest.everyone, "held")):
        raise BadParameter("blocks", "a reservation holds for everyone: settle it before opening blocks")
    if tx.rows(f"SELECT 1 FROM blocks WHERE block = ? AND state = {LOST}", newest.everyone):  # noqa: S608
        raise BadParameter("blocks", "this ledger was recovered: raise the account first")
    account = _account_for_new_blocks(tx, family)
    for start in range(0, len(labels), 500):
        some = labels[start : start + 500]
        marks = ", ".join("?" * len(some))
        sql = f"SELECT 1 FROM blocks WHERE root = ? AND state < {MOVED} AND label IN ({marks}) LIMIT 1"  # noqa: S608
        if tx.rows(sql, account.root, *some):
            raise BadParameter("blocks", "there is a block of this name; a block opens once")
    spent = _sums(tx, account.everyone, "spent")
    first = _next(tx, "block", "blocks")
    names = [Name.new(label) for label in labels]
    tx.run_many(
        _INSERT_BLOCK, [_block_row(first + k, account, name, spent) for k, name in enumerate(names)]
    )
    body = {
        "kind": "blocks",
        "at": now(),
        "account": account.number,
        "first": first,
        "names": [name.id for name in names],
    }
    tx.append(encode(body))


def _account_for_new_blocks(tx: Transaction, family: Sequence[Account]) -> Account:
    """After a raise the first account again, with its whole budget; else the newest.

    Not where everyone was charged since: then the new blocks' units have begun to spend from a raised
    account, and accounts are spent one after the other. Nor where the first account was lost.
    """
    raised_spent = any(any(_sums(tx, account.everyone, "spent")) for account in family[1:])
    first = family[0]
    free = Charge(first.terms.orders, first.terms.nothing_spent)
    usable = first.terms.after(_sums(tx, first.everyone, "spent"), free) is not None
    return first if usable and not raised_spent else family[-1]


def _sums(tx: Transaction, block: int, prefix: str) -> Costs:
    return tuple(tx.rows(f"SELECT {columns(prefix)} FROM blocks WHERE block = ?", block)[0])  # noqa: S608
