"""The database itself refuses to lower what was spent, whichever sum, and whoever asks."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from lapwing.ledger.stores.schema import COSTS
from support.ledgers import Home, open_account

HUGE = (1 << 63) - 1


@pytest.fixture
def blocks(file_home: Home, tmp_path: Path) -> sqlite3.Connection:
    ledger = file_home.create()
    open_account(ledger)
    ledger.close()
    [path] = [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes()[:6] == b"SQLite"]
    connection = sqlite3.connect(path, isolation_level=None)
    sums = ", ".join(f"spent_{k} = 5" for k in COSTS)
    connection.execute(f"UPDATE blocks SET {sums}")
    return connection


@pytest.mark.parametrize("k", COSTS)
@pytest.mark.parametrize("less", [4, 0, -1, -HUGE])
def test_no_sum_shrinks(blocks: sqlite3.Connection, k: int, less: int) -> None:
    others = ", ".join(f"spent_{other} = 6" for other in COSTS if other != k)
    with pytest.raises(sqlite3.IntegrityError, match="spent is spent"):
        blocks.execute(f"UPDATE blocks SET {others}, spent_{k} = {less}")


@pytest.mark.parametrize("k", COSTS)
def test_every_sum_may_grow(blocks: sqlite3.Connection, k: int) -> None:
    assert blocks.execute(f"UPDATE blocks SET spent_{k} = spent_{k} + 1").rowcount == 1
