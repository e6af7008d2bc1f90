"""The loss a contribution is charged for, and the noise of its blocks; refused where they do not fit."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapwing.core.gaussian import GaussianShares
from lapwing.core.laplace import LaplaceShares
from lapwing.core.losses import Concentrated, LaplaceNoise, Pure, Repeated, SequentialComposition
from lapwing.errors import BadParameter
from lapwing.parties.contribution import ChargedAccount
from lapwing.parties.joint_noise import member_loss
from lapwing.parties.statistics import statistic_of
from support.contributing import HISTOGRAM, MEDIAN, VECTOR, contribution
from support.joint import gaussian, laplace, member
from support.raised import named


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_what_does_not_cover_the_numbers_is_refused_at_birth(noise: str, tmp_path: Path) -> None:
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        shares: Any = laplace(statistic, 1) if noise == "laplace" else gaussian(statistic, 1)
        contribution(statistic, dataset, shares)
        narrow: Any = (
            LaplaceShares.for_epsilon(1, l1=1, of=1)
            if noise == "laplace"
            else GaussianShares.for_rho(1, l2_squared=1, dimension=3, of=1)
        )
        for bad, words in (([], "one for each"), (shares * 2, "one for each"), ([narrow], "do not cover")):
            with pytest.raises(BadParameter, match=words):
                contribution(statistic, dataset, bad, loss=Pure(Fraction(9)))
        with pytest.raises(BadParameter, match="less than"):
            contribution(statistic, dataset, shares, loss=Pure(Fraction(1, 2)))
        with pytest.raises(BadParameter, check=named("run")):
            contribution(statistic, dataset, run="run")
        with pytest.raises(BadParameter, check=named("largest")):
            contribution(statistic, dataset, largest=0)
    assert not (tmp_path / "lapwing.ledger").exists()


def test_a_charge_may_be_more_than_the_noise_reveals(tmp_path: Path) -> None:
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        contribution(statistic, dataset, loss=Pure(Fraction(2)))
        with pytest.raises(BadParameter, match="less than"):
            contribution(statistic, dataset, loss=Pure(Fraction(99, 100)))


def test_no_pure_charge_covers_gaussian_noise(tmp_path: Path) -> None:
    """It is (ε, δ)-private for no δ = 0, whatever ε is charged: only ρ pays for it."""
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        shares = gaussian(statistic, Fraction(1, 100))
        (rho,) = [share.loss.rho for share in shares]
        for enough in (Concentrated(rho), Concentrated(2 * rho), Repeated(Concentrated(rho), 2)):
            contribution(statistic, dataset, shares, loss=enough)
        for bad in (Pure(Fraction(900)), LaplaceNoise(Fraction(1), 900), Concentrated(rho * 99 / 100)):
            with pytest.raises(BadParameter, match="less than"):
                contribution(statistic, dataset, shares, loss=bad)
        two = SequentialComposition((Concentrated(rho / 2), Pure(Fraction(9))))
        with pytest.raises(BadParameter, match="less than"):
            contribution(statistic, dataset, shares, loss=two)


def test_no_rho_covers_pure_noise(tmp_path: Path) -> None:
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(HISTOGRAM, dataset)
        with pytest.raises(BadParameter, match="less than"):
            contribution(statistic, dataset, loss=Concentrated(Fraction(900)))


def test_stages_are_in_the_loss(tmp_path: Path) -> None:
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(MEDIAN, dataset)
        shares = laplace(statistic, 1)
        with pytest.raises(BadParameter, match="less than"):
            contribution(statistic, dataset, shares, loss=member_loss(shares, 4))


def test_a_data_set_is_charged_for_its_own_statistic_only(tmp_path: Path) -> None:
    with member(tmp_path / "a", range(3)) as north, member(tmp_path / "b", range(3)) as south:
        statistic = statistic_of(HISTOGRAM, north)
        with pytest.raises(BadParameter, match="bound to"):
            contribution(statistic, south)
        with pytest.raises(BadParameter, match="own accounts"):
            contribution(statistic, ChargedAccount(north.ledger, "visits", "ann"))
        with pytest.raises(BadParameter, match="bound to"):
            contribution(statistic_of(VECTOR, [1, 2, 3]), north)


# Every block gets its noise

BLOCKS = {
    "kind": "question",
    "sql": "SELECT ward, COUNT(*), SUM(stay), SUM(cost) FROM visits GROUP BY ward",
}
DRAWS = 400


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_every_cell_of_every_block_has_the_noise_of_its_own_block(noise: str, tmp_path: Path) -> None:
    """The mean of 1,200 squares is off by √(5 / 1,200) of the variance with Laplace noise, √(2 / 1,200)
    with Gaussian: bounds are at more than seven of these."""
    with member(tmp_path, range(30)) as dataset:
        statistic = statistic_of(BLOCKS, dataset)
        assert [block.length for block in statistic.blocks] == [3, 3, 3]
        assert len({block.l1 for block in statistic.blocks}) == 3
        shares: Any = laplace(statistic, 1) if noise == "laplace" else gaussian(statistic, Fraction(1, 10))
        brings = contribution(statistic, dataset, shares)
        values = statistic.exact(0, ())
        drawn = np.array([brings._noised(values) for _ in range(DRAWS)]) - values
    for cells, share in zip(np.split(drawn, 3, axis=1), shares, strict=True):
        variance = share.total(1).deviation ** 2
        assert np.abs(cells).max(axis=0).min() > 0
        assert abs((cells.astype(float) ** 2).mean() / variance - 1) < (0.5 if noise == "laplace" else 0.33)
    for a in range(9):
        for b in range(a):
            assert not np.array_equal(drawn[:, a], drawn[:, b])
