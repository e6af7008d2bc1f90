"""Inversion sampling: the table, the guide, their ties, and the walk beyond the table."""

from __future__ import annotations

import sys
import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.core.exact import Real
from lapwing.core.exact_sampling import BUCKETS, CUT, Inversion, padded_count, rational
from support.cases import each
from support.laws import decimal, follows
from support.streams import ONES, CountingStream, ScriptedStream, SeededStream


def table_of(law: list[Fraction]) -> Inversion:
    """Inversion of a finite rational law."""

    def cdf(symbol: int) -> Real:
        return rational(min(sum(law[: symbol + 1], Fraction(0)), Fraction(1)))

    return Inversion(cdf, len(law))


def halving() -> Inversion:
    """P[s] = 2^-(s + 1), with 60 listed symbols: everything is a binary fraction."""
    return Inversion(lambda s: rational(1 - Fraction(1, 2 ** (s + 1))), 60)


def laws() -> st.SearchStrategy[list[Fraction]]:
    weights = st.lists(st.integers(0, 10**6), min_size=1, max_size=40).filter(any)
    return weights.map(lambda ws: [Fraction(w, sum(ws)) for w in ws])


LAW = [Fraction(n, 70) for n in (10, 1, 0, 0, 30, 9, 20)]


@given(laws(), st.integers(0, ONES))
@settings(max_examples=200)
def test_every_word_gives_the_symbol_whose_interval_holds_it(law: list[Fraction], near: int) -> None:
    table = table_of(law)
    words = {near, 0, ONES}
    words |= {(int(x) + d) % 2**64 for x in table._limits[:5] for d in (-2, -1, 0, 1, 2)}
    for word in words:
        for next_word in (0, ONES):
            stream = ScriptedStream([word, next_word, next_word])
            (symbol,) = table.draw(stream, 1).tolist()
            # U starts with these digits; below 2^-191 nothing is left of it.
            low = Fraction((word << 128) | (next_word << 64) | next_word, 2**192)
            high = low + Fraction(1, 2**192)
            assert sum(law[:symbol], Fraction(0)) < high
            assert low < sum(law[: symbol + 1], Fraction(0))
            assert law[symbol] > 0


@given(laws(), st.integers(0, BUCKETS - 1), st.integers(0, 2**48 - 1))
@settings(max_examples=100)
def test_the_guide_and_the_words_agree_on_the_same_number(
    law: list[Fraction], bucket: int, rest: int
) -> None:
    table = table_of(law)
    cases = {(bucket, rest)}
    for limit in table._limits[:6].tolist():
        for d in (-3, -2, -1, 0, 1, 2, 3):
            cases.add(divmod((limit + d) % 2**64, 2**48))
    for leading, below in cases:
        for next_word in (0, ONES):
            guided = table.draw_guided(ScriptedStream([below << 16, next_word], [leading]), 1)
            words = table.draw(ScriptedStream([(leading << 48) | below, next_word]), 1)
            assert guided.tolist() == words.tolist()


def test_a_tie_in_the_guide_path_falls_to_both_sides() -> None:
    table = table_of([Fraction(1, 3), Fraction(2, 3)])
    tie = 0x5555_5555_5555_5555
    assert table.guide[0][tie >> 48] == CUT
    rest = (tie << 16) & ONES
    for next_word, symbol in [(tie - 1, 0), (tie + 1, 1)]:
        stream = ScriptedStream([rest, next_word], [tie >> 48])
        assert table.draw_guided(stream, 1).tolist() == [symbol]
        assert stream.unused == 0


def test_a_bucket_that_is_not_cut_answers_without_looking_at_the_rest() -> None:
    table = table_of([Fraction(1, 3), Fraction(2, 3)])
    for rest in (0, ONES):
        assert table.draw_guided(ScriptedStream([rest], [0x5554]), 1).tolist() == [0]
        assert table.draw_guided(ScriptedStream([rest], [0x5556]), 1).tolist() == [1]


def test_every_bucket_of_the_guide_is_right_for_all_its_words() -> None:
    table = table_of(LAW)
    guide, share = table.guide
    sums = np.cumsum([0, *LAW])
    for bucket in range(BUCKETS):
        if guide[bucket] != CUT:
            assert sums[guide[bucket]] * BUCKETS <= bucket
            assert bucket + 1 <= sums[guide[bucket] + 1] * BUCKETS
    # Five distinct thresholds: each cuts one bucket, or two when it lies on a border.
    assert 5 <= round(share * BUCKETS) <= 10


@each("symbol", [59, 60, 61, 70, 127, 128, 200])
def test_the_walk_finds_symbols_beyond_the_table(symbol: int) -> None:
    # U = 0.11...1 0 ... with `symbol` ones: exactly the first number of that symbol's interval.
    ones = (1 << symbol) - 1
    digits = ones << (256 - symbol)
    script = [(digits >> shift) & ONES for shift in (192, 128, 64, 0)]
    assert halving().draw(ScriptedStream(script), 1).tolist() == [symbol]
    rest = (script[0] << 16) & ONES
    guided = ScriptedStream([rest, *script[1:]], [script[0] >> 48])
    assert halving().draw_guided(guided, 1).tolist() == [symbol]


def test_symbols_of_probability_zero_are_never_drawn_and_the_rest_follow_their_law() -> None:
    # Chi-square at 1e-9, for each path.
    law = [p for p in LAW if p]
    rank = np.cumsum([p > 0 for p in LAW]) - 1
    table = table_of(LAW)
    for drawn in (
        table.draw(SeededStream(3), 300_000),
        table.draw_guided(SeededStream(4), 300_000).astype(np.int64),
    ):
        assert set(np.unique(drawn).tolist()) == {0, 1, 4, 5, 6}
        follows(rank[drawn], [decimal(p) for p in law])


def test_a_tie_beside_the_border_of_a_bucket_cuts_both_buckets() -> None:
    table = table_of([Fraction(1, 4), Fraction(3, 4)])
    guide, _ = table.guide
    for reached in (-1, 0, 1):
        assert guide[(int(table._limits[0]) + reached) >> 48] == CUT
    for bucket, symbol in [(0x3FFE, 0), (0x3FFF, CUT), (0x4000, CUT), (0x4001, 1)]:
        assert guide[bucket] == symbol


def test_what_lies_above_the_table_is_never_answered_by_the_guide() -> None:
    table = Inversion(lambda s: rational(1 - Fraction(1, 2 ** (s + 1))), 3)
    assert np.all(table.guide[0][0xE000:] == CUT)
    for leading, symbol in [(0xDFF0, 2), (0xE000, 3), (0xF000, 4), (0xFFFE, 15)]:
        assert table.draw_guided(ScriptedStream([0], [leading]), 1).tolist() == [symbol]


def test_one_symbol_is_always_drawn() -> None:
    table = table_of([Fraction(1)])
    assert not table.draw(SeededStream(5), 1000).any()
    assert not table.draw_guided(SeededStream(5), 1000).any()
    for word in (0, 1, ONES - 1, ONES):
        assert table.draw(ScriptedStream([word]), 1).tolist() == [0]


def test_nothing_is_drawn_for_no_draws() -> None:
    assert len(table_of(LAW).draw(SeededStream(0), 0)) == 0
    assert len(table_of(LAW).draw_guided(SeededStream(0), 0)) == 0


def test_the_guide_takes_the_same_number_of_bytes_whatever_is_drawn() -> None:
    # More refinements than the padding allows: probability below 1e-15 for each of 200 batches.
    table = table_of(LAW)
    taken = set()
    for seed in range(200):
        stream = CountingStream(SeededStream(seed))
        table.draw_guided(stream, 5000)
        taken.add(stream.bytes_taken)
    assert len(taken) == 1


@given(st.floats(0, 1), st.integers(0, 10**6))
def test_the_padding_covers_the_mean_and_never_exceeds_the_batch(share: float, size: int) -> None:
    assert min(size, share * size) <= padded_count(share, size) <= size


def test_a_cdf_that_falls_is_refused() -> None:
    with pytest.raises(AssertionError):
        Inversion(lambda s: rational(Fraction(1, s + 1)), 3)


def test_threads_that_meet_at_a_new_guide_see_it_whole() -> None:
    """A half-published guide would let the mark of a cut bucket (-1) out as a symbol."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    wrong: list[int] = []
    try:
        for _ in range(20):
            table = table_of([Fraction(1, 300)] * 300)
            start = threading.Barrier(8)

            def draw(seed: int, table: Inversion = table, start: threading.Barrier = start) -> None:
                start.wait()
                for _ in range(5):
                    wrong.extend(np.flatnonzero(table.draw_guided(SeededStream(seed), 2000) < 0))

            threads = [threading.Thread(target=draw, args=(seed,)) for seed in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong
