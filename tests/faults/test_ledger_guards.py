"""Case L13: what the database itself refuses to any other program, and that its guards are still there."""

from __future__ import annotations

import re
import sqlite3
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from lapwing.errors import Tampered
from support.attackers import Attacker, PostgresAttacker, SqliteAttacker, others, somebody_at, tell_a_story
from support.ledgers import POSTGRES, SQLITE, Home

DATABASE_SAYS_NO = (sqlite3.Error, psycopg.Error)


def test_no_program_removes_a_row_or_edits_history(home: Home) -> None:
    tell_a_story(home)
    program = somebody_at(home)
    for table in set(program.tables()) - {"schema_version", "states"}:  # signed, and replaced by newer ones
        for row in program.rows(table):
            with pytest.raises(DATABASE_SAYS_NO, match="only grow"):
                program.delete(table, row["place"])
        with pytest.raises(DATABASE_SAYS_NO, match="only grow"):
            program.run(f"DELETE FROM {table}")
        if isinstance(program, PostgresAttacker):
            with pytest.raises(DATABASE_SAYS_NO, match="only grow"):
                program.run(f"TRUNCATE {table} CASCADE")
    for table in (
        "entries",
        "seals",
        "principals",
        "accounts",
        "blocks",
        "answers",
        "sketches",
        "requests",
    ):
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


# The guards themselves


def guards(program: Attacker) -> dict[str, str]:
    """A statement for each trigger, index, function and constraint that takes it away."""
    if isinstance(program, SqliteAttacker):
        return {
            name: f"DROP {kind.upper()} {name}"
            for kind, name in program.run(
                "SELECT type, name FROM sqlite_master WHERE type <> 'table' AND sql IS NOT NULL"
            )
        }
    ours = "current_schema()::regnamespace"
    triggers = program.run(
        "SELECT tgname, relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid "
        f"WHERE relnamespace = {ours} AND NOT tgisinternal"
    )
    indexes = program.run(
        "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
        f"WHERE relnamespace = {ours} AND indexrelid NOT IN (SELECT conindid FROM pg_constraint)"
    )
    constraints = program.run(
        "SELECT conname, conrelid::regclass::text FROM pg_constraint "
        f"WHERE connamespace = {ours} AND contype IN ('p', 'u') AND conrelid <> 'entries'::regclass"
    )
    return (
        {name: f"DROP TRIGGER {name} ON {table}" for name, table in triggers}
        | {name: f"DROP INDEX {name}" for (name,) in indexes}
        | {name: f"ALTER TABLE {table} DROP CONSTRAINT {name}" for name, table in constraints}
    )


def test_each_guard_that_is_missing_is_found_at_opening(home: Home) -> None:
    """The reproduction: triggers were dropped, and neither opening nor `verify` said so."""
    tell_a_story(home).close()
    program = somebody_at(home)
    taken = guards(program)
    assert len(taken) > 20
    before = 0
    for name, statement in taken.items():
        program.run(statement)
        with pytest.raises(Tampered) as tampered:
            home.open()
        found = tampered.value.found
        more = re.fullmatch("and ([0-9]+) more", found[-1])  # only the first are told one by one
        now = len(found) - 1 + int(more[1]) if more else len(found)
        assert now > before, name
        before = now
    program.leave()


def test_a_missing_guard_is_found_by_verifying_what_is_open(home: Home) -> None:
    ledger = tell_a_story(home)
    program = somebody_at(home)
    name, statement = next(item for item in guards(program).items() if "answers_delete" in item[0])
    program.run(statement)
    program.leave()
    assert ledger.verify().findings == (f"the trigger {name} of answers is missing",)


CHANGES: dict[str, dict[str, tuple[str, ...]]] = {
    SQLITE: {
        "a guard that guards nothing": (
            "DROP TRIGGER answers_delete",
            "CREATE TRIGGER answers_delete AFTER DELETE ON answers WHEN 0 BEGIN SELECT 1; END",
        ),
        "a guard of another's": (
            "CREATE TRIGGER helpful AFTER INSERT ON entries BEGIN UPDATE budgets SET held_0 = 0; END",
        ),
        "an index of fewer keys": (
            "DROP INDEX blocks_by_label",
            "CREATE UNIQUE INDEX blocks_by_label ON blocks (root, label, account, block)",
        ),
    },
    POSTGRES: {
        "a function that refuses nothing": (
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RETURN NEW; END $$",
        ),
        "a guard of another's": (
            "CREATE TRIGGER helpful BEFORE UPDATE ON budgets FOR EACH ROW "
            "EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        ),
        "a guard that is off": ("ALTER TABLE answers DISABLE TRIGGER answers_delete",),
        "a rule": ("CREATE RULE nothing AS ON DELETE TO answers DO INSTEAD NOTHING",),
        "a table that forgets": ("ALTER TABLE answers SET UNLOGGED",),
        "rows that are hidden": ("ALTER TABLE budgets ENABLE ROW LEVEL SECURITY",),
        "rows that come from elsewhere": ("CREATE TABLE child () INHERITS (budgets)",),
        "a column that may be empty": ("ALTER TABLE entries ALTER digest DROP NOT NULL",),
        "another function of the name": (
            "CREATE FUNCTION refuse(text) RETURNS text LANGUAGE sql AS $$ SELECT $1 $$",
        ),
    },
}


@pytest.mark.parametrize(
    ("database", "what"), [(database, what) for database, all_ in CHANGES.items() for what in all_]
)
def test_a_changed_guard_is_found(database: str, what: str, tmp_path: Path) -> None:
    home = Home.of(database, tmp_path)
    tell_a_story(home).close()
    program = somebody_at(home)
    for statement in CHANGES[database][what]:
        program.run(statement)
    with pytest.raises(Tampered, match=r"not as it was made|none of the ledger's"):
        home.open()
    program.leave()


def test_tables_beside_the_ledgers_own_are_nobodys_business(home: Home) -> None:
    tell_a_story(home).close()
    program = somebody_at(home)
    program.run("CREATE TABLE notes (text TEXT)")
    program.run("CREATE VIEW how_many AS SELECT count(*) AS n FROM entries")
    program.run("ANALYZE")
    program.leave()
    with home.open() as ledger:
        assert ledger.verify().findings == ()
