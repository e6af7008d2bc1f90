"""Sets of options as packed bits: draw, check and count many sets at once.

Option j of a set is bit j % 8 of byte j // 8; the bits beyond the last option are 0.

Claim    in `random_masks` every bit is set with exactly T / 2^48, independently of all others.
Because  the eight bits of a byte are one symbol of an exact table (`noise.inversion`) whose law is the
         product of their laws.
Test     tests/survey/randomizers/test_masks.py
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import Real
from lapwing.core.exact_sampling import Inversion, rational
from lapwing.errors import BadValue
from lapwing.survey.randomizers.randomizer import (
    NOISE_STREAM,
    ODDS,
    FrequencyOracle,
    checked_answer,
    checked_rows,
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
    found: NDArray[np.bool_] = (masks[:, option // 8] >> np.uint8(option % 8)) & 1 == 1
    return found


def set_option(masks: Masks, options: NDArray[np.int64], values: NDArray[np.bool_]) -> None:
    """Set or clear one option of each set, in place."""
    rows, bytes_ = np.arange(len(masks)), options >> 3
    shifts = (options & 7).astype(np.uint8)
    cleared = masks[rows, bytes_] & ~(np.uint8(1) << shifts)
    masks[rows, bytes_] = cleared | (values.astype(np.uint8) << shifts)


def set_sizes(masks: Masks) -> NDArray[np.int64]:
    """Return the number of options in each set."""
    found: NDArray[np.int64] = np.bitwise_count(masks).sum(axis=1, dtype=np.int64)
    return found


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
    found = counts.reshape(-1)
    for start in range(whole, len(masks), ROWS_UNPACKED):
        rest = np.unpackbits(masks[start : start + ROWS_UNPACKED], axis=1, bitorder="little")
        found += rest.sum(axis=0, dtype=np.int64)
    return found[:options]


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
