"""Which data spend from which ledger: one file for each user, beside the witnesses and away from the data.

Claim    data that a ledger of this user knows is given no second one because its policy, file or folder has
         another name now, or because the first one is gone.
Because  whoever opens or makes a ledger for data first asks here which ledger knows one of its sources. To
         look and to note is one transaction, and a ledger is made within it: nobody makes two at once.
Test     tests/query/test_registry.py

Other users and machines have registries of their own, and a copied file is another source.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from lapwing.ledger.anchors import witness_directory
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.places import is_postgres
from lapwing.own_file import touch, translated

FILE = "sources"
PATIENCE = 60  # seconds that others may take to make a ledger
_TABLES = (
    "CREATE TABLE IF NOT EXISTS ledgers (ledger TEXT PRIMARY KEY, place TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS sources (source TEXT PRIMARY KEY, ledger TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS accounts (source TEXT PRIMARY KEY, account TEXT NOT NULL) STRICT",
)


class Registry:
    """The registry of this user, while nobody else changes it."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection, self._path = connection, path
        self.run("BEGIN IMMEDIATE")
        for statement in _TABLES:
            self.run(statement)

    def run(self, sql: str, *values: str) -> list[tuple[str, ...]]:
        """Run a statement of ours. All rows."""
        with translated(
            f"the registry {self._path}", if_locked="Another process makes a ledger: try again"
        ):
            return self._connection.execute(sql, values).fetchall()

    def ledgers_of(self, sources: Iterable[str]) -> dict[str, str]:
        """The ledgers that know one of these sources: where each was last, by its id."""
        of_one = "SELECT ledger, place FROM sources JOIN ledgers USING (ledger) WHERE source = ?"
        return {ledger: place for source in sources for ledger, place in self.run(of_one, source)}

    def accounts_of(self, sources: Iterable[str]) -> set[str]:
        """Return the accounts that were noted for one of these sources."""
        of_one = "SELECT account FROM accounts WHERE source = ?"
        return {row[0] for source in sources for row in self.run(of_one, source)}

    def note(self, sources: Sequence[str], *, ledger: str, place: str, account: str = "") -> None:
        """Note what a ledger knows and where it is now; and the account, where rows have no ids."""
        moved = "ON CONFLICT (ledger) DO UPDATE SET place = excluded.place WHERE place <> excluded.place"
        self.run(f"INSERT INTO ledgers (ledger, place) VALUES (?, ?) {moved}", ledger, place)  # noqa: S608
        for source in sources:
            self.run("INSERT OR IGNORE INTO sources (source, ledger) VALUES (?, ?)", source, ledger)
            if account:
                self.run("INSERT OR IGNORE INTO accounts (source, account) VALUES (?, ?)", source, account)

    def forget_gone(self, files: Iterable[Path]) -> None:
        """Forget paths whose ledger is gone: for invented data, which may begin anew."""
        known = (
            "SELECT source, place FROM sources JOIN ledgers USING (ledger) "
            "WHERE source = ? OR substr(source, 1, length(?) + 1) = ? || '#'"
        )
        for name in map(file_name, files):
            for source, place in self.run(known, name, name, name):
                if is_gone(place):
                    self.run("DELETE FROM sources WHERE source = ?", source)
                    self.run("DELETE FROM accounts WHERE source = ?", source)


def file_name(path: str | Path) -> str:
    """The name of a file by its path, without links; `#table` may follow."""
    return f"file:{os.path.realpath(path)}"


def place_of(ledger: Ledger) -> str:
    """Return the place of a ledger, without links and passwords."""
    where = str(ledger.store.where)
    return where if is_postgres(where) else os.path.realpath(where)


def is_gone(place: str) -> bool:
    """Tell whether a ledger is not where it was. Of one in a server nothing can be seen from here."""
    return not is_postgres(place) and not Path(place).exists()


@contextmanager
def registry() -> Iterator[Registry]:
    """The registry of this user; an empty one where the user has no folder for it."""
    folder = witness_directory()
    path = ":memory:" if folder is None else str(folder / FILE)
    with translated(f"the registry {path}"):
        if folder is not None:
            touch(folder / FILE)
        connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    with closing(connection):  # which undoes what is not committed
        own = Registry(connection, path)
        yield own
        own.run("COMMIT")
