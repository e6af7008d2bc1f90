"""Looking up accounts, blocks and principals of an open ledger by their names. It costs no budget.

Accounts never change and are cached. Blocks may move to a raised account; the caller that does not find one
looks it up again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from lapwing.config.values import checked_label
from lapwing.core.process_bound import ProcessBound
from lapwing.errors import BadParameter, Tampered
from lapwing.ledger.accounts import (
    BLOCK_COLUMNS,
    CURRENT_BLOCKS,
    EVERYONE,
    Account,
    Block,
    accounts_where,
    block_of,
)
from lapwing.ledger.entry import CommittedName, Ranges, commitment, ranges_of
from lapwing.ledger.store import Row, Store, Transaction

FEW = 500
MOST_REMEMBERED = 4096
_EVERYONE = (EVERYONE,)
AccountRanges = tuple[tuple[int, Ranges], ...]  # the block numbers in each account


class LedgerLookup(ProcessBound):
    """The read-only part of a ledger: accounts, blocks and principals."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self._accounts: dict[int, Account] = {}
        self._roots: dict[str, Account] = {}
        self._principals: dict[str, str] = {}
        self._found: dict[int, dict[Sequence[str], AccountRanges]] = {}
        self._learning = threading.Lock()

    def account(self, label: str) -> Account:
        """Return the account of this name, as first opened."""
        known = self._roots.get(label)
        if known is not None:
            return known
        label = checked_label(label, "account")
        found = self.store.read(lambda tx: accounts_where(tx, "label = ? AND raises IS NULL", label))
        if not found:
            raise BadParameter("account", "is not known to this ledger")
        return self.remember(found[0])

    def accounts(self) -> tuple[Account, ...]:
        """Return all accounts, including raised ones, in the order of opening."""
        return tuple(map(self.remember, self.store.read(accounts_where)))

    def numbered(self, number: int) -> Account:
        """Return the account of this number."""
        if number not in self._accounts:
            self.accounts()
        return self._accounts[number]

    def blocks(self, label: str) -> tuple[Block, ...]:
        """Return the current blocks of an account, including `*`."""
        return tuple(block for _, block in self.look_at(self.account(label), ()))

    def look_at(self, root: Account, labels: Sequence[str]) -> list[tuple[Account, Block]]:
        """Return the named blocks of a family with their accounts; without names, all blocks."""
        rows = self._rows(root, BLOCK_COLUMNS, labels)
        wanted = set(labels)
        owned = [(self.numbered(row[1]), row) for row in rows if not wanted or row[3] in wanted]
        return [(account, block_of(row, account)) for account, row in owned]

    def _rows(self, root: Account, names: str, labels: Sequence[str]) -> list[Row]:
        """Return columns of a family's current blocks: of the labels if they are few, else of all."""
        few = labels if len(labels) <= FEW else ()
        among = f" AND label IN ({', '.join('?' * len(few))})" if few else ""
        sql = f"SELECT {names} FROM {CURRENT_BLOCKS}{among} ORDER BY block"  # noqa: S608
        return self.store.rows(sql, root.number, *few)

    def current_ranges(self, root: Account, labels: Sequence[str]) -> AccountRanges:
        """Return the account and block numbers of named blocks; without names, of `*`.

        The same blocks are asked for again and again, so the result is cached until `forget_blocks`.
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

    def _find(self, root: Account, labels: Sequence[str]) -> AccountRanges:
        wanted = set(labels)
        found = [row for row in self._rows(root, "account, block, label", labels) if row[2] in wanted]
        if len({label for _, _, label in found}) < len(wanted):
            raise BadParameter("blocks", "there is no such block: open it first")
        return _ranges_by_account(found)  # if two had the same name, both would be charged

    def forget_blocks(self, root: Account) -> None:
        """Drop cached block numbers: blocks may have moved."""
        self._found.pop(root.number, None)

    def everyone(self, tx: Transaction, root: Account) -> AccountRanges:
        """Return the account and block numbers of all blocks of a family, while nobody can open one."""
        sql = f"SELECT account, block FROM {CURRENT_BLOCKS} ORDER BY block"  # noqa: S608
        return _ranges_by_account(tx.rows(sql, root.number))

    def principal(self, label: str) -> str:
        """Return the id that stands for a principal in entries. A new principal gets one."""
        known = self._principals.get(label)
        if known is None:
            known = self._principals[label] = self._find_principal(checked_label(label, "principal"))
        return known

    def _find_principal(self, label: str) -> str:
        query = "SELECT name, salt FROM principals WHERE label = ?"
        rows = self.store.rows(query, label)
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
        """Return the label of a principal, given its id."""
        query = "SELECT label, salt FROM principals WHERE name = ?"
        rows = self.store.rows(query, name)
        if not rows or commitment(rows[0][0], bytes(rows[0][1])) != name:
            raise Tampered([f"principal {name} was renamed"])
        return str(rows[0][0])

    def family(self, tx: Transaction, root: Account) -> list[Account]:
        """Return the accounts of a family: the first one, then each raise."""
        return accounts_where(tx, "root = ?", root.number)

    def remember(self, account: Account) -> Account:
        """Cache an account: it never changes."""
        with self._learning:
            self._accounts[account.number] = account
            if account.raises is None:
                self._roots[account.label] = account
        return account


def _ranges_by_account(rows: Iterable[Row]) -> AccountRanges:
    """Return the block numbers of each account as ranges, given rows that begin with account and block."""
    blocks: dict[int, list[int]] = {}
    for account, block, *_ in rows:
        blocks.setdefault(account, []).append(block)
    return tuple([(account, ranges_of(numbers)) for account, numbers in sorted(blocks.items())])
