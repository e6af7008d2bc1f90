"""The database itself refuses to lower what was spent, whichever sum, and whoever asks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.core.budget import Charge, Terms
from lapwing.ledger.schema import COSTS, MIGRATIONS, SQLITE, columns
from lapwing.ledger.sqlite_store import _DEBIT_ONE
from support.attackers import somebody_at
from support.ledgers import Home, open_account

HUGE = (1 << 63) - 1
SAYS_NO = (sqlite3.IntegrityError, psycopg.errors.RaiseException)


@pytest.fixture
def budgets(file_home: Home, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    ledger = file_home.create()
    open_account(ledger)
    ledger.close()
    [path] = [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes()[:6] == b"SQLite"]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE budgets SET {', '.join(f'left_{k} = 5' for k in COSTS)}")
        yield connection


@pytest.mark.parametrize("k", COSTS)
@pytest.mark.parametrize("more", [6, 10, 11, HUGE])
def test_of_no_cap_more_is_left(budgets: sqlite3.Connection, k: int, more: int) -> None:
    others = ", ".join(f"left_{other} = 4" for other in COSTS if other != k)
    with pytest.raises(sqlite3.IntegrityError, match="spent is spent"):
        budgets.execute(f"UPDATE budgets SET {others}, left_{k} = {more}")


@pytest.mark.parametrize("k", COSTS)
def test_every_sum_may_grow(budgets: sqlite3.Connection, k: int) -> None:
    assert budgets.execute(f"UPDATE budgets SET left_{k} = left_{k} - 1").rowcount == 1


@pytest.mark.parametrize("before", [-1, -2, -HUGE - 1])
@pytest.mark.parametrize("after", [0, 1, HUGE])
def test_what_is_exceeded_stays_so(budgets: sqlite3.Connection, before: int, after: int) -> None:
    """Also where the difference of the two does not fit 64 bits."""
    budgets.execute("UPDATE budgets SET left_7 = ?", (before,))
    with pytest.raises(sqlite3.IntegrityError, match="spent is spent"):
        budgets.execute("UPDATE budgets SET left_7 = ?", (after,))


NO_FILTER = {
    "δ₀": (-1, 0, 0, 0, 0, 0, 0, 0),
    "ε and every order": (0, -1, 0, -1, -1, -1, -1, -1),
    "δ and every order": (0, 0, -1, -1, -1, -1, -1, -1),
    "all": (-1,) * 8,
}
SOME_FILTER = {
    "nothing": (0,) * 8,
    "every order": (0, 0, 0, -1, -1, -1, -1, -1),
    **{f"all but order {k}": (0, -1, -1, *(0 if k == o else -1 for o in range(5))) for k in range(5)},
}


@pytest.mark.parametrize("left", NO_FILTER.values(), ids=NO_FILTER.keys())
def test_sums_that_no_filter_admits_are_refused(home: Home, left: tuple[int, ...]) -> None:
    open_account(home.create())
    program = somebody_at(home)
    sums = ", ".join(f"left_{k} = {value}" for k, value in enumerate(left))
    with pytest.raises(SAYS_NO):
        program.run(f"UPDATE budgets SET {sums}")
    with pytest.raises(SAYS_NO):
        program.run(
            f"INSERT INTO budgets (block, account, state, {columns('left')}, {columns('held')}) "
            f"VALUES (77, 1, 0, {', '.join(map(str, left))}, 0, 0, 0, 0, 0, 0, 0, 0)"
        )
    program.leave()


@pytest.mark.parametrize("left", SOME_FILTER.values(), ids=SOME_FILTER.keys())
def test_sums_that_a_filter_admits_are_not(home: Home, left: tuple[int, ...]) -> None:
    open_account(home.create())
    program = somebody_at(home)
    program.run(f"UPDATE budgets SET {', '.join(f'left_{k} = {value}' for k, value in enumerate(left))}")
    [row] = program.run(f"SELECT {columns('left')} FROM budgets")
    assert tuple(row) == left
    program.leave()


def test_a_name_opens_once_in_a_family(home: Home) -> None:
    open_account(home.create())
    program = somebody_at(home)
    [(block, label)] = program.run("SELECT block, label FROM blocks")
    for account in (1, 2):  # a raised account is of the same family
        with pytest.raises(SAYS_NO, match=r"opens once|unique|UNIQUE"):
            program.run(
                "INSERT INTO blocks (block, account, root, name, label, salt) "
                f"SELECT 77, {account}, root, 'x', label, salt FROM blocks WHERE block = {block}"
            )
    moved = f"UPDATE budgets SET state = 2 WHERE block = {block}"
    program.run(moved)
    program.run(
        "INSERT INTO blocks (block, account, root, name, label, salt) "
        f"SELECT 77, 2, root, 'x', label, salt FROM blocks WHERE block = {block}"
    )
    assert [row[0] for row in program.run("SELECT label FROM blocks")] == [label, label]
    program.leave()


CAPS = Terms.of(1, "1e-6").caps
COST = st.one_of(st.integers(0, 3), *(st.integers(0, cap + 1) for cap in CAPS))


@given(st.lists(st.tuples(*[COST] * len(CAPS)), max_size=12))
def test_what_is_left_says_what_was_spent(charges: list[tuple[int, ...]]) -> None:
    """Charge for charge as `Terms.after` decides, and cap - left is its sum, which stops at cap + 1."""
    terms = Terms.of(1, "1e-6")
    spent = terms.nothing_spent
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        for statement in MIGRATIONS[0](SQLITE):
            database.execute(statement)
        row = (1, 1, 0, *CAPS, *(0,) * len(CAPS))
        database.execute(f"INSERT INTO budgets VALUES ({', '.join('?' * len(row))})", row)
        for charge in charges:
            costs = tuple(min(cost, cap + 1) for cost, cap in zip(charge, CAPS, strict=True))
            after = terms.after(spent, Charge(terms.orders, costs))
            assert database.execute(_DEBIT_ONE, (*costs, 1, 1)).rowcount == (after is not None)
            spent = spent if after is None else after
            left = database.execute(f"SELECT {columns('left')} FROM budgets").fetchone()
            assert tuple(cap - rest for cap, rest in zip(CAPS, left, strict=True)) == spent
            assert min(left) >= -1
