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

Many discrete Gaussian draws at once: a flat part by two tables, one lookup each, the rest exactly.

Claim    P[X = x] = p(x), proportional to exp(-x^2 / (2 sigma^2)) on the integers.
Because  the integers are cut into blocks of `width`. A block has a whole number of a table's 2^16 slots, so
         many that each of its integers gets the same q = slots / (2^16 width) <= p(x). A slot is drawn
         uniformly: one that belongs to a block gives a uniform integer of it, so each x has probability q
         so far; the slots that belong to no block have probability 1 - sum of q, which is the sum of
         p(x) - q, and give x with probability proportional to p(x) - q. Together: p(x).
         A second table draws from p(x) - q in the same way. How many slots a block has is a choice, not a
         probability: nothing rests on how it is rounded, except that all q together are <= p(x), which
         balls decide.
         The rest, r = p minus both q: a block is drawn by inversion with weight r(inner), of its end next
         to 0, then an integer of it uniformly, kept with probability r(x) / r(inner) <= 1.
Test     tests/noise/test_flat.py

One draw in 40 to 70 comes from the second table, one in 500 to 1,000 from the rest (fewer below sigma 512).
The same padded number of those is drawn each time, needed or not, and rejections are independent of the
values that are kept; only copying the needed ones into place takes longer when there are more of them.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from flint import arb
from numpy.typing import NDArray

from lapwing.core.exact import Real, ball, exp_of, lower, precision
from lapwing.core.exact_sampling import Inversion, coins_near, exp_neg, float_error, padded_count
from lapwing.core.random_stream import RandomStream
from lapwing.errors import NoEntropy

LOT = 1 << 15  # few enough to stay in a processor's cache
SLOT_BITS = 16
SLOTS = 1 << SLOT_BITS
TABLES = 2
FLAT_BLOCKS_PER_SIGMA = 256
# exp(-REACH^2 / 2) < 2^-79, of a rest that is above 2^-19
FLAT_REACH = Fraction(105, 10)
# Each integer keeps at least this share of its weight for the rest, so that floats can tell its coins.
LEAST_REST = Fraction(1, 2**20)
# Whole numbers, also as floats: below 2^53 these are exact.
WholeArray = NDArray[np.int64] | NDArray[np.float64]


class FlatBlocks:
    """Blocks 0, 1, 2, ...: in turn one on the positive side, from 0 on, and one on the negative, from -1.

    `slots` are those of each table, and `shares` what is left for each table, and then for the rest.
    Weights are relative to that of 0. What takes `bits` is called under that precision.
    """

    def __init__(self, sigma: Fraction) -> None:
        self.bits = max(int(sigma / FLAT_BLOCKS_PER_SIGMA).bit_length() - 1, 0)
        self.width = 1 << self.bits
        self.listed = 2 * math.ceil(FLAT_REACH * sigma / self.width)
        self.rate = 1 / (2 * sigma * sigma)
        self._sigma = sigma
        self._constants: dict[int, tuple[arb, arb]] = {}
        self._sums: dict[int, tuple[list[arb], arb]] = {}
        self.slots: list[list[int]] = []
        self.shares = [Fraction(1)]
        self._taken = [0] * self.listed  # of each block in all tables, in their slots' finest unit
        for _ in range(TABLES):
            slots, unit = self._most_slots(), int(self.shares[-1] * self._finest)
            self._taken = [
                SLOTS * (before + unit * more) for before, more in zip(self._taken, slots, strict=True)
            ]
            self.slots.append(slots)
            self.shares.append(self.shares[-1] * Fraction(SLOTS - sum(slots), SLOTS))

    @property
    def _finest(self) -> int:
        """How many of the finest units a slot of the first table has, so far."""
        return 1 << SLOT_BITS * len(self.slots)

    def inner(self, block: int) -> int:
        """The distance from 0 of the block's nearest integer."""
        return block // 2 * self.width + block % 2

    def weight(self, distance: int, bits: int) -> arb:
        """exp(-distance^2 / (2 sigma^2))."""
        return (self._constants_at(bits)[0] * (distance * distance)).exp()

    def flat(self, block: int, bits: int) -> arb:
        """What each integer of the block has in the tables, in the unit of weights."""
        if block >= self.listed:
            return arb(0)
        return self._constants_at(bits)[1] * self._taken[block] / self._finest

    def height(self, block: int, bits: int) -> arb:
        """What the nearest integer of the block lacks: the block's weight in the rest."""
        return self.weight(self.inner(block), bits) - self.flat(block, bits)

    def _constants_at(self, bits: int) -> tuple[arb, arb]:
        """-1 / (2 sigma^2), and what a slot of the first table gives to each integer of its block.

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
        """Of the next table, with what the tables before it leave."""
        found, bits = [], 128
        with precision(bits):
            slot, kept = self._constants_at(bits)[1] * ball(self.shares[-1]), 1 - ball(LEAST_REST)
            for block in range(self.listed):
                outer = self.weight(self.inner(block) + self.width - 1, bits)
                found.append(math.floor(lower((outer * kept - self.flat(block, bits)) / slot)))
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


class Lookup(NamedTuple):
    """Draws for whoever looks them up elsewhere, such as on a GPU.

    The upper half of word i is a slot. If it is below `used`, number i is starts[slot] + (word & mask); the
    others are those of `spare`, one after the other. There are enough.
    """

    words: NDArray[np.int32]
    starts: NDArray[np.int32]
    used: int
    mask: int
    spare: NDArray[np.int64]


class SlotTable:
    """Draws from a part of the blocks' flat weight."""

    def __init__(self, blocks: FlatBlocks, slots: list[int]) -> None:
        self._bits = blocks.bits
        # A block with a slot is within 6 sigma, and sigma below 512 widths.
        self.kind: type[Any] = np.int32 if blocks.bits <= 19 else np.int64
        numbers = np.arange(blocks.listed)
        first = np.where(numbers % 2, -(numbers // 2 + 1), numbers // 2) << blocks.bits
        filled = np.repeat(first.astype(self.kind), slots)
        self.used = len(filled)
        self.rest_share = (SLOTS - self.used) / SLOTS
        self.starts: NDArray[Any] = np.zeros(SLOTS, dtype=self.kind)
        self.starts[: self.used] = filled

    def fill(self, stream: RandomStream, out: WholeArray) -> NDArray[np.intp]:
        """Overwrite `out` with draws, and say where the table has none."""
        slots: NDArray[Any]
        places: NDArray[Any]
        if self._bits <= SLOT_BITS:  # a word has both: its upper half is the slot
            words = np.frombuffer(stream.take(4 * len(out)), dtype="<u4")
            slots, places = words >> np.uint32(SLOT_BITS), words.view("<i4")
        else:
            slots = stream.halves(len(out))
            places = np.frombuffer(stream.take(self.starts.itemsize * len(out)), dtype=self.kind)
        lacking = np.flatnonzero(slots >= self.used)
        drawn = self.starts.take(slots, mode="wrap")
        drawn += places & self.kind((1 << self._bits) - 1)
        out[:] = drawn
        return lacking


class FlatGaussian:
    """For sigma from 16 on, and thousands of draws at once."""

    def __init__(self, sigma: Fraction) -> None:
        assert sigma >= 16  # `Blocks` counts on it
        self._blocks = FlatBlocks(sigma)
        self._tables = tuple(SlotTable(self._blocks, slots) for slots in self._blocks.slots)
        self._proposals = Inversion(self._blocks.cdf, self._blocks.listed)

    def fill_all(self, stream: RandomStream, rooms: Iterable[WholeArray], size: int) -> Iterator[None]:
        """Overwrite rooms of up to `LOT` numbers, `size` in all, one at each step."""
        return self._fill_all(stream, rooms, size, self._tables)

    def lookup(self, stream: RandomStream, size: int) -> Lookup | None:
        """The same draws, not looked up yet. None where a word has no room for a place beside a slot."""
        table, others, bits = self._tables[0], self._tables[1:], self._blocks.bits
        if bits > SLOT_BITS:
            return None
        spare = self._drawn(stream, padded_count(table.rest_share, size), others)
        words = np.frombuffer(stream.take(4 * size), dtype="<u4")
        lacking = int(np.count_nonzero(words >= np.uint32(table.used << SLOT_BITS)))
        if lacking > len(spare):  # beyond ten deviations
            spare = np.append(spare, self._drawn(stream, lacking - len(spare), others))
        return Lookup(words.view("<i4"), table.starts, table.used, (1 << bits) - 1, spare)

    def _fill_all(
        self, stream: RandomStream, rooms: Iterable[WholeArray], size: int, tables: tuple[SlotTable, ...]
    ) -> Iterator[None]:
        """From the first of the tables; what it lacks is drawn from the others, before it is needed."""
        table, others = tables[0], tables[1:]
        spare = self._drawn(stream, padded_count(table.rest_share, size), others)
        for room in rooms:
            lacking = table.fill(stream, room)
            if len(lacking) > len(spare):  # beyond ten deviations
                spare = np.append(spare, self._drawn(stream, len(lacking), others))
            room[lacking] = spare[: len(lacking)]
            spare = spare[len(lacking) :]
            yield

    def _drawn(self, stream: RandomStream, size: int, tables: tuple[SlotTable, ...]) -> NDArray[np.int64]:
        """From these tables, or from the rest."""
        if not tables:
            return self._rest(stream, size)
        found = np.empty(size, dtype=np.int64)
        for _ in self._fill_all(stream, [found], size, tables):
            pass
        return found

    def _rest(self, stream: RandomStream, size: int) -> NDArray[np.int64]:
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

    def _candidates(self, stream: RandomStream, size: int) -> NDArray[np.int64]:
        """With p(x) = p(inner) exp(-y), the coin is 1 - p(inner) / r(inner) * (1 - exp(-y))."""
        blocks = self._blocks
        block = self._proposals.draw_guided(stream, size).astype(np.int64)
        negative = block & 1
        inner = ((block >> 1) << blocks.bits) + negative
        inward = (stream.words(size) & np.uint64(blocks.width - 1)).astype(np.int64)
        # x^2 - inner^2 = inward * (2 inner + inward); both factors are below 2^53, so exact floats.
        y = inward.astype(np.float64) * (2 * inner + inward).astype(np.float64)
        y *= float(blocks.rate)
        steepness = self._steepness.take(block, mode="clip")  # beyond the list both q are 0: see below

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


SMALL = 2048
AT_ONCE = 1 << 20
FLAT_AFTER = 1 << 22
DIRECT_BELOW = 16
BLOCKS_PER_SIGMA = 12
LARGEST_SIGMA = 1 << 48
# exp(-REACH^2 / 2) < 2^-66
REACH = Fraction(96, 10)


class GaussianWeights:
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


class GaussianSampler(ABC):
    """Draws for one sigma."""

    @abstractmethod
    def fill(self, stream: RandomStream, out: WholeArray) -> None:
        """Overwrite `out` with draws."""

    def fill_all(self, stream: RandomStream, rooms: Iterable[WholeArray], _size: int) -> Iterator[None]:
        """Overwrite rooms of up to `LOT` numbers, `size` in all, one at each step."""
        for room in rooms:
            self.fill(stream, room)
            yield

    def lookup(self, _stream: RandomStream, _size: int) -> Lookup | None:
        """Draws to be looked up elsewhere, where this sampler has such."""
        return None


class DirectGaussian(GaussianSampler):
    """Inversion over 0, 1, -1, 2, -2, ...: for small sigma."""

    def __init__(self, sigma: Fraction) -> None:
        listed = 2 * math.ceil(REACH * sigma) + 1
        self._table = Inversion(GaussianWeights(sigma, 1, both_sides=True).cdf, listed)

    def fill(self, stream: RandomStream, out: WholeArray) -> None:
        if len(out) <= SMALL:
            symbols = self._table.draw(stream, len(out))
        else:
            symbols = self._table.draw_guided(stream, len(out)).astype(np.int64)
        # 0, 1, 2, 3, 4 -> 0, 1, -1, 2, -2
        out[:] = ((symbols + 1) >> 1) * ((symbols & 1) * 2 - 1)


class BlockGaussian(GaussianSampler):
    """Blocks by inversion, places by rejection: for large sigma."""

    def __init__(self, sigma: Fraction) -> None:
        self._sigma = sigma
        self._bits = int(sigma / BLOCKS_PER_SIGMA).bit_length() - 1
        width = 1 << self._bits
        listed = math.ceil(REACH * sigma / width) + 1
        self._table = Inversion(GaussianWeights(sigma, width, both_sides=False).cdf, listed)
        self._rate = 1 / (2 * sigma * sigma)

    def fill(self, stream: RandomStream, out: WholeArray) -> None:
        filled = 0
        while filled < len(out):
            missing = len(out) - filled
            kept = self._candidates(stream, missing + missing // 16 + 8)[:missing]
            out[filled : filled + len(kept)] = kept
            filled += len(kept)

    def _candidates(self, stream: RandomStream, size: int) -> NDArray[np.int64]:
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


class LargeGaussian(GaussianSampler):
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

    def fill(self, stream: RandomStream, out: WholeArray) -> None:
        self._blocks.fill(stream, out)

    def fill_all(self, stream: RandomStream, rooms: Iterable[WholeArray], size: int) -> Iterator[None]:
        if self._uses_tables(size):
            return self._flat.fill_all(stream, rooms, size)
        self._asked += size
        return super().fill_all(stream, rooms, size)

    def lookup(self, stream: RandomStream, size: int) -> Lookup | None:
        return self._flat.lookup(stream, size) if self._uses_tables(size) else None


@lru_cache(maxsize=32)
def _sampler(sigma: Fraction) -> GaussianSampler:
    return DirectGaussian(sigma) if sigma < DIRECT_BELOW else LargeGaussian(sigma)


def discrete_gaussian(stream: RandomStream, sigma: Fraction, size: int) -> NDArray[np.int64]:
    """`size` draws; memory beyond the result does not grow with `size`."""
    result, sampler = np.empty(size, dtype=np.int64), _sampler(sigma)
    for start in range(0, size, AT_ONCE):
        part = result[start : start + AT_ONCE]
        rooms = (part[begin : begin + LOT] for begin in range(0, len(part), LOT))
        for _ in sampler.fill_all(stream, rooms, len(part)):
            pass
    return result


def gaussian_lookup(stream: RandomStream, sigma: Fraction, size: int) -> Lookup | None:
    """`size` draws to be looked up elsewhere; None where there is no table, or not yet: ask for `gaussian_lots`."""
    return _sampler(sigma).lookup(stream, size)


def gaussian_lots(stream: RandomStream, sigma: Fraction, size: int) -> Iterator[NDArray[np.float64]]:
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
