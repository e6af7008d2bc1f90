"""Only a condition on the block column at the scan itself narrows what is charged."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.sql.policy.kinds import Moment
from lapwing.sql.question.analysis import block_of_code
from lapwing.sql.question.relation import blocks_of, scans_of
from support.cases import each
from support.clinic import asked, by_month, clinic_catalog, day

COHORTS = clinic_catalog()
MONTHS = clinic_catalog(blocks=by_month())
ALL = None
JANUARY = (2026 - 1970) * 12


@each(
    ("where", "blocks"),
    [
        ("cohort = 3", {3}),
        ("3 = cohort", {3}),
        ("cohort IN (3, 4, 99)", {3, 4}),
        ("cohort IN (3, NULL)", ALL),
        ("cohort BETWEEN 3 AND 5", {3, 4, 5}),
        ("cohort < 2 AND stay > 3", {0, 1}),
        ("cohort > 61 AND cohort <> 62", {62, 63}),
        ("cohort >= 10 AND cohort <= 3", set()),
        ("cohort = 64", set()),
        ("cohort = -1", set()),
        ("cohort < 1e9", set(range(64))),
        ("(((visits.COHORT = 7)))", {7}),
        ("cohort = 3 OR stay > 3", ALL),
        ("cohort = 3 OR cohort = 4", ALL),
        ("NOT cohort = 3", ALL),
        ("NOT (cohort <> 3)", ALL),
        ("cohort <> 3", ALL),
        ("CASE WHEN cohort = 3 THEN TRUE ELSE FALSE END", ALL),
        ("COALESCE(cohort, 3) = 3", ALL),
        ("cohort + 0 = 3", ALL),
        ("cohort / 2 = 1", ALL),
        ("cohort = 2.5", ALL),
        ("cohort = stay", ALL),
        ("stay = 3", ALL),
        ("cohort IS NOT NULL", ALL),
        ("(cohort = 3) IS TRUE", ALL),
        ("NULL", ALL),
        ("TRUE", ALL),
    ],
)  # fmt: skip
def test_a_condition_at_the_scan_narrows(where: str, blocks: set[int] | None) -> None:
    found = blocks_of(asked(f"SELECT COUNT(*) FROM visits WHERE {where}", COHORTS).source)
    assert found == (None if blocks is None else frozenset(blocks))


@each(
    ("sql", "blocks"),
    [
        ("SELECT COUNT(*) FROM visits v JOIN wards w USING (ward) WHERE v.cohort = 3", {3}),
        ("SELECT COUNT(*) FROM wards w JOIN visits v USING (ward) WHERE v.cohort = 3", {3}),
        ("SELECT COUNT(*) FROM visits v LEFT JOIN wards w USING (ward) WHERE cohort = 3", {3}),
        ("SELECT COUNT(*) FROM (SELECT cohort AS c, stay FROM visits) x WHERE c = 3", {3}),
        ("SELECT COUNT(*) FROM (SELECT * FROM visits WHERE cohort < 3) x WHERE cohort > 0", {1, 2}),
        ("WITH v AS (SELECT * FROM visits WHERE cohort = 1) SELECT COUNT(*) FROM v", {1}),
        ("WITH v AS (SELECT * FROM visits) SELECT COUNT(*) FROM v WHERE cohort = 1", {1}),
        ("WITH v AS (SELECT * FROM visits) SELECT COUNT(*) FROM (SELECT stay FROM v WHERE cohort = 1"
         " UNION ALL SELECT stay FROM v WHERE cohort = 2) u", {1, 2}),
        ("WITH v AS (SELECT * FROM visits) SELECT COUNT(*) FROM (SELECT stay FROM v WHERE cohort = 1"
         " UNION ALL SELECT stay FROM v) u", ALL),
        ("SELECT COUNT(*) FROM (SELECT cohort FROM visits UNION ALL SELECT cohort FROM visits) u"
         " WHERE cohort = 1", ALL),
        ("SELECT COUNT(*) FROM (SELECT stay AS cohort FROM visits) x WHERE cohort = 1", ALL),
        ("SELECT COUNT(*) FROM (SELECT cohort + 0 AS cohort FROM visits) x WHERE cohort = 1", ALL),
        ("SELECT COUNT(*) FROM (SELECT patient_id, MAX(cohort) AS cohort FROM visits GROUP BY patient_id) x"
         " WHERE cohort = 1", ALL),
        ("SELECT COUNT(*) FROM (SELECT patient_id, cohort FROM visits GROUP BY patient_id, cohort) x"
         " WHERE cohort = 1", ALL),
        ("SELECT COUNT(*) FROM (SELECT patient_id FROM visits GROUP BY 1 HAVING MAX(cohort) = 1) x", ALL),
        ("SELECT cohort, COUNT(*) FROM visits GROUP BY cohort HAVING cohort = 1", ALL),
        ("SELECT COUNT(*) FROM visits v JOIN patients p USING (patient_id) WHERE v.cohort = 1", ALL),
        ("SELECT COUNT(*) FROM visits v JOIN patients p ON v.patient_id = p.patient_id"
         " WHERE v.cohort = 1 AND p.cohort = 2", {1, 2}),
        ("SELECT COUNT(*) FROM visits v LEFT JOIN patients p ON v.patient_id = p.patient_id"
         " WHERE v.cohort = 1 AND p.cohort = 2", ALL),
        ("SELECT COUNT(*) FROM visits v JOIN patients p ON v.patient_id = p.patient_id"
         " AND v.cohort = 1", ALL),
        ("SELECT COUNT(*) FILTER (WHERE cohort = 1) FROM visits", ALL),
    ],
)  # fmt: skip
def test_joins_unions_and_sub_queries(sql: str, blocks: set[int] | None) -> None:
    found = blocks_of(asked(sql, COHORTS).source)
    assert found == (None if blocks is None else frozenset(blocks))


def test_the_condition_itself_stays() -> None:
    narrow = asked("SELECT COUNT(*) FROM visits WHERE cohort = 3", COHORTS)
    [scan] = scans_of(narrow.source)
    assert scan.blocks == (3,)
    assert narrow.source.columns == scan.columns
    assert narrow.source != scan


@pytest.mark.parametrize(
    ("where", "months"),
    [
        ("admitted >= '2026-01-01' AND admitted < '2026-03-01'", {JANUARY, JANUARY + 1}),
        ("admitted BETWEEN '2026-01-31' AND '2026-02-01'", {JANUARY, JANUARY + 1}),
        ("admitted = '2026-01-31'", {JANUARY}),
        ("admitted IN ('2026-01-31', '2026-03-01')", {JANUARY, JANUARY + 2}),
        ("admitted > '2026-12-30 12:00:00'", {JANUARY + 11}),
        ("admitted > '2027-12-30'", set()),
        ("DATE_TRUNC('month', admitted) = '2026-01-01'", ALL),
        ("admitted + INTERVAL 1 DAY = '2026-01-01'", ALL),
        ("admitted = '2026-01-31' OR TRUE", ALL),
    ],
)
def test_slices_of_rows_are_narrowed_by_their_column(where: str, months: set[int] | None) -> None:
    found = blocks_of(asked(f"SELECT COUNT(*) FROM visits WHERE {where}", MONTHS).source)
    assert found == (None if months is None else frozenset(months))


@settings(max_examples=200, deadline=None)
@given(
    first=st.integers(day(2024, 12, 1), day(2027, 2, 1)),
    last=st.integers(day(2024, 12, 1), day(2027, 2, 1)),
    every=st.sampled_from(["day", "week", "month", "quarter", "year"]),
)
def test_no_row_that_passes_lies_outside_the_blocks(first: int, last: int, every: str) -> None:
    kind = Moment(86400, day(2025, 1, 1), day(2026, 12, 31))
    text = [str(Moment(86400, code, code).value(code)) for code in (first, last)]
    where = f"admitted >= '{text[0]}' AND admitted <= '{text[1]}'"
    blocks = by_month()
    catalog = clinic_catalog(blocks=type(blocks)("row", column="admitted", every=every, first=0, last=0))
    found = blocks_of(asked(f"SELECT COUNT(*) FROM visits WHERE {where}", catalog).source)
    assert found is not None
    passing = range(max(first, kind.first), min(last, kind.last) + 1)
    reached = {block_of_code(kind, code, every) for code in passing}
    assert found == reached if passing else found >= reached
