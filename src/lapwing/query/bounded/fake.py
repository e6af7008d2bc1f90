"""Generated rows of a policy's schema, so that dashboards can be built without spending.

They are drawn uniformly from what the policy declares: nothing of the data is in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lapwing.engines.duckdb import DuckDbEngine
from lapwing.noise import uniform_int
from lapwing.query.binding.public import PublicTable
from lapwing.query.bounded.reader import Reader
from lapwing.query.bounded.sources import private_tables
from lapwing.query.language.kinds import Kind, Text, Truth, codes_of
from lapwing.query.language.relation import BLOCK, RANK, UNIT
from lapwing.query.policies.blocks import codes_of_blocks
from lapwing.query.policies.policy import Policy, Table

PEOPLE = 1000
_WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")


def fake_reader(policy: Policy, public: Mapping[str, PublicTable]) -> Reader:
    """Bounded tables of generated people."""
    engine = DuckDbEngine.open(limits=policy.limits)
    scans = {}
    for table in private_tables(policy):
        name = f"lapwing_fake_{table.name}"
        engine.ship(name, fake_rows(policy, table))
        scans[table.name] = engine.spelling.name(name)
    return Reader(policy, engine, scans, {}, public)


def fake_rows(policy: Policy, table: Table) -> pa.Table:
    """At most a few rows of each generated person."""
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
