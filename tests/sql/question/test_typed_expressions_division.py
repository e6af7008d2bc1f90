"""Bounds of quotients and remainders follow from their operands, on every engine; names in GROUP BY."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.kinds import Numeric
from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.sql.question.bind import bind
from lapwing.sql.question.bound_query import BoundQuery, Computed, KeyValue
from lapwing.sql.question.expression import Reference
from lapwing.sql.question.scope import Catalog
from lapwing.sql.reading.reader import Reader
from support.hospital import ENGINES, Hospital, invented, policy_for
from support.private_tables import KEY, policy_of, table_of, whole
from support.slowly import first

TABLE = {"a": whole(0, 100), "b": whole(-25, 25), "c": whole(2, 4), "d": whole(-3, 0), "e": whole(33, 38)}


def bounds(expression: str) -> tuple[int | None, int | None]:
    policy = policy_of(Path("/"), table_of("/v.parquet", TABLE))
    (one,) = bind(f"SELECT SUM({expression}) FROM visits", Catalog(policy, {})).sums
    assert one.expression is not None
    kind = one.expression.kind
    assert isinstance(kind, Numeric)
    return kind.first, kind.last


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a // 10", (0, 10)), ("b // 10", (-3, 2)), ("b // -10", (-3, 2)), ("a // c", (0, 50)),
        ("b // c", (-13, 12)), ("a // d", (-100, 0)), ("b // d", (-25, 25)), ("a // b", (-100, 100)),
        ("a % 7", (0, 6)), ("e % 10", (3, 8)), ("e % 40", (33, 38)), ("e % 30", (3, 8)), ("d % 9", (0, 8)),
        ("(d - 1) % 9", (5, 8)), ("a // 0", (0, 0)),
    ],
)  # fmt: skip
def test_bounds_follow_from_the_operands(expression: str, expected: tuple[int, int]) -> None:
    assert bounds(expression) == expected


def found(policy: CheckedPolicy, sql: str) -> tuple[BoundQuery, list[Any]]:
    reader = Reader.open(policy, KEY, {})
    try:
        question = bind(sql, Catalog(policy, {}))
        return question, reader.exact(question)
    finally:
        reader.close()


@pytest.mark.parametrize("engine", first(2, ENGINES))
def test_engines_round_down(engine: str, tmp_path: Path) -> None:
    stays = [0, 1, 9, 10, 11, 59, 60]
    row = {"ward": "A", "cost": 1.0, "admitted": None, "urgent": True, "name": "n"}
    people = {f"q{n}": [{**row, "who": f"q{n}", "stay": stay}] for n, stay in enumerate(stays)}
    policy = policy_for(Hospital(people, {}), engine, tmp_path)
    for shift, by in ((0, 10), (-30, 10), (-30, 7), (-30, -7), (-5, 60)):
        sql = f"SELECT (stay + {shift}) // {by} AS k, COUNT(*) AS n FROM visits GROUP BY k"
        question, (exact,) = found(policy, sql)
        codes = question.keys[0].codes
        assert codes is not None
        values = [(stay + shift) // by for stay in stays]
        assert (codes[0], codes[-1]) == tuple(sorted(((0 + shift) // by, (60 + shift) // by)))
        assert [int(n) for n in exact.values[:, 0]] == [values.count(code) for code in codes]
        _, (rest,) = found(policy, f"SELECT SUM((stay + {shift}) % {abs(by)}) AS s FROM visits")
        assert int(rest.values[0, 0]) == sum((stay + shift) % abs(by) for stay in stays)


def test_a_columns_name_in_group_by_is_the_columns(tmp_path: Path) -> None:
    policy = policy_for(invented(1), "duckdb", tmp_path)
    catalog = Catalog(policy, {})
    asked = bind(
        "SELECT stay // 50 AS stay, COUNT(*) AS n FROM visits GROUP BY stay ORDER BY stay", catalog
    )
    (key,) = asked.keys
    assert isinstance(key.expression, Reference)
    assert isinstance(asked.outputs[0].value, Computed)
    assert asked.order[0].value == asked.outputs[0].value  # in ORDER BY, the answer's name comes first
    in_words = bind(
        "SELECT stay // 50 AS n50, COUNT(*) AS n FROM visits GROUP BY n50 HAVING n50 > 0", catalog
    )
    assert in_words.outputs[0].value == KeyValue(0)
    plain = bind("SELECT -stay AS stay, COUNT(*) AS n FROM visits GROUP BY stay HAVING stay > 5", catalog)
    assert isinstance(plain.having, Computed)
    assert plain.having.args[0] == KeyValue(0)  # in HAVING, the column


def test_names_mean_what_they_mean_to_the_engine() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT unnest([10, 60, 120]) AS age")

        def rows(sql: str) -> list[tuple[Any, ...]]:
            return connection.execute(sql).fetchall()

        assert len(rows("SELECT age // 500 AS age, count(*) FROM t GROUP BY age")) == 3
        assert rows("SELECT -age AS age FROM t GROUP BY age HAVING age > 50 ORDER BY age") == [
            (-120,),
            (-60,),
        ]


def test_sub_queries_group_by_columns_too(tmp_path: Path) -> None:
    policy = policy_for(invented(1), "duckdb", tmp_path)
    sql = (
        "WITH p AS (SELECT who, stay // 50 AS stay, COUNT(*) AS n FROM visits GROUP BY who, stay) "
        "SELECT SUM(n) AS n FROM p"
    )
    by_column = bind(sql, Catalog(policy, {}))
    by_alias = bind(
        sql.replace("AS stay,", "AS part,").replace("who, stay)", "who, part)"), Catalog(policy, {})
    )
    assert by_column.source != by_alias.source


def test_released_values_are_divided_and_rounded_down(tmp_path: Path) -> None:
    with Dataset(policy_for(invented(1), "duckdb", tmp_path), analyst="ann") as dataset:
        sql = "SELECT stay // 50 AS stay, stay // 0 AS none, COUNT(*) // 7 AS n FROM visits GROUP BY stay"
        parts, nothing, counts = dataset.ask(sql, epsilon=1).columns
        assert [int(part) for part in parts.values] == [stay // 50 for stay in range(61)]
        assert set(nothing.values) == {None}
        assert all(float(count).is_integer() for count in counts.values)
