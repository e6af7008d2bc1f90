"""Subset selection: a set of options that contains the true one more often than the others.

The file also draws uniform sets of d out of k options, many at once, eight options at a time from a table.

Claim    every set of d options is equally likely.
Because  byte by byte: with L options to come, r of them wanted, the next byte (of s options) is `mask` with
         C(L - s, r - ones) / C(L, r) chances, which multiply to 1 / C(k, d). A table of 65,536 cells holds
         whole cells of each mask. The rest is drawn exactly: first the number of ones (9 cases, a uniform
         number against thresholds, refined where it is close), then the mask, all with the same chance.
Test     tests/survey/randomizers/test_masks.py::test_every_set_is_equally_likely
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.exact import Number, exp_up, whole
from lapwing.core.exact_sampling import LazyUniform, rational, thresholds, ties
from lapwing.core.losses import checked_epsilon
from lapwing.errors import BadParameter, BadValue
from lapwing.survey.randomizers.masks import (
    MaskMessages,
    Masks,
    mask_size,
    random_masks,
    set_option,
    set_sizes,
)
from lapwing.survey.randomizers.randomizer import (
    NOISE_STREAM,
    ODDS,
    TwoLevelOracle,
    checked_answers,
    greatest_favoured,
)

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


MOST_OPTIONS = 1 << 16
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
        found = [cls(k, d, greatest_favoured(asked, Fraction(d, k)), asked) for d in sorted(sizes)]
        return min(found, key=lambda one: one.outside * (1 - one.outside) / (one.inside - one.outside) ** 2)

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
    if options > MOST_OPTIONS:
        raise BadParameter("options", "must be at most 65,536 for a set: a message lists all of them")
    if chosen >= options:
        raise BadParameter("chosen", "must be below the number of options")
