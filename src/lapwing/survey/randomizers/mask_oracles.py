"""Frequency oracles whose message is a set of options, as packed bits.

`SubsetSelection` sends a set that contains the true option more often than the others. `BitwiseResponse`
(for sets) and `UnaryEncoding` (for one option) have a coin for each option.

Option j of a set is bit j % 8 of byte j // 8; the bits beyond the last option are 0. Many sets are drawn,
checked and counted at once.

Claim    in `random_masks` every bit is set with exactly T / 2^48, independently of all others.
Because  the eight bits of a byte are one symbol of an exact table (`exact_sampling.Inversion`) whose law
         is the product of their laws.
Test     tests/survey/randomizers/test_mask_oracles.py

`draw_subsets` draws uniform sets of d out of k options, eight options at a time from a table.

Claim    every set of d options is equally likely.
Because  byte by byte: with L options to come, r of them wanted, the next byte (of s options) is `mask` with
         C(L - s, r - ones) / C(L, r) chances, which multiply to 1 / C(k, d). A table of 65,536 cells holds
         whole cells of each mask. The rest is drawn exactly: first the number of ones (9 cases, a uniform
         number against thresholds, refined where it is close), then the mask, all with the same chance.
Test     tests/survey/randomizers/test_mask_oracles.py::test_every_set_is_equally_likely
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.chances import percent
from lapwing.core.exact import Number, Real, exp_up, whole
from lapwing.core.exact_sampling import Inversion, LazyUniform, rational, thresholds, ties
from lapwing.core.losses import checked_epsilon
from lapwing.errors import BadParameter, BadValue
from lapwing.survey.randomize import CoinSource
from lapwing.survey.randomizers.randomizer import (
    NOISE_STREAM,
    ODDS,
    FrequencyOracle,
    TwoLevelOracle,
    checked_answer,
    checked_answers,
    checked_rows,
    greatest_favoured,
    row_of,
    two_level_ratio,
)

Masks = NDArray[np.uint8]
BYTE = 256
CHUNK = 1 << 16  # symbols drawn at once: they stay in the cache
LANES = np.uint64(0x0101010101010101)
BLOCK = 255  # this many ones fit a byte
WORDS_BESIDE = 128  # words added side by side: they stay in the cache
ROWS_UNPACKED = 1 << 12


def mask_size(options: int) -> int:
    """Return the bytes of a packed set of options."""
    return -(-options // 8)


def contains_option(masks: Masks, option: int) -> NDArray[np.bool_]:
    """Return for each set whether it contains this option."""
    bits: NDArray[np.bool_] = (masks[:, option // 8] >> np.uint8(option % 8)) & 1 == 1
    return bits


def set_option(masks: Masks, options: NDArray[np.int64], values: NDArray[np.bool_]) -> None:
    """Set or clear one option of each set, in place."""
    rows, bytes_ = np.arange(len(masks)), options >> 3
    shifts = (options & 7).astype(np.uint8)
    cleared = masks[rows, bytes_] & ~(np.uint8(1) << shifts)
    masks[rows, bytes_] = cleared | (values.astype(np.uint8) << shifts)


def set_sizes(masks: Masks) -> NDArray[np.int64]:
    """Return the number of options in each set."""
    sizes: NDArray[np.int64] = np.bitwise_count(masks).sum(axis=1, dtype=np.int64)
    return sizes


def count_options(masks: Masks, options: int) -> NDArray[np.int64]:
    """Count the sets that contain each option.

    Eight sets of `width` bytes are `width` words. Bit j of all bytes of a word is added at once, into one
    byte each, over 255 words at the same place. So no byte overflows.
    """
    width = masks.shape[1]
    beside = max(1, WORDS_BESIDE // width)  # rows of words that are added side by side
    whole = len(masks) // (8 * BLOCK * beside) * (8 * BLOCK * beside)
    words = np.ascontiguousarray(masks[:whole]).reshape(-1).view(np.uint64)
    counts = np.zeros((width, 8), dtype=np.int64)
    part = np.empty((BLOCK, beside * width), dtype=np.uint64)
    for chunk in words.reshape(-1, BLOCK, beside * width):
        for bit in range(8):
            np.right_shift(chunk, np.uint64(bit), out=part)
            np.bitwise_and(part, LANES, out=part)
            sums = np.add.reduce(part, axis=0).view(np.uint8)
            counts[:, bit] += sums.reshape(-1, width).sum(axis=0, dtype=np.int64)
    totals = counts.reshape(-1)
    for start in range(whole, len(masks), ROWS_UNPACKED):
        rest = np.unpackbits(masks[start : start + ROWS_UNPACKED], axis=1, bitorder="little")
        totals += rest.sum(axis=0, dtype=np.int64)
    return totals[:options]


def byte_law(favoured: int) -> Callable[[int], Real]:
    """Return the cumulative law of eight bits, each set with probability T / 2^48."""
    weights = [favoured**ones * (ODDS - favoured) ** (8 - ones) for ones in range(9)]
    sums = np.cumsum([weights[symbol.bit_count()] for symbol in range(BYTE)], dtype=object)
    total = ODDS**8
    return lambda symbol: rational(Fraction(int(sums[symbol]), total))


@lru_cache(maxsize=32)
def _table(favoured: int) -> Inversion:
    return Inversion(byte_law(favoured), BYTE)


def random_masks(favoured: int, count: int, options: int) -> Masks:
    """Draw `count` sets that contain each option with probability exactly T / 2^48."""
    if 2 * favoured > ODDS:  # then clear bits are the rare ones, and a table of rare bits is well apart
        masks = ~random_masks(ODDS - favoured, count, options)
        clear_padding(masks, options)
        return masks
    width = mask_size(options)
    flat = np.empty(count * width, dtype=np.uint8)
    table = _table(favoured)
    for start in range(0, len(flat), CHUNK):
        part = flat[start : start + CHUNK]
        part[:] = table.draw_guided(NOISE_STREAM, len(part))
    masks = flat.reshape(count, width)
    clear_padding(masks, options)
    return masks


def clear_padding(masks: Masks, options: int) -> None:
    """Clear the bits beyond the last option, in place."""
    if options % 8:
        masks[:, -1] &= np.uint8((1 << options % 8) - 1)


class MaskMessages(FrequencyOracle):
    """A frequency oracle whose message is a packed set of options. An option is supported if it is in."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """The bytes of a set: one bit per option."""
        return mask_size(self.options)

    def _stated_list(self, size: str) -> str:
        return (
            f"Your device sends a list with {size} of the {self.options:,} options. Your own answer is on "
            f"it with a chance of {percent(self.inside)}, each other one with {percent(self.outside)}."
        )

    def _mask(self, chosen: int) -> bytes:
        return chosen.to_bytes(self.size, "little")  # option j is bit j % 8 of byte j // 8

    def encode(self, messages: Masks) -> Masks:
        """Return messages unchanged: they are packed already."""
        return messages

    def decode(self, rows: Masks) -> Masks:
        """Return the sets of received bytes. Raise `BadValue` if a bit beyond the last option is set."""
        masks = checked_rows(rows, self.size)
        if self.options % 8 and bool(np.any(masks[:, -1] >> np.uint8(self.options % 8))):
            raise BadValue(f"a message is impossible: it has more than {self.options} options")
        return masks

    def counts(self, messages: Masks) -> NDArray[np.int64]:
        """Count the sets that contain each option."""
        return count_options(messages, self.options)

    def membership(self, messages: Masks, answer: int) -> NDArray[np.bool_]:
        """Return for each set whether it contains this option."""
        return contains_option(messages, checked_answer(answer, self.options))


CELL_BITS = 16
CELLS = 1 << CELL_BITS
ROWS = 1 << 16  # sets drawn at once
MOST_TABLES = 1 << 10  # of 64 KiB each


class _Byte:
    """The tables of one byte: one for each number `least` .. `most` of options that are still wanted."""

    def __init__(self, left: int, least: int, most: int) -> None:
        bits = min(8, left)
        masks = np.arange(1 << bits, dtype=np.uint8)
        ones_of = np.bitwise_count(masks)
        self.least = least
        self._sizes = np.array([math.comb(bits, ones) for ones in range(bits + 1)])
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._by_ones = masks[np.argsort(ones_of, kind="stable")]
        self._choices = math.lcm(*self._sizes.tolist())
        self._cells = np.zeros((most - least + 1, CELLS), dtype=np.uint8)
        self._whole = np.zeros(len(self._cells), dtype=np.int64)
        self._cdfs = []
        for table, row in enumerate(self._cells):
            chances = _chances(left, least + table, bits)
            cells = np.array([int(chance) for chance in chances])
            filled = np.repeat(masks, cells[ones_of])
            row[: len(filled)] = filled
            self._whole[table] = len(filled)
            rests = [math.comb(bits, ones) * (chance % 1) for ones, chance in enumerate(chances)]
            total = sum(rests) or Fraction(1)  # nothing is left: nothing will be drawn from it
            self._cdfs.append([rational(sum(rests[: n + 1]) / total) for n in range(bits + 1)])
        self._first_open = int(self._whole.min())
        self._limits = np.array([thresholds(cdf) for cdf in self._cdfs], dtype=np.uint64)

    def draw(self, tables: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Draw one byte for each set. `tables` are (wanted options - `least`) * CELLS."""
        cell = NOISE_STREAM.halves(len(tables))
        drawn = self._cells.reshape(-1).take(tables + cell)
        maybe = np.flatnonzero(cell >= self._first_open)
        its = tables[maybe] >> CELL_BITS
        rest = cell[maybe] >= self._whole[its]
        drawn[maybe[rest]] = self._draw_rest(its[rest])
        return drawn

    def _draw_rest(self, tables: NDArray[np.int64]) -> NDArray[np.uint8]:
        words = NOISE_STREAM.words(len(tables))
        limits = self._limits[tables]
        ones = (words[:, np.newaxis] >= limits).sum(axis=1)
        for i in np.flatnonzero(ties(words[:, np.newaxis], limits).any(axis=1) | (ones == limits.shape[1])):
            number, cdf = LazyUniform(NOISE_STREAM, int(words[i])), self._cdfs[tables[i]]
            ones[i] = next(n for n, real in enumerate(cdf) if n + 1 == len(cdf) or number.below(real))
        # `_choices` is a multiple of every number of masks, so that the remainder is uniform.
        which = noise.uniform_int(0, self._choices, len(tables)) % self._sizes[ones]
        drawn: NDArray[np.uint8] = self._by_ones[self._starts[ones] + which]
        return drawn


def _chances(left: int, wanted: int, bits: int) -> list[Fraction]:
    """Return the chance of a mask, in cells, for each number of ones in the next byte."""
    total = math.comb(left, wanted)
    return [
        Fraction(CELLS * math.comb(left - bits, wanted - ones), total) if ones <= wanted else Fraction(0)
        for ones in range(bits + 1)
    ]


def _ranges(options: int, least: int, most: int) -> list[tuple[int, int, int]]:
    """Return for every byte the options to come, and the least and most of them still wanted."""
    return [
        (options - start, max(0, least - start), min(most, options - start))
        for start in range(0, options, 8)
    ]


def tables_needed(options: int, least: int, most: int) -> int:
    """Return the number of tables that `draw_subsets` builds."""
    return sum(high - low + 1 for _, low, high in _ranges(options, least, most))


@lru_cache(maxsize=2)
def _bytes(options: int, least: int, most: int) -> list[_Byte]:
    return [_Byte(*wanted) for wanted in _ranges(options, least, most)]


def draw_subsets(options: int, sizes: NDArray[np.int64], *, least: int, most: int) -> Masks:
    """Draw uniform sets of these sizes, which lie in least .. most. Each *column* is a set."""
    columns = np.empty((mask_size(options), len(sizes)), dtype=np.uint8)
    steps = _bytes(options, least, most)
    for start in range(0, len(sizes), ROWS):
        wanted = sizes[start : start + ROWS] << CELL_BITS
        for byte, step in enumerate(steps):
            drawn = step.draw(wanted - (step.least << CELL_BITS) if step.least else wanted)
            columns[byte, start : start + ROWS] = drawn
            wanted -= np.bitwise_count(drawn).astype(np.int64) << CELL_BITS
    return columns


def insert_option(
    columns: Masks, options: int, where: NDArray[np.int64], values: NDArray[np.bool_]
) -> Masks:
    """Insert one option into each set (column). Later options move up by one. Return the sets as rows."""
    width = mask_size(options)
    masks = np.empty((columns.shape[1], width), dtype=np.uint8)
    # For each option and byte: the bits that stay, and the bit that comes in.
    before = np.clip(np.arange(options)[:, np.newaxis] - 8 * np.arange(width), -1, 8)
    stays = ((1 << np.maximum(before, 0)) - 1).astype(np.uint8).T.copy()
    comes = np.where((before >= 0) & (before < 8), 1 << np.maximum(before, 0), 0).astype(np.uint8).T.copy()
    told = -values.astype(np.uint8)
    for start in range(0, len(where), ROWS):
        rows = slice(start, start + ROWS)
        carry = np.zeros(len(where[rows]), dtype=np.uint8)
        for byte in range(width):
            old = columns[byte, rows] if byte < len(columns) else np.zeros_like(carry)
            kept = old & stays[byte].take(where[rows])
            moved = old ^ kept
            masks[rows, byte] = (
                kept | (moved << np.uint8(1)) | carry | (comes[byte].take(where[rows]) & told[rows])
            )
            carry = moved >> np.uint8(7)
    return masks


MOST_MASK_OPTIONS = 1 << 16
LEAST_TABLE_SETS = 1 << 15  # sets
BYTES_AT_ONCE = 1 << 20
WORDS = 1 << 16  # as many as there are options at most


@dataclass(frozen=True, slots=True)
class SubsetSelection(TwoLevelOracle, MaskMessages):
    """Subset selection: a set of d options; the true one is in it with T chances in 2^48.

    Claim    two levels: the ratio is T (k - d) / ((2^48 - T) d).
    Because  A(v) are the sets with v: C(k - 1, d - 1) out of C(k, d), a share of d / k.
    Test     tests/survey/randomizers/test_randomizers_laws.py::test_the_worst_ratio_is_the_claimed_one
    """

    kind: ClassVar[str] = "subset"
    options: int
    chosen: int
    favoured: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._settle(options=2, chosen=1)
        _require_sizes(self.options, self.chosen)
        self._settle_odds()

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, options: int, chosen: int | None = None) -> SubsetSelection:
        """Make the most truthful one within ε. Without `chosen`, with the set size of least variance."""
        asked, k = checked_epsilon(epsilon), whole(options, "options", at_least=2)
        _require_sizes(k, 1 if chosen is None else whole(chosen, "chosen", at_least=1))
        below = math.floor(k / (exp_up(asked) + 1))
        sizes = {min(max(d, 1), k - 1) for d in (below, below + 1)} if chosen is None else {int(chosen)}
        selections = [cls(k, d, greatest_favoured(asked, Fraction(d, k)), asked) for d in sorted(sizes)]
        return min(
            selections,
            key=lambda selection: (
                selection.outside * (1 - selection.outside) / (selection.inside - selection.outside) ** 2
            ),
        )

    @property
    def share(self) -> Fraction:
        """The share of all sets that contain a given option."""
        return Fraction(self.chosen, self.options)

    @property
    def both(self) -> Fraction:
        """The share of all sets that contain two given options."""
        return self.share * Fraction(self.chosen - 1, self.options - 1)

    @property
    def messages(self) -> int:
        """The number of sets of `chosen` options."""
        return math.comb(self.options, self.chosen)

    def stated_odds(self) -> str:
        """Return the odds of the own option and of the others to be listed."""
        return self._stated_list(f"{self.chosen:,}")

    def draw(self, answer: int, source: CoinSource) -> bytes:
        """Draw the set that is sent, packed."""
        is_true = source.odds(self.favoured)
        wanted, others = self.chosen - is_true, self.options - 1
        taken: set[int] = set()
        for last in range(others - wanted, others):  # Floyd: every set of `wanted` others is equally likely
            drawn = source.below(last + 1)
            taken.add(last if drawn in taken else drawn)
        bits = sum(1 << (other + (other >= answer)) for other in taken)
        return self._mask(bits | (is_true << answer))

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Draw one packed set for each answer.

        The other options are a uniform set of the right size. Many small sets come from tables. Otherwise
        they start as independent bits. Then options are added or removed, each step uniform among the
        options that can change. No option is treated differently from another, so this is uniform too.
        """
        true = checked_answers(answers, self.options)
        told = noise.bernoulli(self.truth, len(true))
        others = self.options - 1, self.chosen - 1, min(self.chosen, self.options - 1)
        if len(true) >= LEAST_TABLE_SETS and tables_needed(*others) <= MOST_TABLES:
            drawn = draw_subsets(others[0], self.chosen - told, least=others[1], most=others[2])
            return insert_option(drawn, self.options, true, told)
        masks = random_masks(self._start(), len(true), self.options)
        set_option(masks, true, told)
        rows = max(1, BYTES_AT_ONCE // self.size)
        for start in range(0, len(true), rows):
            self._mend(masks[start : start + rows], true[start : start + rows])
        return masks

    def _start(self) -> int:
        """Return the odds of a bit before `_mend`: low (or high), since adding to a sparse set is quick."""
        spread = math.sqrt(self.options * float(self.share * (1 - self.share)))
        aim = self.chosen + (4 * spread if 2 * self.chosen > self.options else -4 * spread)
        return min(max(int(aim / self.options * ODDS), 1), ODDS - 1)

    def _mend(self, masks: NDArray[np.uint8], true: NDArray[np.int64]) -> None:
        """Add or remove uniform options, never the true one, until every set has its size."""
        missing = self.chosen - set_sizes(masks)
        rows = np.flatnonzero(missing)
        flat = masks.reshape(-1)
        fair = WORDS // self.options * self.options
        while len(rows):
            words = NOISE_STREAM.halves(len(rows)).astype(np.int32)
            picks = words % self.options
            bits = np.uint8(1) << (picks & 7).astype(np.uint8)
            places = rows * self.size + (picks >> 3)
            there = flat[places] & bits != 0
            # Words beyond the last whole multiple of `options` would not be uniform: nothing is picked.
            good = (there == (missing[rows] < 0)) & (picks != true[rows]) & (words < fair)
            mended = rows[good]
            flat[places[good]] ^= bits[good]
            missing[mended] -= np.sign(missing[mended])
            rows = rows[missing[rows] != 0]

    def decode(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the sets of received bytes. Raise `BadValue` unless each has exactly `chosen` options."""
        masks = MaskMessages.decode(self, rows)
        if bool(np.any(set_sizes(masks) != self.chosen)):
            raise BadValue(f"a message is impossible: it must have {self.chosen} of {self.options} options")
        return masks


def _require_sizes(options: int, chosen: int) -> None:
    if options > MOST_MASK_OPTIONS:
        raise BadParameter("options", "must be at most 65,536 for a set: a message lists all of them")
    if chosen >= options:
        raise BadParameter("chosen", "must be below the number of options")


MOST_BIT_OPTIONS = 62  # an answer is a whole number with a bit for each option
MOST_UNARY_OPTIONS = 1 << 16
HALF = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class BitwiseResponse(MaskMessages):
    """One binary randomized response per option. An answer is a set: the sum of 2^j over its options j.

    Claim    the ratio is (T / (2^48 - T))^m for m options.
    Because  the bits are independent, each has the ratio T / (2^48 - T), and two answers may differ in all.
    Test     tests/survey/randomizers/test_randomizers_laws.py::test_the_worst_ratio_is_the_claimed_one
    """

    kind: ClassVar[str] = "bits"
    options: int
    favoured: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._settle(options=1, favoured=1)
        if self.options > MOST_BIT_OPTIONS:
            raise BadParameter("options", "must be at most 62 when each is a bit")
        if not ODDS // 2 < self.favoured < ODDS:
            raise BadParameter("favoured", "must be likelier than by chance, and below 2^48")
        self._settle_epsilon()

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, options: int) -> BitwiseResponse:
        """Make one that gives each bit an equal part of ε."""
        asked, m = checked_epsilon(epsilon), whole(options, "options", at_least=1)
        return cls(m, greatest_favoured(asked / m, HALF), asked)

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers: exact."""
        return two_level_ratio(self.favoured, HALF) ** self.options

    @property
    def inputs(self) -> int:
        """The number of sets of options."""
        return 1 << self.options

    @property
    def inside(self) -> Fraction:
        """The probability that the bit of an option in the set is set."""
        return Fraction(self.favoured, ODDS)

    @property
    def outside(self) -> Fraction:
        """The probability that the bit of an option outside the set is set."""
        return 1 - self.inside

    def stated_odds(self) -> str:
        """Return the odds of each option's bit."""
        return (
            f"For each of the {self.options:,} options by itself, your device sends the truth with a "
            f"chance of {percent(self.inside)}, and the opposite with {percent(self.outside)}."
        )

    def draw(self, answer: int, source: CoinSource) -> bytes:
        """Draw the bits that are sent, packed."""
        sent = 0
        for option in range(self.options):
            is_true = source.odds(self.favoured)
            sent |= ((answer >> option & 1) ^ (not is_true)) << option
        return self._mask(sent)

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Draw one packed set of bits for each answer."""
        flipped = random_masks(ODDS - self.favoured, len(answers), self.options)
        return flipped ^ self._packed(checked_answers(answers, self.inputs))

    def _packed(self, answers: NDArray[np.int64]) -> NDArray[np.uint8]:
        wide = answers.astype("<u8").view(np.uint8).reshape(-1, 8)
        return np.ascontiguousarray(wide[:, : self.size])

    def probability(self, answer: int, message: bytes) -> Fraction:
        """Return the product over all bits."""
        true = self._packed(np.array([checked_answer(answer, self.inputs)]))
        flipped = int(set_sizes(true ^ self.decode(row_of(message, self.size)))[0])
        return self.inside ** (self.options - flipped) * self.outside**flipped


@dataclass(frozen=True, slots=True)
class UnaryEncoding(MaskMessages):
    """Unary encoding: the true option's bit is set with `one` chances in 2^48, all others with `zero`.

    Claim    the ratio is at most one (2^48 - zero) / ((2^48 - one) zero).
    Because  two answers differ in the laws of two bits. One is likelier set by one / zero, the other
             likelier clear by (2^48 - zero) / (2^48 - one); the bits are independent.
    Test     tests/survey/randomizers/test_randomizers_laws.py::test_the_worst_ratio_is_the_claimed_one

    With one = 2^47 (a fair coin) the variance is least: optimized unary encoding.
    """

    kind: ClassVar[str] = "unary"
    options: int
    one: int
    zero: int
    epsilon: Fraction | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._settle(options=2, one=1, zero=1)
        if self.options > MOST_UNARY_OPTIONS:
            raise BadParameter("options", "must be at most 65,536: a message has a bit for each")
        if not self.zero < self.one < ODDS:
            raise BadParameter("one", "must be above zero and below 2^48")
        self._settle_epsilon()

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, options: int) -> UnaryEncoding:
        """Make one with a fair coin for the true option, and the others as rarely set as ε allows."""
        asked = checked_epsilon(epsilon)
        # (2^48 - zero) / zero <= e^ε, so 2^48 - zero is what binary randomized response favours.
        return cls(options, ODDS // 2, ODDS - greatest_favoured(asked, HALF), asked)

    @property
    def ratio(self) -> Fraction:
        """The greatest ratio of a message's probabilities under two answers: exact."""
        return Fraction(self.one * (ODDS - self.zero), (ODDS - self.one) * self.zero)

    @property
    def inside(self) -> Fraction:
        """The probability that the bit of the true option is set."""
        return Fraction(self.one, ODDS)

    @property
    def outside(self) -> Fraction:
        """The probability that the bit of any other option is set."""
        return Fraction(self.zero, ODDS)

    def stated_odds(self) -> str:
        """Return the odds of the own option and of the others to be listed."""
        return self._stated_list("some")

    def draw(self, answer: int, source: CoinSource) -> bytes:
        """Draw the bits that are sent, packed."""
        sent = 0
        for option in range(self.options):
            sent |= source.odds(self.one if option == answer else self.zero) << option
        return self._mask(sent)

    def sample(self, answers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Draw one packed set of bits for each answer."""
        true = checked_answers(answers, self.options)
        masks = random_masks(self.zero, len(true), self.options)
        set_option(masks, true, noise.bernoulli(self.inside, len(true)))
        return masks

    def probability(self, answer: int, message: bytes) -> Fraction:
        """Return the product over all bits."""
        true = checked_answer(answer, self.options)
        sent = self.decode(row_of(message, self.size))
        is_set = bool(contains_option(sent, true)[0])
        others = int(set_sizes(sent)[0]) - is_set
        own = self.inside if is_set else 1 - self.inside
        return own * self.outside**others * (1 - self.outside) ** (self.options - 1 - others)
