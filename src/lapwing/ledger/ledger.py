"""The ledger: making it, opening it after a check, verifying it, its accounts. `ledger.gate` charges.

Claim    a budget is for life: no restart, rename, restore, date or refund gives any of it back.
Because  entries only grow. Everything that decides a charge is compared with them at opening, and the
         anchors outside the database know the latest entries. Caps are fixed, and a raise is a signed
         second account whose (ε, δ) is added in every statement.
Test     tests/ledger/, tests/faults/test_ledger_tampering.py

Checks: the curator looked at exact counts of the data.

Claim    a statement shows every check, and every later policy that differs from the checked one.
Because  the curator signs an entry before any row is read for a check. When a checked account is used,
         the digest of the policy is compared with the digests in its entries. No entry holds a count.
Test     tests/ledger/test_ledger_checks.py, tests/sql/test_cell_check.py
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from lapwing.config.values import checked_label
from lapwing.core import Relation, Terms
from lapwing.core.exact import Number
from lapwing.core.noise import random_bytes
from lapwing.core.process_bound import ProcessBound
from lapwing.errors import BadParameter, Tampered
from lapwing.ledger.accountant.replay import Replay
from lapwing.ledger.accounts import (
    EVERYONE,
    Account,
    AccountRanges,
    Block,
    Read,
    Slices,
    Unit,
    accounts_where,
    current_blocks,
    drafted_account,
    look_at,
    new_account,
    raised_account,
    ranges_by_account,
    require_same,
)
from lapwing.ledger.check import CheckReport, check
from lapwing.ledger.entry import FORMAT, CommittedName, CuratorCheck, commitment, encode, encode_signed, now
from lapwing.ledger.keys import CuratorKey, LedgerKeys
from lapwing.ledger.ledger_place import LedgerPlace, location_of
from lapwing.ledger.openings import OpenedMeanwhile, Openings, open_blocks
from lapwing.ledger.registry import OpenCopy
from lapwing.ledger.store import SignedState, Store, Transaction, keep_state, last_seal

MOST_REMEMBERED = 4096
_EVERYONE = (EVERYONE,)
_FIRST = "label = ? AND raises IS NULL"

_PRINCIPAL = "SELECT name, salt FROM principals WHERE label = ?"


class RunningRequests:
    """The requests that run in this process, by their hashed keys.

    Several threads may try the same key. Only the thread whose charge was accepted stays in it.
    """

    def __init__(self) -> None:
        self._tries: dict[bytes, int] = {}
        self._unrecorded: list[int] = []  # failed charges that the ledger has not recorded
        self._counting = threading.Lock()

    def begin(self, key: bytes) -> None:
        """Note that a thread tries this key."""
        with self._counting:
            self._tries[key] = self._tries.get(key, 0) + 1

    def end(self, key: bytes) -> None:
        """Note that a thread has finished, or did not get the key."""
        with self._counting:
            tries = self._tries.get(key, 0) - 1
            if tries > 0:
                self._tries[key] = tries
            else:
                self._tries.pop(key, None)

    def give_up(self, key: bytes, position: int) -> None:
        """Note that a charge has failed without an answer."""
        self.end(key)
        with self._counting:
            self._unrecorded.append(position)

    def unrecorded_failures(self) -> tuple[int, ...]:
        """Return the failed charges that are not recorded in the ledger yet."""
        return tuple(self._unrecorded)

    def recorded(self, position: int) -> None:
        """Note that a failed charge is recorded. Several threads may call it for the same charge."""
        with self._counting:
            if position in self._unrecorded:
                self._unrecorded.remove(position)

    def __contains__(self, key: bytes) -> bool:
        return key in self._tries


class Ledger(ProcessBound):
    """An open ledger. Threads may share it; a forked child opens its own.

    Looking up names costs no budget. Accounts never change and are cached. Blocks may move to a raised
    account; the caller that does not find one looks it up again.

    Example:
        >>> from lapwing.ledger import Ledger, Unit
        >>> from lapwing.core import Relation
        >>> with Ledger.create("visits.ledger") as ledger:
        ...     account = ledger.open_account(
        ...         "patients", epsilon=1, delta="1e-6", unit=Unit.PERSON, relation=Relation.ADD_REMOVE
        ...     )
    """

    def __init__(
        self, store: Store, keys: LedgerKeys, place: LedgerPlace, copy: OpenCopy, replay: Replay
    ) -> None:
        super().__init__()
        self.store, self.keys, self.id = store, keys, replay.ledger
        self.curator, self.checks = replay.curator, list(replay.checks)
        self.registry, self._copy = place.registry, copy
        self.is_registered_anew = bool(replay.registered)  # in a registry that knew nobody of its people
        self.other_ledgers = set(replay.other_ledgers)  # whose people are others, as the curator signed
        self.running, self.openings = RunningRequests(), Openings()
        self._accounts: dict[int, Account] = {}
        self._roots: dict[str, Account] = {}
        self._principals: dict[str, str] = {}
        self._found: dict[int, dict[Sequence[str], AccountRanges]] = {}
        self._learning = threading.Lock()

    @classmethod
    def create(
        cls,
        where: str | Path,
        *,
        curator: Path | None = None,
        keys: Path | None = None,
        anchor: str | Path | None = None,
        registry: str = "",
        notify: Callable[[str], None] = lambda _: None,
    ) -> Ledger:
        """Create a new ledger with new keys.

        Args:
            where: a path, or a `postgresql://` URL; `#name` at its end keeps several ledgers apart.
            curator: the new file of the curator's key, which should then be moved to a safe place.
            keys: the new file of the ledger's own keys.
            anchor: the address of the anchor (see `anchor_at`). A path's default is beside the ledger.
            registry: the folder of the registry. The default is the user's own (`ledger.registry`).
            notify: called with a notice for people that a ledger was made for life.

        Returns:
            The open ledger.

        Raises:
            BadParameter: if there is a ledger, or a part of one.
            Unavailable: if the database cannot be used, or there is no registry.
        """
        place = LedgerPlace.of(where, keys=keys, anchor=anchor, curator=curator, registry=registry)
        place.require_unused()
        store, copy = place.store(create=True), None
        try:
            own, key = LedgerKeys.create(place.keys), CuratorKey.create(place.curator)
            ledger_id = random_bytes(16)
            store.migrate()
            copy = OpenCopy(place.registry, ledger_id.hex(), store.copy_id(), location_of(store))
            with place.registry.open() as known:  # before the ledger can be opened
                known.note(ledger=ledger_id.hex(), place=location_of(store))
            store.start_sealing(ledger_id, own.signing, place.anchor, place.witnesses(ledger_id.hex()))
            genesis = {
                "kind": "genesis",
                "at": now(),
                "ledger": ledger_id.hex(),
                "key": own.signing.public.hex(),
                "curator": key.public.hex(),
                "format": FORMAT,
                "registry": place.registry.id,
            }
            store.write(lambda tx: tx.append(encode(genesis)))
            store.seal()
            _state_at_newest_seal(store, own, SignedState())
            replay = Replay()
            replay.feed(store.read(lambda tx: list(tx.history(0))))
            notify(place.notice)
        except BaseException:
            store.signing = None  # half a ledger is sealed nowhere
            store.close()
            if copy is not None:
                copy.close()
            raise
        return cls(store, own, place, copy, replay)

    @classmethod
    def open(
        cls,
        where: str | Path,
        *,
        keys: Path | None = None,
        anchor: str | Path | None = None,
        registry: str = "",
    ) -> Self:
        """Open a ledger after checking its signed state, later entries, tables and anchors.

        Without a signed state, everything is replayed. `verify` always replays everything.

        Args:
            where: a path, or a `postgresql://` URL.
            keys: the file of the ledger's keys, if it is not beside the ledger.
            anchor: the address of the anchor, if it is not beside the ledger.
            registry: the folder of its registry, if it is not the user's own.

        Returns:
            The open ledger.

        Raises:
            BadParameter: if the registry does not know the ledger, or another copy of it is open.
            Tampered: if something does not agree, with all findings.
            Unavailable: if the database cannot be used, or there is no registry.
        """
        place = LedgerPlace.of(where, keys=keys, anchor=anchor, registry=registry)
        store, own, ledger_id = place.open_store()
        copy = None
        try:
            copy = OpenCopy(place.registry, ledger_id, store.copy_id(), location_of(store))
            witnesses = place.witnesses(ledger_id)
            known = (place.anchor, *(witness for witness in witnesses if witness.exists()))
            report = check(store, own.signing.public, known, thorough=False)
            if report.findings:
                raise Tampered(report.findings)
            if report.replay.ledger != ledger_id:  # its witnesses would be looked for elsewhere
                raise Tampered(["the first entry is not that of this ledger"])
            place.registry.require_known(ledger_id, report.replay.registry, location_of(store))
            if missing := place.missing_witnesses(report.replay):
                raise Tampered(missing)
            store.start_sealing(bytes.fromhex(ledger_id), own.signing, place.anchor, witnesses)
            newest = store.read(last_seal)
            if newest is not None and len(known) > len(witnesses):
                store.anchored = newest.number
            store.seal()  # a crash may have left entries of which the witnesses do not know
            if report.whole is not None:
                _state_at_newest_seal(store, own, report.whole)
            return cls(store, own, place, copy, report.replay)
        except BaseException:
            store.close()
            if copy is not None:
                copy.close()
            raise

    def close(self) -> None:
        """Seal the entries that are not sealed yet, and close the database."""
        self.store.close()
        self._copy.close()

    def require_here(self) -> None:
        """Raise SessionOver in a forked child, or if another copy of the ledger may be open."""
        super().require_here()
        self._copy.require_held()

    @property
    def location(self) -> str:
        """The location of the ledger, without links and passwords."""
        return location_of(self.store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def verify(self) -> CheckReport:
        """Replay the whole history with the second accountant, and check every price and signature."""
        self.store.seal()
        anchors = (*self.store.anchors, *self.store.witnesses)
        return check(self.store, self.keys.signing.public, anchors, thorough=True, people=self.keys.people)

    # Looking up

    def account(self, label: str) -> Account:
        """Return the account of this name, as first opened, or as planned."""
        known = self._roots.get(label)
        if known is not None:
            return known
        label = checked_label(label, "account")
        planned = self.openings.accounts.get(label)
        accounts = self.store.read(lambda tx: accounts_where(tx, _FIRST, label))
        if planned is not None and not accounts:  # and no other process opened it meanwhile
            return planned.draft
        if not accounts:
            raise BadParameter("account", "is not known to this ledger")
        return self.remember(accounts[0])

    def accounts(self) -> tuple[Account, ...]:
        """Return all accounts, including raised ones, in the order of opening."""
        return tuple(map(self.remember, self.store.read(accounts_where)))

    def numbered(self, number: int) -> Account:
        """Return the account of this number."""
        if number < 0:
            for planned in tuple(self.openings.accounts.values()):
                if planned.draft.number == number:
                    return planned.draft
        if number not in self._accounts:
            self.accounts()
        return self._accounts[number]

    def blocks(self, label: str) -> tuple[Block, ...]:
        """Return the current blocks of an account, including `*`."""
        return tuple(block for _, block in self.look_at(self.account(label), ()))

    def look_at(self, root: Account, labels: Sequence[str]) -> list[tuple[Account, Block]]:
        """Return the named blocks of a family with their accounts; without names, all blocks."""
        planned = self.openings.find(root)
        if planned is not None:
            return planned.untouched(labels)
        return look_at(self.store.rows, self.numbered, root, labels)

    def current_ranges(self, root: Account, labels: Sequence[str]) -> AccountRanges:
        """Return the account and block numbers of named blocks; without names, of `*`.

        The same blocks are asked for again and again, so the result is cached until `forget_blocks`.
        """
        cached, wanted = self._found.get(root.number), labels or _EVERYONE
        ranges = cached.get(wanted) if cached else None
        if ranges is None:
            ranges = self.find_ranges(self.store.rows, root, wanted)
            kept = self._found.setdefault(root.number, {})
            if len(kept) >= MOST_REMEMBERED:
                kept.clear()
            kept[tuple(wanted)] = ranges
        return ranges

    def find_ranges(self, read: Read, root: Account, labels: Sequence[str]) -> AccountRanges:
        """Return the account and block numbers of named blocks, not cached; without names, of `*`."""
        labels = labels or _EVERYONE
        wanted = set(labels)
        rows = current_blocks(read, root, "account, block, label", labels)
        matching = [row for row in rows if row[2] in wanted]
        if len({label for _, _, label in matching}) < len(wanted):
            raise BadParameter("blocks", "there is no such block: open it first")
        return ranges_by_account(matching)  # if two had the same name, both would be charged

    def forget_blocks(self, root: Account) -> None:
        """Drop cached block numbers: blocks may have moved."""
        self._found.pop(root.number, None)

    def everyone(self, tx: Transaction, root: Account) -> AccountRanges:
        """Return the account and block numbers of all blocks of a family, while nobody can open one."""
        return ranges_by_account(current_blocks(tx.rows, root, "account, block"))

    def principal(self, label: str) -> str:
        """Return the id that stands for a principal in entries. A new principal gets one."""
        return self.find_principal(label) or self._new_principal(checked_label(label, "principal"))

    def find_principal(self, label: str) -> str | None:
        """Return the id of a principal, or None if it has none yet. Writes nothing."""
        known = self._principals.get(label)
        if known is None:
            rows = self.store.rows(_PRINCIPAL, checked_label(label, "principal"))
            if not rows:
                return None
            known, salt = str(rows[0][0]), bytes(rows[0][1])
            if commitment(label, salt) != known:  # opening does not look at principals
                raise Tampered([f"principal {known} was renamed"])
            self._principals[label] = known
        return known

    def _new_principal(self, label: str) -> str:
        name = CommittedName.new(label)

        def work(tx: Transaction) -> str:
            known = tx.rows(_PRINCIPAL, label)
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
        """Open an account. It can never be changed.

        Args:
            label: the name of the account.
            epsilon: the lifetime budget ε of one unit.
            delta: the lifetime budget δ of one unit.
            unit: the privacy unit.
            relation: how neighbouring data sets differ.
            slices: how units are divided into blocks, if they are.
            rule: the rule that puts a unit into a block, in words; empty without slices.

        Returns:
            The new account.

        Raises:
            BadParameter: if the name is taken, or unit, relation and slices do not fit together.
        """
        draft = drafted_account(label, Terms.of(epsilon, delta), (unit, relation), slices, rule)

        def work(tx: Transaction) -> Account:
            if tx.rows("SELECT 1 FROM accounts WHERE label = ? AND raises IS NULL", draft.label):
                raise BadParameter(
                    "account",
                    f'there is one of the name "{draft.label}", and budgets never change. Use it as it is; '
                    "the curator can raise it: `lapwing ledger raise`",
                )
            return new_account(tx, draft)

        self.require_here()
        return self.remember(self.store.write(work))

    def plan_account(
        self,
        label: str,
        *,
        epsilon: Number,
        delta: Number,
        unit: Unit,
        relation: Relation,
        slices: Slices = Slices.NONE,
        rule: str = "",
        blocks: Iterable[str] = (),
        tell: Callable[[str], None] = lambda _: None,
    ) -> Account:
        """Plan an account that opens with its first charge, with these blocks. See `open_account`.

        `tell` is called with the notice of the account when it is open.
        """
        with self._learning:
            return self.openings.plan(
                drafted_account(label, Terms.of(epsilon, delta), (unit, relation), slices, rule),
                blocks,
                tell,
            )

    def opened_account(self, label: str) -> Account:
        """Return the account of this name. If it is only planned, open it now."""
        account = self.account(label)
        planned = self.openings.find(account)
        if planned is None:
            return account
        self.require_here()
        with suppress(OpenedMeanwhile):
            self.remember(self.store.write(planned.open))
            planned.tell(account.notice)
        self.openings.accounts.pop(account.label, None)
        return require_same(account, self.account(label))

    def note_opened(self, labels: Sequence[str], opened: Mapping[str, Account]) -> None:
        """Forget what was planned for these accounts and is written by now; tell of the new accounts."""
        for account in opened.values():
            self.remember(account)
        for planned in self.openings.done(labels):
            planned.tell(planned.draft.notice)

    def forget_planned(self, labels: Sequence[str]) -> None:
        """Forget what was planned for these accounts and another process has written meanwhile."""
        for label in labels:
            account, planned = self.account(label), self.openings.accounts.get(label)
            if planned is not None and account.number > 0:
                self.openings.accounts.pop(label, None)
                require_same(planned.draft, account)
        for name, data in tuple(self.openings.data.items()):
            if data.own in labels and data.is_known():
                self.openings.data.pop(name, None)

    def open_blocks(self, label: str, names: Iterable[str]) -> None:
        """Open blocks, each with the whole budget less the charges to everyone."""
        account = self.opened_account(label)
        if account.slices is Slices.NONE:
            raise BadParameter("blocks", "the account has no slices")
        if isinstance(names, str):
            raise BadParameter("blocks", "must be several names, not one text")
        labels = [checked_label(name, "block") for name in names]
        if EVERYONE in labels or len(set(labels)) < len(labels):
            raise BadParameter("blocks", 'must be different names other than "*"')
        self.require_here()

        self.store.write(lambda tx: open_blocks(tx, self.family(tx, account), labels))

    def raise_budget(self, label: str, *, epsilon: Number, delta: Number, curator: CuratorKey) -> Account:
        """Open a second account of (ε, δ) over the same data. Every statement then shows the sum."""
        terms = Terms.of(epsilon, delta)
        self.require_curator(curator)
        self.require_here()
        root = self.opened_account(label)
        account = self.store.write(lambda tx: raised_account(tx, self.family(tx, root), terms, curator))
        self.forget_blocks(root)
        return self.remember(account)

    # Decisions of the curator

    def require_curator(self, curator: CuratorKey) -> None:
        """Raise BadParameter unless the key is that of this ledger's curator."""
        if curator.public != self.curator:
            raise BadParameter("curator", "is not the key of this ledger's curator")

    def record_check(self, label: str, policy: str, curator: CuratorKey) -> None:
        """Write an entry that the curator looks at exact counts of an account's data.

        `policy` is the digest of the policy at that time.
        """
        self.require_curator(curator)
        account = self.opened_account(label).number
        body = {"kind": "check", "at": now(), "account": account, "policy": policy, "signature": None}
        self._append_check(account, policy, encode_signed(body, curator.sign), is_change=False)

    def sign_other_people(self, others: Iterable[str], curator: CuratorKey) -> None:
        """Write an entry that the people of this ledger are not those of other ledgers of its registry.

        Args:
            others: the ids of the other ledgers, or their files.
            curator: the curator's key.

        Raises:
            BadParameter: if the registry knows no such ledger, or the key is not the curator's.
        """
        self.require_curator(curator)
        with self.registry.open() as known:
            ids = sorted({known.id_of(other) for other in others} - {self.id})
        if not ids:
            raise BadParameter("others", "must name at least one other ledger")
        body = {"kind": "others", "at": now(), "ledgers": ids, "signature": None}
        self.require_here()
        self.store.write(lambda tx: tx.append(encode_signed(body, curator.sign)))
        self.other_ledgers |= set(ids)

    def record_policy(self, label: str, policy: str) -> None:
        """Write an entry if an account with checks is used under a policy that no check has seen."""
        account = self.account(label).number
        known = {check.policy for check in self.checks if check.account == account}
        if known and policy not in known:
            body = encode({"kind": "policy", "at": now(), "account": account, "policy": policy})
            self._append_check(account, policy, body, is_change=True)

    def _append_check(self, account: int, policy: str, body: bytes, *, is_change: bool) -> None:
        self.require_here()
        entry = self.store.write(lambda tx: tx.append(body))
        self.checks.append(CuratorCheck(entry, account, policy, is_change))


def _state_at_newest_seal(store: Store, keys: LedgerKeys, state: SignedState) -> None:
    """Begin to store signed states, from a state that was replayed."""

    def work(tx: Transaction) -> None:
        seal = last_seal(tx)
        if seal is not None:
            keep_state(tx, seal, keys.signing, state)

    store.write(work)
