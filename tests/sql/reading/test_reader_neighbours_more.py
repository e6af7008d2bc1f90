"""Neighbours where tables are reached through others, by keys, as files of other kinds, row by row.

S6, S9, S10: as in test_neighbours, for units through a table, primary keys, rows as units, months of
arrival, CSV and DuckDB sources, one row a unit, fewer rows than the policy allows, and what is bought
before asking (bounds, sizes, people with more rows), whose sensitivities are written by hand.
"""

from __future__ import annotations

import csv
import random
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lapwing.sql.policy.kinds import Choice, Kind, Moment, Text
from lapwing.sql.policy.policy import BlockRule, CheckedPolicy, UnitBy
from lapwing.sql.question.bind import bind
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.preliminary_questions import (
    bounds_question,
    policy_with_searched_column,
    sizes_question,
)
from lapwing.sql.question.scope import Catalog
from lapwing.sql.question.truncation_questions import truncated_people_question
from lapwing.sql.reading.exact_numbers import ExactGrouping
from lapwing.sql.reading.prepare import prepare
from lapwing.sql.reading.reader import Reader
from sql.reading.test_reader_neighbours import require_close
from support.private_tables import KEY, policy_of, table_of, whole
from support.slowly import first, slow

QUESTIONS = (
    "SELECT COUNT(*), SUM(stay), COUNT(DISTINCT who), COUNT(DISTINCT ward) FROM visits",
    "SELECT ward, COUNT(*), AVG(stay), COUNT(DISTINCT who), MEDIAN(stay) FROM visits GROUP BY ward",
    "SELECT name, COUNT(*), SUM(stay) FROM visits GROUP BY name",
    "SELECT ward, name, COUNT(*) FROM visits GROUP BY ROLLUP (ward, name)",
    "WITH p AS (SELECT who, COUNT(*) AS n, SUM(stay) AS s FROM visits GROUP BY who) "
    "SELECT COUNT(*), AVG(n), SUM(s) FROM p",
    "SELECT a.ward, COUNT(*), SUM(b.stay) FROM visits a JOIN visits b ON a.who = b.who GROUP BY a.ward",
)
COLUMNS: dict[str, Kind] = {"ward": Choice(("A", "B")), "stay": whole(0, 9), "name": Text()}
Rows = list[dict[str, Any]]
DAY = date(2026, 1, 20)


def visits_of(seed: int, *, most: int = 40) -> dict[str, Rows]:
    """Rows by person; the first has many. The column key refers to people."""
    dice = random.Random(seed)

    def visit(person: int) -> dict[str, Any]:
        return {
            "who": f"p{person}",
            "key": 10 * person + dice.randrange(2),
            "id": dice.randrange(10**6),
            "ward": dice.choice(["A", "B", "other", None]),
            "stay": dice.choice([-3, None, 99, *range(10)]),
            "name": dice.choice(["x", "y", "z", "", None, 'a "quoted", text']),
        }

    counts = [most, *(dice.randrange(0, 6) for _ in range(6))]
    return {f"p{n}": [visit(n) for _ in range(count)] for n, count in enumerate(counts)}


def people_of(visits: dict[str, Rows]) -> Rows:
    """Two keys lead to everybody, and one of them to somebody else as well."""
    found = [{"key": 10 * n + k, "who": f"p{n}"} for n in range(len(visits)) for k in range(2)]
    return [*found, {"key": 0, "who": "p1"}, {"key": 11, "who": "p0"}, {"key": 21, "who": None}]


def stored(rows: Rows, path: Path, form: str) -> tuple[Path, str]:
    """The place of the rows, and the table in it."""
    schema = {name: pa.array([row[name] for row in rows]) for name in rows[0]}
    if form == "csv":
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        return path, ""
    if form == "duckdb":
        with duckdb.connect(str(path)) as connection:
            connection.register("rows", pa.table(schema))
            connection.execute("CREATE TABLE visits AS SELECT * FROM rows")
        return path, "visits"
    pq.write_table(pa.table(schema), path)
    return path, ""


def policy_with(
    folder: Path, visits: dict[str, Rows], people: Rows, *,
    form: str = "parquet", rows: int = 3, through: bool = False, primary_key: tuple[str, ...] = (),
    blocks: BlockRule | None = None, order: int = 0, unit: str = "who",
) -> CheckedPolicy:  # fmt: skip
    folder.mkdir(parents=True)
    everything = [row for some in visits.values() for row in some]
    random.Random(order).shuffle(everything)
    path, inside = stored(everything, folder / f"visits.{form}", form)
    own = table_of(
        path, COLUMNS, form=form, inside=inside, rows=rows, primary_key=primary_key,
        unit=UnitBy("key", "people", "key") if through else unit,
    )  # fmt: skip
    tables = [own]
    if through:
        tables.append(table_of(stored(people, folder / "p.parquet", "parquet")[0], {}, name="people"))
    return policy_of(folder, *tables, blocks=blocks, protects="person" if unit else "row")


def found(
    policy: CheckedPolicy, *, rows: int | None = None, copy: bool = False, who: bool = True
) -> list[tuple[BoundQuery, list[ExactGrouping]]]:
    """What reaches the mechanisms, also for what is bought before asking."""
    catalog = Catalog(replace(policy, text_per_unit=10**6), {}, rows)  # one has 127 rows with texts
    asked = [bind(sql, catalog) for sql in QUESTIONS if who or "who" not in sql]
    asked += [*map(sizes_question, asked), truncated_people_question(policy, "visits")]
    searched = policy_with_searched_column(policy, "visits", "stay", 1)
    answers = []
    for own, questions in ((policy, asked), (searched, [bounds_question(searched, "visits", "stay")])):
        if copy:
            prepare(own, KEY, today=DAY)
        reader = Reader.open(own, KEY, {})
        try:
            assert reader.is_prepared is copy
            answers += [(one, reader.exact(one)) for one in questions]
        finally:
            reader.close()
    return answers


SETTINGS: tuple[dict[str, Any], ...] = (
    {"through": True, "primary_key": ("id",), "blocks": BlockRule("unit", cohorts=3)},
    {"form": "csv", "rows": 1},
    {"form": "duckdb", "blocks": BlockRule("unit", cohorts=2)},
    {"through": True, "blocks": BlockRule("unit", every="month"), "copy": True},
    {"through": True},
    {"primary_key": ("id", "name"), "form": "csv"},
    {"rows": 30},
    {"rows": 1},
    {"blocks": BlockRule("unit", every="month"), "copy": True},
)


@pytest.mark.parametrize("fewer", [None, slow(2)])
@pytest.mark.parametrize("setting", first(4, SETTINGS), ids=str)
def test_S6_one_person_moves_nothing_further_than_declared(
    setting: dict[str, Any], fewer: int | None, tmp_path: Path
) -> None:
    options = {name: value for name, value in setting.items() if name != "copy"}
    copy = setting.get("copy", False)
    visits = visits_of(3)
    people = people_of(visits)
    here = found(policy_with(tmp_path / "all", visits, people, **options), rows=fewer, copy=copy)
    for person in ("p0", "p1"):
        others = [row for row in people if row["who"] != person]
        # Through a table, a person is who is in it: the rows that lead to nobody else count no more.
        left = visits if setting.get("through") else {n: rows for n, rows in visits.items() if n != person}
        policy = policy_with(tmp_path / person, left, others, order=5, **options)
        for (question, mine), (_, theirs) in zip(here, found(policy, rows=fewer, copy=copy), strict=True):
            require_close(question, mine, theirs)


def test_S6_one_row_moves_nothing_further_than_declared(tmp_path: Path) -> None:
    visits = {"p0": visits_of(8)["p0"]}
    visits["p0"] += visits["p0"][:5]  # some are alike
    here = found(policy_with(tmp_path / "all", visits, [], rows=1, unit=""), who=False)
    for gone in (0, 7, 44):
        left = {"p0": [row for n, row in enumerate(visits["p0"]) if n != gone]}
        other = found(policy_with(tmp_path / f"{gone}", left, [], rows=1, unit="", order=2), who=False)
        for (question, mine), (_, theirs) in zip(here, other, strict=True):
            require_close(question, mine, theirs)


@pytest.mark.parametrize("most", [1, slow(2), slow(125), 126, 127])
def test_S6_who_has_more_rows_is_counted_once(most: int, tmp_path: Path) -> None:
    """A stored rank stands for all greater ones at some point: rank K + 1 must not be it."""
    visits = {"p0": visits_of(1, most=400)["p0"]}
    policy = policy_with(tmp_path / "all", visits, [], rows=most)
    for copy in (False, True):
        (_, exact) = next(
            one for one in found(policy, copy=copy) if one[0].parts[0].label.startswith("people w")
        )
        assert exact[0].values.tolist() == [[1]]


def test_what_lies_beyond_the_slices_is_in_none(tmp_path: Path) -> None:
    """Moved to the last slice it would be in another one, with its own budget, once bounds are wider."""
    days = [date(2026, 1, 1) + timedelta(days=n) for n in range(90)]
    file, _ = stored([{"who": "p", "day": day} for day in [*days, None]], tmp_path / "v.parquet", "parquet")
    first = (date(2026, 1, 1) - date(1970, 1, 1)).days
    for last, months in ((30, [672]), (89, [672, 673, 674])):
        kind = Moment(86400, first, first + last)
        table = replace(table_of(file, {"day": kind}, rows=100))
        table = replace(table, columns={"day": replace(table.columns["day"], missing=first)})
        blocks = BlockRule("row", column="day", every="month", first=672, last=674)
        policy = policy_of(tmp_path, table, blocks=blocks, protects="person-period")
        reader = Reader.open(policy, KEY, {})
        sql = "SELECT DATE_TRUNC('month', day) AS m, COUNT(*) FROM visits GROUP BY m"
        counts = reader.exact(bind(sql, Catalog(policy)))[0].values[:, 0].tolist()
        reader.close()
        assert counts == [31, 28, 31][: len(months)]
