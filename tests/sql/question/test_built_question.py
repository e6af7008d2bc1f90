"""A question that is built in Python is the question that its SQL asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lapwing import questions as q
from lapwing.errors import BadParameter
from lapwing.questions import BuiltQuestion, column, count, count_distinct, mean, table
from lapwing.sql.question.bind import bind
from lapwing.sql.question.meaning import query_digests
from lapwing.sql.question.refusal import Refused
from sql.conftest import Open
from support.clinic import clinic_catalog
from support.raised import named

SAME: list[tuple[BuiltQuestion, str]] = [
    (
        table("visits").group_by("ward").agg(n=count(), days=mean("stay")),
        "SELECT ward, COUNT(*) AS n, AVG(stay) AS days FROM visits GROUP BY ward",
    ),
    (table("visits").agg(n=count()), "SELECT COUNT(*) AS n FROM visits"),
    (table("visits").group_by("ward"), "SELECT ward FROM visits GROUP BY ward"),
    (
        table("visits").agg(n=count("stay"), people=count_distinct("patient_id"), m=count_distinct("name")),
        "SELECT COUNT(stay) AS n, COUNT(DISTINCT patient_id) AS people, COUNT(DISTINCT name) AS m "
        "FROM visits",
    ),
    (
        table("visits").agg(s=q.sum("stay"), lo=q.min("stay"), hi=q.max("cost"), m=q.median("stay")),
        "SELECT SUM(stay) AS s, MIN(stay) AS lo, MAX(cost) AS hi, MEDIAN(stay) AS m FROM visits",
    ),
    (
        table("visits").agg(a=q.quantile("stay", 0.9), b=q.quantile("cost", "0.25")),
        "SELECT QUANTILE(stay, 0.9) AS a, QUANTILE(cost, 0.25) AS b FROM visits",
    ),
    (
        table("visits").where(column("stay") >= 2, column("ward") == "A").group_by("ward").agg(n=count()),
        "SELECT ward, COUNT(*) AS n FROM visits WHERE stay >= 2 AND ward = 'A' GROUP BY ward",
    ),
    (
        table("visits").where(column("cohort") < 8).agg(n=count()),
        "SELECT COUNT(*) AS n FROM visits WHERE cohort < 8",
    ),
    (
        table("visits").agg(n=count(where=column("urgent")), m=mean("stay", where=column("cost") > 2.5)),
        "SELECT COUNT(*) FILTER (WHERE urgent) AS n, AVG(stay) FILTER (WHERE cost > 2.5) AS m FROM visits",
    ),
    (
        table("visits").group_by(long=column("stay") > 7).agg(u=count(where=column("urgent")) / count()),
        "SELECT stay > 7 AS long, COUNT(*) FILTER (WHERE urgent) / COUNT(*) AS u FROM visits GROUP BY 1",
    ),
    (
        table("visits").join("wards", on="ward").group_by("kind").agg(n=count(), b=mean("beds")),
        "SELECT kind, COUNT(*) AS n, AVG(beds) AS b FROM visits JOIN wards USING (ward) GROUP BY kind",
    ),
    (
        table("visits").join("wards", on="ward", left=True).agg(n=count(column("kind", table="wards"))),
        "SELECT COUNT(wards.kind) AS n FROM visits LEFT JOIN wards USING (ward)",
    ),
    (
        table("visits").join("patients", on="patient_id").where(column("age") < 18).agg(n=count()),
        "SELECT COUNT(*) AS n FROM visits JOIN patients USING (patient_id) WHERE age < 18",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("built", "sql"), SAME)
def test_it_is_bound_as_its_sql(built: BuiltQuestion, sql: str) -> None:
    """Equal digests: so the stored answer of one is that of the other."""
    catalog = clinic_catalog()
    one, other = (
        query_digests(catalog.policy, bind(question, catalog), catalog.public) for question in (built, sql)
    )
    assert one == other
    again = query_digests(catalog.policy, bind(built.sql, catalog), catalog.public)
    assert one == again, "what it shows is what it asks"


def test_the_answer_of_the_sql_is_given_again_for_nothing(opened: Open) -> None:
    dataset = opened()
    first = dataset.ask(
        "SELECT ward, COUNT(*) AS n, AVG(stay) AS mean FROM visits WHERE stay > 2 GROUP BY ward", epsilon=1
    )
    spent = dataset.left()
    built = dataset.group_by("ward").where(column("stay") > 2).agg(n=count(), mean=mean("stay"))
    again = dataset.ask(built, epsilon=1)
    assert again.is_replay
    assert again.receipt == first.receipt
    assert again.to_arrow().equals(first.to_arrow())
    assert dataset.left() == spent
    assert not dataset.ask(dataset.agg(n=count()), epsilon=1).is_replay
    assert dataset.ask(dataset.where(column("stay") > 2).group_by("ward").agg(
        n=count(), mean=mean("stay")), epsilon=1).is_replay  # fmt: skip


def test_each_method_returns_a_new_question() -> None:
    begun = table("visits").group_by("ward")
    counted, averaged = begun.agg(n=count()), begun.agg(m=mean("stay"))
    assert begun.aggregates == ()
    assert (counted.sql, averaged.sql) == (
        'SELECT "ward", COUNT(*) AS "n" FROM "visits" GROUP BY "ward"',
        'SELECT "ward", AVG("stay") AS "m" FROM "visits" GROUP BY "ward"',
    )
    assert str(counted) == counted.sql
    assert counted.sql in repr(counted)


HOSTILE = [
    'n"; DROP TABLE visits; --',
    "n' OR 'a' = 'a",
    'x" FROM patients --',
    "a\\",
    "ward/*",
    "é 中",
    "1",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_one_name(name: str) -> None:
    catalog = clinic_catalog()
    built = table("visits").group_by("ward").agg(**{name: count()})
    assert [output.name for output in bind(built, catalog).outputs] == ["ward", name.lower()]
    for asked, construct in (
        (table(name).agg(n=count()), "there is no table"),
        (table("visits").group_by(name).agg(n=count()), "there is no column"),
        (table("visits").agg(m=mean(name)), "there is no column"),
        (table("visits").where(column("ward", table=name) == "A").agg(n=count()), "there is no table"),
        (table("visits").join(name, on="ward").agg(n=count()), "there is no table"),
        (table("visits").join("wards", on=name).agg(n=count()), "there is no column"),
    ):  # fmt: skip
        with pytest.raises(Refused) as refusal:
            bind(asked, catalog)
        assert (
            refusal.value.construct
            == f'{construct} "{name}"{" here" if "ward" in str(asked.conditions) else ""}'
        )


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_value_is_one_value(text: str) -> None:
    catalog = clinic_catalog()
    sql = text.replace("'", "''")
    built = table("visits").where(column("name") == text).agg(n=count())
    one, other = (
        query_digests(catalog.policy, bind(question, catalog), catalog.public)
        for question in (built, f"SELECT COUNT(*) AS n FROM visits WHERE name = '{sql}'")
    )
    assert one == other


def test_a_name_that_cannot_be_shown_is_refused() -> None:
    for question in (table("visits").agg(**{"a\x1b[2J": count()}), table("vis\u202eits").agg(n=count())):
        with pytest.raises(Refused, match="cannot be shown"):
            bind(question, clinic_catalog())


def test_what_a_question_cannot_be_is_told_when_it_is_made() -> None:
    begun: Any = table("visits")
    wrong: dict[str, Callable[[], object]] = {
        "n": lambda: begun.agg(n="stay"),
        "condition": lambda: begun.where("stay > 2"),
        "group_by": lambda: begun.group_by(column("stay") > 2),
        "column": lambda: begun.group_by(7),
        "on": lambda: begun.join("wards", on=("ward", "ward")),
        "table": lambda: table(""),
        "N": lambda: begun.group_by("n").agg(N=count()),
    }
    for name, make in wrong.items():
        with pytest.raises(BadParameter, check=named(name)):
            make()


def test_what_it_cannot_say_is_told_with_the_sql_to_write() -> None:
    question: Any = table("visits").group_by("ward").agg(n=count())
    with pytest.raises(AttributeError) as missing:
        question.order_by("n")
    assert f"{question.sql} ORDER BY …" in str(missing.value)
    with pytest.raises(AttributeError) as missing:
        question.pivot("ward")
    assert f"{question.sql} …" in str(missing.value)
    assert not hasattr(question, "_repr_html_")


def test_a_session_begins_with_the_only_private_table(opened: Open) -> None:
    dataset = opened()
    assert (
        dataset.group_by("ward").table == dataset.where().table == dataset.agg(n=count()).table == "visits"
    )
    extra = '[tables.patients]\nsource = "visits.parquet"\nunit = "patient_id"\nrows_per_unit = 1'
    with pytest.raises(BadParameter, match="patients, visits") as several:
        opened(more=extra).group_by("ward")
    assert 'questions.table("' in str(several.value)
