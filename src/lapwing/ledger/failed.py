"""Charges for which there will be no answer: their work failed or timed out, or their process is gone.

Reading the whole history again for every question would take long. So what was found can be kept up to a
seal, by whoever asks: it counts only as long as that seal stands in the ledger, and is found again if lost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from lapwing.ledger.earlier import State, found_under
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.stores.transaction import Transaction

_SEALED = "SELECT count(*) FROM seals WHERE last = ? AND digest = ?"
_BEFORE = "SELECT last, digest FROM seals WHERE last < ? ORDER BY number DESC LIMIT 1"
_UNANSWERED = (
    "SELECT asked.seq, asked.key, asked.body, answers.charge FROM entries AS asked "
    "LEFT JOIN answers ON answers.charge = asked.seq "
    "WHERE (asked.seq > ? OR asked.seq IN ({})) AND asked.key IS NOT NULL AND answers.bytes IS NULL "
    "ORDER BY asked.seq"
)
_NEVER = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class Failed:
    """A charge without an answer: by whom, and from which accounts (the first of their families)."""

    position: int
    by: str
    accounts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Failures:
    """All failed charges up to a seal, of which nothing is open any more.

    `undecided` are reservations up to it that ended without an answer and can be gone on with.
    """

    last: int = 0
    digest: str = ""
    failed: tuple[Failed, ...] = ()
    undecided: tuple[int, ...] = ()

    def to_json(self) -> list[Any]:
        """Return a value for JSON."""
        failed = [[one.position, one.by, one.accounts] for one in self.failed]
        return [self.last, self.digest, failed, self.undecided]

    @classmethod
    def from_json(cls, kept: Any) -> Failures:
        """Read what `to_json` gave. Raises ValueError, TypeError or IndexError if it is something else."""
        last, digest, failed, undecided = kept
        found = (Failed(int(place), str(by), tuple(map(int, accounts))) for place, by, accounts in failed)
        return cls(int(last), bytes.fromhex(digest).hex(), tuple(found), tuple(map(int, undecided)))


def failures(ledger: Ledger, kept: Failures) -> tuple[list[Failed], Failures]:
    """All failed charges there are now, and what may be kept of them."""

    def look(tx: Transaction) -> tuple[Failures, list[tuple[Any, ...]]]:
        stands = kept.last and tx.rows(_SEALED, kept.last, bytes.fromhex(kept.digest))[0][0]
        start = kept if stands else Failures()
        again = ", ".join(map(str, start.undecided)) or "-1"
        return start, [tuple(row) for row in tx.rows(_UNANSWERED.format(again), start.last)]

    start, rows = ledger.store.read(look)
    found, undecided, first_open = list(start.failed), [], _NEVER
    for position, key, body, failed in rows:
        earlier = found_under(ledger, bytes(key), "")
        if earlier is None or earlier.state is State.ANSWERED:
            continue
        record = json.loads(bytes(body))
        if earlier.state is State.OPEN:
            first_open = min(first_open, position)
        elif record["kind"] == "charge" or failed is not None:  # a reservation can be gone on with
            accounts = {ledger.numbered(number).root for number, *_ in record["debits"]}
            found.append(Failed(position, record["by"], tuple(sorted(accounts))))
        else:
            undecided.append(position)
    return found, _up_to_a_seal(ledger, found, undecided, first_open) or start


def _up_to_a_seal(
    ledger: Ledger, found: list[Failed], undecided: list[int], first_open: int
) -> Failures | None:
    seals = ledger.store.read(lambda tx: tx.rows(_BEFORE, first_open))
    if not seals:
        return None
    last, digest = int(seals[0][0]), bytes(seals[0][1]).hex()
    failed = tuple(one for one in found if one.position <= last)
    return Failures(last, digest, failed, tuple(place for place in undecided if place <= last))
