"""Uniform sets of d out of k options, many at once, eight options at a time from a table.

Claim    every set of d options is equally likely.
Because  byte by byte: with L options to come, r of them wanted, the next byte (of s options) is `mask` with
         C(L - s, r - ones) / C(L, r) chances, which multiply to 1 / C(k, d). A table of 65,536 cells holds
         whole cells of each mask; what is left is drawn exactly: first how many ones (9 cases, a uniform
         number against thresholds, refined where it is close), then which, all alike.
Test     tests/survey/randomizers/test_masks.py::test_every_set_is_equally_likely
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lapwing import noise
from lapwing.noise.refine import Uniform, rational, thresholds, ties
from lapwing.survey.randomizers.coins import COINS
from lapwing.survey.randomizers.masks import Masks, mask_size

CELL_BITS = 16
CELLS = 1 << CELL_BITS
ROWS = 1 << 16  # sets drawn at once
MOST_TABLES = 1 << 10  # of 64 KiB each


class _Byte:
    """The tables of one byte, one for each number of options that are still wanted, `least` .. `most`."""

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
        """One byte for each; `tables` are numbers of wanted options, less `least`, times CELLS."""
        cell = COINS.halves(len(tables))
        drawn = self._cells.reshape(-1).take(tables + cell)
        maybe = np.flatnonzero(cell >= self._first_open)
        its = tables[maybe] >> CELL_BITS
        rest = cell[maybe] >= self._whole[its]
        drawn[maybe[rest]] = self._draw_rest(its[rest])
        return drawn

    def _draw_rest(self, tables: NDArray[np.int64]) -> NDArray[np.uint8]:
        words = COINS.words(len(tables))
        limits = self._limits[tables]
        ones = (words[:, np.newaxis] >= limits).sum(axis=1)
        for i in np.flatnonzero(ties(words[:, np.newaxis], limits).any(axis=1) | (ones == limits.shape[1])):
            number, cdf = Uniform(COINS, int(words[i])), self._cdfs[tables[i]]
            ones[i] = next(n for n, real in enumerate(cdf) if n + 1 == len(cdf) or number.below(real))
        # `_choices` is a multiple of every number of masks, so that the remainder is uniform.
        which = noise.uniform_int(0, self._choices, len(tables)) % self._sizes[ones]
        drawn: NDArray[np.uint8] = self._by_ones[self._starts[ones] + which]
        return drawn


def _chances(left: int, wanted: int, bits: int) -> list[Fraction]:
    """For each number of ones in the next byte: the chance of every such mask, in cells."""
    total = math.comb(left, wanted)
    return [
        Fraction(CELLS * math.comb(left - bits, wanted - ones), total) if ones <= wanted else Fraction(0)
        for ones in range(bits + 1)
    ]


def _ranges(options: int, least: int, most: int) -> list[tuple[int, int, int]]:
    """For every byte: options to come, and how many of them may still be wanted."""
    return [
        (options - start, max(0, least - start), min(most, options - start))
        for start in range(0, options, 8)
    ]


def tables_needed(options: int, least: int, most: int) -> int:
    """How many tables `draw_subsets` builds."""
    return sum(high - low + 1 for _, low, high in _ranges(options, least, most))


@lru_cache(maxsize=2)
def _bytes(options: int, least: int, most: int) -> list[_Byte]:
    return [_Byte(*wanted) for wanted in _ranges(options, least, most)]


def draw_subsets(options: int, sizes: NDArray[np.int64], *, least: int, most: int) -> Masks:
    """Uniform sets of these sizes, which lie in least .. most. One *column* is a set."""
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
    """Sets of the others (columns) with one more option put in (rows): later options move up by one."""
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
