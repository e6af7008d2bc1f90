"""What the ledger asks of a database: durable transactions, one at a time where it matters.

A store gives no meaning to what it keeps. It promises that a returned write is on disk and marked in
every anchor, that a write which raised changed nothing or is of unknown outcome (`Unavailable`), and
that entries come back in the order of history.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from lapwing.errors import LapwingError, Unavailable
from lapwing.ledger.anchors import Anchor, Head, Mark
from lapwing.ledger.entry import Costs, Ranges, Raw, digest_of
from lapwing.ledger.keys import SigningKey
from lapwing.ledger.proofs.seal import Seal
from lapwing.ledger.stores import schema

T = TypeVar("T")
Row = tuple[Any, ...]
Catalogue = dict[tuple[str, str], str]  # of a table ("" for none), and what hangs on it: how it is defined
Watch = Callable[[str], None]  # is told each step of a commit
SEAL_EVERY = 256
SEAL_COLUMNS = "number, last, size, root, frontier, previous, digest, signature"


# Crash tests watch; nobody else does. Not a function of Python, since every charge calls it three times.
nobody_watches: Watch = dict[str, None]().get


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


class Store(ABC):
    """A database that holds one ledger."""

    where: str
    dialect: schema.Dialect

    def __init__(self) -> None:
        self.anchors: tuple[Anchor, ...] = ()
        self.witnesses: tuple[Anchor, ...] = ()
        self.signing: SigningKey | None = None
        self.ledger_id = b""
        self.anchored = 0  # the seal that the anchors know
        self.statements: tuple[str, ...] = ()  # which made the tables

    def attend(
        self, ledger_id: bytes, signing: SigningKey, anchor: Anchor, witnesses: Sequence[Anchor]
    ) -> None:
        """From now on mark every entry in the anchor, every seal in the witnesses too, and sign seals."""
        self.ledger_id, self.signing = ledger_id, signing
        self.anchors, self.witnesses = (anchor,), tuple(witnesses)

    def mark(self, marks: Sequence[Mark], head: Head | None) -> None:
        """Tell the anchors what was committed. Only then may a charge be acknowledged."""
        for anchor in self.anchors:
            anchor.write(marks, head)
        if head is not None:
            for witness in self.witnesses:
                witness.write((), head)

    def ready(self, marks: Sequence[Mark], head: Head | None) -> Callable[[], None]:
        """What `mark` has to do once these are committed, begun as far as it can be before."""
        if head is None and len(self.anchors) == 1:
            return self.anchors[0].ready(marks)
        return partial(self.mark, marks, head)

    def anchor(self, seal: Seal | None) -> None:
        """Tell the anchors of a seal, unless they know it."""
        if seal is not None and seal.number != self.anchored:
            self.mark((), seal.head)
            self.anchored = seal.number

    @abstractmethod
    def write(self, work: Callable[[Transaction], T], *, alone: bool = True) -> T:
        """Do all of `work` durably, or nothing of it. One at a time in the whole ledger, if `alone`."""

    @abstractmethod
    def read(self, work: Callable[[Transaction], T]) -> T:
        """Look at one moment of the ledger."""

    @abstractmethod
    def charge(self, posting: Posting) -> int:
        """Debit and append, durably; the entry's number. Raises `DoesNotFit` or `KeyTaken`."""

    @abstractmethod
    def history(self, tx: Transaction) -> Iterator[Raw]:
        """All entries in order, streamed, as of the moment of `tx`."""

    @abstractmethod
    def seal(self) -> Seal | None:
        """Seal all entries so far, and tell the anchors; the newest seal."""

    @abstractmethod
    def catalogue(self, tx: Transaction) -> Catalogue:
        """The tables and what hangs on them (columns, keys, indexes, triggers), and functions."""

    @abstractmethod
    def catalogue_as_made(self) -> Catalogue | None:
        """The same of an empty ledger that `statements` have just made; None if that is not allowed."""

    @abstractmethod
    def is_alive(self, session: int) -> bool:
        """Whether the process that opened the ledger under this session number still has it open."""

    @property
    @abstractmethod
    def session(self) -> int:
        """The number under which this process has the ledger open."""

    @abstractmethod
    def close(self) -> None:
        """Seal and let go."""

    def migrate(self, migrations: Sequence[Callable[[schema.Dialect], tuple[str, ...]]]) -> None:
        """Bring the tables up to date, in one transaction."""
        steps = [migration(self.dialect) for migration in migrations]
        self.statements = (schema.VERSION_TABLE, *(statement for step in steps for statement in step))

        def work(tx: Transaction) -> None:
            tx.run(schema.VERSION_TABLE)
            found = int(tx.rows("SELECT coalesce(max(version), 0) FROM schema_version")[0][0])
            if 0 < found < schema.FIRST:
                raise Unavailable(f"{self.where} was written before the first release; use what wrote it")
            done = max(found - schema.FIRST + 1, 0)
            if done > len(steps):
                raise Unavailable(f"{self.where} was written by a newer Lapwing; install that one")
            for number, step in enumerate(steps[done:], schema.FIRST + done):
                for statement in step:
                    tx.run(statement)
                tx.run("INSERT INTO schema_version VALUES (?)", number)

        self.write(work)


def next_seal(tx: Transaction, store: Store) -> Seal | None:
    """The newest seal, after everything was sealed in a transaction that nobody else appends beside."""
    last = last_seal(tx)
    leaves = tx.rows("SELECT seq, digest FROM entries WHERE seq > ? ORDER BY seq", last.last if last else 0)
    if not leaves or store.signing is None:
        return last
    new = [(int(seq), bytes(digest)) for seq, digest in leaves]
    seal = Seal.after(last, new, store.ledger_id, store.signing)
    tx.run(
        f"INSERT INTO seals ({SEAL_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        seal.number, seal.last, seal.size, seal.root, seal.frontier, seal.previous, seal.digest,
        seal.signature,
    )  # fmt: skip
    return seal


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
