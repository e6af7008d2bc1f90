"""`lapwing stream append` and `status`, as a curator types them."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from support.shell import Shell

POLICY = """
[dataset]
name = "rides"
protects = "person-period"
[budget]
epsilon = 1.0
delta = 1e-6
[blocks]
by = "row"
column = "day"
every = "month"
[tables.rides]
source = "rides"
unit = "rider"
rows_per_unit = 3
[tables.rides.columns.minutes]
low = 0
high = 60
[tables.rides.columns.day]
low = 2025-01-01
high = 2025-12-31
"""


def rides(path: Path, month: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    duckdb.execute(
        f"COPY (SELECT r AS rider, r % 60 AS minutes, make_date(2025, {month}, 5) AS day "
        f"FROM range(50) AS t(r)) TO '{path}'"
    )
    return path


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    rides(tmp_path / "rides" / "january.parquet", 1)
    (tmp_path / "rides.toml").write_text(POLICY)
    return tmp_path / "rides.toml"


def test_append_and_status(shell: Shell, policy: Path, tmp_path: Path) -> None:
    before = shell("stream", "status", policy)
    assert before.code == 0
    assert "nothing was taken in yet" in before.out
    assert "12 are declared and have no data yet" in before.out
    done = shell("stream", "append", policy, "--through", "2025-01")
    assert done.code == 0
    assert "Version 1. New blocks: 2025-01" in done.out
    new = rides(tmp_path / "february.parquet", 2)
    more = shell("stream", "append", policy, new, "--through", "2025-02", "--json")
    assert more.json["version"] == 2
    assert more.json["blocks"] == ["2025-02"]
    assert Path(more.json["file"]).parent == tmp_path / "rides"
    assert (
        shell("ask", policy, "SELECT COUNT(*) FROM rides WHERE day < '2025-02-01'", "--epsilon", "1").code
        == 0
    )
    after = shell("stream", "status", policy)
    assert "1 blocks can be learned from, 1 are retired, 10 are declared" in after.out
    assert "retired" in after.out
    assert "up to k times a block's ε" in after.out
    found = {one["block"]: one for one in shell("stream", "status", policy, "--json").json["blocks"]}
    assert found["2025-01"]["is_retired"]
    assert found["2025-02"]["epsilon_left"] == 1.0


def test_mistakes_are_told_in_one_line(shell: Shell, policy: Path, tmp_path: Path) -> None:
    missing = shell("stream", "append", policy, tmp_path / "nothing.parquet")
    assert missing.code == 2
    assert "there is no file" in missing.error
    wrong = shell("stream", "append", policy, "--through", "2031-01")
    assert wrong.code == 2
    assert "no such block" in wrong.error
    text = POLICY.replace("person-period", "person").replace(
        '[blocks]\nby = "row"\ncolumn = "day"\nevery = "month"\n', ""
    )
    policy.write_text(text)
    assert "a stream needs blocks" in shell("stream", "status", policy).error
