"""What every engine does: answers in Arrow, stops in time, fails with one text, and goes on after it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import traceback
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.conftest import Asker
from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import Engine, EngineFailed, TimedOut
from lapwing.engines.postgres import PostgresEngine
from lapwing.engines.spark import java_for_spark
from lapwing.errors import BadParameter, Unavailable
from support.postgres import server, sql
from support.spark import spark

CANARY = "Canary7361"
HEAVY = {
    "duckdb": "SELECT count(*) AS n FROM range(100000000) a(x), range(9999999) b(y) WHERE (x * y) % 7 = 3",
    "postgres": "SELECT count(*) AS n FROM generate_series(1, 100000000) a, generate_series(1, 100000) b",
    "spark": "SELECT count(*) AS n FROM range(100000000) a, range(10000000) b WHERE (a.id * b.id) % 7 = 3",
}
SERIES = {
    "duckdb": "SELECT range AS n FROM range(150000)",
    "postgres": "SELECT n FROM generate_series(0, 149999) AS n",
    "spark": "SELECT id AS n FROM range(150000)",
}


def is_usable(engine: Engine) -> bool:
    return bool(engine.run("SELECT 1 AS n").to_pylist() == [{"n": 1}])


def test_a_failure_shows_nothing_and_the_engine_goes_on(ask: Asker) -> None:
    failing = {
        "duckdb": f"SELECT CAST('{CANARY}' AS INTEGER) AS n",
        "postgres": f"SELECT CAST(CAST('{CANARY}' AS text) AS integer) AS n",
        "spark": f"SELECT raise_error('{CANARY}') AS n",
    }[ask.engine.name]
    with pytest.raises(EngineFailed) as caught:
        ask.engine.run(failing)
    shown = "".join(traceback.format_exception(caught.value))
    assert str(caught.value) == "the engine could not answer"
    assert isinstance(caught.value, Unavailable)
    assert CANARY not in shown
    assert CANARY in str(caught.value.__context__)  # for whoever holds the data
    assert is_usable(ask.engine)


def test_a_failure_prints_nothing(ask: Asker, capfd: pytest.CaptureFixture[str]) -> None:
    for statement in (
        f"SELECT {CANARY}",
        f"SELECT * FROM {CANARY}",
        f"SELEKT {CANARY}",
        f"SELECT {CANARY}(1)",
    ):
        with pytest.raises(EngineFailed):
            ask.engine.run(statement)
    assert CANARY not in "".join(capfd.readouterr())


def test_X1_a_cast_is_null_where_it_cannot_be(ask: Asker) -> None:
    assert ask.all("text", [CANARY, "5"], ask.dialect.parse_whole("v")) == [[None, 5]]


def test_what_takes_too_long_is_stopped(ask: Asker) -> None:
    began = time.monotonic()
    with pytest.raises(TimedOut, match="the engine could not answer"):
        ask.engine.run(HEAVY[ask.engine.name], timeout=0.5)
    assert time.monotonic() - began < 60  # it would take years; a busy machine takes seconds
    assert is_usable(ask.engine)
    assert ask.engine.run("SELECT 1 AS n", timeout=30).num_rows == 1


def test_a_table_is_shipped_and_shipped_again(ask: Asker) -> None:
    kinds = {pa.large_string(): pa.string()}  # with wide offsets or narrow ones
    for rows in (3, 1, 0):
        texts: list[str | None] = ['it\'s \\ "x"\n\t', None, ""][:rows]
        table = pa.table(
            {"Key": pa.array(texts, pa.string()), "n": pa.array([1, 2, None][:rows], pa.int32())}
        )
        ask.engine.ship("shipped x", table)
        name = ask.dialect.name("shipped x")
        found = ask.engine.run(f"SELECT * FROM {name}")
        assert found.to_pylist() == table.to_pylist()
        assert [kinds.get(kind, kind) for kind in found.schema.types] == table.schema.types
    assert list(ask.engine.columns(name)) == ["Key", "n"]


def test_one_column_of_nothing_has_rows(ask: Asker) -> None:
    relation = ask.relation("text", [None, "", None])
    assert ask.engine.run(f"SELECT v FROM {relation} ORDER BY i").column(0).to_pylist() == [None, "", None]
    assert ask.engine.run(f"SELECT v, v AS v FROM {relation} WHERE i > 5").num_rows == 0


def test_columns_are_named_with_their_types(ask: Asker) -> None:
    found = ask.engine.columns(ask.relation("float8", [None]))
    assert dict(found) == {
        "i": "int" if ask.engine.name == "spark" else "integer",
        "v": "double precision" if ask.engine.name == "postgres" else "double",
    }
    with pytest.raises(EngineFailed):
        ask.engine.columns("nowhere")


def test_large_results_come_in_batches(ask: Asker) -> None:
    batches = list(ask.engine.stream(SERIES[ask.engine.name]))
    assert len(batches) > 1
    assert pa.Table.from_batches(batches).column(0).to_pylist() == list(range(150_000))
    assert next(iter(ask.engine.stream(SERIES[ask.engine.name]))).num_rows > 0
    assert is_usable(ask.engine)
    with pytest.raises(EngineFailed):
        list(ask.engine.stream("SELECT nothing"))


def test_only_one_question_at_a_time(ask: Asker) -> None:
    for statement in (
        "SELECT 1 AS n; SELECT 2 AS n",
        "",
        "SELECT 1 AS n;; SELECT 2 AS n",
        "SELECT 1) AS n",
    ):
        with pytest.raises(EngineFailed):
            ask.engine.run(statement)


def test_an_engine_that_reads_does_not_write(tmp_path: Path) -> None:
    for engine in (DuckDbEngine.open(), PostgresEngine(server())):
        with pytest.raises(EngineFailed):
            engine.execute("CREATE TEMP TABLE x (a integer)")
        engine.close()


def test_duckdb_writes_where_it_may(tmp_path: Path) -> None:
    path, seen = tmp_path / "prepared.duckdb", list[float]()
    engine = DuckDbEngine.open(writable=path)
    engine.execute("CREATE TABLE prepared.main.t AS SELECT range AS n FROM range(5)", progress=seen.append)
    assert seen[0] == 0
    assert seen[-1] == 1
    assert engine.columns(engine.relation_of("duckdb", "prepared", "main.t")) == {"n": "bigint"}
    engine.close()
    reader = DuckDbEngine.open(databases={"p": path})
    assert reader.run("SELECT sum(n) AS n FROM p.main.t").to_pylist() == [{"n": 10}]
    with pytest.raises(EngineFailed):
        reader.execute("DROP TABLE p.main.t")
    reader.close()


def test_postgres_writes_where_it_may() -> None:
    url = server()
    engine = PostgresEngine(url, writable=True)
    engine.execute(
        "CREATE TABLE public.engine_written (a integer, b numeric, c varchar(3), d numeric(5, 2))"
    )
    engine.execute("INSERT INTO public.engine_written VALUES (1, 2.50, 'x', 1.5), (NULL, NULL, NULL, NULL)")
    relation = engine.relation_of("engine_written")
    assert dict(engine.columns(relation)) == {
        "a": "integer", "b": "numeric", "c": "character varying(3)", "d": "numeric(5,2)",
    }  # fmt: skip
    assert engine.run(f"SELECT count(*) AS n FROM {relation}").to_pylist() == [{"n": 2}]
    engine.execute("DROP TABLE public.engine_written")
    engine.close()


def test_postgres_inlines_tables_where_it_keeps_none() -> None:
    url = server()
    sql(url, "REVOKE TEMP ON DATABASE postgres FROM PUBLIC")
    sql(url, "DROP ROLE IF EXISTS engine_reader")
    sql(url, "CREATE ROLE engine_reader LOGIN")
    engine = PostgresEngine(url.replace("postgres@", "engine_reader@", 1))
    table = pa.table({"k": ["it's \\", None], "n": pa.array([1, 2], pa.int32())})
    engine.ship("given", table)
    assert engine.run('SELECT k, n FROM "given" ORDER BY n').to_pylist() == table.to_pylist()
    assert dict(engine.columns('"given"')) == {"k": "text", "n": "integer"}
    engine.ship("given", table.slice(0, 0))
    assert engine.run('SELECT k, n FROM "given"').num_rows == 0
    engine.close()
    sql(url, "GRANT TEMP ON DATABASE postgres TO PUBLIC")
    sql(url, "DROP ROLE engine_reader")


@pytest.mark.slow
def test_spark_reads_a_folder_of_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "x.parquet")
    engine = spark()
    relation = engine.relation_of("spark-parquet", str(tmp_path))
    assert engine.columns(relation) == {"a": "bigint"}
    assert engine.run(f"SELECT sum(a) AS n FROM {relation}").to_pylist() == [{"n": 3}]


def test_duckdb_reads_patterns_folders_and_odd_names(tmp_path: Path) -> None:
    odd = tmp_path / "it's [1]*.parquet"
    (tmp_path / "deep").mkdir()
    pq.write_table(pa.table({"a": [1, 2]}), odd)
    pq.write_table(pa.table({"a": ["x"], "b": [1.5]}), tmp_path / "deep" / "y.parquet")
    locations = [str(odd), str(tmp_path), f"{tmp_path}/**/y*.parquet"]
    engine = DuckDbEngine.open(locations)
    relations = [engine.relation_of("parquet", location) for location in locations]
    counts = [engine.run(f"SELECT count(*) AS n FROM {one}").column(0)[0].as_py() for one in relations]
    assert counts == [2, 3, 1]
    assert engine.columns(relations[1]) == {"a": "varchar", "b": "double"}  # a type that holds all
    with pytest.raises(BadParameter):
        engine.relation_of("parquet", "/etc/passwd")
    engine.close()
    with pytest.raises(BadParameter):
        DuckDbEngine.open([tmp_path / "nowhere.parquet"])


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_no_row_of_a_csv_file_raises(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "a.csv"
    lines = [
        b"Id,na me,,id", b'1,"x ""y""",2,3', b"2", b"3,a,b,c,d,e", b"4,\xff,1,1", b'5,"two\nlines",1,1',
        b"6,,,",
        b"", b'7,"x"z,1,1', b"8,\x00,1,1", b"9," + b"x" * 3_000_000 + b",1,1", b'10,"never closed,1,1',
        b"11,a,b,c",
    ]  # fmt: skip
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines).replace(b",", separator.encode()))
    engine = DuckDbEngine.open([path])
    relation = engine.relation_of("csv", path)
    assert engine.columns(relation) == dict.fromkeys(["Id", "na me", "column3", "id_1"], "varchar")
    rows = [tuple(row.values()) for row in engine.run(f"SELECT * FROM {relation}").to_pylist()]
    assert rows[:2] == [("1", 'x "y"', "2", "3"), ("2", None, None, None)]
    ids = [row[0] for row in rows if row[0] is not None]
    assert ids == ["1", "2", "3", "5", "6", "7", "8", "10"]
    engine.close()
    other = tmp_path / "b.csv"
    other.write_text("x,y\n1,2\n")
    both = DuckDbEngine.open([f"{tmp_path}/*.csv"])
    with pytest.raises(BadParameter):
        both.relation_of("csv", f"{tmp_path}/*.csv")
    both.close()


@pytest.mark.parametrize("installed", [True, False])
def test_spark_finds_a_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    """Also one that lacks a module that Spark asks for: the one that comes with the extra."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if not installed:
        monkeypatch.setenv("PATH", str(tmp_path))
    elif shutil.which("java") is None:
        pytest.skip("no Java is installed here")
    with java_for_spark(tmp_path):
        java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
        asked = [str(java), "--add-modules=jdk.incubator.vector", "-version"]
        done = subprocess.run(asked, capture_output=True, check=True)
    assert b"incubator" not in done.stderr
    assert "JAVA_HOME" not in os.environ


def test_a_closed_engine_fails_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tempdir = tmp_path / "temporary"
    tempdir.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tempdir))
    engine = DuckDbEngine.open()
    assert len(list(tempdir.iterdir())) == 1
    engine.close()
    engine.close()
    assert list(tempdir.iterdir()) == []
    with pytest.raises(EngineFailed):
        engine.run("SELECT 1")
    closed = PostgresEngine(server())
    closed.close()
    with pytest.raises(EngineFailed):
        closed.run("SELECT 1")


def test_a_wrong_address_shows_no_password() -> None:
    for url in ("postgresql://someone:hidden7361@127.0.0.1:1/x", "postgresql://a:hidden7361@b@c:d/x"):
        with pytest.raises((EngineFailed, BadParameter)) as caught:
            PostgresEngine(url)
        assert "hidden7361" not in "".join(traceback.format_exception(caught.value))
