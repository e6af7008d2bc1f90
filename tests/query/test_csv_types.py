"""What the texts of a public CSV column are."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from lapwing.sql.binding.public_tables import typed_csv, typed_csv_values


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
    table = typed_csv(pa.table({"a": ["1", "2"], "b": ["x", "2"]}))
    assert table.to_pydict() == {"a": [1, 2], "b": ["x", "2"]}
