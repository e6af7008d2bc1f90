"""How accounts and blocks are written: each step is one transaction with its entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lapwing.errors import BadParameter
from lapwing.ledger.accounts import (
    ACCOUNT_COLUMNS,
    CURRENT_BLOCKS,
    EVERYONE,
    Account,
    Slices,
    Unit,
    in_numbers,
    row_of,
)
from lapwing.ledger.entry import Costs, Name, encode, now
from lapwing.ledger.keys import CuratorKey
from lapwing.ledger.stores.schema import COSTS, LOST, MOVED, OPEN, columns
from lapwing.ledger.stores.transaction import Transaction
from lapwing.privacy import Charge, Relation, Terms

_INSERT_BLOCK = "INSERT INTO blocks (block, account, root, name, label, salt) VALUES (?, ?, ?, ?, ?, ?)"
_INSERT_BUDGET = (
    f"INSERT INTO budgets (block, account, state, {columns('left')}, {columns('held')}) "  # noqa: S608
    f"VALUES ({', '.join('?' * (3 + 2 * len(COSTS)))})"
)


def _next(tx: Transaction, column: str, table: str) -> int:
    return int(tx.rows(f"SELECT coalesce(max({column}), 0) + 1 FROM {table}")[0][0])  # noqa: S608


def _insert_blocks(
    tx: Transaction, account: Account, first: int, names: Sequence[Name], left: Costs
) -> None:
    """Open blocks under the numbers from `first` on, each with this much left."""
    numbered = list(enumerate(names, first))
    tx.run_many(
        _INSERT_BLOCK,
        [(block, account.number, account.root, name.id, name.label, name.salt) for block, name in numbered],
    )
    nothing_held = (0,) * len(COSTS)
    tx.run_many(
        _INSERT_BUDGET, [(block, account.number, OPEN, *left, *nothing_held) for block, _ in numbered]
    )


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
    _insert_blocks(tx, account, account.everyone, [Name.new(EVERYONE)], account.terms.caps)


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

    New questions go to one account after the other, never to both: what each of them admits is (ε,
    δ)-private on its own, so together they are so for the sums. What is under way at the raise is argued
    in docs/arguments/ledger.md, d.
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
        f"SELECT block, name, label, salt FROM {CURRENT_BLOCKS} ORDER BY block",  # noqa: S608
        root.number,
    )
    tx.lock([row[0] for row in old])
    of_family = "block IN (SELECT block FROM blocks WHERE root = ?)"
    tx.run(f"UPDATE budgets SET state = {MOVED} WHERE {of_family} AND state < {MOVED}", root.number)  # noqa: S608
    _insert(tx, account)
    moved = [row for row in old if row[2] != EVERYONE]
    pairs = [[row[0], block + 1 + k] for k, row in enumerate(moved)]
    names = [Name(label, bytes(salt), name) for _, name, label, salt in moved]
    _insert_blocks(tx, account, block + 1, names, terms.caps)
    body = _body(account, moved=pairs)
    body["signature"] = curator.sign(encode(body)).hex()
    tx.append(encode(body))
    return account


def insert_blocks(tx: Transaction, family: Sequence[Account], labels: Sequence[str]) -> None:
    """New blocks. Whoever is in one may have been charged as part of everyone, and stays so."""
    newest = family[-1]
    tx.lock([newest.everyone])
    if any(_everyone(tx, newest, "held")):
        raise BadParameter("blocks", "a reservation holds for everyone: settle it before opening blocks")
    if tx.rows(f"SELECT 1 FROM budgets WHERE block = ? AND state = {LOST}", newest.everyone):  # noqa: S608
        raise BadParameter("blocks", "this ledger was recovered: raise the account first")
    account = _account_for_new_blocks(tx, family)
    for start in range(0, len(labels), 500):
        some = labels[start : start + 500]
        marks = ", ".join("?" * len(some))
        # A name that was ever opened is still current: blocks move with their names.
        sql = f"SELECT 1 FROM blocks WHERE root = ? AND label IN ({marks}) LIMIT 1"  # noqa: S608
        if tx.rows(sql, account.root, *some):
            raise BadParameter("blocks", "there is a block of this name; a block opens once")
    first = _next(tx, "block", "blocks")
    names = [Name.new(label) for label in labels]
    _insert_blocks(tx, account, first, names, _everyone(tx, account, "left"))
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
    raised_spent = any(_everyone(tx, account, "left") != account.terms.caps for account in family[1:])
    first = family[0]
    free = Charge(first.terms.orders, first.terms.nothing_spent)
    usable = first.terms.after(first.spent(_everyone(tx, first, "left")), free) is not None
    return first if usable and not raised_spent else family[-1]


def _everyone(tx: Transaction, account: Account, prefix: str) -> Costs:
    """What is left or held in the block of everyone."""
    sql = f"SELECT {columns(prefix)} FROM budgets WHERE block = ?"  # noqa: S608
    return tuple(tx.rows(sql, account.everyone)[0])
