"""Geometric, discrete Laplace and Polya draws at any rational scale t, with q = exp(-1/t).

**Geometric and discrete Laplace.**

Claim    geometric: P[G = g] = (1 - q) q^g for g >= 0.
         discrete Laplace: P[X = x] = (1 - q) / (1 + q) * q^|x|.
Because  q^g is the product of q^(2^j) over the set binary digits j of g, so the digits of G are
         independent: digit j is set with probability 1 / (1 + exp(2^j / t)). Let a coin C be set
         with probability q / (1 + q). Then X = G if C is clear, -1 - G if it is set, has the law
         above: P[C = 0] P[G = x] and P[C = 1] P[G = -1 - x] are both (1 - q) q^|x| / (1 + q).
Test     tests/core/test_laplace_sampler.py

Nothing is rejected and no loop has a length that depends on the value: every draw takes the same
digits, coin included. Small batches compare one whole 64-bit word per digit. Large batches draw
eight digits at once from a table (`Inversion`), which costs one lookup per eight digits.

**Polya: one share of discrete Laplace noise**, for parties who add up their shares.

Claim    a Polya share P(r, t) has P[k] = binomial(k + r - 1, k) (1 - q)^r q^k, q = exp(-1/t);
         shares with r_1 + ... + r_m = 1 add up to a geometric. So the difference of two shares at
         r = 1/m is one party's part of discrete Laplace noise at scale t.
Because  P(r, t) is the sum of N logarithmic variables, P[L = k] = q^k / (k lambda), where N is
         Poisson with mean r lambda and lambda = -ln(1 - q): the generating functions agree. N is
         drawn by inversion. L is drawn from doubling blocks [2^b, 2^(b+1)): block b with weight
         q^(2^b), a place k in it uniformly, kept with probability (2^b / k) q^(k - 2^b). Kept values
         have the law above.
Test     tests/core/test_laplace_sampler_polya.py

The number of logarithmic variables in a share is random, and the running time shows it. So shares are
drawn in batches only.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from flint import arb
from numpy.typing import NDArray

from lapwing.core.exact import Real, ball, exp_of, real
from lapwing.core.exact_sampling import (
    CumulativeWeights,
    Inversion,
    LazyUniform,
    coins_near,
    exp_neg,
    fill_by_rejection,
    float_error,
    float_product,
    thresholds,
    ties,
)
from lapwing.core.random_stream import RandomStream

CHUNK = 1 << 15
SMALL = 2048
WORTH_TABLES = 1 << 15
GROUP = 8
# exp(-45) < 2^-64: digits beyond this are set with less than the probability of one word.
NEGLIGIBLE = 45
LARGEST_SCALE = 1 << 48


def _digit(t: Fraction, j: int) -> Real:
    """Return the probability that digit j of a geometric is set: 1 / (1 + exp(2^j / t))."""

    def probability() -> arb:
        weight = ball(-(1 << j) / t).exp()  # at most 1, while exp(2^j / t) may overflow
        return weight / (1 + weight)

    return real(probability)


def _group_cdf(t: Fraction, low: int, width: int | None, coin: bool) -> Callable[[int], Real]:
    """Return the law of digits low .. low + width - 1 (of all digits from `low` on if width is None).

    With `coin`, symbols are 2 * digits + C for the sign coin C; without, the digits themselves.
    """
    step = (1 << low) / t  # a digit value of 1 weighs exp(-step)

    def cdf(symbol: int) -> Real:
        digits, tails = (symbol >> 1, symbol & 1) if coin else (symbol, 1)

        def probability() -> arb:
            # expm1 keeps its relative precision where 1 - q would cancel.
            fall = ball(-step)
            total = arb(1) if width is None else -(fall * (1 << width)).expm1()
            through = -(fall * (digits + 1)).expm1()
            if tails:
                return through / total
            before = -(fall * digits).expm1()
            clear = 1 / (1 + ball(-1 / t).exp())
            return (before + (through - before) * clear) / total

        return real(probability, guard=64)

    return cdf


class DigitSampler:
    """A sampler for one scale: discrete Laplace if `signed` (with the sign coin), geometric if not."""

    def __init__(self, scale: Fraction, *, signed: bool) -> None:
        assert 0 < scale <= LARGEST_SCALE
        self._t, self._signed = scale, signed
        # The least count of digits such that reaching beyond them is negligible.
        self._count = max((int(NEGLIGIBLE * scale)).bit_length(), 1)
        self._reals = [_digit(scale, j) for j in range(self._count)]
        self._reals.append(exp_of(-(1 << self._count) / scale))  # a geometric reaches 2^count
        if signed:
            self._reals.append(_digit(scale, 0))  # q / (1 + q) is the law of digit 0 as well
        self._limits = thresholds(self._reals)
        self._groups: list[tuple[Inversion, int]] | None = None

    def draw(self, stream: RandomStream, size: int) -> NDArray[np.int64]:
        """Draw `size` numbers; memory beyond the result does not grow with `size`."""
        if size <= SMALL:
            return self._by_words(stream, size)
        result = np.empty(size, dtype=np.int64)
        if self._groups is None and size <= WORTH_TABLES:
            for start in range(0, size, SMALL):
                part = result[start : start + SMALL]
                part[:] = self._by_words(stream, len(part))
        else:
            for start in range(0, size, CHUNK):
                self._by_groups(stream, result[start : start + CHUNK])
        return result

    def _by_words(self, stream: RandomStream, size: int) -> NDArray[np.int64]:
        words = stream.words(size * len(self._limits)).reshape(size, len(self._limits))
        digits = words < self._limits
        for i, j in np.argwhere(ties(words, self._limits)):
            digits[i, j] = LazyUniform(stream, int(words[i, j])).below(self._reals[j])
        values = digits[:, : self._count] @ (np.int64(1) << np.arange(self._count))
        for i in np.flatnonzero(digits[:, self._count]):
            values[i] = self._far(stream)
        return np.where(digits[:, -1], ~values, values) if self._signed else values

    def _far(self, stream: RandomStream) -> int:
        """Draw a value that reaches 2^count: a geometric has no memory, so the excess is a fresh one."""
        return (1 << self._count) + int(DigitSampler(self._t, signed=False)._by_words(stream, 1)[0])

    def _by_groups(self, stream: RandomStream, out: NDArray[np.int64]) -> None:
        groups = self._tables()
        top, shift = groups[-1]
        np.left_shift(top.draw_guided(stream, len(out)), shift, out=out, dtype=np.int64)
        for table, shift in groups[:-1]:
            part = table.draw_guided(stream, len(out)).astype(np.int64)
            out |= np.left_shift(part, shift, out=part)
        if self._signed:
            sign = -(out & 1)
            out >>= 1
            out ^= sign

    def _tables(self) -> list[tuple[Inversion, int]]:
        """Return tables of up to eight bits and the shift of each; the lowest bit is the coin, if any."""
        if self._groups is None:
            bits = self._count + self._signed
            parts = -(-bits // GROUP)
            ends = [bits * (part + 1) // parts for part in range(parts)]
            groups = []
            for at, end in zip([0, *ends], ends, strict=False):
                coin = self._signed and at == 0
                low = at - (self._signed and not coin)
                digits = None if end == bits else end - at - coin
                cdf = _group_cdf(self._t, low, digits, coin)
                groups.append((Inversion(cdf, 1 << (end - at)), at))
            self._groups = groups
        return self._groups


@lru_cache(maxsize=32)
def digit_sampler(scale: Fraction, *, signed: bool) -> DigitSampler:
    """Return the cached sampler of a scale (a large scale's tables take some milliseconds to build)."""
    return DigitSampler(scale, signed=signed)


SHARE_CHUNK = 1 << 14
_LISTED_NUMBERS = 120


def _poisson_cdf(r: Fraction, t: Fraction, symbol: int) -> Real:
    def probability() -> arb:
        mean = -ball(r) * (-ball(-1 / t).expm1()).log()
        term = total = (-mean).exp()
        for k in range(1, symbol + 1):
            term = term * mean / k
            total += term
        return total

    return real(probability, guard=64)


class _BlockWeights(CumulativeWeights):
    """The weights of the blocks; blocks from `listed` on weigh less than 2^-64 together.

    They are relative to block 0, so that a tiny t does not turn all of them into 0.
    """

    def __init__(self, t: Fraction, listed: int) -> None:
        super().__init__()
        self._t, self._listed = t, listed

    def _sum_up(self, bits: int) -> tuple[list[arb], arb]:
        sums: list[arb] = []
        total, weight, smallest = arb(0), arb(1), arb(2) ** -bits
        # Past t the weights fall faster than halving: the rest is below the last one.
        while len(sums) < self._listed or not weight < smallest:
            weight = ball((1 - (1 << len(sums))) / self._t).exp()
            total += weight
            sums.append(total)
        return sums, total + arb(0).union(weight)


class PolyaSampler:
    """A sampler of Polya shares P(r, t)."""

    def __init__(self, r: Fraction, t: Fraction) -> None:
        self._t = t
        blocks = int(NEGLIGIBLE * t).bit_length() + 1
        self._blocks = Inversion(_BlockWeights(t, blocks).cdf, blocks)
        # A Poisson mean r lambda <= ln(t + 1) + 1 leaves far less than 2^-64 beyond this many.
        self._number = Inversion(lambda s: _poisson_cdf(r, t, s), _LISTED_NUMBERS)

    def draw(self, stream: RandomStream, size: int) -> NDArray[np.int64]:
        """Draw `size` shares."""
        result = np.empty(size, dtype=np.int64)
        for start in range(0, size, SHARE_CHUNK):
            part = result[start : start + SHARE_CHUNK]
            numbers = self._number.draw(stream, len(part))
            sums = np.concatenate([[0], np.cumsum(self._logarithmic(stream, int(numbers.sum())))])
            ends = np.cumsum(numbers)
            part[:] = sums[ends] - sums[ends - numbers]
        return result

    def _logarithmic(self, stream: RandomStream, size: int) -> NDArray[np.int64]:
        result = np.empty(size, dtype=np.int64)
        fill_by_rejection(result, lambda n: self._accepted(stream, n), lambda missing: 2 * missing + 8)
        return result

    def _accepted(self, stream: RandomStream, size: int) -> NDArray[np.int64]:
        """Draw `size` candidates for logarithmic variables, and return those that are kept."""
        start = np.int64(1) << self._blocks.draw(stream, size)
        excess = (stream.words(size) & (start - 1).astype(np.uint64)).astype(np.int64)
        place = start + excess
        approximate = exp_neg(float_product(excess, 1 / self._t))
        approximate *= start.astype(np.float64) / place.astype(np.float64)

        def kept_with(i: int) -> Real:
            return real(lambda: ball(-int(excess[i]) / self._t).exp() * int(start[i]) / int(place[i]))

        return place[coins_near(stream, approximate, float_error(700.0), kept_with)]


@lru_cache(maxsize=32)
def polya_sampler(r: Fraction, t: Fraction) -> PolyaSampler:
    """Return the cached sampler of (r, t)."""
    return PolyaSampler(r, t)
