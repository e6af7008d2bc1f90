"""Exact inversion sampling from a table: the workhorse behind every fixed law.

Claim    symbol s is drawn with probability exactly cdf(s) - cdf(s - 1), s = 0, 1, 2, ...
Because  s is the number of thresholds cdf(0), cdf(1), ... at or below a uniform U. The leading bits
         of U settle that, except next to a threshold; there `Uniform` refines U exactly.
Test     tests/noise/test_inversion.py

Two ways to the same law. *Words*: one 64-bit word each, found by binary search. *Guide*: the
leading 16 bits select one of 65,536 buckets; a bucket that no threshold cuts answers at once, the
others draw 48 more bits. Buckets that are cut hold a public share of the probability, so every
chunk refines the same number of draws (padded with idle ones): the work does not tell the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lapwing.exact import Real
from lapwing.noise.refine import Uniform, thresholds, ties
from lapwing.noise.stream import Stream

GUIDE_BITS = 16
BUCKETS = 1 << GUIDE_BITS
REST_BITS = 64 - GUIDE_BITS
CUT = np.int16(-1)
MOST_SYMBOLS = 1 << 14


class Inversion:
    """Draws symbols 0, 1, 2, ... with the cumulative probabilities `cdf`.

    The first `listed` thresholds are tabulated. Symbols from `listed` on must have a total
    probability of at most about 2^-60, or none: they are found by walking up the reals.
    """

    def __init__(self, cdf: Callable[[int], Real], listed: int) -> None:
        assert 1 <= listed <= MOST_SYMBOLS
        self._cdf = cdf
        self._limits = thresholds([cdf(s) for s in range(listed)])
        assert bool(np.all(self._limits[1:] >= self._limits[:-1])), "a cdf does not fall"
        self._guide: tuple[NDArray[np.int16], float] | None = None

    @property
    def guide(self) -> tuple[NDArray[np.int16], float]:
        """The symbol of each bucket, or `CUT`, and the share of `CUT`: built at first large use.

        Both are published in one assignment: a thread never sees one without the other.
        """
        if self._guide is None:
            guide = self._build_guide()
            self._guide = guide, float(np.mean(guide == CUT))
        return self._guide

    def _build_guide(self) -> NDArray[np.int16]:
        limits, shift, one = self._limits, np.uint64(REST_BITS), np.uint64(1)
        bucket = (limits >> shift).astype(np.intp)
        inside = np.bincount(bucket, minlength=BUCKETS)
        guide = (np.cumsum(inside) - inside).astype(np.int16)
        # A tie reaches one word to either side of a threshold (wrapping is harmless: one more cut).
        for reached in (limits - one, limits, limits + one):
            guide[(reached >> shift).astype(np.intp)] = CUT
        # What is above the last threshold is not tabulated.
        guide[guide == len(limits)] = CUT
        return guide

    def draw(self, stream: Stream, size: int) -> NDArray[np.int64]:
        """`size` symbols, a 64-bit word each: for small batches."""
        return self._symbols_of(stream, stream.words(size))

    def draw_guided(self, stream: Stream, size: int) -> NDArray[np.int16]:
        """`size` symbols by the guide table: for large batches."""
        guide, share = self.guide
        leading = stream.halves(size)
        symbols = guide.take(leading)
        cut = np.flatnonzero(symbols == CUT)
        rest = stream.words(max(len(cut), padded_count(share, size)))
        words = rest >> np.uint64(GUIDE_BITS)
        words[: len(cut)] |= leading[cut].astype(np.uint64) << np.uint64(REST_BITS)
        symbols[cut] = self._symbols_of(stream, words)[: len(cut)]
        return symbols

    def _symbols_of(self, stream: Stream, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        limits = self._limits
        symbols = np.searchsorted(limits, words, side="right")
        last = len(limits) - 1
        open_ = (
            ties(words, limits[np.minimum(symbols, last)])
            | ties(words, limits[np.maximum(symbols - 1, 0)])
            | (symbols > last)
        )
        for i in np.flatnonzero(open_):
            symbols[i] = self._walk(stream, int(words[i]))
        return symbols

    def _walk(self, stream: Stream, word: int) -> int:
        """The exact symbol of the uniform number that starts with `word`."""
        uniform = Uniform(stream, word)
        symbol = int(np.searchsorted(self._limits, np.uint64(max(word - 1, 0))))
        while not uniform.below(self._cdf(symbol)):
            symbol += 1
        return symbol


def padded_count(share: float, size: int) -> int:
    """How many of `size` draws are refined in any case: the mean plus ten deviations."""
    return min(size, math.ceil(size * share + 10 * math.sqrt(size * share) + 10))
