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
from lapwing.exact import Real, ball, precision
from lapwing.noise.stream import Stream

WORD = 64
MOST_BITS = 17 * WORD
GUARD = 64

# Thresholds are kept as 64-bit integers with threshold <= p * 2^64 < threshold + 3/2. A word up to
# threshold - 1 is below p and one from threshold + 2 on is not. `TIE_WIDTH` words are left to the
# exact comparison: threshold - 1 (to spare), threshold, threshold + 1.
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
                # A comparison with a ball is true only when it holds for every point of the ball.
                if scaled >= self._digits + 1:
                    return True
                if scaled <= self._digits:
                    return False
            if self._bits >= MOST_BITS:
                raise Undecided("a random comparison stayed open; nothing was released")
            self._digits = (self._digits << WORD) | self._stream.word()
            self._bits += WORD


def threshold(real: Real) -> int:
    """A 64-bit integer with threshold <= real * 2^64 < threshold + 3/2, for a real in [0, 1]."""
    value = real(WORD + 2 * GUARD)
    with precision(WORD + 3 * GUARD):
        scaled = value * (arb(2) ** WORD)
        # Rounded inside the ball library: as a fraction, exp(-10^9) would have a billion digits.
        whole = scaled.lower().floor().unique_fmpz() if scaled.rad() < 0.25 else None
    if whole is None:
        raise Undecided("a real was not known finely enough; nothing was drawn")
    return min(max(int(whole), 0), (1 << WORD) - 1)


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
    limit = thresholds([real])
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
    for i in np.flatnonzero(~(np.abs(distance) > margin + 2.0**-50)):  # so NaN decides nothing
        heads[i] = Uniform(stream, int(words[i])).below(real_of(int(i)))
    return heads
