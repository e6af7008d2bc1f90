"""The home of a registry in a schema of a PostgreSQL server, which a team shares. See `registry`.

The schema is `lapwing_registry`, or `lapwing_NAME` if `#NAME` ends the URL. All tables and the key are made
in one transaction, where the schema has no table yet. If one is missing later, nothing is made anew.

Who may read the tables of the schema can read the key, and test whether somebody is in the data. Others
cannot: the schema is not `public`, and one that everybody on the server may use is refused. The key and the
sketches of people travel over encrypted connections only, or within one machine.

The lock of an open copy is a session advisory lock. The server releases it when the connection ends, so the
same session must answer before each charge. There must be no pooler in between that shares connections by
transaction.

Test     tests/ledger/test_server_registry.py
"""

from __future__ import annotations

import hashlib
import platform
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter, Unavailable
from lapwing.ledger.remote_anchors import DATABASE_TIMEOUT, DatabaseAnchor
from lapwing.storage.postgres import (
    PostgresAddress,
    PostgresConnection,
    PostgresConnections,
    psycopg,
    server_message,
    translated,
)

NAME = "registry"
KEY_BYTES = 32
PATIENCE = 60  # seconds that others may take to make a ledger
_BOOT = Path("/proc/sys/kernel/random/boot_id")

_TABLES = {
    "registry": "(one BOOLEAN PRIMARY KEY DEFAULT true CHECK (one), key BYTEA NOT NULL)",
    "ledgers": "(ledger TEXT PRIMARY KEY, place TEXT NOT NULL)",
    "sources": "(source TEXT PRIMARY KEY, ledger TEXT NOT NULL)",
    "accounts": "(source TEXT PRIMARY KEY, account TEXT NOT NULL)",
    "people": "(ledger TEXT NOT NULL, data TEXT NOT NULL, sketch BYTEA NOT NULL, "
    "PRIMARY KEY (ledger, data))",
    "copies": "(ledger TEXT PRIMARY KEY, copy TEXT NOT NULL, place TEXT NOT NULL)",
    "witnesses": "(id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ledger TEXT NOT NULL, "
    "seq BIGINT NOT NULL, line TEXT NOT NULL)",
}
_BESIDES = (
    "CREATE INDEX witnesses_seq ON witnesses (ledger, seq)",
    "CREATE INDEX witnesses_heads ON witnesses (ledger, seq) WHERE substr(line, 1, 1) = 'h'",
    "CREATE FUNCTION witnesses_only_grow() RETURNS trigger LANGUAGE plpgsql "
    "AS $$ BEGIN RAISE EXCEPTION 'a witness only grows'; END $$",
    "CREATE TRIGGER witnesses_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON witnesses "
    "FOR EACH STATEMENT EXECUTE FUNCTION witnesses_only_grow()",
)
_FOUND = (
    "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(?) "
    "AND relkind IN ('r', 'p', 'v', 'm', 'f')"
)
# Nobody is thrown out for being idle: the lock of an open copy lasts as long as its ledger is open.
_PATIENT = (
    "SELECT set_config('idle_session_timeout', '0', false), "
    "set_config('idle_in_transaction_session_timeout', '0', false), "
    f"set_config('statement_timeout', '0', false), set_config('lock_timeout', '{PATIENCE}s', false)"
)


class RegistryAddress(PostgresAddress):
    """The address of a registry. Connections to another machine must be encrypted."""

    __slots__ = ()

    def open(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Return a new connection. Raises Unavailable as for any address, or if it is not encrypted."""
        connection = super().open()
        with self._closed_on_error(connection):
            if not connection.pgconn.ssl_in_use and not _is_local(connection.info):
                raise self._unusable(
                    "the connection is not encrypted, and the key of the registry must not travel in the "
                    "clear. Set up TLS on the server, and end the URL with ?sslmode=verify-full"
                )
            connection.execute(_PATIENT)
        return connection


def _is_local(info: psycopg.ConnectionInfo) -> bool:
    if info.host.startswith(("/", "@")):
        return True
    try:
        return ip_address(info.hostaddr).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class ServerHome:
    """A schema of a PostgreSQL server with a registry.

    Args:
        url: the address, perhaps with a password.
        address: the same, parsed.
    """

    url: str = field(repr=False)
    address: RegistryAddress = field(compare=False)
    _kept: list[bytes] = field(default_factory=list, compare=False, repr=False)  # the key, once it is known

    @classmethod
    def of(cls, url: str) -> ServerHome:
        """Return the home at a URL. Raises BadParameter, without any part of the URL, if it is wrong."""
        return cls(url, RegistryAddress.of(url, name=NAME, called="the registry", parameter="registry"))

    @property
    def where(self) -> str:
        """The address without user and password."""
        return self.address.where

    @property
    def key(self) -> bytes:
        """The key. It is made with the tables."""
        if not self._kept:
            with self._connected() as link:
                self._require_whole(link)
        return self._kept[0]

    def witness(self, ledger_id: str) -> ServerWitness:
        """Return the second anchor of a ledger, rows of a table."""
        return ServerWitness(self.address, ledger_id)

    @contextmanager
    def transaction(self) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
        """Begin a transaction that excludes all others, and commit it at the end of the block."""

        def run(sql: str, *values: str | bytes | int) -> list[tuple[Any, ...]]:
            return self.run(link, sql, *values)

        with self._connected() as link:
            self._begin(link)
            self._require_whole(link)
            yield run
            self._commit(link)

    def lock(self, ledger_id: str) -> _SessionLock:
        """Return the shared lock of a ledger, on a connection of its own."""
        return _SessionLock(self, ledger_id)

    def copy_name(self, copy: str) -> str:
        """Return the name of a copy. A file's device and inode are those of one running machine."""
        return copy if copy.startswith("postgres:") else f"{_machine()}:{copy}"

    def run(self, link: PostgresConnection, sql: str, *values: str | bytes | int) -> list[tuple[Any, ...]]:
        """Run a statement with ? for each value, and return all rows. Raises Unavailable."""
        try:
            cursor = link.run(translated(sql), values)
            return cursor.fetchall() if cursor.description else []
        except psycopg.errors.LockNotAvailable:
            why = "another process makes a ledger: try again"
        except psycopg.Error as error:
            why = server_message(error)
        raise Unavailable(f"the registry {self.where} cannot be used: {why}") from None

    def lock_number(self, what: str) -> int:
        """Return the number of an advisory lock of this registry."""
        words = f"{self.address.schema} {what}".encode()
        digest = hashlib.blake2b(words, digest_size=8, person=b"lapwing registry").digest()
        return int.from_bytes(digest, "big", signed=True)

    @contextmanager
    def _connected(self) -> Iterator[PostgresConnection]:
        """Connect, and make the tables if there is none. Leaving the block rolls back what is open."""
        pool = PostgresConnections(self.address)  # in a forked child, it lets go of the connection
        with closing(pool.connect()) as link:
            if not self._found(link):
                self._make(link)
            yield link

    def _begin(self, link: PostgresConnection) -> None:
        self.run(link, "BEGIN")
        self.run(link, "SELECT pg_advisory_xact_lock(?)", self.lock_number("transaction"))

    def _commit(self, link: PostgresConnection) -> None:
        try:
            ended = link.run("COMMIT").statusmessage
        except psycopg.Error as error:
            ended = server_message(error)
        if ended != "COMMIT":  # a statement had failed, or the connection was lost
            raise Unavailable(f"the registry {self.where} may not have noted it: try again ({ended})")

    def _found(self, link: PostgresConnection) -> set[str]:
        return {name for (name,) in self.run(link, _FOUND, self.address.schema)}

    def _make(self, link: PostgresConnection) -> None:
        """Make all tables and the key in one transaction, which is not undone by a later one."""
        schema = self.address.schema
        self._begin(link)
        if not self._found(link):  # and nobody else made them now
            if self.run(link, "SELECT to_regnamespace(?)::text", schema) == [(None,)]:
                self.run(link, f"CREATE SCHEMA {schema}")
            for name, columns in _TABLES.items():
                self.run(link, f"CREATE TABLE {name} {columns}")
                self.run(link, f"REVOKE ALL ON {name} FROM PUBLIC")
            for statement in _BESIDES:
                self.run(link, statement)
            self.run(link, "INSERT INTO registry (key) VALUES (?)", random_bytes(KEY_BYTES))
        self._commit(link)

    def _require_whole(self, link: PostgresConnection) -> None:
        """Require all tables and the key, which were made at once: no part is made anew."""
        schema = self.address.schema
        if self.run(link, "SELECT has_schema_privilege('public', ?, 'USAGE')", schema) == [(True,)]:
            raise BadParameter(
                "registry",
                f"everybody on the server can use the schema of {self.where}: REVOKE ALL ON SCHEMA "
                f"{schema} FROM PUBLIC",
            )
        missing = sorted(_TABLES.keys() - self._found(link))
        if not missing:
            keys = [bytes(key) for (key,) in self.run(link, "SELECT key FROM registry")]
            if [len(key) for key in keys] == [KEY_BYTES] and self._kept in ([], keys):
                self._kept[:] = keys
                return
        what = f"the table {missing[0]} is missing" if missing else "its key is missing or was changed"
        raise BadParameter(
            "registry",
            f"{self.where} is not whole: {what}. It said which data and people have a ledger. Put all of "
            f"its schema {schema} back from a backup. If it is gone for good, rename the schema; the "
            "curator then signs for each ledger that it goes on in a new registry: `lapwing ledger "
            "register LEDGER --curator KEY`",
        )


def _machine() -> str:
    """Return a name of this machine since it was started: no two that run have the same."""
    with suppress(OSError):
        return _BOOT.read_text().strip()
    return f"{platform.node()}:{uuid.getnode()}"


class ServerWitness(DatabaseAnchor):
    """The second anchor of a ledger: its rows of a table that only grows."""

    exists_query = "SELECT EXISTS (SELECT FROM witnesses WHERE ledger = %s)"
    insert = "INSERT INTO witnesses (ledger, seq, line) VALUES (%s, %s, %s)"
    read_query = (
        "WITH own AS NOT MATERIALIZED (SELECT id, seq, line FROM witnesses WHERE ledger = %s) "
        "SELECT line FROM own WHERE seq >= (SELECT coalesce(max(seq), 0) FROM own "
        "WHERE substr(line, 1, 1) = 'h') ORDER BY id"
    )
    tables = ()  # they are made with the registry
    errors = (psycopg.Error,)

    def __init__(self, address: RegistryAddress, ledger_id: str) -> None:
        super().__init__(f"of {ledger_id} in {address.where}")
        self._address, self.values = address, (ledger_id,)

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        connection = self._address.open()
        try:
            connection.execute(f"SET statement_timeout = '{DATABASE_TIMEOUT}s'")
            connection.autocommit = False
        except BaseException:
            connection.close()
            raise
        return connection

    def __del__(self) -> None:
        self._drop()


class _SessionLock:
    """An advisory lock of a session, with the name of the open copy in the table `copies`."""

    def __init__(self, home: ServerHome, ledger_id: str) -> None:
        self._home, self._ledger = home, ledger_id
        self._number = home.lock_number(f"copy {ledger_id}")
        self._asking, self._asked, self._lost = threading.Lock(), 0, ""
        self._pool = PostgresConnections(home.address)  # in a forked child, it lets go of the connection
        self._link: PostgresConnection | None = self._pool.connect()
        try:
            [(self._backend, _)] = self._run(
                "SELECT pg_backend_pid(), pg_advisory_lock_shared(?)::text", self._number
            )
        except BaseException:
            self.close()
            raise

    def _run(self, sql: str, *values: str | int) -> list[tuple[Any, ...]]:
        assert self._link is not None
        return self._home.run(self._link, sql, *values)

    def said(self) -> tuple[str, str]:
        rows = self._run("SELECT copy, place FROM copies WHERE ledger = ?", self._ledger)
        return rows[0] if rows else ("", "")

    def change(self, copy: str, where: str) -> bool:
        if self._run("SELECT pg_try_advisory_lock(?)", self._number) != [(True,)]:
            return False
        # On this connection it is committed at once: whoever waits for the registry sees it.
        self._run(
            "INSERT INTO copies (ledger, copy, place) VALUES (?, ?, ?) ON CONFLICT (ledger) "
            "DO UPDATE SET copy = excluded.copy, place = excluded.place",
            self._ledger, copy, where,
        )  # fmt: skip
        self._run("SELECT pg_advisory_unlock(?)", self._number)  # the shared one stays
        return True

    def why_lost(self) -> str:
        """Ask the server. Threads that come while it is asked wait for the next answer, and share it."""
        before = self._asked
        with self._asking:
            if self._link is None or self._lost or self._asked > before:
                return self._lost
            self._asked += 1
            self._lost = self._ask()
            return self._lost

    def _ask(self) -> str:
        registry = f"the registry {self._home.where}"
        try:
            rows = self._run(
                "SELECT pg_backend_pid(), EXISTS (SELECT FROM copies WHERE ledger = ?)", self._ledger
            )
        except Unavailable:
            return f"the connection to {registry} was lost while this ledger was open"
        if rows != [(self._backend, True)]:
            return f"the lock in {registry} was removed while this ledger was open"
        return ""

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
