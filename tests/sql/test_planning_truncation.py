"""What answers say about the rows that they are made of, on every path."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lapwing.sql.answering.truncation import NOBODY_LEFT_OUT, truncation_sentences
from lapwing.sql.policy.policy import CheckedPolicy, UnitBy
from lapwing.sql.question.bind import bind
from lapwing.sql.question.relation import where_first
from lapwing.sql.question.scope import Catalog
from sql.conftest import Open
from sql.reading.test_reader_neighbours import PERIODS
from support.hospital import WARDS, invented, policy_for

VISITS = 'Uses at most 3 rows of each person in "visits"'
PATIENTS = 'Uses at most 1 row of each person in "patients"'
BEFORE, AMONG = ", chosen before WHERE.", ", chosen among those that WHERE keeps."


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> CheckedPolicy:
    found = policy_for(invented(1), "duckdb", tmp_path_factory.mktemp("hospital"))
    visits, patients = found.tables["visits"], found.tables["patients"]
    tables = {"visits": replace(visits, rows_per_unit=3), "patients": replace(patients, rows_per_unit=1)}
    return replace(found, tables={**found.tables, **tables})


def said(policy: CheckedPolicy, sql: str, *, rows: int | None = None, first: bool = False) -> list[str]:
    bound = bind(sql, Catalog(policy, {"wards": WARDS}, rows))
    asked = replace(bound, source=where_first(bound.source)) if first else bound
    return [
        line.partition(" What that")[0] for line in truncation_sentences(policy, asked, lambda *_: None)
    ]


PER_PERSON = "(SELECT who, COUNT(*) AS n, MAX(stay) AS m FROM visits {} GROUP BY who {}) p"


@pytest.mark.parametrize(
    ("sql", "lines"),
    [
        ("SELECT COUNT(*) FROM visits", [f"{VISITS}."]),
        ("SELECT ward, MEDIAN(stay) FROM visits WHERE stay > 3 GROUP BY ward", [f"{VISITS}{BEFORE}"]),
        ("SELECT ward, urgent, COUNT(*) FROM visits GROUP BY ROLLUP (ward, urgent)", [f"{VISITS}."]),
        ("SELECT COUNT(DISTINCT who) FROM visits", [f"{VISITS}.{NOBODY_LEFT_OUT}"]),
        ("SELECT COUNT(DISTINCT who) FROM visits WHERE urgent", [f"{VISITS}{BEFORE}"]),
        ("SELECT ward, COUNT(DISTINCT who) FROM visits GROUP BY ward", [f"{VISITS}."]),
        ("SELECT COUNT(DISTINCT who), COUNT(*) FROM visits", [f"{VISITS}."]),
        ("SELECT COUNT(*) FROM patients", [f"{PATIENTS}."]),
        (
            "SELECT COUNT(*) FROM visits JOIN wards USING (ward)",  # a ward stands in two public rows
            [f"{VISITS}.", "Joined or united, these are at most 6 rows of each person."],
        ),
        ("SELECT COUNT(*) FROM visits v JOIN patients p ON v.who = p.who", [f"{VISITS}.", f"{PATIENTS}."]),
        (
            "SELECT COUNT(*) FROM visits a JOIN visits b ON a.who = b.who",
            [f"{VISITS}.", "Joined or united, these are at most 9 rows of each person."],
        ),
        (
            "SELECT SUM(x) FROM (SELECT stay AS x FROM visits UNION ALL SELECT age FROM patients) u",
            [f"{VISITS}.", f"{PATIENTS}.", "Joined or united, these are at most 4 rows of each person."],
        ),
        (f"SELECT AVG(n) FROM {PER_PERSON.format('', '')}", [f"{VISITS}."]),
        (f"SELECT AVG(n) FROM {PER_PERSON.format('WHERE urgent', '')}", [f"{VISITS}{BEFORE}"]),
        (f"SELECT AVG(m) FROM {PER_PERSON.format('', 'HAVING COUNT(*) > 1')}", [f"{VISITS}."]),
    ],
)
def test_every_question_says_how_many_rows_of_a_person_it_uses(
    policy: CheckedPolicy, sql: str, lines: list[str]
) -> None:
    assert said(policy, sql) == lines


def test_with_where_first_the_rows_are_those_that_where_keeps(policy: CheckedPolicy) -> None:
    assert said(policy, "SELECT COUNT(*) FROM visits WHERE urgent", first=True) == [f"{VISITS}{AMONG}"]
    people = "SELECT COUNT(DISTINCT who) FROM visits WHERE urgent"
    assert said(policy, people, first=True) == [f"{VISITS}{AMONG}{NOBODY_LEFT_OUT}"]


def test_a_lowered_bound_is_the_one_that_is_told(policy: CheckedPolicy) -> None:
    lowered = said(policy, "SELECT COUNT(*) FROM visits", rows=2)
    assert lowered == ['Uses at most 2 rows of each person in "visits".']


def test_the_unit_is_named_as_it_is_protected(policy: CheckedPolicy) -> None:
    sql = "SELECT COUNT(*) FROM visits"
    sliced = replace(policy, blocks=PERIODS, protects="person-period")
    assert said(sliced, sql) == ['Uses at most 3 rows of each person in each month in "visits".']
    visits = replace(policy.tables["visits"], unit=UnitBy(""), rows_per_unit=1)
    by_row = replace(policy, protects="row", tables={**policy.tables, "visits": visits})
    assert said(by_row, sql) == ['Uses every row of "visits": each row is protected by itself.']
    joined = said(by_row, "SELECT COUNT(*) FROM visits JOIN wards USING (ward)")
    assert joined[1] == "Joined or united, these are at most 2 rows of each of them."
    told_apart = replace(visits, unit=UnitBy("id"))
    by_id = replace(by_row, tables={**policy.tables, "visits": told_apart})
    assert said(by_id, sql) == ['Uses at most 1 row of each id in "visits".']


def test_dry_runs_replays_and_combined_answers_say_it_too(opened: Open) -> None:
    dataset = opened()
    plan = dataset.plan("SELECT COUNT(*) AS n FROM visits WHERE stay > 3", epsilon="0.5")
    used = 'Uses at most 2 rows of each person in "visits", chosen before WHERE.'
    for show in (plan.dry_run, plan.release, plan.release, lambda: plan.release(fresh=True)):
        assert show().truncation[0].startswith(used)
        assert used in str(show())
    anew = dataset.ask("SELECT COUNT(*) FROM visits WHERE stay > 3", epsilon=1, where_first=True)
    assert "chosen among" in str(anew)


def test_the_first_stage_and_found_bounds_say_it_too(opened: Open) -> None:
    dataset = opened()
    _, counted = dataset.two_stage("SELECT AVG(stay) FROM visits", within=1, first=1)
    assert counted.truncation[0].startswith('Uses at most 2 rows of each person in "visits".')
    _, _, answer = dataset.search_bounds("visits", "stay", epsilon=2, step=1)
    assert answer.truncation[0].startswith('Uses at most 2 rows of each person in "visits".')
