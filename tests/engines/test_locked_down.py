"""Each engine under attack, by the cases of the catalogue. Analysts' SQL never comes here: this is the
second wall."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engines.conftest import Asker
from lapwing.engines import duckdb
from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import EngineFailed
from lapwing.engines.postgres import PostgresEngine
from support.postgres import server, sql
from support.spark import spark

in_host_memory = pa.table({"secret": [7361]})


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[DuckDbEngine]:
    """Opened for one file; others lie beside it."""
    for name in ("data", "secret"):
        pq.write_table(pa.table({"a": [1, 2]}), tmp_path / f"{name}.parquet")
    (tmp_path / "secret.csv").write_text("a\n1\n")
    engine = DuckDbEngine.open([tmp_path / "data.parquet"], writable=tmp_path / "prepared.duckdb")
    yield engine
    assert engine.run("SELECT 1 AS n").num_rows == 1
    engine.close()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_csv('{folder}/secret.csv')",
        "SELECT * FROM '{folder}/secret.csv'",
        "SELECT * FROM '{folder}/secret.parquet'",
        "SELECT * FROM read_parquet('{folder}/secret.parquet')",
        "SELECT * FROM read_parquet('{folder}/*.parquet')",
        "SELECT * FROM read_parquet('{folder}/data.parquet/../secret.parquet')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('/etc/passwd')",
        "SELECT * FROM read_json('{folder}/secret.csv')",
        "SELECT * FROM read_text('~/.bashrc')",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM sniff_csv('{folder}/secret.csv')",
        "SELECT * FROM parquet_schema('{folder}/secret.parquet')",
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "COPY (SELECT 1) TO '{folder}/data.parquet'",
        "ATTACH '{folder}/other.duckdb' AS other",
        "DETACH prepared",
        "EXPORT DATABASE '{folder}/out'",
        "IMPORT DATABASE '{folder}/out'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')",
        "SELECT * FROM read_csv('https://example.com/x.csv')",
        "CALL pragma_version()",
        "PRAGMA database_list",
    ],
)
def test_E1_files_beyond_those_opened_are_out_of_reach(
    opened: DuckDbEngine, tmp_path: Path, statement: str
) -> None:
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".wal"}
    asked = statement.format(folder=tmp_path)
    for attempt in (opened.run, opened.execute):
        with pytest.raises(EngineFailed):
            attempt(asked)
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".wal"}


@pytest.mark.parametrize(
    "hidden",
    [
        "SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')",
        "SELECT * FROM query('CREATE TABLE prepared.main.x AS SELECT 1')",
        "SELECT * FROM query_table('/etc/passwd')",
        "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT * FROM glob(''/etc/*'')'))",
    ],
)
def test_E2_hidden_sql_reaches_no_further(opened: DuckDbEngine, hidden: str) -> None:
    with pytest.raises(EngineFailed):
        opened.run(hidden)


def test_E3_python_variables_are_no_tables(opened: DuckDbEngine) -> None:
    here = in_host_memory
    assert here.num_rows == 1
    for name in ("here", "in_host_memory"):
        with pytest.raises(EngineFailed):
            opened.run(f"SELECT * FROM {name}")


@pytest.mark.parametrize(
    "statement",
    ["SET enable_external_access = true", "SET GLOBAL lock_configuration = false", "RESET allowed_paths",
     "SET threads = 1", "PRAGMA enable_progress_bar", "SET VARIABLE x = 1"],
)  # fmt: skip
def test_E4_no_setting_changes(opened: DuckDbEngine, statement: str) -> None:
    for attempt in (opened.run, opened.execute):
        with pytest.raises(EngineFailed):
            attempt(statement)
    found = opened.run(
        "SELECT current_setting('enable_external_access') AS a, current_setting('lock_configuration') AS b"
    )
    assert [str(value).lower() for value in found.to_pylist()[0].values()] == ["false", "true"]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO public.e6 VALUES (2)",
        "WITH gone AS (DELETE FROM public.e6 RETURNING a) SELECT * FROM gone",
        "SELECT a INTO public.e6_copy FROM public.e6",
        "CREATE TABLE public.e6_new (a integer)",
        "EXPLAIN ANALYZE SELECT * FROM public.e6",
        "SELECT 1) TO STDOUT; DROP TABLE public.e6; SELECT (1",
        "SET default_transaction_read_only = off",
        "COPY public.e6 TO STDOUT",
        "DO $$ BEGIN DELETE FROM public.e6; END $$",
        "SELECT nextval('public.e6_numbers')",
        "SELECT * FROM e6",
        "SELECT lo_create(0)",
    ],
)
def test_E6_postgres_only_reads(statement: str) -> None:
    url = server()
    sql(url, "DROP TABLE IF EXISTS public.e6")
    sql(url, "CREATE TABLE public.e6 AS SELECT 1 AS a")
    sql(url, "CREATE SEQUENCE IF NOT EXISTS public.e6_numbers")
    engine = PostgresEngine(url)
    with pytest.raises(EngineFailed):
        engine.run(statement)
    engine.run("SELECT set_config('default_transaction_read_only', 'off', false)")
    with pytest.raises(EngineFailed):
        engine.run("WITH more AS (INSERT INTO public.e6 VALUES (3) RETURNING a) SELECT * FROM more")
    assert engine.run("SELECT a FROM public.e6").to_pylist() == [{"a": 1}]
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM csv.`/etc/passwd`",
        "SELECT * FROM text.`/etc/passwd`",
        "SELECT * FROM parquet.`{folder}/x.parquet`",
        "SELECT reflect('java.lang.System', 'getProperty', 'user.home')",
        "SELECT java_method('java.lang.System', 'getProperty', 'user.home')",
        "SELECT try_reflect('java.lang.System', 'getProperty', 'user.home')",
        "SET spark.sql.runSQLOnFiles = true",
        "ADD JAR '{folder}/x.jar'",
        "CREATE TEMPORARY FUNCTION f AS 'x.Y'",
        "CREATE TEMPORARY VIEW x AS SELECT 1",
        "INSERT OVERWRITE DIRECTORY '{folder}/out' USING parquet SELECT 1",
        "CREATE TABLE x USING parquet AS SELECT 1",
        "EXPLAIN SELECT 1",
        "SHOW TABLES",
    ],
)
def test_E9_spark_runs_questions_and_no_java(tmp_path: Path, statement: str) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    with pytest.raises(EngineFailed):
        spark().run(statement.format(folder=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]


def test_S1_S4_sums_do_not_depend_on_the_order_of_rows(ask: Asker) -> None:
    values = [2**51] + [1] * 1000 + [-(2**51)]
    for given in (values, values[::-1]):
        found = ask.engine.run(
            f"SELECT {ask.dialect.total('v', 1 << 51)} AS e FROM {ask.relation('int8', given)}"
        )
        assert found.column(0).to_pylist() == [1000]


def test_R3_no_engine_is_asked_for_randomness() -> None:
    for path in Path(duckdb.__file__).parent.glob("*.py"):
        assert not re.search(r"random|setseed|rand\(|TABLESAMPLE|uuid\(\)", path.read_text()), path.name
