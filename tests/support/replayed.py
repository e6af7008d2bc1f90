"""Histories as the independent accountant reads them."""

from __future__ import annotations

from lapwing.ledger.accountant.replay import Replay
from support.histories import History


def read(history: History) -> Replay:
    replay = Replay()
    replay.feed(history.entries())
    return replay


def found(history: History) -> tuple[str, ...]:
    return read(history).finish()


def small() -> History:
    """Two accounts; blocks 2 and 3 in the first, everyone is 1; the second is block 4."""
    history = History()
    history.account(1)
    history.blocks("north", "south")
    history.account(2, slices="none", label="another")
    return history
