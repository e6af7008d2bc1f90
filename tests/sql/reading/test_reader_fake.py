"""Generated rows are of the policy's making: within its bounds, and with nothing of the data."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Period, Text, Truth, codes_of
from lapwing.sql.policy.policy import BlockRule
from lapwing.sql.question.preliminary_questions import policy_with_searched_column, sizes_question
from lapwing.sql.question.truncation_questions import truncated_people_question
from lapwing.sql.reading.generated_rows import PEOPLE, fake_reader, fake_rows
from support.private_tables import policy_of, table_of, whole

KINDS: dict[str, Kind] = {
    "number": Numeric(Fraction(1, 100), -500, 2**50), "choice": Choice(("a", "b")), "one": whole(3, 3),
    "moment": Moment(86400, -5, 5), "period": Period(3, 200, 210), "truth": Truth(), "text": Text(),
}  # fmt: skip


@pytest.mark.parametrize("rows", [1, 3, 200])
@pytest.mark.parametrize(
    "blocks",
    [None, BlockRule("unit", cohorts=3), BlockRule("unit", every="month"),
     BlockRule("row", column="moment", every="week", first=-1, last=0)],
)  # fmt: skip
def test_rows_are_within_the_declared_bounds(tmp_path: Path, rows: int, blocks: BlockRule | None) -> None:
    """The source is not there: nothing of it can be read."""
    policy = policy_of(tmp_path, table_of(tmp_path / "none.parquet", KINDS, rows=rows), blocks=blocks)
    found = fake_rows(policy, policy.tables["visits"])
    assert found.num_rows == PEOPLE * min(rows, 5)
    assert max(found.column("lapwing_rank").to_pylist()) <= rows
    for name, kind in KINDS.items():
        codes = codes_of(kind)
        if codes is not None:
            assert all(int(code) in codes for code in found.column(name).to_pylist())
    reader = fake_reader(policy, {})
    question = truncated_people_question(policy_with_searched_column(policy, "visits", "more", 1), "visits")
    assert reader.exact(question)[0].values.tolist() == [[0]]
    assert reader.exact(sizes_question(question))[0].values.shape == (1, 1)
    reader.close()
