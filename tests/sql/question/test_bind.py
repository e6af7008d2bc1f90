"""What is asked: how far one person can move it, over which keys, with which columns."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from lapwing.sql.policy.kinds import Choice, Numeric, Text
from lapwing.sql.policy.policy import Column, UnitBy
from lapwing.sql.question.bound_query import BoundQuery, Computed, NoisyAggregate
from lapwing.sql.question.parse import normal_form, parse
from lapwing.sql.question.public_tables import PublicTable
from lapwing.sql.question.refusal import Refused
from lapwing.sql.question.relation import UNIT
from lapwing.sql.question.scope import Catalog
from support.cases import each
from support.clinic import asked, by_month, clinic_catalog
from support.evaluated import evaluated

CATALOG = clinic_catalog()
PER_PERSON = (
    "SELECT patient_id, COUNT(*) AS n, SUM(stay) AS s, AVG(stay) AS a FROM visits GROUP BY patient_id"
)
V_P = "visits v JOIN patients p ON v.patient_id = p.patient_id"


def keys_of(question: BoundQuery) -> list[int | None]:
    return [None if key.codes is None else len(key.codes) for key in question.keys]


GOOD: list[tuple[str, int, dict[str, int], list[int | None]]] = [
    ("SELECT COUNT(*) FROM visits", 5, {"rows": 5}, []),
    ("select count(1) from VISITS", 5, {"rows": 5}, []),
    ('SELECT COUNT("Stay") AS "N" FROM visits v', 5, {"known Stay": 5}, []),
    ("SELECT COUNT(patient_id) FROM visits", 5, {"rows": 5}, []),
    ("SELECT COUNT(DISTINCT patient_id) AS n FROM visits", 5, {"people": 1}, []),
    ("SELECT ward, COUNT(DISTINCT patient_id) AS n FROM visits GROUP BY ward", 5, {"people": 5}, [3]),
    ("SELECT COUNT(DISTINCT stay) AS n FROM visits", 5, {"distinct stay": 5}, []),
    ("SELECT SUM(stay) AS n FROM visits", 5, {"sum of stay": 300}, []),
    ("SELECT SUM(stay - 50) AS n FROM visits", 5, {"sum of stay": 250}, []),
    ("SELECT SUM(-stay) AS n FROM visits", 5, {"sum of stay": 300}, []),
    ("SELECT SUM(CASE WHEN ward = 'A' THEN 1 ELSE 0 END) AS n FROM visits", 5, {"sum of ward": 5}, []),
    ("SELECT SUM(stay) FILTER (WHERE ward = 'A') AS n FROM visits", 5, {"sum of stay": 300}, []),
    ("SELECT COUNT_IF(stay > 3) AS n FROM visits", 5, {"known rows": 5}, []),
    ("SELECT AVG(stay > 3) AS n FROM visits",
     5, {"sums of stay from its low end and from its high end": 5}, []),
    ("SELECT AVG(stay) AS n FROM visits",
     5, {"sums of stay from its low end and from its high end": 300}, []),
    ("SELECT AVG(stay) AS n, COUNT(stay) FROM visits",
     5, {"sum of stay around its middle": 150, "known stay": 5}, []),
    ("SELECT VARIANCE(stay) AS n FROM visits",
     5, {"sum of stay around its middle": 150, "known stay": 5, "squares of stay": 4500}, []),
    ("SELECT ward, urgent, COUNT(*) AS n FROM visits GROUP BY ALL", 5, {"rows": 5}, [3, 2]),
    ("SELECT ward AS w, COUNT(*) AS n FROM visits GROUP BY w ORDER BY n DESC, 1 LIMIT 2",
     5, {"rows": 5}, [3]),
    ("SELECT name, COUNT(*) AS n FROM visits GROUP BY 1", 5, {"rows": 5}, [None]),
    ("SELECT ward FROM visits GROUP BY ward", 5, {"people": 5}, [3]),
    ("SELECT FLOOR(stay / 7) AS w, COUNT(*) AS n FROM visits GROUP BY w", 5, {"rows": 5}, [9]),
    ("SELECT COUNT(*) AS n FROM visits HAVING n > 5 AND n IS NOT NULL", 5, {"rows": 5}, []),
    ("SELECT kind, COUNT(*) AS n FROM visits JOIN wards USING (ward) GROUP BY kind", 5, {"rows": 5}, [2]),
    ("SELECT COUNT(*) AS n FROM wards w JOIN visits v ON w.ward = v.ward AND beds > 5",
     5, {"rows": 5}, []),
    ("SELECT COUNT(*) AS n FROM visits v JOIN wards w ON v.ward = w.kind", 5, {"rows": 5}, []),
    ("SELECT COUNT(*) AS n FROM visits v JOIN wards w ON LOWER(v.name) = w.kind", 10, {"rows": 10}, []),
    ("SELECT SUM(beds) AS n FROM visits LEFT JOIN wards USING (ward)", 5, {"sum of beds": 150}, []),
    (f"SELECT COUNT(*) AS n FROM {V_P}", 5, {"rows": 5}, []),
    ("SELECT COUNT(*) AS n FROM visits a JOIN visits b USING (patient_id)", 25, {"rows": 25}, []),
    ("SELECT COUNT(*) AS n FROM visits a LEFT JOIN visits b ON a.patient_id = b.patient_id"
     " AND a.ward = b.ward",
     25, {"rows": 25}, []),
    ("SELECT COUNT(*) AS n FROM (SELECT stay FROM visits UNION ALL SELECT age FROM patients) x",
     6, {"rows": 6}, []),
    ("SELECT SUM(s) AS n FROM (SELECT stay AS s FROM visits UNION ALL SELECT -age FROM patients) x",
     6, {"sum of s": 720}, []),
    (f"SELECT SUM(n) AS n FROM ({PER_PERSON}) x", 1, {"sum of n": 5}, []),
    (f"SELECT SUM(s) AS n FROM ({PER_PERSON} HAVING n > 1) x", 1, {"sum of s": 300}, []),
    (f"SELECT SUM(a) AS n FROM ({PER_PERSON}) x", 1, {"sum of a": 60000}, []),
    ("SELECT SUM(s) AS n FROM (SELECT patient_id, ward, SUM(stay - 70) AS s FROM visits GROUP BY 1, 2) x",
     5, {"sum of s": 1750}, []),
    ("WITH p AS (SELECT * FROM visits), q AS (SELECT * FROM p WHERE stay > 3) SELECT COUNT(*) AS n FROM q",
     5, {"rows": 5}, []),
    ("SELECT ward, COUNT(*) AS n FROM visits GROUP BY GROUPING SETS ((ward), ())", 5, {"rows": 5}, [3]),
]  # fmt: skip


@each(("sql", "rows", "parts", "keys"), GOOD)
def test_a_question_comes_to_parts_with_known_reach(
    sql: str, rows: int, parts: dict[str, int], keys: list[int | None]
) -> None:
    found = asked(sql, CATALOG)
    assert found.rows == rows
    assert {part.label: part.l1 for part in found.parts} == parts
    squares = {part.l1 if part.label == "people" else part.l1**2 for part in found.parts}
    assert {part.l2_squared for part in found.parts} == squares
    assert keys_of(found) == keys


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT COUNT(*), SUM(stay) FROM visits", ["count(*)", "sum(stay)"]),
        ('SELECT WARD, COUNT(*) AS "How Many" FROM visits GROUP BY "Ward"', ["ward", "how many"]),
        ("SELECT ward AS w, COUNT(*) n FROM visits GROUP BY w", ["w", "n"]),
    ],
)
def test_columns_of_the_answer_have_names(sql: str, names: list[str]) -> None:
    assert [output.name for output in asked(sql, CATALOG).outputs] == names


def test_quantiles_and_extremes_share_a_spectrum() -> None:
    found = asked(
        "SELECT MEDIAN(stay), QUANTILE(stay, [0.25, 0.75]) AS q, MIN(stay), MAX(cost) FROM visits", CATALOG
    )
    assert [(one.label, one.rows) for one in found.spectra] == [("stay", 5), ("cost", 5)]
    names = [output.name for output in found.outputs]
    assert names == ["median(stay)", "q_0.25", "q_0.75", "min(stay)", "max(cost)"]
    within = asked("SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY stay) AS m FROM visits", CATALOG)
    assert isinstance(within.outputs[0].value, NoisyAggregate)
    assert within.outputs[0].value.fraction == Fraction(1, 2)


@pytest.mark.parametrize(
    "sql", ["VARIANCE(5)", "COVAR_POP(stay, 5)", "CORR(NULL + 5, stay)", "STDDEV(-2.5)", "CORR(2, 3)"]
)
def test_s13_moments_of_constants_do_not_reach_further_than_said(sql: str) -> None:
    """A part is a combination of sums: with every row at either end it moves by at most its reach."""
    found = asked(f"SELECT {sql} FROM visits", CATALOG)
    for part in found.parts:
        for stay in (None, 0, 60):
            sums = [_of_row(one.function, one.expression, stay) for one in found.sums]
            moved = sum(factor * sums[place] for factor, place in part.combination)
            assert abs(moved) * 5 <= part.l1, (part, stay)


def _of_row(function: str, expression: object, stay: int | None) -> int:
    value = evaluated(expression, {"stay": stay}) if function != "rows" else 1  # type: ignore[arg-type]
    return int(value is not None) if function in ("rows", "count") else int(value or 0)


def test_aggregates_that_share_a_part_pay_once() -> None:
    found = asked("SELECT AVG(stay), AVG(stay) * 2, COUNT(stay), SUM(stay) FROM visits", CATALOG)
    assert len(found.parts) == 3
    assert isinstance(found.outputs[1].value, Computed)


def test_grouping_sets() -> None:
    found = asked("SELECT ward, urgent, COUNT(*) FROM visits GROUP BY ROLLUP (ward, urgent)", CATALOG)
    assert found.sets == ((0, 1), (0,), ())
    cube = asked("SELECT COUNT(*) FROM visits GROUP BY CUBE (ward, urgent)", CATALOG)
    assert set(cube.sets) == {(0, 1), (0,), (1,), ()}
    assert asked("SELECT COUNT(*) FROM visits GROUP BY (ward, urgent)", CATALOG).sets == ((0, 1),)


def test_q1_declared_keys_are_all_answered_and_others_selected() -> None:
    assert keys_of(asked("SELECT ward, name, COUNT(*) FROM visits GROUP BY ward, name", CATALOG)) == [
        None,
        None,
    ]
    assert keys_of(asked("SELECT cost, COUNT(*) FROM visits GROUP BY cost", CATALOG)) == [1_000_001]
    assert keys_of(asked("SELECT cost, stay, COUNT(*) FROM visits GROUP BY 1, 2", CATALOG)) == [None, None]


def test_no_column_of_the_policy_can_be_taken_for_one_of_ours() -> None:
    """A computed column once got the name of a declared one, and so its values under other bounds."""
    for name in ("c1", "c2", "k0", "u"):
        found = asked(
            f"SELECT SUM(s) FROM (SELECT {name}, stay + 0 AS s FROM visits) x", _with_column(name)
        )
        names = [column for column, _ in found.source.columns]
        assert name in names
        assert len(names) == 2


def _with_column(name: str) -> Catalog:
    policy = CATALOG.policy
    visits = policy.tables["visits"]
    columns = {**visits.columns, name: Column(name, Numeric(Fraction(1), 0, 10**6))}
    return replace(
        CATALOG,
        policy=replace(policy, tables={**policy.tables, "visits": replace(visits, columns=columns)}),
    )


def test_a_public_column_cannot_be_called_like_the_unit() -> None:
    table = PublicTable("wards", {"ward": ["A"], UNIT: [1], "beds": [3]})
    with pytest.raises(Refused, match="there is no column"):
        asked(
            f"SELECT SUM(w.{UNIT}) FROM visits JOIN wards w USING (ward)",
            replace(CATALOG, public={"wards": table}),
        )


def test_a_key_into_another_table_is_not_the_unit() -> None:
    policy = CATALOG.policy
    patients = replace(policy.tables["patients"], unit=UnitBy("visit_id", "visits", "id"))
    catalog = replace(CATALOG, policy=replace(policy, tables={**policy.tables, "patients": patients}))
    assert asked("SELECT COUNT(DISTINCT patient_id) FROM patients", catalog).parts[0].label == "people"
    with pytest.raises(Refused, match='no column "visit_id"'):
        asked("SELECT COUNT(DISTINCT visit_id) FROM patients", catalog)


def test_fewer_rows_can_be_asked_for_never_more() -> None:
    assert asked("SELECT COUNT(*) FROM visits", replace(CATALOG, rows=2)).rows == 2
    assert asked("SELECT COUNT(*) FROM visits", replace(CATALOG, rows=9)).rows == 5


def test_periods_of_a_person_are_not_related() -> None:
    sliced = clinic_catalog(blocks=by_month())
    assert asked("SELECT COUNT(DISTINCT patient_id) FROM visits", sliced).rows == 5
    for sql in (f"SELECT COUNT(*) FROM {V_P}", f"SELECT SUM(n) FROM ({PER_PERSON}) x"):
        with pytest.raises(Refused, match="periods of rows"):
            asked(sql, sliced)


def test_x6_the_same_text_has_one_normal_form() -> None:
    texts = ["select  count(*) from visits -- how many?", "SELECT /* all */ COUNT(*)\nFROM visits;"]
    assert len({normal_form(parse(text)) for text in texts}) == 1


def test_joined_keys_of_public_tables_are_coded_as_the_private_ones() -> None:
    found = asked("SELECT COUNT(*) FROM visits v JOIN wards w ON v.stay = w.beds", CATALOG)
    assert found.rows == 5
    text = asked("SELECT COUNT(*) FROM visits v JOIN wards w ON v.name = w.ward", CATALOG)
    kinds = [kind for _, kind in text.source.columns]
    assert kinds.count(Text()) == 2
    assert Choice(("A", "B", "C", "D")) in kinds
