"""Statistics through real protocols, in one process: what is opened is read as what was asked."""

from __future__ import annotations

from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from lapwing.parties.contribution import Contribution
from lapwing.parties.joint_noise import member_loss
from lapwing.parties.protocols.protocol import OpenedSum, Setting
from lapwing.parties.simulation import run_in_memory
from lapwing.parties.statistics import statistic_of
from lapwing.parties.statistics.statistic import JointAnswer
from support.joint import laplace, member, plain, totals

PEOPLE = (range(0, 120), range(120, 180), range(180, 300))
FORMS = ("parquet", "csv", "duckdb")
HISTOGRAM = {"kind": "question", "sql": "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"}
MEDIAN = {"kind": "quantile", "table": "visits", "column": "stay", "fraction": "0.5"}
SURE = 1 - Fraction(1, 10**9)


def run(
    folder: Path, spec: dict[str, Any], letter: str, *, honest: int, losses: dict[int, int]
) -> JointAnswer:
    """A run of three members with a coalition of one, each on a ledger of its own."""
    with ExitStack() as stack:
        data = [
            stack.enter_context(member(folder / form, people, form=form))
            for people, form in zip(PEOPLE, FORMS, strict=True)
        ]
        statistics = [statistic_of(spec, one) for one in data]
        shares = laplace(statistics[0], 4, of=honest)
        members = [
            Contribution(
                statistic=statistic,
                data=one,
                shares=shares,
                loss=member_loss(shares, statistic.stages),
                run=b"run",
                consortium=b"three",
            )
            for statistic, one in zip(statistics, data, strict=True)
        ]
        found: list[OpenedSum] = []
        for stage in range(statistics[0].stages):
            values = [one(stage, found) for one in members]
            setting = Setting(3, 1, int(bool(losses)), statistics[0].length, bytes([stage]) * 32)
            found.append(run_in_memory(letter, setting, values, losses=losses).opened)
        noises = [totals(shares, one) for one in found]
        return statistics[0].answer(found, noises, confidence=SURE)


@pytest.mark.parametrize(("letter", "honest"), [("A", 1), ("B", 2), ("C", 2), ("D", 2)])
def test_a_joint_histogram_holds_the_counts_of_three_files(
    letter: str, honest: int, tmp_path: Path
) -> None:
    """Each of three intervals misses once in 1e9."""
    answer = run(tmp_path, HISTOGRAM, letter, honest=honest, losses={})
    column = answer.column("n")
    assert column.low is not None
    assert column.high is not None
    counts = plain(PEOPLE, "SELECT COUNT(*) FROM visits GROUP BY ward ORDER BY ward")
    for (count,), low, high in zip(counts, column.low, column.high, strict=True):
        assert low <= count <= high
    assert answer.contributors == 3


def test_a_planned_loss_leaves_the_sum_of_the_others(tmp_path: Path) -> None:
    answer = run(tmp_path, HISTOGRAM, "C", honest=1, losses={2: 0})
    column = answer.column("n")
    assert answer.contributors == 2
    assert column.low is not None
    assert column.high is not None
    counts = plain(PEOPLE[:2], "SELECT COUNT(*) FROM visits GROUP BY ward ORDER BY ward")
    for (count,), low, high in zip(counts, column.low, column.high, strict=True):
        assert low <= count <= high


def test_a_median_is_searched_by_three_members(tmp_path: Path) -> None:
    answer = run(tmp_path, MEDIAN, "B", honest=2, losses={})
    column = answer.column("stay")
    ((median,),) = plain(PEOPLE, "SELECT QUANTILE_DISC(stay, 0.5) FROM visits")
    assert column.low is not None
    assert column.high is not None
    assert column.low[0] <= median <= column.high[0]
