"""The schema of a data set as its policy declares it: tables, columns, bounds, and what may be asked.

Everything is from the policy alone: no source is opened and no ledger is needed. Places of sources and
names of analysts are left out.
"""

from __future__ import annotations

from typing import Any

from lapwing.core.exact import float_up
from lapwing.sql.policy.kinds import SECONDS, Choice, Kind, Moment, Numeric, Text, Truth, codes_of
from lapwing.sql.policy.policy import (
    BlockRule,
    CheckedPolicy,
    CheckedTable,
    Column,
    account_label,
    codes_of_blocks,
)
from lapwing.sql.question.bind import MOST_CELLS

NUMBERS = (
    "COUNT", "COUNT_DISTINCT", "SUM", "AVG", "VARIANCE", "STDDEV", "MEDIAN", "QUANTILE", "MIN", "MAX",
)  # fmt: skip
OTHERS = ("COUNT", "COUNT_DISTINCT")
UNORDERED = {Choice: "values", Truth: "bool", Text: "text"}
DECLARED, SELECTED = "declared", "selected"


def schema_json(policy: CheckedPolicy) -> dict[str, Any]:
    """Return the schema as plain values with stable names. Budgets are rounded up."""
    return {
        "dataset": policy.name,
        "protects": policy.protects,
        "account": account_label(policy),
        "budget": {
            "epsilon": float_up(policy.epsilon),
            "delta": float_up(policy.delta),
            "delta_per_query": float_up(policy.delta_per_query),
            "least_epsilon": float_up(policy.least_epsilon),
        },
        "has_quotas": bool(policy.quotas),
        "pads": policy.pads,
        "blocks": None if policy.blocks is None else _blocks_json(policy.blocks),
        "tables": [_table_json(table) for table in policy.tables.values()],
    }


def _blocks_json(blocks: BlockRule) -> dict[str, Any]:
    # Blocks of arriving units open when units arrive: their number is no matter of the policy.
    is_fixed = blocks.by == "row" or bool(blocks.cohorts)
    return {
        "by": blocks.by,
        "column": blocks.column,
        "every": blocks.every or None,
        "count": len(codes_of_blocks(blocks)) if is_fixed else None,
    }


def _table_json(table: CheckedTable) -> dict[str, Any]:
    unit = table.unit
    return {
        "table": table.name,
        "public": table.is_public,
        "unit": (unit.column or None) if unit is not None else None,
        "unit_through": unit.through or None if unit is not None else None,
        "rows_per_unit": None if table.is_public else table.rows_per_unit,
        "rows": table.rows,
        "all_columns": table.is_public and not table.columns,
        "columns": [column_json(column) for column in table.columns.values()],
        "hidden": list(table.hidden),
    }


def column_json(column: Column) -> dict[str, Any]:
    """Return one column: its type, bounds or values, how its groups are made, and its aggregates."""
    kind = column.kind
    codes = codes_of(kind)
    count = None if codes is None or len(codes) > MOST_CELLS else len(codes)
    return {
        "column": column.name,
        **_described(kind),
        "values": list(kind.values) if isinstance(kind, Choice) else None,
        "missing_counts_as": None if column.missing is None else _shown(kind, column.missing),
        "longest": column.longest,
        "keys": SELECTED if count is None else DECLARED,
        "key_count": count,
        "aggregates": list(NUMBERS if isinstance(kind, Numeric) else OTHERS),
    }


def _described(kind: Kind) -> dict[str, Any]:
    """Return the type, the least and the greatest value, and the step: a number, or seconds."""
    match kind:
        case Numeric(step, int(first), int(last)):
            plain = int(step) if step.denominator == 1 else float(step)
            return {"type": "number", "low": kind.value(first), "high": kind.value(last), "step": plain}
        case Moment(seconds, first, last):
            word = "date" if seconds == SECONDS["day"] else "time"
            return {"type": word, "low": _shown(kind, first), "high": _shown(kind, last), "step": seconds}
        case _:
            return {"type": UNORDERED[type(kind)], "low": None, "high": None, "step": None}


def _shown(kind: Kind, code: int) -> str | int | float | bool:
    match kind:
        case Moment():
            return kind.value(code).isoformat()
        case Numeric() | Choice():
            return kind.value(code)
        case _:
            return bool(code)
