"""A small clinic: its policy, its public table, and files with people of every sort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from random import Random

import duckdb

from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Text, Truth
from lapwing.sql.policy.policy import BlockRule, CheckedPolicy, CheckedTable, Column, Source, UnitBy
from lapwing.sql.question.bind import bind
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.public_tables import PublicTable
from lapwing.sql.question.scope import Catalog

VISITS_PER_PERSON = 5
COHORTS = BlockRule("unit", 64)
_VISITS = "patient_id TEXT, ward TEXT, stay INTEGER, cost DOUBLE, admitted DATE, urgent BOOLEAN, name TEXT"
_PATIENTS = "patient_id VARCHAR, sex VARCHAR, age INTEGER"
_WARDS = "ward VARCHAR, beds INTEGER, kind VARCHAR"
_WARD_ROWS = [("A", 10, "x"), ("B", 20, "y"), ("C", 30, "x"), ("D", 5, "y")]


def day(year: int, month: int, of_month: int) -> int:
    return (date(year, month, of_month) - date(1970, 1, 1)).days


def clinic_policy(folder: Path, blocks: BlockRule | None = COHORTS) -> CheckedPolicy:
    """The policy over files that `write_clinic` writes into the folder."""
    visits: dict[str, Kind] = {
        "ward": Choice(("A", "B", "C")),
        "stay": Numeric(Fraction(1), 0, 60),
        "cost": Numeric(Fraction(1, 100), 0, 1_000_000),
        "admitted": Moment(86400, day(2025, 1, 1), day(2026, 12, 31)),
        "urgent": Truth(),
        "name": Text(),
    }
    patients: dict[str, Kind] = {"sex": Choice(("f", "m")), "age": Numeric(Fraction(1), 0, 120)}
    tables = [
        _table(folder, "visits", visits, UnitBy("patient_id"), VISITS_PER_PERSON),
        _table(folder, "patients", patients, UnitBy("patient_id"), 1),
        _table(folder, "wards", {}, None, 0),
    ]
    protects = "person-period" if blocks is not None and blocks.by == "row" else "person"
    return CheckedPolicy(
        folder / "clinic.toml", "clinic", Fraction(3), Fraction(1, 10**7), Fraction(1, 10**9),
        {table.name: table for table in tables}, blocks, "", {}, protects,
    )  # fmt: skip


def _table(
    folder: Path, name: str, kinds: Mapping[str, Kind], unit: UnitBy | None, rows: int
) -> CheckedTable:
    source = Source("duckdb", str(folder / f"{name}.parquet"), "", "parquet")
    return CheckedTable(
        name, source, {column: Column(column, kind) for column, kind in kinds.items()}, unit, rows
    )


def by_month() -> BlockRule:
    """Blocks that slice rows by the month of admission."""
    first, last = (2025 - 1970) * 12, (2026 - 1970) * 12 + 11
    return BlockRule("row", column="admitted", every="month", first=first, last=last)


def clinic_catalog(folder: Path = Path("clinic"), blocks: BlockRule | None = COHORTS) -> Catalog:
    """What questions may speak of. No file is read."""
    names = ("ward", "beds", "kind")
    columns: dict[str, list[object]] = {
        name: [row[n] for row in _WARD_ROWS] for n, name in enumerate(names)
    }
    undeclared = {"visits": frozenset({"diagnosis"})}
    return Catalog(
        clinic_policy(folder, blocks), {"wards": PublicTable("wards", columns)}, undeclared=undeclared
    )


def roomy(catalog: Catalog) -> Catalog:
    """The same clinic, whose curator allows a hundred times the work for one person.

    Generated questions chain costly terms at random. These tests ask what an accepted question does.
    """
    return replace(catalog, policy=replace(catalog.policy, steps_per_unit=10**7, text_per_unit=10**7))


def asked(sql: str, catalog: Catalog | None = None) -> BoundQuery:
    """The question that a text asks of the clinic."""
    return bind(sql, catalog if catalog is not None else clinic_catalog())


def people(seed: int, how_many: int) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """Rows of visits and of patients: some people have many, some values are missing or out of bounds."""
    random = Random(seed)
    visits: list[tuple[object, ...]] = []
    patients: list[tuple[object, ...]] = []
    for person in range(how_many):
        who = f"p{person}"
        for _ in range(random.choice((0, 1, 2, 3, 5, 8, 20))):
            row = (
                who,
                random.choice(("A", "B", "C", "Z", None)),
                random.choice((0, 1, 7, 30, 60, 99, -4, None)),
                random.choice((0.0, 12.34, 9999.99, 1e9, None)),
                date(2025, 1, 1) + timedelta(days=random.randrange(-30, 800)),
                random.choice((True, False, None)),
                random.choice(("Alice", "Bob", "7", "", None, f"only {who}")),
            )
            visits.append(row)
        patients += [
            (who, random.choice(("f", "m", None)), random.choice((0, 40, 120, 300, None)))
            for _ in range(random.choice((0, 1, 1, 2)))
        ]
    visits.append((None, "A", 5, 1.0, date(2025, 5, 5), True, "nobody"))
    return visits, patients


def write_clinic(
    folder: Path, visits: Sequence[tuple[object, ...]], patients: Sequence[tuple[object, ...]]
) -> None:
    """The Parquet files that the policy names."""
    connection = duckdb.connect()
    for name, columns, rows in (
        ("visits", _VISITS, visits), ("patients", _PATIENTS, patients), ("wards", _WARDS, _WARD_ROWS),
    ):  # fmt: skip
        connection.execute(f"CREATE TABLE {name} ({columns})")
        if rows:
            marks = ", ".join("?" for _ in rows[0])
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", [list(row) for row in rows])
        connection.execute(f"COPY {name} TO '{folder / f'{name}.parquet'}' (FORMAT parquet)")
    connection.close()
