"""Where the data of a policy are."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapwing.sql.policy.policy import Source
from support.policy_files import (
    GOOD,
    HEAD,
    PUBLIC,
    TABLE,
    loaded,
    mistakes,
    source,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("visits.parquet", ("duckdb", "{0}/visits.parquet", "", "parquet")),
        ("./wards.csv", ("duckdb", "{0}/wards.csv", "", "csv")),
        ("parts", ("duckdb", "{0}/parts/**/*.parquet", "", "parquet")),
        ("parts/*.parquet", ("duckdb", "{0}/parts/*.parquet", "", "parquet")),
        ("odd[1].parquet", ("duckdb", "{0}/odd[[]1].parquet", "", "parquet")),
        ("clinic.duckdb", ("duckdb", "{0}/clinic.duckdb", "visits", "duckdb")),
        ("clinic.duckdb#main.stays", ("duckdb", "{0}/clinic.duckdb", "main.stays", "duckdb")),
        ("postgresql://me@h/d", ("postgres", "postgresql://me@h/d", "visits", "postgres")),
        ("postgresql://h/d?x=1#s.t", ("postgres", "postgresql://h/d?x=1", "s.t", "postgres")),
        ("spark:visits", ("spark", "", "visits", "spark")),
        ("spark:lake.clinic.visits", ("spark", "", "lake.clinic.visits", "spark")),
        ("spark:parts/*.parquet", ("spark", "", "{0}/parts/*.parquet", "spark-parquet")),
        ("spark:./parts", ("spark", "", "{0}/parts", "spark-parquet")),
        ("spark:s3a://lake/visits", ("spark", "", "s3a://lake/visits", "spark-parquet")),
    ],
)
def test_a_source_is_an_engine_and_a_place(text: str, expected: tuple[str, ...], folder: Path) -> None:
    engine, location, table, form = [part.format(folder) for part in expected]
    assert source(text) == Source(engine, location, table, form)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gone.parquet", "7: tables.visits.source: there is no such file. Paths begin at"),
        ("gone/*.parquet", "no file matches this pattern"),
        ("gone.duckdb", "there is no DuckDB file here"),
        ("empty", "is a folder without .parquet or .csv files"),
        ("mixed", "is a folder of Parquet and CSV files: say which"),
        ("visits.xlsx", "is not a known kind of source. Write a Parquet or CSV file"),
        ("https://h/visits.parquet", "is not a known kind of source"),
        ("clinic.duckdb#a b", "must end in the name of a table"),
        ("postgresql://h/d#a.b.c", "must end in the name of a table"),
        ("postgresql://me@[h/d", "is no address. Write postgresql://"),
        ("spark:a.b.c.d", "must end in the name of a table"),
        ("spark:gone/*.parquet", "no file matches this pattern"),
        ("x" * 3000 + ".parquet", "there is no such file"),
        ("a" * 300 + "/[!-*?.csv", "no file matches"),
    ],
)
def test_a_wrong_source_is_told_what_to_write(text: str, expected: str) -> None:
    (found,) = mistakes(HEAD + TABLE.replace("visits.parquet", text))
    assert expected in found


def test_an_address_with_a_password_is_not_repeated() -> None:
    text = GOOD + '[ledger]\nurl = "mysql://me:SECRET@h/d"\n'
    assert "SECRET" not in "\n".join(mistakes(text.replace("visits.parquet", "mysql://me:SECRET@h/d")))


def test_spark_sources_know_their_master_and_public_files_may_stand_beside_them() -> None:
    text = (
        HEAD
        + TABLE.replace("visits.parquet", "spark:visits")
        + PUBLIC
        + '[engine]\nspark_master = "local[2]"'
    )
    policy = loaded(text)
    assert policy.tables["visits"].source == Source("spark", "local[2]", "visits", "spark")
    assert policy.tables["wards"].source.engine == "duckdb"
