"""`lapwing check`: exact counts at the curator's terminal, noisy ones for a price."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pytest

from support.shell import Shell

CANARY = 73_159  # no other number looks like it
POLICY = """
[dataset]
name = "sales"
[budget]
epsilon = 10.0
delta = 1e-6
[tables.sales]
source = "sales.csv"
unit = "who"
rows_per_unit = 2
[tables.sales.columns.ward]
values = ["A", "B"]
[tables.sales.columns.cost]
low = 0
high = 100
"""


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    lines = "".join(f"{n},{'A' if n % 2 else 'X'},{'1;5' if n < 40 else 3}\n" for n in range(100))
    more = "0,X,3\n" * 5
    (tmp_path / "sales.csv").write_text(f"who,ward,cost\n{lines}{more}")
    (tmp_path / "sales.toml").write_text(POLICY)
    return tmp_path / "sales.toml"


def canary(sales: Path) -> None:
    """So many cells that cannot be read, and no other count like it."""
    rows = f"SELECT i AS who, 'A' AS ward, 'bad' AS cost FROM range({CANARY}) AS t(i)"
    duckdb.execute(f"COPY ({rows}) TO '{sales.with_name('sales.csv')}'")


def test_exact_counts_go_to_a_terminal_and_nowhere_else(
    shell: Shell, sales: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary(sales)
    assert shell("prepare", sales).code == 0
    key = sales.with_name("lapwing.ledger.curator")
    refused = shell("check", sales, "--curator", key)
    assert refused.code == 2
    assert "is no terminal, and exact counts are private" in refused.error
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    done = shell("check", sales, "--curator", key)
    assert done.code == 0
    assert f"{CANARY:,}" in done.out
    told = " ".join(re.sub("\x1b\\[[0-9;]*m", "", done.out).split())
    assert "These counts are exact, and private" in told
    assert "are not covered by the privacy promise" in told
    # No file of ours has the count, in any spelling.
    for path in sales.parent.rglob("*"):
        if path.is_file() and not path.name.startswith(("sales.csv", "copy-")):
            content = path.read_bytes()
            assert str(CANARY).encode() not in content, path
            assert f"{CANARY:,}".encode() not in content, path
    log = shell("ledger", "log", sales.with_name("lapwing.ledger"))
    assert "the curator signed to have seen" in " ".join(log.out.split())
    assert str(CANARY) not in log.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "needs --curator KEY for exact counts"),
        (["--epsilon", "1", "--curator", "key"], "needs --curator KEY for exact counts"),
        (["--curator", "key", "--json"], "exact ones are shown at a terminal only"),
        (["--epsilon", "0"], "epsilon"),
        (["--epsilon", "much"], "epsilon"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_read(
    shell: Shell, sales: Path, arguments: list[str], told: str
) -> None:
    done = shell("check", sales, *arguments)
    assert done.code == 2
    assert told in done.error
    assert not sales.with_name("lapwing.ledger").exists()


def test_noisy_counts_as_json_and_into_files(shell: Shell, sales: Path) -> None:
    assert shell("prepare", sales).code == 0
    done = shell("check", sales, "--epsilon", "3", "--json", "--as", "ann")
    assert done.code == 0
    (made,) = json.loads(done.out)["tables"]
    assert {cell["column"] for cell in made["cells"]} == {"ward", "cost"}
    assert all(cell["low"] <= cell["high"] and cell["count"] >= 0 for cell in made["cells"])
    shown = shell("check", sales, "--epsilon", "3", "--as", "ann")
    assert "nothing was charged" in shown.out
    key = sales.with_name("lapwing.ledger.curator")
    done = shell("check", sales, "--curator", key, "--into-a-file")
    assert "truncation" in done.out
    sales.write_text(sales.read_text().replace("high = 100", "high = 200"))
    assert shell("prepare", sales).code == 0
    told = " ".join(shell("budget", sales.with_name("lapwing.ledger")).out.split())
    assert "sales: the curator signed to have seen exact counts of the data (`lapwing check`)" in told
    assert "sales: the policy was changed after a check; what that showed may be in it" in told
