"""Questions of other forms than text: trees of sqlglot, and expressions of ibis."""

from __future__ import annotations

from random import Random
from typing import Any

import duckdb
import ibis
import pytest
import sqlglot
from ibis import _
from sqlglot import exp

from lapwing.errors import BadParameter
from lapwing.sql.question.bind import bind, bind_with_text
from lapwing.sql.question.meaning import query_digests
from lapwing.sql.question.parse import sql_text
from lapwing.sql.question.refusal import Refused
from lapwing.sql.question.scope import Catalog
from support.clinic import clinic_catalog, roomy
from support.raised import named
from support.sql_grammar import sound


def digests(question: Any, catalog: Catalog) -> tuple[str, str]:
    return query_digests(catalog.policy, bind(question, catalog), catalog.public)


# Trees of sqlglot


def test_a_tree_is_the_question_of_its_text() -> None:
    catalog, random = roomy(clinic_catalog()), Random(3)
    for _round in range(40):
        text, _expected = sound(random)
        tree = sqlglot.parse_one(text, read="duckdb")
        before = tree.copy()
        assert digests(tree, catalog) == digests(text, catalog), text
        assert tree == before
        assert bind_with_text(tree, catalog)[0] == bind_with_text(text, catalog)[0]


TREES = [
    (
        sqlglot.select("ward", "COUNT(*) AS n", "AVG(stay) AS days").from_("visits").group_by("ward"),
        "SELECT ward, COUNT(*) AS n, AVG(stay) AS days FROM visits GROUP BY ward",
    ),
    (
        sqlglot.select("kind", exp.alias_(exp.func("COUNT", exp.Star()), "n")).from_("visits AS v")
        .join("wards AS w", on="v.ward = w.ward").where("stay > 3", exp.column("ward", "v").isin("A", "B"))
        .group_by("kind"),
        "SELECT kind, COUNT(*) AS n FROM visits v JOIN wards w ON v.ward = w.ward "
        "WHERE stay > 3 AND v.ward IN ('A', 'B') GROUP BY kind",
    ),
    (
        sqlglot.parse_one("SELECT DATE_TRUNC(admitted, MONTH) AS m, COUNTIF(urgent) AS n FROM visits "
                         "GROUP BY m", read="bigquery"),
        "SELECT DATE_TRUNC('month', admitted) AS m, COUNT_IF(urgent) AS n FROM visits GROUP BY m",
    ),
    (
        sqlglot.parse_one("SELECT TOP 3 ward, COUNT(*) AS n FROM visits GROUP BY ward "
                         "ORDER BY n DESC", read="tsql"),
        "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward ORDER BY n DESC NULLS LAST LIMIT 3",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "sql"), TREES)
def test_a_tree_that_was_built_or_is_of_another_dialect_is_a_question(tree: exp.Expr, sql: str) -> None:
    catalog = clinic_catalog()
    assert digests(tree, catalog) == digests(sql, catalog)


def built(random: Random, depth: int) -> tuple[exp.Expr, str]:
    """A tree of operations that nobody parsed, and its text with all brackets."""
    if depth == 0 or random.random() < 0.2:
        name = random.choice(("stay", "cost"))
        return exp.column(name), name
    (first, one), (second, other) = built(random, depth - 1), built(random, depth - 1)
    if random.random() < 0.2:
        return exp.Neg(this=first), f"(-{one})"
    kind, sign = random.choice(((exp.Add, "+"), (exp.Sub, "-"), (exp.Mul, "*")))
    return kind(this=first, expression=second), f"({one} {sign} {other})"


def test_a_tree_without_brackets_keeps_its_meaning() -> None:
    random = Random(8)
    with duckdb.connect() as engine:
        for _round in range(200):
            sides = [built(random, 3) for _side in range(4)]
            (a, one), (b, two), (c, three), (d, four) = sides
            not_above = exp.Not(this=exp.GT(this=c, expression=d))
            either = exp.Or(this=exp.LT(this=a, expression=b), expression=not_above)
            tree = exp.select(exp.And(this=either, expression=exp.column("urgent")), a.copy())
            text = f"SELECT (({one} < {two}) OR (NOT ({three} > {four}))) AND urgent, {one}"
            source = " FROM (VALUES (3, 5, TRUE), (-2, 7, TRUE), (4, -9, FALSE)) AS v(stay, cost, urgent)"
            rows = [engine.execute(sql + source).fetchall() for sql in (sql_text(tree), text)]
            assert rows[0] == rows[1], text


def deep_tree() -> exp.Expr:
    tree: exp.Expr = exp.column("stay")
    for _round in range(5000):
        tree = exp.Paren(this=tree)
    return exp.Select(expressions=[tree])


@pytest.mark.parametrize(
    "tree",
    [
        sqlglot.parse_one("DROP TABLE visits"),
        sqlglot.parse_one("SELECT stay FROM visits"),
        sqlglot.column("stay"),
        sqlglot.parse_one("SELECT COUNT(*) FROM visits TABLESAMPLE (10 PERCENT)", read="duckdb"),
        sqlglot.parse_one("SELECT COUNT(*) FROM visits FOR UPDATE", read="postgres"),
        exp.Select(expressions=[exp.Count(this=object())]),
        exp.Table(this=exp.Identifier(this="visits; DROP TABLE visits", quoted=False)),
        deep_tree(),
        exp.Expression(),
    ],
    ids=lambda tree: type(tree).__name__,
)
def test_a_tree_that_is_no_question_is_refused(tree: exp.Expr) -> None:
    with pytest.raises(Refused):
        bind(tree, clinic_catalog())


def test_what_a_dialect_has_and_duckdb_has_not_is_never_left_out() -> None:
    tree = sqlglot.parse_one("SELECT COUNT(*) FROM visits FOR UPDATE", read="postgres")
    assert "UPDATE" not in tree.sql("duckdb", unsupported_level=sqlglot.ErrorLevel.IGNORE)
    with pytest.raises(Refused, match="cannot be written as SQL"):
        sql_text(tree)


# Expressions of ibis

VISITS = ibis.table(
    {"patient_id": "string", "ward": "string", "stay": "int64", "cost": "float64", "admitted": "date",
     "urgent": "boolean"},
    name="visits",
)  # fmt: skip

EXPRESSIONS = {
    "aggregates": (
        VISITS.aggregate(n=VISITS.count(), days=VISITS.stay.mean(), all=VISITS.stay.sum()),
        "SELECT COUNT(*) AS n, AVG(stay) AS days, SUM(stay) AS all_days FROM visits",
    ),
    "one number": (VISITS.stay.mean(), "SELECT AVG(stay) FROM visits"),
    "people": (VISITS.patient_id.nunique(), "SELECT COUNT(DISTINCT patient_id) FROM visits"),
    "groups": (
        VISITS.group_by("ward").aggregate(n=_.count()),
        "SELECT ward, COUNT(*) FROM visits GROUP BY ward",
    ),
    "a filter": (
        VISITS.filter(_.stay >= 2, _.ward.isin(["A", "B"])).group_by("ward").aggregate(m=_.cost.mean()),
        "SELECT ward, AVG(cost) FROM visits WHERE stay >= 2 AND ward IN ('A', 'B') GROUP BY ward",
    ),
    "months": (
        VISITS.group_by(m=VISITS.admitted.truncate("M")).aggregate(n=_.count()),
        "SELECT DATE_TRUNC('month', admitted), COUNT(*) FROM visits GROUP BY 1",
    ),
    "choices": (
        VISITS.aggregate(a=_.stay.median(), b=_.stay.quantile(0.9), c=_.cost.min(), d=_.cost.max()),
        "SELECT MEDIAN(stay), QUANTILE(stay, 0.9), MIN(cost), MAX(cost) FROM visits",
    ),
    "aggregates of some rows": (
        VISITS.aggregate(m=_.stay.mean(where=_.cost > 3), n=_.count(where=_.urgent)),
        "SELECT AVG(stay) FILTER (WHERE cost > 3), COUNT(*) FILTER (WHERE urgent) FROM visits",
    ),
    "a person first": (
        VISITS.group_by("patient_id").aggregate(days=_.stay.sum()).aggregate(m=_.days.mean()),
        "SELECT AVG(days) FROM (SELECT patient_id, SUM(stay) AS days FROM visits GROUP BY patient_id) AS p",
    ),
}


@pytest.mark.parametrize(("expression", "sql"), EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_an_expression_is_the_question_of_its_sql(expression: Any, sql: str) -> None:
    """They have equal digests without names: the stored answer of one is that of the other."""
    catalog = clinic_catalog()
    assert digests(expression, catalog)[1] == digests(sql, catalog)[1]


@pytest.mark.parametrize(
    ("expression", "construct"),
    [
        (VISITS.aggregate(c=VISITS.stay.corr(VISITS.cost)), "this ibis expression cannot be written"),
        (_.stay.mean(), "this ibis expression cannot be written"),
        (VISITS, "rows are never shown"),
        (VISITS.stay, "neither grouped nor aggregated"),
        (VISITS.aggregate(n=_.stay.collect()), "ARRAY_AGG"),
        (ibis.table({"a": "int64"}, name="secrets").count(), "there is no table"),
        (VISITS.mutate(r=ibis.row_number()).aggregate(m=_.r.mean()), "a window function"),
        (VISITS.distinct().aggregate(n=_.count()), "DISTINCT"),
    ],
)
def test_an_expression_that_is_no_question_is_refused(expression: Any, construct: str) -> None:
    with pytest.raises(Refused, match=construct):
        bind(expression, clinic_catalog())


# Anything else


@pytest.mark.parametrize("question", [42, None, b"SELECT COUNT(*) FROM visits", object(), [VISITS], ibis])
def test_anything_else_is_no_question(question: object) -> None:
    with pytest.raises(BadParameter, match="must be SQL", check=named("question")):
        bind(question, clinic_catalog())
