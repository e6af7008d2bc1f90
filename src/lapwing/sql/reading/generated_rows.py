"""Generated rows, with which analysts build dashboards without spending.

Those of dry runs are drawn uniformly from the values that the policy declares. Example rows, which analysts
may keep, are the same each time. Neither contains anything of the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lapwing.config.values import checked_count, shortened_list
from lapwing.core.noise import uniform_int
from lapwing.engines.duckdb import DuckDbEngine
from lapwing.errors import BadParameter
from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Period, Person, Text, Truth, codes_of
from lapwing.sql.policy.policy import CheckedPolicy, CheckedTable, Column, codes_of_blocks
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.public_tables import PublicTable
from lapwing.sql.question.relation import BLOCK, RANK, UNIT, undo_where_first
from lapwing.sql.reading.exact_numbers import ExactGrouping
from lapwing.sql.reading.reader import Reader

PEOPLE = 1000  # generated people
MOST_EXAMPLES = 100_000
_GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples lie far from one another, modulo 1
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


def example_rows(policy: CheckedPolicy, table: str, rows: int) -> pa.Table:
    """Return generated rows of a table as analysts would see them, from the policy alone.

    Claim    the same policy gives the same rows. Each value is a declared one.
    Because  row r of a column has the code at place r · stride, modulo the number of its codes. A stride
             has no common divisor with that number: all codes come before one comes again.
    Test     tests/sql/reading/test_generated_rows.py

    Args:
        policy: The policy.
        table: A table that declares columns. Its unit is not one of them.
        rows: How many rows.
    """
    own = policy.tables.get(table)
    if own is None:
        raise BadParameter("table", f"must be one of {shortened_list(list(policy.tables))}")
    if not own.columns:
        raise BadParameter("table", f'"{table}" declares no column: it is public, and can be read itself')
    count = checked_count(rows, "rows")
    if not 1 <= count <= MOST_EXAMPLES:
        raise BadParameter("rows", f"must lie between 1 and {MOST_EXAMPLES:,}")
    names = [name for name, column in own.columns.items() if not isinstance(column.kind, Person)]
    found = {name: _examples(own.columns[name], place, count) for place, name in enumerate(names)}
    return pa.table(found)


def _examples(column: Column, place: int, rows: int) -> pa.Array:
    kind = column.kind
    codes = codes_of(kind) or range(len(_WORDS))
    stride = max(int(len(codes) * ((place + 1) * _GOLDEN % 1)), 1)
    while math.gcd(stride, len(codes)) > 1:
        stride += 1
    chosen = [codes[row * stride % len(codes)] for row in range(rows)]
    if isinstance(kind, Text):
        return pa.array([_WORDS[code][: column.longest] for code in chosen], pa.string())
    if isinstance(kind, Truth):
        return pa.array([bool(code) for code in chosen], pa.bool_())
    assert isinstance(kind, Numeric | Choice | Moment | Period), "persons are never shown"
    if isinstance(kind, Numeric):
        form = pa.int64() if kind.step.denominator == 1 else pa.float64()
        return pa.array([kind.value(code) for code in chosen], form)
    return pa.array([kind.value(code) for code in chosen])


def _values(kind: Kind, size: int) -> Any:
    if isinstance(kind, Text):
        return [_WORDS[place] for place in _draw(0, len(_WORDS), size)]
    codes = codes_of(kind)
    assert codes is not None, "every declared column but a text has bounds"
    drawn = _draw(codes.start, codes.stop, size)
    return drawn.astype(bool) if isinstance(kind, Truth) else drawn


def _draw(start: int, stop: int, size: int) -> NDArray[np.int64]:
    return np.asarray(uniform_int(start, stop, size))
