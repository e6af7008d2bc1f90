"""The same rows and ranks on all engines, and copies that leave the source as it is."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from uuid import uuid4

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lapwing.errors import Unavailable
from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Text, Truth
from lapwing.sql.policy.policy import BlockRule, CheckedPolicy, Source
from lapwing.sql.reading.open_sources import open_sources
from lapwing.sql.reading.prepare import ARRIVALS, LedgerPeople, prepare
from lapwing.sql.reading.prepared_copy import PreparedCopy, current_copy
from support.postgres import server
from support.private_tables import KEY, Row, coded_rows, policy_of, rows_of, table_of, whole
from support.slowly import slow
from support.spark import spark

COLUMNS: dict[str, Kind] = {
    "code": whole(-5, 9),
    "wide": Numeric(Fraction(1), -(1 << 40), 1 << 40),
    "price": Numeric(Fraction(1, 100), 0, 10_000),
    "note": Text(),
    "ward": Choice(("A", "it's", "C")),
    "many": Choice(tuple(f"m{n}" for n in range(20))),
    "day": Moment(86400, 0, 30_000),
    "open": Truth(),
}
NAMES = list(COLUMNS)


TYPES = (
    "who text, code int, wide bigint, price double precision, note text, ward text, many text,"
    " day date, open boolean"
)


def row(n: int) -> dict[str, object]:
    wards = ["A", "it's", "C", "other", None]
    return {
        "who": None if n % 31 == 0 else f" Ann{n % 37} " if n % 2 else f"ann{n % 37}",
        "code": None if n % 13 == 0 else n % 20 - 8,
        "wide": (n * n * 7_777_777_777) % (1 << 41) - (1 << 40),
        "price": None if n % 17 == 0 else float("nan") if n % 19 == 0 else n * 0.37,
        "note": None if n % 11 == 0 else f"é '{n % 5}\\",
        "ward": wards[n % 5],
        "many": f"m{n % 23}",
        "day": None if n % 29 == 0 else date(1969 + n % 80, 1 + n % 12, 1 + n % 28),
        "open": [True, False, None][n % 3],
    }


def rows() -> pa.Table:
    again = [n for n in range(120) for _ in range(n % 4)]  # equal rows: up to four of a kind
    return pa.Table.from_pylist([row(n) for n in [*range(400), *again]])


BY_ARRIVAL = BlockRule("unit", every="month")
SLICES = [None, BlockRule("unit", cohorts=7), BY_ARRIVAL]


@pytest.fixture
def policy(request: pytest.FixtureRequest, tmp_path: Path) -> CheckedPolicy:
    pq.write_table(rows(), tmp_path / "v.parquet")
    blocks: BlockRule | None = request.param
    return policy_of(tmp_path, table_of(tmp_path / "v.parquet", COLUMNS), blocks=blocks)


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest, policy: CheckedPolicy, tmp_path: Path) -> CheckedPolicy:
    """The same policy over another engine."""
    name = f"clinic_{uuid4().hex[:8]}"
    if request.param == "spark":
        spark()  # the session that all tests share
        source = Source("spark", "", str(tmp_path / "v.parquet"), "spark-parquet")
    else:
        with psycopg.connect(server()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE SCHEMA {name}")
            cursor.execute(f"CREATE TABLE {name}.visits ({TYPES})")
            cursor.executemany(
                f"INSERT INTO {name}.visits VALUES ({', '.join(['%s'] * 9)})",
                [tuple(row.values()) for row in rows().to_pylist()],
            )
        source = Source("postgres", server(), f"{name}.visits", "postgres")
    table = replace(policy.tables["visits"], source=source)
    return replace(policy, name=name, tables={"visits": table}, path=tmp_path / f"{request.param}.toml")


def copied(policy: CheckedPolicy, made: PreparedCopy) -> list[Row]:
    opened = open_sources(policy)
    names = ["lapwing_unit", "lapwing_rank", *(["lapwing_block"] if policy.blocks else []), *NAMES]
    quoted = ", ".join(map(opened.engine.dialect.name, names))
    try:
        return rows_of(
            opened.engine.run(f"SELECT {quoted} FROM {made.relations(opened.engine, made.types)['visits']}")
        )
    finally:
        opened.engine.close()


@pytest.mark.parametrize(
    ("policy", "elsewhere"),
    [
        *((blocks, "postgres") for blocks in SLICES),
        (None, "spark"),
        *(slow(blocks, "spark") for blocks in SLICES[1:]),
    ],
    indirect=True,
)
def test_all_engines_keep_the_same_rows(policy: CheckedPolicy, elsewhere: CheckedPolicy) -> None:
    today = date(2026, 5, 4)
    here = prepare(policy, KEY, today=today)
    made = prepare(elsewhere, KEY, today=today)
    engine = here.open()
    names = ", ".join(
        ["lapwing_unit", "lapwing_rank", *(["lapwing_block"] if policy.blocks else []), *NAMES]
    )
    expected = rows_of(engine.run(f"SELECT {names} FROM {here.relations(engine, here.types)['visits']}"))
    engine.close()
    assert copied(elsewhere, made) == expected
    assert current_copy(elsewhere, KEY) == made
    again = prepare(elsewhere, KEY, today=date(2030, 1, 1))
    assert again.version == 2
    assert copied(elsewhere, again) == expected
    if policy.blocks is None:
        assert coded_rows(policy, *NAMES) == expected


@pytest.mark.parametrize(
    ("policy", "elsewhere"),
    [(BY_ARRIVAL, "postgres"), slow(BY_ARRIVAL, "spark")],
    indirect=True,
)
def test_a_lost_copy_in_a_server_gives_nobody_another_block(
    policy: CheckedPolicy, elsewhere: CheckedPolicy
) -> None:
    everybody = {f"ann{n}" for n in range(37)}

    def known() -> LedgerPeople:
        return LedgerPeople(1, lambda ids: everybody <= {str(one).strip().lower() for one in ids})

    made = prepare(elsewhere, KEY, today=date(2026, 1, 5))
    made = prepare(elsewhere, KEY, known=known, today=date(2026, 2, 5))
    assert made.follows == 1
    opened = open_sources(elsewhere, writes=True)
    if made.engine == "spark":
        shutil.rmtree(made.file / ARRIVALS)
    else:
        opened.engine.execute(f"DROP TABLE {made.relations(opened.engine, [ARRIVALS])[ARRIVALS]}")
    opened.engine.close()
    with pytest.raises(Unavailable, match="Restore it from a backup"):
        prepare(elsewhere, KEY, known=known, today=date(2026, 3, 5))
    (made.folder / "manifest.json").unlink()
    with pytest.raises(Unavailable, match="Restore it from a backup"):
        prepare(elsewhere, KEY, known=known, today=date(2026, 3, 5))
