"""Conditions that no declared value meets: their answer is known, so it is not sold."""

from __future__ import annotations

import pytest

from lapwing.sql.question.analysis import is_possible
from support.clinic import asked, clinic_catalog

CATALOG = clinic_catalog()

IMPOSSIBLE = [
    "ward LIKE 'z%'",
    "LOWER(ward) LIKE 'z%'",
    "ward LIKE 'z%' AND stay > 3",
    "ward LIKE 'z%' OR stay > 1000",
    "stay > 60",
    "stay < 0",
    "stay BETWEEN 100 AND 200",
    "stay IN (100, 200)",
    "ward > 'z'",
    "admitted >= '2099-01-01'",
    "FALSE",
    "NULL",
]
POSSIBLE = [
    "ward LIKE 'A%'",
    "ward LIKE 'z%' OR stay > 3",
    "stay >= 60",
    "stay <> 100",
    "name LIKE 'z%'",
    "TRUE",
]
VISITS = "SELECT patient_id, stay FROM visits"


@pytest.mark.parametrize("condition", IMPOSSIBLE)
def test_the_answer_of_a_question_about_no_row_is_known(condition: str) -> None:
    for sql in (
        f"SELECT COUNT(*) AS n FROM visits WHERE {condition}",
        f"SELECT COUNT(*) AS n FROM ({VISITS} WHERE {condition}) AS v",
        f"SELECT AVG(n) AS n FROM (SELECT patient_id, COUNT(*) AS n FROM visits WHERE {condition} "
        "GROUP BY patient_id) AS v",
        f"SELECT COUNT(*) AS n FROM patients p JOIN ({VISITS} WHERE {condition}) AS v "
        "ON p.patient_id = v.patient_id",
    ):
        assert not is_possible(asked(sql, CATALOG))


@pytest.mark.parametrize("condition", POSSIBLE)
def test_that_of_others_is_not(condition: str) -> None:
    assert is_possible(asked(f"SELECT COUNT(*) AS n FROM visits WHERE {condition}", CATALOG))


def test_where_a_part_has_rows_the_answer_is_not_known() -> None:
    some = f"{VISITS} UNION ALL {VISITS} WHERE ward LIKE 'z%'"
    assert is_possible(asked(f"SELECT COUNT(*) AS n FROM ({some}) AS v", CATALOG))
    kept = f"patients p LEFT JOIN ({VISITS} WHERE stay > 60) AS v ON p.patient_id = v.patient_id"
    assert is_possible(asked(f"SELECT COUNT(*) AS n FROM {kept}", CATALOG))
