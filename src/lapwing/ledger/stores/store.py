"""What the ledger asks of a database: durable transactions, one at a time where it matters.

A store gives no meaning to what it keeps. It promises that a returned write is on disk and marked in
every anchor, that a write which raised changed nothing or is of unknown outcome (`Unavailable`), and
that entries come back in the order of history.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar, cast

from lapwing.errors import Unavailable
from lapwing.ledger.anchors import Anchor, Head, Mark
from lapwing.ledger.entry import Raw
from lapwing.ledger.keys import SigningKey
from lapwing.ledger.proofs.seal import Seal
from lapwing.ledger.stores import schema
from lapwing.ledger.stores.states import keep_state
from lapwing.ledger.stores.transaction import SEAL_COLUMNS, Posting, Transaction, last_seal

T = TypeVar("T")
Catalogue = dict[tuple[str, str], str]  # of a table ("" for none), and what hangs on it: how it is defined
Watch = Callable[[str], None]  # is told each step of a commit
SEAL_EVERY = 256
STATE_EVERY = 1024  # entries; and with every seal that was asked for (at opening, closing, verifying)


# Crash tests watch; nobody else does. Not a function of Python, since every charge calls it three times.
nobody_watches: Watch = dict[str, None]().get


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

    def history(self, tx: Transaction, after: int = 0) -> Iterator[Raw]:
        """All entries after a number, in order, streamed, as of the moment of `tx`."""
        sql = f"SELECT seq, body, digest FROM entries WHERE seq > {int(after)} ORDER BY seq"  # noqa: S608
        return cast(Iterator[Raw], tx.stream(sql))

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
            versions = [
                int(row[0]) for row in tx.rows("SELECT version FROM schema_version ORDER BY version")
            ]
            found = versions[-1] if versions else 0
            if 0 < found < schema.FIRST:
                raise Unavailable(f"{self.where} was written before the first release; use what wrote it")
            done = max(found - schema.FIRST + 1, 0)
            if done > len(steps):
                raise Unavailable(f"{self.where} was written by a newer Lapwing; install that one")
            if versions != list(range(schema.FIRST, schema.FIRST + done)):
                raise Unavailable(
                    f"{self.where} does not say which versions wrote it: put a copy back that does"
                )
            for number, step in enumerate(steps[done:], schema.FIRST + done):
                for statement in step:
                    tx.run(statement)
                tx.run("INSERT INTO schema_version VALUES (?)", number)

        self.write(work)


def next_seal(tx: Transaction, store: Store, *, stated: bool) -> Seal | None:
    """The newest seal, after everything was sealed in a transaction that nobody else appends beside.

    `stated` wants the signed state at that seal, too; otherwise there is one now and then.
    """
    seal = last_seal(tx)
    leaves = tx.rows("SELECT seq, digest FROM entries WHERE seq > ? ORDER BY seq", seal.last if seal else 0)
    if store.signing is None:
        return seal
    if leaves:
        new = [(int(seq), bytes(digest)) for seq, digest in leaves]
        seal = Seal.after(seal, new, store.ledger_id, store.signing)
        tx.run(
            f"INSERT INTO seals ({SEAL_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            seal.number, seal.last, seal.size, seal.root, seal.frontier, seal.previous, seal.digest,
            seal.signature,
        )  # fmt: skip
    keep_state_if_due(tx, store, seal, stated=stated)
    return seal


def keep_state_if_due(tx: Transaction, store: Store, seal: Seal | None, *, stated: bool) -> None:
    """Sign the state at the newest seal, if it is wanted or was not for long."""
    sizes = tx.rows("SELECT size FROM states JOIN seals USING (number)")
    if seal is None or store.signing is None or not sizes:
        return
    if stated or seal.size - sizes[0][0] >= STATE_EVERY:
        keep_state(tx, seal, store.signing)
