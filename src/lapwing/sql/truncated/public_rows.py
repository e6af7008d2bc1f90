"""The rows of public tables, read from their sources."""

from __future__ import annotations

import pyarrow as pa

from lapwing.sql.binding.public_tables import PublicTable
from lapwing.sql.expression import Kind
from lapwing.sql.policy import Policy, Table
from lapwing.sql.truncated.open_sources import open_sources


def read_public_tables(policy: Policy) -> dict[str, PublicTable]:
    """Read all public tables of a policy."""
    found = {}
    for table in policy.tables.values():
        if table.is_public:
            kinds: dict[str, Kind] = {name: column.kind for name, column in table.columns.items()}
            csv = table.source.csv if table.source.form == "csv" else None
            found[table.name] = PublicTable.of(table.name, _public_rows(policy, table), kinds, csv=csv)
    return found


def _public_rows(policy: Policy, table: Table) -> pa.Table:
    """Read a public table. Columns get the names that the policy gives them."""
    opened = open_sources(policy, [table])
    try:
        rows = opened.engine.run(f"SELECT * FROM {opened.relations[table.name]}")  # noqa: S608
    finally:
        opened.engine.close()
    names = {column.source.lower(): column.name for column in table.columns.values() if column.source}
    return rows.rename_columns([names.get(name.lower(), name) for name in rows.column_names])
