"""The database itself refuses what no store would do."""

from __future__ import annotations

import psycopg
import pytest

from lapwing.errors import Unavailable
from lapwing.ledger.postgres_store import PostgresStore
from support.postgres import fresh_url, server, sql
from support.stores import (
    BLOCK,
    CAP,
    block_row,
    entries,
    opened,
    posting,
    spent,
)

GUARDS = {
    "entries do not change": "UPDATE entries SET body = 'x'",
    "entries do not go": "DELETE FROM entries",
    "entries are not emptied": "TRUNCATE entries",
    "numbers are drawn": "INSERT INTO entries (seq, body, digest) VALUES (99, 'x', 'x')",
    "keys are single": "INSERT INTO entries (key, body, digest) SELECT key, body, digest FROM entries",
    "seals do not change": "UPDATE seals SET size = 0",
    "seals do not go": "DELETE FROM seals",
    "seals are not emptied": "TRUNCATE seals CASCADE",
    "spent does not go down": "UPDATE budgets SET left_1 = left_1 + 1",
    "blocks stay where they are": "UPDATE blocks SET account = 2 WHERE block = 1",
    "blocks keep their names": "UPDATE blocks SET label = 'y' WHERE block = 1",
    "blocks do not go": "DELETE FROM blocks",
    "blocks are not emptied": "TRUNCATE blocks",
    "budgets stay where they are": "UPDATE budgets SET account = 2 WHERE block = 1",
    "budgets keep their blocks": "UPDATE budgets SET block = 77 WHERE block = 1",
    "budgets do not go": "DELETE FROM budgets",
    "budgets are not emptied": "TRUNCATE budgets",
    "held is not below nothing": "UPDATE budgets SET held_3 = -1",
    "closed stays closed": "UPDATE budgets SET state = 0 WHERE block = 9",
    "sums fit a filter": "UPDATE budgets SET left_0 = -1",
    "new sums fit a filter": "INSERT INTO budgets SELECT 200, account, 0, "
    f"{', '.join(['-1'] * 8 + ['0'] * 8)} FROM budgets WHERE block = 1",
    "answers do not change": "UPDATE answers SET bytes = 'x'",
    "answers do not go": "DELETE FROM answers",
}  # fmt: skip


@pytest.mark.parametrize("statement", GUARDS.values(), ids=GUARDS.keys())
def test_the_database_itself_refuses(guarded: str, statement: str) -> None:
    tables = "SELECT * FROM blocks JOIN budgets USING (block) ORDER BY block"
    before = sql(guarded, tables), entries(guarded)
    with pytest.raises(psycopg.Error):
        sql(guarded, statement)
    assert (sql(guarded, tables), entries(guarded)) == before


@pytest.fixture(scope="module")
def guarded() -> str:
    url = fresh_url()
    with opened(url, create=True) as store:
        store.charge(posting("a", *range(1, 10), costs=[2] * 8))
        store.write(lambda tx: tx.run("INSERT INTO answers (charge, entry, bytes) VALUES (1, 1, ?)", b"42"))
        store.write(lambda tx: tx.run("UPDATE budgets SET state = 2 WHERE block = 9"))
    return url


def test_a_guard_that_says_no_changes_nothing_and_names_no_value(store: PostgresStore, url: str) -> None:
    with pytest.raises(Unavailable, match=r"spent is spent\. Nothing was changed"):
        store.write(lambda tx: tx.run("UPDATE budgets SET left_1 = ? WHERE block = 1", CAP + 77))
    with pytest.raises(Unavailable) as caught:
        store.write(
            lambda tx: tx.run_many(BLOCK, [(*block_row(1, 1)[:4], "a patient", *block_row(1, 1)[5:])])
        )
    assert "patient" not in str(caught.value)
    assert spent(url, 1) == 0


def test_the_server_of_the_tests_is_a_real_one() -> None:
    assert sql(server(), "SHOW fsync") == [("on",)]
