"""Exact decisions about a uniform number U of which only the leading bits have been drawn.

Claim    `below` is true with probability exactly p, for any real p in [0, 1].
Because  U is compared with a ball around p; while the ball and the interval of U overlap, both are
         refined. The first decision is final, because later bits cannot leave the interval.
Test     tests/noise/test_refine.py

The refinement is bounded: after `MOST_BITS` bits it raises `Undecided`, which has probability below
2^-1000 for each draw. A tie on the first 64 bits has probability 3/2^64, so in practice no draw
comes here, and the work does not depend on the value that is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from flint import arb
from numpy.typing import NDArray

from lapwing.errors import Undecided
from lapwing.exact import Real, ball, lower, precision, upper
from lapwing.noise.stream import Stream

WORD = 64
MOST_BITS = 17 * WORD
GUARD = 64

# Thresholds are kept as 64-bit integers that are within 1 of p * 2^64; a word within 1 of its
# threshold is a tie. `TIE_WIDTH` words are ties: threshold - 1, threshold, threshold + 1.
TIE_WIDTH = 3


class Uniform:
    """A uniform number in [0, 1) whose binary digits are drawn when they are needed."""

    def __init__(self, stream: Stream, leading_word: int | None = None) -> None:
        self._stream = stream
        self._digits = stream.word() if leading_word is None else leading_word
        self._bits = WORD

    def below(self, real: Real) -> bool:
        """Whether U < real. The answer never changes when more digits are drawn."""
        while True:
            ball_of_real = real(self._bits + GUARD)
            with precision(self._bits + 2 * GUARD):
                scaled = ball_of_real * (arb(2) ** self._bits)
                if self._digits + 1 <= lower(scaled):
                    return True
                if self._digits >= upper(scaled):
                    return False
            if self._bits >= MOST_BITS:
                raise Undecided("a random comparison stayed open; nothing was released")
            self._digits = (self._digits << WORD) | self._stream.word()
            self._bits += WORD


def threshold(real: Real) -> int:
    """A 64-bit integer within 1 of real * 2^64."""
    value = real(WORD + 2 * GUARD)
    with precision(WORD + 3 * GUARD):
        scaled = value * (arb(2) ** WORD)
        low, high = lower(scaled), upper(scaled)
    assert high - low < Fraction(1, 2), "balls must be finer than the word they are rounded to"
    return min(max(int(low), 0), (1 << WORD) - 1)


def thresholds(reals: list[Real]) -> NDArray[np.uint64]:
    """`threshold` of each real."""
    return np.array([threshold(real) for real in reals], dtype=np.uint64)


def ties(words: NDArray[np.uint64], limits: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which words are too close to their threshold to decide. (The ends wrap round: harmless.)"""
    close: NDArray[np.bool_] = (words - limits + np.uint64(1)) < np.uint64(TIE_WIDTH)
    return close


def rational(value: Fraction) -> Real:
    """The real that is a rational."""

    def at(bits: int) -> arb:
        with precision(bits):
            return ball(value)

    return at


def coins(stream: Stream, real: Real, size: int) -> NDArray[np.bool_]:
    """`size` independent coins, each true with probability exactly `real`."""
    limit = np.uint64(threshold(real))
    words = stream.words(size)
    heads = words < limit
    for i in np.flatnonzero(ties(words, limit)):
        heads[i] = Uniform(stream, int(words[i])).below(real)
    return heads


def coins_near(
    stream: Stream,
    approximate: NDArray[np.float64],
    margin: float,
    real_of: Callable[[int], Real],
) -> NDArray[np.bool_]:
    """One coin per element: true with probability exactly `real_of(i)`.

    `approximate[i]` is within `margin` of the real (margin >= 2^-50). It decides alone unless the
    word falls inside the margin; then the exact real decides. So floats save time, never precision.
    """
    words = stream.words(len(approximate))
    leading = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    # leading and the subtraction are off by less than 2^-51 together; the margin is far wider.
    distance = leading - approximate
    heads: NDArray[np.bool_] = distance < 0
    for i in np.flatnonzero(np.abs(distance) <= margin + 2.0**-50):
        heads[i] = Uniform(stream, int(words[i])).below(real_of(int(i)))
    return heads
