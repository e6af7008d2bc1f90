"""Polya shares: their law, and that they add up to discrete Laplace noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.exact import Real, precision
from lapwing.core.laplace_sampler import PolyaSampler, polya_sampler
from lapwing.core.random_stream import RandomStream
from support import laws
from support.cases import each
from support.laws import cumulative, decimal, difference_law, follows, fraction, laplace_law, polya_law
from support.streams import ONES, ScriptedStream, SeededStream

TINY = Fraction(1, 10**40)
PAIRS = [
    (Fraction(1), Fraction(10)),
    (Fraction(1, 2), Fraction(7, 2)),
    (Fraction(1, 3), Fraction(1, 3)),
    (Fraction(1, 10), Fraction(20)),
]


@each(("r", "t"), PAIRS)
def test_the_count_of_parts_is_exactly_poisson(r: Fraction, t: Fraction) -> None:
    with localcontext(laws.CONTEXT):
        mean = -(1 - laws.exp(-1 / t)).ln() * decimal(r)
        law = [(-mean).exp()]
        for k in range(1, 120):
            law.append(law[-1] * mean / k)
    for limit, p in zip(PolyaSampler(r, t)._number._limits.tolist(), cumulative(law), strict=True):
        assert limit <= fraction(p) * 2**64 + TINY
        assert fraction(p) * 2**64 < limit + Fraction(3, 2)


@each("t", [Fraction(1, 300), Fraction(1, 3), Fraction(10), Fraction(10**6)])
def test_blocks_places_and_rejection_multiply_out_to_the_logarithmic_law(t: Fraction) -> None:
    sampler = PolyaSampler(Fraction(1), t)
    table = sampler._blocks
    weights = [laws.exp(-(1 << b) / t) for b in range(max(len(table._limits) + 6, 10))]
    with localcontext(laws.CONTEXT):
        total = sum(weights)
        sums = [s / total for s in cumulative(weights)]
    for limit, p in zip(table._limits.tolist(), sums, strict=False):
        assert limit <= fraction(p) * 2**64 + TINY
        assert fraction(p) * 2**64 < limit + Fraction(3, 2)
    # q^(2^b) / 2^b * (2^b / k) q^(k - 2^b) is q^k / k for every k: nothing of b is left.
    for k in (1, 2, 3, 7, 8, 1000):
        b = k.bit_length() - 1
        composed = fraction(weights[b]) * Fraction(1, k) * fraction(laws.exp(-(k - (1 << b)) / t))
        due = fraction(laws.exp(-k / t)) / k
        assert abs(composed - due) <= due * TINY


@each(("r", "t"), PAIRS)
def test_shares_follow_their_law(r: Fraction, t: Fraction) -> None:
    # Chi-square at 1e-9.
    follows(PolyaSampler(r, t).draw(SeededStream(1), 200_000), polya_law(r, t, int(40 * t) + 5))


@each("t", [Fraction(1, 2), Fraction(7, 2), Fraction(10)])
@each("parties", [1, 2, 5])
def test_the_parts_of_all_parties_add_up_to_discrete_laplace_noise(t: Fraction, parties: int) -> None:
    # Chi-square at 1e-9.
    shares = polya_sampler(Fraction(1, parties), t)
    size, reach = 150_000, int(30 * t) + 1
    total = np.zeros(size, dtype=np.int64)
    for party in range(parties):
        total += shares.draw(SeededStream(2 * party), size)
        total -= shares.draw(SeededStream(2 * party + 1), size)
    follows(total, laplace_law(t, reach), -reach)


def test_one_public_part_has_the_law_of_a_difference() -> None:
    # Chi-square at 1e-9, on the system's own stream.
    law = difference_law(polya_law(Fraction(1, 4), Fraction(10), 900), 400)
    follows(noise.polya_share(10, 200_000, parties=4), law, -400)


def test_missing_parties_leave_less_than_laplace_noise() -> None:
    shares = [noise.polya_share(10, 100_000, parties=4) for _ in range(3)]
    statistic, bound = laws.chi_square(sum(shares[1:], shares[0]), laplace_law(Fraction(10), 400), -400)
    assert statistic > bound


def test_moments_of_large_scales_are_right() -> None:
    # The variance of one of m parts is 1/m of the whole. Its fourth moment is below 6 m + 3 squared
    # variances, so the mean square is within 6.5 deviations except with about 1e-10.
    t, parties, size = 10**9, 3, 200_000
    drawn = noise.polya_share(t, size, parties=parties).astype(np.float64) / t
    variance = 2 / parties
    assert abs(drawn.mean()) < 6.5 * math.sqrt(variance / size)
    relative = np.mean(drawn**2) / variance - 1
    assert abs(relative) < 6.5 * math.sqrt((6 * parties + 3) / size)


# Both sides of the rejection, forced by a script.


@each("place", [2, 3])
def test_rejection_is_decided_exactly_on_both_sides(place: int) -> None:
    t = Fraction(10)
    sampler = PolyaSampler(Fraction(1), t)
    block = int(sampler._blocks._limits[0]) + 1000  # block 1 holds the places 2 and 3
    p = fraction(laws.exp(-Fraction(place - 2) / t)) * Fraction(2, place)
    edge = int(p * 2**64)
    if place == 2:
        for coin in (0, ONES):
            assert sampler._accepted(ScriptedStream([block, 0, coin]), 1).tolist() == [2]
        return
    for coin, more, kept in [
        (edge - 1, [], [3]),
        (edge, [0], [3]),
        (edge, [ONES], []),
        (edge + 1, [], []),
    ]:
        stream = ScriptedStream([block, 1, coin, *more])
        assert sampler._accepted(stream, 1).tolist() == kept
        assert stream.unused == 0


def test_ties_between_blocks_and_between_counts_fall_to_both_sides() -> None:
    sampler = PolyaSampler(Fraction(1, 2), Fraction(10))
    for table in (sampler._blocks, sampler._number):
        for symbol in (0, 1, 3):
            tie = int(table._limits[symbol])
            assert table.draw(ScriptedStream([tie, 0]), 1).tolist() == [symbol]
            assert table.draw(ScriptedStream([tie, ONES]), 1).tolist() == [symbol + 1]


def test_the_walk_beyond_the_listed_blocks_ends() -> None:
    sampler = PolyaSampler(Fraction(1), Fraction(10))
    listed = len(sampler._blocks._limits)
    for words in range(1, 17):
        stream = ScriptedStream([ONES] * words + [0, 0])
        block = int(sampler._blocks.draw(stream, 1)[0])
        # Block b has less than exp(-2^b / 10): it starts with 2^b <= 10 * 64 ln 2 * words, or next.
        assert (1 << block) <= 2 * 10 * 64 * math.log(2) * words
    assert block >= listed - 1
    number = int(sampler._number.draw(ScriptedStream([ONES] * 12 + [0, 0]), 1)[0])
    assert number > 120


def test_a_share_of_no_parts_is_zero_and_parts_are_summed_where_they_belong() -> None:
    sampler = PolyaSampler(Fraction(1), Fraction(10))
    limits = sampler._number._limits
    numbers = [0, int(limits[1]) + 9, 0, int(limits[0]) + 9]  # 0, 2, 0 and 1 parts
    # Three parts are due: fourteen candidates, all in block 0, where the only place is 1.
    stream = ScriptedStream([*numbers, *[0] * 42])
    assert sampler.draw(stream, 4).tolist() == [0, 2, 0, 1]


# Every size, every scale.


@given(
    st.builds(
        lambda e, m: m * Fraction(10) ** e,
        st.integers(-9, 11),
        st.fractions(1, 10, max_denominator=1000),
    ),
    st.sampled_from([0, 1, 2, 50]),
    st.integers(1, 10**6),
)
@settings(max_examples=40, deadline=None)
def test_any_scale_gives_whole_numbers_of_plausible_size(t: Fraction, size: int, parties: int) -> None:
    # A part is a difference of two numbers that a geometric exceeds: P[beyond 33 t] <= 2 exp(-33).
    drawn = noise.polya_share(t, size, parties=parties)
    assert drawn.dtype == np.int64
    assert drawn.shape == (size,)
    assert all(abs(x) <= 34 * t for x in drawn.tolist())


@each("t", ["0.001", "1e-9", "1e-400", "1e-4000"])
def test_a_tiny_scale_answers_zero_at_once(t: str) -> None:
    for parties in (1, 3, 10**50):
        assert not noise.polya_share(t, 500, parties=parties).any()


def test_the_largest_scale_fits() -> None:
    # P[beyond 45 t] <= 2 exp(-45) for each draw.
    drawn = noise.polya_share(2**48, 20_000, parties=1)
    assert np.abs(drawn).max() < 45 << 48
    assert np.abs(drawn).max() > 1 << 48


def test_the_margin_of_rejection_covers_the_error_of_its_floats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def checked(
        stream: RandomStream,
        approximate: NDArray[np.float64],
        margin: float,
        real_of: Callable[[int], Real],
    ) -> NDArray[np.bool_]:
        for i in range(len(approximate)):
            with precision(256):
                assert abs(float(real_of(i)(256) - float(approximate[i]))) <= margin
        return np.ones(len(approximate), dtype=bool)

    monkeypatch.setattr("lapwing.core.laplace_sampler.coins_near", checked)
    for t in (Fraction(1, 3), Fraction(77, 10), Fraction(10**9)):
        PolyaSampler(Fraction(1, 3), t)._accepted(SeededStream(5), 300)
