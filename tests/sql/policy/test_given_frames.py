"""A data frame is a source like a file: its version is the name that the curator gives it."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lapwing
from lapwing.errors import BadParameter, Unavailable
from lapwing.sql.policy.given_frames import arrow_rows
from support.cases import each
from support.raised import named
from support.shell import Shell

POLICY = """
dataset.name = "orders"
budget = { epsilon = 10.0, delta = 1e-7 }
[tables.orders]
source = "frame"
unit = "who"
rows_per_unit = 2
columns.city = { values = ["Oslo", "Bergen"] }
columns.amount = { low = 0, high = 10 }
"""
COUNT = "SELECT COUNT(*) AS n FROM orders"
SECRET = 987654


def rows(people: int = 60) -> dict[str, list[Any]]:
    ids = list(range(people))
    return {
        "who": ids,
        "city": ["Oslo" if k % 3 else "Bergen" for k in ids],
        "amount": [k % 11 for k in ids],
    }


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "orders.toml"
    path.write_text(POLICY)
    return path


def asked(policy: Path, frame: Any, version: str, **options: Any) -> tuple[bool, int]:
    """Ask one question of the frame. Return whether it was a replay, and the ledger's version."""
    with lapwing.open(policy, tables={"orders": frame}, version=version, analyst="ann") as dataset:
        answer = dataset.ask(COUNT, epsilon=1, **options)
        assert abs(answer.columns[0].values[0] - 60) < 45
        return answer.is_replay, dataset.version()


def test_frames_of_all_libraries_are_sources(policy: Path) -> None:
    frames = [pd.DataFrame(rows()), pl.DataFrame(rows()), pa.table(rows())]
    frames += [frames[2].to_batches()[0], pd.DataFrame(rows()).astype({"city": "category"})]
    frames += [pl.DataFrame(rows()).with_columns(pl.col("city").cast(pl.Categorical))]
    for number, frame in enumerate(frames, 1):
        assert asked(policy, frame, f"v{number}") == (False, number)


def test_the_same_version_costs_nothing_in_any_order_and_library(policy: Path) -> None:
    assert asked(policy, pl.DataFrame(rows()), "1") == (False, 1)
    assert asked(policy, pl.DataFrame(rows()).reverse(), "1") == (True, 1)
    assert asked(policy, pa.table(rows()), "1") == (True, 1)
    with lapwing.open(policy, analyst="ann") as dataset:  # without rows: those that are stored
        assert dataset.ask(COUNT, epsilon=1).is_replay


def test_a_new_name_is_a_new_version_also_of_the_same_rows(policy: Path) -> None:
    """Else the version would tell whether rows changed. A name that was used before comes again as new."""
    frame = pa.table(rows())
    assert [asked(policy, frame, name) for name in ("a", "b", "b", "a")] == [
        (False, 1), (False, 2), (True, 2), (False, 3),
    ]  # fmt: skip


@each("people", [59, 61])
def test_other_rows_under_a_known_name_are_refused_before_anything_happens(
    people: int, policy: Path
) -> None:
    asked(policy, pa.table(rows()), "1")
    with pytest.raises(BadParameter, match="new name", check=named("version")):
        asked(policy, pa.table(rows(people)), "1")
    changed = {**rows(), "amount": [10] * 60}
    with pytest.raises(BadParameter, check=named("version")):
        asked(policy, pa.table(changed), "1")
    with pytest.raises(BadParameter, check=named("version")):
        asked(policy, pa.table({**rows(), "more": [1] * 60}), "1")
    assert asked(policy, pa.table(rows()), "1") == (True, 1)


def test_the_stored_rows_are_private(policy: Path) -> None:
    asked(policy, pa.table(rows()), "1")
    about = (policy.parent / "orders.frame.parquet").stat()
    assert stat.S_IMODE(about.st_mode) == 0o600


def test_rows_that_do_not_fit_the_policy_can_be_mended_under_the_same_name(policy: Path) -> None:
    with pytest.raises((BadParameter, Unavailable)):
        asked(policy, pa.table({"city": ["Oslo"]}), "1")
    assert not (policy.parent / "orders.frame.parquet").exists()
    assert asked(policy, pa.table(rows()), "1")[0] is False


def test_one_bad_table_stores_no_table(policy: Path) -> None:
    policy.write_text(POLICY + '[tables.cities]\nsource = "frame"\npublic = true\n')
    good = pa.table(rows())
    with pytest.raises(BadParameter, check=named("tables")):
        lapwing.open(policy, tables={"orders": good, "cities": [1]}, version="1")
    assert not list(policy.parent.glob("*.parquet"))
    cities = pa.table({"city": ["Oslo", "Bergen"], "land": ["east", "west"]})
    both = {"orders": good, "cities": cities}
    with lapwing.open(policy, tables=both, version="1", analyst="ann") as dataset:
        sql = (
            "SELECT land, COUNT(*) AS n FROM orders JOIN cities ON orders.city = cities.city GROUP BY land"
        )
        assert len(dataset.ask(sql, epsilon=1)) == 2


def test_a_policy_that_cannot_be_read_is_explained_and_stores_nothing(policy: Path) -> None:
    policy.write_text("[tables")
    with pytest.raises(lapwing.LapwingError, match=r"orders\.toml"):
        lapwing.open(policy, tables={"orders": pa.table(rows())}, version="1")
    assert not list(policy.parent.glob("*.parquet"))


def test_nobody_gave_rows(policy: Path) -> None:
    with pytest.raises(lapwing.LapwingError, match="nobody has given the rows yet"):
        lapwing.open(policy)


@each("version", [None, "", " ", "a\nb", "x" * 101, 3])
def test_a_version_is_a_short_text(version: Any, policy: Path) -> None:
    with pytest.raises(BadParameter, check=named("version")):
        lapwing.open(policy, tables={"orders": pa.table(rows())}, version=version)
    assert not (policy.parent / "orders.frame.parquet").exists()


def test_a_version_without_rows_is_refused(policy: Path) -> None:
    with pytest.raises(BadParameter, check=named("version")):
        lapwing.open(policy, version="1")


def test_only_tables_that_say_so_take_frames(policy: Path) -> None:
    with pytest.raises(BadParameter, check=named("tables")):
        lapwing.open(policy, tables={"others": pa.table(rows())}, version="1")
    policy.write_text(POLICY.replace('"frame"', '"orders.csv"'))
    with pytest.raises(BadParameter, match="from elsewhere"):
        lapwing.open(policy, tables={"orders": pa.table(rows())}, version="1")
    assert not list(policy.parent.glob("*.parquet"))


@each(
    "frame",
    [
        [1], None, pl.DataFrame(rows()).lazy(), pd.Series([SECRET]), pd.DataFrame({"a": [SECRET, "x"]}),
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
    ],
)  # fmt: skip
def test_other_things_are_refused_without_a_value(frame: Any) -> None:
    with pytest.raises(BadParameter) as caught:
        arrow_rows(frame, "orders")
    assert caught.value.name == "tables"
    assert str(SECRET) not in str(caught.value)


def test_a_damaged_file_is_told(policy: Path) -> None:
    (policy.parent / "orders.frame.parquet").write_bytes(b"nothing")
    with pytest.raises(Unavailable, match="damaged"):
        asked(policy, pa.table(rows()), "1")


def test_the_command_line_reads_the_stored_rows(
    policy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(policy, pa.table(rows()), "1")
    monkeypatch.chdir(policy.parent)
    done = Shell(capsys).good("ask", "orders.toml", COUNT, "--epsilon", "1", "--json")
    assert done.json["replayed"]


@pytest.mark.parametrize("has_links", [True, False])
def test_rows_that_do_not_fit_leave_the_earlier_ones_in_place(
    policy: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    if not has_links:  # as on some file systems
        monkeypatch.setattr(os, "link", Mock(side_effect=OSError))
    asked(policy, pa.table(rows()), "1")
    with pytest.raises(BadParameter, match="no column"):
        asked(policy, pa.table({"city": ["Oslo"]}), "2")
    with lapwing.open(policy, analyst="ann") as dataset:
        assert dataset.ask(COUNT, epsilon=1).is_replay
    assert [path.name for path in policy.parent.glob("*.frame.parquet*")] == ["orders.frame.parquet"]
    assert not list(policy.parent.glob(".*before"))
    assert asked(policy, pa.table(rows()), "2")[0] is False


def test_another_data_set_does_not_replace_the_rows(policy: Path) -> None:
    asked(policy, pa.table(rows()), "1")
    other = policy.with_name("other.toml")
    other.write_text(POLICY.replace('"orders"', '"others"', 1))
    with pytest.raises(BadParameter, match="folder of its own", check=named("tables")):
        asked(other, pa.table(rows(50)), "2")
    assert asked(policy, pa.table(rows()), "1") == (True, 1)


def test_names_of_versions_decide_also_if_threads_store_at_once(policy: Path) -> None:
    """Every name that is stored is one more version: none is skipped or shared."""
    frame = pa.table(rows())

    def store(name: str) -> None:
        lapwing.open(policy, tables={"orders": frame}, version=name).close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(store, ["a", "b", "c", "d"]))
    with lapwing.open(policy) as dataset:
        assert dataset.version() == 4


def test_a_named_index_is_not_lost_without_a_word() -> None:
    frame = pd.DataFrame(rows())
    with pytest.raises(BadParameter, match="reset_index", check=named("tables")):
        arrow_rows(frame.set_index("who"), "orders")
    assert arrow_rows(frame.set_index("who").reset_index(), "orders").num_columns == 3
    assert arrow_rows(frame.set_index("who", drop=False), "orders").num_columns == 3
