"""Case C15: a user without a home folder, a restored folder, a view. None of them is a new budget."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from lapwing.errors import BadParameter, OverBudget
from lapwing.ledger import CuratorKey, Ledger
from lapwing.ledger.recovery import register_anew
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy
from support.shell import Shell

COUNT = "SELECT COUNT(*) AS n FROM t"
POLICY = """
[dataset]
name = "d"
{more}
[budget]
epsilon = 1.0
delta = 1e-6
[tables.t]
source = "{source}"
unit = "person"
rows_per_unit = 1
[tables.t.columns.x]
low = 0
high = 99
step = 1
{ledger}
"""


def policy(folder: Path, source: str, *, more: str = "", ledger: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "p.toml").write_text(POLICY.format(source=source, more=more, ledger=ledger))
    return folder / "p.toml"


def asked(path: Path, sql: str = COUNT, *, epsilon: str = "1") -> None:
    with Dataset(load_policy(path), analyst="ann") as dataset:
        dataset.ask(sql, epsilon=epsilon)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A spent table, and its views."""
    with duckdb.connect(str(tmp_path / "d.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS person, range % 100 AS x FROM range(500)")
        connection.execute("CREATE VIEW w AS SELECT * FROM t")
        connection.execute("CREATE SCHEMA s; CREATE VIEW s.t AS SELECT * FROM main.t WHERE person > 400")
        connection.execute("CREATE TABLE others AS SELECT 7000 + person AS person, x FROM t")
    asked(policy(tmp_path / "a", f"{tmp_path}/d.duckdb#t"))
    return tmp_path / "d.duckdb"


def test_case_C15_a_view_in_another_folder_is_refused(source: Path, tmp_path: Path) -> None:
    for name in ("w", "s.t"):
        for _ in range(2):
            with pytest.raises(BadParameter, match="the same people") as refused:
                asked(policy(tmp_path / name, f"{source}#{name}"))
        assert str(tmp_path / "a" / "lapwing.ledger") in str(refused.value)
    # What the message proposes: the same people join the ledger that knows them.
    url = f'[ledger]\nurl = "{tmp_path}/a/lapwing.ledger"'
    joined = policy(tmp_path / "w", f"{source}#w", more='population = "d"', ledger=url)
    joined.write_text(joined.read_text().replace('name = "d"', 'name = "view"'))
    with pytest.raises(OverBudget):
        asked(joined)
    asked(policy(tmp_path / "c", f"{source}#others"))  # nobody of them is in another ledger


def test_case_C15_other_people_with_the_same_ids_are_signed_for(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, own = policy(tmp_path / "b", f"{source}#w"), tmp_path / "b" / "lapwing.ledger"
    with pytest.raises(BadParameter, match="other-people"):
        asked(path)
    shell = Shell(capsys)
    first = tmp_path / "a" / "lapwing.ledger"
    assert shell("ledger", "other-people", path, tmp_path / "none", "--curator", f"{own}.curator").code
    shell.good("ledger", "other-people", path, first, "--curator", f"{own}.curator")
    asked(path)
    with Ledger.open(first) as ledger:
        known = ledger.id
    for command in (("budget",), ("ledger", "verify")):
        assert known in "".join(shell.good(*command, own).out.split())
    with Ledger.open(own) as ledger, pytest.raises(BadParameter, match="curator"):
        ledger.sign_other_people([known], CuratorKey.load(Path(f"{first}.curator")))


def test_case_C15_data_with_a_ledger_is_not_told_to_join_another(source: Path, tmp_path: Path) -> None:
    """Joining would be refused: the data spend from their ledger for life."""
    path, first = policy(tmp_path / "b", f"{source}#others"), tmp_path / "a" / "lapwing.ledger"
    asked(path, epsilon="0.1")
    with duckdb.connect(str(source)) as connection:
        connection.execute("INSERT INTO others SELECT * FROM t WHERE person < 5")
    left_out = pytest.raises(BadParameter, match="leave their rows out")
    with Dataset(load_policy(path), analyst="ann") as dataset, left_out as refused:
        dataset.curator.prepare()
    assert str(first) in str(refused.value)
    assert "url =" not in str(refused.value)
    assert "does not count here" in str(refused.value)


def test_case_C15_a_new_registry_must_learn_the_people(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, own = policy(tmp_path / "b", f"{source}#others"), tmp_path / "b" / "lapwing.ledger"
    asked(path, epsilon="0.1")
    monkeypatch.setenv("LAPWING_STATE", str(tmp_path / "new"))
    register_anew(own, curator=CuratorKey.load(Path(f"{own}.curator")))
    asked(path, epsilon="0.1")  # the stored answer
    with pytest.raises(BadParameter, match="lapwing prepare"):
        asked(path, f"{COUNT} WHERE x < 50", epsilon="0.1")
    with Dataset(load_policy(path), analyst="ann") as dataset:
        assert dataset.curator.prepare()
        assert not dataset.curator.prepare()
    asked(path, f"{COUNT} WHERE x < 50", epsilon="0.1")
    with duckdb.connect(str(source)) as connection:
        connection.execute("CREATE VIEW same AS SELECT * FROM others")
    with pytest.raises(BadParameter, match="the same people"):
        asked(policy(tmp_path / "c", f"{source}#same"))


def test_case_C15_a_restored_folder_is_found_with_a_shared_registry(source: Path, tmp_path: Path) -> None:
    """The registry that the policy names knows more than the folder that was put back."""
    registry = f'[ledger]\nregistry = "{tmp_path}/shared"'
    path = policy(tmp_path / "r", f"{source}#others", ledger=registry)
    asked(path, epsilon="0.1")
    shutil.copytree(tmp_path / "r", tmp_path / "backup")
    asked(path, f"{COUNT} WHERE x < 50", epsilon="0.9")
    shutil.rmtree(tmp_path / "r")
    shutil.copytree(tmp_path / "backup", tmp_path / "r")
    with pytest.raises(Exception, match="older copy"):
        asked(path, f"{COUNT} WHERE x < 51", epsilon="0.9")


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs another user")
def test_case_C15_a_user_without_a_home_has_no_budget(tmp_path: Path) -> None:
    """Daemons and containers: nothing is asked before somebody says where the registry is."""
    folder = Path("/tmp") / f"lapwing-nohome-{os.getpid()}"
    folder.mkdir()
    try:
        rows = "SELECT range AS person, range % 100 AS x FROM range(50)"
        duckdb.sql(f"COPY ({rows}) TO '{folder}/t.parquet'")
        path = policy(folder, "t.parquet")
        os.chown(folder, 65534, 65534)
        environment = {
            "PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }  # fmt: skip
        program = str(Path(sys.executable).with_name("lapwing"))
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program]
        command += ["ask", str(path), "--epsilon", "1", COUNT]
        refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if "No module named" in refused.stderr or "Permission denied: '" in refused.stderr:
            pytest.skip("the other user cannot read the installed packages")
        assert refused.returncode
        assert "LAPWING_STATE" in refused.stderr
        assert not list(folder.glob("lapwing.ledger*"))
        environment["LAPWING_STATE"] = str(folder / "state")
        answered = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert answered.returncode == 0, answered.stderr
    finally:
        shutil.rmtree(folder)
