"""Bounds and categories that are found are paid for, and everything after them is free of charge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from lapwing.errors import BadParameter
from lapwing.learn.column_search import find_bounds, find_values
from lapwing.sql import row_questions
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.kinds import Choice, Numeric
from lapwing.sql.policy.policy_file import load_policy

POLICY = """
[dataset]
name = "visits"
[budget]
epsilon = 10.0
delta = 1e-4
delta_per_query = 1e-6
[tables.visits]
source = "visits.parquet"
unit = "who"
rows_per_unit = 1
[tables.visits.columns.stay]
low = 0
high = 10
[tables.visits.columns.secret]
hidden = true
"""


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[Dataset]:
    duckdb.execute(
        "COPY (SELECT n AS who, n % 11 AS stay, n % 50 AS cost, 's' AS secret, "
        "CASE WHEN n = 7 THEN 'alone' WHEN n % 2 = 0 THEN 'even' ELSE 'odd' END AS parity "
        f"FROM range(2000) AS t(n)) TO '{tmp_path / 'visits.parquet'}'"
    )
    (tmp_path / "visits.toml").write_text(POLICY)
    with Dataset(load_policy(tmp_path / "visits.toml"), analyst="ann") as opened:
        yield opened


def left(dataset: Dataset) -> float:
    account = dataset.ledger.account("visits")
    return float(min(block.left(account.terms) for block in dataset.ledger.blocks("visits")))


def test_found_bounds_are_paid_for_and_can_be_used(dataset: Dataset) -> None:
    found = find_bounds(dataset, "visits", "cost", epsilon=1, step=1)
    kind = found.policy.tables["visits"].columns["cost"].kind
    assert isinstance(kind, Numeric)
    assert (kind.first, kind.last) == (0, 64)
    assert left(dataset) == pytest.approx(9)
    assert "high = 64" in found.toml
    with Dataset(found.policy, analyst="ann") as other:
        question = row_questions.row_question(other, "SELECT cost, stay FROM visits")
        read = row_questions.read_rows(other, question)
        assert len(read) == 2000


# Case A5.
def test_only_values_that_enough_people_have_are_found(dataset: Dataset) -> None:
    found = find_values(dataset, "visits", "parity", epsilon=1, delta="1e-6")
    assert found.policy.tables["visits"].columns["parity"].kind == Choice(("even", "odd"))
    assert left(dataset) < 10
    assert 'values = ["even", "odd"]' in found.toml
    with Dataset(found.policy, analyst="ann") as other:
        question = row_questions.row_question(other, "SELECT parity FROM visits")
        read = row_questions.read_rows(other, question)
        assert int((~read.columns["parity"].known).sum()) == 1
    again = left(dataset)
    assert find_values(dataset, "visits", "parity", epsilon=1, delta="1e-6").answer.is_replay
    assert left(dataset) == again


def test_the_lines_fit_the_policy_file(dataset: Dataset, tmp_path: Path) -> None:
    bounds = find_bounds(dataset, "visits", "cost", epsilon=1, step="0.5")
    values = find_values(dataset, "visits", "parity", epsilon=1, delta="1e-6")
    (tmp_path / "visits.toml").write_text(POLICY + bounds.toml + values.toml)
    tables = load_policy(tmp_path / "visits.toml").tables["visits"].columns
    assert tables["cost"].kind == bounds.policy.tables["visits"].columns["cost"].kind
    assert tables["parity"].kind == values.policy.tables["visits"].columns["parity"].kind


def test_what_is_hidden_or_declared_is_not_searched(dataset: Dataset) -> None:
    before = left(dataset)
    for table, column in (
        ("visits", "secret"),
        ("visits", "who"),
        ("nobody", "x"),
        ("visits", "stay"),
        ("visits", 'a"b'),
    ):
        with pytest.raises(BadParameter):
            find_values(dataset, table, column, epsilon=1, delta="1e-6")
    with pytest.raises(BadParameter):
        find_bounds(dataset, "visits", "secret", epsilon=1, step=1)
    assert left(dataset) == before
