"""Discrete Gaussian noise: tables, blocks, exact rejection."""

from __future__ import annotations

import math
import os
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.exact import lower, precision, upper
from lapwing.core.gaussian_sampler import (
    AT_ONCE,
    DIRECT_BELOW,
    FLAT_AFTER,
    LOT,
    SMALL,
    BlockGaussian,
    DirectGaussian,
    GaussianWeights,
    _sampler,
    discrete_gaussian,
    gaussian_lots,
)
from lapwing.core.random_stream import SYSTEM
from lapwing.errors import NoEntropy
from support import laws
from support.cases import each
from support.laws import cumulative, follows, fraction, gaussian_law
from support.slowly import first
from support.streams import ONES, CountingStream, ScriptedStream, SeededStream

DIRECT = [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(10), Fraction(159, 10)]
BLOCKS = [Fraction(16), Fraction(47, 2), Fraction(100), Fraction(1000)]
TINY = Fraction(1, 10**50)


def filled(sampler: DirectGaussian | BlockGaussian, seed: int, size: int, batch: int) -> NDArray[np.int64]:
    out = np.empty(size, dtype=np.int64)
    stream = SeededStream(seed)
    for start in range(0, size, batch):
        sampler.fill(stream, out[start : start + batch])
    return out


def reach_of(sigma: Fraction) -> int:
    return math.ceil(22 * sigma) + 2


# The exact law, without any randomness.


@each("sigma", DIRECT)
def test_the_table_matches_an_independent_cdf(sigma: Fraction) -> None:
    reach = reach_of(sigma)
    law = gaussian_law(sigma, reach)
    order = [reach]
    for k in range(1, reach + 1):
        order += [reach + k, reach - k]
    sums = cumulative([law[i] for i in order])
    limits = DirectGaussian(sigma)._table._limits.tolist()
    for limit, p in zip(limits, sums, strict=False):
        assert limit <= fraction(p) * 2**64 + TINY
        assert fraction(p) * 2**64 < limit + Fraction(3, 2)
    assert 1 - fraction(sums[len(limits) - 1]) < Fraction(1, 2**60)


@each("sigma", BLOCKS)
def test_blocks_offsets_and_rejection_multiply_out_to_the_exact_law(sigma: Fraction) -> None:
    sampler = BlockGaussian(sigma)
    width = 1 << sampler._bits
    assert sigma / 24 < width <= sigma / 12
    seen: dict[int, Fraction] = {}
    for block in range(40):
        with precision(300):
            below = sampler._table._cdf(block - 1)(300) if block else 0
            share = sampler._table._cdf(block)(300) - below
            weight = (lower(share) + upper(share)) / 2
        for offset in range(0, width, max(width // 8, 1)):
            for negative in (0, 1):
                inward = offset + negative
                start = block * width
                x = start + inward
                keep = fraction(laws.exp(-Fraction(x * x - start * start) / (2 * sigma**2)))
                value = -x if negative else x
                assert value not in seen
                seen[value] = weight * keep / (2 * width)
    centre = seen[0]
    for value, p in seen.items():
        due = centre * fraction(laws.exp(-Fraction(value * value) / (2 * sigma**2)))
        assert abs(p - due) < due / 10**50
    assert {0, -1} <= set(seen)


def test_balls_of_the_weights_shrink_around_the_truth() -> None:
    weights = GaussianWeights(Fraction(3), 1, both_sides=True)
    law = gaussian_law(Fraction(3), 120)
    centre = fraction(law[120])
    for bits in (64, 128, 256):
        ball = weights.cdf(0)(bits)
        with precision(bits + 64):
            low, high = lower(ball), upper(ball)
        assert low - TINY <= centre <= high + TINY
        assert high - low < Fraction(1, 2 ** (bits - 1))


def test_a_symbol_beyond_the_sums_still_has_a_ball_that_holds_its_cdf() -> None:
    ball = GaussianWeights(Fraction(1), 1, both_sides=True).cdf(10_000)(128)
    with precision(256):
        assert 1 - Fraction(1, 2**128) < lower(ball) <= 1 <= upper(ball)


# Statistics: chi-square at 1e-9 each, on seeded streams.


@each("sigma", DIRECT)
@each("batch", [SMALL, LOT])
def test_small_sigmas_follow_their_law(sigma: Fraction, batch: int) -> None:
    reach = reach_of(sigma)
    follows(filled(DirectGaussian(sigma), 1, 300_000, batch), gaussian_law(sigma, reach), -reach)


@each("sigma", BLOCKS)
@each("batch", [SMALL - 500, LOT])
def test_large_sigmas_follow_their_law(sigma: Fraction, batch: int) -> None:
    reach = math.ceil(12 * sigma)
    follows(filled(BlockGaussian(sigma), 2, 400_000, batch), gaussian_law(sigma, reach), -reach)


def test_both_samplers_agree_where_they_meet() -> None:
    law = gaussian_law(Fraction(20), 300)
    follows(filled(DirectGaussian(Fraction(20)), 3, 400_000, LOT), law, -300)
    follows(filled(BlockGaussian(Fraction(20)), 4, 400_000, LOT), law, -300)


@each("sigma", [Fraction(7, 2), Fraction(1000), Fraction(10**12)])
def test_moments_and_tails_are_those_of_the_law(sigma: Fraction) -> None:
    # Moments at 6.5 deviations (2e-10 together), tails by Clopper-Pearson at 1e-9 each.
    size = 400_000
    drawn = discrete_gaussian(SeededStream(5), sigma, size).astype(np.float64) / float(sigma)
    assert abs(drawn.mean()) < 6.5 / math.sqrt(size)
    assert abs(np.mean(drawn**2) - 1) < 6.5 * math.sqrt(2 / size)
    assert abs(np.mean(drawn**4) - 3) < 6.5 * math.sqrt(96 / size)
    if sigma >= 1000:
        for k in (0.5, 1, 2, 3, 4):
            low, high = laws.between(int((np.abs(drawn) >= k).sum()), size)
            # The grid moves a tail by less than the density times one step of it.
            assert low - 1 / float(sigma) <= math.erfc(k / math.sqrt(2)) <= high + 1 / float(sigma)


def test_rejection_is_rare() -> None:
    for sigma in BLOCKS:
        kept = len(BlockGaussian(sigma)._accepted(SeededStream(6), 30_000))
        assert kept > 0.9 * 30_000


# Both sides of every refinement, forced by a script.


@each(("place", "negative"), [(0, 1), (3, 0), (3, 1), (7, 0), (7, 1)])
def test_rejection_is_decided_exactly_on_both_sides(place: int, negative: int) -> None:
    sampler = BlockGaussian(Fraction(100))
    assert sampler._bits == 3
    x = place + negative
    edge = int(fraction(laws.exp(Fraction(-x * x, 20_000))) * 2**64)
    value = -x if negative else x
    word = (negative << 63) | place
    for coin, more, kept in [
        (edge - 1, [], [value]),
        (edge, [0], [value]),
        (edge, [ONES], []),
        (edge + 1, [], []),
        (edge + 400, [], []),
    ]:
        stream = ScriptedStream([0, word, coin, *more])
        assert sampler._accepted(stream, 1).tolist() == kept
        assert stream.unused == 0


def test_the_innermost_place_is_always_kept() -> None:
    sampler = BlockGaussian(Fraction(100))
    for coin in (0, 1, ONES - 1, ONES):
        assert sampler._accepted(ScriptedStream([0, 0, coin]), 1).tolist() == [0]


def test_a_rejected_draw_is_replaced_by_the_next_kept_one() -> None:
    sampler = BlockGaussian(Fraction(100))
    out = np.full(1, 12345, dtype=np.int64)
    blocks, places = [0] * 9, [7] * 8 + [5]
    sampler.fill(ScriptedStream([*blocks, *places, *[ONES] * 8, 0]), out)
    assert out.tolist() == [5]
    # All nine rejected: a second round is drawn.
    sampler.fill(ScriptedStream([*blocks, *[7] * 9, *[ONES] * 9, *blocks, 4, *[7] * 8, 0]), out)
    assert out.tolist() == [4]


def test_a_tie_between_symbols_is_decided_exactly() -> None:
    table = DirectGaussian(Fraction(3))._table
    for symbol in (0, 1, 2, 7):
        tie = int(table._limits[symbol])
        for next_word, expected in [(0, symbol), (ONES, symbol + 1)]:
            assert table.draw(ScriptedStream([tie, next_word]), 1).tolist() == [expected]
            guided = ScriptedStream([(tie << 16) & ONES, next_word], [tie >> 48])
            assert table.draw_guided(guided, 1).tolist() == [expected]


@each("words", [1, 2, 3])
def test_the_walk_beyond_the_table_finds_the_right_tail_symbol(words: int) -> None:
    # U = 1 - 2^-(64 words) exactly: the symbol is the number of cdf values at or below it.
    sigma, reach = Fraction(1), 40
    law = gaussian_law(sigma, reach)
    order = [reach + (k + 1) // 2 * (1 if k % 2 else -1) for k in range(2 * reach + 1)]
    # Tails from the far end, so that nothing cancels.
    tails = cumulative([law[i] for i in reversed(order)])[::-1]
    gap = Fraction(1, 2 ** (64 * words))
    expected = sum(fraction(tail) >= gap for tail in tails[1:])
    stream = ScriptedStream([ONES] * words + [0, 0])
    table = DirectGaussian(sigma)._table
    assert table.draw(stream, 1).tolist() == [expected]
    out = np.empty(1, dtype=np.int64)
    DirectGaussian(sigma).fill(ScriptedStream([ONES] * words + [0, 0]), out)
    assert out.tolist() == [(expected + 1) // 2 * (1 if expected % 2 else -1)]
    if words > 1:
        assert expected >= len(table._limits) - 4


# Every size and every sigma.


def scales() -> st.SearchStrategy[Fraction]:
    mantissas = st.fractions(1, 10, max_denominator=10**6)
    return st.builds(lambda e, m: m * Fraction(10) ** e, st.integers(-9, 11), mantissas)


@given(scales(), st.sampled_from([0, 1, 2, 50]))
@settings(max_examples=100, deadline=None)
def test_any_sigma_gives_whole_numbers_of_plausible_size(sigma: Fraction, size: int) -> None:
    # P[|X| >= k] <= 2 exp(-k^2 / 2 sigma^2): at 8.2 sigma below 1e-12 for each batch of 50.
    drawn = noise.discrete_gaussian(sigma, size)
    assert drawn.dtype == np.int64
    assert drawn.shape == (size,)
    assert all(abs(x) <= 8.2 * sigma for x in drawn.tolist())


@each("sigma", [Fraction(15, 2), Fraction(33), Fraction(10**9)])
@each("size", [0, 1, SMALL, SMALL + 1, LOT - 1, LOT, LOT + 1])
def test_every_size_is_filled(sigma: Fraction, size: int) -> None:
    drawn = discrete_gaussian(SeededStream(7), sigma, size)
    assert drawn.shape == (size,)
    assert drawn.dtype == np.int64
    assert all(abs(x) <= 9 * sigma for x in drawn.tolist())


@each("sigma", ["1e-9", "1e-400", "1e-4000"])
def test_a_tiny_sigma_answers_zero_at_once(sigma: str) -> None:
    assert not noise.discrete_gaussian(sigma, 3000).any()


def test_the_largest_sigma_fits() -> None:
    # P[|X| > 9 sigma] < 1e-17 for each draw.
    drawn = noise.discrete_gaussian(noise.LARGEST_SCALE, 50_000)
    assert np.abs(drawn).max() < 9 << 48
    assert np.abs(drawn).max() > 3 << 48


def test_the_border_between_the_samplers_is_where_it_is_said() -> None:
    below = Fraction(DIRECT_BELOW) - Fraction(1, 10**9)
    for sigma in (below, Fraction(DIRECT_BELOW)):
        follows(discrete_gaussian(SeededStream(8), sigma, 300_000), gaussian_law(sigma, 200), -200)


def test_a_small_sigma_takes_the_same_bytes_whatever_is_drawn() -> None:
    # The padding is exceeded with probability below 1e-15 for each chunk.
    for size in (1, 100, LOT):
        taken = set()
        for seed in range(30):
            stream = CountingStream(SeededStream(seed))
            discrete_gaussian(stream, Fraction(5), size)
            taken.add(stream.bytes_taken)
        assert len(taken) == 1


@pytest.mark.parametrize("sigma", first(1, [Fraction(500), Fraction(5)]))
@pytest.mark.slow
def test_five_million_draws_need_little_more_than_their_result(sigma: Fraction) -> None:
    size = 5_000_000
    discrete_gaussian(SeededStream(0), sigma, LOT)
    tracemalloc.start()
    try:
        discrete_gaussian(SYSTEM, sigma, size)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * size + (8 << 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sigma", first(2, [Fraction(500), Fraction(noise.LARGEST_SCALE), Fraction(5), Fraction(10**12)])
)
def test_floats_are_the_same_whole_numbers(sigma: Fraction) -> None:
    for size in (100, FLAT_AFTER + AT_ONCE + 5 * LOT + 7):
        _sampler.cache_clear()
        floats = np.concatenate([lot.copy() for lot in gaussian_lots(SeededStream(9), sigma, size)])
        _sampler.cache_clear()  # so that the tables come at the same draw
        whole = discrete_gaussian(SeededStream(9), sigma, size)
        _sampler.cache_clear()
        assert np.array_equal(floats.astype(np.int64), whole)
        assert np.array_equal(floats, np.rint(floats))
    sizes = [len(lot) for lot in noise.discrete_gaussian_lots(sigma, 2 * LOT + 7)]
    assert sizes == [LOT, LOT, 7]


def test_a_forked_child_does_not_go_on_with_draws_that_its_parent_began() -> None:
    drawn = noise.discrete_gaussian_lots(1000, 3 * LOT)
    next(drawn)
    child = os.fork()
    if not child:
        try:
            next(drawn)
        except NoEntropy:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(next(drawn)) == LOT  # its parent does
