"""What an open ledger knows: accounts, blocks and principals, by the names that people give them.

Accounts never change and are remembered. Blocks may move to a raised account; whoever finds one gone
looks again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from lapwing.core.budget import ProcessBound
from lapwing.errors import BadParameter, Tampered
from lapwing.ledger.accounts import (
    ACCOUNT_COLUMNS,
    BLOCK_COLUMNS,
    CURRENT_BLOCKS,
    EVERYONE,
    Account,
    Block,
    account_of,
    block_of,
)
from lapwing.ledger.entry import CommittedName, Ranges, checked_label, commitment, ranges_of
from lapwing.ledger.store import Row, Store, Transaction

FEW = 500
MOST_REMEMBERED = 4096
_EVERYONE = (EVERYONE,)


class LedgerLookup(ProcessBound):
    """Looking, which is free."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self._accounts: dict[int, Account] = {}
        self._roots: dict[str, Account] = {}
        self._principals: dict[str, str] = {}
        self._found: dict[int, dict[Sequence[str], tuple[tuple[int, Ranges], ...]]] = {}
        self._learning = threading.Lock()

    def account(self, label: str) -> Account:
        """The account of this name, as first opened."""
        known = self._roots.get(label)
        if known is not None:
            return known
        label = checked_label(label, "account")
        if label not in self._roots:
            rows = self.store.read(
                lambda tx: tx.rows(
                    f"SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE label = ? AND raises IS NULL",  # noqa: S608
                    label,
                )
            )
            if not rows:
                raise BadParameter("account", "is not known to this ledger")
            self.learn(account_of(rows[0]))
        return self._roots[label]

    def accounts(self) -> tuple[Account, ...]:
        """All accounts, raised ones included, in the order of opening."""
        rows = self.store.read(
            lambda tx: tx.rows(f"SELECT {ACCOUNT_COLUMNS} FROM accounts ORDER BY account")  # noqa: S608
        )
        return tuple(self.learn(account_of(row)) for row in rows)

    def numbered(self, number: int) -> Account:
        """The account of this number."""
        if number not in self._accounts:
            self.accounts()
        return self._accounts[number]

    def blocks(self, label: str) -> tuple[Block, ...]:
        """The current blocks of an account, `*` first if nothing else is open yet."""
        return tuple(block for _, block in self.look_at(self.account(label), ()))

    def look_at(self, root: Account, labels: Sequence[str]) -> list[tuple[Account, Block]]:
        """The named blocks of a family with the accounts they are in; without names, all."""
        rows = self._rows(root, BLOCK_COLUMNS, labels)
        wanted = set(labels)
        owned = [(self.numbered(row[1]), row) for row in rows if not wanted or row[3] in wanted]
        return [(account, block_of(row, account)) for account, row in owned]

    def _rows(self, root: Account, names: str, labels: Sequence[str]) -> list[Row]:
        """Of a family's current blocks: of those with few labels only they, of many labels all."""
        few = labels if len(labels) <= FEW else ()
        among = f" AND label IN ({', '.join('?' * len(few))})" if few else ""
        sql = f"SELECT {names} FROM {CURRENT_BLOCKS}{among} ORDER BY block"  # noqa: S608
        return self.store.read(lambda tx: tx.rows(sql, root.number, *few))

    def current_ranges(self, root: Account, labels: Sequence[str]) -> tuple[tuple[int, Ranges], ...]:
        """Under which account and block numbers the blocks stand now; `*` without names.

        The same blocks are asked for again and again, so what was found is kept, until somebody finds
        that it does not hold any more.
        """
        found, wanted = self._found.get(root.number), labels or _EVERYONE
        ranges = found.get(wanted) if found else None
        if ranges is None:
            ranges = self._find(root, wanted)
            kept = self._found.setdefault(root.number, {})
            if len(kept) >= MOST_REMEMBERED:
                kept.clear()
            kept[tuple(wanted)] = ranges
        return ranges

    def _find(self, root: Account, labels: Sequence[str]) -> tuple[tuple[int, Ranges], ...]:
        wanted = set(labels)
        found = [row for row in self._rows(root, "label, account, block", labels) if row[0] in wanted]
        blocks: dict[int, list[int]] = {}
        for _, account, block in found:  # all of them: were there ever two of a name, both would pay
            blocks.setdefault(account, []).append(block)
        if len({label for label, _, _ in found}) < len(wanted):
            raise BadParameter("blocks", "there is no such block; blocks exist by declaration")
        return tuple([(account, ranges_of(numbers)) for account, numbers in sorted(blocks.items())])

    def forget_blocks(self, root: Account) -> None:
        """Look blocks up again: they may have moved."""
        self._found.pop(root.number, None)

    def everyone(self, tx: Transaction, root: Account) -> tuple[tuple[int, Ranges], ...]:
        """The same for all blocks of a family, `*` included, while nobody can open one."""
        blocks: dict[int, list[int]] = {}
        sql = f"SELECT account, block FROM {CURRENT_BLOCKS} ORDER BY block"  # noqa: S608
        for account, block in tx.rows(sql, root.number):
            blocks.setdefault(account, []).append(block)
        return tuple([(account, ranges_of(numbers)) for account, numbers in sorted(blocks.items())])

    def principal(self, label: str) -> str:
        """The id under which a principal stands in entries."""
        known = self._principals.get(label)
        if known is None:
            known = self._principals[label] = self._find_principal(checked_label(label, "principal"))
        return known

    def _find_principal(self, label: str) -> str:
        query = "SELECT name, salt FROM principals WHERE label = ?"
        rows = self.store.read(lambda tx: tx.rows(query, label))
        if rows:
            known, salt = rows[0]
            if commitment(label, bytes(salt)) != known:  # opening does not look at principals
                raise Tampered([f"principal {known} was renamed"])
            return str(known)
        name = CommittedName.new(label)

        def work(tx: Transaction) -> str:
            known = tx.rows(query, label)
            if known:
                return str(known[0][0])
            tx.run("INSERT INTO principals (name, label, salt) VALUES (?, ?, ?)", name.id, label, name.salt)
            return name.id

        return self.store.write(work)

    def label_of(self, name: str) -> str:
        """Who a principal is, by the id under which it stands in entries."""
        query = "SELECT label, salt FROM principals WHERE name = ?"
        rows = self.store.read(lambda tx: tx.rows(query, name))
        if not rows or commitment(rows[0][0], bytes(rows[0][1])) != name:
            raise Tampered([f"principal {name} was renamed"])
        return str(rows[0][0])

    def family(self, tx: Transaction, root: Account) -> list[Account]:
        """The root and what it was raised by, oldest first."""
        rows = tx.rows(
            f"SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE root = ? ORDER BY account",  # noqa: S608
            root.number,
        )
        return [account_of(row) for row in rows]

    def learn(self, account: Account) -> Account:
        """Remember an account: nothing of it ever changes."""
        with self._learning:
            self._accounts[account.number] = account
            if account.raises is None:
                self._roots[account.label] = account
        return account
