"""Connections to a PostgreSQL server on which a commit is durable.

Every connection holds an advisory lock on a session number of its own. The server releases the lock when
the connection's backend process has ended; then all that the connection began is committed or rolled back.

A process that has a database open keeps one more connection, which holds the number of its session (see
`SessionKeeper`). One of all these processes leads: only the leader does the work that one process must do.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

from lapwing.core.noise import random_bytes
from lapwing.core.process_bound import FORK_COUNTER
from lapwing.errors import BadParameter, MissingExtra, SessionOver, Unavailable

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus
except ImportError:
    raise MissingExtra("postgres", "PostgreSQL") from None

__all__ = [
    "PostgresAddress",
    "PostgresConnection",
    "PostgresConnections",
    "SessionKeeper",
    "new_session_number",
    "parse_postgres_url",
    "psycopg",
    "server_message",
    "translated",
]

OLDEST_SERVER = 14
MOST_IDLE = 64

_NAME = re.compile(r"[a-z0-9_]{1,40}")
_ENCODE = (
    "is not a PostgreSQL URL. Special characters of a password are written %40 for @, %2F for /, and so on"
)
# A server that is cut off is noticed within a minute, unless the URL says otherwise.
_DEFAULTS = {
    "connect_timeout": 10, "keepalives_idle": 20, "keepalives_interval": 10, "keepalives_count": 3,
    "tcp_user_timeout": 50_000, "application_name": "lapwing",
}  # fmt: skip
_SETTINGS = {
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "client_encoding": "UTF8",
}
_SET = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in _SETTINGS.items())
_PREPARE = (
    "SELECT current_setting('server_version_num')::int / 10000, current_setting('fsync'), "
    "current_setting('full_page_writes'), pg_is_in_recovery(), "
    f"set_config('search_path', %s, false), {_SET}"
)
# Plans are kept, also those made for ten blocks. Every query of a ledger has its index.
_HOLD = (
    "SELECT pg_try_advisory_lock(%s), set_config('enable_seqscan', 'off', false), "
    "set_config('jit', 'off', false)"
)
_HOLDER = (
    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND classid = %s AND objid = %s "
    "AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def parse_postgres_url(url: str, parameter: str) -> tuple[dict[str, Any], str, str]:
    """Parse `postgresql://…/database#name`.

    Args:
        url: the address.
        parameter: the name of the parameter in errors.

    Returns:
        The connection parameters, the address without user and password, and the name; empty if there is
        none.

    Raises:
        BadParameter: if it is no such address. The message quotes nothing of it.
    """
    address, mark, name = url.partition("#")
    if mark and not _NAME.fullmatch(name):
        raise BadParameter(parameter, "the name after # must be 1 to 40 of a-z, 0-9 and _")
    try:
        parameters = {key: value for key, value in conninfo_to_dict(address).items() if value is not None}
    except psycopg.Error:  # its message may quote a piece of the password
        raise BadParameter(parameter, _ENCODE) from None
    host, port, database = (str(parameters.get(key, "")) for key in ("host", "port", "dbname"))
    # Parts of a password with @ / : that is not encoded would be in other fields, and so in messages.
    if "@" in host or not re.fullmatch("[0-9,]*", port) or set("@/") & set(database):
        raise BadParameter(parameter, _ENCODE)
    place = "" if "/" in host else f"{host}:{port}" if port else host
    return parameters, f"postgresql://{place}/{database}", name


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """A schema of a PostgreSQL database. `where` names it in messages and contains no password."""

    where: str
    schema: str
    called: str  # the content of the schema, to begin messages
    _parameters: dict[str, Any] = field(repr=False)

    @classmethod
    def of(
        cls, url: str, *, name: str = "ledger", called: str = "the ledger", parameter: str = "ledger"
    ) -> Self:
        """Parse `postgresql://…/database#name`.

        Args:
            url: the address.
            name: the default name.
            called: names the content of the schema in messages.
            parameter: the name of the parameter in errors.
        """
        parameters, where, given = parse_postgres_url(url, parameter)
        name = given or name
        return cls(f"{where}#{name}", f"lapwing_{name}", called, {**_DEFAULTS, **parameters})

    def open(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Return a new connection.

        Raises Unavailable if the server cannot be reached, or if a commit on it is not durable.
        """
        try:
            connection = psycopg.connect(autocommit=True, **self._parameters)
        except psycopg.Error as error:
            why = " ".join(self._without_secrets(str(error)).split())
            raise Unavailable(f"{self.called} {self.where} cannot be reached: {why}") from None
        with self._closed_on_error(connection):
            row = connection.execute(_PREPARE, (f"{self.schema}, pg_temp",)).fetchone()
            assert row is not None
            version, fsync, full_page_writes, is_standby, *_ = row
            torn = "full_page_writes is off on the server, so that a crash could tear pages"
            for wrong, why in (
                (version < OLDEST_SERVER, f"the server is older than PostgreSQL {OLDEST_SERVER}"),
                (fsync != "on", "fsync is off on the server, so that a crash could forget commits"),
                (full_page_writes != "on", torn),
                (is_standby, "the server is a standby: name the primary, which can be written"),
            ):
                if wrong:
                    raise self._unusable(why)
        return connection

    def connect(self, number: int) -> PostgresConnection:
        """Return a new connection that holds this session number. Raises Unavailable as `open` does."""
        connection = self.open()
        with self._closed_on_error(connection):
            held = connection.execute(_HOLD, (number,)).fetchone()
            if held is None or not held[0]:
                raise self._unusable("an earlier connection is still being closed; ask again")
        return PostgresConnection(connection, number)

    @contextmanager
    def _closed_on_error(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            connection.close()
            if isinstance(error, psycopg.Error):
                raise self._unusable(server_message(error)) from None
            raise

    def _unusable(self, why: str) -> Unavailable:
        return Unavailable(f"{self.called} {self.where} cannot be used: {why}")

    def _without_secrets(self, text: str) -> str:
        for key, value in self._parameters.items():
            if "password" in key and value:
                text = text.replace(str(value), "***")
        return text


def server_message(error: psycopg.Error) -> str:
    """Return the message of the server, without its details, which may quote values."""
    lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    why = "the connection was lost" if lost else "the driver refused a value"
    return error.diag.message_primary or why


@lru_cache(maxsize=1024)
def translated(sql: str) -> str:
    """Return a statement with ? for each value, as psycopg writes it."""
    assert "%" not in sql
    assert not any("?" in literal for literal in sql.split("'")[1::2])
    return sql.replace("?", "%s")


def new_session_number() -> int:
    """Return a random number of 62 bits."""
    return int.from_bytes(random_bytes(8), "big") >> 2


class PostgresConnection:
    """One connection and the session number that it holds."""

    __slots__ = ("__weakref__", "connection", "number", "run")

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], number: int) -> None:
        self.connection, self.number = connection, number
        self.run = connection.cursor().execute

    def holder(self, number: int) -> int | None:
        """Return the process id of the backend that holds a session number.

        None means that the backend has ended, and that all its transactions are committed or rolled back.
        """
        row = self.run(_HOLDER, (number >> 32, number & 0xFFFFFFFF)).fetchone()
        return row[0] if row else None

    def is_idle(self) -> bool:
        """Return whether the connection can be used again, after rolling back an open transaction."""
        status = self.connection.pgconn.transaction_status
        if status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            try:
                self.run("ROLLBACK")
            except psycopg.Error:
                return False
            status = self.connection.pgconn.transaction_status
        return status == TransactionStatus.IDLE

    def close(self) -> None:
        """Close the connection. The server rolls back an open transaction."""
        self.connection.close()


class PostgresConnections:
    """A pool of connections. It keeps idle connections for the next use."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._idle: deque[PostgresConnection] = deque()
        self._all: weakref.WeakSet[PostgresConnection] = weakref.WeakSet()
        self._forks = FORK_COUNTER.count
        self._closed = False
        _pools.add(self)

    @property
    def is_here(self) -> bool:
        """True if this is the process in which the pool was made."""
        return self._forks == FORK_COUNTER.count

    def connect(self, number: int | None = None) -> PostgresConnection:
        """Return a new connection that holds this session number, or a random one."""
        if not self.is_here:
            raise SessionOver("this ledger was opened by another process; open it again in this one")
        if self._closed:
            raise Unavailable(f"the ledger {self._address.where} is closed")
        link = self._address.connect(new_session_number() if number is None else number)
        self._all.add(link)
        return link

    def take(self) -> PostgresConnection:
        """Return a connection for one task of one thread."""
        if self.is_here and not self._closed:
            try:
                return self._idle.pop()
            except IndexError:
                pass
        return self.connect()

    def give(self, link: PostgresConnection) -> None:
        """Take a connection back into the pool, or close it if it is not usable."""
        if self._closed or len(self._idle) >= MOST_IDLE or not link.is_idle():
            link.close()
        else:
            self._idle.append(link)

    @contextmanager
    def lent(self) -> Iterator[PostgresConnection]:
        """Take a connection, and give it back at the end of the block."""
        link = self.take()
        try:
            yield link
        finally:
            self.give(link)

    def drop_idle(self) -> None:
        """Close all idle connections, for example after a restart of the server."""
        while self._idle:
            self._idle.pop().close()

    def close(self) -> None:
        """Close the pool. Connections in use are closed when they are given back."""
        self._closed = True
        self.drop_idle()

    def detach_in_child(self) -> None:
        """Detach all connections in a forked child, without sending anything on the parent's sockets."""
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for link in list(self._all):
            # Closing it would end the parent's session.
            _connections_of_parent.append(link.connection)
            with suppress(psycopg.Error):
                os.dup2(nothing, link.connection.fileno(), inheritable=False)
        os.close(nothing)


_pools: weakref.WeakSet[PostgresConnections] = weakref.WeakSet()
_connections_of_parent: list[Any] = []


def _detach_all_in_child() -> None:
    for pool in list(_pools):
        pool.detach_in_child()


os.register_at_fork(after_in_child=_detach_all_in_child)


KEEPER_SECONDS = 1.0
KEEPER_LONGEST_WAIT = 64.0
_LEAD = "SELECT pg_try_advisory_lock(hashtextextended('lapwing lead ' || current_schema(), 0))"
_RESIGN = "SELECT pg_advisory_unlock(hashtextextended('lapwing lead ' || current_schema(), 0))"

_log = logging.getLogger(__name__)


class SessionKeeper:
    """A thread that holds a session number and calls `work` every second.

    `work` is told whether this process leads. `where` and `undone` are for the log: `undone` says what has
    not happened while `work` fails.
    """

    def __init__(
        self, pool: PostgresConnections, where: str, work: Callable[[bool], None], *, undone: str
    ) -> None:
        self.session = new_session_number()
        self._where, self._undone, self._work, self._pool = where, undone, work, pool
        self._link = pool.connect(self.session)
        self._leads = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="lapwing keeper", daemon=True)
        self._thread.start()

    @property
    def has_stopped(self) -> bool:
        """True if `stop` was called."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Stop calling `work`. The session lasts until `close`."""
        self._stopping.set()
        self._thread.join()

    def close(self) -> None:
        """End the session: release its number."""
        self._link.close()

    def _loop(self) -> None:
        wait = KEEPER_SECONDS
        while not self._stopping.wait(wait):
            try:
                self._once()
                wait = KEEPER_SECONDS
            except Exception as error:  # the thread has no caller, and the process continues
                wait = min(2 * wait, KEEPER_LONGEST_WAIT)
                if wait > 4 * KEEPER_SECONDS:  # not for short failures
                    _log.warning("%s %s: %s", self._where, self._undone, error)

    def _once(self) -> None:
        try:
            self._link.run("SELECT 1")
        except psycopg.Error:
            self._link.close()
            self._leads = False
            self._link = self._pool.connect(self.session)
        self._leads = self._leads or self._link.run(_LEAD).fetchone() == (True,)
        try:
            self._work(self._leads)
        except BaseException:
            if self._leads:  # another process may fare better
                self._leads = False
                self._link.run(_RESIGN)
            raise
