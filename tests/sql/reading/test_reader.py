"""Statements name bounded tables only, and nobody sees the secret that bounds them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lapwing.engines.duckdb import DuckDbEngine
from lapwing.errors import BadParameter
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.policy_ledger import row_key
from lapwing.sql.reading.column_codes import HashKeys
from lapwing.sql.reading.prepare import unit_ids
from lapwing.sql.releasing import SLOW_NOTE
from support.raised import named

Open = Callable[..., Dataset]
SQL = "SELECT ward, COUNT(*) AS n, MEDIAN(stay) AS m FROM visits WHERE name <> 'x' GROUP BY ward"


def test_E3_plans_show_neither_the_secret_nor_the_source(opened: Open, tmp_path: Path) -> None:
    dataset = opened()
    dataset.curator.prepares = False
    dataset.version()
    keys = HashKeys(row_key(dataset.ledger), "ranks of visits")
    shown = [
        str(part)
        for part in (dataset.plan(SQL, epsilon=1).statements, dataset.plan(SQL, epsilon=1).to_json())
    ]
    with dataset.curator.reading() as reader:
        (definition,) = reader.definitions.values()
    for secret in (str(keys.of("")), str(keys.of("stay")), str(keys.of("/unit"))):
        assert secret in definition
        assert all(secret not in text for text in shown)
    assert all("read_parquet" not in text and str(tmp_path) not in text for text in shown)


def test_only_tables_that_a_question_names_are_computed(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = opened()
    text = (tmp_path / "visits.toml").read_text()
    more = text[text.index("[tables.visits]") :].replace("tables.visits", "tables.visits2")
    (tmp_path / "visits.toml").write_text(text + more)
    dataset = opened(rewrite=False)
    dataset.curator.prepares = False
    ran: list[str] = []
    run = DuckDbEngine.run

    def recorded(self: DuckDbEngine, sql: str, *, timeout: float | None = None) -> object:
        ran.append(sql)
        return run(self, sql, timeout=timeout)

    monkeypatch.setattr(DuckDbEngine, "run", recorded)
    dataset.ask("SELECT COUNT(*) FROM visits2", epsilon=1)
    assert '"the truncated table visits2" AS (' in ran[-1]
    assert '"the truncated table visits" AS (' not in ran[-1]


def test_S10_everybody_is_told_to_the_ledger_once(opened: Open) -> None:
    ids = list(unit_ids(opened().policy))
    assert sorted(np.concatenate(ids)) == list(range(300))


def test_threads_are_checked_before_anything_is_charged(opened: Open, tmp_path: Path) -> None:
    opened()
    with Dataset(load_policy(tmp_path / "visits.toml"), analyst="ann", threads=0) as dataset:
        with pytest.raises(BadParameter, check=named("threads")):
            dataset.ask(SQL, epsilon=1)
        assert dataset.ledger.blocks("visits")[0].spent[1] == 0


def test_a_copy_of_another_policy_is_not_read(opened: Open, tmp_path: Path) -> None:
    dataset = opened()
    dataset.prepare()
    text = (tmp_path / "visits.toml").read_text()
    (tmp_path / "visits.toml").write_text(text.replace("high = 10\n", "high = 5\n"))
    other = opened(rewrite=False)
    answer = other.ask("SELECT SUM(stay) AS s FROM visits", epsilon=5)
    assert SLOW_NOTE in answer.notes  # from the source
    assert abs(answer.columns[0].values[0] - 2 * sum(min(p % 11, 5) for p in range(300))) < 60
