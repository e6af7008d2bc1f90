"""Losses: every part of sums, maxima and groups; what cannot be built."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.core.budget import Terms
from lapwing.core.exact import exp_up, lower, precision, upper
from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import (
    MOST_SUMMED,
    Approximate,
    BoundedRange,
    Concentrated,
    GaussianNoise,
    LaplaceNoise,
    Loss,
    ParallelComposition,
    Pure,
    SequentialComposition,
    checked_delta,
    checked_epsilon,
)
from lapwing.errors import BadParameter
from support.cases import each
from support.losses import sampled

ZERO, ONE, HALF, TENTH = Fraction(0), Fraction(1), Fraction(1, 2), Fraction(1, 10)
PURE, NOISE = Pure(HALF), GaussianNoise(Fraction(3), Fraction(4), 1)
SELECTION = Approximate(TENTH, Fraction(1, 10**6))


def renyi(loss: Loss, order: int = 3) -> float:
    value = loss.renyi(Fraction(order))
    assert value is not None
    return float(value)


class Unknown(Loss):
    """Nothing is known about it."""

    def renyi(self, order: Fraction) -> None:
        return None

    def for_group(self, size: int) -> Unknown:
        return self


# Single losses.


def test_each_loss_knows_its_parts() -> None:
    assert (PURE.delta0, PURE.pure, PURE.pair) == (ZERO, HALF, (HALF, ZERO))
    assert (SELECTION.delta0, SELECTION.pure, SELECTION.pair) == (Fraction(1, 10**6), TENTH, (TENTH, ZERO))
    assert (NOISE.delta0, NOISE.pure, NOISE.pair) == (ZERO, None, None)
    assert Concentrated(TENTH).pair is None
    assert LaplaceNoise(Fraction(4), 2).pure == HALF
    assert BoundedRange(HALF).pure == HALF
    assert sampled(TENTH, ONE).pure is None


def test_steps_of_a_sampled_run_add_up() -> None:
    once, often = sampled(TENTH, ONE), sampled(TENTH, ONE, 7)
    assert renyi(often) == pytest.approx(7 * renyi(once), rel=1e-14)


@given(st.fractions(Fraction(1, 10**6), 10**6, max_denominator=10**6), st.integers(0, 100))
def test_pair_units_are_the_pair_rounded_up(scale: Fraction, distance: int) -> None:
    loss = LaplaceNoise(scale, distance)
    units = loss.pair_units(10**9, 10**18)
    assert units == Loss.pair_units(loss, 10**9, 10**18)
    assert units[0] - 1 < loss.pure * 10**9 <= units[0]


# Several releases.


def test_a_sum_adds_every_part() -> None:
    both = SequentialComposition((PURE, SELECTION))
    assert both.delta0 == Fraction(1, 10**6)
    assert both.pure == HALF + TENTH
    assert both.pair == (HALF + TENTH, ZERO)
    assert renyi(both) == pytest.approx(renyi(PURE) + renyi(SELECTION), rel=1e-14)


def test_the_worst_takes_the_greatest_of_every_part() -> None:
    either = ParallelComposition((PURE, SELECTION))
    assert either.delta0 == Fraction(1, 10**6)
    assert either.pure == HALF
    assert either.pair == (HALF, ZERO)
    assert renyi(either) == max(renyi(PURE), renyi(SELECTION))


@each("kind", [SequentialComposition, ParallelComposition])
def test_a_bound_that_one_lacks_all_lack(
    kind: type[SequentialComposition] | type[ParallelComposition],
) -> None:
    several = kind((PURE, NOISE))
    assert several.pure is None
    assert several.pair is None
    assert renyi(several) >= renyi(NOISE)
    unknown = kind((PURE, Unknown()))
    assert unknown.renyi(Fraction(2)) is None
    assert unknown.renyi_units((2, 3), 10**9) is None


@each("kind", [SequentialComposition, ParallelComposition])
def test_no_releases_cost_nothing(kind: type[SequentialComposition] | type[ParallelComposition]) -> None:
    nothing = kind(())
    assert (nothing.delta0, nothing.pure, nothing.pair) == (ZERO, ZERO, (ZERO, ZERO))
    assert nothing.renyi_units((2, 3), 10**9) == [0, 0]


def test_a_sum_is_rounded_once() -> None:
    """3 x 0.4 units are 2 units, not 3."""
    small = Concentrated(Fraction(4, 10) / 10**9 / 2)
    assert SequentialComposition((small, small, small)).renyi_units((2,), 10**9) == [2]


def test_sums_nest_and_keep_the_pair_of_a_fixed_run() -> None:
    pytest.importorskip("dp_accounting")
    run = FixedRun.of((GaussianNoise(Fraction(50), ONE, 1), 10), delta="1e-8")
    several = SequentialComposition((SequentialComposition((PURE, run)), PURE))
    assert several.pair == (run.pair[0] + 1, Fraction(1, 10**8))
    assert several.pure is None
    assert ParallelComposition((PURE, run)).pair == (max(HALF, run.pair[0]), Fraction(1, 10**8))


# Groups.


@given(st.integers(1, 20))
def test_groups_of_simple_losses(k: int) -> None:
    assert Pure(TENTH).for_group(k) == Pure(k * TENTH)
    assert BoundedRange(TENTH).for_group(k) == BoundedRange(k * TENTH)
    assert LaplaceNoise(Fraction(9), 2).for_group(k) == LaplaceNoise(Fraction(9), 2 * k)
    assert Concentrated(TENTH).for_group(k) == Concentrated(k * k * TENTH)
    assert NOISE.for_group(k) == GaussianNoise(Fraction(3), Fraction(4 * k * k), 1)


@given(st.integers(1, 12), st.fractions(0, 3, max_denominator=50))
def test_a_group_of_an_approximate_loss_pays_a_geometric_sum(k: int, epsilon: Fraction) -> None:
    """An event's probability grows by p -> e^ε p + δ in every step, and no faster."""
    delta = Fraction(1, 10**20)
    group = Approximate(epsilon, delta).for_group(k)
    assert group.epsilon == k * epsilon
    with mpmath.workdps(60):
        step, p = mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator), mpmath.mpf(0)
        for _ in range(k):
            p = p * step + mpmath.mpf(10) ** -20
        stated = mpmath.mpf(group.delta.numerator) / group.delta.denominator
        assert p * (1 - mpmath.mpf(10) ** -50) <= stated <= p * (1 + mpmath.mpf(10) ** -25)


def test_a_group_never_has_more_than_certain_failure() -> None:
    assert Approximate(Fraction(10), TENTH).for_group(5).delta == 1


@each(("epsilon", "delta"), [(0, "1e-30"), ("1e-9", "1e-18"), (1, "1e-300"), (1, 0)])
def test_a_group_of_any_size_is_quick(epsilon: Any, delta: Any) -> None:
    """A sum of 10^18 terms is not built term by term; short and long sums agree."""
    loss = Approximate(epsilon, delta)
    assert loss.for_group(10**18).delta == min(loss.delta * 10**18, 1) or loss.epsilon
    assert loss.for_group(10**30).delta == (1 if loss.delta else 0)
    short, long = loss.for_group(MOST_SUMMED).delta, loss.for_group(MOST_SUMMED + 1).delta
    next_term = loss.delta * exp_up(MOST_SUMMED * loss.epsilon)
    assert long == min(long, 1)
    assert abs(long - min(short + next_term, Fraction(1))) <= long / 10**25


def test_a_group_of_one_is_the_loss_itself() -> None:
    """It keeps the mark that it holds only where neighbours add or remove a unit."""
    sampled = ParallelComposition((PURE,))
    assert sampled.for_group(1) == sampled


def test_a_group_may_meet_several_disjoint_sets() -> None:
    assert ParallelComposition((PURE, SELECTION)).for_group(2) == SequentialComposition(
        (PURE.for_group(2), SELECTION.for_group(2))
    )
    assert SequentialComposition((PURE, NOISE)).for_group(2) == SequentialComposition(
        (PURE.for_group(2), NOISE.for_group(2))
    )


def test_a_sampled_run_has_no_group_bound() -> None:
    with pytest.raises(BadParameter, match="name the group as the unit"):
        sampled(TENTH, ONE).for_group(2)


@each("loss", [PURE, SELECTION, NOISE, BoundedRange(HALF), LaplaceNoise(ONE, 1)])
@each("size", [0, -1, True, 1.5])
def test_a_group_has_at_least_one_unit(loss: Loss, size: int) -> None:
    with pytest.raises(BadParameter):
        loss.for_group(size)


@given(st.integers(1, 6), st.integers(1, 40))
def test_groups_of_gaussian_noise_cost_the_square(k: int, order: int) -> None:
    one, many = NOISE.renyi(Fraction(order + 1)), NOISE.for_group(k).renyi(Fraction(order + 1))
    with precision(200):
        assert lower(many - k * k * one) <= 0 <= upper(many - k * k * one)


# What cannot be built.


@each(
    "build",
    [
        lambda: Pure(Fraction(-1)),
        lambda: BoundedRange(Fraction(-1)),
        lambda: Approximate(Fraction(-1), TENTH),
        lambda: Approximate(ONE, Fraction(-1, 10)),
        lambda: Approximate(ONE, Fraction(11, 10)),
        lambda: Concentrated(Fraction(-1)),
        lambda: LaplaceNoise(Fraction(0), 1),
        lambda: LaplaceNoise(Fraction(-3), 1),
        lambda: LaplaceNoise(ONE, -1),
        lambda: GaussianNoise(Fraction(0), ONE, 1),
        lambda: GaussianNoise(ONE, Fraction(-1), 1),
        lambda: GaussianNoise(ONE, ONE, 0),
        lambda: sampled(Fraction(0), ONE),
        lambda: sampled(Fraction(2), ONE),
        lambda: sampled(TENTH, Fraction(0)),
        lambda: sampled(TENTH, ONE, 0),
    ],
)
def test_a_loss_that_makes_no_sense_cannot_be_built(build: type[Loss]) -> None:
    with pytest.raises(BadParameter):
        build()


@each("value", [0, -1, "1e-10", "1000.1", float("nan"), float("inf"), "1e-320", True, None])
def test_epsilon_must_lie_within_the_ledgers_units(value: float) -> None:
    with pytest.raises(BadParameter):
        checked_epsilon(value)


@each("value", [-1e-9, 1, 2, float("nan"), "inf", None])
def test_delta_must_be_a_probability_below_one(value: float) -> None:
    with pytest.raises(BadParameter):
        checked_delta(value)


def test_a_decimal_means_what_it_says() -> None:
    assert checked_epsilon(0.1) == TENTH
    assert checked_epsilon("1e-9") == Fraction(1, 10**9)
    assert checked_delta(0) == 0


def test_numpy_integers_in_a_loss_do_not_wrap_round() -> None:
    """64-bit products would make an ε of a half cost next to nothing, or give budget back."""
    one: Any = np.int64(1)
    four: Any = np.int64(4)
    scale, terms = 1 / Fraction("0.4999999999999"), Terms.of(1, "1e-6")
    for given_, plain in (
        (LaplaceNoise(scale, one), LaplaceNoise(scale, 1)),
        (GaussianNoise(Fraction("7.77777"), four, one), GaussianNoise(Fraction("7.77777"), Fraction(4), 1)),
        (Pure(Fraction(one, 3)), Pure(Fraction(1, 3))),
    ):
        assert terms.price(given_) == terms.price(plain)
        assert all(type(cost) is int for cost in terms.price(given_).costs)
