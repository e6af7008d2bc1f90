"""The ledger: opening it, opening accounts and blocks, raising, looking. Spending is elsewhere.

Claim    a budget is for life: no restart, rename, restore, date or refund gives any of it back.
Because  entries only grow, all that decides is compared with them at opening, and the anchors outside the
         database know the latest of them; caps are fixed, and a raise is a signed second account whose
         (ε, δ) is added up in every statement.
Test     tests/ledger/, tests/faults/test_ledger_tampering.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from lapwing.errors import BadParameter, Tampered
from lapwing.exact import Number
from lapwing.ledger import places
from lapwing.ledger.accountant.replay import Check
from lapwing.ledger.accounts import EVERYONE, Account, Slices, Unit
from lapwing.ledger.check import Report, check
from lapwing.ledger.entry import FORMAT, Name, checked_label, encode, now
from lapwing.ledger.keys import CuratorKey, LedgerKeys
from lapwing.ledger.known import Known
from lapwing.ledger.opening import insert_blocks, new_account, raised_account
from lapwing.ledger.running import Running
from lapwing.ledger.stores.schema import MIGRATIONS
from lapwing.ledger.stores.states import State, keep_state
from lapwing.ledger.stores.store import Store
from lapwing.ledger.stores.transaction import Transaction, last_seal
from lapwing.noise import random_bytes
from lapwing.privacy import Relation, Terms

MOST_BLOCKS_TO_AN_ENTRY = 10_000


class Ledger(Known):
    """An open ledger. Threads may share it; a forked child opens its own."""

    def __init__(
        self, store: Store, keys: LedgerKeys, ledger_id: str, curator: bytes, checks: Iterable[Check] = ()
    ) -> None:
        super().__init__(store)
        self.keys = keys
        self.id = ledger_id
        self.curator = curator
        self.checks = list(checks)
        self.running = Running()

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
        place = places.Place.of(where, keys=keys, anchor=anchor, curator=curator)
        place.require_nothing()
        store = place.store(create=True)
        try:
            own, key = LedgerKeys.create(place.keys), CuratorKey.create(place.curator)
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
            _state_at_newest_seal(store, own, State())
        except BaseException:
            store.signing = None  # half a ledger is sealed nowhere
            store.close()
            raise
        return cls(store, own, ledger_id.hex(), key.public)

    @classmethod
    def open(
        cls, where: str | Path, *, keys: Path | None = None, anchor: str | Path | None = None
    ) -> Ledger:
        """Open after checking signed state, later entries, tables and anchors, or raise `Tampered`.

        Without a signed state everything is replayed. `verify` always does that.
        """
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
            if report.replay.ledger != ledger_id:  # its witnesses would be looked for elsewhere
                raise Tampered(["the first entry is not that of this ledger"])
            store.attend(bytes.fromhex(ledger_id), own.signing, place.anchor, witnesses)
            newest = store.read(last_seal)
            if newest is not None and len(known) > len(witnesses):
                store.anchored = newest.number
            store.seal()  # a crash may have left entries of which the witnesses do not know
            if report.whole is not None:
                _state_at_newest_seal(store, own, report.whole)
            return cls(store, own, ledger_id, report.replay.curator, report.replay.checks)
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
        for given, kind in ((unit, Unit), (relation, Relation), (slices, Slices)):
            if not isinstance(given, kind):
                raise BadParameter(kind.__name__.lower(), f"must be a {kind.__name__}")
        if slices is not Slices.NONE:
            rule = checked_label(rule, "rule")
        elif rule:
            raise BadParameter("rule", "an account without slices has no rule")
        if (unit is Unit.PERSON_AND_PERIOD) != (slices is Slices.PERIODS):
            raise BadParameter(
                "unit", "rows sliced by time protect a person and period, and nothing else does"
            )
        if slices is Slices.UNITS and relation is Relation.REPLACE:
            raise BadParameter(
                "slices", "by the unit's data do not hold where that is replaced: use identities"
            )
        terms = Terms.of(epsilon, delta)

        def work(tx: Transaction) -> Account:
            if tx.rows("SELECT 1 FROM accounts WHERE label = ? AND raises IS NULL", label):
                raise BadParameter("account", "there is one of this name: caps never change, `raise` it")
            return new_account(
                tx, Name.new(label), terms, unit=unit, relation=relation, slices=slices, rule=rule
            )

        self.require_here()
        return self.learn(self.store.write(work))

    def open_blocks(self, label: str, names: Iterable[str]) -> None:
        """Open blocks, each with the whole budget less what was charged to everyone."""
        account = self.account(label)
        if account.slices is Slices.NONE:
            raise BadParameter("blocks", "the account has no slices")
        if isinstance(names, str):
            raise BadParameter("blocks", "must be several names, not one text")
        labels = [checked_label(name, "block") for name in names]
        if EVERYONE in labels or len(set(labels)) < len(labels):
            raise BadParameter("blocks", 'must be different names other than "*"')
        self.require_here()

        def work(tx: Transaction) -> None:
            family = self.family(tx, account)
            for start in range(0, len(labels), MOST_BLOCKS_TO_AN_ENTRY):
                insert_blocks(tx, family, labels[start : start + MOST_BLOCKS_TO_AN_ENTRY])

        self.store.write(work)

    def raise_budget(self, label: str, *, epsilon: Number, delta: Number, curator: CuratorKey) -> Account:
        """Open a second account of (ε, δ) over the same data. Every statement then shows the sum."""
        root = self.account(label)
        terms = Terms.of(epsilon, delta)
        if curator.public != self.curator:
            raise BadParameter("curator", "is not the key of this ledger's curator")
        self.require_here()
        account = self.store.write(lambda tx: raised_account(tx, self.family(tx, root), terms, curator))
        self.forget_blocks(root)
        return self.learn(account)


def _state_at_newest_seal(store: Store, keys: LedgerKeys, state: State) -> None:
    """Begin to keep signed states, from what was replayed."""

    def work(tx: Transaction) -> None:
        seal = last_seal(tx)
        if seal is not None:
            keep_state(tx, seal, keys.signing, state)

    store.write(work)


def id_of(store: Store) -> str:
    """Whose ledger it says it is, which decides where its witnesses are looked for."""
    first = store.read(lambda tx: tx.rows("SELECT body FROM entries ORDER BY seq LIMIT 1"))
    try:
        return bytes.fromhex(json.loads(bytes(first[0][0]))["ledger"]).hex()
    except (IndexError, KeyError, TypeError, ValueError):
        raise Tampered([f"{store.where} does not begin as a ledger does"]) from None
