"""The exponential choice: exact probabilities, forced ties, extreme scores."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.core import noise
from lapwing.core.exact import Number, lower, precision, upper
from lapwing.core.exact_sampling import ExponentialChoice
from lapwing.errors import BadValue
from support import laws
from support.cases import each
from support.laws import choice_law, cumulative, follows, fraction
from support.streams import ONES, CountingStream, ScriptedStream, SeededStream

TINY = Fraction(1, 10**50)


def choice_of(scores: list[int], rate: Fraction, counts: list[int] | None = None) -> ExponentialChoice:
    gaps = max(scores) - np.array(scores, dtype=np.int64)
    return ExponentialChoice(gaps, rate, None if counts is None else np.array(counts, dtype=np.int64))


CASES: list[tuple[list[int], Fraction, list[int] | None]] = [
    ([0, 0, 0], Fraction(1), None),
    ([0, 1, 2, 3, 4, 5], Fraction(1, 2), None),
    ([5, -3, 2, 2, 0], Fraction(1, 3), None),
    ([1, 2, 3], Fraction(2), [1000, 10, 1]),
    ([7], Fraction(1), None),
    ([0, 3000, 10, 2999], Fraction(1), None),
    (list(range(50)), Fraction(1, 7), list(range(50, 0, -1))),
]


@each(("scores", "rate", "counts"), CASES)
def test_floats_and_balls_of_the_shares_both_hold_the_exact_shares(
    scores: list[int], rate: Fraction, counts: list[int] | None
) -> None:
    choice = choice_of(scores, rate, counts)
    for i, share in enumerate(cumulative(choice_law(scores, rate, counts))):
        assert abs(Fraction(float(choice._shares[i])) - fraction(share)) < choice._margin / 2
        ball = choice.cdf(i)(256)
        with precision(320):
            low, high = lower(ball), upper(ball)
        assert low - TINY <= fraction(share) <= high + TINY
        assert high - low < TINY


@each(("scores", "rate", "counts"), CASES)
def test_choices_follow_their_law(scores: list[int], rate: Fraction, counts: list[int] | None) -> None:
    # Chi-square at 1e-9.
    drawn = choice_of(scores, rate, counts).draw(SeededStream(1), 300_000)
    assert drawn.dtype == np.int64
    if len(scores) == 1:
        assert not drawn.any()
    else:
        follows(drawn, choice_law(scores, rate, counts))


@given(
    st.lists(st.integers(-30, 30), min_size=1, max_size=12),
    st.fractions(Fraction(1, 100), 5, max_denominator=100),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_every_word_gives_the_index_whose_interval_holds_it(
    scores: list[int], rate: Fraction, data: st.DataObject
) -> None:
    choice = choice_of(scores, rate)
    shares = [Fraction(0), *(fraction(s) for s in cumulative(choice_law(scores, rate)))]
    shares[-1] = Fraction(1)
    edges = [int(share * 2**64) for share in shares]
    words = {data.draw(st.integers(0, ONES)), 0, ONES}
    words |= {min(max(e + d, 0), ONES) for e in edges for d in (-9999, -2, -1, 0, 1, 2, 9999)}
    for word in words:
        for next_word in (0, ONES):
            (index,) = choice.draw(ScriptedStream([word, next_word]), 1).tolist()
            low = Fraction((word << 64) | next_word, 2**128)
            assert shares[index] <= low + Fraction(1, 2**128)
            assert low <= shares[index + 1]


def test_a_tie_between_equal_scores_falls_to_both_sides() -> None:
    choice = choice_of([0, 0, 0], Fraction(1))
    third, two_thirds = 0x5555_5555_5555_5555, 0xAAAA_AAAA_AAAA_AAAA
    for word, next_word, index in [
        (third, third - 1, 0),
        (third, third + 1, 1),
        (two_thirds, two_thirds - 1, 1),
        (two_thirds, two_thirds + 1, 2),
    ]:
        stream = ScriptedStream([word, next_word])
        assert choice.draw(stream, 1).tolist() == [index]
        assert stream.unused == 0


def test_the_walk_passes_over_several_shares_that_floats_cannot_tell_apart() -> None:
    # Nine scores 40 below the best: their shares differ by exp(-40), far inside the margin.
    scores = [0] * 9 + [40]
    choice = choice_of(scores, Fraction(1))
    shares = [fraction(s) for s in cumulative(choice_law(scores, Fraction(1)))]
    for index in range(9):
        digits = int(shares[index] * 2**128)
        for beside, expected in [(digits - 5, index), (digits + 5, index + 1)]:
            stream = ScriptedStream([beside >> 64, beside & ONES])
            assert choice.draw(stream, 1).tolist() == [expected]


def test_an_index_of_probability_exp_minus_1000_can_be_reached_only_exactly() -> None:
    choice = choice_of([0, 1000], Fraction(1))
    # exp(-1000) is 2^-1442.7: beyond 1088 bits nothing is drawn, so 23 zero words stay undecided.
    assert choice.draw(ScriptedStream([0, 1]), 1).tolist() == [1]
    assert choice.draw(ScriptedStream([0, 0, 0, ONES]), 1).tolist() == [1]
    nearer = choice_of([0, 100], Fraction(1))
    assert nearer.draw(ScriptedStream([0, 0, 1 << 47]), 1).tolist() == [0]
    assert nearer.draw(ScriptedStream([0, 0, 1 << 48]), 1).tolist() == [1]


def test_the_last_word_gives_the_last_index() -> None:
    for scores in ([0, 0, 0], [0, 1, 2, 3], [5, 4, 3]):
        choice = choice_of(scores, Fraction(1))
        assert choice.draw(ScriptedStream([ONES, ONES]), 1).tolist() == [len(scores) - 1]
        assert choice.draw(ScriptedStream([0, 0]), 1).tolist() == [0]


def test_one_word_is_taken_for_each_index() -> None:
    stream = CountingStream(SeededStream(1))
    choice_of([0, 1, 2], Fraction(1)).draw(stream, 1000)
    assert stream.bytes_taken == 8000


def test_public_choices_take_rationals_and_shift_freely() -> None:
    # Chi-square at 1e-9, on the system's own stream.
    scores: list[Number] = [Fraction(1, 3), "0.5", 0.25, 1]
    law = choice_law([Fraction(1, 3), Fraction(1, 2), Fraction(1, 4), 1], Fraction(3))
    follows(noise.exponential_choice(scores, 3, 100_000), law)
    top = np.array([2**63 - 1, 2**63 - 2, 2**63 - 1 - 2**61])
    follows(noise.exponential_choice(top, 1, 50_000), choice_law([1, 0], Fraction(1)))


def test_extreme_rates_and_counts_stay_exact() -> None:
    assert set(noise.exponential_choice([0, 1], "1e4000", 1000).tolist()) == {1}
    # Clopper-Pearson at 1e-9.
    low, high = laws.between(int(noise.exponential_choice([0, 2**61], "1e-4000", 9999).sum()), 9999)
    assert low < 0.5 < high
    counts = np.array([2**62, 2**62])
    drawn = noise.exponential_choice([0, 0], 1, 9999, counts=counts)
    low, high = laws.between(int(drawn.sum()), 9999)
    assert low < 0.5 < high


def test_many_candidates_work() -> None:
    drawn = noise.exponential_choice(np.zeros(200_000, dtype=np.int64), 1, 1000)
    assert drawn.min() >= 0
    assert drawn.max() < 200_000
    # A repeat-free or constant result would be a fault: 1,000 of 200,000 repeat at most 30 times
    # (mean 2.5, Poisson), except with probability below 1e-20.
    assert len(np.unique(drawn)) >= 970


@each(
    "counts",
    [
        np.array([1, 2, 3]),
        np.array([1, 0]),
        np.array([1, -1]),
        np.array([1.0, 2.0]),
        np.array([[1, 2]]),
        np.array([True, True]),
    ],
)
def test_bad_counts_are_refused(counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    with pytest.raises(BadValue):
        noise.exponential_choice([0, 1], 1, counts=counts)


def test_counts_may_be_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    for counts in ([5, 1, 3], (5, 1, 3), np.array([5, 1, 3])):
        monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(1))
        drawn.append(noise.exponential_choice([0, 2, 1], "0.5", 200, counts=counts).tolist())
    assert drawn[0] == drawn[1] == drawn[2]
    assert set(drawn[0]) == {0, 1, 2}


@each(
    "counts",
    [
        [1, 0],
        [1, -1],
        [1],
        [],
        [1, 1, 1],
        [1, 1.5],
        [1, True],
        [1, None],
        [1, 2**63],
        "12",
        3,
        {1, 2},
        [[1, 1]],
    ],
)
def test_counts_that_are_no_multiplicities_are_refused(counts: Any) -> None:
    with pytest.raises(BadValue, match="one per score"):
        noise.exponential_choice([0, 1], 1, counts=counts)
