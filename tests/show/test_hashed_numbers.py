"""Numbers from a hash look like chance: five standard errors, on numbers that never change."""

from __future__ import annotations

import numpy as np
import pytest

from lapwing.show.hashed_numbers import HashedNumbers

COUNT = 100_000


def near(values: np.ndarray[tuple[int], np.dtype[np.float64]], mean: float) -> bool:
    return bool(abs(values.mean() - mean) <= 5 * values.std() / np.sqrt(len(values)))


def test_uniform_numbers_are_even_and_unrelated() -> None:
    found = HashedNumbers(1).uniform(COUNT)
    assert found.min() > 0
    assert found.max() < 1
    assert near(found, 1 / 2)
    assert near(found**2, 1 / 3)
    assert near((found[1:] - 0.5) * (found[:-1] - 0.5), 0)
    counts = np.bincount((found * 100).astype(int), minlength=100)
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 99 + 5 * np.sqrt(198)


def test_other_laws_have_their_moments() -> None:
    numbers = HashedNumbers(2)
    normal = numbers.normal(6, COUNT)
    assert near(normal, 0)
    assert near(normal**2, 36)
    assert near(np.abs(normal), 6 * np.sqrt(2 / np.pi))
    assert near(numbers.exponential(5, COUNT), 5)
    arrivals = np.array([numbers.poisson(0.5) for _ in range(20_000)], dtype=np.float64)
    assert near(arrivals, 0.5)
    assert near((arrivals - 0.5) ** 2, 0.5)
    whole = numbers.integers(3, 7, COUNT)
    assert sorted(set(whole.tolist())) == [3, 4, 5, 6]
    assert near(whole.astype(np.float64), 4.5)


def test_a_seed_goes_on_and_comes_again() -> None:
    once = HashedNumbers(3).uniform(10)
    again = HashedNumbers(3)
    assert np.array_equal(np.concatenate([again.uniform(4), again.uniform(6)]), once)
    assert not np.intersect1d(once, HashedNumbers(4).uniform(10)).size
    assert once[0] == pytest.approx(HashedNumbers(3).uniform(1)[0])
