"""Example rows: from the policy alone, within its bounds, the same each time."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest

from lapwing.errors import BadParameter
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Period, Text, Truth, codes_of
from lapwing.sql.reading.generated_rows import MOST_EXAMPLES
from support.private_tables import policy_of, table_of, whole
from support.raised import named

KINDS: dict[str, Kind] = {
    "number": Numeric(Fraction(1, 100), -500, 2**50), "choice": Choice(("a", "b", "c")),
    "levels": Choice((1, 5)), "one": whole(3, 3), "tens": Numeric(Fraction(10), 0, 9),
    "day": Moment(86400, -5, 5), "second": Moment(1, 0, 10**9), "quarter": Period(3, 200, 210),
    "truth": Truth(), "text": Text(),
}  # fmt: skip


def test_example_rows_are_declared_values_and_read_nothing(tmp_path: Path) -> None:
    """The source is not there."""
    policy = policy_of(tmp_path, table_of(tmp_path / "none.parquet", KINDS))
    with Dataset(policy, analyst="ann") as dataset:
        found = dataset.example_rows("visits", 50)
        assert found.num_rows == 50
        assert found.column_names == list(KINDS)
        assert found.equals(dataset.example_rows("visits", 100).slice(0, 50))
    for name, kind in KINDS.items():
        values = found.column(name).to_pylist()
        assert None not in values
        codes = codes_of(kind)
        if codes is not None and not isinstance(kind, Truth):
            few = codes if len(codes) < 100 else ()
            wanted = {kind.value(code) for code in few}  # type: ignore[union-attr]
            assert set(values) == wanted if few else len(set(values)) == 50
    types = {name: found.schema.field(name).type for name in KINDS}
    assert types["number"] == pa.float64()
    assert types["tens"] == types["levels"] == pa.int64()
    assert types["day"] == types["quarter"] == pa.date32()
    assert pa.types.is_timestamp(types["second"])
    assert (types["truth"], types["text"]) == (pa.bool_(), pa.string())


def test_columns_do_not_go_in_step(tmp_path: Path) -> None:
    kinds: dict[str, Kind] = {name: Choice(tuple(range(10))) for name in "abc"}
    policy = policy_of(tmp_path, table_of(tmp_path / "none.parquet", kinds))
    with Dataset(policy, analyst="ann") as dataset:
        found = dataset.example_rows("visits", 10).to_pydict()
    assert len({tuple(values) for values in found.values()}) > 1


def test_what_has_no_examples_is_told(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, table_of(tmp_path / "none.parquet", KINDS))
    with Dataset(policy, analyst="ann") as dataset:
        for rows in (0, -1, MOST_EXAMPLES + 1):
            with pytest.raises(BadParameter, check=named("rows")):
                dataset.example_rows("visits", rows)
        with pytest.raises(BadParameter, check=named("table")):
            dataset.example_rows("visit", 5)
