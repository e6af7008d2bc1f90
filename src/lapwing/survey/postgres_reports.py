"""Reports in PostgreSQL, for load: a schema of its own, one connection, a commit for each batch.

What shows the order meanwhile: rows lie in the order of arrival (ctid) and carry the number of their
transaction (xmin), which neither CLUSTER nor VACUUM FREEZE removes. So `forget_order` copies each table
into a new one in the order of its keys, in one transaction, and drops the old one: with the last report
that the rule lets in, when the server stops, and at `close_survey`. The database's own log, its archive
and its replicas still have the order; who must not learn it, should not have them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

from lapwing.errors import BadParameter, MissingExtra, Unavailable
from lapwing.survey.report_store import (
    CollectionState,
    IntakeResult,
    ReportEntries,
    ReportStore,
    SignatureEntries,
    StoppingRule,
    invitation_hash,
    require_same_survey,
)

try:
    import psycopg
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict
except ImportError:
    raise MissingExtra("postgres", "Keeping reports in PostgreSQL") from None

OLDEST_SERVER = 14
_NAME = re.compile(r"[a-z0-9_]{1,40}")
_BAD_URL = "is not a PostgreSQL URL. Special characters of a password are written %40 for @, %2F for /"
_DEFAULTS = {
    "connect_timeout": 10, "keepalives_idle": 20, "keepalives_interval": 10, "keepalives_count": 3,
    "tcp_user_timeout": 50_000, "application_name": "lapwing survey",
}  # fmt: skip
_PREPARE = (
    "SELECT current_setting('server_version_num')::int / 10000, current_setting('fsync'), "
    "current_setting('full_page_writes'), pg_is_in_recovery(), set_config('search_path', %s, false), "
    "set_config('synchronous_commit', 'on', false), "
    "set_config('default_transaction_isolation', 'read committed', false), "
    "set_config('default_transaction_read_only', 'off', false)"
)
_TABLES = {
    "invitations": "invitation bytea PRIMARY KEY, blinded bytea",
    "people": "person text PRIMARY KEY",
    "reports": "token bytea PRIMARY KEY, report bytea NOT NULL",
}
_SURVEY = (
    "CREATE TABLE IF NOT EXISTS survey (one int PRIMARY KEY CHECK (one = 1), digest text NOT NULL, "
    "report_size int NOT NULL, reports bigint NOT NULL, without_credential bigint NOT NULL, "
    "closed boolean NOT NULL)"
)
_STATE = "SELECT digest, report_size, reports, without_credential, closed FROM survey"
# Locked first, so that processes take turns: the stopping rule counts exactly.
_LOCKED = f"{_STATE} FOR UPDATE"
_ACCEPT = (
    "INSERT INTO reports SELECT * FROM unnest(%s::bytea[], %s::bytea[]) "
    "ON CONFLICT DO NOTHING RETURNING token"
)
_KEEP = (
    "UPDATE invitations AS i SET blinded = n.blinded "
    "FROM unnest(%s::bytea[], %s::bytea[]) AS n (invitation, blinded) "
    "WHERE i.invitation = n.invitation AND i.blinded IS NULL"
)
_COUNT = "UPDATE survey SET reports = reports + %s, without_credential = without_credential + %s"


class PostgresReportStore(ReportStore):
    """A schema `lapwing_NAME`, by the name after # of the URL; else one named after the survey."""

    def __init__(self, url: str, *, digest: str, report_size: int) -> None:
        address, _, name = url.partition("#")
        name = name or f"survey_{digest[:16]}"
        if not _NAME.fullmatch(name):
            raise BadParameter("store", "the name after # must be 1 to 40 of a-z, 0-9 and _")
        try:
            found = {key: value for key, value in conninfo_to_dict(address).items() if value is not None}
        except psycopg.Error:  # its message may quote a piece of the password
            raise BadParameter("store", _BAD_URL) from None
        host, port, database = (str(found.get(key, "")) for key in ("host", "port", "dbname"))
        # A password with @ / : in it, not encoded, lands in other fields, and from there in messages.
        if "@" in host or not re.fullmatch("[0-9,]*", port) or set("@/") & set(database):
            raise BadParameter("store", _BAD_URL)
        self.where = f"postgresql://{'' if '/' in host else host}/{database}#{name}"
        self._schema = f"lapwing_{name}"
        self._parameters: dict[str, Any] = {**_DEFAULTS, **found}
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._is_closed = False
        try:
            self._create(digest, report_size)
            require_same_survey(self.state(), digest, report_size, self.where)
        except BaseException:
            self.close()
            raise

    def _create(self, digest: str, report_size: int) -> None:
        with self._transaction() as run:
            run("SELECT pg_advisory_xact_lock(hashtext(%s))", (self._schema,))  # one process creates
            run(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self._schema)))
            run(_SURVEY)
            for table, columns in _TABLES.items():
                run(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
            run(
                "INSERT INTO survey VALUES (1, %s, %s, 0, 0, false) ON CONFLICT DO NOTHING",
                (digest, report_size),
            )

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._is_closed:
            raise Unavailable(f"the reports in {self.where} are closed")
        connection = psycopg.connect(autocommit=True, **self._parameters)
        try:
            found = connection.execute(_PREPARE, (f"{self._schema}, pg_temp",)).fetchone()
            assert found is not None
            version, fsync, full_page_writes, is_standby, *_ = found
            for wrong, why in (
                (version < OLDEST_SERVER, f"the server is older than PostgreSQL {OLDEST_SERVER}"),
                (fsync != "on", "fsync is off on the server, so that a crash could forget reports"),
                (full_page_writes != "on", "full_page_writes is off: a crash could tear pages"),
                (is_standby, "the server is a standby"),
            ):
                if wrong:
                    raise Unavailable(f"the reports in {self.where} cannot be used: {why}")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """One transaction, on a new connection if the last one was lost."""
        with self._lock:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = self._connect()
                with self._connection.transaction():
                    yield self._connection.execute
            except psycopg.Error as error:
                if self._connection is not None:
                    self._connection.close()  # whatever it was doing: the next batch begins anew
                    self._connection = None
                why = error.diag.message_primary or "it cannot be reached, or the connection was lost"
                raise Unavailable(f"the reports in {self.where} cannot be used: {why}") from None

    def state(self) -> CollectionState:
        with self._transaction() as run:
            return CollectionState(*run(_STATE).fetchone())

    # Invitations

    def admit(self, invitations: Sequence[str], people: Sequence[str] = ()) -> None:
        hashes = [invitation_hash(invitation) for invitation in invitations]
        with self._transaction() as run:
            run("INSERT INTO invitations (invitation) SELECT unnest(%s::bytea[])", (hashes,))
            run("INSERT INTO people SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING", (list(people),))

    def known_people(self, people: Sequence[str]) -> set[str]:
        with self._transaction() as run:
            rows = run("SELECT person FROM people WHERE person = ANY(%s)", (list(people),))
            return {person for (person,) in rows}

    def stored(self, tokens: Sequence[bytes]) -> set[bytes]:
        with self._transaction() as run:
            rows = run("SELECT token FROM reports WHERE token = ANY(%s)", (list(tokens),))
            return {bytes(token) for (token,) in rows}

    def invitations(self) -> tuple[int, int]:
        with self._transaction() as run:
            admitted, used = run("SELECT count(*), count(blinded) FROM invitations").fetchone()
            return admitted, used

    def signed(self, invitation: bytes) -> bytes | IntakeResult:
        with self._transaction() as run:
            return _signed(run, [invitation]).get(invitation, IntakeResult.UNKNOWN)

    def keep(self, signatures: SignatureEntries, rule: StoppingRule, today: date) -> list[IntakeResult]:
        with self._transaction() as run:
            state = CollectionState(*run(_LOCKED).fetchone())
            found = _signed(run, [invitation for invitation, _ in signatures])
            is_over = state.is_closed or rule.is_over(state.reports, today)
            verdicts: list[IntakeResult] = []
            new: dict[bytes, bytes] = {}
            for invitation, blinded in signatures:
                known = found.get(invitation, IntakeResult.UNKNOWN)
                if isinstance(known, bytes):
                    known = IntakeResult.AGAIN if known == blinded else IntakeResult.OTHER
                elif known is IntakeResult.NEW and is_over:
                    known = IntakeResult.CLOSED
                elif known is IntakeResult.NEW:
                    found[invitation] = new[invitation] = blinded
                verdicts.append(known)
            if new:
                run(_KEEP, (list(new), list(new.values())))
            return verdicts

    # Reports

    def accept(
        self, reports: ReportEntries, rule: StoppingRule, today: date, *, has_credential: bool = True
    ) -> list[IntakeResult]:
        with self._transaction() as run:
            state = CollectionState(*run(_LOCKED).fetchone())
            tokens = list({token for token, _ in reports})
            stored = {
                bytes(token): bytes(report)
                for token, report in run(
                    "SELECT token, report FROM reports WHERE token = ANY(%s)", (tokens,)
                )
            }
            verdicts: list[IntakeResult] = []
            new: dict[bytes, bytes] = {}
            for token, report in reports:
                before = stored.get(token)
                if before is not None:
                    verdicts.append(IntakeResult.AGAIN if before == report else IntakeResult.OTHER)
                elif state.is_closed or rule.is_over(state.reports + len(new), today):
                    verdicts.append(IntakeResult.CLOSED)
                else:
                    stored[token] = new[token] = report
                    verdicts.append(IntakeResult.NEW)
            if new:
                done = run(_ACCEPT, (list(new), list(new.values()))).rowcount
                assert done == len(new), "processes take turns"
                run(_COUNT, (done, 0 if has_credential else done))
                if rule.is_over(state.reports + done, today):
                    _write_anew(run)
            return verdicts

    def forget_order(self) -> None:
        with self._transaction() as run:
            run(_LOCKED)
            _write_anew(run)

    def close_survey(self) -> None:
        with self._transaction() as run:
            run(_LOCKED)
            run("UPDATE survey SET closed = true")
            _write_anew(run)

    def rows(self) -> bytes:
        with self._transaction() as run:
            return b"".join([bytes(row) for (row,) in run("SELECT report FROM reports ORDER BY token")])

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()


def _write_anew(run: Any) -> None:
    """Every table, in the order of its keys."""
    for table, columns in _TABLES.items():
        key = columns.split(" ", 1)[0]
        run(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        run(f"ALTER TABLE {table} RENAME TO old_{table}")
        run(f"ALTER INDEX {table}_pkey RENAME TO old_{table}_pkey")
        run(f"CREATE TABLE {table} ({columns})")
        run(f"INSERT INTO {table} SELECT * FROM old_{table} ORDER BY {key}")  # noqa: S608
        run(f"DROP TABLE old_{table}")


def _signed(run: Any, invitations: Sequence[bytes]) -> dict[bytes, bytes | IntakeResult]:
    rows = run(
        "SELECT invitation, blinded FROM invitations WHERE invitation = ANY(%s)", (list(invitations),)
    )
    return {
        bytes(invitation): IntakeResult.NEW if blinded is None else bytes(blinded)
        for invitation, blinded in rows
    }
