"""Small private tables, their policies, and their coded rows on DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lapwing.sql.policy.kinds import Kind, Numeric
from lapwing.sql.policy.policy import BlockRule, CheckedPolicy, CheckedTable, Column, Source, UnitBy
from lapwing.sql.reading.open_sources import OpenedSources, open_sources
from lapwing.sql.reading.truncated_table import TruncatedTable

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
Row = tuple[Any, ...]


def whole(first: int, last: int) -> Numeric:
    return Numeric(Fraction(1), first, last)


def store(path: Path, rows: Mapping[str, Sequence[object] | pa.Array]) -> Path:
    pq.write_table(pa.table({name: pa.array(values) for name, values in rows.items()}), path)
    return path


def table_of(
    location: Path | str, columns: Mapping[str, Kind], *,
    name: str = "visits", unit: UnitBy | str = "who", rows: int = 5, form: str = "parquet",
    inside: str = "", primary_key: tuple[str, ...] = (), missing: Mapping[str, int] | None = None,
) -> CheckedTable:  # fmt: skip
    declared = {
        column: Column(column, kind, (missing or {}).get(column)) for column, kind in columns.items()
    }
    by = UnitBy(unit) if isinstance(unit, str) else unit
    return CheckedTable(
        name, Source("duckdb", str(location), inside, form), declared, by, rows, primary_key
    )


def policy_of(
    folder: Path, *tables: CheckedTable, blocks: BlockRule | None = None, protects: str = "person"
) -> CheckedPolicy:
    return CheckedPolicy(
        folder / "clinic.toml", "clinic", Fraction(1), Fraction(0), Fraction(0),
        {table.name: table for table in tables}, blocks, "", {}, protects,
    )  # fmt: skip


def coded(policy: CheckedPolicy, table: str, opened: OpenedSources, key: bytes = KEY) -> str:
    """A SELECT of the truncated rows of a table."""
    rows = TruncatedTable(policy, policy.tables[table], opened.engine, key, opened.relations)
    return rows.ranked(rows.codes())


def coded_rows(
    policy: CheckedPolicy,
    *columns: str,
    table: str = "visits",
    key: bytes = KEY,
    threads: int | None = None,
) -> list[Row]:
    """Units, ranks and some columns of the coded table, sorted."""
    opened = open_sources(policy, threads=threads)
    try:
        sql = coded(policy, table, opened, key)
        names = ", ".join(["lapwing_unit", "lapwing_rank", *columns])
        found = opened.engine.run(f"SELECT {names} FROM ({sql}) AS b")
    finally:
        opened.engine.close()
    return rows_of(found)


def rows_of(table: pa.Table) -> list[Row]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)
