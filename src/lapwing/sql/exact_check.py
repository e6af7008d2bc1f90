"""An exact check of how a policy reads its cells, for the curator alone.

Claim    exact counts are returned to the holder of the curator's key only. They are in no ledger, no log
         and no error.
Because  the check is signed and on disk before a row is read.
Test     tests/sql/test_cell_check.py
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lapwing.engines.engine import EngineFailed
from lapwing.errors import BadParameter, Unavailable
from lapwing.ledger import CuratorKey
from lapwing.sql import policy_ledger
from lapwing.sql.cell_check import policy_of_states
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy import CheckedPolicy, CheckedTable, account_label
from lapwing.sql.question.relation import RANK, UNIT
from lapwing.sql.reading.column_codes import STATES
from lapwing.sql.reading.open_sources import OpenedSources, open_sources
from lapwing.sql.reading.truncated_table import TruncatedTable

EVERY_ROW = 1 << 30  # a contribution bound that truncates nothing


@dataclass(frozen=True, slots=True)
class TableCheck:
    """Exact counts of one table. Private."""

    table: str
    rows: int
    rows_without_id: int
    units: int
    units_beyond: int  # that exceed the contribution bound
    rows_beyond: int  # that are truncated
    cells: Mapping[str, Mapping[str, int]]  # by column and state


def check_exactly(dataset: Dataset, curator: CuratorKey) -> list[TableCheck]:
    """Count the cells of every column by state. The curator's key signs the check; nothing is charged.

    The result is private: show it to the curator only.
    """
    policy = dataset.policy
    if not policy_ledger.has_ledger(policy):
        raise BadParameter("policy", "has no ledger yet: `lapwing prepare` makes it, and the curator's key")
    ledger = dataset.ledger
    ledger.require_curator(curator)
    digest = policy_ledger.declared_digest(policy, ledger)
    ledger.record_check(account_label(policy), digest, curator)
    opened = open_sources(policy)
    try:
        return [_exact(policy, table, opened) for table in policy.private_tables]
    except EngineFailed:
        raise Unavailable("a stored value cannot be read. `lapwing prepare` tells where") from None
    finally:
        opened.engine.close()


def _exact(policy: CheckedPolicy, table: CheckedTable, opened: OpenedSources) -> TableCheck:
    checked, columns = policy_of_states(policy, table.name, table.columns)
    key = bytes(32)  # the order of a unit's rows does not matter here
    cells = TruncatedTable(checked, checked.tables[table.name], opened.engine, key, opened.relations)
    sums = [
        f"coalesce(sum(CASE WHEN {opened.engine.dialect.name(name)} = {place} THEN 1 ELSE 0 END), 0)"
        f" AS c{n}_{place}"
        for n, name in enumerate(columns)
        for place in range(len(STATES))
    ]
    [(known, units, *counts)] = _rows(
        opened,
        f"SELECT count(*) AS n, count(DISTINCT {UNIT}) AS u{''.join(f', {count}' for count in sums)} "  # noqa: S608
        f"FROM ({cells.codes()}) AS c",
    )
    sliced = policy.blocks is not None and policy.blocks.by == "row"
    whole = replace(table, rows_per_unit=EVERY_ROW)
    ranks = TruncatedTable(
        policy if sliced else replace(policy, blocks=None), whole, opened.engine, key, opened.relations
    )
    most = table.rows_per_unit
    [(over, beyond)] = _rows(
        opened,
        f"SELECT coalesce(sum(CASE WHEN {RANK} = {most + 1} THEN 1 ELSE 0 END), 0) AS p, "  # noqa: S608
        f"coalesce(sum(CASE WHEN {RANK} > {most} THEN 1 ELSE 0 END), 0) AS n "
        f"FROM ({ranks.ranked(ranks.codes())}) AS b",
    )
    [(rows,)] = _rows(opened, f"SELECT count(*) AS n FROM {opened.relations[table.name]} AS t")  # noqa: S608
    size = len(STATES)
    states = {
        name: dict(zip(STATES, counts[n * size : (n + 1) * size], strict=True))
        for n, name in enumerate(columns.values())
    }
    units = known if ranks.each_row else units
    return TableCheck(table.name, rows, rows - known, units, over, beyond, states)


def _rows(opened: OpenedSources, sql: str) -> list[list[int]]:
    counted = opened.engine.run(sql)
    return [[int(value) for value in row.values()] for row in counted.to_pylist()]
