"""Questions as SQL: what is written, and that it runs and counts right on DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lapwing.engines.dialects import DuckDbDialect
from lapwing.sql.policy.kinds import Choice, Kind, Numeric, Person, Text, Truth
from lapwing.sql.question.bound_query import BoundQuery, Key, Spectrum, Sum
from lapwing.sql.question.expression import Apply, Expression, Op, Reference
from lapwing.sql.question.relation import (
    UNIT,
    Filter,
    Join,
    PerUnit,
    Project,
    PublicScan,
    Relation,
    Scan,
    UnionAll,
)
from lapwing.sql.question.typed_expressions import added, multiplied, number
from lapwing.sql.reading.open_sources import open_sources
from lapwing.sql.reading.render import public_table_name, render, truncated_name, with_truncated
from support.private_tables import coded, policy_of, store, table_of, whole

WARD, STAY, COST = Choice(("A", "B", "C")), whole(0, 60), Numeric(whole(0, 1).step, 0, 100_000)
COLUMNS: dict[str, Kind] = {"ward": WARD, "stay": STAY, "cost": COST, "note": Text(), "open": Truth()}
VISITS = Scan("visits", tuple(COLUMNS.items()), 5)
OTHERS = Project(VISITS, (("ward2", Reference("ward", WARD)), ("stay2", Reference("stay", STAY))))
WARDS = PublicScan("wards", (("name", WARD), ("beds", whole(0, 99))), ("name", "beds"))
SHIPPED = public_table_name(WARDS)


def ref(name: str) -> Expression:
    return Reference(name, COLUMNS[name])


def question(
    source: Relation, *sums: Sum, keys: tuple[Expression, ...] = (), declared: bool = True,
    spectra: tuple[Spectrum, ...] = (),
) -> BoundQuery:  # fmt: skip
    named = tuple(Key(f"key{n}", key, range(3) if declared else None) for n, key in enumerate(keys))
    return BoundQuery(source, named, (tuple(range(len(keys))),), sums or (Sum("rows"),), (), spectra, (), 5)


def equals(name: str, code: int) -> Expression:
    return Apply(Op.EQ, (ref(name), number(code)), Truth())


BEDS = Reference("beds", whole(0, 99))
PEOPLE = PerUnit(
    VISITS,
    (("key", Reference(UNIT, Person())),),
    (("total", "sum", ref("cost"), whole(0, 500_000)), ("n", "rows", None, whole(0, 5))),
)
CASES: dict[str, tuple[BoundQuery, str]] = {
    "rows": (
        question(VISITS),
        "SELECT count(*) AS s0 FROM visits AS t0 WHERE t0.lapwing_rank <= 5",
    ),
    "sums by declared key": (
        question(
            VISITS, Sum("rows"), Sum("sum", ref("stay")), Sum("count", ref("stay")), keys=(ref("ward"),)
        ),
        'SELECT t0."ward" AS k0, count(*) AS s0, coalesce(CAST(sum(t0."stay") AS BIGINT), 0) AS s1,'
        ' count(t0."stay") AS s2 FROM visits AS t0'
        ' WHERE t0.lapwing_rank <= 5 GROUP BY 1',
    ),
    "squares in two bytes": (
        question(VISITS, Sum("sum", multiplied(ref("stay"), ref("stay")))),
        'SELECT coalesce(CAST(sum((TRY_CAST(t0."stay" AS SMALLINT) * TRY_CAST(t0."stay" AS SMALLINT))) AS'
        " BIGINT), 0) AS s0 FROM visits AS t0 WHERE t0.lapwing_rank <= 5",
    ),
    "squares in eight bytes": (
        question(VISITS, Sum("sum", multiplied(ref("cost"), ref("cost")))),
        'SELECT CAST(coalesce(sum((TRY_CAST(t0."cost" AS BIGINT) * TRY_CAST(t0."cost" AS BIGINT))), 0) AS'
        " decimal(38, 0)) AS s0 FROM visits AS t0 WHERE t0.lapwing_rank <= 5",
    ),
    "people by a key that is selected": (
        question(VISITS, Sum("units"), keys=(ref("note"),), declared=False),
        'SELECT t0."note" AS k0, count(DISTINCT t0.lapwing_unit) AS s0, count(DISTINCT t0.lapwing_unit) AS'
        ' units FROM visits AS t0 WHERE t0.lapwing_rank <= 5 GROUP BY 1',
    ),
    "a truth as key, distinct values": (
        question(VISITS, Sum("distinct", ref("ward")), keys=(ref("open"),)),
        'SELECT TRY_CAST(t0."open" AS SMALLINT) AS k0, count(DISTINCT t0."ward") AS s0 FROM visits AS t0'
        ' WHERE t0.lapwing_rank <= 5 GROUP BY 1',
    ),
    "filters": (
        question(Filter(VISITS, Apply(Op.AND, (equals("stay", 3), ref("open")), Truth()))),
        'SELECT count(*) AS s0 FROM visits AS t0 WHERE t0.lapwing_rank <= 5 AND (t0."stay" = 3)'
        ' AND t0."open"',
    ),
    "blocks in a row": (
        question(replace(VISITS, blocks=(4, 2, 3))),
        "SELECT count(*) AS s0 FROM visits AS t0 WHERE t0.lapwing_rank <= 5"
        " AND (t0.lapwing_block BETWEEN 2 AND 4)",
    ),
    "blocks here and there": (
        question(replace(VISITS, blocks=(1, 5))),
        "SELECT count(*) AS s0 FROM visits AS t0 WHERE t0.lapwing_rank <= 5"
        " AND (t0.lapwing_block IN (1, 5))",
    ),
    "no blocks": (
        question(replace(VISITS, blocks=())),
        "SELECT count(*) AS s0 FROM visits AS t0 WHERE t0.lapwing_rank <= 5 AND (1 = 0)",
    ),
    "renamed columns need no sub-query": (
        question(OTHERS, Sum("sum", Reference("stay2", STAY))),
        'SELECT coalesce(CAST(sum(t0."stay") AS BIGINT), 0) AS s0 FROM visits AS t0'
        " WHERE t0.lapwing_rank <= 5",
    ),
    "computed columns": (
        question(
            Project(VISITS, (("x", added(ref("stay"), number(1))), ("y", ref("cost")))),
            Sum("sum", Reference("x", whole(1, 61))),
        ),
        "SELECT coalesce(CAST(sum(t1.c0) AS BIGINT), 0) AS s0 FROM (SELECT t0.lapwing_unit AS u,"
        ' (TRY_CAST(t0."stay" AS SMALLINT) + 1) AS c0 FROM visits AS t0 WHERE t0.lapwing_rank <= 5) AS t1',
    ),
    "a public join": (
        question(Join(VISITS, WARDS, (("ward", "name"),), False, 1), Sum("sum", BEDS)),
        f'SELECT coalesce(CAST(sum(t2."beds") AS BIGINT), 0) AS s0 FROM (SELECT t0.lapwing_unit AS u,'
        f' t0."ward" AS c0 FROM visits AS t0 WHERE t0.lapwing_rank <= 5) AS t1 INNER JOIN "{SHIPPED}" AS t2'
        ' ON t1.c0 = t2."name"',
    ),
    "a private join": (
        question(Join(VISITS, OTHERS, (("ward", "ward2"),), True, 1), Sum("units")),
        'SELECT count(DISTINCT t1.u) AS s0 FROM (SELECT t0.lapwing_unit AS u, t0."ward" AS c0'
        " FROM visits AS t0 WHERE t0.lapwing_rank <= 5) AS t1 LEFT JOIN (SELECT t2.lapwing_unit AS u,"
        ' t2."ward" AS c0 FROM visits AS t2 WHERE t2.lapwing_rank <= 5) AS t3'
        " ON t1.u = t3.u AND t1.c0 = t3.c0",
    ),
    "a union": (
        question(UnionAll((VISITS, replace(VISITS, rows=2))), Sum("sum", ref("stay"))),
        "SELECT coalesce(CAST(sum(t2.c0) AS BIGINT), 0) AS s0"
        ' FROM (SELECT t0.lapwing_unit AS u, t0."stay" AS c0 FROM visits AS t0 WHERE t0.lapwing_rank <= 5'
        ' UNION ALL SELECT t1.lapwing_unit AS u, t1."stay" AS c0 FROM visits AS t1'
        " WHERE t1.lapwing_rank <= 2) AS t2",
    ),
    "people first": (
        question(PEOPLE, Sum("sum", Reference("total", whole(0, 500_000))), Sum("units")),
        "SELECT coalesce(CAST(sum(t1.c0) AS BIGINT), 0) AS s0, count(*) AS s1"
        ' FROM (SELECT t0.lapwing_unit AS u, CASE WHEN count(t0."cost") > 0'
        ' THEN TRY_CAST(coalesce(CAST(sum(t0."cost") AS BIGINT), 0) AS INTEGER) END AS c0'
        " FROM visits AS t0 WHERE t0.lapwing_rank <= 5 GROUP BY 1) AS t1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_statements_are_plain(name: str) -> None:
    asked, sql = CASES[name]
    assert render(asked, {"visits": "visits"}, DuckDbDialect(), by_row=False).sums == (sql,)


def test_sets_and_spectra_have_statements_of_their_own() -> None:
    spectrum = Spectrum("stay", ref("stay"), STAY, 5)
    asked = replace(
        question(VISITS, keys=(ref("ward"), ref("open")), spectra=(spectrum,)), sets=((0, 1), (1,), ())
    )
    found = render(asked, {"visits": "visits"}, DuckDbDialect(), by_row=False)
    assert len(found.sums) == 3
    assert found.sums[2] == "SELECT count(*) AS s0 FROM visits AS t0 WHERE t0.lapwing_rank <= 5"
    assert found.spectra[0][1] == (
        'SELECT TRY_CAST(t0."open" AS SMALLINT) AS k0, t0."stay" AS code, count(*) AS n FROM visits AS t0'
        ' WHERE t0.lapwing_rank <= 5 AND t0."stay" IS NOT NULL GROUP BY 1, 2'
    )


def test_where_rows_are_sliced_a_unit_is_a_person_in_one_period() -> None:
    scans, spelling = {"visits": "visits"}, DuckDbDialect()
    (joined,) = render(CASES["a private join"][0], scans, spelling, by_row=True).sums
    assert "ON t1.u = t3.u AND t1.b = t3.b AND t1.c0 = t3.c0" in joined
    (people,) = render(CASES["people first"][0], scans, spelling, by_row=True).sums
    assert "t0.lapwing_block AS b" in people
    assert "GROUP BY 1, 2" in people
    assert "count(DISTINCT t1.u) AS s1" in people


# On DuckDB. Person 1 has seven rows (of which five count), 2 has two, 3 has one without a ward.
ROWS: dict[str, list[Any]] = {
    "who": [1] * 7 + [2, 2, 3],
    "ward": ["A"] * 7 + ["A", "B", None],
    "stay": [2] * 7 + [3, 4, None],
    "cost": [10] * 7 + [100, 100_000, 1],
    "note": ["x"] * 7 + ["it's", "x", None],
    "open": [True] * 7 + [False, None, True],
}
Ask = Callable[[BoundQuery], list[dict[str, Any]]]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    policy = policy_of(tmp_path, table_of(store(tmp_path / "v.parquet", ROWS), COLUMNS))
    opened = open_sources(policy)
    opened.engine.ship(SHIPPED, pa.table({"name": [0, 1, None], "beds": [10, 20, 30]}))
    sql = coded(policy, "visits", opened)
    spelling = opened.engine.dialect

    def asked(one: BoundQuery) -> list[dict[str, Any]]:
        (statement,) = render(
            one, {"visits": spelling.name(truncated_name("visits"))}, spelling, by_row=False
        ).sums
        assert "2147483647" not in statement  # nothing of the hash is in what plans show
        found = opened.engine.run(with_truncated(statement, {"visits": sql}, spelling))
        known = [row for row in found.to_pylist() if row.get("k0", 0) is not None]  # as `lay_out` does it
        return sorted(known, key=repr)

    yield asked
    opened.engine.close()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rows", [(8,)]),
        ("sums by declared key", [(0, 6, 13, 6), (1, 1, 4, 1)]),
        ("squares in two bytes", [(5 * 4 + 9 + 16,)]),
        ("squares in eight bytes", [(5 * 100 + 10_000 + 10**10 + 1,)]),
        ("people by a key that is selected", [("it's", 1, 1), ("x", 2, 2)]),
        ("a truth as key, distinct values", [(0, 1), (1, 1)]),
        ("filters", [(0,)]),
        ("computed columns", [(10 + 3 + 4 + 7,)]),
        ("a public join", [(6 * 10 + 20,)]),
        ("a private join", [(3,)]),
        ("a union", [(10 + 7 + 4 + 7,)]),
        ("people first", [(50 + 100_100 + 1, 3)]),
    ],
)
def test_statements_count_right(ask: Ask, name: str, expected: list[tuple[object, ...]]) -> None:
    assert [tuple(row.values()) for row in ask(CASES[name][0])] == expected


def test_a_unit_with_nothing_known_has_no_sum(ask: Ask) -> None:
    people = PerUnit(
        VISITS,
        (("ward", ref("ward")),),
        (
            ("total", "sum", ref("stay"), whole(0, 300)),
            ("known", "count", ref("stay"), whole(0, 5)),
            ("least", "min", ref("open"), Truth()),
            ("most", "max", ref("note"), Text()),
            ("wards", "distinct", ref("ward"), whole(0, 5)),
        ),
    )
    total = Reference("total", whole(0, 300))
    found = ask(
        question(
            people,
            Sum("rows"), Sum("count", total), Sum("sum", total), Sum("units"),
            Sum("sum", Reference("known", whole(0, 5))), Sum("sum", Reference("least", Truth())),
            Sum("count", Reference("most", Text())), Sum("sum", Reference("wards", whole(0, 5))),
        )
    )  # fmt: skip
    assert [tuple(row.values()) for row in found] == [(4, 3, 17, 3, 7, 2, 3, 3)]


def test_long_names_stay_within_what_engines_keep() -> None:
    assert truncated_name("visits") == "the truncated table visits"
    assert len({truncated_name("t" * 60 + end) for end in "ab"}) == 2
    assert len(truncated_name("t" * 63)) <= 63


def test_shipped_names_differ_with_what_is_shipped() -> None:
    others = [replace(WARDS, sources=("beds", "name")), replace(WARDS, table="rooms"), WARDS]
    assert len({public_table_name(scan) for scan in others}) == 3
