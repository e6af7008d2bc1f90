"""Anchors: marks and heads kept outside the database, so that an old or edited copy of it is noticed.

A database that is restored from a backup is consistent in itself: only something outside can tell that it
knew more once. Such a place is a file, a web address, or another database.

An anchor on a web server: GET gives the newest head and the marks after it, PUT replaces them.

Several writers need a server that gives strong ETags and heeds If-Match (most object stores and WebDAV
servers do). Without them the last writer wins, and marks of the others can go.

An anchor in a second database, SQLite or PostgreSQL, in a table that only grows.

It should belong to somebody else than the ledger's own database. Each ledger needs one of its own: in
PostgreSQL a schema, in SQLite a file.
"""

from __future__ import annotations

import base64
import os
import re
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
from urllib.error import HTTPError
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from lapwing.errors import BadParameter, MissingExtra, Unavailable
from lapwing.ledger.anchors import Anchor, FileAnchor, Head, Mark, newest, parse_line, parse_lines, text_of

URL_TIMEOUT = 10.0
URL_TRIES = 10

_LARGEST_ANSWER = 1 << 26
_KEPT = (200, 201, 204)  # 202 would be a promise only
_SOMEBODY_ELSE_WROTE = (409, 412)
_NOT_THERE = (404, 410)


@dataclass(frozen=True, slots=True)
class _Found:
    """What the server had."""

    lines: tuple[Mark | Head, ...]
    condition: dict[str, str]  # the header under which it may be replaced


class UrlAnchor(Anchor):
    """Text under a http or https address. Each write is a round trip or two, and keeps no connection."""

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
        self._opener = OpenerDirector()
        # Not the usual ones: those would also open files, and follow redirects to wherever. The answer must
        # come from where the curator said.
        speaking = (ProxyHandler(), HTTPHandler(), HTTPSHandler())
        for handler in (*speaking, HTTPDefaultErrorHandler(), HTTPErrorProcessor()):
            self._opener.add_handler(handler)

    def exists(self) -> bool:
        """Whether the server has something there."""
        return self._get() is not None

    def read(self) -> tuple[Mark | Head, ...]:
        """What the server has."""
        found = self._get()
        return found.lines if found else ()

    def write(self, marks: Sequence[Mark], head: Head | None = None) -> None:
        """Read, add, and replace if nobody else wrote meanwhile; otherwise begin again."""
        fresh: list[Mark | Head] = [*marks, *([head] if head else [])]
        if not fresh:
            return
        for attempt in range(URL_TRIES):
            found = self._get() or _Found((), {"If-None-Match": "*"})
            if self._put(text_of(newest((*found.lines, *fresh))), found.condition):
                self._seen = True
                self._prove(fresh)
                return
            time.sleep(0.01 * attempt)
        raise Unavailable(
            f"the anchor {self.where} was always changed by others before it could be written"
        )

    def close(self) -> None:
        """Nothing is kept open."""

    def _prove(self, fresh: Sequence[Mark | Head]) -> None:
        """Once, see that what was taken is there: some servers say yes to everything and keep nothing."""
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
        """Whether it was taken; not if somebody else was faster."""
        status, _, _ = self._ask(
            "PUT", content, {"Content-Type": "text/plain; charset=us-ascii", **condition}
        )
        if status in _KEPT:
            return True
        if status in _SOMEBODY_ELSE_WROTE:
            return False
        raise Unavailable(f"the anchor {self.where} could not be written: HTTP status {status}")

    def _ask(
        self, method: str, content: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Message, bytes]:
        # No answer out of a cache: it could be older than what was written.
        sent = {"Cache-Control": "no-cache", **self._headers, **(headers or {})}
        request = Request(self._url, content, sent, method=method)  # noqa: S310 (http and https only, see above)
        try:
            try:
                response = self._opener.open(request, timeout=URL_TIMEOUT)
            except HTTPError as error:
                with error:
                    return error.code, error.headers, b""
            with response:
                body = self._whole(response) if method == "GET" else b""
                return response.status, response.headers, body
        except (
            OSError,
            HTTPException,
            ValueError,
        ) as error:  # ValueError: it was led to a malformed address
            reason = getattr(error, "reason", None) or error or type(error).__name__
            raise Unavailable(f"the anchor {self.where} could not be reached: {reason}") from error

    def _whole(self, response: Any) -> bytes:
        """The body. One that was cut off on the way would make us overwrite the rest of it."""
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
        until = time.monotonic() + DATABASE_TIMEOUT
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
        connection = self._psycopg.connect(self._address, connect_timeout=DATABASE_TIMEOUT)
        try:
            connection.execute("SET synchronous_commit = on")
            connection.execute(f"SET statement_timeout = '{DATABASE_TIMEOUT}s'")
            connection.execute(f"SET search_path = {self._schema}, pg_temp")
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection


__all__ = [
    "Anchor",
    "DatabaseAnchor",
    "FileAnchor",
    "Head",
    "Mark",
    "PostgresAnchor",
    "SqliteAnchor",
    "UrlAnchor",
    "anchor_at",
    "newest",
    "parse_line",
    "parse_lines",
    "witness_directory",
]

_SQLITE = "sqlite:///"


def anchor_at(where: str | Path) -> Anchor:
    """The anchor at a place: http(s)://…, postgresql://…, sqlite:///path, or the path of a file.

    After sqlite:/// a path is relative, and absolute with a fourth slash.
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


def witness_directory() -> Path | None:
    """Where this user's machine keeps second anchors, or None if there is no such place.

    $LAPWING_STATE, else $XDG_STATE_HOME/lapwing, else ~/.local/state/lapwing. It is made if need be.
    """
    own, state = os.environ.get("LAPWING_STATE"), os.environ.get("XDG_STATE_HOME", "")
    try:
        if own:
            directory = Path(own).absolute()
        elif os.path.isabs(state):  # the XDG rules ignore a relative one
            directory = Path(state, "lapwing")
        else:
            directory = Path.home() / ".local" / "state" / "lapwing"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no leave to make it, or no home
        return None
    return directory if os.access(directory, os.R_OK | os.W_OK | os.X_OK) else None
