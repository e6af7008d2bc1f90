"""An index drawn with probability proportional to exp(rate * score), exactly.

Claim    P[i] = counts[i] exp(rate scores[i]) / sum over j of counts[j] exp(rate scores[j]).
Because  i is the number of cumulative shares at or below a uniform U. Floats with a proven error
         decide unless U is within that error of a share; then balls of all weights decide.
Test     tests/noise/test_choice.py

One pass over all weights and one binary search, whichever index wins.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from flint import arb
from numpy.typing import NDArray

from lapwing.exact import Real, ball, precision
from lapwing.noise.decay import LARGEST, exp_neg, float_error, float_gaps
from lapwing.noise.refine import Uniform
from lapwing.noise.stream import Stream


class Choice:
    """Draws indexes with weights counts * exp(-rate * gaps), where the least gap is 0."""

    def __init__(self, gaps: NDArray[np.int64], rate: Fraction, counts: NDArray[np.int64] | None) -> None:
        self._gaps, self._rate, self._counts = gaps, rate, counts
        weights = exp_neg(float_gaps(gaps, rate))
        if counts is not None:
            weights *= counts
        sums = np.cumsum(weights)
        self._shares = sums / sums[-1]
        # Each weight is off by the error of its exponential; n additions and a division round.
        # Weights below exp(-700) count as 0: at most n 2^63 exp(-700) < 2^-900 together.
        self._margin = 4 * (float_error(LARGEST) + (len(gaps) + 4) * 2.0**-52)
        self._exact_sums: dict[int, list[arb]] = {}

    def draw(self, stream: Stream, size: int) -> NDArray[np.int64]:
        """`size` independent indexes."""
        words = stream.words(size)
        uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        low = np.searchsorted(self._shares, uniform - self._margin, side="right")
        high = np.searchsorted(self._shares, uniform + self._margin, side="right")
        for i in np.flatnonzero(low != high):
            low[i] = self._walk(stream, int(words[i]), int(low[i]))
        return low

    def _walk(self, stream: Stream, word: int, index: int) -> int:
        uniform = Uniform(stream, word)
        while index < len(self._gaps) - 1 and not uniform.below(self._share(index)):
            index += 1
        return index

    def _share(self, index: int) -> Real:
        def at(bits: int) -> arb:
            if bits not in self._exact_sums:
                self._exact_sums[bits] = self._sum_up(bits)
            sums = self._exact_sums[bits]
            with precision(bits + 64):
                return sums[index] / sums[-1]

        return at

    def _sum_up(self, bits: int) -> list[arb]:
        sums: list[arb] = []
        with precision(bits + 64):
            total, rate = arb(0), ball(self._rate)
            for i, gap in enumerate(self._gaps):
                weight = (-rate * int(gap)).exp()
                total += weight if self._counts is None else weight * int(self._counts[i])
                sums.append(total)
        return sums
