"""The anchor does not match: what now. What was lost is counted as everything.

Claim    recovering gives nothing back of any account that the ledger still knows.
Because  where the anchor is missing or knows more than the ledger, nobody can tell what the lost entries
         charged, so every open block is closed with all of its budget spent, in an entry that the curator
         signs. A witness does not change that: it knows seals, not every charge since.
         Whoever wants to go on must raise the account, which every statement shows. Numbers of lost
         entries are never used again, so an anchor that knows them stays right.
Test     tests/ledger/test_recovery.py
"""

from __future__ import annotations

from pathlib import Path

from lapwing.errors import BadParameter, Tampered
from lapwing.ledger.anchors import Anchor, Head, Mark
from lapwing.ledger.check import Report, check, differing
from lapwing.ledger.entry import encode, now
from lapwing.ledger.keys import CuratorKey, LedgerKeys
from lapwing.ledger.ledger import id_of
from lapwing.ledger.places import Place
from lapwing.ledger.stores.schema import COSTS, LOST, MIGRATIONS, OPEN
from lapwing.ledger.stores.store import Store
from lapwing.ledger.stores.transaction import Transaction, last_seal


def recover(
    where: str | Path, *, curator: CuratorKey, keys: Path | None = None, anchor: str | Path | None = None
) -> int:
    """Make a ledger usable again whose anchor is missing or knows more. How many blocks were closed.

    A ledger that does not agree with itself is not recovered: put a copy back that does.
    """
    place = Place.of(where, keys=keys, anchor=anchor)
    own = LedgerKeys.load(place.keys)
    store = place.store(create=False)
    try:
        store.migrate(MIGRATIONS)
        ledger_id = id_of(store)
        report = check(store, own.signing.public, (), thorough=True)
        if report.findings:
            raise Tampered(report.findings)
        if curator.public != report.replay.curator:
            raise BadParameter("curator", "is not the key of this ledger's curator")
        witnesses = place.witnesses(ledger_id)
        store.attend(bytes.fromhex(ledger_id), own.signing, place.anchor, witnesses)
        return _recover(store, report, (place.anchor, *witnesses), curator)
    finally:
        store.close()


def _recover(store: Store, report: Report, anchors: tuple[Anchor, ...], curator: CuratorKey) -> int:
    present = [anchor for anchor in anchors if anchor.exists() and anchor.read()]  # not an empty one
    lines = [line for anchor in present for line in anchor.read()]
    lost = store.read(lambda tx: differing(tx, lines, report.replay.lost_up_to))
    if lines and not lost and anchors[0] in present:
        raise BadParameter("ledger", "nothing is lost: it can be opened")
    closed = store.write(lambda tx: _close_all(tx, store, lost, curator))
    seal = store.seal() or store.read(last_seal)
    if seal is not None:
        store.mark((), seal.head)  # makes the anchors that are missing
    return closed


def _close_all(tx: Transaction, store: Store, lost: list[Mark | Head], curator: CuratorKey) -> int:
    newest = max(lost, key=number_of, default=None)
    if newest is not None:
        tx.skip(number_of(newest))
    nothing_left = ", ".join(f"left_{k} = -1" for k in COSTS)
    closed = tx.run(f"UPDATE budgets SET state = {LOST}, {nothing_left} WHERE state = {OPEN}")  # noqa: S608
    used = ", ".join(f"used_{k} = total_{k}" for k in COSTS)
    tx.run(f"UPDATE reservations SET ended = 1, {used} WHERE ended = 0")  # noqa: S608
    digest = newest.digest if isinstance(newest, Mark) else newest.root if newest else b""
    body = {
        "kind": "recovered",
        "at": now(),
        "lost": None if newest is None else [number_of(newest), digest.hex()],
        "signature": None,
    }
    body["signature"] = curator.sign(encode(body)).hex()
    tx.append(encode(body))
    return closed


def number_of(line: Mark | Head) -> int:
    """The last entry that an anchor's line is about."""
    return line.seq if isinstance(line, Mark) else line.last
