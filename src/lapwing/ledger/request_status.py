"""What became of an earlier request of a principal, by its key alone. Nothing is charged or changed.

Charges for which there will be no answer: their work failed or timed out, or their process is gone.

Reading the whole history again for every question would take long. So what was found can be kept up to a
seal, by whoever asks: it counts only as long as that seal stands in the ledger, and is found again if lost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from hashlib import sha256
from typing import Any

from lapwing.errors import Tampered
from lapwing.ledger.entry import Receipt, checked_label, digest_of
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.store import Row, Transaction, is_as_sealed


class RequestState(Enum):
    """How far it came."""

    ANSWERED = "answered"
    ENDED = "ended"  # charged, and there will be no answer: it failed, or its process is gone
    OPEN = "open"  # charged, and under way


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """A request that was charged under a key. `answer` are its stored bytes."""

    state: RequestState
    receipt: Receipt
    answer: bytes = b""


def hashed_key(by: str, key: str) -> bytes:
    """How a principal's key stands in the ledger. A shared key is nobody's: `by` is empty."""
    return sha256(f"{by}\n{key}".encode()).digest()


def status_of_request(
    ledger: Ledger, *, principal: str, key: str, shared: bool = False
) -> RequestStatus | None:
    """The request of this principal under this key, or None. If `shared`, of whoever came first."""
    by = "" if shared else ledger.principal(principal)
    return status_under_key(
        ledger, hashed_key(by, checked_label(key, "key")), None if shared else principal
    )


def status_under_key(ledger: Ledger, hashed: bytes, principal: str | None) -> RequestStatus | None:
    """The request under a hashed key, checked against its entry and the digest of its answer.

    Without a principal, the receipt names whoever was charged.
    """
    found = _look(ledger, hashed, principal)
    if found is None or found.state is not RequestState.OPEN or is_running(ledger, hashed, found.receipt):
        return found
    # It may have ended since we looked, and then its answer was stored before: look again.
    again = _look(ledger, hashed, principal)
    assert again is not None, "entries only grow"
    return replace(again, state=RequestState.ENDED) if again.state is RequestState.OPEN else again


def is_running(ledger: Ledger, hashed: bytes, receipt: Receipt) -> bool:
    """Whether some process is still at work on a request without an answer."""
    session = int(receipt.record["session"])
    # In this process we know better than by its session: a charge of unknown outcome was never run.
    own = session == ledger.store.session
    return hashed in ledger.running if own else ledger.store.is_alive(session)


def _look(ledger: Ledger, hashed: bytes, principal: str | None) -> RequestStatus | None:
    """As it stands in the database: open, if nothing came of it yet.

    Opening does not look at older entries and answers, so whoever reads one does.
    """
    rows = ledger.store.read(partial(_rows, ledger, hashed))
    if not rows:
        return None
    seq, body, digest, done_at, done, done_digest, answer = rows[0]
    receipt = Receipt(ledger.id, seq, principal or "", bytes(body))
    if digest_of(bytes(body)) != bytes(digest) or receipt.record["key"] != hashed.hex():
        raise Tampered([f"entry {seq} was changed"])
    if principal is None:
        receipt = receipt._replace(principal=ledger.label_of(receipt.record["by"]))
    if done_at is None:
        return RequestStatus(RequestState.OPEN, receipt)
    record = {} if done is None else json.loads(bytes(done))
    stored = None if answer is None else sha256(answer).hexdigest()
    if (
        done is None
        or digest_of(bytes(done)) != bytes(done_digest)
        or (record["kind"], record["charge"], record.get("digest"))
        != ("failed" if answer is None else "answer", seq, stored)
    ):
        raise Tampered([f"the answer to charge {seq} was changed"])
    if answer is None:
        return RequestStatus(RequestState.ENDED, receipt)
    return RequestStatus(RequestState.ANSWERED, receipt._replace(answer=stored), bytes(answer))


def _rows(ledger: Ledger, hashed: bytes, tx: Transaction) -> list[Row]:
    rows = tx.rows(
        "SELECT asked.seq, asked.body, asked.digest, answers.entry, done.body, done.digest, answers.bytes "
        "FROM entries AS asked LEFT JOIN answers ON answers.charge = asked.seq "
        "LEFT JOIN entries AS done ON done.seq = answers.entry WHERE asked.key = ?",
        hashed,
    )
    for seq, _, _, done_at, *_ in rows:
        for entry in (seq, done_at):
            if entry is not None and not is_as_sealed(
                tx, entry, ledger.keys.signing.public, bytes.fromhex(ledger.id)
            ):
                raise Tampered([f"entry {entry} is not the one that was sealed"])
    return rows


def has_ended(ledger: Ledger, position: int) -> bool:
    """Whether a charge stands there for which there will be no answer."""
    rows = ledger.store.read(lambda tx: tx.rows("SELECT key FROM entries WHERE seq = ?", position))
    if not rows or rows[0][0] is None:
        return False
    found = status_under_key(ledger, bytes(rows[0][0]), "")
    return found is not None and found.state is RequestState.ENDED


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
class FailedCharge:
    """A charge without an answer: by whom, and from which accounts (the first of their families)."""

    position: int
    by: str
    accounts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FailedCharges:
    """All failed charges up to a seal, of which nothing is open any more.

    `undecided` are reservations up to it that ended without an answer and can be gone on with.
    """

    last: int = 0
    digest: str = ""
    failed: tuple[FailedCharge, ...] = ()
    undecided: tuple[int, ...] = ()

    def to_json(self) -> list[Any]:
        """Return a value for JSON."""
        failed = [[one.position, one.by, one.accounts] for one in self.failed]
        return [self.last, self.digest, failed, self.undecided]

    @classmethod
    def from_json(cls, kept: Any) -> FailedCharges:
        """Read what `to_json` gave. Raises ValueError, TypeError or IndexError if it is something else."""
        last, digest, failed, undecided = kept
        found = (
            FailedCharge(int(place), str(by), tuple(map(int, accounts))) for place, by, accounts in failed
        )
        return cls(int(last), bytes.fromhex(digest).hex(), tuple(found), tuple(map(int, undecided)))


def find_failed_charges(ledger: Ledger, kept: FailedCharges) -> tuple[list[FailedCharge], FailedCharges]:
    """All failed charges there are now, and what may be kept of them."""

    def look(tx: Transaction) -> tuple[FailedCharges, list[tuple[Any, ...]]]:
        stands = kept.last and tx.rows(_SEALED, kept.last, bytes.fromhex(kept.digest))[0][0]
        start = kept if stands else FailedCharges()
        again = ", ".join(map(str, start.undecided)) or "-1"
        return start, [tuple(row) for row in tx.rows(_UNANSWERED.format(again), start.last)]

    start, rows = ledger.store.read(look)
    found, undecided, first_open = list(start.failed), [], _NEVER
    for position, key, body, failed in rows:
        earlier = status_under_key(ledger, bytes(key), "")
        if earlier is None or earlier.state is RequestState.ANSWERED:
            continue
        record = json.loads(bytes(body))
        if earlier.state is RequestState.OPEN:
            first_open = min(first_open, position)
        elif record["kind"] == "charge" or failed is not None:  # a reservation can be gone on with
            accounts = {ledger.numbered(number).root for number, *_ in record["debits"]}
            found.append(FailedCharge(position, record["by"], tuple(sorted(accounts))))
        else:
            undecided.append(position)
    return found, _up_to_a_seal(ledger, found, undecided, first_open) or start


def _up_to_a_seal(
    ledger: Ledger, found: list[FailedCharge], undecided: list[int], first_open: int
) -> FailedCharges | None:
    seals = ledger.store.read(lambda tx: tx.rows(_BEFORE, first_open))
    if not seals:
        return None
    last, digest = int(seals[0][0]), bytes(seals[0][1]).hex()
    failed = tuple(one for one in found if one.position <= last)
    return FailedCharges(last, digest, failed, tuple(place for place in undecided if place <= last))
