"""Exact comparison of a random number with a real, on both sides of every tie."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from lapwing.core import noise
from lapwing.core.exact import Real, exp_of
from lapwing.core.exact_sampling import (
    MOST_BITS,
    LazyUniform,
    coins,
    coins_near,
    rational,
    threshold,
    thresholds,
    ties,
)
from lapwing.errors import Undecided
from support.cases import each
from support.laws import between
from support.streams import ONES, CountingStream, RefusingStream, ScriptedStream, SeededStream

THIRD = rational(Fraction(1, 3))
THIRD_WORD = 0x5555_5555_5555_5555  # the binary digits of 1/3 are 0101...


def unit_fractions() -> st.SearchStrategy[Fraction]:
    return st.fractions(min_value=0, max_value=1)


@given(unit_fractions())
def test_a_threshold_is_below_its_real_by_less_than_one_and_a_half(p: Fraction) -> None:
    limit = threshold(rational(p))
    assert 0 <= limit <= ONES
    assert limit <= p * 2**64 < limit + Fraction(3, 2)


@given(unit_fractions(), st.integers(0, ONES))
def test_a_word_that_is_no_tie_is_decided_rightly(p: Fraction, near: int) -> None:
    limits = thresholds([rational(p)])
    for word in {near, *((int(limits[0]) + d) % 2**64 for d in range(-3, 4))}:
        if not ties(np.array([word], dtype=np.uint64), limits)[0]:
            # All U that start with this word, [word, word + 1) / 2^64, are on one side of p.
            assert word + 1 <= p * 2**64 if word < limits[0] else word >= p * 2**64


@each("power", [-1, -62, -63, -64, -65, -200])
def test_dyadic_thresholds_are_exact_and_need_no_refinement(power: int) -> None:
    p = Fraction(2) ** power
    assert threshold(rational(p)) == int(p * 2**64)
    word = int(p * 2**64)
    if p * 2**64 == word:
        assert LazyUniform(ScriptedStream(), word - 1).below(rational(p))
        assert not LazyUniform(RefusingStream(), word).below(rational(p))


def test_thresholds_of_tiny_reals_cost_nothing() -> None:
    # As a fraction, exp(-10^18) would have 10^18 digits.
    assert threshold(exp_of(Fraction(-(10**18)))) == 0
    assert not LazyUniform(RefusingStream(), 1).below(exp_of(Fraction(-(10**18))))
    assert threshold(exp_of(Fraction(-(10**4000)))) == 0
    assert not LazyUniform(RefusingStream(), 1).below(exp_of(Fraction(-(10**4000))))


@each("bad", ["nan", "inf", "0.5 +/- 0.1", "0.5 +/- 1e-19"])
def test_a_real_that_is_not_known_finely_is_refused_before_anything_is_drawn(bad: str) -> None:
    with pytest.raises(Undecided):
        coins(RefusingStream(), lambda _: arb(bad), 3)


@each("words", [1, 2, 5, 16])
def test_a_tie_of_many_words_is_decided_by_the_first_word_that_differs(words: int) -> None:
    tie = [THIRD_WORD] * words
    below = ScriptedStream([*tie, THIRD_WORD - 1])
    assert LazyUniform(below).below(THIRD)
    above = ScriptedStream([*tie, THIRD_WORD + 1])
    assert not LazyUniform(above).below(THIRD)
    assert below.unused == above.unused == 0


def test_a_tie_beyond_the_bound_raises_undecided_after_1088_bits() -> None:
    stream = ScriptedStream([THIRD_WORD] * 30)
    with pytest.raises(Undecided):
        LazyUniform(stream).below(THIRD)
    assert 64 * (30 - stream.unused) == MOST_BITS == 1088


def test_a_decision_is_final_when_more_digits_are_drawn_for_another_real() -> None:
    stream = ScriptedStream([THIRD_WORD, THIRD_WORD, 7])
    uniform = LazyUniform(stream)
    assert uniform.below(rational(Fraction(1, 2)))
    assert uniform.below(THIRD)
    assert uniform.below(rational(Fraction(1, 2)))
    assert uniform.below(THIRD)
    assert not uniform.below(rational(Fraction(1, 4)))
    assert stream.unused == 0


def test_certain_and_impossible_coins_are_so_for_every_word() -> None:
    words = [0, 1, 2, ONES - 2, ONES - 1, ONES]
    assert coins(ScriptedStream(words), rational(Fraction(1)), 6).all()
    assert not coins(ScriptedStream(words), rational(Fraction(0)), 6).any()


@each(
    ("word", "next_word", "heads"),
    [
        (THIRD_WORD - 1, None, True),
        (THIRD_WORD, 0, True),
        (THIRD_WORD, THIRD_WORD - 1, True),
        (THIRD_WORD, THIRD_WORD + 1, False),
        (THIRD_WORD, ONES, False),
        (THIRD_WORD + 1, None, False),
    ],
)
def test_coins_decide_a_tie_exactly(word: int, next_word: int | None, heads: bool) -> None:
    more = [] if next_word is None else [next_word]
    stream = ScriptedStream([7, word, ONES, *more])
    assert coins(stream, THIRD, 3).tolist() == [True, heads, False]
    assert stream.unused == 0


@each("offset", [Fraction(0), Fraction(1, 2**45), Fraction(-1, 2**45)])
def test_coins_near_let_the_exact_real_decide_inside_the_margin(offset: Fraction) -> None:
    p = Fraction(1, 2) + offset
    edge = int(p * 2**64)
    stream = ScriptedStream([edge - 1, edge, edge - 1, edge])
    heads = coins_near(stream, np.full(4, 0.5), 2.0**-40, lambda _: rational(p))
    # The float 0.5 alone would call all four the same for a non-zero offset.
    assert heads.tolist() == [True, False, True, False]


def test_coins_near_refine_a_tie_of_the_exact_real_as_well() -> None:
    approximate = np.array([1 / 3])
    for next_word, expected in [(THIRD_WORD - 1, True), (THIRD_WORD + 1, False)]:
        stream = ScriptedStream([THIRD_WORD, next_word])
        assert coins_near(stream, approximate, 2.0**-50, lambda _: THIRD).tolist() == [expected]
        assert stream.unused == 0


def test_coins_near_ask_for_the_real_of_the_right_element_and_only_inside_the_margin() -> None:
    asked: list[int] = []

    def real_of(i: int) -> Real:
        asked.append(i)
        return rational(Fraction(i, 4))

    stream = ScriptedStream([1 << 63, 1 << 62, 1 << 63, (1 << 63) + 5])
    coins_near(stream, np.array([0.0, 0.25, 0.5, 0.75]), 2.0**-48, real_of)
    assert asked == [1, 2]


def test_an_approximation_that_is_not_a_number_decides_nothing() -> None:
    stream = ScriptedStream([THIRD_WORD - 1, THIRD_WORD + 1])
    heads = coins_near(stream, np.array([np.nan, np.nan]), 2.0**-47, lambda _: THIRD)
    assert heads.tolist() == [True, False]


def test_coins_take_one_word_each() -> None:
    stream = CountingStream(SeededStream(1))
    coins(stream, THIRD, 1000)
    assert stream.bytes_taken == 8000
    coins_near(stream, np.full(500, 0.3), 2.0**-47, lambda _: THIRD)
    assert stream.bytes_taken == 12000


@each("p", [Fraction(1, 3), Fraction(1, 1000), Fraction(999, 1000)])
def test_coins_fall_as_often_as_they_should(p: Fraction) -> None:
    # Clopper-Pearson at 1e-9.
    heads = int(coins(SeededStream(2), rational(p), 400_000).sum())
    low, high = between(heads, 400_000)
    assert low < p < high


def test_public_coins_accept_rationals_texts_and_reals() -> None:
    assert noise.bernoulli(1, 5).all()
    assert not noise.bernoulli("0", 5).any()
    assert noise.bernoulli(exp_of(Fraction(0)), 5).all()
    assert noise.bernoulli(0.5, 0).dtype == np.bool_
    # Clopper-Pearson at 1e-9, on the system's own stream.
    low, high = between(int(noise.bernoulli("0.1", 100_000).sum()), 100_000)
    assert low < 0.1 < high
