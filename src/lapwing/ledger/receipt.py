"""Receipts: what a release leaves behind for whoever asked."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from lapwing.ledger.entry import digest_of


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
