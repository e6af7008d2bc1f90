"""What is called known is never NULL, and then one count serves all aggregates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lapwing.sql.question.bind import bind
from lapwing.sql.question.bound_query import Sum
from lapwing.sql.question.scope import Catalog
from lapwing.sql.reading.reader import Reader
from support.clinic import clinic_catalog, people, write_clinic

KEY = bytes(32)


def filled(folder: Path = Path("clinic")) -> Catalog:
    """The clinic with a stay that is never missing."""
    catalog = clinic_catalog(folder)
    visits = catalog.policy.tables["visits"]
    columns = {**visits.columns, "stay": replace(visits.columns["stay"], missing=0)}
    tables = {**catalog.policy.tables, "visits": replace(visits, columns=columns)}
    return replace(catalog, policy=replace(catalog.policy, tables=tables))


def counts(sql: str) -> list[str]:
    return [one.function for one in bind(sql, filled()).sums if one.function in ("rows", "count")]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*), AVG(stay) FROM visits",
        "SELECT COUNT(stay), AVG(stay + 1), VARIANCE(stay * 2) FROM visits",
        "SELECT COUNT(*), AVG(cost) FROM visits WHERE cost > 5",
        "SELECT COUNT(*), AVG(cost) FROM visits WHERE NOT cost IS NULL AND stay > 1",
        "SELECT COUNT(*), AVG(COALESCE(cost, 0)), AVG(CASE WHEN urgent THEN 1 ELSE 0 END) FROM visits",
        "SELECT AVG(n), COUNT(*) FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id) p",
        "SELECT COUNT(*), AVG(stay) FROM visits v JOIN patients p ON v.patient_id = p.patient_id",
        "SELECT COUNT(*), AVG(x) FROM (SELECT stay AS x FROM visits UNION ALL SELECT stay FROM visits) u",
    ],
)
def test_one_count_serves_all(sql: str) -> None:
    assert counts(sql) == ["rows"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*), AVG(cost) FROM visits",
        "SELECT COUNT(*), AVG(cost) FROM visits WHERE cost > 5 OR urgent",
        "SELECT COUNT(*), AVG(cost) FROM visits WHERE NOT (cost > 5 AND urgent) OR stay > 1",
        "SELECT COUNT(*), AVG(NULLIF(stay, 3)) FROM visits",
        "SELECT COUNT(*), AVG(ROUND(stay / stay, 0)) FROM visits",
        "SELECT COUNT(*), AVG(CASE WHEN urgent THEN stay END) FROM visits",
        "SELECT COUNT(*), AVG(v.stay) FROM patients p LEFT JOIN visits v ON p.patient_id = v.patient_id",
        "SELECT COUNT(*), AVG(s) FROM (SELECT patient_id, SUM(cost) s FROM visits GROUP BY patient_id) p",
        "SELECT COUNT(*), AVG(beds) FROM visits LEFT JOIN wards ON visits.ward = wards.ward",
        "SELECT COUNT(*), AVG(x) FROM (SELECT stay AS x FROM visits UNION ALL SELECT age FROM patients) u",
    ],
)
def test_what_may_be_missing_is_counted_by_itself(sql: str) -> None:
    assert sorted(counts(sql)) == ["count", "rows"]


def test_known_values_are_as_many_as_rows(tmp_path: Path) -> None:
    """For every question above: the rows that it counts once are those that the engine finds known."""
    write_clinic(tmp_path, *people(3, 30))
    catalog = filled(tmp_path)
    reader = Reader.open(catalog.policy, KEY, catalog.public, threads=1)
    for sql in (
        "SELECT COUNT(*), AVG(stay) FROM visits",
        "SELECT COUNT(*), AVG(cost) FROM visits WHERE cost > 5",
        "SELECT COUNT(*), AVG(COALESCE(cost, 0)) FROM visits",
        "SELECT AVG(n), COUNT(*) FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id) p",
    ):
        bound = bind(sql, catalog)
        [total] = [one for one in bound.sums if one.function == "sum"]
        both = replace(bound, sums=(Sum("rows"), Sum("count", total.expression)), parts=bound.parts[:0])
        table = reader._run(reader.statements(both).sums[0], {})
        assert table.column("s0")[0].as_py() == table.column("s1")[0].as_py() > 0
    reader.close()
