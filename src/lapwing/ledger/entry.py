"""Entries: the public record of the ledger, as bytes that never change; and receipts of entries.

The body of an entry is one JSON object on one line. It contains no label. In place of a label stands a
random id that commits to it. So a body can be published, and the holder of label and salt can prove what
the id stands for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from time import time_ns
from typing import Any, NamedTuple

from lapwing.core.noise import random_bytes
from lapwing.errors import Tampered

FORMAT = 1
SALT_BYTES = 32
ID_LETTERS = 32
Ranges = list[list[int]]
Costs = tuple[int, ...]
RawEntry = tuple[int, bytes, bytes]  # an entry: its number, its public bytes, their digest
# The parameter of a charge whose request is stored. JSON escapes quotes, so no text can contain KEPT.
KEPT_NAME, KEPT_VALUE = "request", "kept"
KEPT = f'"{KEPT_NAME}":"{KEPT_VALUE}"'.encode()
text_of = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode  # JSON without spaces


@dataclass(frozen=True, slots=True)
class CommittedName:
    """A label and the random id that stands for it in public entries."""

    label: str
    salt: bytes
    id: str

    @classmethod
    def new(cls, label: str) -> CommittedName:
        """Return a fresh id for a label. The id commits to the label and reveals nothing about it."""
        salt = random_bytes(SALT_BYTES)
        return cls(label, salt, commitment(label, salt))


def commitment(label: str, salt: bytes) -> str:
    """Return the id of a label with this salt."""
    return sha256(salt + label.encode()).hexdigest()[:ID_LETTERS]


def encode(record: dict[str, Any]) -> bytes:
    """Return the bytes of an entry's body. Digests are taken of exactly these bytes."""
    return text_of(record).encode("ascii")


def encode_signed(record: dict[str, Any], sign: Callable[[bytes], bytes]) -> bytes:
    """Return the body of an entry that the curator signs. The field `signature` must be None so far."""
    return encode(record | {"signature": sign(encode(record)).hex()})


def digest_of(body: bytes) -> bytes:
    """Return the digest of an entry, which is also its leaf in the Merkle tree."""
    return sha256(b"\x00" + body).digest()


def request_digest(key: str, digest: str) -> str:
    """Return the digest that stands for a request in its entry.

    Without the idempotency key, nobody can test a guess of the request against it.
    """
    return sha256(f"{key}\n{digest}".encode()).hexdigest()


def request_of(key: str, asked: bytes, record: dict[str, Any]) -> bytes:
    """Return the request that is stored beside an entry.

    Raises Tampered if the entry is about another request.
    """
    if request_digest(key, sha256(asked).hexdigest()) != record.get("request"):
        raise Tampered(["a request is not the one that was charged"])
    return asked.partition(b"\n")[2]


def is_outcome(record: dict[str, Any], charge: int, answer: bytes | None) -> bool:
    """Return whether the record says that the charge got this answer; without one, that it failed."""
    expected = ("failed", None) if answer is None else ("answer", sha256(answer).hexdigest())
    said = record.get("kind"), record.get("digest"), record.get("charge")
    return said == (*expected, charge)


def now() -> str:
    """Return the current time as text, for people to read. No decision depends on it."""
    second, fraction = divmod(time_ns(), 10**9)
    return f"{_second_text(second)}.{fraction // 1000:06d}Z"


def time_in(body: bytes) -> str:
    """Return the time of an entry. Every body begins with its kind and its time."""
    return body.split(b'"', 8)[7].decode()


@lru_cache(maxsize=2)
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def ranges_of(numbers: Sequence[int]) -> Ranges:
    """Return whole numbers as sorted, inclusive ranges."""
    ranges: Ranges = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges


def numbers_in(ranges: Ranges) -> Iterator[int]:
    """Yield all numbers of the ranges."""
    for first, last in ranges:
        yield from range(first, last + 1)


class Receipt(NamedTuple):
    """A receipt of a charge: who was charged, for what, at which price, and where the entry stands.

    Attributes:
        ledger: the id of the ledger.
        position: the number of the entry.
        principal: the name of the principal that was charged.
        entry: the public bytes of the entry.
        answer: the SHA-256 digest of the stored answer; None if there is none yet.

    Example:
        >>> from lapwing.ledger import ChargedRelease, Gate
        >>> receipt = Gate(ledger, principal="ann").release(ChargedRelease(price, lambda: b"42")).receipt
        >>> receipt.principal, receipt.record["mechanism"]
        ('ann', 'example')
    """

    ledger: str
    position: int
    principal: str
    entry: bytes  # the charge's public bytes: all the rest follows from them
    answer: str | None = None  # sha256 of the stored answer

    @property
    def hash(self) -> str:
        """The digest of the entry as hex digits: its leaf in the ledger's Merkle tree."""
        return digest_of(self.entry).hex()

    @property
    def record(self) -> dict[str, Any]:
        """The fields of the entry: request digest, mechanism, parameters, loss, debits, time and others."""
        record: dict[str, Any] = json.loads(self.entry)
        return record

    @property
    def time(self) -> str:
        """The time of the charge. All entries that follow from it repeat this time."""
        return time_in(self.entry)

    @property
    def request(self) -> str:
        """The digest of the request."""
        return str(self.record["request"])

    def to_json(self) -> str:
        """Return the receipt as one JSON object."""
        record = self.record
        kept = ("at", "request", "mechanism", "parameters", "loss", "debits", "code")
        fields = {
            "ledger": self.ledger,
            "position": self.position,
            "hash": self.hash,
            "principal": self.principal,
            "answer": self.answer,
            **{name: record[name] for name in kept},
        }
        return json.dumps(fields, ensure_ascii=False, indent=2)


class CuratorCheck(NamedTuple):
    """A record that the curator saw exact counts under a policy; or that another policy was used later."""

    entry: int
    account: int
    policy: str  # a keyed digest of its declarations
    is_change: bool
