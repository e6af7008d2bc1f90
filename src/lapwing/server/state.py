"""State of a server: people, plans and jobs, in one SQLite file that all its worker processes share.

Claim    what was committed survives a crash, all processes see it at once, and only the server's user can
         read it.
Because  WAL with synchronous=FULL waits for the disk at each commit; every question reads the file, there
         is no copy in memory; the file is made with 0600 in a folder with 0700.
Test     tests/server/test_state.py

The ledger is elsewhere. Nothing in here gives or takes budget.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lapwing.errors import Unavailable
from lapwing.storage.private_file import touch_private_file
from lapwing.storage.sqlite import DURABLE, RunStatement, connect_sqlite, sqlite_errors, sqlite_transaction

STATE_FILE = "server.sqlite"
APPLICATION = 0x4C505347  # in the file's head: that it is a server's state
WAIT = 10.0  # seconds for another process that writes
_CALLED = "the server's state"
_PRAGMAS = ("journal_mode = WAL", *DURABLE, "secure_delete = ON", "foreign_keys = ON")

PEOPLE = (
    # `plain_name` is the name without upper case: no two accounts look alike.
    """CREATE TABLE accounts (
        name TEXT PRIMARY KEY, plain_name TEXT NOT NULL UNIQUE, shown_name TEXT NOT NULL, password TEXT,
        made INTEGER NOT NULL, made_by TEXT NOT NULL, is_disabled INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE roles (
        name TEXT NOT NULL REFERENCES accounts, data TEXT NOT NULL, role TEXT NOT NULL,
        PRIMARY KEY (name, data, role)) WITHOUT ROWID""",
    """CREATE TABLE identities (
        issuer TEXT NOT NULL, subject TEXT NOT NULL, name TEXT NOT NULL REFERENCES accounts,
        PRIMARY KEY (issuer, subject)) WITHOUT ROWID""",
    """CREATE TABLE sessions (
        hash BLOB PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL REFERENCES accounts,
        began INTEGER NOT NULL, seen INTEGER NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX sessions_of ON sessions (name)",
    """CREATE TABLE tokens (
        hash BLOB PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL REFERENCES accounts,
        label TEXT NOT NULL, data TEXT, most_epsilon TEXT, booked TEXT NOT NULL DEFAULT '0',
        made INTEGER NOT NULL, expires INTEGER NOT NULL, is_revoked INTEGER NOT NULL DEFAULT 0)
        WITHOUT ROWID""",
    "CREATE INDEX tokens_of ON tokens (name)",
    """CREATE TABLE bookings (
        token TEXT NOT NULL, key TEXT NOT NULL, epsilon TEXT NOT NULL, holders INTEGER NOT NULL,
        PRIMARY KEY (token, key)) WITHOUT ROWID""",
    # Secrets for one use: start links, links to set a password, answers of a provider.
    """CREATE TABLE links (
        hash BLOB PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, ends INTEGER NOT NULL,
        is_used INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID""",
)
WORK = (
    # Thresholds of budgets of which somebody was told.
    """CREATE TABLE notices (
        account TEXT NOT NULL, percent INTEGER NOT NULL, PRIMARY KEY (account, percent)) WITHOUT ROWID""",
    # Long work: `kind` and `settings` say what, `state` and `step` how far; `begins` counts its processes.
    """CREATE TABLE jobs (
        id TEXT PRIMARY KEY, person TEXT NOT NULL, data TEXT NOT NULL, kind TEXT NOT NULL,
        settings TEXT NOT NULL, state TEXT NOT NULL, step INTEGER NOT NULL DEFAULT 0,
        begins INTEGER NOT NULL DEFAULT 0, result TEXT NOT NULL DEFAULT '', made REAL NOT NULL,
        ended REAL NOT NULL DEFAULT 0) WITHOUT ROWID""",
    "CREATE INDEX jobs_of ON jobs (person, made)",
)
SIGNED = (
    # Up to which entry an officer has signed the ledger of a data set.
    """CREATE TABLE signed (
        person TEXT NOT NULL, data TEXT NOT NULL, entry INTEGER NOT NULL, hash TEXT NOT NULL,
        at INTEGER NOT NULL, PRIMARY KEY (person, data)) WITHOUT ROWID""",
)
# A step makes the tables of one version from those before it. Append one; a released one never changes.
MIGRATIONS: tuple[tuple[str, ...], ...] = (PEOPLE, WORK, SIGNED)


class ServerState:
    """An open state file. Threads may share it, and processes may each open it.

    Raises Unavailable if the file cannot be used, also if a newer version of Lapwing made it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reading_turn, self._writing_turn = threading.Lock(), threading.Lock()
        with sqlite_errors(_CALLED):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.chmod(0o700)
            touch_private_file(path)
            path.chmod(0o600)
            self._writing = connect_sqlite(path, _PRAGMAS, wait=WAIT)
            try:
                with sqlite_transaction(self._writing) as run:
                    _migrate(run)
                self._reading = connect_sqlite(path, ("query_only = ON",), wait=WAIT)
            except BaseException:
                self._writing.close()
                raise

    @classmethod
    def open(cls, folder: str | Path) -> ServerState:
        """Open the state in a folder. The folder and the file are made if they are missing."""
        return cls(Path(folder) / STATE_FILE)

    def close(self) -> None:
        """Close the file. Everything that was committed stays."""
        with self._reading_turn, self._writing_turn:
            self._reading.close()
            self._writing.close()

    @contextmanager
    def transaction(self) -> Iterator[RunStatement]:
        """Begin a transaction. It commits durably at the end of the block, unless that raises."""
        with self._writing_turn, sqlite_errors(_CALLED), sqlite_transaction(self._writing) as run:
            yield run

    def rows(self, query: str, *values: object) -> list[Any]:
        """Return the rows of a question about what is committed. Writers do not make it wait."""
        with self._reading_turn, sqlite_errors(_CALLED):
            return self._reading.execute(query, values).fetchall()


def _migrate(run: RunStatement) -> None:
    """Bring the tables to this version, or refuse a file that this version does not know."""
    [version] = run("PRAGMA user_version").fetchone()
    [application] = run("PRAGMA application_id").fetchone()
    newest = len(MIGRATIONS)
    if (version, application) == (0, 0) and not run("SELECT 1 FROM sqlite_schema").fetchone():
        run(f"PRAGMA application_id = {APPLICATION}")
    elif application != APPLICATION or version < 1:
        raise Unavailable(
            f"{_CALLED} cannot be used: the file {STATE_FILE} is something else. Move it away"
        )
    elif version > newest:
        raise Unavailable(
            f"{_CALLED} has version {version}, and this Lapwing knows up to version {newest}. "
            "Install the newer Lapwing that wrote it"
        )
    for step in MIGRATIONS[version:]:
        for statement in step:
            run(statement)
    if version != newest:
        run(f"PRAGMA user_version = {newest}")
