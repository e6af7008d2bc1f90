"""Discrete Gaussian noise at any rational sigma.

Claim    P[X = x] is proportional to exp(-x^2 / (2 sigma^2)) on the integers.
Because  small sigma: inversion over 0, 1, -1, 2, -2, ... with the exact normaliser.
         large sigma: a block of `width` integers is drawn by inversion with weight
         exp(-start^2 / (2 sigma^2)) of its innermost end, then a sign and an offset uniformly;
         x = start + offset (one more for the negative side, so that 0 occurs once) is kept with
         probability exp(-(x^2 - start^2) / (2 sigma^2)) <= 1. Kept values have the law above.
         large sigma, and many draws: `FlatGaussian`.
Test     tests/noise/test_gaussian.py, tests/noise/test_flat.py

The small-sigma sampler does the same work for every value. The large-sigma sampler rejects about
3 % of its candidates; how many is independent of the values that are kept, so time tells nothing of
them.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from flint import arb
from numpy.typing import NDArray

from lapwing.errors import NoEntropy
from lapwing.exact import Real, ball, exp_of, precision
from lapwing.noise.decay import exp_neg, float_error
from lapwing.noise.flat import LOT, FlatGaussian, Lookup, Whole
from lapwing.noise.inversion import Inversion
from lapwing.noise.refine import coins_near
from lapwing.noise.stream import Stream

SMALL = 2048
AT_ONCE = 1 << 20
FLAT_AFTER = 1 << 22
DIRECT_BELOW = 16
BLOCKS_PER_SIGMA = 12
LARGEST_SIGMA = 1 << 48
# exp(-REACH^2 / 2) < 2^-66
REACH = Fraction(96, 10)


class Weights:
    """Partial sums of exp(-(step k)^2 / 2 sigma^2) over k, and their limit, to any precision.

    `both_sides` counts k = 1, 2, ... twice, as 1, -1, 2, -2, ...
    """

    def __init__(self, sigma: Fraction, step: int, *, both_sides: bool) -> None:
        self._rate = Fraction(step * step) / (2 * sigma * sigma)
        self._both = both_sides
        self._sums: dict[int, tuple[list[arb], arb]] = {}

    def cdf(self, symbol: int) -> Real:
        """The cumulative probability of the first symbol + 1 entries."""

        def at(bits: int) -> arb:
            sums, total = self._at(bits)
            with precision(bits + 64):
                if symbol < len(sums):
                    return sums[symbol] / total
                # Everything from here on is within the error of the last sum.
                return (sums[-1] / total).union(arb(1))

        return at

    def _at(self, bits: int) -> tuple[list[arb], arb]:
        if bits not in self._sums:
            self._sums[bits] = self._sum_up(bits)
        return self._sums[bits]

    def _sum_up(self, bits: int) -> tuple[list[arb], arb]:
        with precision(bits + 64):
            rate = ball(self._rate)
            last = math.isqrt(int((bits + 64) / self._rate) + 1) + 2
            # weight(k + 1) = weight(k) * ratio(k), ratio(k + 1) = ratio(k) * exp(-2 rate)
            ratio, fall = (-rate).exp(), (-2 * rate).exp()
            weight = total = arb(1)
            sums = [total]
            for _ in range(last):
                weight *= ratio
                ratio *= fall
                for _ in range(1 + self._both):
                    total += weight
                    sums.append(total)
            # What was left out is a series that falls faster than a geometric one of this ratio.
            rest = (1 + self._both) * weight * ratio / (1 - ratio)
            return sums, total + arb(0).union(rest)


class Sampler(ABC):
    """Draws for one sigma."""

    @abstractmethod
    def fill(self, stream: Stream, out: Whole) -> None:
        """Overwrite `out` with draws."""

    def fill_all(self, stream: Stream, rooms: Iterable[Whole], _size: int) -> Iterator[None]:
        """Overwrite rooms of up to `LOT` numbers, `size` in all, one at each step."""
        for room in rooms:
            self.fill(stream, room)
            yield

    def lookup(self, _stream: Stream, _size: int) -> Lookup | None:
        """Draws to be looked up elsewhere, where this sampler has such."""
        return None


class DirectGaussian(Sampler):
    """Inversion over 0, 1, -1, 2, -2, ...: for small sigma."""

    def __init__(self, sigma: Fraction) -> None:
        listed = 2 * math.ceil(REACH * sigma) + 1
        self._table = Inversion(Weights(sigma, 1, both_sides=True).cdf, listed)

    def fill(self, stream: Stream, out: Whole) -> None:
        if len(out) <= SMALL:
            symbols = self._table.draw(stream, len(out))
        else:
            symbols = self._table.draw_guided(stream, len(out)).astype(np.int64)
        # 0, 1, 2, 3, 4 -> 0, 1, -1, 2, -2
        out[:] = ((symbols + 1) >> 1) * ((symbols & 1) * 2 - 1)


class BlockGaussian(Sampler):
    """Blocks by inversion, places by rejection: for large sigma."""

    def __init__(self, sigma: Fraction) -> None:
        self._sigma = sigma
        self._bits = int(sigma / BLOCKS_PER_SIGMA).bit_length() - 1
        width = 1 << self._bits
        listed = math.ceil(REACH * sigma / width) + 1
        self._table = Inversion(Weights(sigma, width, both_sides=False).cdf, listed)
        self._rate = 1 / (2 * sigma * sigma)

    def fill(self, stream: Stream, out: Whole) -> None:
        filled = 0
        while filled < len(out):
            missing = len(out) - filled
            kept = self._candidates(stream, missing + missing // 16 + 8)[:missing]
            out[filled : filled + len(kept)] = kept
            filled += len(kept)

    def _candidates(self, stream: Stream, size: int) -> NDArray[np.int64]:
        if size <= SMALL:
            blocks = self._table.draw(stream, size)
        else:
            blocks = self._table.draw_guided(stream, size).astype(np.int64)
        places = stream.words(size)
        negative = (places >> np.uint64(63)).astype(np.int64)
        start = blocks << self._bits
        inward = (places & np.uint64((1 << self._bits) - 1)).astype(np.int64) + negative
        # x^2 - start^2 = inward * (2 start + inward); both factors are below 2^53, so exact floats.
        x = inward.astype(np.float64) * (2 * start + inward).astype(np.float64)
        x *= float(self._rate)

        def kept_with(i: int) -> Real:
            d, s = int(inward[i]), int(start[i])
            return exp_of(-d * (2 * s + d) * self._rate)

        keep = coins_near(stream, exp_neg(x), float_error(16.0), kept_with)
        values = start + inward
        values ^= -negative
        values += negative
        return values[keep]


class LargeGaussian(Sampler):
    """Blocks, until so many draws were asked for that the tables of `FlatGaussian` pay for themselves."""

    def __init__(self, sigma: Fraction) -> None:
        self._sigma, self._asked = sigma, 0
        self._blocks = BlockGaussian(sigma)

    @cached_property
    def _flat(self) -> FlatGaussian:
        return FlatGaussian(self._sigma)

    def _uses_tables(self, size: int) -> bool:
        """Not for a few draws: how long they take would tell more of each."""
        return size > SMALL and self._asked >= FLAT_AFTER

    def fill(self, stream: Stream, out: Whole) -> None:
        self._blocks.fill(stream, out)

    def fill_all(self, stream: Stream, rooms: Iterable[Whole], size: int) -> Iterator[None]:
        if self._uses_tables(size):
            return self._flat.fill_all(stream, rooms, size)
        self._asked += size
        return super().fill_all(stream, rooms, size)

    def lookup(self, stream: Stream, size: int) -> Lookup | None:
        return self._flat.lookup(stream, size) if self._uses_tables(size) else None


@lru_cache(maxsize=32)
def _sampler(sigma: Fraction) -> Sampler:
    return DirectGaussian(sigma) if sigma < DIRECT_BELOW else LargeGaussian(sigma)


def discrete_gaussian(stream: Stream, sigma: Fraction, size: int) -> NDArray[np.int64]:
    """`size` draws; memory beyond the result does not grow with `size`."""
    result, sampler = np.empty(size, dtype=np.int64), _sampler(sigma)
    for start in range(0, size, AT_ONCE):
        part = result[start : start + AT_ONCE]
        rooms = (part[begin : begin + LOT] for begin in range(0, len(part), LOT))
        for _ in sampler.fill_all(stream, rooms, len(part)):
            pass
    return result


def lookup(stream: Stream, sigma: Fraction, size: int) -> Lookup | None:
    """`size` draws to be looked up elsewhere; None where there is no table, or not yet: ask for `lots`."""
    return _sampler(sigma).lookup(stream, size)


def lots(stream: Stream, sigma: Fraction, size: int) -> Iterator[NDArray[np.float64]]:
    """`size` draws as floats, `LOT` at a time, each lot in the place of the last.

    Floats hold them exactly: 2^53 is 32 times the largest sigma. Some are drawn ahead of their lot, so a
    forked child must not go on: both would have them.
    """
    room, sampler, process = np.empty(min(size, LOT)), _sampler(sigma), os.getpid()
    for start in range(0, size, AT_ONCE):
        count = min(size - start, AT_ONCE)
        rooms = [room[: count - begin] for begin in range(0, count, LOT)]
        for filled, _ in zip(rooms, sampler.fill_all(stream, rooms, count), strict=True):
            if os.getpid() != process:
                raise NoEntropy("these draws were begun by another process: begin anew")
            yield filled
