"""What a member brings: charged once and first, noised once, refused before anything is charged."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from uuid import uuid4

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from lapwing.core.laplace import LaplaceShares
from lapwing.errors import Aborted, BadParameter, OverBudget
from lapwing.parties.contribution import CONTRIBUTED
from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.statistics import statistic_of
from lapwing.sql import policy_ledger
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy import CheckedPolicy, Source
from lapwing.sql.policy.policy_file import load_policy
from support.contributing import HISTOGRAM, MEDIAN, OTHER_RUN, contribution, left
from support.joint import laplace, member, plain
from support.postgres import server
from support.private_tables import policy_of, table_of, whole
from support.raised import named


def entries(path: Path) -> int:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        count = int(connection.execute("SELECT COUNT(*) FROM entries").fetchone()[0])
    connection.close()
    return count


def test_a_member_charges_its_ledger_once_and_brings_noised_numbers(tmp_path: Path) -> None:
    with member(tmp_path, range(3000)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        brings = contribution(statistic, dataset)
        before = left(dataset.ledger)
        brings.check()
        assert left(dataset.ledger) == before
        value = brings(0, ())
        assert before - left(dataset.ledger) == 1
    counts = [
        row[0] for row in plain([range(3000)], "SELECT COUNT(*) FROM visits GROUP BY ward ORDER BY ward")
    ]
    # A share at scale 2: further than 100 off would come less than once in 1e20.
    assert np.abs(value - counts).max() < 100
    assert value.dtype == np.int64


def test_the_numbers_are_not_in_the_ledger_or_anything_printed(tmp_path: Path) -> None:
    with member(tmp_path, range(30_000)) as dataset:  # long numbers: none stands anywhere by chance
        statistic = statistic_of(HISTOGRAM, dataset)
        brings = contribution(statistic, dataset, [LaplaceShares.for_epsilon(10, l1=2, of=1)])
        value = brings(0, ())
        shown = re.sub(r"\b0x[0-9a-f]+", "", repr(brings) + str(statistic.spec))  # where objects lie
    with sqlite3.connect(tmp_path / "lapwing.ledger") as connection:
        stored = [row[0] for row in connection.execute("SELECT bytes FROM answers")]
    connection.close()
    assert stored == [CONTRIBUTED]
    assert all(number > 10_000 and str(number) not in shown for number in value.tolist())


def test_noise_is_never_drawn_twice_for_one_charge(tmp_path: Path) -> None:
    """After a crash the numbers are in the member's journal, or the run ends."""
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        brings = contribution(statistic, dataset)
        brings(0, ())
        spent = left(dataset.ledger)
        with pytest.raises(Aborted, match="noise is drawn once"):
            brings(0, ())
        again = contribution(statistic, dataset)
        with pytest.raises(Aborted, match="charged before"):
            again(0, ())
        with pytest.raises(Aborted, match="charged before"):
            again.check()
        assert left(dataset.ledger) == spent


def test_another_run_is_another_charge(tmp_path: Path) -> None:
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        before = left(dataset.ledger)
        contribution(statistic, dataset)(0, ())
        contribution(statistic, dataset, run=OTHER_RUN)(0, ())
        assert before - left(dataset.ledger) == 2


def test_the_same_run_for_another_request_ends(tmp_path: Path) -> None:
    with member(tmp_path, range(30)) as dataset:
        contribution(statistic_of(HISTOGRAM, dataset), dataset)(0, ())
        other = statistic_of({**HISTOGRAM, "sql": "SELECT COUNT(*) FROM visits"}, dataset)
        brings = contribution(other, dataset)
        with pytest.raises(Aborted, match="another request"):
            brings(0, ())


def test_stages_are_charged_together_and_read_one_by_one(tmp_path: Path) -> None:
    with member(tmp_path, range(300)) as dataset:
        statistic = statistic_of(MEDIAN, dataset)
        brings = contribution(statistic, dataset)
        before = left(dataset.ledger)
        found: list[OpenedSum] = []
        for stage in range(statistic.stages):
            found.append(OpenedSum(brings(stage, found), (0,)))
            assert before - left(dataset.ledger) == 1
        assert len(found) == 5
        with pytest.raises(BadParameter, check=named("stage")):
            brings(5, found)
        with pytest.raises(BadParameter, check=named("stage")):
            brings(2, found[:1])


def test_after_a_crash_later_stages_go_on_if_the_run_was_charged(tmp_path: Path) -> None:
    with member(tmp_path, range(300)) as dataset:
        statistic = statistic_of(MEDIAN, dataset)
        later = contribution(statistic, dataset)
        found = [OpenedSum(np.array([150, 150]), (0,))]
        with pytest.raises(Aborted, match="not charged"):
            later(1, found)
        assert left(dataset.ledger) == 10
        contribution(statistic, dataset)(0, ())
        assert len(contribution(statistic, dataset)(1, found)) == 2
        assert left(dataset.ledger) == 9


def test_a_later_stage_is_drawn_once_whoever_asks_for_it(tmp_path: Path) -> None:
    """Two draws of one stage would average the noise: the ledger knows each stage, not only the run."""
    with member(tmp_path, range(300)) as dataset:
        statistic = statistic_of(MEDIAN, dataset)
        contribution(statistic, dataset)(0, ())
        found = [OpenedSum(np.array([150, 150]), (0,))]
        contribution(statistic, dataset)(1, found)
        spent, count = left(dataset.ledger), entries(tmp_path / "lapwing.ledger")
        for earlier in (found, [OpenedSum(np.array([9, 291]), (0,))]):
            again = contribution(statistic, dataset)
            with pytest.raises(Aborted, match="charged before"):
                again(1, earlier)
        assert entries(tmp_path / "lapwing.ledger") == count
        other = contribution(statistic, dataset)
        other(2, found * 2)
        assert left(dataset.ledger) == spent
    with Dataset(load_policy(tmp_path / "visits.toml"), analyst="ann") as dataset:
        after = contribution(statistic_of(MEDIAN, dataset), dataset)
        with pytest.raises(Aborted, match="charged before"):
            after(1, found)


def test_later_stages_are_marked_where_nothing_is_left(tmp_path: Path) -> None:
    with member(tmp_path, range(300), epsilon=1) as dataset:
        statistic = statistic_of(MEDIAN, dataset)
        brings = contribution(statistic, dataset)
        found: list[OpenedSum] = []
        for stage in range(statistic.stages):
            found.append(OpenedSum(brings(stage, found), (0,)))
            assert left(dataset.ledger) == 0


def test_data_that_changes_while_it_is_read_is_not_noised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New rows may be about people who were not charged, so that numbers with them go nowhere."""
    with member(tmp_path, range(300)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        brings = contribution(statistic, dataset)
        read = statistic.exact

        def exact(stage: int, earlier: Sequence[OpenedSum]) -> NDArray[np.int64]:
            values = read(stage, earlier)
            dataset.prepare(again=True)
            return values

        monkeypatch.setattr(statistic, "exact", exact)
        monkeypatch.setattr(LaplaceShares, "sample", lambda *_: pytest.fail("noise was drawn"))
        with pytest.raises(Aborted, match="could not be read"):
            brings(0, ())
        assert left(dataset.ledger) == 9


def test_data_that_changed_since_the_charge_is_not_read(tmp_path: Path) -> None:
    with member(tmp_path, range(300)) as dataset:
        statistic = statistic_of(MEDIAN, dataset)
        brings = contribution(statistic, dataset)
        brings(0, ())
        dataset.prepare(again=True)  # one version more, also without new rows
        with pytest.raises(Aborted, match="other data"):
            brings(1, [OpenedSum(np.array([1, 2]), (0,))])
        member(tmp_path, range(400)).close()
        with pytest.raises(Aborted, match="changed on the way"):
            brings(1, [OpenedSum(np.array([1, 2]), (0,))])
        fresh = contribution(statistic, dataset, run=OTHER_RUN)
        with pytest.raises(BadParameter, match="lapwing prepare"):
            fresh(0, ())


def test_what_fails_after_the_charge_says_nothing_and_stays_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        brings = contribution(statistic, dataset)

        def fail(_stage: int, _earlier: Sequence[OpenedSum]) -> NDArray[np.int64]:
            raise ValueError("patient 17 is odd")

        before = left(dataset.ledger)
        monkeypatch.setattr(statistic, "exact", fail)
        with pytest.raises(Aborted) as caught:
            brings(0, ())
        assert "17" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert before - left(dataset.ledger) == 1
        monkeypatch.undo()
        again = contribution(statistic, dataset)
        with pytest.raises(Aborted, match="could not be read"):
            again(0, ())


def test_over_budget_is_refused_and_nothing_is_read_or_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with member(tmp_path, range(30), epsilon=0.5) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        monkeypatch.setattr(statistic, "exact", lambda *_: pytest.fail("rows were read"))
        brings = contribution(statistic, dataset)
        with pytest.raises(OverBudget):
            brings.check()
        count = entries(tmp_path / "lapwing.ledger")
        with pytest.raises(OverBudget):
            brings(0, ())
        assert entries(tmp_path / "lapwing.ledger") == count
        assert left(dataset.ledger) == Fraction(1, 2)


def test_a_quota_is_charged_as_well(tmp_path: Path) -> None:
    more = '[analysts."ann"]\nepsilon = 1.5\ndelta = 1e-7\n'
    with member(tmp_path, range(30), more=more) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        contribution(statistic, dataset)(0, ())
        assert left(dataset.ledger, policy_ledger.quota_label(dataset.policy, "ann")) == Fraction(1, 2)
        brings = contribution(statistic, dataset, run=OTHER_RUN)
        with pytest.raises(OverBudget):
            brings(0, ())


def test_postgres_rows_are_charged_and_read(tmp_path: Path) -> None:
    with Dataset(postgres_policy(tmp_path), analyst="ann") as dataset:
        spec = {"kind": "question", "sql": "SELECT COUNT(*), SUM(stay) FROM visits"}
        statistic = statistic_of(spec, dataset)
        value = contribution(statistic, dataset, laplace(statistic, 100))(0, ())
        assert left(dataset.ledger, "clinic") == 0
    assert np.abs(value - [50, 500]).max() < 60


def postgres_policy(folder: Path) -> CheckedPolicy:
    schema = f"joint_{uuid4().hex[:8]}"
    with psycopg.connect(server()) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(
            f"CREATE TABLE {schema}.visits AS SELECT n AS who, 900 AS stay FROM generate_series(1, 50) t(n)"
        )
    table = replace(
        table_of("", {"stay": whole(0, 10)}, rows=1),
        source=Source("postgres", server(), f"{schema}.visits", "postgres"),
    )
    made = policy_of(folder, table)
    return replace(made, epsilon=Fraction(100), delta=Fraction(1, 10**6), ledger=str(folder / "c.ledger"))
