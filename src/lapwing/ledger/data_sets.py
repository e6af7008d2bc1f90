"""Data sets: which accounts they are charged to, and which ledger of this user knows a source.

Claim    data about people whom the ledger knows is charged to the account that knows them, whatever the
         data is called now.
Because  a data set is known by its declared origin and by keyed hashes of its unit ids, which are
         compared with those of all others. Any overlap joins the old account, unless the curator signs
         that the people differ, which every statement then shows.
Test     tests/ledger/test_data_sets.py

The registry of sources is one file for each user, beside the witnesses and away from the data. Other users
and machines have registries of their own, and a copied file is another source.

Claim    data that a ledger of this user knows gets no second ledger because its policy, file or folder has
         another name now, or because the first ledger is gone.
Because  before a ledger is opened or made for data, the registry is asked which ledger knows one of its
         sources. Asking and noting are one transaction, and a ledger is made within it: no two processes
         make one at once.
Test     tests/sql/test_policy_ledger_registry.py
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lapwing.config.values import checked_label, is_postgres
from lapwing.errors import BadParameter
from lapwing.ledger.accounts import Account, Slices
from lapwing.ledger.entry import CommittedName, encode, now
from lapwing.ledger.keys import CuratorKey
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.remote_anchors import witness_directory
from lapwing.ledger.schema import DATA_COLUMNS
from lapwing.ledger.store import Transaction
from lapwing.ledger.unit_ids import Ids, Sketch, tagged, untagged
from lapwing.storage.private_file import touch_private_file
from lapwing.storage.sqlite import connect_sqlite, sqlite_errors

NO_DIFFERENCE: tuple[str, ...] = ()
_REGISTERED = b'{"kind":"data",'  # how the entry of a new data set begins


@dataclass(frozen=True, slots=True)
class DataSet:
    """A registered data set: its accounts, and a public counter of its versions.

    Args:
        number: the data set's number in the ledger.
        name: the name, and the commitment to it that entries show.
        origin: the name of the place that the data comes from.
        rule: how the data's units are divided into blocks.
        accounts: the numbers of the accounts that its releases are charged to.
        version: a counter of its versions, from 1.

    Example:
        >>> from lapwing.ledger import register
        >>> data = register(ledger, "visits", origin="hospital", account="patients", units=["ann", "ben"])
        >>> data.label, data.version
        ('visits', 1)
    """

    number: int
    name: CommittedName
    origin: CommittedName
    rule: str
    accounts: tuple[int, ...]  # the first accounts of their families
    version: int

    @property
    def label(self) -> str:
        """The name that people use."""
        return self.name.label


def register(
    ledger: Ledger,
    label: str,
    *,
    origin: str,
    account: str,
    units: Ids,
    rule: str = "",
    people_differ_from: Sequence[str] = NO_DIFFERENCE,
    curator: CuratorKey | None = None,
    at: str | None = None,
) -> DataSet:
    """Register data under an account, and under the accounts of all data about the same people.

    Args:
        ledger: the open ledger.
        label: the name of the data set.
        origin: where the data comes from. Data of one origin shares its accounts.
        account: the name of the account that its releases are charged to.
        units: the ids of the units in the data. They are hashed, not stored.
        rule: how the data's units are divided into blocks. Only data with the account's own rule can be
            charged by block.
        people_differ_from: names of accounts whose people are others, as the curator signs.
        curator: the curator's key, if `people_differ_from` names accounts.
        at: the time of the entry, if rows were read before this call; None for the time of the call.

    Returns:
        The registered data set, in version 1.

    Raises:
        BadParameter: if the name is taken, or the curator's key is missing.

    Example:
        >>> from lapwing.ledger import register
        >>> register(ledger, "visits", origin="hospital", account="patients", units=["ann", "ben"]).version
        1
    """
    label, origin = checked_label(label, "data set"), checked_label(origin, "origin")
    rule = checked_label(rule, "rule") if rule else ""  # in the same form as the account's
    own = ledger.account(account)
    others = _differences(ledger, people_differ_from, curator)
    at = at or now()  # before units are read: how long that takes is private
    sketch = Sketch.of(units, ledger.keys.people)
    ledger.require_here()

    def work(tx: Transaction) -> DataSet:
        known = _all(tx)
        if any(data.label == label for data in known):
            raise BadParameter("data set", "there is one of this name: append to it")
        number = 1 + max((data.number for data in known), default=0)
        joined = {root for data in known if data.origin.label == origin for root in data.accounts}
        joined |= {own.number} | _overlapping_accounts(tx, ledger, sketch, known, set(others))
        name, origin_name = CommittedName.new(label), CommittedName.new(origin)
        data = DataSet(number, name, origin_name, rule, tuple(sorted(joined)), 1)
        tx.run(
            f"INSERT INTO datasets ({DATA_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            number, name.id, label, name.salt, origin_name.id, origin, origin_name.salt, rule,
            json.dumps(data.accounts), 1,
        )  # fmt: skip
        _keep(tx, ledger, data, sketch)
        fields = _body(ledger, data, others, curator, at)
        tx.append(encode({"kind": "data", **fields, "origin": origin_name.id, "rule": rule}))
        return data

    return ledger.store.write(work)


def append(
    ledger: Ledger,
    label: str,
    *,
    units: Ids,
    people_differ_from: Sequence[str] = NO_DIFFERENCE,
    curator: CuratorKey | None = None,
    at: str | None = None,
) -> DataSet:
    """Register a new version of a data set, after every change of the data or new preparation.

    Args:
        ledger: the open ledger.
        label: the name of the data set.
        units: the ids of the units in the data now. They are hashed, not stored.
        people_differ_from: names of accounts whose people are others, as the curator signs.
        curator: the curator's key, if `people_differ_from` names accounts.
        at: the time of the entry, if rows were read before this call; None for the time of the call.

    Returns:
        The data set in its new version, with the accounts of everybody who is in it.

    Raises:
        BadParameter: if the ledger knows no such data set or account.

    Example:
        >>> from lapwing.ledger import append, register
        >>> data = register(ledger, "visits", origin="hospital", account="patients", units=["ann"])
        >>> append(ledger, "visits", units=["ben"]).version
        2
    """
    others = _differences(ledger, people_differ_from, curator)
    at = at or now()  # before units are read: how long that takes is private
    sketch = Sketch.of(units, ledger.keys.people)
    ledger.require_here()

    def work(tx: Transaction) -> DataSet:
        known = _all(tx)
        data = _named(known, label)
        strangers = [other for other in known if other.number != data.number]
        joined = set(data.accounts) | _overlapping_accounts(tx, ledger, sketch, strangers, set(others))
        after = replace(data, accounts=tuple(sorted(joined)), version=data.version + 1)
        tx.run(
            "UPDATE datasets SET accounts = ?, version = ? WHERE data = ?",
            json.dumps(after.accounts), after.version, after.number,
        )  # fmt: skip
        _keep(tx, ledger, after, sketch)
        tx.append(encode({"kind": "version", **_body(ledger, after, others, curator, at)}))
        return after

    return ledger.store.write(work)


def find_data_set(ledger: Ledger, label: str) -> DataSet:
    """Return the current version of the data set of this name."""
    return _named(ledger.store.read(_all), label)


def data_sets_before(ledger: Ledger, position: int) -> list[DataSet]:
    """Return the data sets, in their current version, that were registered before an entry."""
    later = "SELECT body FROM entries WHERE seq > ? AND substr(body, 1, ?) = ?"

    def work(tx: Transaction) -> list[DataSet]:
        known = _all(tx)
        if len(known) == 1:  # nothing to tell apart, and history is long
            return known
        rows = tx.rows(later, position, len(_REGISTERED), _REGISTERED)
        after = {json.loads(bytes(body))["data"] for (body,) in rows}
        return [data for data in known if data.number not in after]

    return ledger.store.read(work)


def holds_all_units(ledger: Ledger, label: str, *, units: Ids) -> bool:
    """Return whether these units include all units of every version, as far as sketches can tell."""
    data, sketch = find_data_set(ledger, label), Sketch.of(units, ledger.keys.people)
    sql = "SELECT bytes FROM sketches WHERE data = ? AND version = ?"

    def known(version: int) -> Sketch:
        [(content,)] = ledger.store.rows(sql, data.number, version)
        return untagged(bytes(content), ledger.keys.people, data.name.id, version)

    return all(sketch.holds(known(version)) for version in range(1, data.version + 1))  # one at a time


def spends_by_block(data: DataSet, account: Account) -> bool:
    """Return whether releases may be charged to single blocks of the account; otherwise to everyone."""
    return account.slices is not Slices.NONE and account.rule == data.rule


def _differences(ledger: Ledger, labels: Sequence[str], curator: CuratorKey | None) -> list[int]:
    if isinstance(labels, str):
        raise BadParameter("people_differ_from", "must be several names, not one text")
    if labels and (curator is None or curator.public != ledger.curator):
        raise BadParameter("curator", "that people differ must be signed with the curator's key")
    return sorted({ledger.account(label).number for label in labels})


def _overlapping_accounts(
    tx: Transaction, ledger: Ledger, sketch: Sketch, known: Iterable[DataSet], differ: set[int]
) -> set[int]:
    """Return the accounts of all data that overlaps the sketch, except those signed to be about others."""
    met: set[int] = set()
    for data in known:
        if not set(data.accounts) - differ - met:
            continue
        for version, content in tx.rows("SELECT version, bytes FROM sketches WHERE data = ?", data.number):
            kept = untagged(bytes(content), ledger.keys.people, data.name.id, version)
            if kept.overlaps(sketch):
                met |= set(data.accounts) - differ
                break
    return met


def _body(
    ledger: Ledger, data: DataSet, others: list[int], curator: CuratorKey | None, at: str
) -> dict[str, Any]:
    signed = []
    for account in others:
        assert curator is not None
        signed.append([account, curator.sign(difference_message(ledger.id, data.name.id, account)).hex()])
    return {
        "at": at,
        "data": data.number,
        "name": data.name.id,
        "accounts": data.accounts,
        "same_rule": [spends_by_block(data, ledger.numbered(root)) for root in data.accounts],
        "version": data.version,
        "differ": signed,
    }


def difference_message(ledger_id: str, data_name: str, account: int) -> bytes:
    """Return the message that the curator signs: this data has other people than that account."""
    return encode({"ledger": ledger_id, "data": data_name, "account": account, "people": "differ"})


def _keep(tx: Transaction, ledger: Ledger, data: DataSet, sketch: Sketch) -> None:
    """Store the sketch of a data set's version."""
    content = tagged(sketch, ledger.keys.people, data.name.id, data.version)
    sql = "INSERT INTO sketches (data, version, bytes) VALUES (?, ?, ?)"
    tx.run(sql, data.number, data.version, content)


def _all(tx: Transaction) -> list[DataSet]:
    rows = tx.rows(f"SELECT {DATA_COLUMNS} FROM datasets ORDER BY data")  # noqa: S608
    found = []
    for number, name, label, salt, origin_name, origin, origin_salt, rule, accounts, version in rows:
        named = CommittedName(label, bytes(salt), name)
        source = CommittedName(origin, bytes(origin_salt), origin_name)
        found.append(DataSet(number, named, source, rule, tuple(json.loads(accounts)), version))
    return found


def _named(known: Iterable[DataSet], label: str) -> DataSet:
    wanted = checked_label(label, "data set")
    for data in known:
        if data.label == wanted:
            return data
    raise BadParameter("data set", "is not known to this ledger")


REGISTRY_FILE = "sources"
PATIENCE = 60  # seconds that others may take to make a ledger
_TABLES = (
    "CREATE TABLE IF NOT EXISTS ledgers (ledger TEXT PRIMARY KEY, place TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS sources (source TEXT PRIMARY KEY, ledger TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS accounts (source TEXT PRIMARY KEY, account TEXT NOT NULL) STRICT",
)


class SourceRegistry:
    """The registry of this user, locked against other processes."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection, self._path = connection, path
        self.run("BEGIN IMMEDIATE")
        for statement in _TABLES:
            self.run(statement)

    def run(self, sql: str, *values: str) -> list[tuple[str, ...]]:
        """Run a statement and return all rows."""
        what, hint = f"the registry {self._path}", "Another process makes a ledger: try again"
        with sqlite_errors(what, if_locked=hint):
            return self._connection.execute(sql, values).fetchall()

    def ledgers_of(self, sources: Iterable[str]) -> dict[str, str]:
        """Return the ledgers that know one of these sources: the last known location of each, by its id."""
        of_one = "SELECT ledger, place FROM sources JOIN ledgers USING (ledger) WHERE source = ?"
        return {ledger: place for source in sources for ledger, place in self.run(of_one, source)}

    def accounts_of(self, sources: Iterable[str]) -> set[str]:
        """Return the accounts that were noted for one of these sources."""
        of_one = "SELECT account FROM accounts WHERE source = ?"
        return {row[0] for source in sources for row in self.run(of_one, source)}

    def note(self, sources: Sequence[str], *, ledger: str, place: str, account: str = "") -> None:
        """Note the sources and the location of a ledger; and the account, if rows have no ids."""
        moved = "ON CONFLICT (ledger) DO UPDATE SET place = excluded.place WHERE place <> excluded.place"
        self.run(f"INSERT INTO ledgers (ledger, place) VALUES (?, ?) {moved}", ledger, place)  # noqa: S608
        for source in sources:
            self.run("INSERT OR IGNORE INTO sources (source, ledger) VALUES (?, ?)", source, ledger)
            if account:
                self.run("INSERT OR IGNORE INTO accounts (source, account) VALUES (?, ?)", source, account)

    def forget_gone(self, files: Iterable[Path]) -> None:
        """Forget files whose ledger is gone. This is for invented data, which may begin anew."""
        known = (
            "SELECT source, place FROM sources JOIN ledgers USING (ledger) "
            "WHERE source = ? OR substr(source, 1, length(?) + 1) = ? || '#'"
        )
        for name in map(source_of_file, files):
            for source, place in self.run(known, name, name, name):
                if is_ledger_gone(place):
                    self.run("DELETE FROM sources WHERE source = ?", source)
                    self.run("DELETE FROM accounts WHERE source = ?", source)


def source_of_file(path: str | Path) -> str:
    """Return the registry's name of a file: its path without links. `#table` may follow it."""
    return f"file:{os.path.realpath(path)}"


def location_of(ledger: Ledger) -> str:
    """Return the location of a ledger, without links and passwords."""
    where = str(ledger.store.where)
    return where if is_postgres(where) else os.path.realpath(where)


def is_ledger_gone(place: str) -> bool:
    """Return whether a ledger's file is gone.

    For a server it returns False: nothing can be seen from here.
    """
    return not is_postgres(place) and not Path(place).exists()


@contextmanager
def open_registry() -> Iterator[SourceRegistry]:
    """Open the registry of this user; an empty one if the user has no folder for it."""
    folder = witness_directory()
    path = ":memory:" if folder is None else str(folder / REGISTRY_FILE)
    with sqlite_errors(f"the registry {path}"):
        if folder is not None:
            touch_private_file(folder / REGISTRY_FILE)
        connection = connect_sqlite(path, wait=PATIENCE)
    with closing(connection):  # this rolls back an open transaction
        own = SourceRegistry(connection, path)
        yield own
        own.run("COMMIT")
