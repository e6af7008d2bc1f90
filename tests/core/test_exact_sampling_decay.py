"""exp(-x) in floats within its proven margin, and exact coins of that probability."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lapwing.core import noise
from lapwing.core.exact import precision
from lapwing.core.exact_sampling import (
    LARGEST_EXPONENT,
    RELATIVE_ERROR,
    bernoulli_exp,
    exp_neg,
    float_error,
    float_product,
)
from support import laws
from support.cases import each
from support.streams import ONES, ScriptedStream, SeededStream


def worst_error(x: NDArray[np.float64]) -> float:
    """The largest relative error of exp_neg over the points, computed in balls."""
    worst = 0.0
    results = exp_neg(x)
    with precision(128):
        for point, result in zip(x.tolist(), results.tolist(), strict=True):
            error = abs(arb(result) * arb(point).exp() - 1)
            worst = max(worst, float(error.upper()))
    return worst


def neighbours(points: NDArray[np.float64]) -> NDArray[np.float64]:
    around = [points, np.nextafter(points, np.inf), np.nextafter(points, -np.inf)]
    return np.unique(np.clip(np.concatenate(around), 0, LARGEST_EXPONENT))


def test_the_margin_holds_on_a_dense_set() -> None:
    generator = np.random.Generator(np.random.Philox(1))
    uniform = generator.random(20_000) * LARGEST_EXPONENT
    small = 2.0 ** -(generator.random(5000) * 60)
    assert worst_error(np.concatenate([uniform, small])) < RELATIVE_ERROR


def test_the_margin_holds_at_every_kind_of_edge() -> None:
    table_points = np.arange(0, 700 * 1024, 37) / 1024
    halfway = (np.arange(0, 700 * 1024, 41) + 0.5) / 1024  # |r| is largest here
    coarse = np.arange(0, 700, 16).astype(np.float64)
    ends = np.array([0.0, 5e-324, 2.2e-308, 2.0**-1022, 2.0**-11, 2.0**-53, 15.9995, LARGEST_EXPONENT])
    for points in (table_points, halfway, coarse, coarse + 0.5 / 1024, ends):
        assert worst_error(neighbours(points)) < RELATIVE_ERROR


def test_the_proof_is_close_to_the_truth() -> None:
    # r^4/24 at r = 2^-11 is 2^-48.6: the worst point must show it, or the points are not the worst.
    halfway = (np.arange(0, 20_000, 7) + 0.5) / 1024
    assert 2.0**-49 < worst_error(halfway) < 2.0**-48


def test_zero_gives_exactly_one_and_beyond_the_end_exactly_zero() -> None:
    result = exp_neg(np.array([0.0, LARGEST_EXPONENT, np.nextafter(LARGEST_EXPONENT, 1000), 1e300, np.inf]))
    assert result[0] == 1.0
    assert result[1] > 0
    assert result[2:].tolist() == [0.0, 0.0, 0.0]


def test_it_never_exceeds_one_and_keeps_its_argument() -> None:
    x = np.linspace(0, 710, 5000)
    before = x.copy()
    assert np.all(exp_neg(x) <= 1)
    assert np.array_equal(x, before)
    assert len(exp_neg(np.empty(0))) == 0


@given(
    st.integers(0, 2**63 - 1),
    st.fractions(min_value=Fraction(1, 10**30), max_value=10**30, max_denominator=10**30),
)
def test_gaps_in_floats_are_within_the_stated_error_of_the_exact_ones(whole: int, rate: Fraction) -> None:
    approximate = exp_neg(float_product(np.array([whole]), rate))[0]
    x = whole * rate
    true = float(laws.exp(-x)) if x < 10**6 else 0.0
    # Relative up to 700, absolute beyond; the comparison itself rounds once more.
    assert abs(approximate - true) <= true * (float_error(LARGEST_EXPONENT) + 2.0**-52) + math.exp(-699)


@each("rate", [Fraction(10**4000), Fraction(10) ** 281, Fraction(1, 10**4000)])
def test_rates_beyond_floats_make_no_nan(rate: Fraction) -> None:
    gaps = float_product(np.array([0, 1, 2**62]), rate)
    assert np.all(np.isfinite(gaps))
    assert exp_neg(gaps)[0] == 1.0
    assert exp_neg(gaps).tolist()[1:] == ([0.0, 0.0] if rate > 1 else [1.0, 1.0])


@each("numerator", [1, 2, 7, 30])
def test_the_exact_value_decides_on_both_sides_of_the_edge(numerator: int) -> None:
    rate = Fraction(1, 3)
    p = laws.fraction(laws.exp(-numerator * rate))
    edge = int(p * 2**64)
    numerators = np.array([numerator])
    for word, more, expected in [
        (edge - 1, [], True),
        (edge, [0], True),
        (edge, [ONES], False),
        (edge + 1, [], False),
        (edge - 1000, [], True),
        (edge + 1000, [], False),
    ]:
        stream = ScriptedStream([word, *more])
        assert bernoulli_exp(stream, numerators, rate).tolist() == [expected]
        assert stream.unused == 0


def test_a_tiny_probability_is_still_not_zero() -> None:
    # exp(-100) lies below the margin of the floats: only the exact comparison can say yes.
    numerators = np.array([100])
    # It is 2^-144.3, so the third word decides, at 2^47.7.
    for third, heads in [(0, True), (1 << 47, True), (1 << 48, False), (ONES, False)]:
        stream = ScriptedStream([0, 0, third])
        assert bernoulli_exp(stream, numerators, Fraction(1)).tolist() == [heads]
    assert bernoulli_exp(ScriptedStream([0, ONES]), numerators, Fraction(1)).tolist() == [False]
    beyond = np.array([800])  # exp(-800) is 0 to the floats, and near 2^-1154.2 in truth
    assert bernoulli_exp(ScriptedStream([0, 1]), beyond, Fraction(1)).tolist() == [False]


def test_zero_is_certain_for_every_word() -> None:
    words = [0, 1, ONES - 1, ONES]
    assert bernoulli_exp(ScriptedStream(words), np.zeros(4, dtype=np.int64), Fraction(5)).all()


@each("x", [Fraction(1, 100), Fraction(1, 3), Fraction(1), Fraction(5)])
def test_coins_fall_as_often_as_they_should(x: Fraction) -> None:
    # Clopper-Pearson at 1e-9.
    size = 300_000
    numerators = np.full(size, x.numerator, dtype=np.int64)
    heads = int(bernoulli_exp(SeededStream(1), numerators, Fraction(1, x.denominator)).sum())
    low, high = laws.between(heads, size)
    assert low < float(laws.exp(-x)) < high


def test_public_coins_take_rational_exponents() -> None:
    heads = noise.bernoulli_exp([0, "0.5", Fraction(10**6, 3), 0.0])
    assert heads.dtype == np.bool_
    assert heads[0]
    assert heads[3]
    assert not heads[2]  # true with probability exp(-333333)
    assert noise.bernoulli_exp(np.zeros(5, dtype=np.uint64)).all()
    assert not noise.bernoulli_exp(np.array([2**63 - 1]), rate="1e4000").any()
    assert noise.bernoulli_exp(np.array([2**63 - 1]), rate="1e-4000").all()
