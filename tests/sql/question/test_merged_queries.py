"""A merged query gives what the query gives as ibis wrote it: in DuckDB, and to the mechanisms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import ibis
import numpy as np
import pytest
import sqlglot
from ibis import _
from sqlglot import exp

from lapwing.sql.question.bind import bind, bind_with_earlier, bind_with_text
from lapwing.sql.question.meaning import query_digests
from lapwing.sql.question.merged_queries import merged
from lapwing.sql.question.refusal import Refused
from lapwing.sql.question.scope import Catalog
from lapwing.sql.reading.reader import Reader
from support.clinic import clinic_catalog, people, roomy, write_clinic

KEY = bytes(range(32))
VISITS = ibis.table(
    {"patient_id": "string", "ward": "string", "stay": "int64", "cost": "float64", "urgent": "boolean"},
    name="visits",
)  # fmt: skip
PATIENTS = ibis.table({"patient_id": "string", "sex": "string", "age": "int64"}, name="patients")
WARDS = ibis.table({"ward": "string", "beds": "int64", "kind": "string"}, name="wards")


def digest(question: Any, catalog: Catalog) -> str:
    return query_digests(catalog.policy, bind(question, catalog), catalog.public)[1]


SAME = {
    "a filter": (
        VISITS.filter(_.stay >= 2, _.ward == "A").aggregate(n=_.count()),
        "SELECT COUNT(*) FROM visits WHERE stay >= 2 AND ward = 'A'",
    ),
    "blocks": (
        VISITS.mutate(cohort=_.stay).filter(_.stay < 8).group_by("ward").aggregate(m=_.cohort.mean()),
        "SELECT ward, AVG(stay) FROM visits WHERE stay < 8 GROUP BY ward",
    ),
    "computed columns": (
        VISITS.mutate(long=_.stay + 1).filter(_.long > 3).aggregate(m=(_.long * 2).mean()),
        "SELECT AVG((stay + 1) * 2) FROM visits WHERE stay + 1 > 3",
    ),
    "a join": (
        VISITS.filter(_.urgent).join(WARDS, "ward").filter(_.beds > 5).group_by("kind").agg(n=_.count()),
        "SELECT kind, COUNT(*) FROM (SELECT * FROM visits WHERE urgent) AS v "
        "JOIN wards AS w ON v.ward = w.ward WHERE beds > 5 GROUP BY kind",
    ),
    "a left join": (
        VISITS.left_join(WARDS, "ward").group_by("kind").aggregate(n=_.count()),
        "SELECT kind, COUNT(*) FROM visits LEFT JOIN wards ON visits.ward = wards.ward GROUP BY kind",
    ),
    "people": (
        VISITS.join(PATIENTS, "patient_id").filter(_.age < 18).aggregate(n=_.count()),
        "SELECT COUNT(*) FROM visits JOIN patients USING (patient_id) WHERE age < 18",
    ),
    "order and limit": (
        VISITS.group_by("ward").aggregate(n=_.count()).order_by(ibis.desc("n")).limit(2),
        "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward ORDER BY n DESC LIMIT 2",
    ),
    "having": (
        VISITS.group_by("ward").aggregate(n=_.count(), m=_.stay.mean()).filter(_.n > 5).filter(_.m > 2),
        "SELECT ward, COUNT(*) AS n, AVG(stay) AS m FROM visits GROUP BY ward HAVING n > 5 AND m > 2",
    ),
    "arithmetic": (
        VISITS.group_by("ward").aggregate(n=_.count(), u=_.urgent.sum()).mutate(share=_.u / _.n).drop("u"),
        "SELECT ward, COUNT(*) AS n, SUM(urgent) / COUNT(*) AS share FROM visits GROUP BY ward",
    ),
    "another order of columns": (
        VISITS.group_by("ward").aggregate(n=_.count())[["n", "ward"]],
        "SELECT COUNT(*), ward FROM visits GROUP BY ward",
    ),
    "some people": (
        VISITS.group_by("patient_id").aggregate(d=_.stay.sum()).filter(_.d > 3).aggregate(m=_.d.mean()),
        "SELECT AVG(d) FROM (SELECT patient_id, SUM(stay) AS d FROM visits GROUP BY patient_id "
        "HAVING SUM(stay) > 3) AS p",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("expression", "sql"), SAME.values(), ids=SAME)
def test_an_expression_of_steps_is_the_question_of_one_select(expression: Any, sql: str) -> None:
    catalog = clinic_catalog()
    assert digest(expression, catalog) == digest(sql, catalog)


def steps(random: Random) -> Any:
    """An expression of some steps over rows, and maybe groups with steps over them."""
    table: Any = VISITS
    if random.random() < 0.3:
        other: Any = random.choice((WARDS, PATIENTS))
        join: Callable[..., Any] = random.choice((table.join, table.left_join))
        table = join(other, "ward" if other is WARDS else "patient_id")
    for n in range(random.randint(0, 3)):
        numbers = [table[name] for name in table.columns if table[name].type().is_numeric()]
        first, second = random.choice(numbers), random.choice(numbers)
        table = random.choice((
            lambda t, a=first, b=second: t.filter((a > 2) | (b < 30)),
            lambda t, a=first: t.filter(a.notnull(), t.ward.isin(["A", "B"])),
            lambda t, a=first, b=second, n=n: t.mutate(**{f"x{n}": a - b * 2}),
            lambda t, a=first: t.mutate(stay=ibis.coalesce(a, 0) + 1),
            lambda t, a=first: t.select("patient_id", "ward", "urgent", stay=a, cost=t.cost),
            lambda t: t.rename(days="stay").rename(stay="days"),
        ))(table)  # fmt: skip
    wanted = {"n": table.count(), "s": table.stay.sum(), "u": table.stay.max(where=table.urgent)}
    keys = random.choice(((), ("ward",), ("ward", "urgent"), ("patient_id",)))
    table = table.group_by(list(keys)).aggregate(**wanted) if keys else table.aggregate(**wanted)
    for _round in range(random.randint(0, 3)):
        table = random.choice((
            lambda t: t.filter(t.n > 2),
            lambda t: t.mutate(r=t.s / (t.n + 1)),
            lambda t: t.order_by(ibis.desc("n"), "s", "u", *keys),
            lambda t: t.order_by("s", "n", "u", *keys).limit(3),
            lambda t: t.select(*keys, "s", "n", "u"),
        ))(table)  # fmt: skip
    if random.random() < 0.2:
        table = table.aggregate(m=table.s.sum(), k=table.count())
    return table


def test_duckdb_gives_the_same_rows(tmp_path: Path) -> None:
    """Of generated expressions: as ibis writes them, and merged."""
    write_clinic(tmp_path, *people(11, 40))
    with duckdb.connect() as engine:
        for name in ("visits", "patients"):
            engine.execute(f"CREATE VIEW {name} AS SELECT * FROM '{tmp_path / name}.parquet'")
        engine.execute(
            "CREATE TABLE wards AS FROM (VALUES ('A', 10, 'x'), ('B', 20, 'y')) AS t(ward, beds, kind)"
        )
        random, fewer = Random(5), 0
        for _round in range(60):
            text = str(ibis.to_sql(steps(random), dialect="duckdb"))
            tree = sqlglot.parse_one(text, read="duckdb")
            assert isinstance(tree, exp.Query)
            less = merged(tree).sql("duckdb")
            fewer += less.count("SELECT") < text.count("SELECT")
            rows = [engine.execute(sql).fetchall() for sql in (text, less)]
            ordered = [sorted(map(repr, found)) for found in rows]
            assert ordered[0] == ordered[1], f"{text}\n{less}"
            names = [
                [column[0] for column in engine.execute(sql).description or ()] for sql in (text, less)
            ]
            assert names[0] == names[1]
    assert fewer > 30


def test_the_mechanisms_get_the_same_numbers(tmp_path: Path) -> None:
    """Of generated expressions that are answered as ibis writes them, too."""
    write_clinic(tmp_path, *people(11, 14))
    catalog = roomy(clinic_catalog(tmp_path))
    reader = Reader.open(catalog.policy, KEY, catalog.public, threads=1)
    random, compared = Random(6), 0
    for _round in range(40):
        expression = steps(random)
        try:
            written = bind(str(ibis.to_sql(expression, dialect="duckdb")), catalog)
        except Refused:
            continue
        less = bind(expression, catalog)
        assert [output.name for output in less.outputs] == [output.name for output in written.outputs]
        for one, other in zip(reader.exact(less), reader.exact(written), strict=True):
            assert np.array_equal(one.values, other.values)
        compared += 1
    reader.close()
    assert compared >= 8


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM (SELECT * EXCLUDE (stay) FROM visits) AS t",
        "SELECT t.a FROM (SELECT 2 AS a, v.ward FROM visits AS v) AS t ORDER BY t.a",
        "SELECT a FROM (SELECT v.stay AS a FROM visits AS v) AS t",
        "SELECT t.a FROM (SELECT v.stay AS a FROM visits AS v LIMIT 3) AS t",
        "SELECT t.a FROM (SELECT DISTINCT v.stay AS a FROM visits AS v) AS t",
        "SELECT t.a FROM (SELECT stay FROM visits) AS t(a)",
        "SELECT t.n + SUM(t.n) FROM (SELECT COUNT(*) AS n FROM visits AS v GROUP BY v.ward) AS t "
        "GROUP BY t.n",
        "SELECT t.stay FROM (SELECT v.*, w.* FROM visits AS v, wards AS w) AS t",
        "SELECT t.stay FROM (SELECT * FROM visits AS v, wards AS w) AS t",
        "SELECT t.n FROM (SELECT COUNT(*) AS n FROM visits AS v GROUP BY ROLLUP (v.ward)) AS t",
        "SELECT t.a FROM (SELECT v.stay AS a FROM visits AS v) AS t WHERE t.a IN (SELECT beds FROM wards)",
        "SELECT t.a FROM (SELECT v.stay AS a FROM visits AS v) AS t "
        "QUALIFY ROW_NUMBER() OVER (ORDER BY t.a) = 1",
        "SELECT t.a, w.beds FROM (SELECT ward AS a FROM visits) AS t JOIN wards AS w ON t.a = w.ward",
        "SELECT 1 AS a FROM (SELECT COUNT(*) AS n FROM visits) AS t",
        "SELECT t.a AS b FROM (SELECT stay AS a, COUNT(*) AS stay FROM visits GROUP BY 1 "
        "HAVING stay > 5) AS t",
        "SELECT SUM(t.stay) FROM (SELECT *, stay + 1 AS stay FROM visits) AS t",
        "SELECT SUM(t.a) FROM (SELECT ROW_NUMBER() OVER (ORDER BY v.stay) AS a FROM visits AS v) AS t",
        "SELECT t.a FROM (SELECT v.*, SUM(v.stay) OVER () AS a FROM visits AS v) AS t WHERE t.a < 5",
    ],
)
def test_what_cannot_be_seen_through_stays(sql: str) -> None:
    tree = sqlglot.parse_one(sql, read="duckdb")
    assert isinstance(tree, exp.Query)
    assert merged(tree) == tree


def test_the_query_as_it_is_written_is_bound_for_what_earlier_versions_stored() -> None:
    catalog = clinic_catalog()
    question, sql = SAME["a filter"]
    now, before = bind_with_earlier(question, catalog)
    assert now == bind_with_text(question, catalog)
    assert before == bind_with_text(str(ibis.to_sql(question, dialect="duckdb")), catalog)
    assert before[1] != now[1]
    assert bind_with_earlier(sql, catalog) == (bind_with_text(sql, catalog),)
    steps = VISITS.group_by("ward").aggregate(n=_.count()).filter(_.n > 5)
    with pytest.raises(Refused):
        bind(str(ibis.to_sql(steps, dialect="duckdb")), catalog)
    assert bind_with_earlier(steps, catalog) == (bind_with_text(steps, catalog),)
