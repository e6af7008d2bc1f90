"""What the texts of a public CSV column are."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from lapwing.engines.csv_files import DEFAULT_CSV
from lapwing.sql.question.public_tables import PublicTable, typed_csv_values


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["1", " -2 ", "", None], [1, -2, None, None]),
        (["007", "1"], ["007", "1"]),  # would lose its zeros
        (["1", "2.50"], [Decimal(1), Decimal("2.50")]),
        (["1", "x"], ["1", "x"]),
        (["true", "FALSE"], [True, False]),
        (["2025-01-31", "2024-02-29"], [date(2025, 1, 31), date(2024, 2, 29)]),
        (["2025-01-31", "2025-02-30"], ["2025-01-31", "2025-02-30"]),
        (["2025-01-31 10:00"], [datetime(2025, 1, 31, 10)]),
        (["1e5", "nan", "inf"], ["1e5", "nan", "inf"]),
        (["9" * 16], ["9" * 16]),  # beyond what is exact everywhere
        (["", None], ["", None]),
        ([], []),
    ],
)
def test_all_values_decide_together(texts: list[object], values: list[object]) -> None:
    assert typed_csv_values(texts) == values


def test_columns_decide_apart() -> None:
    rows = pa.table({"a": ["1", "2"], "b": ["x", "2"]})
    assert PublicTable.of("t", rows, {}, csv=DEFAULT_CSV).values == {"a": [1, 2], "b": ["x", "2"]}


@pytest.mark.parametrize(
    "texts",
    [
        ["1", "2.50", "", "-3.125"],
        ["2025-01-31T10:00+01:00", "2025-01-31T10:00", None],
        ["2025-01-31T10:00", "2025-01-31T10:00+01:00"],
        ["2025-01-31T10:00+02:00", "2025-12-31T23:30-01:00"],
        ["2025-01-31 10:00", "2025-01-31 11:00"],
    ],
)
def test_values_are_those_of_an_arrow_column(texts: list[object]) -> None:
    """They were kept as Arrow before: stored answers must not change, not even by a digit in a text."""
    found = typed_csv_values(texts)
    assert list(map(str, found)) == list(map(str, pa.array(found).to_pylist()))
