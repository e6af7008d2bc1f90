"""Sums get exact noise on the grid; noise is used once, and never for more steps than were paid."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from lapwing.core.gaussian import Gaussian
from lapwing.core.gaussian_sampler import FLAT_AFTER, LOT, FlatGaussian
from lapwing.errors import BadParameter, BadValue, NoEntropy, SessionOver
from lapwing.learn.sgd import GradientSensitivity
from lapwing.learn.sgd.randomness import (
    StepNoise,
    look_up_noise,
    release_noisy_sum,
    release_on_gpu,
    round_to_grid,
)
from support.slowly import slow
from support.streams import SeededStream

MECHANISM = Gaussian(Fraction(1000), Fraction(100), 500)
SIZE = 200_000
GRID = GradientSensitivity.of(1, parameters=SIZE, page=64, expected_batch=256)


def drawn(noise: StepNoise) -> NDArray[np.float64]:
    """A step's noise in one vector."""
    return np.concatenate([lot.copy() for lot in noise.lots()])


def test_each_step_has_noise_of_its_own_and_there_is_no_step_more() -> None:
    noise = StepNoise(MECHANISM, steps=3)
    found = [drawn(noise) for _ in range(3)]
    with pytest.raises(SessionOver):
        noise.lots()
    assert all((one != other).any() for one, other in pairwise(found))
    assert all(750 < np.std(one) < 1250 for one in found)  # eight standard deviations of a spread of 500
    assert all(abs(np.mean(one)) < 400 for one in found)  # nine


def test_it_cannot_be_saved() -> None:
    noise = StepNoise(MECHANISM, steps=1)
    with pytest.raises(SessionOver):
        pickle.dumps(noise)


def test_without_noise_there_is_no_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    def dry(*_: object) -> Iterator[NDArray[np.float64]]:
        yield np.ones(LOT)
        raise NoEntropy("no entropy")

    monkeypatch.setattr("lapwing.learn.sgd.randomness.discrete_gaussian_lots", dry)
    noise = StepNoise(GRID.mechanism(Fraction(1)), steps=1)
    with pytest.raises(NoEntropy):
        release_noisy_sum(torch.zeros(SIZE), GRID, noise, divided_by=1)


def test_noise_is_for_the_vector_that_was_priced() -> None:
    noise = StepNoise(MECHANISM, steps=10)
    for size in (0, 499, 501, 100_000):
        with pytest.raises(BadValue, match="priced"):
            release_noisy_sum(torch.zeros(size), GRID, noise, divided_by=1)


def test_too_little_noise_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepNoise, "lots", lambda _: iter([np.ones(LOT)]))
    noise = StepNoise(GRID.mechanism(Fraction(1)), steps=1)
    with pytest.raises(ValueError, match="shorter"):
        release_noisy_sum(torch.zeros(SIZE), GRID, noise, divided_by=1)


def test_each_draw_is_fresh_and_of_its_width() -> None:
    noise = StepNoise(Gaussian(Fraction(1000), Fraction(100), SIZE), steps=2)
    first, second = drawn(noise), drawn(noise)
    assert (first[:LOT] != first[LOT : 2 * LOT]).any()
    for found in (first, second):
        assert abs(np.std(found) - 1000) < 16  # ten standard deviations
    assert (first != second).any()


def test_a_device_gets_noise_of_its_width_once_in_each_step() -> None:
    steps = FLAT_AFTER // SIZE + 2  # at the end of them, tables
    noise = StepNoise(Gaussian(Fraction(1000), Fraction(100), SIZE), steps=steps)
    found = [noise.on(torch.device("cpu")) for _ in range(steps)]
    with pytest.raises(SessionOver):
        noise.on(torch.device("cpu"))
    assert noise._table is not None
    assert all(abs(float(one.std()) - 1000) < 16 for one in found)  # ten standard deviations
    assert all((one != other).any() for one, other in pairwise(found))


def test_what_a_device_looks_up_are_the_draws() -> None:
    sampler = FlatGaussian(Fraction(2**24))
    coded = sampler.lookup(SeededStream(8), LOT)
    assert coded is not None
    drawn_here = np.empty(LOT, dtype=np.int64)
    for _ in sampler.fill_all(SeededStream(8), [drawn_here], LOT):
        pass
    assert look_up_noise(coded, torch.from_numpy(coded.starts)).tolist() == drawn_here.tolist()


@pytest.mark.parametrize("way", [release_noisy_sum, release_on_gpu])
@pytest.mark.parametrize("dtype", [torch.float32, slow(torch.float64)])
def test_what_is_released_is_the_sum_on_the_grid_plus_the_noise_to_the_last_bit(
    dtype: torch.dtype, way: Callable[..., torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = torch.randn(SIZE, dtype=dtype) * 100
    noise = StepNoise(GRID.mechanism(Fraction(1)), steps=2)
    added = drawn(noise)
    lots = [part.copy() for part in np.split(added, range(LOT, SIZE, LOT))]
    monkeypatch.setattr(noise, "lots", lambda: iter(lots))
    monkeypatch.setattr(noise, "on", lambda _: torch.from_numpy(added))
    step = Fraction(GRID.step)
    due = [
        round(Fraction(value) / step) + int(one)
        for value, one in zip(sums.tolist(), added.tolist(), strict=True)
    ]
    found = way(sums.clone(), GRID, noise, divided_by=1).double() / float(step)
    if dtype == torch.float64:
        assert [int(value) for value in found.tolist()] == due
    else:
        assert torch.equal(found.float(), torch.tensor(due, dtype=torch.float64).float())


def test_the_grid_rounds_to_the_nearest_whole_number() -> None:
    values = torch.tensor([0.0, -0.0, 0.49, 0.5, 1.5, -2.5, 1e6 + 0.25]) * float(GRID.step)
    for dtype in (torch.float32, torch.float64):
        assert round_to_grid(values.to(dtype, copy=True).numpy(), GRID).tolist() == [0, 0, 0, 0, 2, -2, 1e6]


@pytest.mark.parametrize("clip", [1e-6, 1e6])
def test_the_smallest_and_largest_floats_keep_their_place_on_the_grid(clip: float) -> None:
    grid = GradientSensitivity.of(clip, parameters=1, page=64, expected_batch=256)
    values = [2.0**-149, 2.0**-126, -(2.0**-130), clip, -300 * clip, clip / 3]
    found = round_to_grid(np.array(values, dtype=np.float32), grid).tolist()
    assert found == [round(Fraction(float(np.float32(value))) / grid.step) for value in values]


def test_sums_and_noise_stay_where_floats_are_exact() -> None:
    most = (2**53 - 2**22 * GRID.distance) / Fraction(16 * GRID.distance)
    assert GRID.mechanism(Fraction(1000)).sigma == 1000 * GRID.distance
    with pytest.raises(BadParameter, match="exact on the grid"):
        GRID.mechanism(most)
