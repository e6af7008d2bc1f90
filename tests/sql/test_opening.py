"""A policy in code spends as a file in the same folder does: no way of writing it gives more budget."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import lapwing
from lapwing.errors import BadParameter, OverBudget, Unavailable
from lapwing.sql.curator import Curator
from support.cases import each
from support.raised import named

COUNT = "SELECT COUNT(*) AS n FROM orders"
SUM = "SELECT SUM(amount) AS total FROM orders"
COLUMNS = {"city": ["Oslo", "Bergen"], "amount": lapwing.between(0, 10)}


def rows(people: int = 60, first: int = 0) -> pd.DataFrame:
    ids = list(range(first, first + people))
    cities = ["Oslo" if k % 3 else "Bergen" for k in ids]
    return pd.DataFrame({"who": ids, "city": cities, "amount": [k % 11 for k in ids]})


def table(frame: Any, name: str = "orders", **words: Any) -> lapwing.Table:
    return lapwing.Table(name, frame, **{"unit": "who", "rows_per_unit": 2, "columns": COLUMNS, **words})


def made(frame: Any, name: str = "orders", epsilon: float = 3, **words: Any) -> lapwing.Policy:
    return lapwing.Policy(name, **{"epsilon": epsilon, "delta": 1e-7, "tables": [table(frame)], **words})


def asked(policy: Any, sql: str = COUNT, epsilon: float = 1, **options: Any) -> bool:
    """Ask one question. Return whether it was a replay."""
    with lapwing.open(policy, analyst="ann", **options) as dataset:
        return dataset.ask(sql, epsilon=epsilon).is_replay


def entries(folder: Path) -> int:
    with lapwing.Ledger.open(folder / "lapwing.ledger") as ledger:
        return int(ledger.store.read(lambda tx: tx.rows("SELECT COUNT(*) FROM entries"))[0][0])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another working folder."""
    there = tmp_path / "there"
    there.mkdir()
    return there


@pytest.fixture
def spent(folder: Path) -> Path:
    """The folder of a policy with nothing left."""
    assert not asked(made(rows()), epsilon=3, version="1")
    return folder


def refused(policy: Any, name: str, sql: str = SUM, **options: Any) -> str:
    """Return the sentence of a refusal."""
    with pytest.raises(BadParameter) as raised:
        asked(policy, sql, **options)
    assert raised.value.name == name, raised.value
    return str(raised.value)


# One thing with the file


def test_answers_replay_across_code_and_file(folder: Path) -> None:
    policy = made(rows())
    assert not asked(policy, version="1")
    before = entries(folder)
    assert asked(made(rows()), version="1")
    file = policy.save("orders.toml")
    assert asked(file)
    assert asked(lapwing.Policy.load(file))
    assert asked(file, tables={"orders": rows()}, version="1")
    assert asked(lapwing.Policy.load(file), tables={"orders": rows()}, version="1")
    assert asked(made("frame"), tables={"orders": rows()}, version="1")
    assert asked(made("frame"))
    assert entries(folder) == before


def test_a_question_to_the_file_is_not_paid_again_in_code(folder: Path) -> None:
    file = made(rows()).save("orders.toml")
    assert not asked(file, tables={"orders": rows()}, version="1")
    file.unlink()
    assert asked(made(rows()), version="1")
    assert not (folder / "orders.toml").exists()


def test_files_are_sources_in_code_too(folder: Path) -> None:
    rows().to_csv(folder / "orders.csv", index=False)
    assert not asked(made("orders.csv"))
    assert asked(made(Path("orders.csv")))
    assert asked(made(folder / "orders.csv"))
    with Curator(made("orders.csv")) as curator, lapwing.Dataset(curator, analyst="ann") as dataset:
        assert dataset.ask(COUNT, epsilon=1).is_replay


def test_the_notice_says_where_the_ledger_is(folder: Path, other: Path) -> None:
    for ledger, inside in ((None, folder), (other, other)):
        frame = rows(first=0 if ledger is None else 1000)
        with lapwing.open(made(frame), version="1", analyst="ann", ledger=ledger) as dataset:
            answer = str(dataset.ask(COUNT, epsilon=1))
        assert f"New ledger {inside / 'lapwing.ledger'}, for life." in answer
        assert f'New account "orders" with ε 3 and δ 1e-7, for life. It is kept in {inside}' in answer
        assert {path.name for path in inside.iterdir()} >= {"orders.frame.parquet", "orders.prepared"}


def test_a_ledger_is_a_folder_or_a_file(folder: Path, other: Path) -> None:
    assert not asked(made(rows()), version="1", ledger="../there/")
    for place in (other, str(other), other / "lapwing.ledger", "../there/lapwing.ledger"):
        assert asked(made(rows()), version="1", ledger=place)
    assert asked(made(rows(), ledger=other / "lapwing.ledger"), version="1", ledger=None) is False  # a copy
    assert not list(folder.glob("*.ledger"))


@each("place", ["missing/x.ledger", "missing/", "s3://bucket/x", ""])
def test_a_ledger_that_cannot_be_is_refused(place: str, folder: Path) -> None:
    assert refused(made(rows()), "ledger", version="1", ledger=place)
    assert not list(folder.iterdir())


def test_a_policy_of_a_file_has_the_ledger_of_the_file(folder: Path, other: Path) -> None:
    file = made(rows()).save("orders.toml")
    frames: dict[str, Any] = {"tables": {"orders": rows()}, "version": "1", "ledger": other}
    for policy in (file, lapwing.Policy.load(file), made("frame", ledger="x.ledger")):
        refused(policy, "ledger", **frames)
    assert not list(other.iterdir())


# No way to more budget


def test_another_ledger_is_refused(spent: Path, other: Path) -> None:
    said = refused(made(rows()), "source", version="1", ledger=other)
    assert f'lapwing.open(policy, ledger="{spent / "lapwing.ledger"}")' in said
    assert not (other / "orders.frame.parquet").exists()
    with pytest.raises(OverBudget):  # what the refusal says works
        asked(made(rows()), SUM, version="1", ledger=spent / "lapwing.ledger")
    with pytest.raises(OverBudget):
        asked(made(rows(), ledger=spent / "lapwing.ledger"), SUM, version="1")


def test_another_working_folder_is_refused(
    spent: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = made(rows())
    monkeypatch.chdir(other)
    refused(made(rows()), "source", version="1")
    refused(made(rows(59)), "source", version="1")  # of one person less
    refused(made(rows(), name="others"), "source", version="2")
    with pytest.raises(OverBudget):
        asked(before, SUM, version="1")


def test_another_process_spends_from_the_same_account(spent: Path) -> None:
    code = f"""
import lapwing
from sql.test_opening import made, rows
with lapwing.open(made(rows()), version="1", analyst="ann") as dataset:
    print(dataset.ask({COUNT!r}, epsilon=3).is_replay)
    try:
        dataset.ask({SUM!r}, epsilon=1)
    except lapwing.OverBudget:
        print("over")
"""
    paths = [str(Path(__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    with lapwing.open(made(rows()), version="1", analyst="ann"):  # while it is open here
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=spent, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )  # fmt: skip
    assert done.stdout.split() == ["True", "over"], done.stderr


@each("words", [{"epsilon": 100}, {"delta": 1e-3}])
@pytest.mark.usefixtures("spent")
def test_another_budget_is_refused(words: dict[str, Any]) -> None:
    refused(made(rows(), **words), "budget", version="1")


@each("version", ["1", "2"])
def test_another_name_is_refused_or_spends_the_same(spent: Path, version: str) -> None:
    """The people are known: rows of another data set do not replace theirs or get an account."""
    policy = made(rows(), name="others")
    with pytest.raises((BadParameter, OverBudget)):
        asked(policy, SUM, version=version)
    others = made(rows(), name="others", tables=[table(rows(), "others")])
    with pytest.raises((BadParameter, OverBudget)):
        asked(others, SUM.replace("orders", "others"), version=version)


def test_a_file_of_the_same_name_is_the_same_data(spent: Path) -> None:
    """Whatever the file says: the code beside it spends from the same account, and the other way round."""
    file = spent / "orders.toml"
    made("frame", tables=[table("frame", columns={"city": ["Oslo"]}, rows_per_unit=1)]).save(file)
    with pytest.raises(OverBudget):
        asked(file, COUNT)
    with pytest.raises(OverBudget):
        asked(made(rows()), SUM, version="1")
    made("frame", epsilon=9).save(file, replace=True)
    refused(file, "budget")
    with pytest.raises(OverBudget):
        asked(made(rows()), SUM, version="1")


def test_a_frame_that_changed_needs_a_new_version(spent: Path) -> None:
    frame = rows()
    policy = made(frame)
    frame.loc[0, "amount"] = 9
    for changed in (policy, made(rows(59)), made(rows().astype({"who": "int32"}))):
        assert "new name" in refused(changed, "version", version="1")
    with pytest.raises(OverBudget):
        asked(policy, SUM, version="2")


def test_a_frame_that_changes_after_it_was_opened_changes_nothing(folder: Path) -> None:
    frame = rows()
    with lapwing.open(made(frame), version="1", analyst="ann") as dataset:
        frame["amount"] = 0
        frame["who"] = 1
        answer = dataset.ask(SUM, epsilon=2.5)
    assert abs(answer.columns[0].values[0] - rows()["amount"].sum()) < 200


def test_rows_need_a_version(folder: Path) -> None:
    assert "2026-03" in refused(made(rows()), "version")
    assert not list(folder.iterdir())
    with pytest.raises(BadParameter, check=named("tables")):
        Curator(made(rows()))
    with pytest.raises(BadParameter, check=named("tables")):
        lapwing.Dataset(made(rows()), analyst="ann")


def test_versions_and_rows_belong_together(folder: Path) -> None:
    rows().to_csv(folder / "orders.csv", index=False)
    refused(made("orders.csv"), "version", version="1")
    refused(made("orders.csv"), "tables", version="1", tables={"orders": rows()})
    refused(made(rows()), "tables", version="1", tables={"orders": rows()})
    refused(made("frame"), 'tables["orders"].source')
    assert "lapwing.open" in refused(made("frame"), 'tables["orders"].source')


def test_a_file_that_is_called_frame_is_not_read_for_the_rows(folder: Path) -> None:
    (folder / "frame").mkdir()
    rows(100, first=5000).to_parquet(folder / "frame" / "others.parquet")
    refused(made(rows()), "tables", version="1")


def test_a_cell_that_is_run_again_costs_nothing(folder: Path) -> None:
    """Everything is made anew, as in a notebook."""
    for again in (False, True, True):
        assert asked(made(rows()), version="2026-03") is again
    assert asked(made(rows().sample(frac=1, random_state=1)), version="2026-03")  # in another order


# A single data frame


def short(frame: Any, **words: Any) -> Any:
    given = {"unit": "who", "columns": COLUMNS, "epsilon": 3, **words}
    return lapwing.open(frame, analyst="ann", **given)


def test_a_data_frame_opens_without_a_policy(folder: Path) -> None:
    question = "SELECT city, COUNT(*) AS n FROM data GROUP BY city"
    for again in (False, True):
        with short(rows()) as data:
            assert data.ask(question, epsilon=1).is_replay is again
            assert (data.policy.delta, data.policy.tables["data"].rows_per_unit) == (0, 1)
    with short(rows(), version="2") as data:
        assert not data.ask(question, epsilon=1).is_replay
    with short(rows()) as data:  # the version that is stored
        assert data.ask(question, epsilon=1).is_replay
    with pytest.raises(BadParameter, check=named("version")):
        short(rows(61))
    with short(rows(61), version="3") as data, pytest.raises(OverBudget):
        data.ask(question, epsilon=2)


def test_a_data_file_opens_without_a_policy(folder: Path) -> None:
    rows().to_csv(folder / "orders.csv", index=False)
    with short("orders.csv", name="orders", rows_per_unit=2, delta=1e-7) as data:
        assert not data.ask(COUNT, epsilon=1).is_replay
    assert asked(made("orders.csv"))


@each(
    ("source", "words", "name"),
    [
        (rows(), {"unit": None}, "source"),
        (rows(), {"epsilon": None}, "source"),
        (rows(), {"columns": None}, "source"),
        (rows(), {"columns": {"city": 5}}, 'columns["city"]'),
        (rows(), {"rows_per_unit": 0}, "rows_per_unit"),
        (rows(), {"name": "two words"}, 'tables["two words"]'),
        (made(rows()), {}, "unit"),
        (5, {}, "source"),
        (None, {}, "source"),
        (rows()["who"], {}, "source"),
    ],
)
def test_mistakes_of_a_single_frame_name_the_argument(
    source: Any, words: dict[str, Any], name: str, folder: Path
) -> None:
    with pytest.raises(BadParameter) as raised:
        short(source, **words)
    assert raised.value.name == name, raised.value
    assert not list(folder.iterdir())


def test_two_frames_of_one_name_are_not_mixed(folder: Path) -> None:
    with short(rows()):
        pass
    others = pa.table({"who": [1000, 1001], "age": [3, 4]})
    with pytest.raises(BadParameter, match='name="…"', check=named("version")):
        short(others, columns={"age": lapwing.between(0, 99)})
    with short(others, columns={"age": lapwing.between(0, 99)}, name="ages") as data:
        assert data.policy.name == "ages"


def test_a_folder_that_is_gone_is_told(folder: Path, other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = made(rows())
    monkeypatch.chdir(other)
    folder.rmdir()
    with pytest.raises(Unavailable):
        asked(policy, version="1")
