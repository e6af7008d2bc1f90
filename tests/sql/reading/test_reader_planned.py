"""What an engine cannot plan is refused before the charge, and finding that out reads no row."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import Engine, EngineFailed
from lapwing.engines.postgres import PostgresEngine
from lapwing.sql import row_questions
from lapwing.sql.dataset import Dataset
from lapwing.sql.joint_questions import JointQuestion
from lapwing.sql.policy.policy import BlockRule
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.refusal import Refused
from lapwing.sql.reading.reader import Reader
from lapwing.sql.reading.render import Statements
from support.hospital import ENGINES, invented, policy_for
from support.postgres import server
from support.reached import reaching
from support.slowly import first
from support.spark import spark

NULL_LISTS = ("2 IN (NULL)", "urgent IN (NULL)", "urgent NOT IN (NULL)", "who IN (NULL)", "name IN (NULL)")
COHORTS = BlockRule("unit", column="cohort", cohorts=3)


def spent(dataset: Dataset) -> list[tuple[int, ...]]:
    return [tuple(block.spent) for block in dataset.ledger.blocks(dataset.policy.name)]


@pytest.mark.parametrize("engine", first(2, ENGINES))
def test_lists_of_null_alone_are_answered(engine: str, tmp_path: Path) -> None:
    with Dataset(policy_for(invented(1), engine, tmp_path), analyst="ann") as dataset:
        for condition in NULL_LISTS:
            answer = dataset.ask(f"SELECT COUNT_IF({condition}) AS n FROM visits", epsilon=10)
            assert abs(answer.columns[0].values[0]) <= 30


@pytest.mark.parametrize("engine", first(2, ENGINES))
def test_a_cohort_can_be_asked_for_where_first(engine: str, tmp_path: Path) -> None:
    """K is enough for all rows here, so both ways must count the same."""
    policy = policy_for(invented(1), engine, tmp_path, blocks=COHORTS, rows=50)
    with Dataset(policy, analyst="ann") as dataset, reaching() as reached:
        dataset.curator.prepares = False  # else a server's rows can no longer be ranked anew
        for condition in ("cohort = 1", "cohort <> 1 AND stay > 9", "cohort = 1 OR stay > 9"):
            for where_first in (False, True):
                sql = f"SELECT COUNT(*) AS n FROM visits WHERE {condition}"
                dataset.ask(sql, epsilon=1, where_first=where_first)
            assert reached[-1].values == reached[-2].values
    assert any(one.values != [0] for one in reached)  # who is in which cohort is a secret's choice


@pytest.mark.parametrize("engine", first(2, ENGINES))
def test_what_an_engine_cannot_plan_is_refused_alike_and_costs_nothing(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybody, told = invented(4), []
    for n, people in enumerate((everybody, everybody.without("p0"))):
        with Dataset(policy_for(people, engine, tmp_path / str(n)), analyst="ann") as dataset:
            sql = "SELECT COUNT(*) AS n FROM visits"
            dataset.ask(sql, epsilon=1)
            before, plain = spent(dataset), Reader.statements

            def broken(self: Reader, question: BoundQuery, plain: object = plain) -> Statements:
                assert callable(plain)
                found = plain(self, question)
                return Statements((f"{found.sums[0]} HAVING 'p0' + TRUE",), found.spectra)

            with monkeypatch.context() as patched:
                patched.setattr(Reader, "statements", broken)
                with pytest.raises(Refused, match="cannot plan this query") as refusal:
                    dataset.ask(sql, epsilon=2)
                told.append(str(refusal.value))
                with pytest.raises(Refused, match="cannot plan this query"):
                    JointQuestion.of(dataset, sql).version()
                assert dataset.ask(sql, epsilon=1).is_replay  # what was stored needs no plan
            assert spent(dataset) == before
    assert told[0] == told[1]


def test_rows_to_learn_from_are_planned_before_they_are_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Dataset(policy_for(invented(1), "duckdb", tmp_path), analyst="ann") as dataset:
        asked = row_questions.row_question(dataset, "SELECT stay FROM visits")
        assert row_questions.checked_version(dataset, asked) == 1
        monkeypatch.setattr(Reader, "_rendered", lambda *_: "SELECT nothing FROM nowhere")
        with pytest.raises(Refused, match="cannot plan"):
            row_questions.checked_version(dataset, asked)


def damaged(folder: Path) -> Path:
    """A file whose rows cannot be read, though what it says of its columns can."""
    path = folder / "damaged.parquet"
    pq.write_table(pa.table({"n": list(range(1000))}), path, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[4:200] = b"\xff" * 196
    path.write_bytes(content)
    return path


def of_damaged_rows(engine: str, folder: Path) -> tuple[Engine, str]:
    if engine == "duckdb":
        path = damaged(folder)
        files = DuckDbEngine.open([path])
        return files, files.relation_of("parquet", path)
    if engine == "spark":
        return spark(), spark().relation_of("spark-parquet", str(damaged(folder)))
    with psycopg.connect(server()) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS planned AS SELECT 'no number' AS x")
        connection.execute("CREATE OR REPLACE VIEW unreadable AS SELECT CAST(x AS int) AS n FROM planned")
    return (own := PostgresEngine(server())), own.relation_of("unreadable")


@pytest.mark.parametrize("engine", first(2, ENGINES))
def test_binding_reads_no_row(engine: str, tmp_path: Path) -> None:
    there, relation = of_damaged_rows(engine, tmp_path)
    try:
        there.bind(f"SELECT sum(n) AS s FROM {relation}")
        with pytest.raises(EngineFailed):
            there.run(f"SELECT sum(n) AS s FROM {relation}")
        with pytest.raises(EngineFailed):
            there.bind(f"SELECT sum(nobody) AS s FROM {relation}")
    finally:
        if engine != "spark":  # all tests share it
            there.close()


def test_questions_with_nothing_to_sum_are_planned(tmp_path: Path) -> None:
    with Dataset(policy_for(invented(1), "duckdb", tmp_path), analyst="ann") as dataset:
        assert len(dataset.ask("SELECT ward, MEDIAN(stay) AS m FROM visits GROUP BY ward", epsilon=1)) == 3
