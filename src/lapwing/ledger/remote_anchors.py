"""Anchors on a web server or in a second database, and `anchor_at`, which makes an anchor from its address.

`UrlAnchor`: GET returns the newest head and the marks after it, PUT replaces them. Several writers need a
server with strong ETags that honours If-Match (most object stores and WebDAV servers do). Without them the
last writer wins, and marks of the others can be lost.

`DatabaseAnchor`: a table that only grows, in SQLite or PostgreSQL. The database should belong to somebody
else than the ledger's own database. Each ledger needs an anchor of its own: in PostgreSQL a schema, in
SQLite a file.
"""

from __future__ import annotations

import base64
import os
import sqlite3
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib import request
from urllib.error import HTTPError
from urllib.parse import SplitResult, unquote, urlsplit

from lapwing.errors import BadParameter, Unavailable
from lapwing.ledger.anchors import Anchor, FileAnchor, Head, Mark, newest, parse_line, parse_lines, text_of
from lapwing.storage.sqlite import is_locked

URL_TIMEOUT = 10.0
URL_TRIES = 10

_LARGEST_ANSWER = 1 << 26
_KEPT = (200, 201, 204)  # 202 would be a promise only
_SOMEBODY_ELSE_WROTE = (409, 412)
_NOT_THERE = (404, 410)


@dataclass(frozen=True, slots=True)
class _Found:
    """The content of the server, and the header under which it may be replaced."""

    lines: tuple[Mark | Head, ...]
    condition: dict[str, str]  # the header under which it may be replaced


class UrlAnchor(Anchor):
    """An anchor under an http or https address. Each write takes one or two round trips."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            reachable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # the port is no number, or a bracket is open
            reachable = False
        if not reachable or not url.isascii() or not url.isprintable() or " " in url:
            raise BadParameter("url", "must be a http or https address")
        host = parts.netloc.rpartition("@")[2]
        # Names, passwords and access tokens are for the server only.
        super().__init__(f"{parts.scheme}://{host}{parts.path}")
        self._url = parts._replace(netloc=host, fragment="").geturl()
        self._headers = _authorization(parts)
        self._seen = self._proven = False
        self._opener = request.OpenerDirector()
        # Not the usual ones: those would also open files, and follow redirects to wherever. The answer must
        # come from where the curator said.
        speaking = (request.ProxyHandler(), request.HTTPHandler(), request.HTTPSHandler())
        for handler in (*speaking, request.HTTPDefaultErrorHandler(), request.HTTPErrorProcessor()):
            self._opener.add_handler(handler)

    def exists(self) -> bool:
        """Return whether the server has content there."""
        return self._get() is not None

    def read(self) -> tuple[Mark | Head, ...]:
        """Return the lines that the server has."""
        content = self._get()
        return content.lines if content else ()

    def write(self, marks: Sequence[Mark], head: Head | None = None) -> None:
        """Read, add lines, and replace the content if nobody else wrote meanwhile; otherwise try again."""
        fresh: list[Mark | Head] = [*marks, *([head] if head else [])]
        if not fresh:
            return
        for attempt in range(URL_TRIES):
            content = self._get() or _Found((), {"If-None-Match": "*"})
            if self._put(text_of(newest((*content.lines, *fresh))), content.condition):
                self._seen = True
                self._prove(fresh)
                return
            time.sleep(0.01 * attempt)
        raise Unavailable(
            f"the anchor {self.where} was always changed by others before it could be written"
        )

    def _prove(self, fresh: Sequence[Mark | Head]) -> None:
        """Check once that written lines can be read: some servers accept everything and keep nothing."""
        if not self._proven:
            kept = newest(self.read())
            if newest((*kept, *fresh)) != kept:
                raise Unavailable(f"the anchor {self.where} was written, but does not give it back")
            self._proven = True

    def _get(self) -> _Found | None:
        status, headers, content = self._ask("GET")
        if status in _NOT_THERE and not self._seen:
            return None
        if status != 200:
            raise Unavailable(f"the anchor {self.where} could not be read: HTTP status {status}")
        lines = parse_lines(content, self.where)
        self._seen = True
        etag = headers.get("ETag", "")
        return _Found(lines, {"If-Match": etag} if etag.startswith('"') else {})

    def _put(self, content: bytes, condition: dict[str, str]) -> bool:
        """Replace the content. Return False if somebody else replaced it first."""
        headers = {"Content-Type": "text/plain; charset=us-ascii", **condition}
        status, _, _ = self._ask("PUT", content, headers)
        if status in _KEPT:
            return True
        if status in _SOMEBODY_ELSE_WROTE:
            return False
        raise Unavailable(f"the anchor {self.where} could not be written: HTTP status {status}")

    def _ask(
        self, method: str, content: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Message, bytes]:
        # A cached answer could be older than the last write.
        sent = {"Cache-Control": "no-cache", **self._headers, **(headers or {})}
        asked = request.Request(self._url, content, sent, method=method)  # noqa: S310 (http and https only, see above)
        try:
            try:
                response = self._opener.open(asked, timeout=URL_TIMEOUT)
            except HTTPError as error:
                with error:
                    return error.code, error.headers, b""
            with response:
                body = self._whole(response) if method == "GET" else b""
                return response.status, response.headers, body
        except (OSError, HTTPException, ValueError) as error:  # ValueError: a malformed redirect
            reason = getattr(error, "reason", None) or error or type(error).__name__
            raise Unavailable(f"the anchor {self.where} could not be reached: {reason}") from error

    def _whole(self, response: Any) -> bytes:
        """Return the body of a response.

        Raises Unavailable if it was cut off: a write would lose the rest.
        """
        if response.length is None and not response.chunked:
            raise Unavailable(f"the anchor {self.where} does not say how long its answer is")
        content: bytes = response.read(_LARGEST_ANSWER)
        if response.length or (response.chunked and response.read(1)):
            raise Unavailable(f"the anchor {self.where} gave an answer that is cut off or too long")
        return content


def _authorization(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


DATABASE_TIMEOUT = 10
Result = TypeVar("Result")

# `seq` is the number of a mark, or the last number of a head. It is an index: only the line counts.
_READ = """
SELECT line FROM lapwing_anchor WHERE seq >=
    (SELECT coalesce(max(seq), 0) FROM lapwing_anchor WHERE substr(line, 1, 1) = 'h') ORDER BY id"""
_INDEXES = (
    "CREATE INDEX IF NOT EXISTS lapwing_anchor_seq ON lapwing_anchor (seq)",
    """CREATE INDEX IF NOT EXISTS lapwing_anchor_heads ON lapwing_anchor (seq)
        WHERE substr(line, 1, 1) = 'h'""",
)

# A connection must not be closed by a forked child: its parent still speaks through it.
_connections_of_parent: list[Any] = []


class DatabaseAnchor(Anchor):
    """An anchor in a table of a DB-API database.

    Subclasses say how to connect and how to make the table.
    """

    begin: tuple[str, ...] = ()  # statements that begin a transaction for writing
    exists_query: str
    insert: str
    read_query = _READ
    values: tuple[str, ...] = ()  # what both queries need, and what every row begins with
    tables: tuple[str, ...]
    errors: tuple[type[Exception], ...]

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self._connection: Any = None
        self._made = False

    @abstractmethod
    def _connect(self) -> Any:
        """Return a new connection without automatic commits."""

    def exists(self) -> bool:
        """Return whether the table exists."""
        return self._transaction("read", self._has_table)

    def read(self) -> tuple[Mark | Head, ...]:
        """Return the newest head and the marks from it on."""
        lines = self._transaction("read", self._lines)
        return tuple([parse_line(line, self.where, place) for place, line in enumerate(lines, 1)])

    def write(self, marks: Sequence[Mark], head: Head | None = None) -> None:
        """Append lines in one transaction, which is durable when this returns."""
        lines: tuple[Mark | Head, ...] = (*marks, *([head] if head else []))
        rows = [(*self.values, line.last, line.line) for line in lines]

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
        """Close the connection. A later call opens another one."""
        with self._inside:
            self._drop()

    def detach_in_child(self) -> None:
        """Keep the parent's connection unused: closing it would end the parent's session."""
        _connections_of_parent.append(self._connection)
        self._connection = None

    def _lines(self, cursor: Any) -> list[str]:
        if not self._has_table(cursor):
            if self._made:
                raise Unavailable(f"the anchor {self.where} was removed while in use")
            return []
        self._made = True
        cursor.execute(self.read_query, self.values)
        return [str(line) for (line,) in cursor.fetchall()]

    def _has_table(self, cursor: Any) -> bool:
        cursor.execute(self.exists_query, self.values)
        return bool(cursor.fetchone()[0])

    def _transaction(self, done: str, action: Callable[[Any], Result]) -> Result:
        """Run `action` and commit, or raise.

        An idle connection may have died, so a second try uses a new one. If the first try was committed
        after all, lines are stored twice, which has the same meaning.
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
    """An anchor in an SQLite file."""

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
        """Return whether the file exists and contains the table."""
        return os.path.exists(self._path) and super().exists()

    def read(self) -> tuple[Mark | Head, ...]:
        """Return the newest head and the marks from it on, without creating the file."""
        return super().read() if self._made or os.path.exists(self._path) else ()

    def _attempt(self, action: Callable[[Any], Result]) -> Result:
        """Wait for other processes in short steps. SQLite's own steps grow long and can miss every gap."""
        until = time.monotonic() + DATABASE_TIMEOUT
        while True:
            try:
                return super()._attempt(action)
            except sqlite3.OperationalError as error:
                if not is_locked(error) or time.monotonic() > until:
                    raise
            time.sleep(0.001)

    def _connect(self) -> sqlite3.Connection:
        # A file that was removed must not come back empty.
        mode = "rw" if self._made else "rwc"
        address = f"{Path(self._path).as_uri()}?mode={mode}"
        connection = sqlite3.connect(address, timeout=0, uri=True, check_same_thread=False)
        try:
            connection.execute("PRAGMA synchronous = EXTRA")
        except BaseException:
            connection.close()
            raise
        return connection


class PostgresAnchor(DatabaseAnchor):
    """An anchor in a PostgreSQL database. `#name` at the end of the address keeps several ledgers apart."""

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
        from lapwing.storage.postgres import parse_postgres_url, psycopg  # noqa: PLC0415 (an extra)

        self._psycopg = psycopg
        self.errors = (psycopg.Error,)
        self._parameters, where, name = parse_postgres_url(url, "url")
        super().__init__(f"{where}#{name}" if name else where)
        self._schema = f"lapwing_anchor_{name}" if name else "lapwing_anchor"
        # Two processes may both find no table. The lock lets one of them make it.
        lock = "SELECT pg_advisory_xact_lock(hashtextextended('lapwing anchor', 0))"
        self.tables = (lock, f"CREATE SCHEMA IF NOT EXISTS {self._schema}", *type(self).tables)

    def _connect(self) -> Any:
        connection = self._psycopg.connect(**{**self._parameters, "connect_timeout": DATABASE_TIMEOUT})
        try:
            connection.execute("SET synchronous_commit = on")
            connection.execute(f"SET statement_timeout = '{DATABASE_TIMEOUT}s'")
            connection.execute(f"SET search_path = {self._schema}, pg_temp")
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection


_SQLITE = "sqlite:///"


def anchor_at(where: str | Path) -> Anchor:
    """Return the anchor at an address: http(s)://…, postgresql://…, sqlite:///path, or the path of a file.

    After sqlite:/// a path is relative; with a fourth slash it is absolute.
    """
    if isinstance(where, Path):
        return FileAnchor(where)
    scheme = where.partition("://")[0].lower() if "://" in where else ""
    if scheme in ("http", "https"):
        return UrlAnchor(where)
    if scheme in ("postgresql", "postgres"):
        return PostgresAnchor(where)
    if where.startswith(_SQLITE) and len(where) > len(_SQLITE):
        return SqliteAnchor(where[len(_SQLITE) :])
    if scheme or not where:  # a mistyped address must not become a file with a strange name
        raise BadParameter("where", "must be http(s)://…, postgresql://…, sqlite:///path or a path")
    return FileAnchor(where)
