"""Recovery of a ledger whose anchors or registry are missing, or whose anchors know more than the ledger.

Claim    a recovery gives nothing back of any account that the ledger still knows.
Because  nobody can tell what the lost entries charged, so every open block is closed with all of its
         budget spent, in an entry that the curator signs. A witness does not change that: it knows seals,
         not every charge since. To continue, the curator must raise the account, which every statement
         shows. Numbers of lost entries are never used again, so an anchor that knows them stays right.
Test     tests/ledger/test_ledger_recovery.py
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from lapwing.errors import BadParameter, Tampered
from lapwing.ledger.anchors import Anchor, Head, Mark
from lapwing.ledger.check import CheckReport, check
from lapwing.ledger.entry import encode_signed, now
from lapwing.ledger.keys import CuratorKey
from lapwing.ledger.ledger_place import LedgerPlace, location_of
from lapwing.ledger.registry import OpenCopy, Registry
from lapwing.ledger.schema import COSTS, LOST, OPEN
from lapwing.ledger.store import Store, Transaction, differing, last_seal


def recover(
    where: str | Path,
    *,
    curator: CuratorKey,
    keys: Path | None = None,
    anchor: str | Path | None = None,
    registry: str = "",
) -> int:
    """Make a ledger usable whose anchors are missing or know more. Return how many blocks were closed.

    A ledger that is inconsistent in itself is not recovered: restore a consistent copy first.
    """
    place = LedgerPlace.of(where, keys=keys, anchor=anchor, registry=registry)
    store, own, ledger_id = place.open_store()
    try:
        report = check(store, own.signing.public, (), thorough=True)
        if report.findings:
            raise Tampered(report.findings)
        if curator.public != report.replay.curator:
            raise BadParameter("curator", "is not the key of this ledger's curator")
        witnesses = place.witnesses(ledger_id)
        store.start_sealing(bytes.fromhex(ledger_id), own.signing, place.anchor, witnesses)
        is_whole = not place.missing_witnesses(report.replay)
        return _recover(store, report, (place.anchor, *witnesses), curator, is_whole=is_whole)
    finally:
        store.close()


def register_anew(
    where: str | Path,
    *,
    curator: CuratorKey,
    keys: Path | None = None,
    anchor: str | Path | None = None,
    registry: str = "",
) -> Registry:
    """Let a registry know a ledger whose own one is gone, in an entry that the curator signs.

    The ledger's first anchor and whatever witness there is are compared as always.
    """
    place = LedgerPlace.of(where, keys=keys, anchor=anchor, registry=registry)
    store, own, ledger_id = place.open_store()
    try:
        witnesses = place.witnesses(ledger_id)
        known = (place.anchor, *(witness for witness in witnesses if witness.exists()))
        report = check(store, own.signing.public, known, thorough=True)
        if report.findings:
            raise Tampered(report.findings)
        if curator.public != report.replay.curator:
            raise BadParameter("curator", "is not the key of this ledger's curator")
        with closing(OpenCopy(place.registry, ledger_id, store.copy_id(), location_of(store))):
            store.start_sealing(bytes.fromhex(ledger_id), own.signing, place.anchor, witnesses)
            body = {"kind": "registry", "at": now(), "registry": place.registry.id, "signature": None}
            store.write(lambda tx: tx.append(encode_signed(body, curator.sign)))
            seal = store.seal() or store.read(last_seal)
            if seal is not None:
                store.mark((), seal.head)  # makes the witness
            with place.registry.open() as registered:
                registered.note(ledger=ledger_id, place=location_of(store))
        return place.registry
    finally:
        store.close()


def _recover(
    store: Store, report: CheckReport, anchors: tuple[Anchor, ...], curator: CuratorKey, *, is_whole: bool
) -> int:
    present = [anchor for anchor in anchors if anchor.exists() and anchor.read()]  # not an empty one
    lines = [line for anchor in present for line in anchor.read()]
    lost = store.read(lambda tx: differing(tx, lines, report.replay.lost_up_to))
    if lines and not lost and anchors[0] in present and is_whole:
        raise BadParameter("ledger", "nothing is lost: it can be opened")
    closed = store.write(lambda tx: _close_all(tx, store, lost, curator))
    seal = store.seal() or store.read(last_seal)
    if seal is not None:
        store.mark((), seal.head)  # makes the anchors that are missing
    return closed


def _close_all(tx: Transaction, store: Store, lost: list[Mark | Head], curator: CuratorKey) -> int:
    newest = max(lost, key=lambda line: line.last, default=None)
    if newest is not None:
        tx.skip(newest.last)
    nothing_left = ", ".join(f"left_{k} = -1" for k in COSTS)
    closed = tx.run(f"UPDATE budgets SET state = {LOST}, {nothing_left} WHERE state = {OPEN}")  # noqa: S608
    used = ", ".join(f"used_{k} = total_{k}" for k in COSTS)
    tx.run(f"UPDATE reservations SET ended = 1, {used} WHERE ended = 0")  # noqa: S608
    digest = newest.digest if isinstance(newest, Mark) else newest.root if newest else b""
    said = None if newest is None else [newest.last, digest.hex()]
    body = {"kind": "recovered", "at": now(), "lost": said, "signature": None}
    tx.append(encode_signed(body, curator.sign))
    return closed
