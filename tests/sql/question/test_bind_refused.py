"""What is refused: which construct, where it stands, what to write instead, and always in time."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random

import pytest

from lapwing.errors import BadParameter
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.refusal import Refused
from support.cases import each
from support.clinic import asked, clinic_catalog
from support.slowly import slow
from support.sql_grammar import question

CATALOG = clinic_catalog()
MUCH_TEXT = replace(CATALOG, policy=replace(CATALOG.policy, text_per_unit=10**6, steps_per_unit=10**6))
PEOPLE = "different people"
SUB = "SELECT COUNT(*) FROM (SELECT"

BAD: list[tuple[str, str, str]] = [  # text, construct, instead
    # Case Q2: rows are never shown
    ("SELECT * FROM visits", "rows are never shown", "COUNT"),
    ("SELECT stay FROM visits", '"stay" is neither grouped nor aggregated', "Group by it"),
    ("SELECT stay, COUNT(*) FROM visits", '"stay" is neither grouped nor aggregated', "Group by it"),
    ("SELECT DISTINCT ward FROM visits", "SELECT DISTINCT", "GROUP BY ward"),
    ("SELECT 1 FROM visits", "no aggregate", "COUNT"),
    ("FROM visits", "rows are never shown", "COUNT"),
    ("SELECT patient_id, COUNT(*) FROM visits GROUP BY patient_id", "grouped by the unit", "sub-query"),
    ("SELECT MAX(patient_id) FROM visits", "the unit can only be counted", "COUNT"),
    # Case Q8: functions that show values
    ("SELECT ANY_VALUE(name) FROM visits", "ANY_VALUE", "Use COUNT"),
    ("SELECT FIRST(name) FROM visits", "FIRST", "Use COUNT"),
    ("SELECT LIST(name) FROM visits", "ARRAY_AGG", "Use COUNT"),
    ("SELECT STRING_AGG(name, ',') FROM visits", "GROUP_CONCAT", "Use COUNT"),
    ("SELECT MODE(name) FROM visits", "MODE", "Use COUNT"),
    ("SELECT MODE() WITHIN GROUP (ORDER BY stay) FROM visits", "MODE", "QUANTILE"),
    ("SELECT ARG_MAX(name, stay) FROM visits", "ARG_MAX", "Use COUNT"),
    ("SELECT HISTOGRAM(stay) FROM visits", "HISTOGRAM", "There are ABS"),
    ("SELECT MAX(name) FROM visits", "need numbers or times", "bounds"),
    ("SELECT SUM(DISTINCT stay) FROM visits", "DISTINCT is not possible in SUM", "Leave it out"),
    # Case Q9: one statement, one SELECT
    ("SELECT COUNT(*) FROM visits; SELECT COUNT(*) FROM visits", "several statements", "one SELECT"),
    ("DROP TABLE visits", "only SELECT", "Write one SELECT"),
    ("COPY visits TO 'x.csv'", "only SELECT", "Write one SELECT"),
    ("ATTACH 'x.db'", "only SELECT", "Write one SELECT"),
    ("SET enable_external_access = true", "only SELECT", "Write one SELECT"),
    ("PRAGMA database_list", "only SELECT", "Write one SELECT"),
    ("EXPLAIN ANALYZE SELECT COUNT(*) FROM visits", "only SELECT", "Write one SELECT"),
    ("SELECT COUNT(*) FROM visits WHERE name = 'x", "cannot be read", "missing"),
    ("SELECT AVG(alter) FROM visits", "cannot be read", 'column, write it in quotes: "alter"'),
    ("", "no query", "SELECT"),
    ("-- nothing", "cannot be read|several statements|no question", ""),
    ("SELECT COUNT(*) FROM visits UNION ALL SELECT 1", "UNION of several answers", "one query"),
    # S5: no bounds
    ("SELECT SUM(name) FROM visits", "a text is not a number", "bounds"),
    ("SELECT SUM(CAST(name AS INT)) FROM visits", "without bounds", "CLAMP"),
    ("SELECT SUM(LENGTH(name)) FROM visits", "without bounds", "CLAMP"),
    ("SELECT SUM(diagnosis) FROM visits", '"diagnosis" is not declared', "curator"),
    ("SELECT SUM(stay * stay * cost * cost * cost) FROM visits", "too large", "bounds"),
    # Rows of different people
    ("SELECT COUNT(*) FROM visits WHERE stay IN (SELECT 1)", PEOPLE, "List the values, or join"),
    ("SELECT COUNT(*) FROM visits WHERE stay > (SELECT AVG(stay) FROM visits)", PEOPLE, "Join"),
    ("SELECT COUNT(*) FROM visits WHERE EXISTS (SELECT 1 FROM patients)", PEOPLE, "Join"),
    ("SELECT SUM(ROW_NUMBER() OVER ()) FROM visits", "a window function", "Group a sub-query"),
    ("SELECT COUNT(*) OVER () FROM visits", "a window function", ""),
    ("SELECT COUNT(*) FROM visits QUALIFY ROW_NUMBER() OVER () = 1", "QUALIFY", "Leave it out"),
    (f"{SUB} DISTINCT stay FROM visits) x", PEOPLE, "GROUP BY"),
    (f"{SUB} DISTINCT ON (ward) stay FROM visits) x", PEOPLE, "GROUP BY"),
    (f"{SUB} stay FROM visits ORDER BY stay LIMIT 1) x", PEOPLE, "last SELECT"),
    (f"{SUB} stay FROM visits LIMIT 1) x", PEOPLE, "last SELECT"),
    (f"{SUB} stay FROM visits UNION SELECT stay FROM visits) x", PEOPLE, "UNION ALL"),
    (f"{SUB} stay FROM visits EXCEPT SELECT stay FROM visits) x", "EXCEPT", "UNION ALL"),
    (f"{SUB} stay FROM visits INTERSECT SELECT stay FROM visits) x", "INTERSECT", "UNION ALL"),
    (f"{SUB} ward, COUNT(*) FROM visits GROUP BY ward) x", PEOPLE, "Group it by the unit"),
    (f"{SUB} COUNT(*) AS n FROM visits) x", PEOPLE, "Group it by the unit"),
    ("WITH RECURSIVE r AS (SELECT stay FROM visits) SELECT COUNT(*) FROM r", "RECURSIVE", "CTE"),
    ("SELECT COUNT(*) FROM visits TABLESAMPLE 10%", "SAMPLE", "Leave it out"),
    ("SELECT COUNT(*) FROM visits USING SAMPLE 5", "SAMPLE", "Leave it out"),
    ("SELECT COUNT(*) FROM visits PIVOT (SUM(stay) FOR ward IN ('A'))", "PIVOT", "Leave it out"),
    ("SELECT COUNT(*) FROM visits, LATERAL (SELECT 1) x", "LATERAL|a join has no keys", ""),
    # S9: joins
    ("SELECT COUNT(*) FROM visits, patients", "a join has no keys", "ON a.key = b.key"),
    ("SELECT COUNT(*) FROM visits CROSS JOIN patients", "CROSS JOIN", "Use JOIN"),
    ("SELECT COUNT(*) FROM visits NATURAL JOIN patients", "METHOD", "Leave it out"),
    ("SELECT COUNT(*) FROM visits v FULL JOIN patients p USING (patient_id)", "FULL JOIN", "Use JOIN"),
    ("SELECT COUNT(*) FROM visits v RIGHT JOIN patients p USING (patient_id)", "RIGHT JOIN", "Use JOIN"),
    ("SELECT COUNT(*) FROM visits v SEMI JOIN patients p USING (patient_id)", "SEMI JOIN", "Use JOIN"),
    ("SELECT COUNT(*) FROM visits v JOIN patients p ON v.stay = p.age", "other than the unit", "a.unit"),
    ("SELECT COUNT(*) FROM visits v JOIN patients p ON v.patient_id = p.patient_id OR TRUE", "unit", ""),
    ("SELECT COUNT(*) FROM visits v JOIN patients p ON v.patient_id = v.patient_id", "unit", ""),
    ("SELECT COUNT(*) FROM visits v JOIN patients p ON v.patient_id = p.age", "unit is joined",
     "to the unit"),
    ("SELECT COUNT(*) FROM visits v JOIN wards w ON v.patient_id = w.ward", "unit is joined",
     "to the unit"),
    ("SELECT COUNT(*) FROM visits v JOIN wards w ON v.stay = w.ward", "different types", "same type"),
    ("SELECT COUNT(*) FROM visits v JOIN wards w ON v.ward > w.ward", "without a key", "ON"),
    ("SELECT COUNT(*) FROM visits v JOIN wards w ON v.ward = LOWER(w.ward)", "computed", "column"),
    ("SELECT COUNT(*) FROM wards w LEFT JOIN visits v USING (ward)", "optional side", "Put it first"),
    ("SELECT COUNT(*) FROM visits v LEFT JOIN wards w ON v.ward = w.ward AND w.beds > 3", "LEFT JOIN",
     "Filter"),
    ("SELECT COUNT(p.patient_id) FROM visits v LEFT JOIN patients p ON v.patient_id = p.patient_id",
     'no column "patient_id"', ""),
    ("SELECT COUNT(*) FROM wards", "no private table", "public"),
    ("SELECT COUNT(*) FROM visits v JOIN visits v USING (patient_id)", 'two tables are called "v"', "AS"),
    # E2, E9, X1, X2, X3: what engines would run
    ("SELECT COUNT(*) FROM read_csv('x')", "READ_CSV", "table of the policy"),
    ("SELECT COUNT(*) FROM 'f.csv'", 'no table "f.csv"', "Known are"),
    ("SELECT COUNT(*) FROM query('SELECT 1')", "QUERY", "table of the policy"),
    ("SELECT COUNT(*) FROM main.visits", "schema names", "table of the policy"),
    ("SELECT COUNT(*) FROM pg_stats", 'no table "pg_stats"', "Known are"),
    ("SELECT COUNT(*) FROM visits WHERE SLEEP_MS(300) = 1", "SLEEP_MS", "There are"),
    ("SELECT COUNT(*) FROM visits WHERE ERROR('x')", "ERROR", "There are"),
    ("SELECT COUNT(*) FROM visits WHERE REFLECT('java.lang.System', 'exit')", "REFLECT", "There are"),
    ("SELECT COUNT(*) FROM visits WHERE stay % 0 = 1", "% needs a public number above 0", "x % 10"),
    ("SELECT AVG(stay / cost) FROM visits", "quotient of columns", "ROUND"),
    ("SELECT COUNT(*) FROM visits WHERE admitted > CURRENT_DATE", "CURRENT_DATE", "DATE '2026"),
    ("SELECT COUNT(*) FROM visits WHERE admitted > NOW()", "NOW", "Write the time"),
    ("SELECT COUNT(*) FROM visits WHERE RANDOM() < 0.5", "RAND", "Leave it out"),
    ("SELECT COUNT(*) FROM visits WHERE stay = ?", "placeholder", "Write the value"),
    ("SELECT COUNT(*) FROM visits WHERE patient_id = 'x'", "unit cannot be compared", "Count it"),
    ("SELECT COUNT(*) FROM visits WHERE patient_id IS NULL", "unit is never NULL", "Leave"),
    ("SELECT COUNT(DISTINCT CASE WHEN stay > 1 THEN patient_id END) FROM visits", "unit cannot be",
     "Count it"),
    ("SELECT COUNT(*) FROM visits WHERE wrd = 'A'", 'no column "wrd"', '"ward"'),
    ("SELECT COUNT(*) FROM vists", 'no table "vists"', '"visits"'),
    ("SELECT COUNT(*) FROM visits WHERE stay", "not a condition", "Compare"),
    ("SELECT SUM(a) FROM (SELECT stay FROM visits) AS t(a)", "COLUMNS", "Leave it out"),
    ("SELECT COUNT(*) FROM (SELECT z.* FROM visits v) x", 'no table "z"', "FROM"),
    ("SELECT COUNT(*) FROM visits ORDER BY COUNT(*) LIMIT '5'", "LIMIT needs a whole number", "digits"),
    ("SELECT COUNT(*) FROM visits GROUP BY 7", "7 names no column", "Count from 1"),
    ("(SELECT COUNT(*) FROM visits) LIMIT 1", "LIMIT is not possible", "Leave it out"),
]  # fmt: skip


@each(("sql", "construct", "instead"), BAD)
def test_a_refusal_names_the_construct_and_what_to_write(sql: str, construct: str, instead: str) -> None:
    with pytest.raises(Refused, match=f"(?i){construct}") as caught:
        asked(sql, CATALOG)
    assert instead in caught.value.instead


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("SELECT stay FROM visits", (1, 8)),
        ("SELECT COUNT(*)\nFROM vists", (2, 6)),
        ("SELECT COUNT(*) FROM visits\nWHERE urgent\n  AND wrd = 'A'", (3, 7)),
        ("SELECT COUNT(*) FROM visits WHERE ward = 'Z'", (1, 35)),
        ("SELECT COUNT(*) FROM visits WHERE ERROR(name)", (1, 35)),
        ("SELECT SUM(name) FROM visits", (1, 8)),
        ("SELECT COUNT(*) FROM visits v JOIN patients p ON v.stay = p.age", (1, 36)),
        ("SELECT COUNT(*) FROM visits TABLESAMPLE 10%", (1, 22)),
        ("SELECT AVG(stay / cost) FROM visits", (1, 12)),
        ("SELECT COUNT(*) FROM visits GROUP BY patient_id", (1, 38)),
        ("SELECT COUNT(*) FROM visits WHERE x.stay > 1", (1, 35)),
        ("SELECT COUNT(*) FROM visits HAVING stay > 1", (1, 36)),
        ("SELECT COUNT(*) FROM visits ORDER BY name", (1, 38)),
    ],
)
def test_a_refusal_says_where(sql: str, place: tuple[int, int]) -> None:
    with pytest.raises(Refused) as caught:
        asked(sql, CATALOG)
    assert caught.value.place == place, caught.value


def test_a_refusal_says_where_an_aggregate_is() -> None:
    """Or where its column is: sqlglot notes the place of MAX up to 30.29, and not from 30.30 on."""
    with pytest.raises(Refused) as caught:
        asked("SELECT SUM(stay), MAX(name) FROM visits", CATALOG)
    assert caught.value.place in {(1, 19), (1, 23)}, caught.value


WHERE = "SELECT COUNT(*) FROM visits WHERE "
CHAIN = ",".join(f"a{n + 1} AS (SELECT x.u FROM a{n} x JOIN a{n} y USING (u))" for n in range(8))


@pytest.mark.parametrize(
    "sql",
    [
        WHERE + "stay" + "+1" * 20_000 + " > 1",
        WHERE + "- " * 20_000 + "stay > 1",
        WHERE + "NOT " * 20_000 + "urgent",
        WHERE + "(" * 30_000 + "urgent" + ")" * 30_000,
        WHERE + "stay IN (" + ",".join(["1"] * 45_000) + ")",
        WHERE + "stay" + "[1]" * 30_000 + " = 1",
        WHERE + "stay" + "::INT" * 15_000 + " > 1",
        WHERE + " AND ".join(["stay > 1"] * 9_000),
        WHERE + "CASE " * 30 + "stay" + " WHEN 1 THEN 1 WHEN 2 THEN 2 END" * 30 + " = 1",
        WHERE + "NULLIF(" * 30 + "stay" + ", 1)" * 30 + " > 1",
        WHERE + "CASE WHEN " * 5_000 + "urgent",
        WHERE + "stay > 1e99999999",
        WHERE + "stay > " + "1" * 90_000,
        "SELECT COUNT(*) + 1e999999999 FROM visits",
        "SELECT COUNT(*) FROM visits GROUP BY " + "1" * 5_000,
        "SELECT COUNT(*) AS a0," + ",".join(f"a{n}+a{n} AS a{n + 1}" for n in range(150)) + " FROM visits",
        f"WITH a0 AS (SELECT patient_id AS u FROM patients), {CHAIN} SELECT COUNT(*) FROM a8",
        "SELECT COUNT(*) FROM (" + " UNION ALL ".join(["SELECT stay FROM visits"] * 1_500) + ") x",
        "SELECT COUNT(*) FROM " + "(SELECT * FROM " * 2_000 + "visits" + ") x" * 2_000,
        "SELECT " + ",".join(["SUM(stay)"] * 3_000) + " FROM visits",
        "SELECT COUNT(*) FROM visits GROUP BY CUBE (" + ",".join(f"stay + {n}" for n in range(20)) + ")",
        "SELECT COUNT(*) FROM visits" * 3_500,
        "x" * 100_001,
        "SELECT \0",
        "SELECT COUNT(*) FROM visits WHERE name = '\ud800'",
    ],
    ids=lambda sql: f"{sql[:60]!r}",
)  # fmt: skip
def test_long_and_deep_texts_are_refused_in_time(sql: str) -> None:
    began = time.thread_time()
    with pytest.raises(Refused):
        asked(sql, CATALOG)
    assert time.thread_time() - began < 5


def test_long_texts_that_are_flat_are_answered() -> None:
    texts = [
        WHERE + "stay IN (" + ",".join(map(str, range(9_000))) + ")",
        WHERE + " OR ".join(["stay > 1"] * 4_000),
        "SELECT " + ",".join(f"SUM(stay + {n})" for n in range(150)) + " FROM visits",
    ]
    began = time.thread_time()
    for text in texts:
        asked(text, CATALOG)
    assert time.thread_time() - began < 10


@pytest.mark.parametrize("texts", [1_000, slow(10_000)])
def test_generated_texts_are_bound_or_refused_and_nothing_else(texts: int) -> None:
    """From a grammar: sound, unsound and hostile."""
    random = Random(20_261_115)
    answered = 0
    began = time.thread_time()
    for _ in range(texts):
        sql, expectation = question(random)
        try:
            found: BoundQuery | BadParameter = asked(sql, MUCH_TEXT)
        except BadParameter as refusal:
            found = refusal
        if expectation is None:
            assert isinstance(found, Refused), sql
        elif expectation.sound:
            assert isinstance(found, BoundQuery), (sql, found)
            assert found.rows <= expectation.rows, sql
            answered += 1
    assert answered > texts // 6
    assert time.thread_time() - began < texts / 50


ESCAPE, TURNED, HIDDEN = "\x1b[2J", "\u202e", "\u200b"


@pytest.mark.parametrize(
    "sql",
    [
        *(f'SELECT COUNT(*) AS "n{bad}" FROM visits' for bad in (ESCAPE, TURNED, HIDDEN, "\n")),
        *(f"SELECT COUNT(*) AS 'n{bad}' FROM visits" for bad in (ESCAPE, TURNED, HIDDEN, "\n")),
        *(f'SELECT SUM("stay{bad}") FROM visits' for bad in (ESCAPE, HIDDEN)),
        *(f'SELECT COUNT(*) FROM "visits{bad}"' for bad in (ESCAPE, HIDDEN)),
        f'SELECT COUNT(*) FROM visits WHERE CAST(stay AS "int{HIDDEN}") > 1',
        f"SELECT stay{HIDDEN}(stay) FROM visits",
        f"SELECT COUNT(*) FROM visits WHERE name = '{ESCAPE}'",
        r"SELECT COUNT(*) FROM visits WHERE name = e'\x1b[2J'",
        f'WITH "c{HIDDEN}" AS (SELECT * FROM visits) SELECT COUNT(*) FROM "c{HIDDEN}"',
    ],
    ids=ascii,
)
def test_what_cannot_be_shown_is_refused_and_not_shown(sql: str) -> None:
    """Names stand in refusals, on screens and on cards: nothing in them moves the cursor."""
    with pytest.raises(Refused) as error:
        asked(sql, CATALOG)
    assert str(error.value).isprintable()


def test_texts_may_hold_what_names_may_not_and_columns_called_after_them_are_shown() -> None:
    asked("SELECT COUNT(*) FROM visits WHERE name = 'a\u00a0b\u200d'", CATALOG)
    found = asked("SELECT COUNT(*) FILTER (WHERE name = 'a\nb') FROM visits", CATALOG)
    assert all(output.name.isprintable() for output in found.outputs)
