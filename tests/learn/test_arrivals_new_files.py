"""A file is copied into the source completely and once, under a name that the source's pattern finds."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from lapwing.errors import BadParameter
from lapwing.learn.arrivals import take_file
from lapwing.sql.policy.policy import CheckedTable, Source
from lapwing.sql.policy.source_location import parse_source
from support.private_tables import table_of, whole


def parquet(path: Path, sql: str = "SELECT 1 AS who, 2 AS stay") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    duckdb.execute(f"COPY ({sql}) TO '{path}' (FORMAT parquet)")
    return path


def table_at(folder: Path, text: str) -> CheckedTable:
    made = table_of("", {"stay": whole(0, 10)})
    source = parse_source(text, folder=folder, table="visits")
    return CheckedTable(made.name, source, made.columns, made.unit, made.rows_per_unit)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return parquet(tmp_path / "incoming" / "march.parquet", "SELECT 7 AS who, 3 AS stay")


@pytest.mark.parametrize(
    "source", ["data", "data/*.parquet", "data/v*.parquet", "data/**/*.parquet", "da[[]ta/*.parquet"]
)
def test_a_taken_file_is_found_by_the_source(source: str, new: Path, tmp_path: Path) -> None:
    folder = tmp_path / ("da[ta" if "[[]" in source else "data")
    parquet(folder / "v1.parquet")
    table = table_at(tmp_path, source)
    place = take_file(table, new)
    assert place.parent == folder
    assert duckdb.execute(f"SELECT who FROM '{str(place).replace('[', '[[]')}'").fetchall() == [(7,)]
    assert take_file(table, new) == place  # the second time nothing happens
    assert len(list(folder.iterdir())) == 2


def test_the_same_content_under_another_name_is_taken_once(new: Path, tmp_path: Path) -> None:
    parquet(tmp_path / "data" / "v1.parquet")
    table = table_at(tmp_path, "data")
    place = take_file(table, new)
    again = tmp_path / "incoming" / "other.parquet"
    again.write_bytes(new.read_bytes())
    assert take_file(table, again) == place


def test_a_file_that_is_already_there_stays_where_it_is(tmp_path: Path) -> None:
    there = parquet(tmp_path / "data" / "v1.parquet")
    assert take_file(table_at(tmp_path, "data"), there) == there


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT 1 AS who", "no column 'stay'"),
        ("SELECT 1 AS stay", "no column 'who'"),
        ("SELECT 1 AS who, 'two' AS stay", "'stay' is varchar"),
        ("SELECT 'one' AS who, 2 AS stay", "'who' is varchar"),
    ],
)
def test_another_schema_is_refused_before_anything_is_copied(sql: str, why: str, tmp_path: Path) -> None:
    parquet(tmp_path / "data" / "v1.parquet")
    bad = parquet(tmp_path / "bad.parquet", sql)
    table = table_at(tmp_path, "data")
    with pytest.raises(BadParameter, match=why):
        take_file(table, bad)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["v1.parquet"]


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    parquet(tmp_path / "data" / "v1.parquet")
    table = table_at(tmp_path, "data")
    garbage = tmp_path / "garbage.parquet"
    garbage.write_bytes(b"secret of p7")
    other = tmp_path / "rows.csv"
    other.write_text("who,stay\n1,2\n")
    with pytest.raises(BadParameter, match="cannot be read as parquet") as error:
        take_file(table, garbage)
    assert "secret" not in str(error.value)
    with pytest.raises(BadParameter, match="must be parquet"):
        take_file(table, other)
    with pytest.raises(BadParameter, match="no file"):
        take_file(table, tmp_path / "nothing.parquet")


def test_csv_files_too(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "v1.csv").write_text("who,stay\n1,2\n")
    table = table_at(tmp_path, "data")
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("who,stay\n3,4\n")
    bad.write_text("who,other\n3,4\n")
    assert take_file(table, good).read_text() == "who,stay\n3,4\n"
    with pytest.raises(BadParameter, match="no column 'stay'"):
        take_file(table, bad)


def test_sources_that_take_no_files_say_what_to_do(new: Path, tmp_path: Path) -> None:
    single = parquet(tmp_path / "one.parquet")
    parquet(tmp_path / "a1" / "v.parquet")
    with pytest.raises(BadParameter, match="one file"):
        take_file(table_at(tmp_path, single.name), new)
    with pytest.raises(BadParameter, match="append without a file"):
        take_file(table_at(tmp_path, "a*/v*.parquet"), new)
    made = table_at(tmp_path, single.name)
    server = CheckedTable(
        made.name, Source("postgres", "postgresql://x/y", "v", "postgres"), made.columns, made.unit, 1
    )
    with pytest.raises(BadParameter, match="append without a file"):
        take_file(server, new)


def test_a_copy_that_breaks_off_leaves_nothing(
    new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet(tmp_path / "data" / "v1.parquet")
    table = table_at(tmp_path, "data")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        with pytest.raises(OSError, match="No space"):
            take_file(table, new)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["v1.parquet"]
