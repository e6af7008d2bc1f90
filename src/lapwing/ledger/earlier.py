"""What became of an earlier request of a principal, by its key alone. Nothing is charged or changed."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from hashlib import sha256

from lapwing.errors import Tampered
from lapwing.ledger.entry import checked_label, digest_of
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.receipt import Receipt
from lapwing.ledger.stores.states import is_as_sealed
from lapwing.ledger.stores.transaction import Row, Transaction


class State(Enum):
    """How far it came."""

    ANSWERED = "answered"
    ENDED = "ended"  # charged, and there will be no answer: it failed, or its process is gone
    OPEN = "open"  # charged, and under way


@dataclass(frozen=True, slots=True)
class Earlier:
    """A request that was charged under a key. `answer` are its stored bytes."""

    state: State
    receipt: Receipt
    answer: bytes = b""


def hashed_key(by: str, key: str) -> bytes:
    """How a principal's key stands in the ledger. A shared key is nobody's: `by` is empty."""
    return sha256(f"{by}\n{key}".encode()).digest()


def earlier(ledger: Ledger, *, principal: str, key: str, shared: bool = False) -> Earlier | None:
    """The request of this principal under this key, or None. If `shared`, of whoever came first."""
    by = "" if shared else ledger.principal(principal)
    return found_under(ledger, hashed_key(by, checked_label(key, "key")), None if shared else principal)


def found_under(ledger: Ledger, hashed: bytes, principal: str | None) -> Earlier | None:
    """The request under a hashed key, checked against its entry and the digest of its answer.

    Without a principal, the receipt names whoever was charged.
    """
    found = _look(ledger, hashed, principal)
    if found is None or found.state is not State.OPEN or is_alive(ledger, hashed, found.receipt):
        return found
    # It may have ended since we looked, and then its answer was stored before: look again.
    again = _look(ledger, hashed, principal)
    assert again is not None, "entries only grow"
    return replace(again, state=State.ENDED) if again.state is State.OPEN else again


def is_alive(ledger: Ledger, hashed: bytes, receipt: Receipt) -> bool:
    """Whether some process is still at work on a request without an answer."""
    session = int(receipt.record["session"])
    # In this process we know better than by its session: a charge of unknown outcome was never run.
    own = session == ledger.store.session
    return hashed in ledger.running if own else ledger.store.is_alive(session)


def _look(ledger: Ledger, hashed: bytes, principal: str | None) -> Earlier | None:
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
        return Earlier(State.OPEN, receipt)
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
        return Earlier(State.ENDED, receipt)
    return Earlier(State.ANSWERED, receipt._replace(answer=stored), bytes(answer))


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
    found = found_under(ledger, bytes(rows[0][0]), "")
    return found is not None and found.state is State.ENDED
