"""The ledger: making it, opening it after a check, and verifying it. Charges are made by `ledger.gate`.

Claim    a budget is for life: no restart, rename, restore, date or refund gives any of it back.
Because  entries only grow. Everything that decides a charge is compared with them at opening, and the
         anchors outside the database know the latest entries. Caps are fixed, and a raise is a signed
         second account whose (ε, δ) is added in every statement.
Test     tests/ledger/, tests/faults/test_ledger_tampering.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from lapwing.core.noise import random_bytes
from lapwing.errors import Tampered
from lapwing.ledger.check import CheckReport, check
from lapwing.ledger.entry import FORMAT, encode, now
from lapwing.ledger.keys import CuratorKey, LedgerKeys
from lapwing.ledger.ledger_accounts import LedgerAccounts
from lapwing.ledger.ledger_place import LedgerPlace
from lapwing.ledger.store import SignedState, Store, Transaction, keep_state, last_seal


class Ledger(LedgerAccounts):
    """An open ledger. Threads may share it; a forked child opens its own.

    Example:
        >>> from lapwing.ledger import Ledger, Unit
        >>> from lapwing.core import Relation
        >>> with Ledger.create("visits.ledger") as ledger:
        ...     account = ledger.open_account(
        ...         "patients", epsilon=1, delta="1e-6", unit=Unit.PERSON, relation=Relation.ADD_REMOVE
        ...     )
    """

    @classmethod
    def create(
        cls,
        where: str | Path,
        *,
        curator: Path | None = None,
        keys: Path | None = None,
        anchor: str | Path | None = None,
        notify: Callable[[str], None] = lambda _: None,
    ) -> Ledger:
        """Create a new ledger with new keys.

        Args:
            where: a path, or a `postgresql://` URL; `#name` at its end keeps several ledgers apart.
            curator: the new file of the curator's key, which should then be moved to a safe place.
            keys: the new file of the ledger's own keys.
            anchor: the address of the anchor (see `anchor_at`). A path's default is beside the ledger.
            notify: called with a notice for people that a ledger was made for life.

        Returns:
            The open ledger.

        Raises:
            BadParameter: if there is a ledger, or a part of one.
            Unavailable: if the database cannot be used.
        """
        place = LedgerPlace.of(where, keys=keys, anchor=anchor, curator=curator)
        place.require_unused()
        store = place.store(create=True)
        try:
            own, key = LedgerKeys.create(place.keys), CuratorKey.create(place.curator)
            ledger_id = random_bytes(16)
            store.migrate()
            store.start_sealing(ledger_id, own.signing, place.anchor, place.witnesses(ledger_id.hex()))
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
            _state_at_newest_seal(store, own, SignedState())
            notify(place.notice)
        except BaseException:
            store.signing = None  # half a ledger is sealed nowhere
            store.close()
            raise
        return cls(store, own, ledger_id.hex(), key.public)

    @classmethod
    def open(
        cls, where: str | Path, *, keys: Path | None = None, anchor: str | Path | None = None
    ) -> Ledger:
        """Open a ledger after checking its signed state, later entries, tables and anchors.

        Without a signed state, everything is replayed. `verify` always replays everything.

        Args:
            where: a path, or a `postgresql://` URL.
            keys: the file of the ledger's keys, if it is not beside the ledger.
            anchor: the address of the anchor, if it is not beside the ledger.

        Returns:
            The open ledger.

        Raises:
            Tampered: if something does not agree, with all findings.
            Unavailable: if the database cannot be used.
        """
        place = LedgerPlace.of(where, keys=keys, anchor=anchor)
        store, own, ledger_id = place.open_store()
        try:
            witnesses = place.witnesses(ledger_id)
            known = (place.anchor, *(witness for witness in witnesses if witness.exists()))
            report = check(store, own.signing.public, known, thorough=False)
            if report.findings:
                raise Tampered(report.findings)
            if report.replay.ledger != ledger_id:  # its witnesses would be looked for elsewhere
                raise Tampered(["the first entry is not that of this ledger"])
            store.start_sealing(bytes.fromhex(ledger_id), own.signing, place.anchor, witnesses)
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
        """Seal the entries that are not sealed yet, and close the database."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def verify(self) -> CheckReport:
        """Replay the whole history with the second accountant, and check every price and signature."""
        self.store.seal()
        anchors = (*self.store.anchors, *self.store.witnesses)
        return check(self.store, self.keys.signing.public, anchors, thorough=True, people=self.keys.people)


def _state_at_newest_seal(store: Store, keys: LedgerKeys, state: SignedState) -> None:
    """Begin to store signed states, from a state that was replayed."""

    def work(tx: Transaction) -> None:
        seal = last_seal(tx)
        if seal is not None:
            keep_state(tx, seal, keys.signing, state)

    store.write(work)
