"""Entries: what happened, as public bytes that never change.

An entry's body is one JSON object on one line. It names nobody: labels stand in it as random ids that
commit to them, so a body can be published, and whoever holds label and salt can prove what it was about.

Receipts: what a release leaves behind for whoever asked.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from time import time_ns
from typing import Any, NamedTuple

from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter, Tampered

FORMAT = 1
LABEL_AT_MOST = 200
SALT_BYTES = 32
ID_LETTERS = 32
Ranges = list[list[int]]
Costs = tuple[int, ...]
RawEntry = tuple[int, bytes, bytes]  # an entry: its number, its public bytes, their digest
# How a charge whose request is kept says so, among its parameters. In texts of JSON quotes are escaped.
KEPT_NAME, KEPT_VALUE = "request", "kept"
KEPT = f'"{KEPT_NAME}":"{KEPT_VALUE}"'.encode()
_compact = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class CommittedName:
    """A label, and the random id under which it stands in public entries."""

    label: str
    salt: bytes
    id: str

    @classmethod
    def new(cls, label: str) -> CommittedName:
        """A fresh id for a label; it commits to the label and tells nothing about it."""
        salt = random_bytes(SALT_BYTES)
        return cls(label, salt, commitment(label, salt))


def commitment(label: str, salt: bytes) -> str:
    """The id that belongs to a label and its salt."""
    return sha256(salt + label.encode()).hexdigest()[:ID_LETTERS]


def text_of(value: object) -> str:
    """As JSON, without spaces."""
    return _compact(value)


def encode(record: dict[str, Any]) -> bytes:
    """The bytes of a body. They are hashed as they are, so there is no second form to agree on."""
    return _compact(record).encode("ascii")


def digest_of(body: bytes) -> bytes:
    """The digest of an entry, which is also its leaf in the tree."""
    return sha256(b"\x00" + body).digest()


def request_digest(key: str, digest: str) -> str:
    """How a request stands in its entry. Who does not know the key cannot guess the question from it."""
    return sha256(f"{key}\n{digest}".encode()).hexdigest()


def request_of(key: str, asked: bytes, record: dict[str, Any]) -> bytes:
    """The request that was kept beside an entry. Raises `Tampered` if it is not what the entry is of."""
    if request_digest(key, sha256(asked).hexdigest()) != record.get("request"):
        raise Tampered(["a request is not the one that was charged"])
    return asked.partition(b"\n")[2]


def now() -> str:
    """The time, for people to read: nothing is ever decided by it."""
    second, fraction = divmod(time_ns(), 10**9)
    return f"{_second_text(second)}.{fraction // 1000:06d}Z"


@lru_cache(maxsize=2)
def _second_text(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def checked_label(text: str, name: str) -> str:
    """A label of 1 to 200 printable characters, in one normal form, so that look-alikes are equal."""
    if not isinstance(text, str):
        raise BadParameter(name, "must be text")
    if not 0 < len(text) <= LABEL_AT_MOST:
        raise BadParameter(name, f"must have 1 to {LABEL_AT_MOST} characters")
    if not text.isascii():  # in ASCII there is one form
        text = unicodedata.normalize("NFC", text)
        if len(text) > LABEL_AT_MOST:  # a few letters become longer
            raise BadParameter(name, f"must have 1 to {LABEL_AT_MOST} characters")
    if not text.isprintable() or text != text.strip():
        raise BadParameter(name, "must be printable, without spaces around it")
    return text


def ranges_of(numbers: Sequence[int]) -> Ranges:
    """Rising whole numbers as inclusive ranges: blocks are opened in runs, and named in runs."""
    ranges: Ranges = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges


def numbers_in(ranges: Ranges) -> Iterator[int]:
    """All numbers of the ranges."""
    for first, last in ranges:
        yield from range(first, last + 1)


class Receipt(NamedTuple):
    """Who, what, at which price, by which code; and where in the ledger, under which hash."""

    ledger: str
    position: int
    principal: str
    entry: bytes  # the charge's public bytes: all the rest follows from them
    answer: str | None = None  # sha256 of the stored answer

    @property
    def hash(self) -> str:
        """The digest of the entry, which is its leaf in the ledger's tree."""
        return digest_of(self.entry).hex()

    @property
    def record(self) -> dict[str, Any]:
        """The entry's fields: request digest, mechanism, parameters, loss, debits, code version, time."""
        record: dict[str, Any] = json.loads(self.entry)
        return record

    @property
    def request(self) -> str:
        """The digest of what was asked."""
        return str(self.record["request"])

    def to_json(self) -> str:
        """As one JSON object."""
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
