"""The status of an earlier request, by its key alone, and a list of failed charges. Nothing is charged.

A failed charge is one without an answer: its work failed or timed out, or its process ended. Reading the
whole history for every request would take long. So the caller may keep the list up to a seal. A kept list
counts only while that seal stands in the ledger; if it is lost, it is computed again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from hashlib import sha256
from typing import Any

from lapwing.config.values import checked_label
from lapwing.errors import Tampered
from lapwing.ledger.entry import Receipt, digest_of, is_outcome
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.store import Row, Transaction, is_as_sealed


class RequestState(Enum):
    """The state of a request."""

    ANSWERED = "answered"
    ENDED = "ended"  # charged without an answer: it failed, or its process ended
    OPEN = "open"  # charged, and under way


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """A request that was charged under a key. `answer` is the stored answer; empty if there is none."""

    state: RequestState
    receipt: Receipt
    answer: bytes = b""


def hashed_key(by: str, key: str) -> bytes:
    """Return the hash that stands for a key in the ledger.

    `by` is empty for a key shared by all principals.
    """
    return sha256(f"{by}\n{key}".encode()).digest()


def status_of_request(
    ledger: Ledger, *, principal: str, key: str, shared: bool = False
) -> RequestStatus | None:
    """Return the status of this principal's request under this key, or None if there is none.

    If `shared`, it is the request of the first principal that used the key.
    """
    by = "" if shared else ledger.find_principal(principal)
    if by is None:  # it has asked nothing yet, and looking writes nothing
        return None
    hashed = hashed_key(by, checked_label(key, "key"))
    return status_under_key(ledger, hashed, None if shared else principal)


def used_keys(
    ledger: Ledger, *, principal: str, keys: Iterable[tuple[str, bool]]
) -> frozenset[tuple[str, bool]]:
    """Return those (key, shared) pairs under which a request was charged, with one statement for all.

    `status_of_request` reads and checks them, one by one. Other principals' own keys are not seen.
    """
    own = ledger.find_principal(principal)
    hashed = {
        hashed_key("" if shared else str(own), checked_label(key, "key")): (key, shared)
        for key, shared in keys
        if shared or own is not None  # it has asked nothing yet, and looking writes nothing
    }
    if not hashed:
        return frozenset()
    marks = ", ".join("?" * len(hashed))
    rows = ledger.store.rows(f"SELECT key FROM entries WHERE key IN ({marks})", *hashed)  # noqa: S608
    return frozenset(hashed[bytes(key)] for (key,) in rows)


def status_under_key(ledger: Ledger, hashed: bytes, principal: str | None) -> RequestStatus | None:
    """Return the status under a hashed key, after checking its entry and the digest of its answer.

    Without a principal, the receipt names the principal that was charged.
    """
    status = _look(ledger, hashed, principal)
    if (
        status is None
        or status.state is not RequestState.OPEN
        or is_running(ledger, hashed, status.receipt)
    ):
        return status
    # It may have ended since we looked, and then its answer was stored before: look again.
    again = _look(ledger, hashed, principal)
    assert again is not None, "entries only grow"
    return replace(again, state=RequestState.ENDED) if again.state is RequestState.OPEN else again


def is_running(ledger: Ledger, hashed: bytes, receipt: Receipt) -> bool:
    """Return whether some process still works on a request without an answer."""
    session = int(receipt.record["session"])
    # In this process we know better than by its session: a charge of unknown outcome was never run.
    own = session == ledger.store.session
    return hashed in ledger.running if own else ledger.store.is_alive(session)


def _look(ledger: Ledger, hashed: bytes, principal: str | None) -> RequestStatus | None:
    """Return the status as it stands in the database: OPEN if there is no outcome yet.

    Opening a ledger does not check older entries and answers, so this function checks what it reads.
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
    is_whole = done is not None and digest_of(bytes(done)) == bytes(done_digest)
    if not is_whole or not is_outcome(record, seq, answer):
        raise Tampered([f"the answer to charge {seq} was changed"])
    if answer is None:
        return RequestStatus(RequestState.ENDED, receipt)
    return RequestStatus(RequestState.ANSWERED, receipt._replace(answer=record["digest"]), bytes(answer))


def _rows(ledger: Ledger, hashed: bytes, tx: Transaction) -> list[Row]:
    rows = tx.rows(
        "SELECT asked.seq, asked.body, asked.digest, answers.entry, done.body, done.digest, answers.bytes "
        "FROM entries AS asked LEFT JOIN answers ON answers.charge = asked.seq "
        "LEFT JOIN entries AS done ON done.seq = answers.entry WHERE asked.key = ?",
        hashed,
    )
    signed_by = ledger.keys.signing.public, bytes.fromhex(ledger.id)
    for seq, _, _, done_at, *_ in rows:
        for entry in (seq, done_at):
            if entry is not None and not is_as_sealed(tx, entry, *signed_by):
                raise Tampered([f"entry {entry} is not the one that was sealed"])
    return rows


def status_at(ledger: Ledger, position: int) -> RequestStatus | None:
    """Return the status of the request that was charged at this position, or None if there is none."""
    rows = ledger.store.rows("SELECT key FROM entries WHERE seq = ?", position)
    return None if not rows or rows[0][0] is None else status_under_key(ledger, bytes(rows[0][0]), None)


def has_ended(ledger: Ledger, position: int) -> bool:
    """Return whether the entry at this position is a charge that will have no answer."""
    status = status_at(ledger, position)
    return status is not None and status.state is RequestState.ENDED


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
    """A charge without an answer: the principal's id, and the first accounts of the charged families."""

    position: int
    by: str
    accounts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FailedCharges:
    """All failed charges up to a seal that covers no running request.

    `undecided` are reservations up to the seal that have no answer and can be continued.
    """

    last: int = 0
    digest: str = ""
    failed: tuple[FailedCharge, ...] = ()
    undecided: tuple[int, ...] = ()

    def to_json(self) -> list[Any]:
        """Return a value for JSON."""
        failed = [[charge.position, charge.by, charge.accounts] for charge in self.failed]
        return [self.last, self.digest, failed, self.undecided]

    @classmethod
    def from_json(cls, kept: Any) -> FailedCharges:
        """Read the result of `to_json`. Raises ValueError, TypeError or IndexError if it is malformed."""
        last, digest, failed, undecided = kept
        charges = (FailedCharge(int(place), str(by), tuple(map(int, roots))) for place, by, roots in failed)
        return cls(int(last), bytes.fromhex(digest).hex(), tuple(charges), tuple(map(int, undecided)))


def find_failed_charges(ledger: Ledger, kept: FailedCharges) -> tuple[list[FailedCharge], FailedCharges]:
    """Return all failed charges, and the list that may be kept for the next call."""

    def look(tx: Transaction) -> tuple[FailedCharges, list[tuple[Any, ...]]]:
        stands = kept.last and tx.rows(_SEALED, kept.last, bytes.fromhex(kept.digest))[0][0]
        start = kept if stands else FailedCharges()
        again = ", ".join(map(str, start.undecided)) or "-1"
        return start, [tuple(row) for row in tx.rows(_UNANSWERED.format(again), start.last)]

    start, rows = ledger.store.read(look)
    failures, undecided, first_open = list(start.failed), [], _NEVER
    for position, key, body, failed in rows:
        earlier = status_under_key(ledger, bytes(key), "")
        if earlier is None or earlier.state is RequestState.ANSWERED:
            continue
        record = json.loads(bytes(body))
        if earlier.state is RequestState.OPEN:
            first_open = min(first_open, position)
        elif record["kind"] == "charge" or failed is not None:  # a reservation can be gone on with
            accounts = {ledger.numbered(number).root for number, *_ in record["debits"]}
            failures.append(FailedCharge(position, record["by"], tuple(sorted(accounts))))
        else:
            undecided.append(position)
    return failures, _up_to_a_seal(ledger, failures, undecided, first_open) or start


def _up_to_a_seal(
    ledger: Ledger, failures: list[FailedCharge], undecided: list[int], first_open: int
) -> FailedCharges | None:
    seals = ledger.store.rows(_BEFORE, first_open)
    if not seals:
        return None
    last, digest = int(seals[0][0]), bytes(seals[0][1]).hex()
    failed = tuple(charge for charge in failures if charge.position <= last)
    return FailedCharges(last, digest, failed, tuple(place for place in undecided if place <= last))
