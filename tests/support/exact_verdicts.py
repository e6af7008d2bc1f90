"""How often a verdict is given, exactly: the law of the sums, convolved with that of the noise.

A verdict about a pair of noisy sums is monotone: more of the one and less of the other never undo it. So it
is described by the least first number that gets it, for each second one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Gets = Callable[[int, int], bool]


def noise_law(scale: Fraction) -> Floats:
    """P[noise = k] for k in -reach .. reach; what is left is below 1e-12."""
    t = float(scale)
    reach = math.ceil(28 * t) + 1
    k = np.abs(np.arange(-reach, reach + 1))
    return np.asarray(np.exp(-k / t) * math.tanh(1 / (2 * t)))


def sums_law(one: Floats, units: int) -> Floats:
    """The law of the sum of so many independent whole numbers with this law on 0, 1, ..."""
    law = np.ones(1)
    for _ in range(units):
        law = np.convolve(law, one)
    return law


def chance(gets: Gets, law: Floats, scale: Fraction) -> float:
    """P[gets(a + noise, N - a + noise)], a with this law on 0 .. N, N = len(law) - 1.

    At most 1e-11 too small.
    """
    return chances(gets, [law], scale)[0]


def chances(gets: Gets, laws: list[Floats], scale: Fraction) -> list[float]:
    """The same for several laws on 0 .. N."""
    reach, most = len(noise_law(scale)) // 2, len(laws[0]) - 1
    least = _least(gets, -reach, most + reach)
    return [_chance(least, law, noise_law(scale)) for law in laws]


def _chance(least: NDArray[np.int64], law: Floats, noise: Floats) -> float:
    reach, most = len(noise) // 2, len(law) - 1
    at_least = np.concatenate([np.cumsum(noise[::-1])[::-1], [0.0]])
    found = 0.0
    for a, weight in enumerate(law):
        if weight < 1e-16:
            continue
        other = np.arange(most - a - reach, most - a + reach + 1)
        wanted = np.clip(least[other + reach] - a + reach, 0, len(noise))
        found += float(weight * (noise * at_least[wanted]).sum())
    return found


def _least(gets: Gets, low: int, high: int) -> NDArray[np.int64]:
    """For each second number of low .. high the least first one that gets it, or high + 1."""
    least, first = [], low
    for second in range(low, high + 1):
        while first <= high and not gets(first, second):
            first += 1
        least.append(first)
    return np.array(least)


def binomial(n: int, p: float) -> Floats:
    return sums_law(np.array([1 - p, p]), n)
