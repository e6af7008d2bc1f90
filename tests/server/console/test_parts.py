"""Values that the pages print."""

from __future__ import annotations

import math
from fractions import Fraction

from lapwing.server.console.parts import FREE, Axis, Gauge, Price, Whisker, nice_step, spark
from lapwing.server.console.words import SPACE


def test_a_gauge_says_what_is_left_after_an_action_and_what_it_takes() -> None:
    gauge = Gauge.show(Fraction(4, 5), Fraction(3, 2), takes=Fraction(1, 5), marks=True)
    assert (gauge.left, gauge.takes) == ("40.00%", "13.33%")
    assert (gauge.amount, gauge.of) == (f"ε{SPACE}0.6", "1.5")
    assert gauge.gaps == ("50.00%", "20.00%", "5.00%")


def test_a_gauge_says_the_last_step_that_is_passed() -> None:
    spent = [Gauge.show(Fraction(left), Fraction(100)).spent for left in (51, 50, 20, 5, 0)]
    assert spent == ["", "past 50 %", "past 80 %", "past 95 %", "past 95 %"]


def test_an_action_takes_no_more_than_is_left() -> None:
    gauge = Gauge.show(Fraction(1), Fraction(2), takes=Fraction(5))
    assert (gauge.left, gauge.takes) == ("0.00%", "50.00%")


def test_a_price_of_nothing_is_free() -> None:
    assert Price.of(Fraction(0)) == FREE
    assert not Price.of(Fraction(1, 5)).is_free


def test_axes_have_round_ends_around_all_values() -> None:
    axis = Axis.around([1219.0, 3129.0])
    assert axis.low <= 1219
    assert axis.high >= 3129
    assert axis.low % 500 == axis.high % 500 == 0
    assert Axis.around([5.0], zero=True).low == 0
    assert Axis.around([math.inf, 2.0, 4.0]).high < math.inf
    assert Axis.around([]).low < Axis.around([]).high
    assert 0.0 in Axis.around([-12.0, 63.0]).ticks()


def test_a_step_divides_into_at_most_so_many() -> None:
    for length in (0.03, 1.0, 7.0, 99.0, 12345.0):
        step = nice_step(length, 5)
        assert length / step <= 5 * (1 + 1e-9)
        assert round(step / 10 ** math.floor(math.log10(step) + 1e-9)) in (1, 2, 5, 10)


def test_a_whisker_lies_inside_its_axis() -> None:
    axis = Axis(-100.0, 100.0)
    one = Whisker.on(axis, 0.0, -math.inf, 50.0)
    assert (one.low, one.value, one.high, one.zero) == ("0.00%", "50.00%", "75.00%", "50.00%")
    assert Whisker.on(Axis(0.0, 10.0), 1.0, 0.0, 2.0).zero == ""


def test_small_pictures_leave_out_what_is_not_finite() -> None:
    assert spark([], [], []) == ()
    assert len(spark([1.0, math.nan], [0.0, 0.0], [2.0, math.inf])) == 1
    assert len(spark([1.0] * 30, [0.5] * 30, [1.5] * 30)) == 12
    [one] = spark([-3.0], [-4.0], [-2.0])
    assert float(one.height) == 0
