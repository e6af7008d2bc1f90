"""Plans: the same whatever the data is, and free."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lapwing.config.values import shortened_list
from lapwing.errors import BadParameter
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy import BlockRule, block_label, period_of
from sql.conftest import write_visits

Open = Callable[..., Dataset]
QUESTIONS = (
    "SELECT ward, COUNT(*) AS n, AVG(stay) AS a, MEDIAN(stay) AS m FROM visits GROUP BY ward",
    "SELECT name, COUNT(*) AS n FROM visits GROUP BY name",
    "SELECT COUNT(*) AS n FROM visits WHERE cohort IN (1, 3)",
)


def test_X6_H7_plans_and_balances_are_alike_for_neighbours(opened: Open, tmp_path: Path) -> None:
    more, shown = '[blocks]\nby = "unit"\ncohorts = 4\n', []
    for people in (range(300), range(1, 300), range(0)):
        write_visits(tmp_path, people)
        dataset = opened(more=more)
        dataset.prepare()
        plans = [dataset.plan(sql, epsilon=1) for sql in QUESTIONS]
        texts = [json.dumps(plan.to_json()) + str(plan) for plan in plans]
        dataset.ask(QUESTIONS[1], epsilon="0.1")
        shown.append((texts, dataset.left(), dataset.curator.all_blocks()))
        dataset.close()
        known = [Path(os.environ["LAPWING_STATE"], name) for name in ("sources", "registry.key")]
        for path in (*tmp_path.glob("lapwing.ledger*"), *known):
            path.unlink()  # as on another machine
    assert shown[0] == shown[1] == shown[2]


def test_blocks_that_are_charged_are_named(opened: Open) -> None:
    dataset = opened(more='[blocks]\nby = "unit"\ncohorts = 12\n')
    plan = dataset.plan(QUESTIONS[2], epsilon=1)
    assert plan.blocks == ("1", "3")
    assert "Charged blocks: 1, 3" in str(plan)
    everything = dataset.plan("SELECT COUNT(*) FROM visits", epsilon=1)
    assert shortened_list(everything.blocks or []) == "0, 1, 2, 3, 4, 5, 6, 7 and 4 more"


@pytest.mark.parametrize("every", ["day", "week", "month", "quarter", "year"])
def test_a_block_is_called_by_its_first_day(every: str) -> None:
    blocks = BlockRule("row", column="d", every=every)
    for day in (-800, -1, 0, 3, 4, 7, 20_089, 20_453):
        label = block_label(blocks, period_of(every, day))
        before = block_label(blocks, period_of(every, day) - 1)
        assert before < label or day < -700
        if every == "week":  # 1970 began on a Thursday
            assert block_label(blocks, period_of(every, day - day % 7)) == label


@pytest.mark.parametrize("n", [0, -5, True, 2.5, "9"])
def test_N9_sizes_are_checked(opened: Open, n: object) -> None:
    with pytest.raises(BadParameter, match="n: must be a whole number"):
        opened().plan("SELECT AVG(stay) FROM visits", within=1, n=n)  # type: ignore[arg-type]


def test_columns_that_are_called_alike_are_told_apart_in_frames(opened: Open) -> None:
    answer = opened().ask("SELECT COUNT(*) AS n, SUM(stay) AS n_low, COUNT(*) AS n FROM visits", epsilon=1)
    names = answer.to_arrow().column_names
    assert len(set(names)) == len(names) == 9
    assert answer.to_polars().columns == names
    assert [column["name"] for column in answer.to_json()["columns"]] == ["n", "n_low", "n"]
