"""An anchor in a second database, SQLite or PostgreSQL, in a table that only grows.

It should belong to somebody else than the ledger's own database. Each ledger needs one of its own: in
PostgreSQL a schema, in SQLite a file.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from lapwing.errors import BadParameter, MissingExtra, Unavailable
from lapwing.ledger.anchors.lines import Anchor, Head, Mark, parse_line

TIMEOUT = 10
Result = TypeVar("Result")

_NAME = re.compile("[a-z0-9_]{1,40}")
_PORTS = re.compile("[0-9,]*")

# `seq` is the number of a mark and the last number of a head. It only finds lines; what counts is the line.
_READ = """
SELECT line FROM lapwing_anchor WHERE seq >=
    (SELECT coalesce(max(seq), 0) FROM lapwing_anchor WHERE substr(line, 1, 1) = 'h') ORDER BY id"""
_INDEXES = (
    "CREATE INDEX IF NOT EXISTS lapwing_anchor_seq ON lapwing_anchor (seq)",
    """CREATE INDEX IF NOT EXISTS lapwing_anchor_heads ON lapwing_anchor (seq)
        WHERE substr(line, 1, 1) = 'h'""",
)

# A connection must not be closed by a forked child: its parent still speaks through it.
_of_the_parent: list[Any] = []


class DatabaseAnchor(Anchor):
    """Lines in a table of a database that speaks the DB-API. Subclasses say how it is reached and made."""

    begin: tuple[str, ...] = ()  # what opens a transaction that writes
    exists_query: str
    insert: str
    tables: tuple[str, ...]
    errors: tuple[type[Exception], ...]

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self._connection: Any = None
        self._made = False

    @abstractmethod
    def _connect(self) -> Any:
        """A new connection on which nothing is committed by itself."""

    def exists(self) -> bool:
        """Whether the table is there."""
        return self._transaction("read", self._has_table)

    def read(self) -> tuple[Mark | Head, ...]:
        """The newest head, and the marks from it on."""
        lines = self._transaction("read", self._lines)
        return tuple([parse_line(line, self.where, place) for place, line in enumerate(lines, 1)])

    def write(self, marks: Sequence[Mark], head: Head | None = None) -> None:
        """Append in one transaction, which is on disk when this returns."""
        rows = [(mark.seq, mark.line) for mark in marks]
        if head is not None:
            rows.append((head.last, head.line))

        def append(cursor: Any) -> None:
            for statement in self.begin:
                cursor.execute(statement)
            if not self._made and not self._has_table(cursor):
                for statement in self.tables:
                    cursor.execute(statement)
            cursor.executemany(self.insert, rows)

        if rows:
            self._transaction("written", append)
            self._made = True

    def close(self) -> None:
        """Close the connection; a later call opens another."""
        with self._inside:
            self._drop()

    def start_afresh(self) -> None:
        """Closing the connection would end the parent's."""
        _of_the_parent.append(self._connection)
        self._connection = None

    def _lines(self, cursor: Any) -> list[str]:
        if not self._has_table(cursor):
            if self._made:
                raise Unavailable(f"the anchor {self.where} was removed while in use")
            return []
        self._made = True
        cursor.execute(_READ)
        return [str(line) for (line,) in cursor.fetchall()]

    def _has_table(self, cursor: Any) -> bool:
        cursor.execute(self.exists_query)
        return bool(cursor.fetchone()[0])

    def _transaction(self, done: str, action: Callable[[Any], Result]) -> Result:
        """Do it all and commit, or raise. An idle connection may have died, so a second try has a new one.

        Should the first have been committed all the same, lines stand there twice, which means the same.
        """
        with self._inside:
            tries = 1 if self._connection is None else 2
            while True:
                try:
                    return self._attempt(action)
                except self.errors as error:
                    tries -= 1
                    if not tries:
                        why = " ".join(str(error).split())
                        raise Unavailable(f"the anchor {self.where} cannot be {done}: {why}") from error

    def _attempt(self, action: Callable[[Any], Result]) -> Result:
        try:
            if self._connection is None:
                self._connection = self._connect()
            with closing(self._connection.cursor()) as cursor:
                result = action(cursor)
            self._connection.commit()
        except BaseException:
            self._drop()  # closing rolls back, and the next call starts with a sound connection
            raise
        return result

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*self.errors):
                connection.close()


class SqliteAnchor(DatabaseAnchor):
    """Lines in an SQLite file."""

    begin = ("BEGIN IMMEDIATE",)
    exists_query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'lapwing_anchor'"
    insert = "INSERT INTO lapwing_anchor (seq, line) VALUES (?, ?)"
    tables = (
        """CREATE TABLE lapwing_anchor (id INTEGER PRIMARY KEY AUTOINCREMENT,
            seq INTEGER NOT NULL, line TEXT NOT NULL)""",
        *_INDEXES,
        """CREATE TRIGGER lapwing_anchor_keeps BEFORE DELETE ON lapwing_anchor
            BEGIN SELECT RAISE(ABORT, 'an anchor only grows'); END""",
        """CREATE TRIGGER lapwing_anchor_stays BEFORE UPDATE ON lapwing_anchor
            BEGIN SELECT RAISE(ABORT, 'an anchor only grows'); END""",
    )
    errors = (sqlite3.Error,)

    def __init__(self, path: str | Path) -> None:
        self._path = os.path.realpath(path)
        super().__init__(self._path)

    def exists(self) -> bool:
        """Whether the file is there, with the table in it."""
        return os.path.exists(self._path) and super().exists()

    def read(self) -> tuple[Mark | Head, ...]:
        """The newest head, and the marks from it on. Reading makes no file."""
        return super().read() if self._made or os.path.exists(self._path) else ()

    def _attempt(self, action: Callable[[Any], Result]) -> Result:
        """Wait for other processes in short steps: SQLite's own grow long, and can miss every gap."""
        until = time.monotonic() + TIMEOUT
        while True:
            try:
                return super()._attempt(action)
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                if not busy or time.monotonic() > until:
                    raise
            time.sleep(0.001)

    def _connect(self) -> sqlite3.Connection:
        # A file that was there and is gone must not come back empty.
        mode = "rw" if self._made else "rwc"
        connection = sqlite3.connect(
            f"{Path(self._path).as_uri()}?mode={mode}", timeout=0, uri=True, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA synchronous = EXTRA")
        except BaseException:
            connection.close()
            raise
        return connection


class PostgresAnchor(DatabaseAnchor):
    """Lines in a PostgreSQL database. `#name` at the end of the address keeps several ledgers apart."""

    exists_query = "SELECT to_regclass('lapwing_anchor') IS NOT NULL"
    insert = "INSERT INTO lapwing_anchor (seq, line) VALUES (%s, %s)"
    tables: tuple[str, ...] = (
        """CREATE TABLE IF NOT EXISTS lapwing_anchor (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            seq BIGINT NOT NULL, line TEXT NOT NULL)""",
        *_INDEXES,
        """CREATE OR REPLACE FUNCTION lapwing_anchor_only_grows() RETURNS trigger LANGUAGE plpgsql
            AS $$ BEGIN RAISE EXCEPTION 'an anchor only grows'; END $$""",
        """CREATE OR REPLACE TRIGGER lapwing_anchor_stays
            BEFORE UPDATE OR DELETE OR TRUNCATE ON lapwing_anchor
            FOR EACH STATEMENT EXECUTE FUNCTION lapwing_anchor_only_grows()""",
    )

    def __init__(self, url: str) -> None:
        try:
            import psycopg.conninfo  # noqa: PLC0415 (an extra)
        except ImportError:
            raise MissingExtra("postgres", "an anchor in PostgreSQL") from None
        self._psycopg = psycopg
        self.errors = (psycopg.Error,)
        self._address, mark, name = url.partition("#")
        if mark and not _NAME.fullmatch(name):
            raise BadParameter("url", "the name after # must be 1 to 40 of a-z, 0-9 and _")
        try:
            found = psycopg.conninfo.conninfo_to_dict(self._address)
        except psycopg.Error:  # its message may quote a piece of the password
            found = {"host": "@"}
        host, port, database = (str(found.get(key) or "") for key in ("host", "port", "dbname"))
        # A password with @ / or : that is not encoded lands in another field, and from there in messages.
        if "@" in host or not _PORTS.fullmatch(port) or set("@/") & set(database):
            raise BadParameter("url", "must be a postgresql address, with % codes for what is odd in it")
        super().__init__(f"postgresql://{'' if '/' in host else host}/{database}{mark}{name}")
        self._schema = f"lapwing_anchor_{name}" if name else "lapwing_anchor"
        # Two processes may both find nothing: the lock lets one of them make it.
        lock = "SELECT pg_advisory_xact_lock(hashtextextended('lapwing anchor', 0))"
        self.tables = (lock, f"CREATE SCHEMA IF NOT EXISTS {self._schema}", *type(self).tables)

    def _connect(self) -> Any:
        connection = self._psycopg.connect(self._address, connect_timeout=TIMEOUT)
        try:
            connection.execute("SET synchronous_commit = on")
            connection.execute(f"SET statement_timeout = '{TIMEOUT}s'")
            connection.execute(f"SET search_path = {self._schema}, pg_temp")
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection
