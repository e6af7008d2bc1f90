"""What is no number is missing, whatever other rows of the file hold.

A Parquet file tells the least and the greatest number of each part of it, and NaN is in neither. An engine
that decides by those gives one person's NaN another meaning when somebody else's number comes or goes.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lapwing.sql.policy.kinds import Kind, Numeric, Truth
from lapwing.sql.question.bind import bind
from lapwing.sql.question.scope import Catalog
from lapwing.sql.reading.prepare import prepare
from lapwing.sql.reading.reader import Reader
from support.private_tables import KEY, policy_of, table_of
from support.slowly import slow

QUESTIONS = (
    "SELECT COUNT(*), COUNT(y), SUM(y), AVG(y) FROM visits",
    "SELECT AVG(y) FROM visits",
    "SELECT COUNT(*) FROM visits WHERE y >= 60",
    "SELECT COUNT(*) FROM visits WHERE y > 2 AND y < 50",
    "SELECT COUNT(*) FROM visits WHERE NOT y < 7",
    "SELECT COUNT(*) FROM visits WHERE y IS NULL",
    "SELECT COUNT(*) FROM visits WHERE y <> 3",
    "SELECT SUM(CASE WHEN y >= 60 THEN 1 ELSE 0 END), SUM(COALESCE(y, 9)) FROM visits",
    "SELECT t, COUNT(*), SUM(y) FROM visits GROUP BY t",
    "SELECT AVG(t) FROM visits WHERE t",
)
COLUMNS: dict[str, Kind] = {"y": Numeric(Fraction(1), 0, 60), "t": Truth()}
FEW: list[float | None] = [math.nan, 3.0, math.nan, 0.0, None, 3.0]
CROWD: list[float | None] = [*[math.nan] * 40, *[3.0] * 40]
FILES: dict[str, list[float | None]] = {
    "nobody far out": CROWD,
    "one above": [*CROWD, 61.0],
    "one at the top": [*CROWD, 60.0],
    "one below": [-5.0, *CROWD],
    "one without end": [*CROWD, math.inf],
    "one without beginning": [-math.inf, *CROWD],
    "one in each part": [61.0, *CROWD[30:50], 61.0, *CROWD[30:50], -1.0],
    "nobody but NaN": [*CROWD[:20]],
    "NaN and one": [*CROWD[:20], 60.0],
    "some of everything": [*FEW, 59.6, *FEW, 1e300, *FEW, -1e-300, *FEW],
}


def exact(values: list[Any], folder: Path, *, part: int, missing: int | None, copy: bool) -> list[Any]:
    """What reaches the mechanisms, from a file with parts of so many rows, or a table of DuckDB."""
    folder.mkdir()
    held = {
        "who": [f"p{k // 2}" for k in range(len(values))],
        "y": pa.array(values, pa.float64()),
        "t": pa.array(values, pa.float64()),
    }
    if part:
        place, form, inside = folder / "v.parquet", "parquet", ""
        pq.write_table(pa.table(held), place, row_group_size=part)
    else:
        place, form, inside = folder / "v.duckdb", "duckdb", "v"
        with duckdb.connect(str(place)) as connection:
            connection.register("held", pa.table(held))
            connection.execute("CREATE TABLE v AS SELECT * FROM held")
    found = {} if missing is None else {"y": missing}
    own = table_of(place, COLUMNS, rows=3, missing=found, form=form, inside=inside)
    policy = policy_of(folder, own)
    if copy:
        prepare(policy, KEY)
    reader = Reader.open(policy, KEY, {})
    try:
        assert reader.is_prepared is copy
        answers = [reader.exact(bind(sql, Catalog(policy))) for sql in QUESTIONS]
    finally:
        reader.close()
    return [[(one.keys, one.values.tolist()) for one in answer] for answer in answers]


@pytest.mark.parametrize(
    ("part", "copy"), [(8, False), slow(0, False), slow(1000, False), slow(8, True), slow(1000, True)]
)
@pytest.mark.parametrize("missing", [None, slow(7)])
@pytest.mark.parametrize("name", FILES)
def test_it_is_missing_in_every_file(
    name: str, missing: int | None, part: int, copy: bool, tmp_path: Path
) -> None:
    values = FILES[name]
    gone = [None if value is None or math.isnan(value) else value for value in values]
    here = exact(values, tmp_path / "nan", part=part, missing=missing, copy=copy)
    assert here == exact(gone, tmp_path / "null", part=part, missing=missing, copy=copy)


@pytest.mark.parametrize("part", [0, 1000])
def test_it_is_missing_in_a_table_and_in_one_large_part(part: int, tmp_path: Path) -> None:
    test_it_is_missing_in_every_file("some of everything", None, part, False, tmp_path)
