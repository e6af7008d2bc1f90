"""Uniform whole numbers and permutations.

Claim    every number of the range, every order of the items, is equally likely.
Because  words beyond the last whole multiple of the range are drawn again (probability below
         range / 2^64); sorting by distinct random keys is fair, and keys are drawn again when two
         agree.
Test     tests/noise/test_uniform.py

How often something is drawn again is independent of what comes out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lapwing.noise.stream import Stream


def uniform_below(stream: Stream, count: int, size: int) -> NDArray[np.uint64]:
    """`size` numbers from 0 .. count - 1, count <= 2^64."""
    words = stream.words(size).copy()
    if count == 1 << 64:
        return words
    fair = (1 << 64) // count * count
    if fair < 1 << 64:
        while len(again := np.flatnonzero(words >= np.uint64(fair))):
            words[again] = stream.words(len(again))
    words %= np.uint64(count)
    return words


def permutation(stream: Stream, count: int) -> NDArray[np.int64]:
    """0 .. count - 1 in a uniformly random order."""
    while True:
        keys = stream.words(count)
        order = np.argsort(keys, kind="stable")
        ranked = keys[order]
        if not np.any(ranked[1:] == ranked[:-1]):
            return order.astype(np.int64)
