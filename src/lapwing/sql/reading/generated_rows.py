"""Generated rows, with which analysts build dashboards without spending.

They are drawn uniformly from the values that the policy declares, and contain nothing of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lapwing.core.noise import uniform_int
from lapwing.engines.duckdb import DuckDbEngine
from lapwing.sql.policy.kinds import Kind, Text, Truth, codes_of
from lapwing.sql.policy.policy import CheckedPolicy, CheckedTable, codes_of_blocks
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.public_tables import PublicTable
from lapwing.sql.question.relation import BLOCK, RANK, UNIT, undo_where_first
from lapwing.sql.reading.exact_numbers import ExactGrouping
from lapwing.sql.reading.reader import Reader

PEOPLE = 1000  # generated people
_WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")


def fake_reader(policy: CheckedPolicy, public: Mapping[str, PublicTable]) -> Reader:
    """Return a reader of truncated tables with generated people."""
    engine = DuckDbEngine.open(limits=policy.limits)
    scans = {}
    for table in policy.private_tables:
        name = f"lapwing_fake_{table.name}"
        engine.ship(name, fake_rows(policy, table))
        scans[table.name] = engine.dialect.name(name)
    return Reader(policy, engine, scans, {}, public)


def generated_numbers(
    policy: CheckedPolicy, public: Mapping[str, PublicTable], query: BoundQuery
) -> list[ExactGrouping]:
    """Return the numbers of a query from generated rows. They mean nothing."""
    with closing(fake_reader(policy, public)) as reader:
        return reader.exact(replace(query, source=undo_where_first(query.source)))


def fake_rows(policy: CheckedPolicy, table: CheckedTable) -> pa.Table:
    """Return a few generated rows for each generated person."""
    each = min(table.rows_per_unit, 5)
    size = PEOPLE * each
    columns: dict[str, Any] = {
        UNIT: np.repeat(np.arange(PEOPLE), each),
        RANK: np.tile(np.arange(1, each + 1), PEOPLE),
    }
    if policy.blocks is not None:
        codes = codes_of_blocks(policy.blocks) or range(1)
        columns[BLOCK] = np.repeat(_draw(codes.start, codes.stop, PEOPLE), each)
    for column in table.columns.values():
        columns[column.name] = _values(column.kind, size)
    return pa.table(columns)


def _values(kind: Kind, size: int) -> Any:
    if isinstance(kind, Text):
        return [_WORDS[place] for place in _draw(0, len(_WORDS), size)]
    codes = codes_of(kind)
    assert codes is not None, "every declared column but a text has bounds"
    drawn = _draw(codes.start, codes.stop, size)
    return drawn.astype(bool) if isinstance(kind, Truth) else drawn


def _draw(start: int, stop: int, size: int) -> NDArray[np.int64]:
    return np.asarray(uniform_int(start, stop, size))
