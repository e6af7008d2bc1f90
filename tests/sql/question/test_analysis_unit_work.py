"""The steps and the texts that one person's rows can cause are bounded by the query and the policy."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lapwing.sql.policy.policy import READ_BYTES
from lapwing.sql.question.analysis import STEPS_OF_A_RESULT
from lapwing.sql.question.bind import bind
from lapwing.sql.question.public_tables import PublicTable
from lapwing.sql.question.refusal import Refused
from lapwing.sql.question.scope import Catalog
from lapwing.sql.row_questions import bind_rows
from support.cases import each
from support.clinic import clinic_catalog

CLINIC = clinic_catalog()
ROWS = CLINIC.policy.tables["visits"].rows_per_unit


def with_limits(steps: int, text: int, catalog: Catalog = CLINIC) -> Catalog:
    return replace(catalog, policy=replace(catalog.policy, steps_per_unit=steps, text_per_unit=text))


def counted(sql: str, catalog: Catalog = CLINIC) -> tuple[int, int]:
    """The steps and the bytes of one person, as refusals name them; 0 if nothing is refused."""
    found = []
    for steps, text in ((0, 10**99), (10**99, 0)):
        try:
            bind(sql, with_limits(steps, text, catalog))
            found.append(0)
        except Refused as refused:
            [number] = re.findall(r"could (?:take|have) ([\d,]+)", refused.construct)
            found.append(int(number.replace(",", "")))
    return found[0], found[1]


QUESTIONS = {
    "a count": "SELECT COUNT(*) FROM visits",
    "a condition": "SELECT COUNT(*) FROM visits WHERE stay > 3 AND name LIKE 'A%'",
    "undeclared keys": "SELECT name, COUNT(*) FROM visits GROUP BY name",
    "a quantile": "SELECT MEDIAN(stay) FROM visits",
    "a join": "SELECT COUNT(*) FROM visits a JOIN visits b ON a.patient_id = b.patient_id",
    "a sub-query": "SELECT AVG(n) FROM (SELECT patient_id, COUNT(DISTINCT name) AS n FROM visits "
    "GROUP BY patient_id) x",
    "a union": "SELECT COUNT(DISTINCT n) FROM (SELECT name AS n FROM visits UNION ALL "
    "SELECT UPPER(name) AS n FROM visits) x",
}


@each("sql", QUESTIONS.values())
def test_the_limit_itself_is_accepted_and_one_less_is_refused(sql: str) -> None:
    steps, text = counted(sql)
    bind(sql, with_limits(steps, text))
    with pytest.raises(Refused, match=rf"{steps:,} steps, and the limit is {steps - 1:,}"):
        bind(sql, with_limits(steps - 1, text))
    if text:
        with pytest.raises(Refused, match=rf"{text:,} bytes of text, and the limit is {text - 1:,}"):
            bind(sql, with_limits(steps, text - 1))


def test_every_copy_in_a_join_multiplies_the_steps_also_below_an_aggregate() -> None:
    inner = "SELECT a.patient_id, COUNT(*) AS n FROM visits a {} GROUP BY a.patient_id"
    for asked in ("SELECT COUNT(*) FROM visits a {}", f"SELECT SUM(n) FROM ({inner}) x"):
        two, three = (counted(asked.format(joined(names)))[0] for names in ("b", "bc"))
        assert two >= ROWS**2
        assert three >= ROWS**3
    with pytest.raises(Refused, match="Join fewer tables"):
        bind(f"SELECT COUNT(*) FROM visits a {joined('bcdefgh')}", CLINIC)


def joined(names: str) -> str:
    return " ".join(f"JOIN visits {name} ON a.patient_id = {name}.patient_id" for name in names)


def test_a_public_table_multiplies_steps_by_its_most_frequent_key() -> None:
    sql = "SELECT COUNT(*) FROM visits v JOIN wards w ON v.ward = w.ward"
    wards: dict[str, list[object]] = {"ward": ["A"] * 1000, "beds": [1] * 1000, "kind": ["x"] * 1000}
    repeated = replace(CLINIC, public={"wards": PublicTable("wards", wards)})
    assert counted(sql, repeated)[0] >= ROWS * 1000 > counted(sql)[0]


def test_a_row_that_leaves_the_engine_counts_as_many_steps() -> None:
    by_ward, by_name, median = (
        counted(sql)[0]
        for sql in (
            "SELECT ward, COUNT(*) FROM visits GROUP BY ward",
            "SELECT name, COUNT(*) FROM visits GROUP BY name",
            "SELECT ward, MEDIAN(stay) FROM visits GROUP BY ward",
        )
    )
    assert by_ward < ROWS * STEPS_OF_A_RESULT <= min(by_name, median)


def test_every_statement_counts() -> None:
    one, rolled = (
        counted(f"SELECT ward, name, COUNT(*) FROM visits GROUP BY {by}(ward, name)")
        for by in ("", "ROLLUP ")
    )
    assert rolled[0] > one[0]
    assert rolled[1] >= one[1]


def test_text_keys_count_with_the_bytes_that_are_read() -> None:
    sql = "SELECT name, COUNT(*) FROM visits GROUP BY name"
    assert counted(sql)[1] == ROWS * READ_BYTES
    table = CLINIC.policy.tables["visits"]
    short = replace(table, columns={**table.columns, "name": replace(table.columns["name"], longest=10)})
    policy = replace(CLINIC.policy, tables={**CLINIC.policy.tables, "visits": short})
    assert counted(sql, replace(CLINIC, policy=policy))[1] == ROWS * 40
    assert counted("SELECT SUBSTRING(name, 1, 5) AS n, COUNT(*) FROM visits GROUP BY n")[1] == 2 * ROWS * 20


def test_an_underscore_after_a_percent_sign_counts_text_times_pattern() -> None:
    """RE2 keeps as many states as the pattern has characters, at each byte of the text."""
    plain, _ = counted("SELECT COUNT(*) FROM visits WHERE name LIKE 'A%'")
    for pattern, tried in (("A_%", 0), ("__A", 0), ("%A%B%", 0), ("%A_", 3), ("AB%_", 2)):
        steps, _ = counted(f"SELECT COUNT(*) FROM visits WHERE name LIKE '{pattern}'")
        assert steps == plain + ROWS * READ_BYTES * tried
    long = f"name LIKE '%a{'_' * 900}q%'"
    for asked in (
        f"COUNT(*) FROM visits WHERE {long}",
        f"SUM(CASE WHEN {long} THEN 1 ELSE 0 END) FROM visits",
    ):
        with pytest.raises(Refused, match="steps, and the limit"):
            bind(f"SELECT {asked}", CLINIC)


def test_rows_to_learn_from_are_bounded_as_well() -> None:
    sql = "SELECT a.stay FROM visits a JOIN visits b ON a.patient_id = b.patient_id"
    bind_rows(sql, CLINIC)
    with pytest.raises(Refused, match=r"steps, and the limit is 10\."):
        bind_rows(sql, with_limits(10, 10**9))
