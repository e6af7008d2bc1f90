"""The newest entry of an open ledger, and whether it can be charged now. Nothing is written."""

from __future__ import annotations

from lapwing.ledger.ledger import Ledger


def newest_position(ledger: Ledger) -> int:
    """Return the number of the newest entry. As long as it stays, no budget has changed."""
    [(last,)] = ledger.store.rows("SELECT coalesce(max(seq), 0) FROM entries")
    return int(last)


def require_ready(ledger: Ledger) -> None:
    """Raise an error, as a charge would, if the ledger cannot be written or an anchor not be reached."""
    ledger.require_here()
    ledger.store.write(lambda _: None)
    for anchor in (*ledger.store.anchors, *ledger.store.witnesses):
        anchor.read()
