"""What may be bought before asking: built right, read right, and refused before it costs."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from lapwing.errors import BadParameter
from lapwing.sql.answering.answers import Answer
from lapwing.sql.answering.estimates import AnswerColumn, AnswerRows
from lapwing.sql.answering.preliminary_answers import least_size, read_bounds
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.kinds import Numeric
from lapwing.sql.question.preliminary_questions import (
    DOUBLINGS,
    bounds_question,
    policy_with_searched_column,
)
from lapwing.sql.reading.reader import Reader
from support.private_tables import KEY, policy_of, store, table_of

Open = Callable[..., Dataset]


def test_magnitudes_are_powers_of_two(tmp_path: Path) -> None:
    values = [0, 1, -1, 2, 3, 4, -4, -5, 2**49, 2**50, 2**62, -(2**62), None]
    file = store(tmp_path / "v.parquet", {"who": list(range(len(values))), "x": values})
    policy = policy_with_searched_column(policy_of(tmp_path, table_of(file, {}, rows=1)), "visits", "x", 1)
    reader = Reader.open(policy, KEY, {})
    counts = reader.exact(bounds_question(policy, "visits", "x"))[0].values[:, 0].tolist()
    reader.close()
    found = {code - DOUBLINGS - 1: count for code, count in enumerate(counts) if count}
    last = DOUBLINGS + 1
    assert found == {-last: 1, -3: 2, -1: 1, 0: 1, 1: 1, 2: 2, 3: 1, 50: 1, last: 2}


@pytest.mark.parametrize("column", ["hidden", "Hidden", "patient_id", "lapwing_unit", "no such", "nothing"])
def test_S5_what_nobody_may_use_is_not_searched(opened: Open, tmp_path: Path, column: str) -> None:
    opened()
    with (tmp_path / "visits.toml").open("a") as file:
        file.write("[tables.visits.columns.hidden]\nhidden = true\n")
    dataset = opened(rewrite=False)
    with pytest.raises(BadParameter):
        dataset.search_bounds("visits", column, epsilon=1, step=1)
    assert dataset.ledger.blocks("visits")[0].spent[1] == 0


@pytest.mark.parametrize("step", [0, -1, "NaN", "x"])
def test_N9_bad_steps_cost_nothing(opened: Open, tmp_path: Path, step: object) -> None:
    with pytest.raises(BadParameter):
        opened().search_bounds("visits", "stay", epsilon=1, step=step)  # type: ignore[arg-type]
    assert not list(tmp_path.glob("*.ledger*"))


def test_a_declared_column_is_searched_whatever_its_capitals(opened: Open) -> None:
    dataset = opened()
    low, high, _ = dataset.search_bounds("visits", "STAY", epsilon=5, step=1)
    assert low <= 0
    assert high >= 16


def bought(*columns: list[int]) -> Answer:
    """An answer of these numbers, whose intervals begin 10 below."""
    cols = [
        AnswerColumn(f"c{n}", np.array(values), np.array(values) - 10) for n, values in enumerate(columns)
    ]
    return Answer(AnswerRows(cols, len(columns[0])), 0.95)


def test_only_what_noise_would_not_give_is_taken_for_rows(opened: Open) -> None:
    """Scale 2, and a miss of 0.001 among four magnitudes: more than 16.6 rows."""
    kind = Numeric(Fraction(1, 10), -(2**50), 2**50)
    shares = opened().plan("SELECT ward, COUNT(*) FROM visits GROUP BY ward", epsilon=1).shares
    assert read_bounds(bought([-3, 0, 2, 5], [17, 99, 17, 16]), shares, kind) == (-0.8, 0.4)
    assert read_bounds(bought([-3, 0, 2, 5], [0, 99, 0, 17]), shares, kind) == (0.0, 3.2)
    with pytest.raises(BadParameter, match="too small to see"):
        read_bounds(bought([-3, 0, 2, 5], [16, 16, 16, 16]), shares, kind)
    assert least_size(bought([0, 1, 2], [500, 12, 9])) == 2
    with pytest.raises(BadParameter, match="too few rows"):
        least_size(bought([0, 1], [10, -3]))


def test_sizes_are_bought_once(opened: Open) -> None:
    dataset = opened()
    sql = "SELECT ward, AVG(stay) AS d FROM visits GROUP BY ward"
    _, first = dataset.two_stage(sql, within=1, first=1)
    _, again = dataset.two_stage(sql, within=2, first=1)
    assert again.is_replay
    assert again.to_arrow().equals(first.to_arrow())
