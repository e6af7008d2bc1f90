"""Connections to a PostgreSQL server that keeps what it commits, each with a number while it lives.

Every connection holds an advisory lock on a number of its own, for life. The server lets go of it when
the connection's backend is gone, and then whatever it was doing is committed or undone for good.

What one process does for a ledger in PostgreSQL as long as it has it open: be there, and seal.

Being there is a connection of its own that holds the session's number. Of all processes one leads, and it
is asked to seal every second.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from lapwing.core.budget import FORK_COUNTER
from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter, MissingExtra, SessionOver, Unavailable
from lapwing.storage.postgres import psycopg

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus
except ImportError:
    raise MissingExtra("postgres", "A ledger in PostgreSQL") from None

OLDEST_SERVER = 14
MOST_IDLE = 64
__all__ = [
    "PostgresAddress",
    "PostgresConnection",
    "PostgresConnections",
    "new_session_number",
    "psycopg",
    "server_message",
]

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
    # Plans are kept, also those from when there were ten blocks. Every query has its index.
    "enable_seqscan": "off",
    "jit": "off",
}
_SET = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in _SETTINGS.items())
_PREPARE = (
    "SELECT current_setting('server_version_num')::int / 10000, current_setting('fsync'), "
    "current_setting('full_page_writes'), pg_is_in_recovery(), pg_try_advisory_lock(%s), "
    f"set_config('search_path', %s, false), {_SET}"
)
_HOLDER = (
    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND classid = %s AND objid = %s "
    "AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Where a ledger lies: a schema of a database. `where` is for messages: no password is in it."""

    where: str
    schema: str
    _parameters: dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, url: str) -> Self:
        """Read `postgresql://…/database#name`; without a name, it is `ledger`."""
        address, mark, name = url.partition("#")
        if not _NAME.fullmatch(name if mark else "ledger"):
            raise BadParameter("ledger", "the name after # must be 1 to 40 of a-z, 0-9 and _")
        try:
            found = {key: value for key, value in conninfo_to_dict(address).items() if value is not None}
        except psycopg.Error:  # its message may quote a piece of the password
            raise BadParameter("ledger", _ENCODE) from None
        host, port, database = (str(found.get(key, "")) for key in ("host", "port", "dbname"))
        # A password with @ / : in it, not encoded, lands in other fields, and from there in messages.
        if "@" in host or not re.fullmatch("[0-9,]*", port) or set("@/") & set(database):
            raise BadParameter("ledger", _ENCODE)
        place = "" if "/" in host else f"{host}:{port}" if port else host
        name = name or "ledger"
        return cls(f"postgresql://{place}/{database}#{name}", f"lapwing_{name}", {**_DEFAULTS, **found})

    def connect(self, number: int) -> PostgresConnection:
        """A connection that holds this number, to a server on which a commit is on disk."""
        try:
            connection = psycopg.connect(autocommit=True, **self._parameters)
        except psycopg.Error as error:
            why = " ".join(self._without_secrets(str(error)).split())
            raise Unavailable(f"the ledger {self.where} cannot be reached: {why}") from None
        try:
            found = connection.execute(_PREPARE, (number, f"{self.schema}, pg_temp")).fetchone()
            assert found is not None
            version, fsync, full_page_writes, standby, holds, *_ = found
            for wrong, why in (
                (version < OLDEST_SERVER, f"the server is older than PostgreSQL {OLDEST_SERVER}"),
                (fsync != "on", "fsync is off on the server, so that a crash could forget charges"),
                (
                    full_page_writes != "on",
                    "full_page_writes is off on the server, so that a crash could tear pages",
                ),
                (standby, "the server is a standby: a ledger is written on the primary"),
                (not holds, "an earlier connection is still being closed; ask again"),
            ):
                if wrong:
                    raise Unavailable(f"the ledger {self.where} cannot be used: {why}")
        except psycopg.Error as error:
            connection.close()
            raise Unavailable(f"the ledger {self.where} cannot be used: {server_message(error)}") from None
        except BaseException:
            connection.close()
            raise
        return PostgresConnection(connection, number)

    def _without_secrets(self, text: str) -> str:
        for key, value in self._parameters.items():
            if "password" in key and value:
                text = text.replace(str(value), "***")
        return text


def server_message(error: psycopg.Error) -> str:
    """What the server said, without the values that it may have quoted as details."""
    lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.diag.message_primary or (
        "the connection was lost" if lost else "the driver refused a value"
    )


def new_session_number() -> int:
    """A random number of 62 bits, which nobody else has."""
    return int.from_bytes(random_bytes(8), "big") >> 2


class PostgresConnection:
    """One connection and the number that it holds."""

    __slots__ = ("__weakref__", "connection", "number", "run")

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], number: int) -> None:
        self.connection = connection
        self.number = number
        self.run = connection.cursor().execute

    def holder(self, number: int) -> int | None:
        """The backend that holds a number, or None: then it is gone, and what it began is decided."""
        row = self.run(_HOLDER, (number >> 32, number & 0xFFFFFFFF)).fetchone()
        return row[0] if row else None

    def is_idle(self) -> bool:
        """Whether it can be used for something new; a transaction that was left open is undone."""
        status = self.connection.pgconn.transaction_status
        if status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            try:
                self.run("ROLLBACK")
            except psycopg.Error:
                return False
            status = self.connection.pgconn.transaction_status
        return status == TransactionStatus.IDLE

    def close(self) -> None:
        """Hang up. What was not committed is undone."""
        self.connection.close()


class PostgresConnections:
    """Connections to share: as many as are used at the same time, kept for the next one."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._idle: deque[PostgresConnection] = deque()
        self._all: weakref.WeakSet[PostgresConnection] = weakref.WeakSet()
        self._forks = FORK_COUNTER.count
        self._closed = False
        _everywhere.add(self)

    @property
    def is_here(self) -> bool:
        """Whether this is the process that it was made in."""
        return self._forks == FORK_COUNTER.count

    def connect(self, number: int | None = None) -> PostgresConnection:
        """A new connection, which holds this number or one of its own."""
        if not self.is_here:
            raise SessionOver("this ledger was opened by another process; open it again in this one")
        if self._closed:
            raise Unavailable(f"the ledger {self._address.where} is closed")
        link = self._address.connect(new_session_number() if number is None else number)
        self._all.add(link)
        return link

    def take(self) -> PostgresConnection:
        """A connection for one piece of work by one thread."""
        if self.is_here and not self._closed:
            try:
                return self._idle.pop()
            except IndexError:
                pass
        return self.connect()

    def give(self, link: PostgresConnection) -> None:
        """Take it back, if it is still good."""
        if self._closed or len(self._idle) >= MOST_IDLE or not link.is_idle():
            link.close()
        else:
            self._idle.append(link)

    def drop_idle(self) -> None:
        """Hang up whatever is not in use: a server that was restarted has forgotten it."""
        while self._idle:
            self._idle.pop().close()

    def close(self) -> None:
        """Hang up; what is in use follows when it is given back."""
        self._closed = True
        self.drop_idle()

    def disown(self) -> None:
        """In a forked child: the sockets are the parent's, and nothing is sent or kept open here."""
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for link in list(self._all):
            _of_the_parent.append(link.connection)  # closing it would say goodbye in the parent's name
            with suppress(psycopg.Error):
                os.dup2(nothing, link.connection.fileno(), inheritable=False)
        os.close(nothing)


_everywhere: weakref.WeakSet[PostgresConnections] = weakref.WeakSet()
_of_the_parent: list[Any] = []


def _disown_all() -> None:
    for links in list(_everywhere):
        links.disown()


os.register_at_fork(after_in_child=_disown_all)


KEEPER_SECONDS = 1.0
KEEPER_LONGEST_WAIT = 64.0
_LEAD = "SELECT pg_try_advisory_lock(hashtextextended('lapwing lead ' || current_schema(), 0))"
_RESIGN = "SELECT pg_advisory_unlock(hashtextextended('lapwing lead ' || current_schema(), 0))"

_log = logging.getLogger(__name__)


class SessionKeeper:
    """A thread that holds a session's number and does `work` every second, told whether it leads."""

    def __init__(self, links: PostgresConnections, where: str, work: Callable[[bool], None]) -> None:
        self.session = new_session_number()
        self._where = where
        self._work = work
        self._links = links
        self._link = links.connect(self.session)
        self._leads = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="lapwing keeper", daemon=True)
        self._thread.start()

    @property
    def has_stopped(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """End the work. The session is over when the connection is closed."""
        self._stopping.set()
        self._thread.join()

    def close(self) -> None:
        """Let go of the session's number."""
        self._link.close()

    def _go_on(self) -> None:
        wait = KEEPER_SECONDS
        while not self._stopping.wait(wait):
            try:
                self._once()
                wait = KEEPER_SECONDS
            except Exception as error:  # a thread has nobody to raise to, and its process goes on
                wait = min(2 * wait, KEEPER_LONGEST_WAIT)
                if wait > 4 * KEEPER_SECONDS:  # not for what passes
                    _log.warning("%s is charged and marked, but not sealed: %s", self._where, error)

    def _once(self) -> None:
        try:
            self._link.run("SELECT 1")
        except psycopg.Error:
            self._link.close()
            self._leads = False
            self._link = self._links.connect(self.session)
        self._leads = self._leads or self._link.run(_LEAD).fetchone() == (True,)
        try:
            self._work(self._leads)
        except BaseException:
            if self._leads:  # another process may fare better
                self._leads = False
                self._link.run(_RESIGN)
            raise
