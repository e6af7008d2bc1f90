"""Somebody with every right over a ledger's database, and a ledger for him to work on.

He lacks only the keys: he drops triggers and constraints, edits whatever he likes, and puts them back with
every edit. What there is to change he learns from the catalogue.
"""

from __future__ import annotations

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lapwing.core.losses import Loss, Pure, Repeated
from lapwing.errors import Tampered, WorkEnded
from lapwing.ledger import Ledger, append, register
from lapwing.ledger.gate import ChargedRelease, Gate
from lapwing.ledger.spending import Target
from support import postgres
from support.ledgers import Home, open_account, open_sliced, release, spending

STEP = Pure(Fraction(1, 20))
SECRETS = (
    "Wolf Hospital",
    "Dr Grey",
    "Dr Owl",
    "ward 7",
    "intake",
    "patient-4711",
    "night shift",
    "corridor",
)
Row = dict[str, Any]


def tell_a_story(home: Home) -> Ledger:
    """A small ledger in which everything that can happen has happened."""
    ledger = home.create()
    open_sliced(ledger, 3, "Wolf Hospital")
    open_account(ledger, "night shift")
    few = Target("Wolf Hospital", ["b0", "b1"])
    release(ledger, "0.1", few, Target("night shift"), principal="Dr Grey", key="one")
    release(ledger, "0.1", Target("Wolf Hospital", everyone=True), principal="Dr Owl", answer=b"")
    ledger.store.seal()
    gate = Gate(ledger, principal="Dr Grey")
    with pytest.raises(WorkEnded):
        gate.release(ChargedRelease(spending("0.1", few, keeps_request=True), lambda: bytes(1 // 0)))
    many: Loss = Repeated(STEP, 3)
    for lapses in (True, False):
        work = gate.reserve(spending(many, few))
        work.step(STEP)
        work.settle(stopping_was_decided_from_released_values=lapses)
    gate.reserve(spending(many, few)).step(STEP)
    ledger.raise_budget("night shift", epsilon="0.5", delta="1e-7", curator=home.curator)
    release(ledger, "0.2", Target("night shift"), principal="Dr Owl")
    ledger.store.seal()
    ledger.open_blocks("Wolf Hospital", ["corridor"])
    register(ledger, "ward 7", origin="intake", account="Wolf Hospital", units=["patient-4711", "p2"])
    register(
        ledger,
        "ward 8",
        origin="clinic",
        account="night shift",
        units=["p3"],
        people_differ_from=["Wolf Hospital"],
        curator=home.curator,
    )
    append(ledger, "ward 7", units=[])
    release(ledger, "0.1", Target("Wolf Hospital", ["b2"]), principal="Dr Grey")
    return ledger


# The attacker


class Attacker(ABC):
    """Somebody with full rights over the database. A row is known by the place where it lies."""

    place: str
    mark: str
    refused: tuple[type[Exception], ...]

    @abstractmethod
    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def columns(self, table: str) -> list[tuple[str, str, bool]]:
        """Name, kind, and whether it may be missing."""

    @abstractmethod
    def tables(self) -> list[str]: ...

    @abstractmethod
    def disarm(self) -> None:
        """Put triggers and constraints out of action, from now on, for every edit."""

    @abstractmethod
    def edit(self, table: str, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement that changes a table, and leave its guards as they were."""

    @abstractmethod
    def leave(self) -> None:
        """Hang up."""

    def rows(self, table: str) -> list[Row]:
        names = [name for name, _, _ in self.columns(table)]
        found = self.run(
            f"SELECT {self.place}, {', '.join(names)} FROM {table} ORDER BY {', '.join(names[:2])}"
        )
        return [dict(zip(["place", *names], map(_plain, row), strict=True)) for row in found]

    def change(self, table: str, place: Any, **values: Any) -> Any:
        changes = ", ".join(f"{name} = {self.mark}" for name in values)
        sql = f"UPDATE {table} SET {changes} WHERE {self.place} = {self.mark} RETURNING {self.place}"
        return self.edit(table, sql, *values.values(), place)[0][0]

    def delete(self, table: str, place: Any) -> None:
        self.edit(table, f"DELETE FROM {table} WHERE {self.place} = {self.mark}", place)

    def insert(self, table: str, **values: Any) -> None:
        marks = ", ".join([self.mark] * len(values))
        self.edit(table, f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", *values.values())


def same(one: Row, other: Row) -> bool:
    """Whether two rows say the same, wherever they lie."""
    return all(one[name] == other[name] for name in one if name != "place")


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


class SqliteAttacker(Attacker):
    place, mark, refused = "rowid", "?", (sqlite3.IntegrityError,)

    def __init__(self, home: Home) -> None:
        self._connection = sqlite3.connect(home.where, isolation_level=None)
        self._is_disarmed = False

    def disarm(self) -> None:
        self.run("PRAGMA ignore_check_constraints = ON")
        self._is_disarmed = True

    def edit(self, table: str, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        if not self._is_disarmed:
            return self.run(sql, *values)
        guards = self.run(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", table
        )
        self.run("BEGIN")
        try:
            for name, _ in guards:
                self.run(f"DROP TRIGGER {name}")
            found = self.run(sql, *values)
            for _, guard in guards:
                self.run(guard)
        except BaseException:
            self.run("ROLLBACK")
            raise
        self.run("COMMIT")
        return found

    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()

    def tables(self) -> list[str]:
        return [
            name for (name,) in self.run("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")
        ]

    def columns(self, table: str) -> list[tuple[str, str, bool]]:
        found = self.run('SELECT name, type, "notnull", pk FROM pragma_table_info(?)', table)
        return [(name, kind.lower(), not needed and not pk) for name, kind, needed, pk in found]

    def leave(self) -> None:
        self._connection.close()


class PostgresAttacker(Attacker):
    place, mark = "ctid", "%s"
    refused = (psycopg.errors.UniqueViolation, psycopg.errors.NumericValueOutOfRange)

    def __init__(self, home: Home) -> None:
        self._connection = psycopg.connect(home.where.partition("#")[0], autocommit=True)
        self.run(f"SET search_path = {postgres.schema_of(home.where)}")
        self._is_disarmed = False

    def disarm(self) -> None:
        self.run("SET session_replication_role = replica")
        self._is_disarmed = True

    def edit(self, table: str, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        if table != "entries" or not self._is_disarmed:
            return self.run(sql, *values)
        with self._connection.transaction():
            self.run("ALTER TABLE entries ALTER seq SET GENERATED BY DEFAULT")
            found = self.run(sql, *values)
            self.run("ALTER TABLE entries ALTER seq SET GENERATED ALWAYS")
        return found

    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(sql.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    def tables(self) -> list[str]:
        sql = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1"
        return [name for (name,) in self.run(sql)]

    def columns(self, table: str) -> list[tuple[str, str, bool]]:
        sql = (
            "SELECT column_name, data_type, is_nullable = 'YES' FROM information_schema.columns "
            "WHERE table_schema = current_schema() AND table_name = %s ORDER BY ordinal_position"
        )
        return [(name, kind, missing) for name, kind, missing in self.run(sql, table)]

    def leave(self) -> None:
        self._connection.close()


def somebody_at(home: Home) -> Attacker:
    """Another program at the database, without any tricks yet."""
    return PostgresAttacker(home) if home.where.startswith("postgresql") else SqliteAttacker(home)


@dataclass(frozen=True)
class Crime:
    """A ledger with a story, closed, and an attacker at work on it."""

    home: Home
    attacker: Attacker
    ledger_id: str
    with_state: bool = True  # otherwise he removes the signed state, so that everything is replayed

    def found(self) -> tuple[str, ...]:
        """What opening finds. It says so in plain words, without anything private."""
        if not self.with_state:
            self.attacker.edit("states", "DELETE FROM states")
        try:
            self.home.open().close()
        except Tampered as tampered:
            found = tampered.found
        else:
            return ()
        assert found
        assert not [secret for secret in SECRETS if secret in " ".join(found)]
        return found

    def found_by_verifying(self) -> tuple[str, ...]:
        ledger = self.home.open()
        try:
            return ledger.verify().findings
        finally:
            ledger.close()

    def snapshot(self) -> dict[str, list[Row]]:
        return {table: self.attacker.rows(table) for table in self.attacker.tables()}

    def restore(self, tables: dict[str, list[Row]]) -> None:
        """What a restored backup does: every table as it was then."""
        for table, rows in tables.items():
            self.attacker.edit(table, f"DELETE FROM {table}")
            for row in rows:
                self.attacker.insert(table, **{name: row[name] for name in row if name != "place"})

    @property
    def witness(self) -> Path:
        return Path(os.environ["LAPWING_STATE"]) / f"{self.ledger_id}.anchor"


@contextmanager
def committed(home: Home, *, with_state: bool = True) -> Iterator[Crime]:
    """A sound ledger, closed, and somebody at work on it."""
    ledger = tell_a_story(home)
    assert ledger.verify().findings == ()
    ledger.close()
    attacker = somebody_at(home)
    attacker.disarm()
    yield Crime(home, attacker, ledger.id, with_state)
    attacker.leave()


def others(value: Any, kind: str, *, may_be_missing: bool) -> list[Any]:
    """Other values of the same kind, from harmless looking ones to nonsense."""
    found: list[Any]
    if value is None:
        return [{"text": "x", "blob": bytes(32), "bytea": bytes(32)}.get(kind, 1)]
    if isinstance(value, int):
        found = [value + 1, value - 1, 0, 10**15]
    elif isinstance(value, str):
        found = [value + "x", value.replace(",", " ,"), value.upper(), ""]
    else:
        found = [bytes([*value[:-1], value[-1] ^ 1]) if value else b"x", value + b"\0", b""]
    return [other for other in [*found, *([None] if may_be_missing else [])] if other != value]
