"""Exact numbers: what is accepted, what is refused, and that rounding goes where it says."""

from __future__ import annotations

import copy
import math
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from lapwing.core import noise
from lapwing.core.exact import (
    ball,
    exact,
    exp_of,
    exp_up,
    grouped,
    halve,
    least_near,
    log_up,
    lower,
    positive,
    precision,
    round_down,
    round_up,
    sqrt_up,
    upper,
    whole,
)
from lapwing.errors import BadParameter, BadValue
from lapwing.prices import DecimalFraction
from support import laws
from support.cases import each
from support.raised import named
from support.streams import RefusingStream


@each(
    ("number", "meant"),
    [
        (0.1, Fraction(1, 10)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.int64(7), Fraction(7)),
        (np.uint8(7), Fraction(7)),
        ("1/3", Fraction(1, 3)),
        ("0.1", Fraction(1, 10)),
        ("1e-9", Fraction(1, 10**9)),
        ("1E4000", Fraction(10**4000)),
        (1e300, Fraction(10**300)),
        (5e-324, Fraction(5, 10**324)),
        (Decimal("0.10"), Fraction(1, 10)),
        (Fraction(-2, 6), Fraction(-1, 3)),
        (10**5000, Fraction(10**5000)),
        (-0.0, Fraction(0)),
    ],
)
def test_a_number_is_what_a_person_means_by_it(number: Any, meant: Fraction) -> None:
    assert exact(number) == meant


BAD_NUMBERS: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    np.float64("nan"),
    "nan",
    "inf",
    "NaN",
    "1e999999999",
    "1e-999999999",
    "1e4001",
    "1e" + "9" * 3000,
    Decimal("1e999999999"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    "",
    "one",
    "1/0",
    "1e5/3",
    "0x10",
    "1_0",
    "1e1_0",
    "\uff11",
    "\u0661.5",
    "1" * 5000,
    True,
    False,
    np.True_,
    None,
    1j,
    [1],
    b"1",
    np.array([1]),
    np.array(1.0),
]


@each("bad", BAD_NUMBERS)
def test_what_is_no_finite_number_is_refused_at_once(bad: Any) -> None:
    before = time.process_time()
    with pytest.raises(BadParameter):
        exact(bad, "scale")
    assert time.process_time() - before < 1


@each("bad", [*BAD_NUMBERS, 0, 0.0, -0.0, -1, "-1e-9", "0", Fraction(-1, 3)])
def test_positive_refuses_all_that_and_what_is_not_above_zero(bad: Any) -> None:
    with pytest.raises(BadParameter):
        positive(bad, "scale")


def test_whole_numbers_are_whole() -> None:
    three: Any = np.int32(3)
    assert whole(three, "size") == 3
    assert type(whole(three, "size")) is int
    assert type(whole(Fraction(three, 3), "size")) is int  # a rational that is whole already
    for bad in (True, np.True_, 1.0, "1", None, -1, np.int64(-1), Fraction(3, 2)):
        with pytest.raises(BadParameter):
            whole(bad, "size")  # type: ignore[arg-type]


@given(st.fractions())
def test_balls_hold_their_number_and_ends_enclose_it(value: Fraction) -> None:
    for bits in (20, 64, 300):
        with precision(bits):
            assert lower(ball(value)) <= value <= upper(ball(value))
            assert round_down(ball(value), 1000) <= value * 1000 <= round_up(ball(value), 1000)
    assert round_up(value, 7) == math.ceil(value * 7)
    assert round_down(value, 7) == math.floor(value * 7)


@given(st.fractions(Fraction(1, 10**6), 1000, max_denominator=10**6))
def test_upward_functions_round_up_and_not_far(value: Fraction) -> None:
    small = Fraction(1, 2**89)
    with localcontext(laws.CONTEXT):
        log = laws.fraction(laws.decimal(value).ln())
        root = laws.fraction(laws.decimal(value).sqrt())
    power = laws.fraction(laws.exp(value))
    slack = Fraction(1, 10**80)
    assert log - slack <= log_up(value) <= log + small * (1 + abs(log))
    assert root - slack <= sqrt_up(value) <= root + small * (1 + root)
    assert power * (1 - slack) <= exp_up(value) <= power * (1 + small)


def test_roots_of_squares_are_exact() -> None:
    assert sqrt_up(Fraction(49, 4)) == Fraction(7, 2)
    assert sqrt_up(0) == 0


def test_the_precision_is_restored_also_after_an_error_and_when_nested() -> None:
    before = ctx.prec
    with precision(100):
        assert ctx.prec == 100
        with precision(300):
            assert ctx.prec == 300
        assert ctx.prec == 100
    assert ctx.prec == before
    with pytest.raises(ZeroDivisionError), precision(100):
        raise ZeroDivisionError
    assert ctx.prec == before


def test_threads_with_different_precisions_do_not_disturb_each_other() -> None:
    def ends(bits: int) -> tuple[Fraction, Fraction]:
        found = exp_of(Fraction(1, 3))(bits)
        with precision(bits):
            assert ctx.prec == bits
            return lower(found), upper(found)

    truth = laws.fraction(laws.exp(Fraction(1, 3)))
    alone = {bits: ends(bits) for bits in range(64, 192, 16)}
    for bits, (low, high) in alone.items():
        assert low <= truth <= high
        # Two units of radius and one of outward rounding on each side; a unit is 2^(1 - bits) here.
        assert high - low <= Fraction(12, 2**bits)
    wrong: list[int] = []

    def compute(bits: int) -> None:
        wrong.extend(bits for _ in range(200) if ends(bits) != alone[bits])

    threads = [threading.Thread(target=compute, args=(bits,)) for bits in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_forked_while_another_thread_computes_is_not_locked_out() -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with precision(777):
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a deadlock ends the child with a signal
        try:
            noise.discrete_laplace(Fraction(123_457, 1000), 10)
            os._exit(0)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    done.set()
    thread.join()
    assert status == 0


# Every public sampler refuses bad input before anything is drawn.

SCALED: list[Callable[[Any], object]] = [
    lambda scale: noise.discrete_laplace(scale, 3),
    lambda scale: noise.geometric(scale, 3),
    lambda scale: noise.discrete_gaussian(scale, 3),
    lambda scale: noise.polya_share(scale, 3, parties=2),
]
SIZED: list[Callable[[Any], object]] = [
    lambda size: noise.discrete_laplace(1, size),
    lambda size: noise.geometric(1, size),
    lambda size: noise.discrete_gaussian(1, size),
    lambda size: noise.polya_share(1, size, parties=2),
    lambda size: noise.bernoulli(0.5, size),
    lambda size: noise.exponential_choice([1, 2], 1, size),
    lambda size: noise.uniform_int(0, 5, size),
    noise.permutation,
]


@pytest.fixture
def nothing_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "SYSTEM", RefusingStream())


@pytest.mark.usefixtures("nothing_drawn")
@each("sampler", SCALED)
@each("bad", [*BAD_NUMBERS, 0, -1, 2**49, 2**48 + 1, "1e4000", Fraction(-1, 3)])
def test_bad_scales_are_refused(sampler: Callable[[Any], object], bad: Any) -> None:
    with pytest.raises(BadParameter):
        sampler(bad)


@pytest.mark.usefixtures("nothing_drawn")
@each("sampler", SIZED)
@each("bad", [-1, True, 1.0, "3", None, math.nan, 2**40 + 1, 10**100, [3]])
def test_bad_sizes_are_refused(sampler: Callable[[Any], object], bad: Any) -> None:
    with pytest.raises(BadParameter):
        sampler(bad)


@pytest.mark.usefixtures("nothing_drawn")
@each("bad", [*BAD_NUMBERS, -0.1, 1.1, "2", Fraction(-1, 10**30)])
def test_bad_probabilities_are_refused(bad: Any) -> None:
    with pytest.raises(BadParameter):
        noise.bernoulli(bad, 3)


@pytest.mark.usefixtures("nothing_drawn")
@each("bad", [*BAD_NUMBERS, 0, -1])
def test_bad_rates_are_refused(bad: Any) -> None:
    with pytest.raises(BadParameter):
        noise.exponential_choice([1, 2], bad)
    with pytest.raises(BadParameter):
        noise.bernoulli_exp([1, 2], rate=bad)


@pytest.mark.usefixtures("nothing_drawn")
@each(
    "bad",
    [
        [],
        [math.nan],
        [1, math.inf],
        [True, 1],
        ["1e999999999"],
        [None],
        [[1, 2]],
        "12",
        b"12",
        np.array([]),
        np.array([], dtype=np.int64),
        np.array(5),
        np.array([1.0, 2.0]),
        np.array([1.0], dtype=np.float32),
        np.array([math.nan]),
        np.array([True, False]),
        np.array([1j]),
        np.array([[1, 2]]),
        np.array([2**63], dtype=np.uint64),
        [2**62],
        [1, "1e-30"],
    ],
)
def test_bad_scores_are_refused(bad: Any) -> None:
    with pytest.raises((BadParameter, BadValue)):
        noise.exponential_choice(bad, 1)
    with pytest.raises((BadParameter, BadValue)):
        noise.bernoulli_exp(bad)


@pytest.mark.usefixtures("nothing_drawn")
def test_other_bad_input_is_refused() -> None:
    with pytest.raises(BadValue):
        noise.exponential_choice(np.array([-(2**62), 2**62]), 1)
    with pytest.raises(BadParameter):
        noise.bernoulli_exp([1, -1])
    with pytest.raises(BadParameter):
        noise.bernoulli_exp(np.array([-(2**63)]))
    for low, high in [(0, 0), (1, 0), (0, 2**63 + 1), (-(2**63) - 1, 0), (True, 5), (0.0, 5)]:
        with pytest.raises(BadParameter):
            noise.uniform_int(low, high, 3)  # type: ignore[arg-type]
    for parties in (0, -1, 1.5, True, "2"):
        with pytest.raises(BadParameter):
            noise.polya_share(1, 3, parties=parties)  # type: ignore[arg-type]


def test_a_text_that_is_no_number_is_told_how_to_write_one() -> None:
    for text in ("0,5", "half", ""):
        with pytest.raises(BadParameter, match="as in"):
            exact(text, "epsilon")


def test_messages_name_the_parameter() -> None:
    with pytest.raises(BadParameter, check=named("sigma")):
        noise.discrete_gaussian(-1, 3)
    with pytest.raises(BadParameter, check=named("scale")):
        noise.discrete_laplace(math.nan, 3)


def test_the_largest_accepted_scale_is_accepted() -> None:
    for sampler in SCALED:
        sampler(2**48)
    assert noise.LARGEST_SCALE == 2**48


def test_reals_of_huge_exponents_are_tiny_balls() -> None:
    for bits in (64, 1152):
        assert abs(exp_of(Fraction(-(10**4000)))(bits)) < arb(2) ** -2000


@each(
    ("number", "text"),
    [
        (29957.3, "29,960"), (1e6, "1,000,000"), (60, "60"), (0.0123456, "0.01235"), (0, "0"),
        (-1234.56, "-1,235"), (2.5e15, "2.5e15"), (math.inf, "inf"), (999.96, "1,000"), (1e-6, "1e-6"),
    ],
)  # fmt: skip
def test_large_numbers_are_shown_without_exponents(number: float, text: str) -> None:
    assert grouped(number, 4) == text


@given(st.integers(1, 10**12), st.integers(-5, 10**13))
def test_the_least_number_is_found_from_any_guess(least: int, guess: int) -> None:
    assert least_near(lambda number: number >= least, guess) == least


@given(st.integers(1, 10**12), st.integers(-3, 3))
def test_a_good_guess_is_quick(least: int, off: int) -> None:
    tried: list[int] = []

    def holds(number: int) -> bool:
        tried.append(number)
        return number >= least

    assert least_near(holds, least + off) == least
    assert len(tried) <= 7
    assert min(tried) > 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0.3", "0.3"),
        ("1/3", "0.333333333333"),
        ("3", "3"),
        ("1e-6", "1e-06"),
        ("0", "0"),
        ("-2.5", "-2.5"),
    ],
)
def test_a_decimal_fraction_prints_as_a_decimal_and_computes_exactly(value: str, text: str) -> None:
    number, plain = DecimalFraction(value), Fraction(value)
    assert str(number) == repr(number) == f"{number}" == text
    assert f"{number:.1f}" == f"{float(plain):.1f}"
    assert (number, hash(number), number * 3) == (plain, hash(plain), plain * 3)
    assert type(number + 1) is Fraction
    for again in (pickle.loads(pickle.dumps(number)), copy.deepcopy(number)):
        assert (again, type(again)) == (plain, DecimalFraction)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(0, 60))
def test_halving_keeps_the_border_between_its_ends(border: float, length: float, times: int) -> None:
    low, high = halve(lambda x: x >= border, border - length, border + length, times=times)
    assert low < border <= high
    assert high - low <= 2.1 * length / 2**times + 1e-9


def test_many_intervals_are_halved_as_each_alone() -> None:
    borders = np.array([0.1, 2.0, 3.7, 9.99])
    starts, ends = np.zeros(4), np.array([1.0, 5.0, 4.0, 10.0])
    lows, highs = halve(lambda x: x >= borders, starts, ends, times=40)
    for border, end, low, high in zip(borders, ends, lows, highs, strict=True):
        alone = halve(lambda x, border=border: x >= border, 0.0, float(end), times=40)  # type: ignore[misc]
        assert alone == (low, high)
        assert low < border <= high
