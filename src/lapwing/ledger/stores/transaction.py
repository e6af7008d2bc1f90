"""Transactions, as both databases have them: statements, entries, debits and seals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lapwing.errors import LapwingError
from lapwing.ledger.entry import Costs, Ranges, digest_of
from lapwing.ledger.proofs.seal import Seal

Row = tuple[Any, ...]
SEAL_COLUMNS = "number, last, size, root, frontier, previous, digest, signature"


class Debit(NamedTuple):
    """The same costs on blocks of one account, each cost at most its cap + 1."""

    account: int
    ranges: Ranges
    costs: Costs


class Posting(NamedTuple):
    """A charge, ready to be written: all its debits and its entry, or nothing."""

    body: bytes
    digest: bytes
    key: bytes | None
    debits: tuple[Debit, ...]

    @classmethod
    def of(cls, body: bytes, key: bytes | None, debits: tuple[Debit, ...]) -> Posting:
        """A posting with its digest."""
        return cls(body, digest_of(body), key, debits)


class DoesNotFit(LapwingError):
    """Some debit was not admitted, or its block is closed. Internal: callers see `OverBudget`."""


class KeyTaken(LapwingError):
    """There is an entry with this key. Internal: callers see its answer, or why there is none."""


class Transaction(ABC):
    """Statements that become durable together. Parameters are written `?`."""

    @abstractmethod
    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        """All rows of a query."""

    @abstractmethod
    def stream(self, sql: str) -> Iterator[Row]:
        """The rows of a query, few at a time."""

    @abstractmethod
    def run(self, sql: str, *parameters: Any) -> int:
        """Run a statement; the number of rows that it changed."""

    @abstractmethod
    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        """Run a statement once per row."""

    @abstractmethod
    def append(self, body: bytes, key: bytes | None = None) -> int:
        """Append an entry; its number."""

    @abstractmethod
    def skip(self, last: int) -> None:
        """Leave the numbers up to `last` unused: an anchor knows them as entries that are lost."""

    @abstractmethod
    def debit(self, posting: Posting) -> int:
        """Debit and append; the entry's number. Raises `DoesNotFit` or `KeyTaken`."""

    @abstractmethod
    def lock(self, blocks: Sequence[int]) -> None:
        """Nobody else changes these blocks until the end."""


def last_seal(tx: Transaction) -> Seal | None:
    """The newest seal."""
    rows = tx.rows(f"SELECT {SEAL_COLUMNS} FROM seals ORDER BY number DESC LIMIT 1")  # noqa: S608
    return seal_of(rows[0]) if rows else None


def seal_of(row: Row) -> Seal:
    """A seal from its row."""
    number, last, size, root, frontier, previous, digest, signature = row
    return Seal(
        number, last, size, bytes(root), bytes(frontier), bytes(previous), bytes(digest), bytes(signature)
    )
