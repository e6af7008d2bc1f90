"""A small hospital: people with visits, on every engine, and the questions that are asked of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from lapwing.sql.policy.kinds import Choice, Moment, Numeric, Text, Truth
from lapwing.sql.policy.policy import BlockRule, CheckedPolicy, CheckedTable, Column, Source, UnitBy
from lapwing.sql.question.public_tables import PublicTable
from support.postgres import server
from support.spark import spark

ENGINES = ("duckdb", "postgres", "spark")  # the slow one last
FIRST_DAY, LAST_DAY = 20_089, 20_453  # 2025
VISITS = {
    "ward": Choice(("A", "B", "C")),
    "stay": Numeric(Fraction(1), 0, 60),
    "cost": Numeric(Fraction(1, 100), -500, 100_000),
    "admitted": Moment(86400, FIRST_DAY, LAST_DAY),
    "urgent": Truth(),
    "name": Text(),
}
PATIENTS = {"sex": Choice(("f", "m")), "age": Numeric(Fraction(1), 0, 120)}
_VISIT_TYPES = (
    "who text, ward text, stay int, cost double precision, admitted date, urgent boolean, name text"
)
WARDS = PublicTable(
    "wards", {"ward": ["A", "B", "B", "Z"], "region": ["n", "s", "n", "s"], "beds": [10, 20, 30, 5]}
)

QUESTIONS = (
    "SELECT COUNT(*) FROM visits",
    "SELECT ward, COUNT(*), SUM(stay), AVG(cost) FROM visits GROUP BY ward",
    "SELECT COUNT(DISTINCT who), COUNT(DISTINCT name), COUNT(stay) FROM visits WHERE stay > 3",
    "SELECT ward, COUNT(DISTINCT who) FROM visits GROUP BY ward",
    "SELECT name, COUNT(*), SUM(cost) FROM visits GROUP BY name",
    "SELECT ward, name, COUNT(DISTINCT who) FROM visits GROUP BY ward, name",
    "SELECT VARIANCE(stay), STDDEV(cost), CORR(stay, cost), COVAR_POP(stay, cost) FROM visits",
    "SELECT urgent, MEDIAN(stay), QUANTILE(cost, [0.1, 0.9]), MAX(admitted) FROM visits GROUP BY urgent",
    "SELECT region, COUNT(*), AVG(beds * stay) FROM visits JOIN wards USING (ward) GROUP BY region",
    "SELECT region, COUNT(*) FROM visits LEFT JOIN wards ON visits.ward = wards.ward GROUP BY region",
    "SELECT sex, COUNT(*), AVG(age + stay) FROM visits v JOIN patients p ON v.who = p.who GROUP BY sex",
    "SELECT a.ward, COUNT(*) FROM visits a JOIN visits b ON a.who = b.who AND a.ward = b.ward GROUP BY 1",
    "SELECT sex, COUNT(*), SUM(stay) FROM patients p LEFT JOIN visits v ON p.who = v.who GROUP BY sex",
    "WITH p AS (SELECT who, COUNT(*) AS n, SUM(stay) AS s, AVG(cost) AS c, MAX(stay) AS m FROM visits "
    "GROUP BY who HAVING COUNT(*) > 1) SELECT COUNT(*), AVG(n), AVG(s), SUM(c), MEDIAN(m) FROM p",
    "WITH p AS (SELECT who, ward, COUNT(DISTINCT name) AS n FROM visits GROUP BY who, ward) "
    "SELECT ward, SUM(n), COUNT(*) FROM p GROUP BY ward",
    "SELECT COUNT(*), SUM(x) FROM (SELECT stay AS x FROM visits UNION ALL SELECT age FROM patients) u",
    "SELECT ward, urgent, COUNT(*) FROM visits GROUP BY ROLLUP (ward, urgent)",
    "SELECT DATE_TRUNC('month', admitted) AS m, COUNT(*) FROM visits GROUP BY m",
    "SELECT EXTRACT(isodow FROM admitted), FLOOR(stay / 7), COUNT(*) FROM visits GROUP BY 1, 2",
    "SELECT CASE WHEN stay < 7 THEN 'few' WHEN stay > 6 THEN 'lot' END, AVG(urgent) FROM visits GROUP BY 1",
    "SELECT COUNT(*) FROM visits WHERE name LIKE 'n%' AND LOWER(name) <> 'n1' AND LENGTH(TRIM(name)) < 9",
    "SELECT SUM(CLAMP(CAST(name AS INTEGER), -5, 5)), COUNT_IF(ward = 'A' OR urgent) FROM visits",
    "SELECT SUM(ROUND(cost / stay, 1)), SUM(stay % 7 + ABS(cost) // 3), SUM(LEAST(stay, 9)) FROM visits",
    "SELECT SUM(stay) FILTER (WHERE NOT urgent), COUNT(*) FILTER (WHERE ward IN ('A', 'B')) FROM visits",
    "SELECT ward, AVG(cost), AVG(stay > 3), COUNT(DISTINCT who) FROM visits GROUP BY ROLLUP (ward)",
    "SELECT name, AVG(stay) FROM visits GROUP BY name ORDER BY AVG(stay) LIMIT 3",
)


@dataclass(frozen=True)
class Hospital:
    """Rows by person. Some ids differ in spaces or capitals only, on purpose: see `id_of`."""

    visits: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    patients: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def without(self, person: str) -> Hospital:
        return Hospital(
            {name: rows for name, rows in self.visits.items() if name != person},
            {name: rows for name, rows in self.patients.items() if name != person},
        )


def id_of(person: str) -> str:
    """The id of a person p0, p1, …: all of p0 to p5 have the same one, but for spaces and capitals."""
    odd = ("Ab b", "aB b", "ab b", " ab b", "ab b ", "ab  b")
    number = person.removeprefix("p")
    return odd[int(number)] if number.isdigit() and int(number) < len(odd) else person


def invented(seed: int, *, people: int = 9, most: int = 14) -> Hospital:
    """Somebody has many rows, most have few; values are missing, beyond bounds, or odd."""
    dice = random.Random(seed)
    names = [f"p{n}" for n in range(people)]

    def visit(who: str) -> dict[str, Any]:
        odd = dice.random() < 0.1
        return {
            "who": id_of(who),
            "ward": dice.choice(["A", "B", "C", "C", "other", None]),
            "stay": dice.choice([None, -4, 900]) if odd else dice.randrange(0, 40),
            "cost": dice.choice([None, float("nan"), float("inf"), -1e300])
            if odd
            else dice.uniform(-9, 900),
            "admitted": None if odd else date(2025, 1, 1) + timedelta(days=dice.randrange(-5, 370)),
            "urgent": dice.choice([True, False, None]),
            "name": dice.choice(["n1", "N1", "", "7", "-12", "it's \\ %", "é", None]),
        }

    counts = [most, *(dice.randrange(0, 7) for _ in names[1:])]
    visits = {name: [visit(name) for _ in range(n)] for name, n in zip(names, counts, strict=True)}
    patients = {
        name: [
            {"who": id_of(name), "sex": dice.choice(["f", "m", "x"]), "age": dice.randrange(0, 130)}
            for _ in range(1 + (dice.random() < 0.3))
        ]
        for name in names
    }
    visits["nobody"] = [{**visit("x"), "who": nobody} for nobody in (None, "", "  ")]
    return Hospital(visits, patients)


def tables_of(hospital: Hospital, order: random.Random) -> tuple[pa.Table, pa.Table]:
    """The rows in some order."""
    visits = [row for rows in hospital.visits.values() for row in rows]
    patients = [row for rows in hospital.patients.values() for row in rows]
    order.shuffle(visits)
    order.shuffle(patients)
    days, texts = pa.date32(), pa.string()
    schema = pa.schema(
        [("who", texts), ("ward", texts), ("stay", pa.int32()), ("cost", pa.float64()), ("admitted", days),
         ("urgent", pa.bool_()), ("name", texts)]
    )  # fmt: skip
    people = pa.schema([("who", texts), ("sex", texts), ("age", pa.int32())])
    return pa.Table.from_pylist(visits, schema), pa.Table.from_pylist(patients, people)


def policy_for(
    hospital: Hospital,
    engine: str,
    folder: Path,
    *,
    order: int = 0,
    rows: int = 3,
    blocks: BlockRule | None = None,
    folds_ids: bool = False,
) -> CheckedPolicy:
    """The hospital's rows on an engine, in some order, and their policy."""
    folder.mkdir(parents=True, exist_ok=True)
    visits, patients = tables_of(hospital, random.Random(order))
    sources = _stored(engine, folder, {"visits": visits, "patients": patients})
    kinds: tuple[tuple[str, dict[str, Any], int], ...] = (
        ("visits", VISITS, rows),
        ("patients", PATIENTS, 1),
    )
    tables = {
        name: CheckedTable(
            name,
            sources[name],
            {one: Column(one, kind) for one, kind in columns.items()},
            UnitBy("who"),
            most,
        )
        for name, columns, most in kinds
    }
    if blocks is not None and blocks.by == "row":
        del tables["patients"]
    (folder / "wards.csv").write_text("ward,region,beds\nA,n,10\nB,s,20\nB,n,30\nZ,s,5\n")
    public = CheckedTable("wards", Source("duckdb", str(folder / "wards.csv"), "", "csv"), {}, None, 1)
    return CheckedPolicy(
        folder / f"{engine}.toml", f"hospital_{uuid4().hex[:8]}", Fraction(100), Fraction(1, 10**6),
        Fraction(1, 10**9), {**tables, "wards": public}, blocks, str(folder / "h.ledger"), {},
        "person-period" if blocks is not None and blocks.by == "row" else "person", folds_ids=folds_ids,
        ledger_registry=str(folder / "registry"),  # neighbours are compared: they hold the same people
    )  # fmt: skip


def _stored(engine: str, folder: Path, tables: dict[str, pa.Table]) -> dict[str, Source]:
    if engine == "postgres":
        return _in_postgres(tables)
    found = {}
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
        path = str(folder / f"{name}.parquet")
        found[name] = Source("duckdb", path, "", "parquet")
        if engine == "spark":
            spark()  # the session that all tests share
            found[name] = Source("spark", "", path, "spark-parquet")
    return found


def _in_postgres(tables: dict[str, pa.Table]) -> dict[str, Source]:
    schema = f"hospital_{uuid4().hex[:8]}"
    types = {"visits": _VISIT_TYPES, "patients": "who text, sex text, age int"}
    with psycopg.connect(server()) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {schema}")
        for name, table in tables.items():
            cursor.execute(f"CREATE TABLE {schema}.{name} ({types[name]})")
            rows = [tuple(row.values()) for row in table.to_pylist()]
            marks = ", ".join(["%s"] * table.num_columns)
            if rows:
                cursor.executemany(f"INSERT INTO {schema}.{name} VALUES ({marks})", rows)
    return {name: Source("postgres", server(), f"{schema}.{name}", "postgres") for name in tables}
