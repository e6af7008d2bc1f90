"""What engines may use is set, and cannot be changed by a question."""

from __future__ import annotations

import psycopg
import pytest

from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import EngineFailed, EngineLimits
from lapwing.engines.postgres import PostgresEngine
from support.postgres import server

MEGABYTE = 10**6


def _of_duckdb(limits: EngineLimits, *names: str) -> list[str]:
    engine = DuckDbEngine.open(limits=limits)
    try:
        settings = ", ".join(f"current_setting('{name}') AS c{n}" for n, name in enumerate(names))
        return [str(column[0].as_py()) for column in engine.run(f"SELECT {settings}").columns]
    finally:
        engine.close()


def test_duckdb_has_the_limits_of_the_policy_or_safe_ones() -> None:
    names = ("memory_limit", "max_temp_directory_size", "threads")
    said = EngineLimits(memory=700 * MEGABYTE, temporary=50 * MEGABYTE, threads=3)
    assert _of_duckdb(said, *names) == ["667.5 MiB", "47.6 MiB", "3"]
    memory, temporary, _ = _of_duckdb(EngineLimits(), *names)
    assert "%" not in temporary
    assert float(memory.split()[0]) <= EngineLimits().memory_here() / 2**30 + 0.1


def test_duckdb_fails_within_its_limits() -> None:
    engine = DuckDbEngine.open(limits=EngineLimits(memory=500 * MEGABYTE, temporary=MEGABYTE))
    try:
        with pytest.raises(EngineFailed):
            engine.run("SELECT len(list(range)) AS n FROM range(200000000)")
        assert engine.run("SELECT 1 AS n").num_rows == 1
    finally:
        engine.close()


def test_postgresql_has_the_limits_of_the_policy() -> None:
    engine = PostgresEngine(
        server(), limits=EngineLimits(memory=640 * MEGABYTE, temporary=10**9, threads=3)
    )
    try:
        names = ("work_mem", "temp_file_limit", "max_parallel_workers_per_gather")
        asked = ", ".join(f"current_setting('{name}') AS c{n}" for n, name in enumerate(names))
        found = [column[0].as_py() for column in engine.run(f"SELECT {asked}").columns]
    finally:
        engine.close()
    assert found == ["19531kB", "976562kB", "2"]


def test_postgresql_keeps_its_own_limit_where_the_role_may_not_set_it() -> None:
    with psycopg.connect(server(), autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS plain_reader")
        connection.execute("CREATE ROLE plain_reader LOGIN")
    url = psycopg.conninfo.make_conninfo(server(), user="plain_reader")
    try:
        PostgresEngine(url, limits=EngineLimits(temporary=MEGABYTE)).close()
    except EngineFailed:
        pytest.skip("this server does not let the role in")


def test_postgresql_is_stopped_while_it_plans() -> None:
    term = "x"
    for _ in range(14):
        term = f"CASE WHEN {term} > 3 THEN 1 ELSE 0 END + CASE WHEN {term} > 5 THEN 1 ELSE 0 END"
    engine = PostgresEngine(server())
    try:
        with pytest.raises(EngineFailed):
            engine.run(f"SELECT sum({term}) AS n FROM generate_series(1, 5) AS t(x)", timeout=0.02)
        assert engine.run("SELECT 1 AS n").num_rows == 1
    finally:
        engine.close()
