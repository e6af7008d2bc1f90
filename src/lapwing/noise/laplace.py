"""Geometric and discrete Laplace noise at any rational scale t, with q = exp(-1/t).

Claim    geometric: P[G = g] = (1 - q) q^g for g >= 0.
         discrete Laplace: P[X = x] = (1 - q) / (1 + q) * q^|x|.
Because  q^g is the product of q^(2^j) over the set binary digits j of g, so the digits of G are
         independent: digit j is set with probability 1 / (1 + exp(2^j / t)). And with a coin C that
         is set with probability q / (1 + q), X = G if C is clear, -1 - G if it is set, has the law
         above: P[C = 0] P[G = x] and P[C = 1] P[G = -1 - x] are both (1 - q) q^|x| / (1 + q).
Test     tests/noise/test_laplace.py

Nothing is rejected and no loop has a length that depends on the value: every draw takes the same
digits, coin included. Small batches compare one whole 64-bit word per digit. Large batches draw
eight digits at once from a table (`Inversion`), which costs one lookup per eight digits.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from flint import arb
from numpy.typing import NDArray

from lapwing.exact import Real, ball, precision
from lapwing.noise.inversion import Inversion
from lapwing.noise.refine import Uniform, thresholds, ties
from lapwing.noise.stream import Stream

CHUNK = 1 << 15
SMALL = 2048
WORTH_TABLES = 1 << 15
GROUP = 8
# exp(-45) < 2^-64: digits beyond this are set with less than the probability of one word.
NEGLIGIBLE = 45
LARGEST_SCALE = 1 << 48


def _digit(t: Fraction, j: int) -> Real:
    """The probability that digit j of a geometric is set: 1 / (1 + exp(2^j / t))."""

    def at(bits: int) -> arb:
        with precision(bits):
            weight = ball(-(1 << j) / t).exp()  # at most 1, while exp(2^j / t) may overflow
            return weight / (1 + weight)

    return at


def _beyond(t: Fraction, j: int) -> Real:
    """The probability that a geometric reaches 2^j: exp(-2^j / t)."""

    def at(bits: int) -> arb:
        with precision(bits):
            return ball(-(1 << j) / t).exp()

    return at


def _group_cdf(t: Fraction, low: int, width: int | None, coin: bool) -> Callable[[int], Real]:
    """The law of digits low .. low + width - 1 (all digits from low on, for None).

    With `coin`, symbols are 2 * digits + C for the sign coin C; without, the digits themselves.
    """
    step = (1 << low) / t  # a digit value of 1 weighs exp(-step)

    def cdf(symbol: int) -> Real:
        def at(bits: int) -> arb:
            digits, tails = (symbol >> 1, symbol & 1) if coin else (symbol, 1)
            with precision(bits + 64):
                # expm1 keeps its relative precision where 1 - q would cancel.
                fall = ball(-step)
                total = arb(1) if width is None else -(fall * (1 << width)).expm1()
                through = -(fall * (digits + 1)).expm1()
                if tails:
                    return through / total
                before = -(fall * digits).expm1()
                clear = 1 / (1 + ball(-1 / t).exp())
                return (before + (through - before) * clear) / total

        return at

    return cdf


class Digits:
    """One scale's samplers: `geometric` without the sign coin, `laplace` with it."""

    def __init__(self, scale: Fraction, *, signed: bool) -> None:
        assert 0 < scale <= LARGEST_SCALE
        self._t = scale
        self._signed = signed
        # The least count of digits such that reaching beyond them is negligible.
        self._count = max((int(NEGLIGIBLE * scale)).bit_length(), 1)
        self._reals = [_digit(scale, j) for j in range(self._count)]
        self._reals.append(_beyond(scale, self._count))
        if signed:
            self._reals.append(_digit(scale, 0))  # q / (1 + q) is the law of digit 0 as well
        self._limits = thresholds(self._reals)
        self._groups: list[tuple[Inversion, int]] | None = None

    def draw(self, stream: Stream, size: int) -> NDArray[np.int64]:
        """`size` draws; memory beyond the result does not grow with `size`."""
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

    def _by_words(self, stream: Stream, size: int) -> NDArray[np.int64]:
        words = stream.words(size * len(self._limits)).reshape(size, len(self._limits))
        digits = words < self._limits
        for i, j in np.argwhere(ties(words, self._limits)):
            digits[i, j] = Uniform(stream, int(words[i, j])).below(self._reals[j])
        values = digits[:, : self._count] @ (np.int64(1) << np.arange(self._count))
        for i in np.flatnonzero(digits[:, self._count]):
            values[i] = self._far(stream)
        return np.where(digits[:, -1], ~values, values) if self._signed else values

    def _far(self, stream: Stream) -> int:
        """2^count was reached; a geometric has no memory, so the excess is a fresh one."""
        return (1 << self._count) + int(Digits(self._t, signed=False)._by_words(stream, 1)[0])

    def _by_groups(self, stream: Stream, out: NDArray[np.int64]) -> None:
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
        """Tables of up to eight bits and where each goes; the lowest bit is the coin, if any."""
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
def samplers(scale: Fraction, *, signed: bool) -> Digits:
    """The cached samplers of a scale (a large scale's tables take some milliseconds to build)."""
    return Digits(scale, signed=signed)
