"""Case L13, while the ledger is open: what the database itself refuses to any other program."""

from __future__ import annotations

import sqlite3
from contextlib import suppress

import psycopg
import pytest

from lapwing.errors import Tampered
from support.attackers import PostgresAttacker, others, somebody_at, tell_a_story
from support.ledgers import Home

DATABASE_SAYS_NO = (sqlite3.Error, psycopg.Error)


def test_no_program_removes_a_row_or_edits_history(home: Home) -> None:
    tell_a_story(home)
    program = somebody_at(home)
    for table in set(program.tables()) - {"schema_version"}:
        for row in program.rows(table):
            with pytest.raises(DATABASE_SAYS_NO, match="only grow"):
                program.delete(table, row["place"])
        with pytest.raises(DATABASE_SAYS_NO, match="only grow"):
            program.run(f"DELETE FROM {table}")
        if isinstance(program, PostgresAttacker):
            with pytest.raises(DATABASE_SAYS_NO, match="only grow"):
                program.run(f"TRUNCATE {table} CASCADE")
    for table in ("entries", "seals", "principals", "accounts", "blocks", "answers", "sketches"):
        row = program.rows(table)[-1]
        for name, kind, missing in program.columns(table):
            with pytest.raises(DATABASE_SAYS_NO, match=r"only grow|DEFAULT"):
                program.change(
                    table, row["place"], **{name: others(row[name], kind, may_be_missing=missing)[0]}
                )
    program.leave()
    assert home.opened[0].verify().findings == ()


LOWER = {
    "blocks": ["root = 2", "account = 2", "label = 'x'", "name = 'x'", "salt = ''", "block = block + 100"],
    "budgets": [
        *(f"left_{k} = left_{k} + 1" for k in range(8)),
        *(f"held_{k} = -1" for k in range(8)),
        "state = -1", "account = 2", "block = block + 100",
    ],
    "reservations": [
        *(f"used_{k} = used_{k} - 1" for k in range(8)),
        *(f"total_{k} = total_{k} + 1" for k in range(8)),
        "ended = ended - 1", "ranges = '[]'", "fixed = 1 - fixed",
    ],
    "datasets": ["version = version - 1", "version = version", "label = 'x', version = version + 1"],
}  # fmt: skip


@pytest.mark.parametrize("table", LOWER)
def test_no_program_gives_budget_back(home: Home, table: str) -> None:
    tell_a_story(home)
    program = somebody_at(home)
    before = program.rows(table)
    for change in LOWER[table]:
        with pytest.raises(DATABASE_SAYS_NO):
            program.run(f"UPDATE {table} SET {change}")
    assert program.rows(table) == before
    program.leave()


def test_replacing_rows_in_sqlite_goes_round_its_triggers_and_is_found(file_home: Home) -> None:
    """INSERT OR REPLACE removes the old row without asking; the next opening tells."""
    tell_a_story(file_home).close()
    program = somebody_at(file_home)
    row = program.rows("budgets")[1]
    more = {f"left_{k}": row[f"left_{k}"] + 1 for k in range(8)}
    copy = {name: row[name] for name in row if name != "place"} | more
    values = ", ".join("?" * len(copy))
    with suppress(sqlite3.IntegrityError):
        program.run(f"INSERT OR REPLACE INTO budgets ({', '.join(copy)}) VALUES ({values})", *copy.values())
        with pytest.raises(Tampered, match="not as the entries say"):
            file_home.open()
    program.leave()
