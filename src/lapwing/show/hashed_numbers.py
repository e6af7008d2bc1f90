"""Numbers from a hash of their place, for invented data: the same each time, and looking like chance.

Never for noise: whoever knows the seed knows all of them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class HashedNumbers:
    """A sequence of numbers that follows from a seed. Each call goes on where the last one ended."""

    def __init__(self, seed: int) -> None:
        self._start = np.uint64(seed) << np.uint64(40)  # 2^40 numbers of one seed, then those of the next
        self._used = 0

    def uniform(self, count: int) -> Floats:
        """Return numbers above 0 and below 1, with 53 bits."""
        places = np.arange(self._used, self._used + count, dtype=np.uint64) + self._start
        self._used += count
        return (_mixed(places) >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54

    def integers(self, low: int, high: int, count: int) -> NDArray[np.int64]:
        """Return whole numbers from low to high - 1."""
        return low + np.floor(self.uniform(count) * (high - low)).astype(np.int64)

    def normal(self, deviation: float, count: int) -> Floats:
        """Return normal numbers, by Box and Muller."""
        far = np.sqrt(-2 * np.log(self.uniform(count)))
        return np.asarray(deviation * far * np.cos(2 * math.pi * self.uniform(count)))

    def exponential(self, mean: float, count: int) -> Floats:
        """Return exponential numbers."""
        return np.asarray(-mean * np.log(self.uniform(count)))

    def poisson(self, mean: float) -> int:
        """Return one Poisson number: the exponential waits that fit into the mean."""
        waited, count = float(self.exponential(1, 1)[0]), 0
        while waited <= mean:
            waited, count = waited + float(self.exponential(1, 1)[0]), count + 1
        return count


def _mixed(places: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the hash of each place: SplitMix64 (Steele, Lea and Flood, 2014)."""
    with np.errstate(over="ignore"):
        mixed = (places + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)
