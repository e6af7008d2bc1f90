"""Noise that is drawn ahead is used once, and never for more steps than were paid."""

from __future__ import annotations

import pickle
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from lapwing.errors import BadValue, NoEntropy, SessionOver
from lapwing.learn.sgd.noise_ahead import NoiseAhead, add_noise
from lapwing.mechanisms.gaussian import Gaussian

MECHANISM = Gaussian(Fraction(1000), Fraction(100), 500)
NOTHING = np.zeros(500, dtype=np.int64)


def test_each_step_has_noise_of_its_own_and_there_is_no_step_more() -> None:
    with NoiseAhead(MECHANISM, 3) as noise:
        found = [noise.added_to(NOTHING + 10**6) for _ in range(3)]
        with pytest.raises(SessionOver):
            noise.added_to(NOTHING)
    assert all((one != other).any() for one, other in pairwise(found))
    assert all(750 < np.std(one) < 1250 for one in found)  # eight standard deviations of a spread of 500
    assert all(abs(np.mean(one) - 10**6) < 400 for one in found)  # nine


def test_it_cannot_be_saved() -> None:
    with NoiseAhead(MECHANISM, 1) as noise, pytest.raises(SessionOver):
        pickle.dumps(noise)


def test_without_noise_there_is_no_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    def dry(*_: object) -> None:
        raise NoEntropy("no entropy")

    monkeypatch.setattr("lapwing.learn.sgd.noise_ahead.discrete_gaussian", dry)
    with NoiseAhead(MECHANISM, 1) as noise, pytest.raises(NoEntropy):
        noise.added_to(NOTHING)


def test_noise_is_for_the_vector_that_was_priced() -> None:
    with pytest.raises(BadValue, match="priced for 500"):
        add_noise(MECHANISM, NOTHING[:499].copy())
    with NoiseAhead(MECHANISM, 1) as noise, pytest.raises(BadValue, match="priced"):
        noise.added_to(NOTHING[:1])


def test_noise_in_lots_is_noise() -> None:
    large = Gaussian(Fraction(1000), Fraction(100), 200_000)
    found = add_noise(large, np.zeros(200_000, dtype=np.int64))
    assert abs(np.std(found) - 1000) < 16  # ten standard deviations
    assert (found[:65_536] != found[65_536:131_072]).any()
