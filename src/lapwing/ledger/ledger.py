"""The ledger: opening it, opening accounts and blocks, raising, looking. Spending is elsewhere.

Claim    a budget is for life: no restart, rename, restore, date or refund gives any of it back.
Because  entries only grow, every table is compared with them at opening, and the anchors outside the
         database know the latest of them; caps are fixed, and a raise is a signed second account whose
         (ε, δ) is added up in every statement.
Test     tests/ledger/, tests/faults/test_ledger_tampering.py
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from lapwing.errors import BadParameter, Tampered
from lapwing.exact import Number
from lapwing.ledger import places
from lapwing.ledger.accounts import (
    ACCOUNT_COLUMNS,
    BLOCK_COLUMNS,
    EVERYONE,
    Account,
    Block,
    Slices,
    Unit,
    account_of,
    block_of,
)
from lapwing.ledger.check import Report, check
from lapwing.ledger.entry import FORMAT, Name, checked_label, encode, now
from lapwing.ledger.keys import CuratorKey, LedgerKeys
from lapwing.ledger.opening import insert_blocks, new_account, raised_account
from lapwing.ledger.schema import MIGRATIONS, MOVED
from lapwing.ledger.store import Row, Store, Transaction
from lapwing.noise import random_bytes
from lapwing.privacy import Relation, Terms
from lapwing.privacy.once import Once

MOST_BLOCKS_AT_ONCE = 10_000
FEW = 500


class Ledger(Once):
    """An open ledger. Threads may share it; a forked child opens its own."""

    def __init__(self, store: Store, keys: LedgerKeys, ledger_id: str, curator: bytes) -> None:
        super().__init__()
        self.store = store
        self.keys = keys
        self.id = ledger_id
        self.curator = curator
        self._accounts: dict[int, Account] = {}
        self._roots: dict[str, Account] = {}
        self._principals: dict[str, str] = {}
        self._blocks: dict[int, dict[str, tuple[int, int]]] = {}
        self._learning = threading.Lock()

    # Opening and closing

    @classmethod
    def create(
        cls,
        where: str | Path,
        *,
        curator: Path | None = None,
        keys: Path | None = None,
        anchor: str | Path | None = None,
    ) -> Ledger:
        """A new ledger with new keys. The curator's key should then be moved to a safe place."""
        place = places.Place.of(where, keys=keys, anchor=anchor)
        place.require_nothing()
        curator_path = curator or place.curator
        store = place.store(create=True)
        own = LedgerKeys.create(place.keys)
        key = CuratorKey.create(curator_path)
        ledger_id = random_bytes(16)
        store.migrate(MIGRATIONS)
        store.attend(ledger_id, own.signing, place.anchor, place.witnesses(ledger_id.hex()))
        genesis = {
            "kind": "genesis",
            "at": now(),
            "ledger": ledger_id.hex(),
            "key": own.signing.public.hex(),
            "curator": key.public.hex(),
            "format": FORMAT,
        }
        store.write(lambda tx: tx.append(encode(genesis)))
        store.seal()
        return cls(store, own, ledger_id.hex(), key.public)

    @classmethod
    def open(
        cls, where: str | Path, *, keys: Path | None = None, anchor: str | Path | None = None
    ) -> Ledger:
        """Open after checking everything against the entries and the anchors, or raise `Tampered`."""
        place = places.Place.of(where, keys=keys, anchor=anchor)
        own = LedgerKeys.load(place.keys)
        store = place.store(create=False)
        try:
            store.migrate(MIGRATIONS)
            ledger_id = id_of(store)
            witnesses = place.witnesses(ledger_id)
            known = (place.anchor, *(witness for witness in witnesses if witness.exists()))
            report = check(store, own.signing.public, known, thorough=False)
            if report.findings:
                raise Tampered(report.findings)
            store.attend(bytes.fromhex(ledger_id), own.signing, place.anchor, witnesses)
            if report.sealed < report.replay.entries or len(known) <= len(witnesses):
                store.seal()  # a crash left entries of which the witnesses do not know
            return cls(store, own, ledger_id, report.replay.curator)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Seal what is not sealed yet, and let go."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def verify(self) -> Report:
        """Replay all of history with the second accountant, every price and signature included."""
        self.store.seal()
        anchors = (*self.store.anchors, *self.store.witnesses)
        return check(self.store, self.keys.signing.public, anchors, thorough=True, people=self.keys.people)

    # Accounts and blocks

    def open_account(
        self,
        label: str,
        *,
        epsilon: Number,
        delta: Number,
        unit: Unit,
        relation: Relation,
        slices: Slices = Slices.NONE,
        rule: str = "",
    ) -> Account:
        """Open an account. Nothing of it can ever be changed."""
        label = checked_label(label, "account")
        if slices is not Slices.NONE:
            rule = checked_label(rule, "rule")
        elif rule:
            raise BadParameter("rule", "an account without slices has no rule")
        if (unit is Unit.PERSON_AND_PERIOD) != (slices is Slices.PERIODS):
            raise BadParameter(
                "unit", "rows sliced by time protect a person and period, and nothing else does"
            )
        terms = Terms.of(epsilon, delta)

        def work(tx: Transaction) -> Account:
            if tx.rows("SELECT 1 FROM accounts WHERE label = ? AND raises IS NULL", label):
                raise BadParameter("account", "there is one of this name: caps never change, `raise` it")
            return new_account(
                tx, Name.new(label), terms, unit=unit, relation=relation, slices=slices, rule=rule
            )

        self.require_here()
        return self._learn(self.store.write(work))

    def open_blocks(self, label: str, names: Iterable[str]) -> None:
        """Open blocks, each with the whole budget less what was charged to everyone."""
        account = self.account(label)
        if account.slices is Slices.NONE:
            raise BadParameter("blocks", "the account has no slices")
        labels = [checked_label(name, "block") for name in names]
        if EVERYONE in labels or len(set(labels)) < len(labels):
            raise BadParameter("blocks", 'must be different names other than "*"')
        self.require_here()
        for start in range(0, len(labels), MOST_BLOCKS_AT_ONCE):
            self._open_some(account, labels[start : start + MOST_BLOCKS_AT_ONCE])

    def _open_some(self, account: Account, labels: list[str]) -> None:
        self.store.write(lambda tx: insert_blocks(tx, self._family(tx, account), labels))

    def raise_budget(self, label: str, *, epsilon: Number, delta: Number, curator: CuratorKey) -> Account:
        """Open a second account of (ε, δ) over the same data. Every statement then shows the sum."""
        root = self.account(label)
        terms = Terms.of(epsilon, delta)
        if curator.public != self.curator:
            raise BadParameter("curator", "is not the key of this ledger's curator")
        self.require_here()
        account = self.store.write(lambda tx: raised_account(tx, self._family(tx, root), terms, curator))
        self.forget_blocks(root)
        return self._learn(account)

    # Looking, which is free

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
            self._learn(account_of(rows[0]))
        return self._roots[label]

    def accounts(self) -> tuple[Account, ...]:
        """All accounts, raised ones included, in the order of opening."""
        rows = self.store.read(
            lambda tx: tx.rows(f"SELECT {ACCOUNT_COLUMNS} FROM accounts ORDER BY account")  # noqa: S608
        )
        return tuple(self._learn(account_of(row)) for row in rows)

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
        found = [block_of(row) for row in rows if not wanted or row[3] in wanted]
        return [(self.numbered(block.account), block) for block in found]

    def _rows(self, root: Account, names: str, labels: Sequence[str]) -> list[Row]:
        """Of a family's current blocks: of those with few labels only they, of many labels all."""
        few = labels if len(labels) <= FEW else ()
        among = f" AND label IN ({', '.join('?' * len(few))})" if few else ""
        sql = f"SELECT {names} FROM blocks WHERE root = ? AND state < {MOVED}{among} ORDER BY block"  # noqa: S608
        return self.store.read(lambda tx: tx.rows(sql, root.number, *few))

    def current_blocks(self, root: Account, labels: Sequence[str]) -> list[tuple[int, int]]:
        """(account, block) numbers under which the blocks stand now; of `*` without names."""
        wanted = labels or (EVERYONE,)
        known = self._blocks.get(root.number)
        if known is None:
            known = self._blocks.setdefault(root.number, {})
        missing = [label for label in wanted if label not in known]
        if missing:
            names = set(missing)
            for label, account, block in self._rows(root, "label, account, block", missing):
                if label in names:
                    known[label] = (account, block)
        try:
            return [known[label] for label in wanted]
        except KeyError:
            raise BadParameter("blocks", "there is no such block; blocks exist by declaration") from None

    def forget_blocks(self, root: Account) -> None:
        """Look blocks up again: they may have moved."""
        self._blocks.pop(root.number, None)

    def everyone(self, tx: Transaction, root: Account) -> list[tuple[int, int]]:
        """(account, block) of all blocks of a family, `*` included, while nobody can open one."""
        return [
            (account, block)
            for account, block in tx.rows(
                f"SELECT account, block FROM blocks WHERE root = ? AND state < {MOVED} ORDER BY block",  # noqa: S608
                root.number,
            )
        ]

    def principal(self, label: str) -> str:
        """The id under which a principal stands in entries."""
        known = self._principals.get(label)
        if known is None:
            known = self._principals[label] = self._find_principal(checked_label(label, "principal"))
        return known

    def _find_principal(self, label: str) -> str:
        query = "SELECT name FROM principals WHERE label = ?"
        rows = self.store.read(lambda tx: tx.rows(query, label))
        if rows:
            return str(rows[0][0])
        name = Name.new(label)

        def work(tx: Transaction) -> str:
            known = tx.rows(query, label)
            if known:
                return str(known[0][0])
            tx.run("INSERT INTO principals (name, label, salt) VALUES (?, ?, ?)", name.id, label, name.salt)
            return name.id

        return self.store.write(work)

    def _family(self, tx: Transaction, root: Account) -> list[Account]:
        """The root and what it was raised by, oldest first."""
        rows = tx.rows(
            f"SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE root = ? ORDER BY account",  # noqa: S608
            root.number,
        )
        return [account_of(row) for row in rows]

    def _learn(self, account: Account) -> Account:
        with self._learning:
            self._accounts[account.number] = account
            if account.raises is None:
                self._roots[account.label] = account
        return account


def id_of(store: Store) -> str:
    """Whose ledger it says it is, which decides where its witnesses are looked for."""
    first = store.read(lambda tx: tx.rows("SELECT body FROM entries ORDER BY seq LIMIT 1"))
    try:
        return bytes.fromhex(json.loads(bytes(first[0][0]))["ledger"]).hex()
    except (IndexError, KeyError, TypeError, ValueError):
        raise Tampered([f"{store.where} does not begin as a ledger does"]) from None
