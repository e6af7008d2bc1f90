"""The quantile search: where it ends, how far off in ranks, and that it goes by opened sums alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.core.laplace import LaplaceShares
from lapwing.parties.protocols.protocol import OpenedSum
from lapwing.parties.statistics.quantile import MEMBERS_CHANGED, QuantileStatistic
from lapwing.parties.statistics.statistic import JointAnswer
from lapwing.sql.dataset import Dataset
from support.hospital import invented, policy_for
from support.joint import laplace, member, opened, plain, totals
from support.slowly import slow

LEVEL = Fraction(19, 20)
PEOPLE = (range(0, 120), range(120, 300))
STAYS = [row[0] for row in plain(PEOPLE, "SELECT stay FROM visits ORDER BY stay")]


def searched(
    members: Sequence[QuantileStatistic], noise: LaplaceShares
) -> tuple[JointAnswer, list[OpenedSum]]:
    """All stages in one process, with noise."""
    drawn = noise.sample(np.zeros(members[0].stages * len(members) * 2, dtype=np.int64))
    by_stage = drawn.reshape(members[0].stages, len(members), 2)
    found: list[OpenedSum] = []
    for stage, each in enumerate(by_stage):
        found.append(
            opened([one.exact(stage, found) + own for one, own in zip(members, each, strict=True)])
        )
    noises = [totals([noise], one) for one in found]
    return members[0].answer(found, noises, confidence=LEVEL), found


def test_without_noise_it_finds_the_quantile_of_all_members_rows(tmp_path: Path) -> None:
    with (
        member(tmp_path / "a", PEOPLE[0]) as north,
        member(tmp_path / "b", PEOPLE[1], form="csv") as south,
    ):
        for text in ("0.99", "1/3"):
            members = [QuantileStatistic(one, "visits", "stay", text) for one in (north, south)]
            answer, _ = searched(members, laplace(members[0], 1000)[0])
            rank = Fraction(text) * len(STAYS)
            least = next(y for y in range(21) if sum(stay <= y for stay in STAYS) >= rank)
            column = answer.column("stay")
            assert list(column.values) == [least]
            assert column.low is not None
            assert column.high is not None
            assert column.low[0] <= least <= column.high[0]


def test_stages_are_as_many_as_halvings(tmp_path: Path) -> None:
    with member(tmp_path, range(9)) as dataset:
        assert QuantileStatistic(dataset, "visits", "stay", "0.5").stages == 5  # 21 codes
        assert QuantileStatistic(dataset, "VISITS", "Cost", "0.5").stages == 8  # 201 codes


def test_the_next_threshold_is_a_function_of_opened_sums(tmp_path: Path) -> None:
    """Another member, with other rows, asks for the same threshold."""
    with member(tmp_path / "a", range(50)) as north, member(tmp_path / "b", range(50, 60)) as south:
        ways = [QuantileStatistic(one, "visits", "stay", "0.5") for one in (north, south)]
        earlier = [OpenedSum(np.array([40, 10]), (0, 1)), OpenedSum(np.array([3, 50]), (0, 1))]
        thresholds = [way._searched(earlier)[-1].threshold for way in ways]
        assert thresholds == [8, 8]  # 0..20, then 0..10, then 6..10
        exact = [way.exact(2, earlier).tolist() for way in ways]
    for vector, people in zip(exact, (range(50), range(50, 60)), strict=True):
        under = plain([people], "SELECT COUNT(*) FILTER (WHERE stay <= 8), COUNT(*) FROM visits")[0]
        assert vector == [under[0], under[1] - under[0]]


class Made(QuantileStatistic):
    """A search over invented rows, so that it can be repeated often."""

    def __init__(self, dataset: Dataset, fraction: str, rows: NDArray[np.int64]) -> None:
        super().__init__(dataset, "visits", "cost", fraction)
        self.rows = rows

    def exact(self, stage: int, earlier: Sequence[OpenedSum]) -> NDArray[np.int64]:
        threshold = self._searched(earlier)[-1].threshold
        under = int((self.rows <= threshold).sum())
        return np.array([under, len(self.rows) - under])


@pytest.mark.parametrize("fraction", ["0.5", slow("0.9")])
def test_ranks_and_intervals_hold_as_often_as_they_say(fraction: str, tmp_path: Path) -> None:
    """Each should hold in 95 % of 200 searches; below 160 comes less than once in 1e9 (binomial)."""
    dice = np.random.default_rng(5)
    held = ranked = 0
    with member(tmp_path, range(9)) as dataset:
        noise = laplace(QuantileStatistic(dataset, "visits", "cost", fraction), 1, of=2)[0]
        for _ in range(200):
            rows = dice.binomial(200, dice.uniform(0.2, 0.8), size=3000)
            members = [Made(dataset, fraction, part) for part in np.split(rows, 3)]
            answer, _ = searched(members, noise)
            column = answer.columns[0]
            assert column.low is not None
            assert column.high is not None
            assert column.rank_error is not None
            value, rank = 2 * column.values[0], float(Fraction(fraction)) * len(rows)
            truth = np.sort(rows)[int(np.ceil(rank)) - 1]
            held += bool(2 * column.low[0] <= truth <= 2 * column.high[0])
            ranked += bool(
                (rows < value).sum() <= rank + column.rank_error
                and (rows <= value).sum() >= rank - column.rank_error
            )
    assert held >= 160
    assert ranked >= 160


def test_dates_have_quantiles_too(tmp_path: Path) -> None:
    with Dataset(policy_for(invented(4), "duckdb", tmp_path), analyst="ann") as dataset:
        one = QuantileStatistic(dataset, "visits", "admitted", "0.5")
        answer, found = searched([one], laplace(one, 1000)[0])
    assert one.stages == 9
    assert isinstance(answer.columns[0].values[0], date)
    assert "rank within" in answer.columns[0].note
    assert " to " in answer.table()[1][0][0]
    changed = [*found[:-1], OpenedSum(found[-1].values, (0, 1))]
    noises = [totals(laplace(one, 1000), each) for each in changed]
    assert one.answer(changed, noises, confidence=LEVEL).notes == (MEMBERS_CHANGED,)
