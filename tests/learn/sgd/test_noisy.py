"""Sums get exact noise on the grid; noise is used once, and never for more steps than were paid."""

from __future__ import annotations

import pickle
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch

from lapwing.errors import BadParameter, BadValue, NoEntropy, SessionOver
from lapwing.learn.sgd import Sensitivity
from lapwing.learn.sgd.noisy import Noise, NoiseAhead, on_grid, release
from lapwing.mechanisms.gaussian import Gaussian

MECHANISM = Gaussian(Fraction(1000), Fraction(100), 500)
SIZE = 200_000
GRID = Sensitivity.of(1, parameters=SIZE, page=64, expected_batch=256)


def test_each_step_has_noise_of_its_own_and_there_is_no_step_more() -> None:
    with NoiseAhead(MECHANISM, 3) as noise:
        found = [noise.draw().copy() for _ in range(3)]
        with pytest.raises(SessionOver):
            noise.draw()
    assert all((one != other).any() for one, other in pairwise(found))
    assert all(750 < np.std(one) < 1250 for one in found)  # eight standard deviations of a spread of 500
    assert all(abs(np.mean(one)) < 400 for one in found)  # nine


def test_it_cannot_be_saved() -> None:
    with NoiseAhead(MECHANISM, 1) as noise, pytest.raises(SessionOver):
        pickle.dumps(noise)


def test_without_noise_there_is_no_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    def dry(*_: object) -> None:
        raise NoEntropy("no entropy")

    monkeypatch.setattr("lapwing.learn.sgd.noisy.fill_discrete_gaussian", dry)
    with NoiseAhead(MECHANISM, 1) as noise, pytest.raises(NoEntropy):
        noise.draw()


def test_noise_is_for_the_vector_that_was_priced() -> None:
    noise = Noise(MECHANISM).draw()
    for size in (0, 499, 501, 100_000):
        with pytest.raises(BadValue, match="priced"):
            release(torch.zeros(size), GRID, noise, divided_by=1)


def test_each_draw_is_fresh_and_of_its_width() -> None:
    noise = Noise(Gaussian(Fraction(1000), Fraction(100), SIZE))
    first = noise.draw().copy()
    assert (first[:65_536] != first[65_536:131_072]).any()
    for drawn in (first, noise.draw()):
        assert abs(np.std(drawn) - 1000) < 16  # ten standard deviations
    assert (drawn != first).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_released_is_the_sum_on_the_grid_plus_the_noise_to_the_last_bit(dtype: torch.dtype) -> None:
    sums = torch.randn(SIZE, dtype=dtype) * 100
    noise = Noise(GRID.mechanism(Fraction(1))).draw()
    step = Fraction(GRID.step)
    due = [
        round(Fraction(value) / step) + int(drawn)
        for value, drawn in zip(sums.tolist(), noise.tolist(), strict=True)
    ]
    found = release(sums.clone(), GRID, noise, divided_by=1).double() / float(step)
    if dtype == torch.float64:
        assert [int(value) for value in found.tolist()] == due
    else:
        assert torch.equal(found.float(), torch.tensor(due, dtype=torch.float64).float())


def test_the_grid_rounds_to_the_nearest_whole_number() -> None:
    values = torch.tensor([0.0, -0.0, 0.49, 0.5, 1.5, -2.5, 1e6 + 0.25]) * float(GRID.step)
    assert on_grid(values, GRID).tolist() == [0, 0, 0, 0, 2, -2, 1e6]
    assert on_grid(values, GRID).dtype == torch.float64


def test_sums_and_noise_stay_where_floats_are_exact() -> None:
    most = (2**53 - 2**22 * GRID.distance) / Fraction(16 * GRID.distance)
    assert GRID.mechanism(Fraction(1000)).sigma == 1000 * GRID.distance
    with pytest.raises(BadParameter, match="exact on the grid"):
        GRID.mechanism(most)
