"""A ledger in a schema of a PostgreSQL database, for many processes at once.

A charge is one statement. It looks for the key, debits the blocks under locks on their rows, and appends
the entry last. So the entry's number is drawn while those locks are held, and for any one block the order
of entries is the order of decisions. Charges on other blocks do not wait.

Charges do not wait for seals either. An INSERT draws its number only after it has the table's lock, and
keeps the lock until it has committed. A transaction that gets the table in SHARE mode therefore finds no
number that is drawn and not committed, and every later number is greater: it sees a complete beginning of
the history. No charge needs to know the head of a chain.

A store that closes seals what is not sealed. If others charge for so long that there is no moment for it,
it closes without a seal and says so in the log.

Claim    closing without a seal loses no charge, and hides an older copy no longer than a crash would.
Because  a charge is committed, and marked in the anchor, before it is acknowledged: a seal adds nothing
         to that. Only the witnesses wait for it. Those who charge have the ledger open: one of them seals
         every second, each when it closes, and the next to open the ledger seals before anything else.
Test     tests/ledger/postgres_store/test_postgres_store_sealing.py

There must be no pooler between client and server that shares connections by transaction.

To check the tables, an empty ledger is made beside the real one, described by the server, and rolled back:
each server version writes definitions in words of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

from lapwing.errors import BadParameter, LapwingError, Unavailable
from lapwing.ledger.anchors import Mark
from lapwing.ledger.entry import digest_of
from lapwing.ledger.schema import COSTS, OPEN, POSTGRES, POSTGRES_DOES_NOT_FIT, holds
from lapwing.ledger.seals import Seal
from lapwing.ledger.store import (
    Catalogue,
    Debit,
    DoesNotFit,
    KeyTaken,
    Posting,
    Row,
    Store,
    Transaction,
    Watch,
    last_seal,
    nobody_watches,
)
from lapwing.storage.postgres import (
    PostgresAddress,
    PostgresConnection,
    PostgresConnections,
    SessionKeeper,
    new_session_number,
    psycopg,
    server_message,
    translated,
)


def _charge_one() -> str:
    """Return the statement that charges one block.

    The entry takes its row from the debit, so it comes after it.
    """
    sums = ", ".join(f"left_{k} = greatest(left_{k} - %(cost_{k})s, -1)" for k in COSTS)
    fits = holds(lambda k: f"left_{k} - held_{k} >= %(cost_{k})s")
    return (
        f"WITH debited AS (UPDATE budgets SET {sums} WHERE block = %(block)s AND account = %(account)s "  # noqa: S608
        f"AND state = {OPEN} AND {fits} AND NOT EXISTS ({_HAS_KEY}) RETURNING block) "
        "INSERT INTO entries (key, body, digest) "
        "SELECT %(key)b, %(body)b, %(digest)b FROM debited RETURNING seq"
    )


_HAS_KEY = "SELECT 1 FROM entries WHERE key = %(key)b"
_CHARGE_ONE = _charge_one()
_COSTS = tuple(f"cost_{k}" for k in COSTS)
_CHARGE = "SELECT charge(%b, %b, %b, %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])"
_APPEND = "INSERT INTO entries (key, body, digest) VALUES (%b, %b, %b) RETURNING seq"
_SKIP = (
    "SELECT setval(sequence, %s) FROM pg_get_serial_sequence('entries', 'seq') AS sequence "
    "WHERE coalesce(pg_sequence_last_value(sequence::regclass), 0) < %s"
)
ROWS_AT_ONCE = 2000
_LOCK = "SELECT FROM budgets WHERE block = ANY(%s::bigint[]) ORDER BY block FOR UPDATE"


def _array(numbers: Iterable[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def post_charge(link: PostgresConnection, posting: Posting) -> int:
    """Debit the blocks and append the entry in one statement, and return the entry's number.

    Numbers are sent as text, so that no query plan depends on their size.
    """
    debits = posting.debits
    if len(debits) == 1 and len(debits[0].ranges) == 1 and debits[0].ranges[0][0] == debits[0].ranges[0][1]:
        return _charge_block(link, posting, debits[0])
    # The function `charge` locks rows in the order of the ranges that it is given.
    ranges = sorted((first, last, k) for k, debit in enumerate(debits) for first, last in debit.ranges)
    arguments = (
        posting.key, posting.body, posting.digest,
        _array(first for first, _, _ in ranges), _array(last for _, last, _ in ranges),
        _array(k for _, _, k in ranges), _array(debit.account for debit in debits),
        _array(cost for debit in debits for cost in debit.costs),
    )  # fmt: skip
    row = link.run(_CHARGE, arguments, prepare=True).fetchone()
    assert row is not None
    if row[0] is None:
        raise KeyTaken
    return cast(int, row[0])


def _charge_block(link: PostgresConnection, posting: Posting, debit: Debit) -> int:
    values: dict[str, Any] = dict(zip(_COSTS, map(str, debit.costs), strict=True))
    values["block"], values["account"] = str(debit.ranges[0][0]), str(debit.account)
    values["key"], values["body"], values["digest"] = posting.key, posting.body, posting.digest
    row = link.run(_CHARGE_ONE, values, prepare=True).fetchone()
    if row is None:
        raise (KeyTaken if link.run(_HAS_KEY, {"key": posting.key}).fetchone() else DoesNotFit)
    return cast(int, row[0])


class RolledBack(psycopg.OperationalError):
    """The connection was lost, and its transaction was rolled back."""

    sqlstate = "40000"


def was_refused(error: psycopg.Error) -> bool:
    """Return whether the server answered with an error: then it has certainly rolled back."""
    return error.diag.severity_nonlocalized == "ERROR"


class PostgresTransaction(Transaction):
    """A transaction on one connection. Its owner ends it."""

    def __init__(self, link: PostgresConnection) -> None:
        self.link = link
        self.marks: list[Mark] = []

    def _run(self, sql: str, parameters: Sequence[Any]) -> Any:
        # Without parameters nothing is translated: the schema has functions with a % in them.
        return self.link.run(translated(sql), parameters) if parameters else self.link.run(sql)

    def rows(self, sql: str, *parameters: Any) -> list[Row]:
        """Return all rows of a query."""
        return cast(list[Row], self._run(sql, parameters).fetchall())

    def stream(self, sql: str) -> Iterator[Row]:
        """Yield the rows of a query through a server-side cursor."""
        name = f"stream_{new_session_number()}"
        self.link.run(f"DECLARE {name} NO SCROLL CURSOR FOR {sql}")
        while rows := self.link.run(f"FETCH {ROWS_AT_ONCE} FROM {name}", binary=True).fetchall():
            yield from rows

    def run(self, sql: str, *parameters: Any) -> int:
        """Run a statement and return the number of changed rows."""
        return cast(int, self._run(sql, parameters).rowcount)

    def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        """Run a statement once for each row of parameters."""
        self.link.connection.cursor().executemany(translated(sql), rows)

    def append(self, body: bytes, key: bytes | None = None) -> int:
        """Append an entry and return its number."""
        digest = digest_of(body)
        row = self.link.run(_APPEND, (key, body, digest), prepare=True).fetchone()
        assert row is not None
        self.marks.append(Mark(row[0], digest))
        return cast(int, row[0])

    def skip(self, last: int) -> None:
        """Leave the entry numbers up to `last` unused."""
        # No other transaction draws a number now: the sequence must not be set back behind one.
        self.link.run("LOCK TABLE entries IN SHARE ROW EXCLUSIVE MODE")
        self.link.run(_SKIP, (last, last))

    def debit(self, posting: Posting) -> int:
        """Debit the blocks, append the entry and return its number."""
        seq = post_charge(self.link, posting)
        self.marks.append(Mark(seq, posting.digest))
        return seq

    def lock(self, blocks: Sequence[int]) -> None:
        """Lock blocks until the transaction ends."""
        self.link.run(_LOCK, (_array(blocks),))


# Everything in the schema that can change the effect of a statement. Not the storage of rows, which the
# administrator of the server may tune.
_ALL = """
WITH ours AS (
    SELECT oid, relname, relkind, relpersistence, relrowsecurity, relforcerowsecurity, relhassubclass
        FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind NOT IN ('i', 'c')
)
SELECT relname, 'relation ' || relname,
    concat_ws(' ', relkind, relpersistence, relrowsecurity, relforcerowsecurity, relhassubclass) FROM ours
UNION ALL SELECT relname, 'column ' || attname, concat_ws(' ', format_type(atttypid, atttypmod), attnotnull,
    attidentity, attgenerated, pg_get_expr(adbin, adrelid))
    FROM pg_attribute JOIN ours ON ours.oid = attrelid
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    WHERE relkind = 'r' AND attnum > 0 AND NOT attisdropped
UNION ALL SELECT relname, 'constraint ' || conname, pg_get_constraintdef(pg_constraint.oid, true)
    FROM pg_constraint JOIN ours ON ours.oid = conrelid
UNION ALL SELECT relname, 'index ' || indexrelid::regclass,
    concat_ws(' ', pg_get_indexdef(indexrelid, 0, true), indisvalid, indisready)
    FROM pg_index JOIN ours ON ours.oid = indrelid
UNION ALL SELECT relname, 'trigger ' || tgname,
    concat_ws(' ', pg_get_triggerdef(pg_trigger.oid, true), tgenabled)
    FROM pg_trigger JOIN ours ON ours.oid = tgrelid WHERE NOT tgisinternal
UNION ALL SELECT relname, 'rule ' || rulename, pg_get_ruledef(pg_rewrite.oid, true)
    FROM pg_rewrite JOIN ours ON ours.oid = ev_class WHERE relkind = 'r'
UNION ALL SELECT '',
    'function ' || proname || '(' || pg_get_function_identity_arguments(pg_proc.oid) || ')',
    concat_ws(' ', lanname, prosecdef, provolatile, proconfig, pg_get_function_result(pg_proc.oid), prosrc)
    FROM pg_proc JOIN pg_language ON pg_language.oid = prolang
    WHERE pronamespace = current_schema()::regnamespace
"""
_made: dict[tuple[int, tuple[str, ...]], Catalogue] = {}  # by the server's version


def describe_schema(link: PostgresConnection) -> Catalogue:
    """Return the definitions of everything in the connection's first schema."""
    return {(table, part): definition for table, part, definition in link.run(_ALL).fetchall()}


def describe_new_schema(link: PostgresConnection, statements: tuple[str, ...]) -> Catalogue:
    """Return the definitions that these statements make, in a transaction that the caller rolls back."""
    asked = link.connection.info.server_version, statements
    if asked not in _made:
        name = f"lapwing_empty_{new_session_number()}"
        for statement in (f"CREATE SCHEMA {name}", f"SET LOCAL search_path = {name}, pg_temp", *statements):
            link.run(statement)
        _made[asked] = describe_schema(link)
    return _made[asked]


class _EntriesInUse(Unavailable):
    """Others charged for so long that there was no moment for a seal."""


_log = logging.getLogger(__name__)
T = TypeVar("T")

TRIES = 5
WAIT_AFTER_BREAK = 10.0  # seconds to wait for a restarted server, to learn the outcome of a commit
HEAD_SECONDS = 60.0  # how often a process that does not lead writes the newest seal to its own anchors
# Milliseconds for which a seal waits for running charges, while new ones wait for it. A seal that was asked
# for waits longer at the end: long enough that PostgreSQL cancels an automatic VACUUM of the entries.
PATIENCE_BESIDE, PATIENCE_ASKED = (200, 800), (200, 200, 800, 2500)
# The server rolled the transaction back because of others: it can be tried again.
_TRY_AGAIN = {"40000", "40001", "40P01", "55P03"}
_UNKNOWN = "the ledger {} was lost while it wrote. What became of it is unknown, and counts as spent"

_BY_KEY = "SELECT CASE WHEN digest = %b THEN seq END FROM entries WHERE key = %b"
_BY_DIGEST = "SELECT seq FROM entries WHERE digest = %b"
_BY_NUMBER = "SELECT seq FROM entries WHERE seq = %s AND digest = %b"
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_ALONE = "SELECT pg_advisory_xact_lock(hashtextextended('lapwing write ' || current_schema(), 0))"


class PostgresStore(Store):
    """A ledger in one schema. Any number of threads and processes may use it.

    `write` may run its `work` twice if the server rolled it back because of other transactions. `watch` is
    told each step of a commit, so that tests can crash there.
    """

    dialect = POSTGRES

    def __init__(self, url: str, *, create: bool, watch: Watch = nobody_watches) -> None:
        super().__init__()
        address = PostgresAddress.of(url)
        self.where = address.where
        self._watch = watch
        self._pool = PostgresConnections(address)
        self._anchored_at = time.monotonic()
        try:
            self._require_schema(address.schema, create=create)
            undone = "is charged and marked, but not sealed"
            self._keeper = SessionKeeper(self._pool, self.where, self._work_of_every_second, undone=undone)
        except BaseException:
            self._pool.close()
            raise

    def _require_schema(self, schema: str, *, create: bool) -> None:
        try:
            with self._pool.lent() as link:
                if create:
                    link.run(f"CREATE SCHEMA {schema}")
                elif link.run("SELECT to_regnamespace(%s)", (schema,)).fetchone() == (None,):
                    raise Unavailable(f"there is no ledger at {self.where}")
        except psycopg.errors.DuplicateSchema:
            raise BadParameter(
                "ledger", f"{self.where} exists: a ledger is never replaced. Open it with Ledger.open(…)"
            ) from None
        except psycopg.Error as error:
            raise self._error(error) from None

    def _error(self, error: psycopg.Error) -> LapwingError:
        """Return the error to raise after a database error that changed nothing."""
        if error.sqlstate == POSTGRES_DOES_NOT_FIT:
            return DoesNotFit()
        if error.sqlstate == "23505" and error.diag.constraint_name == "entries_by_key":
            return KeyTaken()
        return self._unusable(server_message(error))

    def _unusable(self, why: str) -> Unavailable:
        return Unavailable(f"the ledger {self.where} cannot be used: {why}. Nothing was changed")

    # Sessions

    @property
    def session(self) -> int:
        """The session number under which this process has the ledger open."""
        return self._keeper.session

    def is_alive(self, session: int) -> bool:
        """Return whether the process with this session number still has the ledger open."""
        return session == self.session or self.read(
            lambda tx: cast(PostgresTransaction, tx).link.holder(session) is not None
        )

    # Charging

    def charge(self, posting: Posting) -> int:
        """Post a charge durably and return the entry's number."""
        seq = self._retried(lambda: self._charge_once(posting))
        self._acknowledge((Mark(seq, posting.digest),))
        return seq

    def _acknowledge(self, marks: Sequence[Mark]) -> None:
        self._watch("committed")
        self.mark(marks, None)
        self._watch("marked")

    def _charge_once(self, posting: Posting) -> int:
        with self._pool.lent() as link:
            try:
                return post_charge(link, posting)
            except psycopg.Error as error:
                if was_refused(error):
                    raise
            if posting.key is None:
                row = self._row_after_loss(link, _BY_DIGEST, posting.digest)
            else:
                row = self._row_after_loss(link, _BY_KEY, posting.digest, posting.key)
            if row is None:
                raise RolledBack
            if row[0] is None:
                raise KeyTaken
            return cast(int, row[0])

    def _retried(self, work: Callable[[], T]) -> T:
        """Repeat `work` while the server rolls it back because of other transactions."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return work()
            except psycopg.Error as error:
                if error.sqlstate not in _TRY_AGAIN or attempt >= TRIES:
                    raise self._error(error) from None
                time.sleep(0.01 * attempt)

    def _row_after_loss(self, lost: PostgresConnection, query: str, *parameters: Any) -> Row | None:
        """Return the row that a lost connection left.

        Wait until its backend has ended and can change nothing more.
        """
        lost.close()
        self._pool.drop_idle()
        end = time.monotonic() + WAIT_AFTER_BREAK
        while time.monotonic() < end:
            with suppress(Unavailable, psycopg.Error), self._pool.lent() as fresh:
                backend = fresh.holder(lost.number)
                if backend is None:
                    return fresh.run(query, parameters).fetchone()
                # It may wait for a lock, and not have noticed that its client is gone.
                fresh.run("SELECT pg_terminate_backend(%s)", (backend,))
            time.sleep(0.05)
        raise Unavailable(_UNKNOWN.format(self.where))

    # Writing and reading

    def _begin(self, *statements: str) -> PostgresConnection:
        """Return a connection in a transaction. A connection that was lost while idle is replaced."""
        for _ in range(2):
            link = self._pool.take()
            try:
                for statement in statements:
                    link.run(statement)
            except psycopg.Error as error:
                self._pool.give(link)
                if was_refused(error):
                    raise
                self._pool.drop_idle()
            except BaseException:
                self._pool.give(link)
                raise
            else:
                return link
        raise self._unusable("the connection was lost")

    @contextmanager
    def _begun(self, *statements: str) -> Iterator[PostgresConnection]:
        """Begin a transaction, and roll it back at the end of the block unless it was committed."""
        link = self._begin(*statements)
        try:
            yield link
        finally:
            self._pool.give(link)

    def write(self, work: Callable[[Transaction], T], *, alone: bool = True) -> T:
        """Run `work` in a durable transaction."""
        statements = (_WRITE, _ALONE) if alone else (_WRITE,)
        result, marks = self._retried(lambda: self._write_once(work, statements))
        if marks:
            self._acknowledge(marks)
        return result

    def _write_once(
        self, work: Callable[[Transaction], T], statements: tuple[str, ...]
    ) -> tuple[T, Sequence[Mark]]:
        with self._begun(*statements) as link:
            tx = PostgresTransaction(link)
            result = work(tx)
            if tx.marks:
                self._watch("written")
            self._commit(tx)
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
            ended = "COMMIT" if self._row_after_loss(tx.link, _BY_NUMBER, last.seq, last.digest) else None
        if ended != "COMMIT":  # the work continued after an error, and the server rolled it back
            raise Unavailable(f"the ledger {self.where} rolled the transaction back. Nothing was changed")

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one consistent snapshot of the ledger."""
        try:
            with self._begun(_READ) as link:
                return work(PostgresTransaction(link))
        except psycopg.Error as error:
            raise self._error(error) from None

    def copy_id(self) -> str:
        """Return the server's identity, the database and the schema. A server's own clone has the same."""
        [(server, database, schema)] = self.rows(
            "SELECT (SELECT system_identifier FROM pg_control_system())::text, oid::text, current_schema() "
            "FROM pg_database WHERE datname = current_database()"
        )
        return f"postgres:{server}:{database}:{schema}"

    def catalogue(self, tx: Transaction) -> Catalogue:
        """Return the definitions of everything in the ledger's schema."""
        return describe_schema(cast(PostgresTransaction, tx).link)

    def catalogue_as_made(self) -> Catalogue | None:
        """Return the definitions of a new empty ledger; None if the user may not create a schema."""
        try:
            with self._begun(_WRITE) as link:
                return describe_new_schema(link, self.statements)
        except psycopg.errors.InsufficientPrivilege:
            return None
        except psycopg.Error as error:
            raise self._error(error) from None

    # Sealing

    def seal(self) -> Seal | None:
        """Seal all entries so far, write the seal to the anchors, and return the newest seal."""
        return self._seal(PATIENCE_ASKED, with_state=True)

    def _seal(self, patience: Sequence[int], *, with_state: bool = False) -> Seal | None:
        left = list(patience)

        def work(tx: Transaction) -> Seal | None:
            last = last_seal(tx)
            if not tx.rows("SELECT 1 FROM entries WHERE seq > ? LIMIT 1", last.last if last else 0):
                self.keep_state_if_due(tx, last, with_state=with_state)
                return last
            tx.run(f"SET LOCAL lock_timeout = {left.pop(0) if left else patience[-1]}")
            try:
                tx.run("LOCK TABLE entries IN SHARE MODE")
            except psycopg.errors.LockNotAvailable:
                if left:
                    raise
                why = f"the entries of {self.where} are in use and could not be sealed"
                raise _EntriesInUse(why) from None
            return self.next_seal(tx, with_state=with_state)

        seal = self.write(work)
        self._anchor(seal)
        return seal

    def _anchor(self, seal: Seal | None) -> None:
        self.anchor(seal)
        self._anchored_at = time.monotonic()

    def _work_of_every_second(self, leads: bool) -> None:
        """Do the work of every second: seal if this process leads, and update its own anchors."""
        if self.signing is None:
            return
        if leads:
            self._seal(PATIENCE_BESIDE)
        elif time.monotonic() - self._anchored_at > HEAD_SECONDS:
            self._anchor(self.read(last_seal))

    def close(self) -> None:
        """Seal the entries, unless others charge for too long, and close all connections."""
        if not self._pool.is_here or self._keeper.has_stopped:
            return
        self._keeper.stop()
        try:
            if self.signing is not None:
                self.seal()
        except _EntriesInUse as error:  # every charge that was acknowledged is stored and marked
            _log.warning("%s. Others have the ledger open, and seal them", error)
        finally:
            self._keeper.close()
            self._pool.close()
            self.close_anchors()
