"""A ledger in a schema of a PostgreSQL database, for many processes at once.

A charge is one statement: it looks for the key, debits under locks on the rows of the blocks, and
appends the entry last. So the entry's number is drawn while those locks are held, and for any one block
the order of entries is the order of decisions. Charges on other blocks do not wait.

Nor do they wait for seals, which are made beside them. An INSERT draws its number only once it has the
table's lock, and keeps the lock until it has committed. Whoever gets the table in SHARE mode thus finds no
number drawn and open, and every later number will be greater: what it sees is a whole beginning of
history. No charge needs to know the head of a chain.

Between client and server there must be no pooler that shares connections by transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from lapwing.errors import BadParameter, LapwingError, Unavailable
from lapwing.ledger.anchors import Mark
from lapwing.ledger.proofs.seal import Seal
from lapwing.ledger.stores.postgres_catalogue import catalogue, made_by
from lapwing.ledger.stores.postgres_keeper import Keeper
from lapwing.ledger.stores.postgres_links import Address, Link, Links, psycopg, reason
from lapwing.ledger.stores.postgres_transaction import PostgresTransaction, Undone, charge, was_refused
from lapwing.ledger.stores.schema import POSTGRES, POSTGRES_DOES_NOT_FIT
from lapwing.ledger.stores.store import (
    Catalogue,
    Store,
    Watch,
    keep_state_if_due,
    next_seal,
    nobody_watches,
)
from lapwing.ledger.stores.transaction import DoesNotFit, KeyTaken, Posting, Row, Transaction, last_seal

T = TypeVar("T")

TRIES = 5
WAIT_AFTER_BREAK = 10.0  # seconds, for a server that comes back, to ask it what became of a commit
HEAD_SECONDS = 60.0  # how often a process that does not seal tells its own anchors of the newest seal
# Milliseconds for which a seal waits, and holds up others, for charges on their way. Who asks for a seal
# waits longer at last: long enough that PostgreSQL calls off an automatic VACUUM of the entries.
PATIENCE_BESIDE, PATIENCE_ASKED = (200, 800), (200, 200, 800, 2500)
# The server undid the transaction because of others: it can be tried again.
_TRY_AGAIN = {"40000", "40001", "40P01", "55P03"}
_UNKNOWN = "the ledger {} was lost while it wrote. What became of it is unknown, and counts as spent"

_BY_KEY = "SELECT CASE WHEN digest = %b THEN seq END FROM entries WHERE key = %b"
_BY_DIGEST = "SELECT seq FROM entries WHERE digest = %b"
_BY_NUMBER = "SELECT seq FROM entries WHERE seq = %s AND digest = %b"
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('lapwing write ' || current_schema(), 0))"


class PostgresStore(Store):
    """One schema. Any number of threads and processes may use it.

    What `write` is given to do may be done twice, if the server undid it for the sake of others.
    `watch` is told each step of a commit, so that tests can crash there.
    """

    dialect = POSTGRES

    def __init__(self, url: str, *, create: bool, watch: Watch = nobody_watches) -> None:
        super().__init__()
        address = Address.of(url)
        self.where = address.where
        self._watch = watch
        self._links = Links(address)
        self._anchored_at = time.monotonic()
        try:
            self._require_schema(address.schema, create=create)
            self._keeper = Keeper(self._links, self.where, self._tend)
        except BaseException:
            self._links.close()
            raise

    def _require_schema(self, schema: str, *, create: bool) -> None:
        link = self._links.take()
        try:
            if create:
                link.run(f"CREATE SCHEMA {schema}")
            elif link.run("SELECT to_regnamespace(%s)", (schema,)).fetchone() == (None,):
                raise Unavailable(f"there is no ledger at {self.where}")
        except psycopg.errors.DuplicateSchema:
            raise BadParameter("ledger", f"{self.where} exists: a ledger is never replaced") from None
        except psycopg.Error as error:
            raise self._error(error) from None
        finally:
            self._links.give(link)

    def _error(self, error: psycopg.Error) -> LapwingError:
        """What to raise after an error that changed nothing."""
        if error.sqlstate == POSTGRES_DOES_NOT_FIT:
            return DoesNotFit()
        if error.sqlstate == "23505" and error.diag.constraint_name == "entries_by_key":
            return KeyTaken()
        return Unavailable(f"the ledger {self.where} cannot be used: {reason(error)}. Nothing was changed")

    # Who is there

    @property
    def session(self) -> int:
        return self._keeper.session

    def is_alive(self, session: int) -> bool:
        return session == self.session or self.read(
            lambda tx: cast(PostgresTransaction, tx).link.holder(session) is not None
        )

    # Charging

    def charge(self, posting: Posting) -> int:
        seq = self._again(lambda: self._charge_once(posting))
        self._watch("committed")
        self.mark((Mark(seq, posting.digest),), None)
        self._watch("marked")
        return seq

    def _charge_once(self, posting: Posting) -> int:
        link = self._links.take()
        try:
            return charge(link, posting)
        except psycopg.Error as error:
            if was_refused(error):
                raise
            if posting.key is None:
                row = self._find_out(link, _BY_DIGEST, posting.digest)
            else:
                row = self._find_out(link, _BY_KEY, posting.digest, posting.key)
            if row is None:
                raise Undone from None
            if row[0] is None:
                raise KeyTaken from None
            return cast(int, row[0])
        finally:
            self._links.give(link)

    def _again(self, work: Callable[[], T]) -> T:
        """Do it until it was not undone for reasons that have nothing to do with it."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return work()
            except psycopg.Error as error:
                if error.sqlstate not in _TRY_AGAIN or attempt >= TRIES:
                    raise self._error(error) from None
                time.sleep(0.01 * attempt)

    def _find_out(self, lost: Link, query: str, *parameters: Any) -> Row | None:
        """The row that a lost connection left, once its backend is gone and can change nothing more."""
        lost.close()
        self._links.drop_idle()
        end = time.monotonic() + WAIT_AFTER_BREAK
        while time.monotonic() < end:
            with suppress(Unavailable, psycopg.Error):
                fresh = self._links.take()
                try:
                    backend = fresh.holder(lost.number)
                    if backend is None:
                        return fresh.run(query, parameters).fetchone()
                    # It may wait for a lock, and not have noticed that nobody listens any more.
                    fresh.run("SELECT pg_terminate_backend(%s)", (backend,))
                finally:
                    self._links.give(fresh)
            time.sleep(0.05)
        raise Unavailable(_UNKNOWN.format(self.where))

    # Writing and reading

    def _begin(self, *statements: str) -> Link:
        """A connection in a transaction. One that was lost while idle is replaced: it had begun nothing."""
        for _ in range(2):
            link = self._links.take()
            try:
                for statement in statements:
                    link.run(statement)
            except psycopg.Error as error:
                self._links.give(link)
                if was_refused(error):
                    raise
                self._links.drop_idle()
            except BaseException:
                self._links.give(link)
                raise
            else:
                return link
        raise Unavailable(
            f"the ledger {self.where} cannot be used: the connection was lost. Nothing was changed"
        )

    def write(self, work: Callable[[Transaction], T], *, alone: bool = True) -> T:
        statements = (_WRITE, _ALONE) if alone else (_WRITE,)
        result, marks = self._again(lambda: self._write_once(work, statements))
        if marks:
            self._watch("committed")
            self.mark(marks, None)
            self._watch("marked")
        return result

    def _write_once(
        self, work: Callable[[Transaction], T], statements: tuple[str, ...]
    ) -> tuple[T, Sequence[Mark]]:
        link = self._begin(*statements)
        tx = PostgresTransaction(link)
        try:
            result = work(tx)
            if tx.marks:
                self._watch("written")
            self._commit(tx)
        finally:
            self._links.give(link)
        return result, tx.marks

    def _commit(self, tx: PostgresTransaction) -> None:
        try:
            ended = tx.link.run("COMMIT").statusmessage
        except psycopg.Error as error:
            if was_refused(error):
                raise
            if not tx.marks:
                raise Unavailable(_UNKNOWN.format(self.where)) from None
            last = tx.marks[-1]
            ended = "COMMIT" if self._find_out(tx.link, _BY_NUMBER, last.seq, last.digest) else None
        if ended != "COMMIT":  # or the work went on after an error, and the server undid all of it
            raise Unavailable(f"the ledger {self.where} undid what was begun. Nothing was changed")

    def read(self, work: Callable[[Transaction], T]) -> T:
        try:
            link = self._begin(_READ)
            try:
                return work(PostgresTransaction(link))
            finally:
                self._links.give(link)  # which ends the transaction
        except psycopg.Error as error:
            raise self._error(error) from None

    def catalogue(self, tx: Transaction) -> Catalogue:
        return catalogue(cast(PostgresTransaction, tx).link)

    def catalogue_as_made(self) -> Catalogue | None:
        try:
            link = self._begin(_WRITE)
            try:
                return made_by(link, self.statements)
            finally:
                self._links.give(link)  # which undoes it
        except psycopg.errors.InsufficientPrivilege:
            return None
        except psycopg.Error as error:
            raise self._error(error) from None

    # Sealing

    def seal(self) -> Seal | None:
        return self._seal(PATIENCE_ASKED, stated=True)

    def _seal(self, patience: Sequence[int], *, stated: bool = False) -> Seal | None:
        left = list(patience)

        def work(tx: Transaction) -> Seal | None:
            last = last_seal(tx)
            if not tx.rows("SELECT 1 FROM entries WHERE seq > ? LIMIT 1", last.last if last else 0):
                keep_state_if_due(tx, self, last, stated=stated)
                return last
            tx.run(f"SET LOCAL lock_timeout = {left.pop(0) if left else patience[-1]}")
            try:
                tx.run("LOCK TABLE entries IN SHARE MODE")
            except psycopg.errors.LockNotAvailable:
                if left:
                    raise
                raise Unavailable(
                    f"the entries of {self.where} are in use and could not be sealed"
                ) from None
            return next_seal(tx, self, stated=stated)

        seal = self.write(work)
        self._anchor(seal)
        return seal

    def _anchor(self, seal: Seal | None) -> None:
        self.anchor(seal)
        self._anchored_at = time.monotonic()

    def _tend(self, leads: bool) -> None:
        """What the keeper has done every second."""
        if self.signing is None:
            return
        if leads:
            self._seal(PATIENCE_BESIDE)
        elif time.monotonic() - self._anchored_at > HEAD_SECONDS:
            self._anchor(self.read(last_seal))

    def close(self) -> None:
        if not self._links.is_here or self._keeper.has_stopped:
            return
        self._keeper.stop()
        try:
            if self.signing is not None:
                self.seal()
        finally:
            self._keeper.close()
            self._links.close()
            for anchor in (*self.anchors, *self.witnesses):
                anchor.close()
