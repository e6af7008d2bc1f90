"""A stored value that cannot be read: the source is refused before a charge, the curator is told where."""

from __future__ import annotations

import traceback
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lapwing.engines.engine import EngineFailed, engine_cause, uniform_failure
from lapwing.errors import BadParameter, Unavailable
from lapwing.sql import row_questions
from lapwing.sql.dataset import Dataset
from lapwing.sql.joint_questions import JointQuestion
from lapwing.sql.policy.kinds import Kind, Moment, Text
from lapwing.sql.policy.policy import CheckedPolicy, Source
from lapwing.sql.reading import open_sources, prepare
from support.postgres import server
from support.private_tables import coded_rows, policy_of, table_of, whole
from support.reached import reaching
from support.spark import spark

SUM = "SELECT SUM(code) AS s FROM visits"
COLUMNS: dict[str, Kind] = {"code": whole(0, 9), "name": Text(), "day": Moment(86400, 0, 30_000)}


def texts(*values: bytes) -> pa.Array:
    """Texts, of whatever bytes."""
    return pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())


def times(*values: int) -> pa.Array:
    return pa.array(values, pa.int64()).view(pa.timestamp("ms"))


GOOD: dict[str, pa.Array] = {
    "who": texts(b"a", b"b", b"c"), "code": pa.array([1, 2, 3]), "name": texts(b"x", b"y", b"z"),
    "day": times(0, 10**12, -(10**12)),
}  # fmt: skip
BAD: dict[str, pa.Array] = {"name": texts(b"x", b"\xff\xfe bad", b"z"), "day": times(0, 10**16, 5)}


def written(folder: Path, **changes: pa.Array) -> CheckedPolicy:
    pq.write_table(pa.table({**GOOD, **changes}), folder / "v.parquet")
    policy = policy_of(folder, table_of(folder / "v.parquet", COLUMNS))
    return replace(policy, ledger=str(folder / "all.ledger"), delta=Fraction(1, 10**6))


def spent(dataset: Dataset) -> int:
    return sum(sum(block.spent) for block in dataset.ledger.blocks("clinic"))


@pytest.mark.parametrize("column", BAD)
def test_an_unreadable_value_is_found_before_the_charge_and_told_to_the_curator(
    column: str, tmp_path: Path
) -> None:
    with Dataset(written(tmp_path, **{column: BAD[column]}), analyst="ann") as dataset:
        told = set()
        for ask in (
            lambda: dataset.ask(SUM, epsilon="0.1"),
            lambda: dataset.ask(f"{SUM} WHERE code > 1", epsilon="0.1", where_first=True),
            lambda: row_questions.checked_version(
                dataset, row_questions.row_question(dataset, "SELECT code FROM visits")
            ),
            lambda: JointQuestion.of(dataset, SUM).version(),
        ):
            with pytest.raises(Unavailable, match="cannot be read") as refused:
                ask()
            told.add(str(refused.value))
        assert len(told) == 1
        assert column not in told.pop()
        with pytest.raises(Unavailable, match=rf"^tables\.visits\.columns\.{column}: cannot be read"):
            dataset.prepare()
        assert spent(dataset) == 0
        policy = written(tmp_path)  # mended
        dataset.prepare()
        dataset.ask(SUM, epsilon="0.1")
    assert policy.tables


def test_rows_are_read_once_for_a_version_and_a_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Any] = []
    check = open_sources._reading_failure

    def counting(*args: Any) -> EngineFailed | None:
        reads.append(args)
        return check(*args)

    monkeypatch.setattr(open_sources, "_reading_failure", counting)
    policy = written(tmp_path)
    with Dataset(policy, analyst="ann") as dataset:
        dataset.curator.prepares = False
        dataset.ask(SUM, epsilon="0.1")
        dataset.ask(f"{SUM} WHERE code > 1", epsilon="0.1")
        assert len(reads) == 1
        with suppress(BadParameter):  # three rows may be too few to see
            dataset.search_bounds("visits", "code", epsilon="0.1", step=1)
        dataset.ask(f"{SUM} WHERE code > 2", epsilon="0.1")
        assert len(reads) == 2  # a search reads a column without its bounds
        dataset.prepare()
        dataset.ask(f"{SUM} WHERE code > 3", epsilon="0.1")
        assert len(reads) == 2


def test_a_column_that_is_declared_later_is_read_before_it_is_asked(tmp_path: Path) -> None:
    policy = written(tmp_path, name=BAD["name"])
    table = policy.tables["visits"]
    fewer = replace(table, columns={name: table.columns[name] for name in ("code", "day")})
    with Dataset(replace(policy, tables={"visits": fewer}), analyst="ann") as dataset:
        dataset.ask(SUM, epsilon="0.1")
        before = spent(dataset)
    with Dataset(policy, analyst="ann") as dataset:
        with pytest.raises(Unavailable, match="cannot be read"):
            dataset.ask(f"{SUM} WHERE name = 'x'", epsilon="0.1")
        assert spent(dataset) == before


def test_a_line_that_is_not_utf8_is_no_row(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_bytes(b"who,code\na,1\nb\xff,2\nc,3\nd,\xff\ne,5\n")
    policy = policy_of(tmp_path, table_of(tmp_path / "v.csv", {"code": whole(0, 9)}, form="csv"))
    assert coded_rows(policy, "code") == [("a", 1, 1), ("c", 1, 3), ("e", 1, 5)]


def counted(policy: CheckedPolicy, sql: str) -> int:
    with Dataset(policy, analyst="ann") as dataset, reaching() as reached:
        dataset.ask(sql, epsilon="0.1")
    return reached[0].values[0]


def test_times_without_end_are_unknown_in_postgresql(tmp_path: Path) -> None:
    name = f"readable_{uuid4().hex[:8]}"
    with psycopg.connect(server()) as connection:
        connection.execute(f"CREATE TABLE {name} (who text, code int, name text, day timestamptz)")
        for n, day in enumerate(("infinity", "-infinity", "294276-01-01", "4713-01-01 BC", "2020-01-01")):
            connection.execute(f"INSERT INTO {name} VALUES (%s, %s, 'x', %s)", (str(n), n, day))
    policy = written(tmp_path)
    source = Source("postgres", server(), f"public.{name}", "postgres")
    policy = replace(policy, tables={"visits": replace(policy.tables["visits"], source=source)})
    assert (
        counted(policy, "SELECT COUNT(day) AS n FROM visits") == 2
    )  # the other two are moved to the bounds


def in_spark(folder: Path, column: str) -> CheckedPolicy:
    spark()  # the session that all tests share
    policy = written(folder, **{column: BAD[column]})
    source = Source("spark", "", str(folder / "v.parquet"), "spark-parquet")
    return replace(policy, tables={"visits": replace(policy.tables["visits"], source=source)})


@pytest.mark.slow
def test_in_spark_a_text_that_is_not_utf8_is_unknown(tmp_path: Path) -> None:
    policy = in_spark(tmp_path, "name")
    assert counted(policy, "SELECT COUNT(name) AS n FROM visits") == 2
    with Dataset(policy, analyst="ann") as dataset:
        dataset.ask("SELECT name, COUNT(*) AS n FROM visits GROUP BY name", epsilon="0.1", delta="1e-8")


@pytest.mark.slow
def test_in_spark_a_time_beyond_is_refused(tmp_path: Path) -> None:
    with Dataset(in_spark(tmp_path, "day"), analyst="ann") as dataset:
        with pytest.raises(Unavailable, match="cannot be read"):
            dataset.ask(SUM, epsilon="0.1")
        assert spent(dataset) == 0


def test_the_engines_own_error_is_kept_for_the_curator_and_printed_for_nobody(tmp_path: Path) -> None:
    with Dataset(written(tmp_path, name=BAD["name"]), analyst="ann") as dataset:
        with pytest.raises(Unavailable) as refused:
            dataset.ask(SUM, epsilon="0.1")
        assert str(refused.value).startswith("the tables cannot be read")  # whatever the cause is
        with pytest.raises(Unavailable) as told:
            dataset.curator.prepare()
        cause = engine_cause(told.value)
        assert f"the engine raised {type(cause).__name__}" in str(told.value)
        for error in (refused.value, told.value):
            assert isinstance(engine_cause(error), duckdb.Error)
            assert "bad" not in "".join(traceback.format_exception(error))


def test_a_failure_that_is_no_value_is_not_called_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failure case C20: an engine that failed for another reason was said to hold an unreadable value."""
    policy = written(tmp_path)

    def fails(*_: object, **__: object) -> Any:
        with uniform_failure():
            raise MemoryError("private")

    with Dataset(policy, analyst="ann") as dataset:
        monkeypatch.setattr(prepare, "unit_ids", fails)
        with pytest.raises(Unavailable) as refused:
            dataset.ask(SUM, epsilon="0.1")
        assert "stored value" not in str(refused.value)
        assert isinstance(engine_cause(refused.value), MemoryError)
        monkeypatch.setattr(prepare, "prepare", fails)
        with pytest.raises(
            Unavailable, match="could not be prepared: the engine raised MemoryError"
        ) as told:
            dataset.curator.prepare()
        assert "private" not in "".join(traceback.format_exception(told.value))
        assert isinstance(engine_cause(told.value), MemoryError)


def test_a_table_that_is_gone_is_no_value_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The curator would look for a value that is not there."""

    def gone(*_: object) -> Any:
        raise EngineFailed

    policy = written(tmp_path)
    opened = open_sources.open_sources(policy)
    monkeypatch.setattr(type(opened.engine), "columns", gone)
    monkeypatch.setattr(open_sources, "open_sources", lambda *_, **__: opened)
    for check in (open_sources.require_readable, open_sources.first_unreadable):
        with pytest.raises(EngineFailed):
            check(policy)
