"""Tools of which all samplers are built: each follows its law exactly.

**Refinement**: decisions about a uniform number U of which only the leading bits have been drawn.

Claim    `LazyUniform.below` is true with probability exactly p, for any real p in [0, 1].
Because  U is compared with a ball around p. While the ball and the interval of U overlap, both are
         refined. The first decision is final, because later bits cannot leave the interval.
Test     tests/core/test_exact_sampling_refine.py

The refinement is bounded: after `MOST_BITS` bits it raises `Undecided`, which has probability below
2^-1000 for each draw. A tie on the first 64 bits has probability 3/2^64. So in practice no draw is
refined, and the work does not depend on the value that is drawn.

**Exponentials**: exp(-x) in floats with a proven error, and exact coins with probability exp(-x).

Claim    `exp_neg(x)` is within a relative 2^-47 of exp(-x) for float x in [0, 700], and the
         coins of `bernoulli_exp` are true with probability exactly exp(-x).
Because  x = 16 a + i / 1024 + r with |r| <= 2^-11 (all exact in floats). The two table entries are
         correctly rounded exponentials, and 1 - r + r^2/2 - r^3/6 is off by at most r^4/24 < 2^-48.
         Six rounded operations add less than 2^-50. Only IEEE addition, multiplication and table
         lookup are used, so nothing depends on a mathematical library. The coins use `coins_near`.
Test     tests/core/test_exact_sampling_decay.py

**Inversion**: sampling from a table of cumulative probabilities.

Claim    symbol s is drawn with probability exactly cdf(s) - cdf(s - 1), s = 0, 1, 2, ...
Because  s is the number of thresholds cdf(0), cdf(1), ... at or below a uniform U. The leading bits
         of U decide that, except next to a threshold; there `LazyUniform` refines U exactly.
Test     tests/core/test_exact_sampling_inversion.py

There are two ways to the same law. *Words*: one 64-bit word per draw, found by binary search.
*Guide*: the leading 16 bits select one of 65,536 buckets. A bucket that contains no threshold
answers at once; for the others 48 more bits are drawn. The buckets with a threshold have a public
share of the probability, so every chunk refines the same number of draws (padded with unused ones):
the amount of work reveals nothing about the values.

**Exponential choice**: an index drawn with probability proportional to exp(rate * score).

Claim    P[i] = counts[i] exp(rate scores[i]) / sum over j of counts[j] exp(rate scores[j]).
Because  i is the number of cumulative shares at or below a uniform U. Floats with a proven error
         decide unless U is within that error of a share; then balls of all weights decide.
Test     tests/core/test_exact_sampling_choice.py

It takes one pass over all weights and one binary search, whichever index is chosen.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
from flint import arb
from numpy.typing import NDArray

from lapwing.core.exact import Real, ball, exp_of, precision, real
from lapwing.core.random_stream import RandomStream
from lapwing.errors import Undecided

WORD = 64
MOST_BITS = 17 * WORD
GUARD = 64

# Thresholds are kept as 64-bit integers with threshold <= p * 2^64 < threshold + 3/2. A word up to
# threshold - 1 is below p and a word from threshold + 2 on is not. `TIE_WIDTH` words are left to the
# exact comparison: threshold - 1 (as a reserve), threshold, threshold + 1.
TIE_WIDTH = 3


class LazyUniform:
    """A uniform number U in [0, 1) whose binary digits are drawn when they are needed."""

    def __init__(self, stream: RandomStream, leading_word: int | None = None) -> None:
        self._stream = stream
        self._digits = stream.word() if leading_word is None else leading_word
        self._bits = WORD

    def below(self, limit: Real) -> bool:
        """Return whether U < limit. The answer never changes when more digits are drawn."""
        while True:
            ball_of_limit = limit(self._bits + GUARD)
            with precision(self._bits + 2 * GUARD):
                scaled = ball_of_limit * (arb(2) ** self._bits)
                # A comparison with a ball is true only if it holds for every point of the ball.
                if scaled >= self._digits + 1:
                    return True
                if scaled <= self._digits:
                    return False
            if self._bits >= MOST_BITS:
                raise Undecided("a random comparison stayed open; nothing was released")
            self._digits = (self._digits << WORD) | self._stream.word()
            self._bits += WORD


def threshold(limit: Real) -> int:
    """Return a 64-bit integer with threshold <= limit * 2^64 < threshold + 3/2, for a real in [0, 1]."""
    value = limit(WORD + 2 * GUARD)
    with precision(WORD + 3 * GUARD):
        scaled = value * (arb(2) ** WORD)
        # Rounded inside the ball library: as a fraction, exp(-10^9) would have a billion digits.
        whole = scaled.lower().floor().unique_fmpz() if scaled.rad() < 0.25 else None
    if whole is None:
        raise Undecided("a real was not known precisely enough; nothing was drawn")
    return min(max(int(whole), 0), (1 << WORD) - 1)


def thresholds(limits: list[Real]) -> NDArray[np.uint64]:
    """Return the `threshold` of each real."""
    return np.array([threshold(limit) for limit in limits], dtype=np.uint64)


def ties(words: NDArray[np.uint64], limits: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which words are too close to their threshold to decide.

    At both ends of the range the subtraction overflows. That only adds ties, so it is harmless.
    """
    close: NDArray[np.bool_] = (words - limits + np.uint64(1)) < np.uint64(TIE_WIDTH)
    return close


def leading_floats(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the leading 53 bits of each word as a float in [0, 1)."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def rational(value: Fraction) -> Real:
    """Return a rational as a real."""
    return real(lambda: ball(value))


def coins(stream: RandomStream, probability: Real, size: int) -> NDArray[np.bool_]:
    """Draw `size` independent coins, each true with exactly this probability."""
    limit = thresholds([probability])
    words = stream.words(size)
    heads = words < limit
    for i in np.flatnonzero(ties(words, limit)):
        heads[i] = LazyUniform(stream, int(words[i])).below(probability)
    return heads


def coins_near(
    stream: RandomStream,
    approximate: NDArray[np.float64],
    margin: float,
    probability_of: Callable[[int], Real],
) -> NDArray[np.bool_]:
    """Draw one coin per element, true with probability exactly `probability_of(i)`.

    `approximate[i]` is within `margin` of that probability (margin >= 2^-50). It decides alone unless
    the word falls inside the margin; then the exact real decides. So floats save time and cost no
    precision. An `approximate[i]` that is NaN never decides.
    """
    words = stream.words(len(approximate))
    # The leading bits and the subtraction are off by less than 2^-51 together; the margin is far wider.
    distance = leading_floats(words) - approximate
    heads: NDArray[np.bool_] = distance < 0
    for i in np.flatnonzero(~(np.abs(distance) > margin + 2.0**-50)):  # so NaN decides nothing
        heads[i] = LazyUniform(stream, int(words[i])).below(probability_of(int(i)))
    return heads


def fill_by_rejection(
    out: NDArray[np.int64] | NDArray[np.float64],
    accepted: Callable[[int], NDArray[np.int64]],
    candidates_for: Callable[[int], int],
) -> None:
    """Overwrite `out` with accepted draws.

    `accepted(n)` draws n candidates and returns those that it keeps. `candidates_for(k)` is the number
    of candidates to try when k draws are missing.
    """
    filled = 0
    while filled < len(out):
        missing = len(out) - filled
        kept = accepted(candidates_for(missing))[:missing]
        out[filled : filled + len(kept)] = kept
        filled += len(kept)


LARGEST_EXPONENT = 700.0
RELATIVE_ERROR = 2.0**-47
_STEPS = 1024
_COARSE_BITS = 14  # 16 in steps of 1/1024
_PER_COARSE = 1 << _COARSE_BITS
# A rate beyond this makes every coin false at the first step. The bound keeps products inside floats.
_LARGEST_RATE = Fraction(10**280)


@cache
def _tables() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return exp(-16 a) and exp(-i / 1024), each within a unit in the last place."""
    with precision(192):
        coarse = _powers(ball(-16).exp(), 45)
        fine = _powers(ball(Fraction(-1, _STEPS)).exp(), _PER_COARSE)
    return coarse, fine


def _powers(base: arb, count: int) -> NDArray[np.float64]:
    """Return base^0, base^1, ...: `count` products lose about `count` units in the 192nd bit, no more."""
    powers, power = np.empty(count), arb(1)
    for i in range(count):
        assert power.rel_accuracy_bits() > 128
        powers[i] = float(power)
        power *= base
    return powers


def exp_neg(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return exp(-x) for x >= 0, with a relative error of at most 2^-47, and 0 for x above 700.

    Args:
        x: the exponents, none below 0.

    Returns:
        exp(-x), element by element.

    Example:
        >>> import numpy as np
        >>> from lapwing.noise import exp_neg
        >>> exp_neg(np.array([0.0, 1000.0]))
        array([1., 0.])
    """
    coarse, fine = _tables()
    capped = np.minimum(x, LARGEST_EXPONENT)
    nearest = np.rint(capped * _STEPS)
    r = capped - nearest * (1.0 / _STEPS)
    index = nearest.astype(np.intp)
    result: NDArray[np.float64] = fine.take(index & (_PER_COARSE - 1))
    result *= coarse.take(index >> _COARSE_BITS)
    result *= 1.0 - r * (1.0 - r * (0.5 - r * (1.0 / 6.0)))
    result[x > LARGEST_EXPONENT] = 0.0
    return result


def float_error(largest_x: float) -> float:
    """Return the relative error of exp_neg(x~), where x~ is x after at most four float roundings."""
    return RELATIVE_ERROR + largest_x * 2.0**-50


def float_product(whole: NDArray[np.int64], rate: Fraction) -> NDArray[np.float64]:
    """Return whole * rate in floats, with three roundings."""
    return whole.astype(np.float64) * float(min(rate, _LARGEST_RATE))


def bernoulli_exp(stream: RandomStream, numerators: NDArray[np.int64], rate: Fraction) -> NDArray[np.bool_]:
    """Draw coins that are true with probability exactly exp(-numerators * rate), numerators >= 0."""
    approximate = exp_neg(float_product(numerators, rate))
    error = float_error(LARGEST_EXPONENT)
    return coins_near(stream, approximate, error, lambda i: exp_of(-int(numerators[i]) * rate))


GUIDE_BITS = 16
BUCKETS = 1 << GUIDE_BITS
REST_BITS = 64 - GUIDE_BITS
CUT = np.int16(-1)
MOST_SYMBOLS = 1 << 14


class Inversion:
    """A sampler of symbols 0, 1, 2, ... with the cumulative probabilities `cdf`.

    The first `listed` thresholds are tabulated. Symbols from `listed` on must have a total
    probability of at most about 2^-60, or none: they are found by trying one real after another.
    """

    def __init__(self, cdf: Callable[[int], Real], listed: int) -> None:
        assert 1 <= listed <= MOST_SYMBOLS
        self._cdf = cdf
        self._limits = thresholds([cdf(s) for s in range(listed)])
        assert bool(np.all(self._limits[1:] >= self._limits[:-1])), "a cdf does not fall"
        self._guide: tuple[NDArray[np.int16], float] | None = None

    @property
    def guide(self) -> tuple[NDArray[np.int16], float]:
        """The symbol of each bucket (or `CUT`), and the share of `CUT`: built at the first large use.

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
        # A tie reaches one word to either side of a threshold (an overflow only adds one more cut).
        for reached in (limits - one, limits, limits + one):
            guide[(reached >> shift).astype(np.intp)] = CUT
        # Symbols above the last threshold are not tabulated.
        guide[guide == len(limits)] = CUT
        return guide

    def draw(self, stream: RandomStream, size: int) -> NDArray[np.int64]:
        """Draw `size` symbols with a 64-bit word each: for small batches."""
        return self._symbols_of(stream, stream.words(size))

    def draw_guided(self, stream: RandomStream, size: int) -> NDArray[np.int16]:
        """Draw `size` symbols with the guide table: for large batches."""
        guide, share = self.guide
        leading = stream.halves(size)
        symbols = guide.take(leading)
        cut = np.flatnonzero(symbols == CUT)
        rest = stream.words(max(len(cut), padded_count(share, size)))
        words = rest >> np.uint64(GUIDE_BITS)
        words[: len(cut)] |= leading[cut].astype(np.uint64) << np.uint64(REST_BITS)
        symbols[cut] = self._symbols_of(stream, words)[: len(cut)]
        return symbols

    def _symbols_of(self, stream: RandomStream, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        limits = self._limits
        symbols = np.searchsorted(limits, words, side="right")
        last = len(limits) - 1
        undecided = (
            ties(words, limits[np.minimum(symbols, last)])
            | ties(words, limits[np.maximum(symbols - 1, 0)])
            | (symbols > last)
        )
        for i in np.flatnonzero(undecided):
            first = int(np.searchsorted(limits, np.uint64(max(int(words[i]) - 1, 0))))
            symbols[i] = _walk(stream, int(words[i]), self._cdf, first)
        return symbols


def _walk(
    stream: RandomStream, word: int, cdf: Callable[[int], Real], symbol: int, last: float = math.inf
) -> int:
    """Return the exact symbol, from `symbol` to `last`, of the uniform number that starts with `word`."""
    uniform = LazyUniform(stream, word)
    while symbol < last and not uniform.below(cdf(symbol)):
        symbol += 1
    return symbol


def padded_count(share: float, size: int) -> int:
    """Return how many of `size` draws are refined in any case: the mean plus ten standard deviations."""
    return min(size, math.ceil(size * share + 10 * math.sqrt(size * share) + 10))


class CumulativeWeights(ABC):
    """The cumulative probabilities of symbols 0, 1, 2, ... with given weights, to any precision.

    The sums are computed once for each precision.
    """

    def __init__(self) -> None:
        self._sums: dict[int, tuple[list[arb], arb]] = {}

    @abstractmethod
    def _sum_up(self, bits: int) -> tuple[list[arb], arb]:
        """Return partial sums of the weights and the total; called under a precision of `bits` bits."""

    def cdf(self, symbol: int) -> Real:
        """Return the cumulative probability of symbols 0 .. symbol."""

        def at(bits: int) -> arb:
            with precision(bits + 64):
                if bits not in self._sums:
                    self._sums[bits] = self._sum_up(bits + 64)
                sums, total = self._sums[bits]
                # Beyond the sums, the ball from the last share to 1 contains the probability.
                return sums[symbol] / total if symbol < len(sums) else (sums[-1] / total).union(arb(1))

        return at


class ExponentialChoice(CumulativeWeights):
    """A sampler of indexes with weights counts * exp(-rate * gaps), where the least gap is 0."""

    def __init__(self, gaps: NDArray[np.int64], rate: Fraction, counts: NDArray[np.int64] | None) -> None:
        super().__init__()
        self._gaps, self._rate, self._counts = gaps, rate, counts
        weights = exp_neg(float_product(gaps, rate))
        if counts is not None:
            weights *= counts
        sums = np.cumsum(weights)
        self._shares = sums / sums[-1]
        # Each weight is off by the error of its exponential; n additions and a division are rounded.
        # Weights below exp(-700) count as 0: at most n 2^63 exp(-700) < 2^-900 together.
        self._margin = 4 * (float_error(LARGEST_EXPONENT) + (len(gaps) + 4) * 2.0**-52)

    def draw(self, stream: RandomStream, size: int) -> NDArray[np.int64]:
        """Draw `size` independent indexes."""
        words = stream.words(size)
        uniform = leading_floats(words)
        low = np.searchsorted(self._shares, uniform - self._margin, side="right")
        high = np.searchsorted(self._shares, uniform + self._margin, side="right")
        for i in np.flatnonzero(low != high):
            low[i] = _walk(stream, int(words[i]), self.cdf, int(low[i]), len(self._gaps) - 1)
        return low

    def _sum_up(self, bits: int) -> tuple[list[arb], arb]:
        sums: list[arb] = []
        total, rate = arb(0), ball(self._rate)
        for i, gap in enumerate(self._gaps):
            weight = (-rate * int(gap)).exp()
            total += weight if self._counts is None else weight * int(self._counts[i])
            sums.append(total)
        return sums, total
