"""A small data set with its policy, as `lapwing example` writes it but smaller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy

POLICY = """
[dataset]
name = "visits"
[budget]
epsilon = 10.0
delta = 1e-6
{more}
[tables.visits]
source = "visits*.parquet"
unit = "patient_id"
rows_per_unit = 2
[tables.visits.columns.ward]
values = ["A", "B"]
[tables.visits.columns.stay]
low = 0
high = 10
[tables.visits.columns.admitted]
low = 2025-01-01
high = 2025-12-31
[tables.visits.columns.name]
type = "text"
"""
Open = Callable[..., Dataset]


def write_visits(folder: Path, people: range, name: str = "visits") -> None:
    """Three visits of each person, of which two count."""
    duckdb.execute(
        "COPY (SELECT p AS patient_id, CASE WHEN p % 3 = 0 THEN 'A' ELSE 'B' END AS ward, p % 11 AS stay, "
        "DATE '2025-01-01' + CAST(p % 365 AS INTEGER) AS admitted, 'secret' || p AS name, 7 AS hidden "
        f"FROM range({people.start}, {people.stop}) AS t(p), range(3)) TO '{folder / name}.parquet'"
    )


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens the data set for an analyst; the policy and 300 people are written at the first call."""
    sets: list[Dataset] = []

    def open_dataset(*, more: str = "", analyst: str = "ann", rewrite: bool = True) -> Dataset:
        if rewrite:
            (tmp_path / "visits.toml").write_text(POLICY.format(more=more))
        if not list(tmp_path.glob("visits*.parquet")):
            write_visits(tmp_path, range(300))
        sets.append(Dataset(load_policy(tmp_path / "visits.toml"), analyst=analyst))
        return sets[-1]

    yield open_dataset
    for one in sets:
        one.close()
