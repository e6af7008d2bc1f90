"""Discrete Gaussian draws at any rational sigma.

Claim    P[X = x] is proportional to exp(-x^2 / (2 sigma^2)) on the integers.
Because  small sigma: inversion over 0, 1, -1, 2, -2, ... with the exact normaliser.
         large sigma: a block of `width` integers is drawn by inversion with weight
         exp(-start^2 / (2 sigma^2)) of its innermost end, then a sign and an offset uniformly;
         x = start + offset (one more for the negative side, so that 0 occurs once) is kept with
         probability exp(-(x^2 - start^2) / (2 sigma^2)) <= 1. Kept values have the law above.
         large sigma, and many draws: `FlatGaussian`.
Test     tests/core/test_gaussian_sampler.py, tests/core/test_gaussian_sampler_flat.py

The small-sigma sampler does the same work for every value. The large-sigma sampler rejects about
3 % of its candidates. Their number is independent of the values that are kept, so the running time
reveals nothing about the values.

**FlatGaussian**: many draws at once, from two tables with one lookup each, and the rest exactly.

Claim    P[X = x] = p(x), proportional to exp(-x^2 / (2 sigma^2)) on the integers.
Because  the integers are divided into blocks of `width`. A block owns a whole number of a table's 2^16
         slots, chosen such that each integer of the block gets the same q = slots / (2^16 width) <= p(x).
         A slot is drawn uniformly. A slot of a block gives a uniform integer of the block, so each x
         has probability q so far. The slots that belong to no block have probability 1 - sum of q, which
         is the sum of p(x) - q, and give x with probability proportional to p(x) - q. Together: p(x).
         A second table draws from p(x) - q in the same way. The number of slots of a block is a choice,
         not a probability: its rounding does not matter, except that all q together must be <= p(x),
         which balls decide.
         The rest is r = p minus both q. A block is drawn by inversion with weight r(inner), where inner is
         its end next to 0, then an integer of it uniformly, kept with probability r(x) / r(inner) <= 1.
Test     tests/core/test_gaussian_sampler_flat.py

One draw in 40 to 70 comes from the second table, one in 500 to 1,000 from the rest (fewer below sigma 512).
The same padded number of these is drawn each time, needed or not, and rejections are independent of the
values that are kept. Only copying the needed ones into place takes longer when there are more of them.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from flint import arb
from numpy.typing import NDArray

from lapwing.core.exact import Real, ball, exp_of, lower, precision
from lapwing.core.exact_sampling import (
    CumulativeWeights,
    Inversion,
    coins_near,
    exp_neg,
    fill_by_rejection,
    float_error,
    padded_count,
)
from lapwing.core.random_stream import RandomStream
from lapwing.errors import NoEntropy

SMALL = 2048
LOT = 1 << 15  # few enough to stay in a processor's cache
AT_ONCE = 1 << 20
FLAT_AFTER = 1 << 22
DIRECT_BELOW = 16
BLOCKS_PER_SIGMA = 12
# exp(-REACH^2 / 2) < 2^-66
REACH = Fraction(96, 10)
# Whole numbers, also as floats: below 2^53 these are exact.
WholeArray = NDArray[np.int64] | NDArray[np.float64]


class GaussianWeights(CumulativeWeights):
    """Partial sums of exp(-(step k)^2 / 2 sigma^2) over k, and their limit, to any precision.

    `both_sides` counts k = 1, 2, ... twice, as 1, -1, 2, -2, ...
    """

    def __init__(self, sigma: Fraction, step: int, *, both_sides: bool) -> None:
        super().__init__()
        self._rate = Fraction(step * step) / (2 * sigma * sigma)
        self._both = both_sides

    def _sum_up(self, bits: int) -> tuple[list[arb], arb]:
        rate = ball(self._rate)
        last = math.isqrt(int(bits / self._rate) + 1) + 2
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
        # The weights that were left out fall faster than a geometric series of this ratio.
        rest = (1 + self._both) * weight * ratio / (1 - ratio)
        return sums, total + arb(0).union(rest)


def _symbols(table: Inversion, stream: RandomStream, size: int) -> NDArray[np.int64]:
    """Draw symbols by words for a small batch, by the guide table for a large one."""
    if size <= SMALL:
        return table.draw(stream, size)
    return table.draw_guided(stream, size).astype(np.int64)


def _excess(start: NDArray[np.int64], offset: NDArray[np.int64], rate: Fraction) -> NDArray[np.float64]:
    """Return rate * (x^2 - start^2) in floats, for x = start + offset."""
    # x^2 - start^2 = offset * (2 start + offset); both factors are below 2^53, so exact floats.
    product = offset.astype(np.float64) * (2 * start + offset).astype(np.float64)
    product *= float(rate)
    return product


def _negated(values: NDArray[np.int64], negative: NDArray[np.int64]) -> NDArray[np.int64]:
    """Negate, in place, the values where `negative` is 1 (elsewhere it is 0)."""
    values ^= -negative
    values += negative
    return values


class GaussianSampler(ABC):
    """A sampler for one sigma."""

    @abstractmethod
    def fill(self, stream: RandomStream, out: WholeArray) -> None:
        """Overwrite `out` with draws."""

    def fill_all(self, stream: RandomStream, buffers: Iterable[WholeArray], _size: int) -> Iterator[None]:
        """Overwrite buffers of up to `LOT` numbers, `size` in all, one buffer at each step."""
        for buffer in buffers:
            self.fill(stream, buffer)
            yield

    def lookup(self, _stream: RandomStream, _size: int) -> Lookup | None:
        """Return draws to be looked up elsewhere, or None if this sampler offers none."""
        return None


class DirectGaussian(GaussianSampler):
    """Inversion over 0, 1, -1, 2, -2, ...: for small sigma."""

    def __init__(self, sigma: Fraction) -> None:
        listed = 2 * math.ceil(REACH * sigma) + 1
        self._table = Inversion(GaussianWeights(sigma, 1, both_sides=True).cdf, listed)

    def fill(self, stream: RandomStream, out: WholeArray) -> None:
        """Overwrite `out` with draws."""
        symbols = _symbols(self._table, stream, len(out))
        # 0, 1, 2, 3, 4 -> 0, 1, -1, 2, -2
        out[:] = ((symbols + 1) >> 1) * ((symbols & 1) * 2 - 1)


class BlockGaussian(GaussianSampler):
    """Blocks by inversion, places inside a block by rejection: for large sigma."""

    def __init__(self, sigma: Fraction) -> None:
        self._bits = int(sigma / BLOCKS_PER_SIGMA).bit_length() - 1
        width = 1 << self._bits
        listed = math.ceil(REACH * sigma / width) + 1
        self._table = Inversion(GaussianWeights(sigma, width, both_sides=False).cdf, listed)
        self._rate = 1 / (2 * sigma * sigma)

    def fill(self, stream: RandomStream, out: WholeArray) -> None:
        """Overwrite `out` with draws."""
        accepted = partial(self._accepted, stream)
        fill_by_rejection(out, accepted, lambda missing: missing + missing // 16 + 8)

    def _accepted(self, stream: RandomStream, size: int) -> NDArray[np.int64]:
        """Draw `size` candidates, and return those that are kept."""
        blocks = _symbols(self._table, stream, size)
        places = stream.words(size)
        negative = (places >> np.uint64(63)).astype(np.int64)
        start = blocks << self._bits
        offset = (places & np.uint64((1 << self._bits) - 1)).astype(np.int64) + negative

        def kept_with(i: int) -> Real:
            d, s = int(offset[i]), int(start[i])
            return exp_of(-d * (2 * s + d) * self._rate)

        near = exp_neg(_excess(start, offset, self._rate))
        keep = coins_near(stream, near, float_error(16.0), kept_with)
        return _negated(start + offset, negative)[keep]


SLOT_BITS = 16
SLOTS = 1 << SLOT_BITS
TABLES = 2
FLAT_BLOCKS_PER_SIGMA = 256
# exp(-FLAT_REACH^2 / 2) < 2^-79, of a rest that is above 2^-19
FLAT_REACH = Fraction(105, 10)
# Each integer keeps at least this share of its weight for the rest, so that floats can decide its coins.
LEAST_REST = Fraction(1, 2**20)


class FlatBlocks(CumulativeWeights):
    """Blocks 0, 1, 2, ... of integers: in turn one on the positive side (from 0) and one on the negative.

    `slots` has the number of slots of each block, for each table. `shares` has the probability that is left
    for each table, and last the probability of the rest. `cdf` is that of the rest's proposals. Weights are
    relative to the weight of 0. Methods with a parameter `bits` must be called under that precision.
    """

    def __init__(self, sigma: Fraction) -> None:
        super().__init__()
        self.bits = max(int(sigma / FLAT_BLOCKS_PER_SIGMA).bit_length() - 1, 0)
        self.width = 1 << self.bits
        self.listed = 2 * math.ceil(FLAT_REACH * sigma / self.width)
        self.rate = 1 / (2 * sigma * sigma)
        self._sigma = sigma
        self._constants: dict[int, tuple[arb, arb]] = {}
        self.slots: list[list[int]] = []
        self.shares = [Fraction(1)]
        self._taken = [0] * self.listed  # by each block in all tables, in the finest unit of their slots
        for _ in range(TABLES):
            slots, unit = self._most_slots(), int(self.shares[-1] * self._finest)
            taken = zip(self._taken, slots, strict=True)
            self._taken = [SLOTS * (before + unit * more) for before, more in taken]
            self.slots.append(slots)
            self.shares.append(self.shares[-1] * Fraction(SLOTS - sum(slots), SLOTS))

    @property
    def _finest(self) -> int:
        """The number of finest units, so far, in a slot of the first table."""
        return 1 << SLOT_BITS * len(self.slots)

    def inner(self, block: int) -> int:
        """Return the distance from 0 of the block's nearest integer."""
        return block // 2 * self.width + block % 2

    def weight(self, distance: int, bits: int) -> arb:
        """Return exp(-distance^2 / (2 sigma^2))."""
        return (self._constants_at(bits)[0] * (distance * distance)).exp()

    def flat(self, block: int, bits: int) -> arb:
        """Return the weight that the tables give to each integer of the block."""
        if block >= self.listed:
            return arb(0)
        return self._constants_at(bits)[1] * self._taken[block] / self._finest

    def height(self, block: int, bits: int) -> arb:
        """Return the weight that the tables leave to the nearest integer: the block's share of the rest."""
        return self.weight(self.inner(block), bits) - self.flat(block, bits)

    def _constants_at(self, bits: int) -> tuple[arb, arb]:
        """Return -1 / (2 sigma^2), and the weight that a slot of the first table gives to each integer.

        By Poisson's summation all weights are together sigma sqrt(2 pi) (1 + 2 e^-a + 2 e^-4a + ...),
        a = 2 pi^2 sigma^2. From sigma = 16 on e^-a < 2^-7000, and the terms after 1 are below 3 e^-a.
        """
        if bits not in self._constants:
            sigma = ball(self._sigma)
            beyond = 3 * (-2 * (arb.pi() * sigma) ** 2).exp()
            total = sigma * (2 * arb.pi()).sqrt() * (1 + arb(0).union(beyond))
            self._constants[bits] = ball(-self.rate), total / (SLOTS * self.width)
        return self._constants[bits]

    def _most_slots(self) -> list[int]:
        """Return the most slots of the next table that each block can have, after the earlier tables."""
        slots, bits = [], 128
        with precision(bits):
            slot, kept = self._constants_at(bits)[1] * ball(self.shares[-1]), 1 - ball(LEAST_REST)
            for block in range(self.listed):
                outer = self.weight(self.inner(block) + self.width - 1, bits)
                slots.append(math.floor(lower((outer * kept - self.flat(block, bits)) / slot)))
        return slots

    def _sum_up(self, bits: int) -> tuple[list[arb], arb]:
        last = 2 * (math.isqrt(int(bits / self.rate)) // self.width + 2)
        sum_, sums = arb(0), []
        for block in range(last):
            sum_ += self.height(block, bits)
            sums.append(sum_)
        # The blocks that were left out, on either side, fall faster than a geometric series with the ratio
        # of the first two of them.
        first, second = (self.weight(self.inner(block), bits) for block in (last, last + 2))
        return sums, sum_ + arb(0).union(2 * first / (1 - second / first))


class Lookup(NamedTuple):
    """Draws that the caller looks up on another device, such as a GPU.

    The upper half of word i is a slot. If it is below `used`, number i is starts[slot] + (word & mask). The
    other numbers are those of `spare`, one after the other. There are enough.

    Attributes:
        words: the random words, one for each number.
        starts: the least number of each slot.
        used: the number of slots in use.
        mask: selects the lower bits of a word.
        spare: the numbers of the words whose slot is not in use.

    Example:
        >>> from lapwing.noise import discrete_gaussian_lookup
        >>> draws = discrete_gaussian_lookup(3, 1000)
        >>> draws is None or len(draws.words) == 1000
        True
    """

    words: NDArray[np.int32]
    starts: NDArray[np.int32]
    used: int
    mask: int
    spare: NDArray[np.int64]


class SlotTable:
    """A table of slots that draws from one part of the blocks' flat weight."""

    def __init__(self, blocks: FlatBlocks, slots: list[int]) -> None:
        self._bits = blocks.bits
        # A block with a slot is within 6 sigma, and sigma is below 512 widths.
        self.kind: type[Any] = np.int32 if blocks.bits <= 19 else np.int64
        numbers = np.arange(blocks.listed)
        first = np.where(numbers % 2, -(numbers // 2 + 1), numbers // 2) << blocks.bits
        filled = np.repeat(first.astype(self.kind), slots)
        self.used = len(filled)
        self.rest_share = (SLOTS - self.used) / SLOTS
        self.starts: NDArray[Any] = np.zeros(SLOTS, dtype=self.kind)
        self.starts[: self.used] = filled

    def fill(self, stream: RandomStream, out: WholeArray) -> NDArray[np.intp]:
        """Overwrite `out` with draws, and return the places for which the table has no draw."""
        slots: NDArray[Any]
        places: NDArray[Any]
        if self._bits <= SLOT_BITS:  # one word holds both: its upper half is the slot
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


SlotTables = tuple[SlotTable, ...]


class FlatGaussian:
    """A sampler for sigma from 16 on, and thousands of draws at once."""

    def __init__(self, sigma: Fraction) -> None:
        assert sigma >= 16  # `FlatBlocks` relies on it
        self._blocks = FlatBlocks(sigma)
        self._tables = tuple(SlotTable(self._blocks, slots) for slots in self._blocks.slots)
        self._proposals = Inversion(self._blocks.cdf, self._blocks.listed)

    def fill_all(
        self, stream: RandomStream, buffers: Iterable[WholeArray], size: int, tables: SlotTables = ()
    ) -> Iterator[None]:
        """Overwrite buffers of up to `LOT` numbers, `size` in all, one buffer at each step.

        They are filled from the first of `tables` (without tables: of all). Numbers that it lacks are drawn
        from the others beforehand.
        """
        table, *others = tables or self._tables
        spare = self._drawn(stream, padded_count(table.rest_share, size), tuple(others))
        for buffer in buffers:
            lacking = table.fill(stream, buffer)
            if len(lacking) > len(spare):  # beyond ten standard deviations
                spare = np.append(spare, self._drawn(stream, len(lacking), tuple(others)))
            buffer[lacking] = spare[: len(lacking)]
            spare = spare[len(lacking) :]
            yield

    def lookup(self, stream: RandomStream, size: int) -> Lookup | None:
        """Return the same draws, not looked up yet; None if a place and a slot do not fit into one word."""
        table, others, bits = self._tables[0], self._tables[1:], self._blocks.bits
        if bits > SLOT_BITS:
            return None
        spare = self._drawn(stream, padded_count(table.rest_share, size), others)
        words = np.frombuffer(stream.take(4 * size), dtype="<u4")
        lacking = int(np.count_nonzero(words >= np.uint32(table.used << SLOT_BITS)))
        if lacking > len(spare):  # beyond ten standard deviations
            spare = np.append(spare, self._drawn(stream, lacking - len(spare), others))
        return Lookup(words.view("<i4"), table.starts, table.used, (1 << bits) - 1, spare)

    def _drawn(self, stream: RandomStream, size: int, tables: SlotTables) -> NDArray[np.int64]:
        """Draw from the given tables, or from the rest if there are none."""
        drawn = np.empty(size, dtype=np.int64)
        if tables:
            for _ in self.fill_all(stream, [drawn], size, tables):
                pass
        else:
            accepted = partial(self._accepted, stream)
            fill_by_rejection(drawn, accepted, lambda missing: missing + missing // 2 + 8)
        return drawn

    @cached_property
    def _steepness(self) -> NDArray[np.float64]:
        """The ratio weight(inner) / height of each listed block, within a relative 2^-50."""
        blocks, bits = self._blocks, 128
        with precision(bits):
            ratios = [
                float(blocks.weight(blocks.inner(block), bits) / blocks.height(block, bits))
                for block in range(blocks.listed)
            ]
        return np.array(ratios)

    def _accepted(self, stream: RandomStream, size: int) -> NDArray[np.int64]:
        """Draw `size` candidates for the rest, and return those that are kept.

        With p(x) = p(inner) exp(-y), the coin is 1 - p(inner) / r(inner) * (1 - exp(-y)).
        """
        blocks = self._blocks
        block = self._proposals.draw_guided(stream, size).astype(np.int64)
        negative = block & 1
        inner = ((block >> 1) << blocks.bits) + negative
        offset = (stream.words(size) & np.uint64(blocks.width - 1)).astype(np.int64)
        y = _excess(inner, offset, blocks.rate)
        steepness = self._steepness.take(block, mode="clip")  # beyond the list both q are 0: see below
        near = 1.0 - steepness * (1.0 - exp_neg(y))
        near[block >= blocks.listed] = np.nan  # so that the exact real decides
        keep = coins_near(
            stream, near, self._margin, lambda i: self._kept_with(int(block[i]), int(offset[i]))
        )
        return _negated(inner + offset, negative)[keep]

    @cached_property
    def _margin(self) -> float:
        """The error of the floats `near`: that of 1 - exp(-y), and three roundings, times the steepness."""
        return 2 * float(self._steepness.max()) * (float_error(16.0) + 2.0**-50)

    def _kept_with(self, block: int, offset: int) -> Real:
        blocks = self._blocks

        def at(bits: int) -> arb:
            fine = bits + 64
            with precision(fine):
                here = blocks.weight(blocks.inner(block) + offset, fine) - blocks.flat(block, fine)
                return here / blocks.height(block, fine)

        return at


class LargeGaussian(BlockGaussian):
    """Blocks for the first `FLAT_AFTER` draws, then `FlatGaussian`, whose tables take time to build."""

    def __init__(self, sigma: Fraction) -> None:
        super().__init__(sigma)
        self._sigma, self._asked = sigma, 0

    @cached_property
    def _flat(self) -> FlatGaussian:
        return FlatGaussian(self._sigma)

    def _uses_tables(self, size: int) -> bool:
        """Return whether the tables are used. Not for a few draws: their running time would reveal more."""
        return size > SMALL and self._asked >= FLAT_AFTER

    def fill_all(self, stream: RandomStream, buffers: Iterable[WholeArray], size: int) -> Iterator[None]:
        """Overwrite buffers of up to `LOT` numbers, `size` in all, one buffer at each step."""
        if self._uses_tables(size):
            return self._flat.fill_all(stream, buffers, size)
        self._asked += size
        return super().fill_all(stream, buffers, size)

    def lookup(self, stream: RandomStream, size: int) -> Lookup | None:
        """Return draws to be looked up elsewhere, or None if the tables are not in use (yet)."""
        return self._flat.lookup(stream, size) if self._uses_tables(size) else None


@lru_cache(maxsize=32)
def _sampler(sigma: Fraction) -> GaussianSampler:
    return DirectGaussian(sigma) if sigma < DIRECT_BELOW else LargeGaussian(sigma)


def discrete_gaussian(stream: RandomStream, sigma: Fraction, size: int) -> NDArray[np.int64]:
    """Draw `size` numbers; memory beyond the result does not grow with `size`."""
    result, sampler = np.empty(size, dtype=np.int64), _sampler(sigma)
    for start in range(0, size, AT_ONCE):
        part = result[start : start + AT_ONCE]
        buffers = (part[begin : begin + LOT] for begin in range(0, len(part), LOT))
        for _ in sampler.fill_all(stream, buffers, len(part)):
            pass
    return result


def gaussian_lookup(stream: RandomStream, sigma: Fraction, size: int) -> Lookup | None:
    """Return `size` draws to be looked up elsewhere; None if there is no table: see `gaussian_lots`."""
    return _sampler(sigma).lookup(stream, size)


def gaussian_lots(stream: RandomStream, sigma: Fraction, size: int) -> Iterator[NDArray[np.float64]]:
    """Draw `size` numbers as floats, `LOT` at a time; each lot overwrites the one before.

    Floats hold them exactly: 2^53 is 32 times the largest sigma. Some numbers are drawn ahead of their lot.
    So a forked child must not continue, since parent and child would have the same numbers.
    """
    buffer, sampler, process = np.empty(min(size, LOT)), _sampler(sigma), os.getpid()
    for start in range(0, size, AT_ONCE):
        count = min(size - start, AT_ONCE)
        buffers = [buffer[: count - begin] for begin in range(0, count, LOT)]
        for filled, _ in zip(buffers, sampler.fill_all(stream, buffers, count), strict=True):
            if os.getpid() != process:
                raise NoEntropy("these draws were begun by another process: begin anew")
            yield filled
