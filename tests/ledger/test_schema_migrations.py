"""An older ledger is brought up to date in place; a newer one is left alone."""

from __future__ import annotations

import pytest

from lapwing.errors import Unavailable
from lapwing.ledger import schema
from lapwing.ledger.schema import FIRST
from support.attackers import somebody_at
from support.ledgers import Home, open_account, release

NOW = list(range(FIRST, FIRST + len(schema.MIGRATIONS)))


def _second(_: schema.StoreDialect) -> tuple[str, ...]:
    return ("CREATE TABLE added (number INTEGER PRIMARY KEY)", "INSERT INTO added VALUES (7)")


def _broken(_: schema.StoreDialect) -> tuple[str, ...]:
    return ("CREATE TABLE added (number INTEGER PRIMARY KEY)", "INSERT INTO nowhere VALUES (7)")


def tables(home: Home) -> list[int]:
    with home.open() as ledger:
        return [
            row[0] for row in ledger.store.read(lambda tx: tx.rows("SELECT version FROM schema_version"))
        ]


def test_history_and_budgets_outlive_a_new_schema(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = home.create()
    open_account(ledger)
    release(ledger, "0.4", key="k", answer=b"before")
    ledger.close()
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, _second))
    assert tables(home) == [*NOW, NOW[-1] + 1]
    assert tables(home) == [*NOW, NOW[-1] + 1]  # once only
    ledger = home.open()
    assert ledger.store.read(lambda tx: tx.rows("SELECT number FROM added")) == [(7,)]
    assert release(ledger, "0.4", key="k").answer == b"before"
    assert ledger.blocks("visits")[0].spent[1] == 400_000_000
    assert not ledger.verify().findings


def test_a_step_that_fails_changes_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.create().close()
    with monkeypatch.context() as newer:
        newer.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, _broken))
        with pytest.raises(Unavailable):
            home.open()
    assert tables(home) == NOW
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, _second))
    assert tables(home) == [*NOW, NOW[-1] + 1]


def test_a_newer_ledger_is_not_touched(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.create().close()
    with monkeypatch.context() as newer:
        newer.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, _second))
        home.open().close()
    with pytest.raises(Unavailable, match="newer Lapwing"):
        home.open()


def test_a_ledger_from_before_the_first_release_is_not_touched(home: Home) -> None:
    home.create().close()
    program = somebody_at(home)
    program.run("DELETE FROM schema_version")
    program.run("INSERT INTO schema_version VALUES (1)")
    program.leave()
    with pytest.raises(Unavailable, match="before the first release"):
        home.open()


def test_a_version_that_was_edited_is_not_opened(home: Home) -> None:
    home.create().close()
    program = somebody_at(home)
    program.run(f"UPDATE schema_version SET version = 1 WHERE version = {FIRST}")
    program.leave()
    with pytest.raises(Unavailable, match="which versions"):
        home.open()
