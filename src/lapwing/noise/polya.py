"""A share of discrete Laplace noise, for parties who add their shares up.

Claim    a Polya share P(r, t) has P[k] = binomial(k + r - 1, k) (1 - q)^r q^k, q = exp(-1/t);
         shares with r_1 + ... + r_m = 1 add up to a geometric. So the difference of two shares at
         r = 1/m is one party's part of discrete Laplace noise at scale t.
Because  P(r, t) is the sum of N logarithmic variables, P[L = k] = q^k / (k lambda), where N is
         Poisson with mean r lambda and lambda = -ln(1 - q): the generating functions agree. N comes
         by inversion. L comes from doubling blocks [2^b, 2^(b+1)): block b with weight q^(2^b), a
         place k in it uniformly, kept with probability (2^b / k) q^(k - 2^b); kept values have the
         law above.
Test     tests/noise/test_polya.py

How many logarithmic variables a share sums up is random and shows in the time: batches only.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np
from flint import arb
from numpy.typing import NDArray

from lapwing.exact import Real, ball, precision
from lapwing.noise.decay import exp_neg, float_error, float_gaps
from lapwing.noise.inversion import Inversion
from lapwing.noise.laplace import NEGLIGIBLE
from lapwing.noise.refine import coins_near
from lapwing.noise.stream import Stream

CHUNK = 1 << 14
_LISTED_NUMBERS = 120


def _poisson_cdf(r: Fraction, t: Fraction, symbol: int) -> Real:
    def at(bits: int) -> arb:
        with precision(bits + 64):
            mean = -ball(r) * (-ball(-1 / t).expm1()).log()
            term = total = (-mean).exp()
            for k in range(1, symbol + 1):
                term = term * mean / k
                total += term
            return total

    return at


def _block_cdf(t: Fraction, blocks: int, symbol: int) -> Real:
    """Blocks 0 .. symbol out of all. Blocks from `blocks` on weigh less than 2^-64 together.

    Weights are taken relative to block 0, so that a tiny t does not turn them all into 0.
    """

    def at(bits: int) -> arb:
        with precision(bits + 64):
            sums: list[arb] = []
            total, smallest = arb(0), arb(2) ** -(bits + 64)
            while True:
                weight = ball((1 - (1 << len(sums))) / t).exp()
                total += weight
                sums.append(total)
                # Past t the weights fall faster than halving: the rest is below the last one.
                if len(sums) >= blocks and weight < smallest:
                    break
            total += arb(0).union(weight)
            return sums[symbol] / total if symbol < len(sums) else (sums[-1] / total).union(1)

    return at


class PolyaShares:
    """Samplers of one (r, t)."""

    def __init__(self, r: Fraction, t: Fraction) -> None:
        self._t = t
        blocks = int(NEGLIGIBLE * t).bit_length() + 1
        self._blocks = Inversion(lambda s: _block_cdf(t, blocks, s), blocks)
        # A Poisson mean r lambda <= ln(t + 1) + 1 leaves far less than 2^-64 beyond this many.
        self._number = Inversion(lambda s: _poisson_cdf(r, t, s), _LISTED_NUMBERS)

    def draw(self, stream: Stream, size: int) -> NDArray[np.int64]:
        """`size` shares."""
        result = np.empty(size, dtype=np.int64)
        for start in range(0, size, CHUNK):
            part = result[start : start + CHUNK]
            numbers = self._number.draw(stream, len(part))
            sums = np.concatenate([[0], np.cumsum(self._logarithmic(stream, int(numbers.sum())))])
            ends = np.cumsum(numbers)
            part[:] = sums[ends] - sums[ends - numbers]
        return result

    def _logarithmic(self, stream: Stream, size: int) -> NDArray[np.int64]:
        result = np.empty(size, dtype=np.int64)
        filled = 0
        while filled < size:
            kept = self._candidates(stream, 2 * (size - filled) + 8)[: size - filled]
            result[filled : filled + len(kept)] = kept
            filled += len(kept)
        return result

    def _candidates(self, stream: Stream, size: int) -> NDArray[np.int64]:
        start = np.int64(1) << self._blocks.draw(stream, size)
        excess = (stream.words(size) & (start - 1).astype(np.uint64)).astype(np.int64)
        place = start + excess
        approximate = exp_neg(float_gaps(excess, 1 / self._t))
        approximate *= start.astype(np.float64) / place.astype(np.float64)

        def kept_with(i: int) -> Real:
            def at(bits: int) -> arb:
                with precision(bits):
                    decay = ball(-int(excess[i]) / self._t).exp()
                    return decay * int(start[i]) / int(place[i])

            return at

        keep = coins_near(stream, approximate, float_error(700.0), kept_with)
        return place[keep]


@lru_cache(maxsize=32)
def polya_shares(r: Fraction, t: Fraction) -> PolyaShares:
    """The cached samplers of (r, t)."""
    return PolyaShares(r, t)
