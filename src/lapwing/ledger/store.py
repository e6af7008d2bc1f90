"""The interface to the database of a ledger: durable transactions, seals and signed states.

A store gives no meaning to what it keeps. When a write returns, it is on disk and marked in every anchor.
When a write raises, it changed nothing, or its outcome is unknown (`Unavailable`). Entries come back in the
order of the history.

A signed state is the state of the accountant at a seal, so that opening a ledger need not begin at the
first entry.

Claim    opening from a state accepts the same tables, and the same entries after it, as a replay of all of
         history, if the entries up to its seal are those that were sealed.
Because  a state is made only from the state before (or from a replay of everything, or from nothing) and
         the entries since, which must have the root that its seal signs. It is never taken from the
         tables. It is signed together with the digest of that seal.
Test     tests/ledger/test_ledger_states.py, tests/faults/test_ledger_tampering.py
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from lapwing.core.exact import least_where
from lapwing.errors import BadParameter, LapwingError, Tampered, Unavailable
from lapwing.ledger import schema
from lapwing.ledger.accountant.replay import OtherStateFormat, Replay, replay_from, state_bytes
from lapwing.ledger.anchors import Anchor, Head, Mark
from lapwing.ledger.entry import Costs, Ranges, RawEntry, digest_of
from lapwing.ledger.keys import SigningKey, good_signature
from lapwing.ledger.seals import MerkleTree, Seal

Row = tuple[Any, ...]
SEAL_COLUMNS = "number, last, size, root, frontier, previous, digest, signature"


class Debit(NamedTuple):
    """The same costs on blocks of one account. Each cost is at most its cap + 1."""

    account: int
    ranges: Ranges
    costs: Costs


class Posting(NamedTuple):
    """A charge that is ready to be written: all its debits and its entry."""

    body: bytes
    digest: bytes
    key: bytes | None
    debits: tuple[Debit, ...]

    @classmethod
    def of(cls, body: bytes, key: bytes | None, debits: tuple[Debit, ...]) -> Posting:
        """Return a posting with its digest."""
        return cls(body, digest_of(body), key, debits)


class DoesNotFit(LapwingError):
    """A debit was not admitted, or its block is closed. Internal: callers see `OverBudget`."""

    code = "does-not-fit"


class KeyTaken(LapwingError):
    """An entry with this key exists. Internal: callers see its answer, or why there is none."""

    code = "key-taken"


class Transaction(ABC):
    """A set of statements that become durable together. Parameters are written `?`."""

    @abstractmethod
    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        """Return all rows of a query."""

    @abstractmethod
    def stream(self, sql: str) -> Iterator[Row]:
        """Yield the rows of a query without keeping all of them in memory."""

    def history(self, after: int = 0) -> Iterator[RawEntry]:
        """Yield all entries after a number, in order."""
        sql = f"SELECT seq, body, digest FROM entries WHERE seq > {int(after)} ORDER BY seq"  # noqa: S608
        return cast(Iterator[RawEntry], self.stream(sql))

    @abstractmethod
    def run(self, sql: str, *parameters: Any) -> int:
        """Run a statement and return the number of changed rows."""

    @abstractmethod
    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        """Run a statement once for each row of parameters."""

    @abstractmethod
    def append(self, body: bytes, key: bytes | None = None) -> int:
        """Append an entry and return its number."""

    @abstractmethod
    def skip(self, last: int) -> None:
        """Leave the entry numbers up to `last` unused: an anchor knows them as lost entries."""

    @abstractmethod
    def debit(self, posting: Posting) -> int:
        """Debit the blocks, append the entry and return its number. Raises `DoesNotFit` or `KeyTaken`."""

    @abstractmethod
    def lock(self, blocks: Sequence[int]) -> None:
        """Lock blocks, so that nobody else changes them until the transaction ends."""


def seals_where(tx: Transaction, condition: str, *parameters: Any) -> list[Seal]:
    """Return the seals that meet an SQL condition, which may end with an order."""
    rows = tx.rows(f"SELECT {SEAL_COLUMNS} FROM seals WHERE {condition}", *parameters)  # noqa: S608
    return [seal_of(row) for row in rows]


def last_seal(tx: Transaction, up_to: int | None = None) -> Seal | None:
    """Return the newest seal (of entries up to a number, if one is given), or None."""
    condition, bounds = ("true", ()) if up_to is None else ("last <= ?", (up_to,))
    seals = seals_where(tx, f"{condition} ORDER BY number DESC LIMIT 1", *bounds)
    return seals[0] if seals else None


def tree_up_to(tx: Transaction, before: Seal | None, last: int) -> MerkleTree:
    """Return the tree of all entries up to number `last`, continued from an earlier seal."""
    tree = MerkleTree.at_seal(before)
    leaves = "SELECT digest FROM entries WHERE seq > ? AND seq <= ? ORDER BY seq"
    tree.extend([bytes(digest) for (digest,) in tx.rows(leaves, before.last if before else 0, last)])
    return tree


def seal_of(row: Row) -> Seal:
    """Return the seal of a database row."""
    number, last, size, *digests = row
    return Seal(number, last, size, *map(bytes, digests))


@dataclass(slots=True)
class SignedState:
    """The state of the accountant after the leaves of a tree.

    `seal` is the seal that signed the root of the tree; None if the state was replayed from the entries.
    """

    replay: Replay = field(default_factory=Replay)
    tree: MerkleTree = field(default_factory=MerkleTree)
    seal: Seal | None = None

    @classmethod
    def read(cls, tx: Transaction, public: bytes) -> SignedState | None:
        """Return the newest signed state, or None if there is none in the current format.

        Raises Tampered if it is not what was signed.
        """
        sql = f"SELECT {SEAL_COLUMNS}, books, state_signature FROM states JOIN seals USING (number)"  # noqa: S608
        rows = tx.rows(sql)
        if not rows:
            return None
        *sealed, content, signature = rows[0]
        seal, books = seal_of(tuple(sealed)), bytes(content)
        wrong = Tampered([f"the state at seal {seal.number} is not the one that was signed"])
        if not good_signature(public, _message(seal, books), bytes(signature)):
            raise wrong
        try:
            state = cls(replay_from(books), MerkleTree.at_seal(seal), seal)
        except BadParameter:
            raise wrong from None
        except OtherStateFormat:
            return None
        said = state.tree.root, state.replay.last, state.replay.entries
        is_signed = seal.is_signed_by(public, bytes.fromhex(state.replay.ledger))
        if not is_signed or said != (seal.root, seal.last, seal.size):
            raise wrong
        return state


def _message(seal: Seal, books: bytes) -> bytes:
    return b"lapwing state\x00" + seal.digest + hashlib.sha256(books).digest()


def keep_state(tx: Transaction, seal: Seal, signing: SigningKey, state: SignedState | None = None) -> None:
    """Sign and store the state at a seal.

    It continues from the given state (or the stored one) with all entries since. If that fails (entries
    that do not follow, a state that is too large), no state is stored, and the next opening replays
    everything.
    """
    if tx.rows("SELECT 1 FROM states JOIN seals USING (number) WHERE number = ?", seal.number):
        return
    try:
        state = state or SignedState.read(tx, signing.public)
    except Tampered:
        return  # the next opening says so
    if state is None or state.replay.last > seal.last:
        return
    further = "SELECT seq, body, digest FROM entries WHERE seq > ? AND seq <= ? ORDER BY seq"
    rows = [
        (seq, bytes(body), bytes(digest))
        for seq, body, digest in tx.rows(further, state.replay.last, seal.last)
    ]
    state.replay.feed(rows)
    state.tree.extend([digest for _, _, digest in rows])
    is_sealed = (state.tree.size, state.tree.root) == (seal.size, seal.root)
    books = state_bytes(state.replay) if is_sealed and not state.replay.finish() else None
    tx.run("DELETE FROM states")
    if books is not None:
        tx.run(
            "INSERT INTO states (number, books, state_signature) VALUES (?, ?, ?)",
            seal.number, books, signing.sign(_message(seal, books)),
        )  # fmt: skip


def differing(tx: Transaction, lines: Iterable[Mark | Head], lost_up_to: int) -> list[Mark | Head]:
    """Return the lines of an anchor that contradict the ledger, except entries that were declared lost."""
    contradicting: list[Mark | Head] = []
    for line in lines:
        if isinstance(line, Head):
            same = _agrees_with_ledger(tx, line)
        else:
            rows = tx.rows("SELECT digest FROM entries WHERE seq = ?", line.seq)
            same = bool(rows) and bytes(rows[0][0]) == line.digest
        if not same and line.last > lost_up_to:
            contradicting.append(line)
    return contradicting


def _agrees_with_ledger(tx: Transaction, head: Head) -> bool:
    """Return whether the ledger has the seal of this head; or, without such a seal, the same entries.

    A copy that was made before the last seal was written has lost nothing.
    """
    seals = seals_where(tx, "number = ?", head.number)
    if seals:
        return seals[0].head == head
    tree = tree_up_to(tx, last_seal(tx, head.last), head.last)
    return (tree.size, tree.root) == (head.size, head.root)


def is_as_sealed(tx: Transaction, entry: int, public: bytes, ledger_id: bytes) -> bool:
    """Return whether an entry is the one that its seal signed. An entry that is not sealed yet passes.

    Seals are a few hundred entries apart. The frontier of the seal before and the leaves since give the
    root.
    """
    [(newest,)] = tx.rows("SELECT coalesce(max(number), 0) FROM seals")

    def covers(number: int) -> bool:
        return bool(tx.rows("SELECT 1 FROM seals WHERE number = ? AND last >= ?", number, entry))

    first = least_where(covers, 0, int(newest) + 1)
    if first > newest:
        return True
    *earlier, seal = seals_where(tx, "number IN (?, ?) ORDER BY number", first - 1, first)
    before = earlier[0] if earlier else None
    try:
        tree = tree_up_to(tx, before, seal.last)
    except BadParameter:
        return False
    is_root = (tree.size, tree.root) == (seal.size, seal.root)
    last = before.last if before else 0
    return is_root and last < entry <= seal.last and seal.is_signed_by(public, ledger_id)


T = TypeVar("T")
Catalogue = dict[tuple[str, str], str]  # by table ("" for none) and part: its definition
Watch = Callable[[str], None]  # is told each step of a commit
SEAL_EVERY = 256
STATE_EVERY = 1024  # entries; and with every seal that was asked for (at opening, closing, verifying)


# Only crash tests watch. It is no Python function, because every charge calls it three times.
nobody_watches: Watch = dict[str, None]().get


class Store(ABC):
    """A database that holds one ledger."""

    where: str
    dialect: schema.StoreDialect
    marks_in_turn = False  # whether processes take turns to write marks, so that anchors need no lock

    def __init__(self) -> None:
        self.anchors: tuple[Anchor, ...] = ()
        self.witnesses: tuple[Anchor, ...] = ()
        self.signing: SigningKey | None = None
        self.ledger_id = b""
        self.anchored = 0  # the seal that the anchors know
        self.statements: tuple[str, ...] = ()  # which made the tables

    def start_sealing(
        self, ledger_id: bytes, signing: SigningKey, anchor: Anchor, witnesses: Sequence[Anchor]
    ) -> None:
        """Begin to mark every entry in the anchor, every seal in the witnesses too, and to sign seals."""
        self.ledger_id, self.signing = ledger_id, signing
        self.anchors, self.witnesses = (anchor,), tuple(witnesses)
        for guarded in (anchor, *witnesses):
            guarded.is_guarded = self.marks_in_turn

    def mark(self, marks: Sequence[Mark], head: Head | None) -> None:
        """Write committed entries to the anchors. Only then may a charge be acknowledged."""
        for anchor in self.anchors:
            anchor.write(marks, head)
        if head is not None:
            for witness in self.witnesses:
                witness.write((), head)

    def prepare(self, marks: Sequence[Mark], head: Head | None) -> Callable[[], None]:
        """Prepare `mark`, and return the function that finishes it after the commit."""
        if head is None and len(self.anchors) == 1:
            return self.anchors[0].prepare(marks)
        return partial(self.mark, marks, head)

    def anchor(self, seal: Seal | None) -> None:
        """Write a seal to the anchors, unless they have it."""
        if seal is not None and seal.number != self.anchored:
            self.mark((), seal.head)
            self.anchored = seal.number

    def close_anchors(self) -> None:
        """Close the files and connections of all anchors."""
        for anchor in (*self.anchors, *self.witnesses):
            anchor.close()

    @abstractmethod
    def write(self, work: Callable[[Transaction], T], *, alone: bool = True) -> T:
        """Run `work` in a durable transaction. If `alone`, no other write of the ledger runs meanwhile."""

    @abstractmethod
    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one consistent snapshot of the ledger."""

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        """Return all rows of a query on a snapshot of the ledger."""
        return self.read(lambda tx: tx.rows(sql, *parameters))

    @abstractmethod
    def charge(self, posting: Posting) -> int:
        """Post a charge durably and return the entry's number. Raises `DoesNotFit` or `KeyTaken`."""

    @abstractmethod
    def seal(self) -> Seal | None:
        """Seal all entries so far, write the seal to the anchors, and return the newest seal."""

    def next_seal(self, tx: Transaction, *, with_state: bool) -> Seal | None:
        """Seal all entries and return the newest seal. Nobody else may append during the transaction.

        `with_state` also stores the signed state at that seal; otherwise one is stored from time to time.
        """
        seal = last_seal(tx)
        unsealed = "SELECT seq, digest FROM entries WHERE seq > ? ORDER BY seq"
        leaves = [(int(seq), bytes(digest)) for seq, digest in tx.rows(unsealed, seal.last if seal else 0)]
        if self.signing is None:
            return seal
        if leaves:
            seal = Seal.after(seal, leaves, self.ledger_id, self.signing)
            tx.run(
                f"INSERT INTO seals ({SEAL_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                seal.number, seal.last, seal.size, seal.root, seal.frontier, seal.previous, seal.digest,
                seal.signature,
            )  # fmt: skip
        self.keep_state_if_due(tx, seal, with_state=with_state)
        return seal

    def keep_state_if_due(self, tx: Transaction, seal: Seal | None, *, with_state: bool) -> None:
        """Store the signed state at the newest seal if `with_state`, or if the stored one is old."""
        sizes = tx.rows("SELECT size FROM states JOIN seals USING (number)")
        if seal is None or self.signing is None or not sizes:
            return
        if with_state or seal.size - sizes[0][0] >= STATE_EVERY:
            keep_state(tx, seal, self.signing)

    @abstractmethod
    def copy_id(self) -> str:
        """Return an identity of this copy of the ledger, which another copy does not have."""

    @abstractmethod
    def catalogue(self, tx: Transaction) -> Catalogue:
        """Return the definitions of tables, columns, keys, indexes, triggers and functions."""

    @abstractmethod
    def catalogue_as_made(self) -> Catalogue | None:
        """Return the catalogue of a new empty ledger; None if the database user may not create one."""

    @abstractmethod
    def is_alive(self, session: int) -> bool:
        """Return whether the process with this session number still has the ledger open."""

    @property
    @abstractmethod
    def session(self) -> int:
        """The session number under which this process has the ledger open."""

    @abstractmethod
    def close(self) -> None:
        """Seal the entries and close the database."""

    def migrate(self) -> None:
        """Bring the tables up to date, in one transaction."""
        steps = [migration(self.dialect) for migration in schema.MIGRATIONS]
        self.statements = (schema.VERSION_TABLE, *(statement for step in steps for statement in step))

        def work(tx: Transaction) -> None:
            tx.run(schema.VERSION_TABLE)
            rows = tx.rows("SELECT version FROM schema_version ORDER BY version")
            versions = [int(version) for (version,) in rows]
            latest = versions[-1] if versions else 0
            if 0 < latest < schema.FIRST:
                raise Unavailable(
                    f"{self.where} was written before the first release: use the version that wrote it"
                )
            done = max(latest - schema.FIRST + 1, 0)
            if done > len(steps):
                raise Unavailable(f"{self.where} was written by a newer Lapwing: install that version")
            if versions != list(range(schema.FIRST, schema.FIRST + done)):
                raise Unavailable(
                    f"{self.where} does not say which versions wrote it: restore a copy that does"
                )
            for number, step in enumerate(steps[done:], schema.FIRST + done):
                for statement in step:
                    tx.run(statement)
                tx.run("INSERT INTO schema_version VALUES (?)", number)

        self.write(work)
