"""Entries of an open ledger: the newest, hashes, and whether it can be charged now. Nothing is written."""

from __future__ import annotations

from lapwing.ledger.ledger import Ledger


def newest_position(ledger: Ledger) -> int:
    """Return the number of the newest entry. As long as it stays, no budget has changed."""
    [(last,)] = ledger.store.rows("SELECT coalesce(max(seq), 0) FROM entries")
    return int(last)


def entry_hash(ledger: Ledger, number: int) -> str | None:
    """Return the hash of an entry, in hexadecimal digits; None if the ledger has no such entry."""
    if not 0 < number < 1 << 60:
        return None
    rows = ledger.store.rows("SELECT digest FROM entries WHERE seq = ?", number)
    return bytes(rows[0][0]).hex() if rows else None


def require_ready(ledger: Ledger) -> None:
    """Raise an error, as a charge would, if the ledger cannot be written or an anchor not be reached."""
    ledger.require_here()
    ledger.store.write(lambda _: None)
    for anchor in (*ledger.store.anchors, *ledger.store.witnesses):
        anchor.read()
