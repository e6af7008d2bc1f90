"""Marks and heads that are told apart by their numbers."""

from __future__ import annotations

from lapwing.ledger.anchors import Head, Mark


def mark(seq: int) -> Mark:
    """The mark of an entry."""
    return Mark(seq, seq.to_bytes(32, "big"))


def head(number: int, last: int = 0) -> Head:
    """A head of all entries up to `last`."""
    return Head(number, last, last, bytes(32), bytes(32), bytes(64))
