"""The schema of a policy is true: every aggregate and key that it names can be planned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lapwing
from lapwing.examples.visits import write_visits
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.question.bound_query import has_declared_keys
from lapwing.sql.question.policy_schema import NUMBERS, schema_json

MORE = """
[tables.visits.columns.seen]
low = 2025-01-01T00:00:00Z
high = 2025-01-02T00:00:00Z
step = "hour"

[tables.visits.columns.note]
type = "text"
longest = 80

[tables.visits.columns.secret]
hidden = true
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    write_visits(tmp_path)
    path = tmp_path / "visits.toml"
    text = path.read_text()
    path.write_text(text + "\n[analysts.ann]\nepsilon = 1\ndelta = 1e-7\n")
    return path


@pytest.fixture
def dataset(policy: Path) -> Iterator[Dataset]:
    with lapwing.open(policy, analyst="ann") as found:
        yield found


def columns(found: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for table in found["tables"]:
        for column in table["columns"]:
            yield table["table"], column


def written(aggregate: str, column: str) -> str:
    if aggregate == "QUANTILE":
        return f"QUANTILE({column}, 0.9)"
    return f"COUNT(DISTINCT {column})" if aggregate == "COUNT_DISTINCT" else f"{aggregate}({column})"


def test_every_aggregate_that_it_names_can_be_planned(policy: Path, dataset: Dataset) -> None:
    for table, column in columns(schema_json(load_policy(policy))):
        for aggregate in column["aggregates"]:
            sql = f"SELECT {written(aggregate, column['column'])} FROM {table}"
            assert dataset.plan(sql, epsilon="0.5").cost.epsilon


def test_declared_keys_are_those_that_need_no_delta(policy: Path, dataset: Dataset) -> None:
    for table, column in columns(schema_json(load_policy(policy))):
        sql = f"SELECT {column['column']}, COUNT(*) FROM {table} GROUP BY 1"
        plan = dataset.plan(sql, epsilon="0.5")
        is_declared = column["keys"] == "declared"
        assert has_declared_keys(plan.question, 0) is is_declared, column
        assert bool(plan.cost.delta) is not is_declared, column
        assert (column["key_count"] is not None) is is_declared


def test_texts_and_values_are_no_numbers(policy: Path, dataset: Dataset) -> None:
    for table, column in columns(schema_json(load_policy(policy))):
        if column["type"] in ("text", "values"):
            assert "SUM" not in column["aggregates"]
            with pytest.raises(lapwing.Refused):
                dataset.plan(f"SELECT SUM({column['column']}) FROM {table}", epsilon="0.5")
        if column["type"] == "number":
            assert tuple(column["aggregates"]) == NUMBERS


def test_it_has_budget_blocks_and_no_names_of_analysts_or_places(policy: Path) -> None:
    found = schema_json(load_policy(policy))
    lifetime = {"epsilon": 3, "delta": 1e-6}
    assert found["budget"] == {**lifetime, "delta_per_query": 1e-9, "least_epsilon": 0.003}
    assert found["blocks"] == {"by": "unit", "column": "cohort", "every": None, "count": 8}
    assert found["has_quotas"]
    for private in ("ann", str(policy.parent), "parquet"):
        assert private not in str(found)


def test_times_long_texts_and_hidden_columns(policy: Path) -> None:
    policy.write_text(policy.read_text() + MORE)
    visits = schema_json(load_policy(policy))["tables"][0]
    seen, note = visits["columns"][-2:]
    assert (seen["type"], seen["low"], seen["step"]) == ("time", "2025-01-01T00:00:00+00:00", 3600)
    assert (note["type"], note["longest"], note["keys"]) == ("text", 80, "selected")
    assert visits["hidden"] == ["secret"]


def test_blocks_of_rows_and_of_arrivals(policy: Path) -> None:
    text = policy.read_text()
    by_rows = text.replace('by = "unit"\ncohorts = 8', 'by = "row"\ncolumn = "admitted"\nevery = "month"')
    policy.write_text(by_rows.replace('name = "visits"', 'name = "visits"\nprotects = "person-period"')
                      .partition("[tables.patients]")[0])  # fmt: skip
    assert schema_json(load_policy(policy))["blocks"] == {
        "by": "row", "column": "admitted", "every": "month", "count": 24,
    }  # fmt: skip
    policy.write_text(text.replace("cohorts = 8", 'every = "month"'))
    assert schema_json(load_policy(policy))["blocks"]["count"] is None
