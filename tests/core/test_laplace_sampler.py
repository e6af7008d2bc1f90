"""Geometric and discrete Laplace noise: the exact law, every path, every edge."""

from __future__ import annotations

import math
import threading
import tracemalloc
from decimal import Decimal
from fractions import Fraction

import numpy as np
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.core import noise
from lapwing.core.exact import lower, precision, upper
from lapwing.core.laplace_sampler import (
    CHUNK,
    LARGEST_SCALE,
    SMALL,
    WORTH_TABLES,
    DigitSampler,
    digit_sampler,
)
from lapwing.core.random_stream import SYSTEM
from support import laws
from support.cases import each
from support.laws import cumulative, follows, fraction, geometric_law, laplace_law
from support.streams import ONES, CountingStream, ScriptedStream, SeededStream

SCALES = [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(10), Fraction(1000)]
TINY = Fraction(1, 10**50)


def by_groups(sampler: DigitSampler, seed: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    out = np.empty(size, dtype=np.int64)
    sampler._by_groups(SeededStream(seed), out)
    return out


def close(ball: arb, value: Decimal) -> bool:
    """Whether the ball holds the decimal, give or take the decimal's own rounding."""
    with precision(400):
        low, high = lower(ball), upper(ball)
    assert high - low < TINY
    return low - TINY <= fraction(value) <= high + TINY


# The exact law, without any randomness.


@each("t", SCALES)
def test_digits_and_coin_multiply_out_to_the_exact_law(t: Fraction) -> None:
    sampler = DigitSampler(t, signed=True)
    reals = [real(300) for real in sampler._reals]
    digits, beyond, coin = reals[: sampler._count], reals[-2], reals[-1]
    reach = min(100, (1 << sampler._count) - 1)
    expected = laplace_law(t, reach)
    for x in [*range(-min(reach, 40), min(reach, 40) + 1), reach, -reach]:
        magnitude = ~x if x < 0 else x
        with precision(300):
            p = (1 - beyond) * (coin if x < 0 else 1 - coin)
            for j, digit in enumerate(digits):
                p *= digit if magnitude >> j & 1 else 1 - digit
        assert close(p, expected[x + reach])


@each("signed", [True, False])
@each("t", [*SCALES, Fraction(12345, 7), Fraction(10**6)])
def test_the_groups_of_the_tables_multiply_out_to_the_exact_law(t: Fraction, signed: bool) -> None:
    sampler = DigitSampler(t, signed=signed)
    top = (1 << sampler._count) - 1
    values = sorted({0, 1, 2, 3, 7, 100 % (top + 1), top // 2, top, int(t), top + 1, 2 * top})
    q, magnitude_of_minus = laws.exp(-1 / t), [~v for v in values] if signed else []
    for x in [*values, *magnitude_of_minus]:
        combined = (2 * (~x if x < 0 else x) + (x < 0)) if signed else x
        groups = sampler._tables()
        with precision(400):
            p = arb(1)
            for number, (table, at) in enumerate(groups):
                last = number == len(groups) - 1
                symbol = combined >> at if last else (combined >> at) % len(table._limits)
                below = table._cdf(symbol - 1)(400) if symbol else arb(0)
                p *= table._cdf(symbol)(400) - below
        power = laws.exp(-abs(x) / t)
        expected = (1 - q) / (1 + q) * power if signed else (1 - q) * power
        with precision(400):
            # Decimal's default context rounds to 28 digits.
            assert abs((upper(p) + lower(p)) / 2 - fraction(expected)) <= fraction(expected) / 10**25


@each("t", [Fraction(1, 3), Fraction(7, 2), Fraction(10), Fraction(100, 3)])
def test_the_top_table_matches_an_independent_cdf(t: Fraction) -> None:
    # Small scales have the whole geometric in their only or last group.
    sampler = DigitSampler(t, signed=False)
    ((table, at),) = sampler._tables()[-1:]
    unit = Fraction(1 << at)
    sums = cumulative(geometric_law(t / unit, len(table._limits)))
    for limit, p in zip(table._limits.tolist(), sums, strict=True):
        assert limit <= fraction(p) * 2**64 + TINY
        assert fraction(p) * 2**64 < limit + Fraction(3, 2)


@each("t", [*SCALES, Fraction(1, 10**9), Fraction(10**12), Fraction(2**48)])
def test_digit_thresholds_match_an_independent_value(t: Fraction) -> None:
    sampler = DigitSampler(t, signed=True)
    for j in range(sampler._count):
        weight = fraction(laws.exp(-(1 << j) / t)) if (1 << j) / t < 10**6 else Fraction(0)
        p = weight / (1 + weight) * 2**64
        assert int(sampler._limits[j]) <= p + TINY
        assert p < int(sampler._limits[j]) + Fraction(3, 2)
    assert sampler._limits[-1] == sampler._limits[0]


@each("t", [*SCALES, Fraction(1, 10**9), Fraction(1, 45), Fraction(2**48)])
def test_the_digits_reach_far_enough_and_fit_64_bits(t: Fraction) -> None:
    sampler = DigitSampler(t, signed=True)
    assert (1 << sampler._count) > 45 * t
    assert sampler._count <= 54
    assert all(len(table._limits) <= 256 for table, _ in sampler._tables())


# The law by statistics: chi-square at 1e-9 each, on seeded streams.


@each("t", SCALES)
def test_words_follow_the_laplace_law(t: Fraction) -> None:
    sampler = DigitSampler(t, signed=True)
    drawn = np.concatenate([sampler._by_words(SeededStream(i), SMALL) for i in range(100)])
    reach = int(30 * t) + 1
    follows(drawn, laplace_law(t, reach), -reach)


@each("t", SCALES)
def test_guided_tables_follow_the_laplace_law(t: Fraction) -> None:
    reach = int(30 * t) + 1
    follows(by_groups(DigitSampler(t, signed=True), 11, 500_000), laplace_law(t, reach), -reach)


@each("t", SCALES)
def test_both_paths_follow_the_geometric_law(t: Fraction) -> None:
    sampler = DigitSampler(t, signed=False)
    law = geometric_law(t, int(40 * t) + 2)
    words = np.concatenate([sampler._by_words(SeededStream(i), SMALL) for i in range(100)])
    follows(words, law)
    follows(by_groups(sampler, 12, 500_000), law)


def test_the_chi_square_test_notices_a_scale_that_is_one_per_cent_off() -> None:
    # Two million draws: the statistic is about 330 there, with the bound near 250.
    drawn = by_groups(DigitSampler(Fraction(101, 10), signed=True), 13, 2_000_000)
    statistic, bound = laws.chi_square(drawn, laplace_law(Fraction(10), 400), -400)
    assert statistic > bound


def test_every_bit_of_large_noise_is_right() -> None:
    # Digits are independent: 54 of them and their neighbours, at 1e-12 each (Clopper-Pearson).
    t, size = Fraction(10**12), 200_000
    sampler = DigitSampler(t, signed=False)
    drawn = by_groups(sampler, 14, size)
    for j in range(sampler._count):
        q = float(laws.exp(-(1 << j) / t))
        digit = drawn >> j & 1
        low, high = laws.between(int(digit.sum()), size, 1e-12)
        assert low <= q / (1 + q) <= high
        agree = int((digit & (drawn >> (j + 1)) & 1).sum())
        low, high = laws.between(agree, size, 1e-12)
        assert low <= q / (1 + q) * (q * q / (1 + q * q)) <= high


@each("t", [Fraction(7, 2), Fraction(1000), Fraction(10**12)])
@each("groups", [True, False])
def test_moments_are_those_of_the_law(t: Fraction, groups: bool) -> None:
    # Mean and mean square lie within 6.5 of their own deviations: false alarm below 2e-10.
    size = 200_000
    sampler = DigitSampler(t, signed=True)
    drawn = (
        by_groups(sampler, 15, size)
        if groups
        else np.concatenate([sampler._by_words(SeededStream(i), 2000) for i in range(100)])
    )
    q = math.exp(-1 / t)
    one_minus_q = -math.expm1(-1 / t)
    variance = 2 * q / one_minus_q**2
    assert abs(drawn.mean()) < 6.5 * math.sqrt(variance / size)
    # The fourth moment is about 6 variances squared for large t, at most 7 here.
    assert abs(np.mean(drawn.astype(float) ** 2) / variance - 1) < 6.5 * math.sqrt(6 / size)


@each("t", [Fraction(7, 2), Fraction(1000), Fraction(10**12)])
def test_tails_have_the_right_weight(t: Fraction) -> None:
    # Clopper-Pearson at 1e-9 for each of five tails.
    size = 400_000
    drawn = by_groups(DigitSampler(t, signed=True), 16, size)
    q = laws.exp(-1 / t)
    for multiple in (1, 3, 5, 8, 10):
        k = int(multiple * t) + 1
        low, high = laws.between(int((np.abs(drawn) >= k).sum()), size)
        assert low <= float(2 * laws.exp(-k / t) / (1 + q)) <= high


# Both sides of every refinement, forced by a script.


@each("j", range(9))
def test_a_tie_of_any_digit_is_decided_exactly(j: int) -> None:
    sampler = DigitSampler(Fraction(10), signed=True)
    assert sampler._count == 9
    for next_word, value in [(0, 1 << j), (ONES, 0)]:
        words = [ONES] * 11
        words[j] = int(sampler._limits[j])
        stream = ScriptedStream([*words, next_word])
        assert sampler.draw(stream, 1).tolist() == [value]
        assert stream.unused == 0


def test_a_tie_of_the_sign_is_decided_exactly() -> None:
    sampler = DigitSampler(Fraction(10), signed=True)
    tie = int(sampler._limits[-1])
    for next_word, value in [(0, -1), (ONES, 0)]:
        assert sampler.draw(ScriptedStream([ONES] * 10 + [tie, next_word]), 1).tolist() == [value]


def test_a_tie_needs_as_many_words_as_it_needs() -> None:
    sampler = DigitSampler(Fraction(10), signed=True)
    p = fraction(laws.exp(Fraction(-1, 10)))
    p = p / (1 + p)
    digits = int(p * 2**256)
    words = [(digits >> shift) & ONES for shift in (192, 128, 64, 0)]
    for last, value in [(words[3] - 1, 1), (words[3] + 2, 0)]:
        stream = ScriptedStream([words[0], *[ONES] * 10, words[1], words[2], last])
        assert sampler.draw(stream, 1).tolist() == [value]
        assert stream.unused == 0


def test_the_far_digit_adds_a_fresh_geometric() -> None:
    # exp(-512/10) is below 2^-64, so only a second word can decide that 2^9 was reached.
    sampler = DigitSampler(Fraction(10), signed=True)
    assert int(sampler._limits[9]) == 0
    reached = [*[ONES] * 9, 0, ONES]
    fresh = [ONES, 0, *[ONES] * 8]
    assert sampler.draw(ScriptedStream([*reached, 0, *fresh]), 1).tolist() == [512 + 2]
    assert sampler.draw(ScriptedStream([*reached, ONES]), 1).tolist() == [0]
    negative = [*[0] * 9, 0, 0]  # the digits below are void once 2^9 is reached
    assert sampler.draw(ScriptedStream([*negative, 0, *fresh]), 1).tolist() == [~(512 + 2)]


def test_the_far_digit_can_be_reached_more_than_once() -> None:
    sampler = DigitSampler(Fraction(10), signed=False)
    reached = [*[ONES] * 9, 0]
    stream = ScriptedStream([*reached, 0, *reached, 0, *[ONES] * 8, 0, ONES])
    assert sampler.draw(stream, 1).tolist() == [512 + 512 + 256]


def test_the_two_largest_words_clear_every_digit_and_zero_sets_them_all() -> None:
    sampler = DigitSampler(Fraction(10), signed=False)
    assert sampler.draw(ScriptedStream([0] * 9 + [ONES]), 1).tolist() == [511]
    assert sampler.draw(ScriptedStream([ONES] * 10), 1).tolist() == [0]


@each(
    ("script", "value"),
    [([ONES, ONES, 0], int(128 * math.log(2) * 3)), ([ONES] * 4, int(256 * math.log(2) * 3))],
)
def test_the_walk_beyond_a_table_inverts_the_tail_exactly(script: list[int], value: int) -> None:
    # U = 1 - 2^-128 (and 1 - 2^-256): G = floor(-t ln(1 - U)), far beyond the listed symbols.
    ((table, _),) = DigitSampler(Fraction(3), signed=False)._tables()
    assert value >= len(table._limits)
    stream = ScriptedStream([*script, 0])
    assert table.draw(stream, 1).tolist() == [value]
    guided = ScriptedStream([(script[0] << 16) & ONES, *script[1:], 0], [0xFFFF])
    assert table.draw_guided(guided, 1).tolist() == [value]


def test_a_tie_in_a_guided_chunk_falls_to_both_sides() -> None:
    ((table, _),) = DigitSampler(Fraction(5, 2), signed=True)._tables()
    for symbol in (0, 1, 2, 9):
        tie = int(table._limits[symbol])
        for next_word, expected in [(0, symbol), (ONES, symbol + 1)]:
            stream = ScriptedStream([(tie << 16) & ONES, next_word], [tie >> 48])
            assert table.draw_guided(stream, 1).tolist() == [expected]


# Every size and every scale.


def test_all_paths_by_size_give_the_right_length_and_type() -> None:
    t = Fraction(22, 7)
    for size in (0, 1, SMALL, SMALL + 1, WORTH_TABLES, WORTH_TABLES + 1, CHUNK + 5, 3 * CHUNK - 1):
        sampler = DigitSampler(t, signed=True)
        for _ in range(2):
            drawn = sampler.draw(SeededStream(size), size)
            assert drawn.dtype == np.int64
            assert drawn.shape == (size,)
        if size > 10_000:
            # Every part of the output was written: chi-square at 1e-9 on each third.
            for part in np.array_split(drawn, 3):
                follows(part, laplace_law(t, 100), -100)


def scales() -> st.SearchStrategy[Fraction]:
    exponents = st.integers(-9, 11)
    mantissas = st.fractions(1, 10, max_denominator=10**6)
    return st.builds(lambda e, m: m * Fraction(10) ** e, exponents, mantissas)


@given(scales(), st.sampled_from([0, 1, 2, 50]))
@settings(max_examples=150, deadline=None)
def test_any_scale_gives_whole_numbers_of_plausible_size(t: Fraction, size: int) -> None:
    # P[|X| > 33 t] <= 2 exp(-33), so below 1e-12 for each batch of at most 50.
    for drawn in (noise.discrete_laplace(t, size), noise.geometric(t, size)):
        assert drawn.dtype == np.int64
        assert drawn.shape == (size,)
        assert all(abs(x) <= 33 * t for x in drawn.tolist())
    assert noise.geometric(t, size).min(initial=0) >= 0


@given(scales())
@settings(max_examples=15, deadline=None)
def test_any_scale_gives_plausible_large_batches(t: Fraction) -> None:
    # P[|X| > 39 t] <= 2 exp(-39): below 1e-12 for each batch.
    drawn = digit_sampler(t, signed=True).draw(SeededStream(1), WORTH_TABLES + 1)
    assert int(np.abs(drawn).max()) <= 39 * t
    if t >= 1:
        # Half of all draws reach ln 2 * t, give or take 1: at 0.2 t none in 30,000 cannot be.
        assert int(np.abs(drawn).max()) >= 5 * t


@each("t", ["1e-9", "1e-12", "1e-400", "1e-4000", Fraction(1, 10**5000)])
def test_a_tiny_scale_answers_zero_at_once(t: str | Fraction) -> None:
    for size in (1, 3000, 40_000):
        assert not noise.discrete_laplace(t, size).any()
        assert not noise.geometric(t, size).any()


def test_the_largest_scale_fits() -> None:
    # P[|X| > 2^54] < exp(-64), and half of the draws exceed 2^47.
    for size in (1000, 40_000):
        drawn = np.abs(noise.discrete_laplace(LARGEST_SCALE, size))
        assert drawn.max() < 1 << 54
        assert np.median(drawn) > 1 << 46


def test_a_draw_takes_the_same_words_for_every_value() -> None:
    sampler = DigitSampler(Fraction(10), signed=True)
    taken, values = set(), set()
    for seed in range(500):
        stream = CountingStream(SeededStream(seed))
        values.add(int(sampler.draw(stream, 1)[0]))
        taken.add(stream.bytes_taken)
    assert len(values) > 20
    assert taken == {8 * 11}


# Many threads, much noise.


def test_threads_draw_the_right_law_and_leave_the_precision_alone() -> None:
    before = ctx.prec
    drawn: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    failed: list[BaseException] = []
    start = threading.Barrier(8)
    scale = Fraction(1001, 143)

    def draw(own: int) -> None:
        try:
            start.wait()
            for i in range(6):
                # New scales build thresholds and tables while the others draw.
                noise.discrete_laplace(Fraction(1000 + own, 7 + i), 40_000)
                noise.discrete_gaussian(Fraction(100 + own, 7 + i), 3000)
                drawn.append(noise.discrete_laplace(scale, 3000 if i % 2 else 40_000))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=draw, args=(own,)) for own in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert ctx.prec == before
    # Chi-square at 1e-9; and no two threads draw the same batch (chance below 2^-1000).
    follows(np.concatenate(drawn), laplace_law(scale, 300), -300)
    assert len({part[:500].tobytes() for part in drawn}) == len(drawn)


@each("signed", [True, False])
def test_twenty_million_draws_need_little_more_than_their_result(signed: bool) -> None:
    size = 20_000_000
    sampler = digit_sampler(Fraction(100), signed=signed)
    sampler.draw(SeededStream(0), WORTH_TABLES + 1)
    tracemalloc.start()
    try:
        drawn = sampler.draw(SYSTEM, size)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(drawn) == size
    assert peak < 8 * size + (8 << 20)
