"""Uniform whole numbers and permutations."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lapwing.core import noise
from lapwing.core.random_stream import permutation, uniform_below
from support.cases import each
from support.laws import decimal, follows
from support.streams import ONES, ScriptedStream, SeededStream


@each("count", [1, 2, 3, 7, 64, 1000])
def test_every_number_is_equally_likely(count: int) -> None:
    # Chi-square at 1e-9.
    drawn = uniform_below(SeededStream(1), count, 200_000)
    if count == 1:
        assert not drawn.any()
    else:
        follows(drawn, [decimal(Fraction(1, count))] * count)


@given(st.integers(1, 1 << 64))
def test_a_kept_word_has_the_same_number_of_preimages_for_every_result(count: int) -> None:
    fair = (1 << 64) // count * count
    for word, expected in [(0, 0), (fair - 1, count - 1), (count - 1, count - 1)]:
        drawn = uniform_below(ScriptedStream([word, 0]), count, 1)
        assert drawn.tolist() == [expected]
    if fair <= ONES:
        # The first unfair word and the last word of all are drawn again.
        assert uniform_below(ScriptedStream([fair, 0]), count, 1).tolist() == [0]
        again = ScriptedStream([ONES, fair, ONES, count - 1])
        assert uniform_below(again, count, 1).tolist() == [count - 1]
        assert again.unused == 0


def test_only_unfair_words_are_drawn_again() -> None:
    stream = ScriptedStream([5, ONES, 7, ONES, 10, 11])
    assert uniform_below(stream, 3, 4).tolist() == [2, 1, 1, 2]
    assert stream.unused == 0


@each(
    ("low", "high"),
    [
        (0, 1),
        (-5, 5),
        (-(1 << 63), 1 << 63),
        (-(1 << 63), -(1 << 63) + 1),
        ((1 << 63) - 1, 1 << 63),
        (-1, (1 << 63)),
        (np.int64(-(1 << 63)), np.int64((1 << 63) - 1)),
        (np.int32(-(1 << 31)), np.int32((1 << 31) - 1)),
        (np.int8(-128), np.int8(127)),
        (np.uint8(3), np.uint8(200)),
        (0, np.uint64(1 << 63)),
    ],
)
def test_numbers_stay_in_their_range_also_at_the_ends_of_64_bits(low: int, high: int) -> None:
    drawn = noise.uniform_int(low, high, 2000)
    assert drawn.dtype == np.int64
    assert all(int(low) <= x < int(high) for x in drawn.tolist())
    if int(high) - int(low) > 10**6:
        # Both halves are hit by 2,000 draws, except with probability 2^-1999.
        middle = (int(low) + int(high)) // 2
        assert drawn.min() < middle <= drawn.max()


def test_public_numbers_are_uniform_around_zero() -> None:
    # Chi-square at 1e-9, on the system's own stream.
    follows(noise.uniform_int(-3, 4, 100_000), [decimal(Fraction(1, 7))] * 7, -3)


def test_all_orders_are_equally_likely() -> None:
    # Chi-square at 1e-9.
    rank = {order: i for i, order in enumerate(itertools.permutations(range(4)))}
    stream = SeededStream(2)
    drawn = np.array([rank[tuple(permutation(stream, 4).tolist())] for _ in range(24_000)])
    follows(drawn, [decimal(Fraction(1, 24))] * 24)


def test_equal_keys_are_drawn_again() -> None:
    stream = ScriptedStream([5, 9, 5, 3, 1, 2])
    assert permutation(stream, 3).tolist() == [1, 2, 0]
    assert stream.unused == 0


@each("count", [0, 1, 2, 10, 100_000])
def test_a_permutation_holds_every_item_once(count: int) -> None:
    order = noise.permutation(count)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(count))
