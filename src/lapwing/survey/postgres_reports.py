"""Reports in PostgreSQL, for load: a schema of its own, one connection, a commit for each batch.

Meanwhile the tables show the order of arrival: rows lie in that order (ctid) and carry the number of their
transaction (xmin). Neither CLUSTER nor VACUUM FREEZE removes these numbers. So `forget_order` copies each
table into a new one in the order of its keys, in one transaction, and drops the old one. It runs with the
last report that the stopping rule allows, when the server stops, and at `close_survey`. The database's own
log, its archive and its replicas still have the order; nobody who must not learn it should have them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lapwing.errors import Unavailable
from lapwing.storage.postgres import PostgresAddress, psycopg, server_message
from lapwing.survey.report_store import (
    CollectionState,
    IntakeResult,
    ReportStore,
    invitation_hash,
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
_ACCEPT = (
    "INSERT INTO reports SELECT * FROM unnest(%s::bytea[], %s::bytea[]) "
    "ON CONFLICT DO NOTHING RETURNING token"
)
_USED = "SELECT invitation, blinded FROM invitations WHERE invitation = ANY(%s)"
_KEEP = (
    "UPDATE invitations AS i SET blinded = n.blinded "
    "FROM unnest(%s::bytea[], %s::bytea[]) AS n (invitation, blinded) "
    "WHERE i.invitation = n.invitation AND i.blinded IS NULL"
)
_COUNT = "UPDATE survey SET reports = reports + %s, without_credential = without_credential + %s"


class PostgresReportStore(ReportStore):
    """A report store in the schema `lapwing_NAME`: the name after # of the URL, or one of the survey."""

    def __init__(self, url: str, *, digest: str, report_size: int) -> None:
        self._address = PostgresAddress.of(
            url, name=f"survey_{digest[:16]}", called="the reports in", parameter="store"
        )
        self.where, self._schema = self._address.where, self._address.schema
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._is_closed = False
        try:
            self._create(digest, report_size)
            self._require_survey(digest, report_size)
        except BaseException:
            self.close()
            raise

    def _create(self, digest: str, report_size: int) -> None:
        with self._transaction() as run:
            run("SELECT pg_advisory_xact_lock(hashtext(%s))", (self._schema,))  # one process creates
            run(f"CREATE SCHEMA IF NOT EXISTS {self._schema}")
            run(_SURVEY)
            for table, columns in _TABLES.items():
                run(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
            run(
                "INSERT INTO survey VALUES (1, %s, %s, 0, 0, false) ON CONFLICT DO NOTHING",
                (digest, report_size),
            )

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """Run one transaction, on a new connection if the last one was lost."""
        with self._lock:
            try:
                if self._connection is None or self._connection.closed:
                    if self._is_closed:
                        raise Unavailable(f"the reports in {self.where} are closed")
                    self._connection = self._address.open()
                with self._connection.transaction():
                    yield self._connection.execute
            except psycopg.Error as error:
                if self._connection is not None:
                    self._connection.close()  # whatever it was doing: the next batch begins anew
                    self._connection = None
                why = server_message(error)
                raise Unavailable(f"the reports in {self.where} cannot be used: {why}") from None

    def _locked_state(self, run: Any) -> CollectionState:
        # Locked first, so that processes take turns: the stopping rule counts exactly.
        return self._state(run, " FOR UPDATE")

    def admit(self, invitations: Sequence[str], people: Sequence[str] = ()) -> None:
        """Register these invitations. `people` are the marks of the people that they were made for."""
        hashes = [invitation_hash(invitation) for invitation in invitations]
        with self._transaction() as run:
            run("INSERT INTO invitations (invitation) SELECT unnest(%s::bytea[])", (hashes,))
            run("INSERT INTO people SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING", (list(people),))

    def known_people(self, people: Sequence[str]) -> set[str]:
        """Return those of these people who were invited before."""
        with self._transaction() as run:
            rows = run("SELECT person FROM people WHERE person = ANY(%s)", (list(people),))
            return {person for (person,) in rows}

    def invitations(self) -> tuple[int, int]:
        """Return the number of registered invitations, and of those used for a signature."""
        with self._transaction() as run:
            admitted, used = run("SELECT count(*), count(blinded) FROM invitations").fetchone()
            return admitted, used

    def _used(self, run: Any, invitations: Sequence[bytes]) -> dict[bytes, bytes | IntakeResult]:
        rows = run(_USED, (list(invitations),))
        return {
            bytes(invitation): IntakeResult.NEW if blinded is None else bytes(blinded)
            for invitation, blinded in rows
        }

    def _bind(self, run: Any, blinded: dict[bytes, bytes]) -> None:
        run(_KEEP, (list(blinded), list(blinded.values())))

    def _stored_reports(self, run: Any, tokens: Sequence[bytes]) -> dict[bytes, bytes]:
        rows = run("SELECT token, report FROM reports WHERE token = ANY(%s)", (list(set(tokens)),))
        return {bytes(token): bytes(report) for token, report in rows}

    def _add(self, run: Any, reports: dict[bytes, bytes], *, has_credential: bool, is_last: bool) -> None:
        done = run(_ACCEPT, (list(reports), list(reports.values()))).rowcount
        assert done == len(reports), "processes take turns"
        run(_COUNT, (done, 0 if has_credential else done))
        if is_last:
            _write_anew(run)

    def forget_order(self) -> None:
        """Write every table anew, in the order of its keys."""
        with self._transaction() as run:
            self._locked_state(run)
            _write_anew(run)

    def close_survey(self) -> None:
        """Accept nothing more, for ever, and write every table anew."""
        with self._transaction() as run:
            self._locked_state(run)
            run("UPDATE survey SET closed = true")
            _write_anew(run)

    def rows(self) -> bytes:
        """Return all reports, one after the other, in the order of their hashes."""
        with self._transaction() as run:
            return b"".join([bytes(row) for (row,) in run("SELECT report FROM reports ORDER BY token")])

    def close(self) -> None:
        """Close the connection. The store cannot be used afterwards."""
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()


def _write_anew(run: Any) -> None:
    """Copy every table into a new one, in the order of its keys."""
    for table, columns in _TABLES.items():
        key = columns.split(" ", 1)[0]
        run(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        run(f"ALTER TABLE {table} RENAME TO old_{table}")
        run(f"ALTER INDEX {table}_pkey RENAME TO old_{table}_pkey")
        run(f"CREATE TABLE {table} ({columns})")
        run(f"INSERT INTO {table} SELECT * FROM old_{table} ORDER BY {key}")  # noqa: S608
        run(f"DROP TABLE old_{table}")
