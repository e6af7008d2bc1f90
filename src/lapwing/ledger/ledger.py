"""The ledger: where it is stored, opening it, its accounts and blocks, recovery, and checks of the curator.

Charges are made by `ledger.gate`.

Claim    a budget is for life: no restart, rename, restore, date or refund gives any of it back.
Because  entries only grow. Everything that decides a charge is compared with them at opening, and the
         anchors outside the database know the latest entries. Caps are fixed, and a raise is a signed
         second account whose (ε, δ) is added in every statement.
Test     tests/ledger/, tests/faults/test_ledger_tampering.py

Recovery: the anchor is missing, or knows more than the ledger.

Claim    a recovery gives nothing back of any account that the ledger still knows.
Because  nobody can tell what the lost entries charged, so every open block is closed with all of its
         budget spent, in an entry that the curator signs. A witness does not change that: it knows seals,
         not every charge since. To continue, the curator must raise the account, which every statement
         shows. Numbers of lost entries are never used again, so an anchor that knows them stays right.
Test     tests/ledger/test_recovery.py

Checks: the curator looked at exact counts of the data.

Claim    a statement shows every check, and every later policy that differs from the checked one.
Because  the curator signs an entry before any row is read for a check. When a checked account is used,
         the digest of the policy is compared with the digests in its entries. No entry holds a count.
Test     tests/ledger/test_checks.py, tests/query/test_check.py
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from lapwing.config.values import checked_label, is_postgres
from lapwing.core.budget import Terms
from lapwing.core.exact import Number
from lapwing.core.losses import Relation
from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter, Tampered
from lapwing.ledger.accountant.replay import CuratorCheck
from lapwing.ledger.accounts import (
    EVERYONE,
    Account,
    Slices,
    Unit,
    insert_blocks,
    new_account,
    raised_account,
)
from lapwing.ledger.anchors import Anchor, FileAnchor, Head, Mark
from lapwing.ledger.check import CheckReport, check, differing
from lapwing.ledger.entry import FORMAT, CommittedName, encode, now
from lapwing.ledger.keys import CuratorKey, LedgerKeys
from lapwing.ledger.lookup import LedgerLookup
from lapwing.ledger.remote_anchors import anchor_at, witness_directory
from lapwing.ledger.schema import COSTS, LOST, MIGRATIONS, OPEN
from lapwing.ledger.sqlite_store import SqliteStore
from lapwing.ledger.store import SignedState, Store, Transaction, keep_state, last_seal


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """The database, the key files and the first anchor of a ledger."""

    database: str
    keys: Path
    anchor: Anchor
    curator: Path

    @classmethod
    def of(
        cls,
        where: str | Path,
        *,
        keys: Path | None,
        anchor: str | Path | None,
        curator: Path | None = None,
    ) -> LedgerPlace:
        """Return the place of a ledger in a file or at a PostgreSQL URL.

        `#name` at the end of a URL keeps several ledgers apart.
        """
        if not isinstance(where, str | Path) or not str(where):
            raise BadParameter("ledger", "must be a path or a postgresql:// URL")
        if is_postgres(where):
            if keys is None or anchor is None:
                raise BadParameter("ledger", "in PostgreSQL needs the paths of its keys and its anchor")
            return cls(str(where), Path(keys), anchor_at(anchor), Path(curator or f"{keys}.curator"))
        path = Path(where)
        return cls(
            database=str(path),
            keys=Path(keys) if keys else Path(f"{path}.keys"),
            anchor=anchor_at(anchor if anchor is not None else f"{path}.anchor"),
            curator=Path(curator or f"{path}.curator"),
        )

    def require_unused(self) -> None:
        """Raise BadParameter if a ledger, or a part of one, exists there."""
        for path in (
            self.keys, self.curator, *([] if is_postgres(self.database) else [Path(self.database)]),
        ):  # fmt: skip
            if path.exists():
                raise BadParameter("ledger", f"{path} exists: a ledger is never replaced")
        if self.anchor.exists():
            raise BadParameter("ledger", f"{self.anchor.where} knows a ledger: it is never replaced")

    @property
    def news(self) -> str:
        """The notice of a new ledger, for people."""
        return (
            f"New ledger {self.database}, for life. The curator's key is in {self.curator}: move it away."
        )

    def store(self, *, create: bool) -> Store:
        """Open the database."""
        if is_postgres(self.database):
            # psycopg is an extra: only ledgers in PostgreSQL need it.
            from lapwing.ledger.postgres_store import PostgresStore  # noqa: PLC0415

            return PostgresStore(self.database, create=create)
        return SqliteStore(Path(self.database), create=create)

    def witnesses(self, ledger_id: str) -> tuple[Anchor, ...]:
        """Return a second anchor in the user's own folder.

        Restoring the data's folder does not restore it.
        """
        directory = witness_directory()
        return (FileAnchor(directory / f"{ledger_id}.anchor"),) if directory else ()


class RunningRequests:
    """The requests that run in this process, by their hashed keys.

    Several threads may try the same key. Only the thread whose charge was accepted stays in it.
    """

    def __init__(self) -> None:
        self._tries: dict[bytes, int] = {}
        self._unrecorded: list[int] = []  # failed charges that the ledger has not recorded
        self._counting = threading.Lock()

    def begin(self, key: bytes) -> None:
        """Note that a thread tries this key."""
        with self._counting:
            self._tries[key] = self._tries.get(key, 0) + 1

    def end(self, key: bytes) -> None:
        """Note that a thread has finished, or did not get the key."""
        with self._counting:
            tries = self._tries.get(key, 0) - 1
            if tries > 0:
                self._tries[key] = tries
            else:
                self._tries.pop(key, None)

    def give_up(self, key: bytes, position: int) -> None:
        """Note that a charge has failed without an answer."""
        self.end(key)
        with self._counting:
            self._unrecorded.append(position)

    def unrecorded_failures(self) -> tuple[int, ...]:
        """Return the failed charges that are not recorded in the ledger yet."""
        return tuple(self._unrecorded)

    def recorded(self, position: int) -> None:
        """Note that a failed charge is recorded. Several threads may call it for the same charge."""
        with self._counting:
            if position in self._unrecorded:
                self._unrecorded.remove(position)

    def __contains__(self, key: bytes) -> bool:
        return key in self._tries


MOST_BLOCKS_TO_AN_ENTRY = 10_000


class Ledger(LedgerLookup):
    """An open ledger. Threads may share it; a forked child opens its own.

    Example:
        >>> from lapwing.ledger import Ledger, Unit
        >>> from lapwing.core import Relation
        >>> with Ledger.create("visits.ledger") as ledger:
        ...     account = ledger.open_account(
        ...         "patients", epsilon=1, delta="1e-6", unit=Unit.PERSON, relation=Relation.ADD_REMOVE
        ...     )
    """

    def __init__(
        self,
        store: Store,
        keys: LedgerKeys,
        ledger_id: str,
        curator: bytes,
        checks: Iterable[CuratorCheck] = (),
    ) -> None:
        super().__init__(store)
        self.keys = keys
        self.id = ledger_id
        self.curator = curator
        self.checks = list(checks)
        self.running = RunningRequests()

    # Opening and closing

    @classmethod
    def create(
        cls,
        where: str | Path,
        *,
        curator: Path | None = None,
        keys: Path | None = None,
        anchor: str | Path | None = None,
    ) -> Ledger:
        """Create a new ledger with new keys.

        Args:
            where: a path, or a `postgresql://` URL; `#name` at its end keeps several ledgers apart.
            curator: the new file of the curator's key, which should then be moved to a safe place.
            keys: the new file of the ledger's own keys.
            anchor: the address of the anchor (see `anchor_at`). A path's default is beside the ledger.

        Returns:
            The open ledger.

        Raises:
            BadParameter: if there is a ledger, or a part of one.
            Unavailable: if the database cannot be used.
        """
        place = LedgerPlace.of(where, keys=keys, anchor=anchor, curator=curator)
        place.require_unused()
        store = place.store(create=True)
        try:
            own, key = LedgerKeys.create(place.keys), CuratorKey.create(place.curator)
            ledger_id = random_bytes(16)
            store.migrate(MIGRATIONS)
            store.start_sealing(ledger_id, own.signing, place.anchor, place.witnesses(ledger_id.hex()))
            genesis = {
                "kind": "genesis",
                "at": now(),
                "ledger": ledger_id.hex(),
                "key": own.signing.public.hex(),
                "curator": key.public.hex(),
                "format": FORMAT,
            }
            store.write(lambda tx: tx.append(encode(genesis)))
            store.seal()
            _state_at_newest_seal(store, own, SignedState())
        except BaseException:
            store.signing = None  # half a ledger is sealed nowhere
            store.close()
            raise
        return cls(store, own, ledger_id.hex(), key.public)

    @classmethod
    def open(
        cls, where: str | Path, *, keys: Path | None = None, anchor: str | Path | None = None
    ) -> Ledger:
        """Open a ledger after checking its signed state, later entries, tables and anchors.

        Without a signed state, everything is replayed. `verify` always replays everything.

        Args:
            where: a path, or a `postgresql://` URL.
            keys: the file of the ledger's keys, if it is not beside the ledger.
            anchor: the address of the anchor, if it is not beside the ledger.

        Returns:
            The open ledger.

        Raises:
            Tampered: if something does not agree, with all findings.
            Unavailable: if the database cannot be used.
        """
        place = LedgerPlace.of(where, keys=keys, anchor=anchor)
        own = LedgerKeys.load(place.keys)
        store = place.store(create=False)
        try:
            store.migrate(MIGRATIONS)
            ledger_id = id_of(store)
            witnesses = place.witnesses(ledger_id)
            known = (place.anchor, *(witness for witness in witnesses if witness.exists()))
            report = check(store, own.signing.public, known, thorough=False)
            if report.findings:
                raise Tampered(report.findings)
            if report.replay.ledger != ledger_id:  # its witnesses would be looked for elsewhere
                raise Tampered(["the first entry is not that of this ledger"])
            store.start_sealing(bytes.fromhex(ledger_id), own.signing, place.anchor, witnesses)
            newest = store.read(last_seal)
            if newest is not None and len(known) > len(witnesses):
                store.anchored = newest.number
            store.seal()  # a crash may have left entries of which the witnesses do not know
            if report.whole is not None:
                _state_at_newest_seal(store, own, report.whole)
            return cls(store, own, ledger_id, report.replay.curator, report.replay.checks)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Seal the entries that are not sealed yet, and close the database."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def verify(self) -> CheckReport:
        """Replay the whole history with the second accountant, and check every price and signature."""
        self.store.seal()
        anchors = (*self.store.anchors, *self.store.witnesses)
        return check(self.store, self.keys.signing.public, anchors, thorough=True, people=self.keys.people)

    # Accounts and blocks

    def open_account(
        self,
        label: str,
        *,
        epsilon: Number,
        delta: Number,
        unit: Unit,
        relation: Relation,
        slices: Slices = Slices.NONE,
        rule: str = "",
    ) -> Account:
        """Open an account. It can never be changed.

        Args:
            label: the name of the account.
            epsilon: the lifetime budget ε of one unit.
            delta: the lifetime budget δ of one unit.
            unit: the privacy unit.
            relation: how neighbouring data sets differ.
            slices: how units are divided into blocks, if they are.
            rule: the rule that puts a unit into a block, in words; empty without slices.

        Returns:
            The new account.

        Raises:
            BadParameter: if the name is taken, or unit, relation and slices do not fit together.
        """
        label = checked_label(label, "account")
        for given, kind in ((unit, Unit), (relation, Relation), (slices, Slices)):
            if not isinstance(given, kind):
                raise BadParameter(kind.__name__.lower(), f"must be a {kind.__name__}")
        if slices is not Slices.NONE:
            rule = checked_label(rule, "rule")
        elif rule:
            raise BadParameter("rule", "an account without slices has no rule")
        if (unit is Unit.PERSON_AND_PERIOD) != (slices is Slices.PERIODS):
            raise BadParameter("unit", "must be PERSON_AND_PERIOD for slices by period, and only for them")
        if slices is Slices.UNITS and relation is Relation.REPLACE:
            raise BadParameter(
                "slices", "by the unit's data are impossible if neighbours replace a unit: use identities"
            )
        terms = Terms.of(epsilon, delta)

        def work(tx: Transaction) -> Account:
            if tx.rows("SELECT 1 FROM accounts WHERE label = ? AND raises IS NULL", label):
                raise BadParameter("account", "there is one of this name: caps never change, `raise` it")
            return new_account(
                tx, CommittedName.new(label), terms, unit=unit, relation=relation, slices=slices, rule=rule
            )

        self.require_here()
        return self.learn(self.store.write(work))

    def open_blocks(self, label: str, names: Iterable[str]) -> None:
        """Open blocks, each with the whole budget less what was charged to everyone."""
        account = self.account(label)
        if account.slices is Slices.NONE:
            raise BadParameter("blocks", "the account has no slices")
        if isinstance(names, str):
            raise BadParameter("blocks", "must be several names, not one text")
        labels = [checked_label(name, "block") for name in names]
        if EVERYONE in labels or len(set(labels)) < len(labels):
            raise BadParameter("blocks", 'must be different names other than "*"')
        self.require_here()

        def work(tx: Transaction) -> None:
            family = self.family(tx, account)
            for start in range(0, len(labels), MOST_BLOCKS_TO_AN_ENTRY):
                insert_blocks(tx, family, labels[start : start + MOST_BLOCKS_TO_AN_ENTRY])

        self.store.write(work)

    def raise_budget(self, label: str, *, epsilon: Number, delta: Number, curator: CuratorKey) -> Account:
        """Open a second account of (ε, δ) over the same data. Every statement then shows the sum."""
        root = self.account(label)
        terms = Terms.of(epsilon, delta)
        require_curator(self, curator)
        self.require_here()
        account = self.store.write(lambda tx: raised_account(tx, self.family(tx, root), terms, curator))
        self.forget_blocks(root)
        return self.learn(account)


def _state_at_newest_seal(store: Store, keys: LedgerKeys, state: SignedState) -> None:
    """Begin to store signed states, from a state that was replayed."""

    def work(tx: Transaction) -> None:
        seal = last_seal(tx)
        if seal is not None:
            keep_state(tx, seal, keys.signing, state)

    store.write(work)


def id_of(store: Store) -> str:
    """Return the id that the first entry gives the ledger. It names the ledger's witness files."""
    first = store.read(lambda tx: tx.rows("SELECT body FROM entries ORDER BY seq LIMIT 1"))
    try:
        return bytes.fromhex(json.loads(bytes(first[0][0]))["ledger"]).hex()
    except (IndexError, KeyError, TypeError, ValueError):
        raise Tampered([f"{store.where} is no ledger: its first entry is not that of one"]) from None


def recover(
    where: str | Path, *, curator: CuratorKey, keys: Path | None = None, anchor: str | Path | None = None
) -> int:
    """Make a ledger usable again whose anchor is missing or knows more. Return how many blocks were closed.

    A ledger that is inconsistent in itself is not recovered: restore a consistent copy first.
    """
    place = LedgerPlace.of(where, keys=keys, anchor=anchor)
    own = LedgerKeys.load(place.keys)
    store = place.store(create=False)
    try:
        store.migrate(MIGRATIONS)
        ledger_id = id_of(store)
        report = check(store, own.signing.public, (), thorough=True)
        if report.findings:
            raise Tampered(report.findings)
        if curator.public != report.replay.curator:
            raise BadParameter("curator", "is not the key of this ledger's curator")
        witnesses = place.witnesses(ledger_id)
        store.start_sealing(bytes.fromhex(ledger_id), own.signing, place.anchor, witnesses)
        return _recover(store, report, (place.anchor, *witnesses), curator)
    finally:
        store.close()


def _recover(store: Store, report: CheckReport, anchors: tuple[Anchor, ...], curator: CuratorKey) -> int:
    present = [anchor for anchor in anchors if anchor.exists() and anchor.read()]  # not an empty one
    lines = [line for anchor in present for line in anchor.read()]
    lost = store.read(lambda tx: differing(tx, lines, report.replay.lost_up_to))
    if lines and not lost and anchors[0] in present:
        raise BadParameter("ledger", "nothing is lost: it can be opened")
    closed = store.write(lambda tx: _close_all(tx, store, lost, curator))
    seal = store.seal() or store.read(last_seal)
    if seal is not None:
        store.mark((), seal.head)  # makes the anchors that are missing
    return closed


def _close_all(tx: Transaction, store: Store, lost: list[Mark | Head], curator: CuratorKey) -> int:
    newest = max(lost, key=number_of, default=None)
    if newest is not None:
        tx.skip(number_of(newest))
    nothing_left = ", ".join(f"left_{k} = -1" for k in COSTS)
    closed = tx.run(f"UPDATE budgets SET state = {LOST}, {nothing_left} WHERE state = {OPEN}")  # noqa: S608
    used = ", ".join(f"used_{k} = total_{k}" for k in COSTS)
    tx.run(f"UPDATE reservations SET ended = 1, {used} WHERE ended = 0")  # noqa: S608
    digest = newest.digest if isinstance(newest, Mark) else newest.root if newest else b""
    body = {
        "kind": "recovered",
        "at": now(),
        "lost": None if newest is None else [number_of(newest), digest.hex()],
        "signature": None,
    }
    body["signature"] = curator.sign(encode(body)).hex()
    tx.append(encode(body))
    return closed


def number_of(line: Mark | Head) -> int:
    """Return the number of the last entry that an anchor's line is about."""
    return line.seq if isinstance(line, Mark) else line.last


def require_curator(ledger: Ledger, curator: CuratorKey) -> None:
    """Raise BadParameter unless the key is the curator's."""
    if curator.public != ledger.curator:
        raise BadParameter("curator", "is not the key of this ledger's curator")


def record_check(ledger: Ledger, account: str, policy: str, curator: CuratorKey) -> None:
    """Write an entry that the curator looks at exact counts, under a policy with this digest."""
    require_curator(ledger, curator)
    number = ledger.account(account).number
    body = {"kind": "check", "at": now(), "account": number, "policy": policy, "signature": None}
    body["signature"] = curator.sign(encode(body)).hex()
    _append(ledger, number, policy, encode(body), is_change=False)


def record_policy(ledger: Ledger, account: str, policy: str) -> None:
    """Write an entry that an account with checks is used under a policy that no check has seen."""
    number = ledger.account(account).number
    known = {check.policy for check in ledger.checks if check.account == number}
    if known and policy not in known:
        body = encode({"kind": "policy", "at": now(), "account": number, "policy": policy})
        _append(ledger, number, policy, body, is_change=True)


def _append(ledger: Ledger, number: int, policy: str, body: bytes, *, is_change: bool) -> None:
    ledger.require_here()
    entry = ledger.store.write(lambda tx: tx.append(body))
    ledger.checks.append(CuratorCheck(entry, number, policy, is_change))
