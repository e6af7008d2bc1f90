"""Many discrete Gaussian draws at once: a flat part by one table lookup each, the rest exactly.

Claim    P[X = x] = p(x), proportional to exp(-x^2 / (2 sigma^2)) on the integers.
Because  the integers are cut into blocks of `width`. A block has a whole number of the table's 2^16
         slots, so many that each of its integers gets the same q = slots / (2^16 width) <= p(x). A slot
         is drawn uniformly: one that belongs to a block gives a uniform integer of it, so each x has
         probability q so far; the slots that belong to no block have probability 1 - sum of q, which is
         the sum of p(x) - q, and give x with probability proportional to p(x) - q. Together: p(x).
         How many slots a block has is a choice, not a probability: nothing rests on how it is rounded,
         except q <= p(x), which balls decide.
         The rest: a block is drawn by inversion with weight p(inner) - q, of its end next to 0, then an
         integer uniformly, kept with probability (p(x) - q) / (p(inner) - q) <= 1.
Test     tests/noise/test_flat.py

About one draw in a hundred comes from the rest. The same padded number of those is drawn each time,
needed or not, and rejections are independent of the values that are kept; only copying the needed ones
into place takes longer when there are more of them.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

from lapwing.exact import Real, ball, lower, precision
from lapwing.noise.decay import exp_neg, float_error
from lapwing.noise.inversion import Inversion, padded_count
from lapwing.noise.refine import coins_near
from lapwing.noise.stream import Stream

CHUNK = 1 << 15
SLOTS = 1 << 16
BLOCKS_PER_SIGMA = 64
# exp(-REACH^2 / 2) < 2^-79, of a rest that is above 2^-12
REACH = Fraction(105, 10)
# A block keeps at least this share of its weight for the rest, so that floats can tell its coins.
LEAST_REST = Fraction(1, 2**20)
# Whole numbers, also as floats: below 2^53 these are exact.
Whole = NDArray[np.int64] | NDArray[np.float64]


class Blocks:
    """Blocks 0, 1, 2, ...: in turn one on the positive side, from 0 on, and one on the negative, from -1.

    Weights are relative to that of 0. What takes `bits` is called under that precision.
    """

    def __init__(self, sigma: Fraction) -> None:
        self.bits = max(int(sigma / BLOCKS_PER_SIGMA).bit_length() - 1, 0)
        self.width = 1 << self.bits
        self.listed = 2 * math.ceil(REACH * sigma / self.width) + 1
        self.rate = 1 / (2 * sigma * sigma)
        self._sigma = sigma
        self._constants: dict[int, tuple[arb, arb]] = {}
        self._sums: dict[int, tuple[list[arb], arb]] = {}
        self.slots = self._most_slots()

    def inner(self, block: int) -> int:
        """The distance from 0 of the block's nearest integer."""
        return block // 2 * self.width + block % 2

    def weight(self, distance: int, bits: int) -> arb:
        """exp(-distance^2 / (2 sigma^2))."""
        return (self._constants_at(bits)[0] * (distance * distance)).exp()

    def flat(self, block: int, bits: int) -> arb:
        """What each integer of the block has in the table, in the unit of weights."""
        return self._constants_at(bits)[1] * (self.slots[block] if block < self.listed else 0)

    def height(self, block: int, bits: int) -> arb:
        """What the nearest integer of the block lacks: the block's weight in the rest."""
        return self.weight(self.inner(block), bits) - self.flat(block, bits)

    def _constants_at(self, bits: int) -> tuple[arb, arb]:
        """-1 / (2 sigma^2), and what a slot gives to each integer of its block.

        By Poisson's summation all weights are together sigma sqrt(2 pi) (1 + 2 e^-a + 2 e^-4a + ...),
        a = 2 pi^2 sigma^2. From sigma = 16 on e^-a < 2^-7000, and what follows the 1 is less than 3 e^-a.
        """
        if bits not in self._constants:
            sigma = ball(self._sigma)
            beyond = 3 * (-2 * (arb.pi() * sigma) ** 2).exp()
            total = sigma * (2 * arb.pi()).sqrt() * (1 + arb(0).union(beyond))
            self._constants[bits] = ball(-self.rate), total / (SLOTS * self.width)
        return self._constants[bits]

    def _most_slots(self) -> list[int]:
        found, bits = [], 128
        with precision(bits):
            unit, share = self._constants_at(bits)[1], 1 - ball(LEAST_REST)
            for block in range(self.listed):
                inner = self.inner(block)
                outer, most = self.weight(inner + self.width - 1, bits), self.weight(inner, bits) * share
                found.append(math.floor(min(lower(outer / unit), lower(most / unit))))
        return found

    def cdf(self, block: int) -> Real:
        """The cumulative probability of the first block + 1 blocks in the rest's proposals."""

        def at(bits: int) -> arb:
            with precision(bits + 64):
                if bits not in self._sums:
                    self._sums[bits] = self._sum_up(bits + 64)
                sums, total = self._sums[bits]
                if block < len(sums):
                    return sums[block] / total
                # Everything from here on is within the error of the last sum.
                return (sums[-1] / total).union(arb(1))

        return at

    def _sum_up(self, bits: int) -> tuple[list[arb], arb]:
        last = 2 * (math.isqrt(int(bits / self.rate)) // self.width + 2)
        sum_, sums = arb(0), []
        for block in range(last):
            sum_ += self.height(block, bits)
            sums.append(sum_)
        # What was left out, on either side, falls faster than a geometric series of the ratio of the first
        # two blocks that were.
        first, second = (self.weight(self.inner(block), bits) for block in (last, last + 2))
        return sums, sum_ + arb(0).union(2 * first / (1 - second / first))


class FlatGaussian:
    """For sigma from 16 on, and thousands of draws at once."""

    def __init__(self, sigma: Fraction) -> None:
        assert sigma >= 16  # `Blocks` counts on it
        self._blocks = Blocks(sigma)
        self._table = Inversion(self._blocks.cdf, self._blocks.listed)

    @cached_property
    def _starts(self) -> NDArray[np.int32] | NDArray[np.int64]:
        """The first integer of each slot's block; in slots of the rest, the smallest number there is."""
        blocks = self._blocks
        # A block with a slot is within 6 sigma, and sigma below 128 widths.
        kind = np.int32 if blocks.bits <= 21 else np.int64
        numbers = np.arange(blocks.listed)
        first = np.where(numbers % 2, -(numbers // 2 + 1), numbers // 2) << blocks.bits
        filled = np.repeat(first.astype(kind), blocks.slots)
        rest = np.full(SLOTS - len(filled), np.iinfo(kind).min, dtype=kind)
        return np.concatenate([filled, rest])

    @cached_property
    def rest_share(self) -> Fraction:
        """The probability of the rest."""
        return Fraction(SLOTS - sum(self._blocks.slots), SLOTS)

    def fill(self, stream: Stream, out: Whole) -> None:
        """Overwrite `out` with draws."""
        drawn = self._rest(stream, padded_count(float(self.rest_share), len(out)))
        for start in range(0, len(out), CHUNK):
            part = out[start : start + CHUNK]
            lacking = self._fill_flat(stream, part)
            if len(lacking) > len(drawn):  # beyond ten deviations
                drawn = np.append(drawn, self._rest(stream, len(lacking)))
            part[lacking] = drawn[: len(lacking)]
            drawn = drawn[len(lacking) :]

    def _fill_flat(self, stream: Stream, out: Whole) -> NDArray[np.intp]:
        """Draw by the table, and say where it has nothing."""
        kind = self._starts.dtype
        start = self._starts.take(stream.halves(len(out)), mode="wrap")
        lacking = np.flatnonzero(start == np.iinfo(kind).min)
        words: NDArray[Any] = np.frombuffer(stream.take(kind.itemsize * len(out)), dtype=kind)
        start += words & kind.type(self._blocks.width - 1)
        out[:] = start
        return lacking

    def _rest(self, stream: Stream, size: int) -> NDArray[np.int64]:
        found = np.empty(size, dtype=np.int64)
        filled = 0
        while filled < size:
            missing = size - filled
            kept = self._candidates(stream, missing + missing // 2 + 8)[:missing]
            found[filled : filled + len(kept)] = kept
            filled += len(kept)
        return found

    @cached_property
    def _steepness(self) -> NDArray[np.float64]:
        """weight(inner) / height of each listed block, within a relative 2^-50."""
        blocks, bits = self._blocks, 128
        with precision(bits):
            found = [
                float(blocks.weight(blocks.inner(block), bits) / blocks.height(block, bits))
                for block in range(blocks.listed)
            ]
        return np.array(found)

    def _candidates(self, stream: Stream, size: int) -> NDArray[np.int64]:
        """With p(x) = p(inner) exp(-y), the coin is 1 - p(inner) / (p(inner) - q) * (1 - exp(-y))."""
        blocks = self._blocks
        block = self._table.draw_guided(stream, size).astype(np.int64)
        negative = block & 1
        inner = ((block >> 1) << blocks.bits) + negative
        inward = (stream.words(size) & np.uint64(blocks.width - 1)).astype(np.int64)
        # x^2 - inner^2 = inward * (2 inner + inward); both factors are below 2^53, so exact floats.
        y = inward.astype(np.float64) * (2 * inner + inward).astype(np.float64)
        y *= float(blocks.rate)
        steepness = self._steepness.take(block, mode="clip")  # beyond the list q = 0: see below

        def kept_with(i: int) -> Real:
            return self._kept_with(int(block[i]), int(inward[i]))

        near = 1.0 - steepness * (1.0 - exp_neg(y))
        near[block >= blocks.listed] = np.nan  # so that the exact real decides
        keep = coins_near(stream, near, self._margin, kept_with)
        values = inner + inward
        values ^= -negative
        values += negative
        return values[keep]

    @cached_property
    def _margin(self) -> float:
        """The error of the floats `near`: that of 1 - exp(-y), and three roundings, times the steepness."""
        return 2 * float(self._steepness.max()) * (float_error(16.0) + 2.0**-50)

    def _kept_with(self, block: int, inward: int) -> Real:
        blocks = self._blocks

        def at(bits: int) -> arb:
            fine = bits + 64
            with precision(fine):
                here = blocks.weight(blocks.inner(block) + inward, fine) - blocks.flat(block, fine)
                return here / blocks.height(block, fine)

        return at
