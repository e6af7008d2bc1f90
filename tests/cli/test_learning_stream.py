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
    assert "1 block can be learned from, 1 is retired, 10 are declared and have no data yet" in after.out
    assert "retired" in after.out
    assert "in 2 (ε 2, δ 3.71829e-6)" in after.out
    assert "Nothing is promised from k = 15 on." in after.out
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


def test_a_share_of_a_third_shows_what_is_there(shell: Shell, policy: Path, tmp_path: Path) -> None:
    (tmp_path / "rides.stream.toml").write_text(
        '[sharing]\nrule = "equal shares"\npipelines = ["a", "b", "c"]\n'
    )
    assert shell("stream", "append", policy, "--through", "2025-01").code == 0
    size = (tmp_path / "lapwing.ledger").stat().st_size
    found = shell("stream", "status", policy, "--pipeline", "a")
    assert "11 are declared and have no data yet" in found.out
    assert "2025-02" not in found.out
    assert "share of a" not in shell("budget", policy).out
    assert (tmp_path / "lapwing.ledger").stat().st_size == size


def test_stages_are_told_where_there_is_no_terminal(shell: Shell, policy: Path) -> None:
    done = shell.good("stream", "append", policy, "--through", "2025-01")
    told = ["Preparing the data.", "The data is prepared.", "Version 1. New blocks: 2025-01"]
    assert done.out.splitlines() == told


def test_folders_and_broken_files_are_told_by_their_names(
    shell: Shell, policy: Path, tmp_path: Path
) -> None:
    folder = shell("stream", "append", policy, tmp_path / "rides")
    assert folder.code == 2
    assert "is a folder: give its files" in folder.error
    (tmp_path / "rides" / "broken.parquet").write_bytes(b"PAR1 and nothing more")
    broken = shell("stream", "append", policy, "--through", "2025-01")
    assert broken.code == 2
    assert "broken.parquet cannot be read as parquet" in broken.error
